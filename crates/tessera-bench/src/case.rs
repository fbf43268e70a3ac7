//! What the harness needs to know of a case, and what a thing under test must be able to do.
//!
//! A **case** is an operator with its sizes, precision, variant and input distribution; its identity does not name the
//! implementation. A **subject** is one implementation of a case with its tensors: the product, or a baseline. The harness
//! owns the launch, the poison and the order of everything; a subject only does what it is told.
//!
//! ```
//! use tessera_bench::{CaseKey, Size};
//! let key = CaseKey {
//!     operator: "gemm".into(),
//!     size: Size::new([("m", 512), ("n", 512), ("k", 64)]),
//!     precision: "f32".into(),
//!     variant: "nt".into(),
//!     distribution: "normal01".into(),
//! };
//! assert_eq!(key.to_string(), "gemm nt 512x512x64 f32");
//! assert_eq!(key.id().len(), 16);
//! ```

use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tessera_ops::RowIdentity;
use tessera_types::DType;

use crate::random::Digest;
use crate::status::Status;

/// Named extents in the order in which the operator declares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size(Vec<(String, u64)>);

impl Size {
    /// The extents, in order.
    pub fn new<N: Into<String>>(extents: impl IntoIterator<Item = (N, u64)>) -> Size {
        Size(extents.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// Names and values in declaration order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The extent called `name`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.0.iter().map(|(_, value)| value.to_string()).collect();
        f.write_str(&values.join("x"))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Extents;
        impl<'de> Visitor<'de> for Extents {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of extents")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Size, A::Error> {
                let mut extents = Vec::new();
                while let Some(entry) = map.next_entry::<String, u64>()? {
                    extents.push(entry);
                }
                Ok(Size(extents))
            }
        }
        deserializer.deserialize_map(Extents)
    }
}

/// The identity of a case: everything but the implementation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseKey {
    /// The operator's name, as in `tessera list ops`.
    pub operator: String,
    /// Its extents.
    pub size: Size,
    /// The precision policy.
    pub precision: String,
    /// What else distinguishes it (`nt`, `causal`, `strided4`); empty where there is nothing.
    pub variant: String,
    /// How the inputs are distributed (`normal01`).
    pub distribution: String,
}

impl CaseKey {
    /// A hash of the identity in 16 hexadecimal digits, stable across runs, machines and versions.
    pub fn id(&self) -> String {
        let mut digest = Digest::default();
        digest.bytes(self.operator.as_bytes());
        for (name, value) in self.size.iter() {
            digest.bytes(name.as_bytes());
            digest.word(value);
        }
        for part in [&self.precision, &self.variant, &self.distribution] {
            digest.bytes(part.as_bytes());
        }
        format!("{:016x}", digest.finish())
    }

    /// Bus bandwidth over algorithm bandwidth, of a collective.
    pub fn bus_factor(&self) -> Option<f64> {
        let collective = crate::collectives::Collective::parse(&self.operator)?;
        Some(collective.bus_factor(usize::try_from(self.size.get("ranks")?).ok()?))
    }

    /// The operator with its variant: `gemm nt`.
    pub fn title(&self) -> String {
        if self.variant.is_empty() { self.operator.clone() } else { format!("{} {}", self.operator, self.variant) }
    }
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.title(), self.size, self.precision)
    }
}

/// Which arithmetic ceiling bounds a case's useful operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlopClass {
    /// Fused multiply-adds of binary64.
    F64,
    /// Fused multiply-adds of binary32; also of narrower formats that are widened to it.
    F32,
    /// Products of tf32 pairs added into binary32.
    Tf32,
    /// Products of binary16 pairs added into binary32.
    F16,
    /// Products of bfloat16 pairs added into binary32.
    Bf16,
    /// Products of eight-bit floats added into binary32.
    F8,
    /// Products of bytes added into 32-bit integers.
    I8,
}

impl FlopClass {
    /// Every class, widest first.
    pub const ALL: [FlopClass; 7] =
        [FlopClass::F64, FlopClass::F32, FlopClass::Tf32, FlopClass::F16, FlopClass::Bf16, FlopClass::F8, FlopClass::I8];

    /// The name used in results files.
    pub const fn name(self) -> &'static str {
        match self {
            FlopClass::F64 => "f64",
            FlopClass::F32 => "f32",
            FlopClass::Tf32 => "tf32",
            FlopClass::F16 => "f16",
            FlopClass::F8 => "f8",
            FlopClass::Bf16 => "bf16",
            FlopClass::I8 => "i8",
        }
    }
}

/// In which unit a case's throughput is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Useful bytes a second.
    Bandwidth,
    /// Useful floating-point (or integer) operations a second.
    Compute,
}

/// The work a case must do at least, whatever the implementation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes of inputs, each counted once at packed width.
    pub read_bytes: u64,
    /// Bytes of outputs, each counted once at packed width.
    pub write_bytes: u64,
    /// Useful operations; a multiply-add is two.
    pub flops: u64,
    /// The ceiling that the operations are held against; none where they have no hardware rate that is measured.
    pub class: Option<FlopClass>,
    /// The unit of the headline throughput.
    pub metric: Metric,
    /// All memory that the subject holds for this case (tensors at their allocated width).
    pub tensor_bytes: u64,
    /// How bytes and operations were counted, for the report's footnote: `2mnk flop, (mk+kn+mn) elements`.
    pub formula: String,
}

impl Work {
    /// Compulsory traffic: inputs once and outputs once.
    pub fn min_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }
}

/// How an output is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Bit for bit: integers, copies, casts, permutations.
    Exact,
    /// Within a bound that the reference states for each element.
    Bounded,
}

/// One output as the gate sees it: a matrix of elements.
#[derive(Clone, Debug)]
pub struct Output {
    /// The parameter's name.
    pub name: String,
    /// Number of rows. A vector is `rows = n, row_len = 1`: the gate works on blocks of whole rows.
    pub rows: usize,
    /// Elements in a row.
    pub row_len: usize,
    /// The element type.
    pub dtype: DType,
    /// How it is judged.
    pub check: Check,
    /// The number that an element's bits stand for.
    pub decode: fn(u64) -> f64,
}

impl Output {
    /// Elements in all.
    pub fn len(&self) -> usize {
        self.rows * self.row_len
    }

    /// True when there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What buffers are filled with before a launch, so that what it does not write shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// Every bit set: NaN in every float format that has one.
    Ones,
    /// Alternating bits (`0x55`): finite and large.
    Alternating,
}

impl Poison {
    /// The byte that every byte of outputs and workspace is set to.
    pub const fn byte(self) -> u8 {
        match self {
            Poison::Ones => 0xff,
            Poison::Alternating => 0x55,
        }
    }

    /// The bits of an unwritten element of type `dtype`.
    pub fn code(self, dtype: DType) -> u64 {
        let bits = if dtype.is_byte_bool() { 8 } else { dtype.bits() };
        (u64::from(self.byte()) * 0x0101_0101_0101_0101) & (u64::MAX >> (64 - bits))
    }
}

/// How timed launches follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// Each by itself, as the subject times launches.
    Isolated,
    /// Many without a pause, so that what a launch costs the device's front end is not what is measured: for launches that
    /// take hardly longer than one that does nothing.
    Steady,
}

/// Where tensors are moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Whether memory is allocated anew, while the old one is still held: other pages, that is.
    pub fresh: bool,
    /// From which each tensor's place within its memory is derived, in steps of 256 bytes; 0 is where tensors are made.
    pub key: u64,
}

/// Which inputs a subject generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The case's own distribution.
    Case,
    /// The case's own distribution, and NaN and both infinities here and there among floats.
    Special,
    /// Small integers for which every partial result is exact in any order: the reference's bound is then 0.
    Exact,
}

/// Where the reference puts its answer for a block of rows.
#[derive(Debug)]
pub enum Expected<'a> {
    /// For [`Check::Exact`]: the bits of each element.
    Codes(&'a mut [u64]),
    /// For [`Check::Bounded`]: the value in f64 and the largest error a correct implementation can make.
    Values {
        /// The f64 result from the inputs as they are stored.
        want: &'a mut [f64],
        /// The allowed absolute error of each element.
        bound: &'a mut [f64],
    },
}

impl Expected<'_> {
    /// A part of the answer.
    pub fn part(&mut self, range: Range<usize>) -> Expected<'_> {
        match self {
            Expected::Codes(codes) => Expected::Codes(&mut codes[range]),
            Expected::Values { want, bound } => Expected::Values { want: &mut want[range.clone()], bound: &mut bound[range] },
        }
    }
}

/// What a device said of itself around a block of samples; what it does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Clock of a multiprocessor during the block, from its own counters.
    pub mhz: Option<f64>,
    /// Clock of the multiprocessors at the block's end, as the driver states it.
    pub stated_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_mhz: Option<u32>,
    /// Power in watts.
    pub power_w: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Why the clock was not higher: the driver's bits.
    pub reasons: Option<u64>,
    /// Processes that compute on the device.
    pub processes: Option<u32>,
    /// Of several ranks, the one whose median of the block is the largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_rank: Option<u32>,
    /// The smallest of the ranks' medians, in nanoseconds; a collective's own time is that of the slowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fastest_rank_ns: Option<f64>,
}

impl DeviceState {
    /// Whether hardware, heat or the power supply held the clock down: the block does not count.
    pub fn is_throttled(&self) -> bool {
        const HARDWARE_HEAT_BRAKE: u64 = 0x8 | 0x20 | 0x40 | 0x80;
        self.reasons.is_some_and(|reasons| reasons & HARDWARE_HEAT_BRAKE != 0)
    }

    /// Whether the power limit held the clock down: the block counts and is marked.
    pub fn is_power_capped(&self) -> bool {
        self.reasons.is_some_and(|reasons| reasons & 0x4 != 0)
    }
}

/// A stage outside the launch (`parse`, `optimise`, `load`) and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The stage's name.
    pub name: String,
    /// Its wall time.
    pub ns: f64,
}

/// Why a subject could not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{status}: {message}")]
pub struct Fault {
    /// The status of the row: one of `unsupported`, `oom`, `timeout`, `compile_error`, `runtime_error`, `harness_error`.
    pub status: Status,
    /// What happened, for the row's reason.
    pub message: String,
}

impl Fault {
    /// A fault with its reason.
    pub fn new(status: Status, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into() }
    }
}

/// One implementation of a case together with its tensors.
///
/// Outputs and workspace are addressed by element *codes*: the element's bits, zero-extended; sub-byte elements come unpacked.
pub trait Subject {
    /// The outputs that are judged; at least one.
    fn outputs(&self) -> &[Output];

    /// What was spent before the first launch: compilation by stage, loading.
    fn phases(&self) -> Vec<Phase>;

    /// Configuration of the kernel for the record: `BM=64,BN=64`; empty where there is none.
    fn config(&self) -> String {
        String::new()
    }

    /// True when equal inputs give equal bits on every launch.
    fn deterministic(&self) -> bool {
        true
    }

    /// True when a launch leaves the same outputs however many went before it (false for accumulation in place).
    fn repeatable(&self) -> bool {
        true
    }

    /// True when [`Lane::Exact`] means something for this case.
    fn has_exact_lane(&self) -> bool {
        false
    }

    /// Generates the inputs anew from `seed`.
    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault>;

    /// Fills outputs and workspace with `poison`; an output that is also an input gets its initial content back instead.
    fn poison(&mut self, poison: Poison) -> Result<(), Fault>;

    /// Does the work once and returns when it is finished. This alone is timed.
    fn launch(&mut self) -> Result<(), Fault>;

    /// Writes the codes of whole rows of one output.
    fn read(&self, output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault>;

    /// Computes the reference for whole rows of one output from the current inputs.
    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault>;

    /// Where not every row of an output is read and compared, the ranges that are, in rising order and not touching.
    fn sampled_rows(&self, _output: usize) -> Option<Vec<Range<usize>>> {
        None
    }

    /// Computes the reference for several ranges of rows, one after another.
    fn expect_sampled(&self, output: usize, rows: &[Range<usize>], mut expected: Expected<'_>) -> Result<(), Fault> {
        let row_len = self.outputs()[output].row_len;
        let mut start = 0;
        for range in rows {
            let part = start..start + range.len() * row_len;
            start = part.end;
            self.expect(output, range.clone(), expected.part(part))?;
        }
        Ok(())
    }

    /// What a check of all rows at once says of an output whose rows are sampled, where the operator has one.
    fn identity(&self, _output: usize) -> Result<Option<Vec<RowIdentity>>, Fault> {
        Ok(None)
    }

    /// A digest of all outputs, where the subject can take one without handing out every element. Required of those that
    /// sample rows: it shows what the rows left out would hide, such as elements that were not written.
    fn output_digest(&self) -> Result<Option<u64>, Fault> {
        Ok(None)
    }

    /// The same for tensors whose elements are all read by the gate, where that is faster than handing them out.
    fn result_digest(&self) -> Result<Option<u64>, Fault> {
        self.output_digest()
    }

    /// Moves every tensor and keeps what it holds. Subjects whose tensors are part of themselves stay where they are.
    fn relocate(&mut self, _place: Place) -> Result<(), Fault> {
        Ok(())
    }

    /// Plans and compiles again, after the lockfile of the subject and its kernels got other entries. Tensors keep what they hold. Subjects
    /// without kernels of their own have nothing to do.
    fn rebuild(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// How launches are timed from now on. Where the harness's clock is used there is one way: batches.
    fn set_pace(&mut self, _pace: Pace) {}

    /// The most launches that one sample may time together.
    fn most_launches(&self) -> usize {
        usize::MAX
    }

    /// Times `samples` samples of `launches` launches each (nanoseconds of one launch) with a clock of the subject's own, such
    /// as a device's events. `None` where the harness's clock around [`launch`](Subject::launch) will do.
    fn time(&mut self, _samples: usize, _launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        None
    }

    /// What the device said of itself around the last [`time`](Subject::time).
    fn device_state(&self) -> Option<DeviceState> {
        None
    }

    /// A digest of all inputs as they are in memory now.
    fn input_digest(&self) -> Result<u64, Fault>;

    /// Where a guard zone around a tensor was overwritten, if one was.
    fn damaged_guard(&self) -> Option<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(m: u64, variant: &str) -> CaseKey {
        CaseKey {
            operator: "gemm".into(),
            size: Size::new([("m", m), ("k", 3)]),
            precision: "f32".into(),
            variant: variant.into(),
            distribution: "normal01".into(),
        }
    }

    #[test]
    fn identity_covers_every_field_and_survives_json() {
        assert_ne!(key(1, "").id(), key(2, "").id());
        assert_ne!(key(1, "").id(), key(1, "nt").id());
        let text = serde_json::to_string(&key(1, "nt")).unwrap();
        assert!(text.contains(r#""size":{"m":1,"k":3}"#), "{text}");
        let back: CaseKey = serde_json::from_str(&text).unwrap();
        assert_eq!(back.id(), key(1, "nt").id());
    }

    #[test]
    fn poison_codes_fill_the_element() {
        assert_eq!(Poison::Ones.code(DType::F16), 0xffff);
        assert_eq!(Poison::Alternating.code(DType::F4E2M1), 0x5);
        assert_eq!(Poison::Alternating.code(DType::F6E2M3), 0x15);
        assert_eq!(Poison::Ones.code(DType::B1), 0xff);
        assert!(f32::from_bits(Poison::Ones.code(DType::F32) as u32).is_nan());
        assert!(f32::from_bits(Poison::Alternating.code(DType::F32) as u32) > 1e12);
    }
}
