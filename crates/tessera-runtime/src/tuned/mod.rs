//! Tuned choices: a kernel that was given a lockfile compiles with what was found best for its arguments.
//!
//! ```no_run
//! use tessera_runtime::{CompileOptions, Device, Kernel, Lock, Tensor};
//! use tessera_types::DType;
//! let lock = Lock::read("tessera.lock")?;
//! let kernel = Kernel::from_file("gemm.py", "gemm")?.with_lock(lock.into());
//! let [a, b, c] = [(); 3].map(|()| Tensor::zeros(DType::F32, &[256, 256]).expect("memory"));
//! let args = [("A", (&a).into()), ("B", (&b).into()), ("C", (&c).into())];
//! let launch = kernel.prepare(&args, tessera_runtime::LaunchGrid::Auto, &CompileOptions::default(), &Device::Cpu)?;
//! println!("{:?}", launch.tuned());
//! # Ok::<(), tessera_runtime::KernelError>(())
//! ```
//!
//! A caller who chooses (a configuration, a plan, threads) has chosen, and no lockfile is asked. Nor is it at `-O0`, where nothing is chosen.

mod file;
mod key;
mod space;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tessera_compile::{CompileOptions, OptLevel};
use tessera_lang::ArgType;
use tessera_lock::{Entry, Key, Lockfile};

pub use key::Question;
pub(crate) use space::Config;
pub use space::Point;

use crate::device::Device;
use crate::kernel::{Kernel, KernelError};

/// A lockfile that was read, or choices of one's own in its place.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    entries: RwLock<Lockfile>,
    frozen: bool,
}

/// The choice that a launch was compiled with.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The lockfile.
    pub path: PathBuf,
    /// What it says.
    pub entry: Entry,
}

/// What is compiled for arguments of some types.
#[derive(Clone, Debug)]
pub struct Chosen<'a> {
    /// Their types: with a choice those for which launches compile, otherwise as they were written.
    pub types: Cow<'a, [(String, ArgType)]>,
    /// The caller's options with the choice.
    pub options: Cow<'a, CompileOptions>,
    /// The choice.
    pub tuned: Option<Tuned>,
}

impl Lock {
    /// Reads a lockfile; one that is not there has no entries.
    ///
    /// # Errors
    /// Where the file cannot be read, or is no lockfile; with the line and column.
    pub fn read(path: impl AsRef<Path>) -> Result<Lock, KernelError> {
        let path = path.as_ref();
        Ok(Lock { entries: RwLock::new(file::read(path)?.unwrap_or_default()), path: path.to_path_buf(), frozen: false })
    }

    /// The same lockfile for launches that may not do without an entry: a missing one is an error.
    #[must_use]
    pub fn frozen(self) -> Lock {
        Lock { frozen: true, ..self }
    }

    /// Whether a missing entry is an error.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds.
    pub fn entries(&self) -> RwLockReadGuard<'_, Lockfile> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other choices from now on, for launches that are prepared then. The file stays as it is.
    pub fn set(&self, entries: Lockfile) {
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    /// Options with the choice of an entry.
    pub fn apply(&self, entry: &Entry, options: &CompileOptions) -> CompileOptions {
        let plan = entry.plan.clone().map(|text| (self.path.display().to_string(), text));
        CompileOptions { searched: true, config: entry.config.clone().into_iter().collect(), plan, ..options.clone() }
    }

    /// Puts entries into a lockfile, in the place of those that were there for the same keys. The file is replaced as a whole; tuners that write
    /// at once wait for each other.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or is no lockfile.
    pub fn record(path: impl AsRef<Path>, entries: Lockfile) -> Result<(), KernelError> {
        file::update(path.as_ref(), entries)
    }
}

impl Kernel {
    /// The kernel, with choices from a lockfile.
    #[must_use]
    pub fn with_lock(mut self, lock: Arc<Lock>) -> Kernel {
        self.lock = Some(lock);
        self
    }

    /// The kernel as nobody tuned it.
    #[must_use]
    pub fn without_lock(mut self) -> Kernel {
        self.lock = None;
        self
    }

    /// The lockfile that it was given.
    pub fn lock(&self) -> Option<&Arc<Lock>> {
        self.lock.as_ref()
    }

    /// Options with the choice that the kernel's lockfile has for a question, and that choice.
    ///
    /// # Errors
    /// Where the lockfile is frozen and has none.
    pub fn tuned_options<'o>(
        &self,
        question: &Question<'_>,
        options: &'o CompileOptions,
        device: &Device,
    ) -> Result<(Cow<'o, CompileOptions>, Option<Tuned>), KernelError> {
        let Some(lock) = self.lock.as_ref().filter(|_| is_open(options)) else { return Ok((Cow::Borrowed(options), None)) };
        let key = self.tuning_key(question, options, device)?;
        match lock.entries().get(&key) {
            Some(entry) => {
                Ok((Cow::Owned(lock.apply(entry, options)), Some(Tuned { path: lock.path.clone(), entry: entry.clone() })))
            }
            None if lock.frozen && self.has_choice(device)? => Err(lock.missing(key)),
            None => Ok((Cow::Borrowed(options), None)),
        }
    }

    /// The same for code that is compiled for a target and launched elsewhere: the choice of a product with that target.
    ///
    /// # Errors
    /// Where products of the target have different choices; where the lockfile is frozen and has none.
    pub fn tuned_for_target<'o>(
        &self,
        question: &Question<'_>,
        options: &'o CompileOptions,
        target: &str,
    ) -> Result<(Cow<'o, CompileOptions>, Option<Tuned>), KernelError> {
        let Some(lock) = self.lock.as_ref().filter(|_| is_open(options)) else { return Ok((Cow::Borrowed(options), None)) };
        let key = self.key_on(question, options, target.to_string(), String::new())?;
        let fits = |other: &Key| {
            let [asked, has] = [&key, other].map(|key| (&key.kernel, &key.ir, &key.shape));
            let of_target = other.device.strip_prefix(target).is_some_and(|product| product.starts_with(' '));
            // The driver's version is a product's.
            let driver = other.toolchain.strip_prefix(&key.toolchain);
            let of_this = driver.is_some_and(|driver| driver.is_empty() || driver.starts_with(','));
            asked == has && of_target && of_this
        };
        let entries = lock.entries();
        let found: Vec<(&Key, &Entry)> = entries.iter().filter(|(key, _)| fits(key)).collect();
        let choice = |entry: &Entry| (entry.config.clone(), entry.plan.clone());
        match found.as_slice() {
            [] if lock.frozen && self.has_choice_where(false)? => Err(lock.missing(key)),
            [] => Ok((Cow::Borrowed(options), None)),
            [(_, entry), rest @ ..] if rest.iter().all(|(_, other)| choice(other) == choice(entry)) => {
                let tuned = Tuned { path: lock.path.clone(), entry: (*entry).clone() };
                Ok((Cow::Owned(lock.apply(entry, options)), Some(tuned)))
            }
            several => Err(KernelError::SeveralTuned {
                kernel: self.name().to_string(),
                lock: lock.path.display().to_string(),
                devices: several.iter().map(|(key, _)| format!("{} ({})", key.device, key.toolchain)).collect(),
            }),
        }
    }

    /// What to compile for arguments of these types, for the target of the options or else for this CPU. Types that leave sizes open have no
    /// choice.
    ///
    /// A choice was made for the kernel of launches, which knows how arrays are aligned and not how large they are: with one, it is that kernel
    /// which is compiled. The values that a plan names are those of that kernel.
    ///
    /// # Errors
    /// Where products of the target have different choices; where the lockfile is frozen, and has none or sizes are open.
    pub fn tuned_for_types<'o>(
        &self,
        types: &'o [(String, ArgType)],
        options: &'o CompileOptions,
    ) -> Result<Chosen<'o>, KernelError> {
        let written = || Chosen { types: Cow::Borrowed(types), options: Cow::Borrowed(options), tuned: None };
        let Some(lock) = self.lock.as_ref().filter(|_| is_open(options)) else { return Ok(written()) };
        let Some(question) = Question::of_types(types) else {
            if lock.frozen && self.has_choice_where(options.target.is_none())? {
                return Err(KernelError::OpenSizes { kernel: self.name().to_string(), lock: lock.path.display().to_string() });
            }
            return Ok(written());
        };
        let (options, tuned) = match &options.target {
            None => self.tuned_options(&question, options, &Device::Cpu)?,
            Some(target) => self.tuned_for_target(&question, options, target)?,
        };
        Ok(if tuned.is_some() { Chosen { types: question.types, options, tuned } } else { written() })
    }
}

/// Whether the caller leaves something to be chosen.
fn is_open(options: &CompileOptions) -> bool {
    options.config.is_empty() && options.plan.is_none() && options.block.is_none() && options.level != OptLevel::O0
}

impl Lock {
    fn missing(&self, key: Key) -> KernelError {
        KernelError::Untuned { lock: self.path.display().to_string(), key: Box::new(key) }
    }
}
