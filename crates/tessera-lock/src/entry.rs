//! What was asked and what was chosen.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a choice was made for. Any difference makes another entry, so one that no longer fits is simply not found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kernel's name.
    pub kernel: String,
    /// A hash of the kernel without choices, for arguments of the types at hand, and of what it can choose among.
    pub ir: String,
    /// Sizes, as classes ([`size_class`]).
    pub shape: String,
    /// What it runs on.
    pub device: String,
    /// What compiled it.
    pub toolchain: String,
}

/// Hexadecimal digits of an entry's name.
const ID_DIGITS: usize = 16;

impl Key {
    /// The name of the key's entry: 16 hexadecimal digits.
    pub fn id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.kernel, &self.ir, &self.shape, &self.device, &self.toolchain] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..ID_DIGITS].to_string()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = if self.shape.is_empty() { String::new() } else { format!(" for {}", self.shape) };
        write!(f, "`{}`{sizes} on {} ({})", self.kernel, self.device, self.toolchain)
    }
}

/// Which results a tuned kernel may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bits {
    /// Sums in any order: right within the tolerance.
    #[default]
    Any,
    /// Sums in the order of the kernel that nobody tuned: the same bits.
    Stable,
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bits::Any => "any",
            Bits::Stable => "stable",
        })
    }
}

/// What candidates were compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// Microseconds of a launch.
    Measured,
    /// Microseconds of a launch, as the model says.
    Predicted,
    /// Instructions of all threads, as the emulator counted them.
    Counted,
}

/// A choice, and how it was come by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Choices of the schedule by name.
    pub config: BTreeMap<String, i64>,
    /// The plan, as `--plan` takes it; none where the compiler's own is best.
    pub plan: Option<String>,
    /// Which results were allowed.
    pub bits: Bits,
    /// The class of the order of its sums.
    pub order: String,
    /// Microseconds of a launch, as the model says, where it does.
    pub predicted_us: Option<f64>,
    /// Microseconds of a launch, as measured.
    pub measured_us: Option<f64>,
    /// Instructions of all threads, as the emulator counted them.
    pub counted: Option<u64>,
    /// Candidates that were compared.
    pub candidates: u64,
}

impl Entry {
    /// The choice in one line: `BLOCK_M=64,num_stages=2 and a plan`.
    pub fn summary(&self) -> String {
        match (self.config.is_empty(), &self.plan) {
            (true, None) => "the compiler's own choice".to_string(),
            (false, None) => config_text(&self.config),
            (true, Some(_)) => "a plan".to_string(),
            (false, Some(_)) => format!("{} and a plan", config_text(&self.config)),
        }
    }
}

/// Choices as `--config` takes them.
pub fn config_text(config: &BTreeMap<String, i64>) -> String {
    config.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Reads what [`config_text`] writes; `None` where it is not that.
pub fn parse_config(text: &str) -> Option<BTreeMap<String, i64>> {
    let mut config = BTreeMap::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (name, value) = part.split_once('=')?;
        let is_new = !name.is_empty() && config.insert(name.to_string(), value.parse().ok()?).is_none();
        is_new.then_some(())?;
    }
    Some(config)
}

/// The greatest divisor that a size's class speaks of.
const DIVISOR: u64 = 128;

/// The class of a size: the power of two that is no less, and the power of two that divides it, 128 at most.
///
/// ```
/// use tessera_lock::size_class;
/// assert_eq!([4096, 3000, 77, 1, 0].map(size_class), ["4096/128", "4096/8", "128/1", "1/1", "0"]);
/// ```
pub fn size_class(size: u64) -> String {
    match size {
        0 => "0".to_string(),
        size => {
            let divisor = 1 << size.trailing_zeros().min(DIVISOR.trailing_zeros());
            let above = size.checked_next_power_of_two().map_or("more".to_string(), |above| above.to_string());
            format!("{above}/{divisor}")
        }
    }
}
