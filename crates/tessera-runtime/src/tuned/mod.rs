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
//!
//! Who else has choices of their own, such as operators with several ways to cut a problem, makes a key by [`Site::key`], and looks for it by
//! [`Lock::find`].

mod file;
mod key;
mod space;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use tessera_compile::{CompileOptions, OptLevel};
use tessera_lang::ArgType;
use tessera_lock::{Entry, Key, Lockfile};

pub use key::{Question, Site};
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
    /// Choices that an entry of some name may lack, as they change nothing in its kernel.
    idle: Mutex<BTreeSet<(String, Vec<String>)>>,
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
        let entries = RwLock::new(file::read(path)?.unwrap_or_default());
        Ok(Lock { entries, path: path.to_path_buf(), frozen: false, idle: Mutex::default() })
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

    /// Whether a caller leaves anything to a lockfile: who chooses, or wants nothing chosen (`-O0`), does not.
    pub fn is_asked(options: &CompileOptions) -> bool {
        options.config.is_empty() && options.plan.is_none() && options.block.is_none() && options.level != OptLevel::O0
    }

    /// The choice that was made for a key; at a [`Site::Target`] that of its products.
    ///
    /// # Errors
    /// Where products of the target have different choices.
    pub fn find(&self, key: &Key, site: Site<'_>) -> Result<Option<Tuned>, KernelError> {
        let entries = self.entries();
        let found: Vec<(&Key, &Entry)> = entries.iter().filter(|(other, _)| site.takes(key, other)).collect();
        let choice = |entry: &Entry| (entry.config.clone(), entry.plan.clone());
        match found.as_slice() {
            [] => Ok(None),
            [(_, entry), rest @ ..] if rest.iter().all(|(_, other)| choice(other) == choice(entry)) => {
                Ok(Some(Tuned { path: self.path.clone(), entry: (*entry).clone() }))
            }
            several => Err(KernelError::SeveralTuned {
                kernel: key.kernel.clone(),
                lock: self.path.display().to_string(),
                devices: several.iter().map(|(key, _)| format!("{} ({})", key.device, key.toolchain)).collect(),
            }),
        }
    }

    /// What to say where a frozen lockfile has no choice for a key.
    pub fn missing(&self, key: Key) -> KernelError {
        KernelError::Untuned { lock: self.path.display().to_string(), key: Box::new(key) }
    }

    /// Options with the choice of an entry.
    pub fn apply(&self, entry: &Entry, options: &CompileOptions) -> CompileOptions {
        let plan = entry.plan.clone().map(|text| (self.path.display().to_string(), text));
        CompileOptions { searched: true, config: entry.config.clone().into_iter().collect(), plan, ..options.clone() }
    }

    /// Refuses a path to which nothing can be written, before anything is measured for it. Its folder is made.
    ///
    /// # Errors
    /// What the system says.
    pub fn accepts(path: impl AsRef<Path>) -> Result<(), KernelError> {
        file::accepts(path.as_ref())
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
    /// What [`Lock::find`] refuses; where the lockfile is frozen and has none.
    pub fn tuned_options<'o>(
        &self,
        question: &Question<'_>,
        options: &'o CompileOptions,
        site: Site<'_>,
    ) -> Result<(Cow<'o, CompileOptions>, Option<Tuned>), KernelError> {
        let Some(lock) = self.lock.as_ref().filter(|_| Lock::is_asked(options)) else {
            return Ok((Cow::Borrowed(options), None));
        };
        let key = self.tuning_key(question, options, site)?;
        match lock.find(&key, site)? {
            Some(tuned) => {
                self.refuse_partial(lock, (&key, &tuned.entry), question, options, site)?;
                Ok((Cow::Owned(lock.apply(&tuned.entry, options)), Some(tuned)))
            }
            None if lock.frozen && self.has_choice_where(site.is_cpu())? => Err(lock.missing(key)),
            None => Ok((Cow::Borrowed(options), None)),
        }
    }

    /// Refuses an entry that leaves choices open, or has one that means nothing here: what the tuner measured is not what would run.
    fn refuse_partial(
        &self,
        lock: &Lock,
        (key, entry): (&Key, &Entry),
        question: &Question<'_>,
        options: &CompileOptions,
        site: Site<'_>,
    ) -> Result<(), KernelError> {
        if site.is_cpu() && entry.plan.is_some() {
            return Err(file::refused(&lock.path, key, "has a `plan`, and the CPU follows none"));
        }
        let space = self.origin.space(self.name()).map_err(|found| self.rejected(found))?;
        let names = space.iter().flat_map(|space| space.choices.keys());
        let missing: Vec<String> = names.filter(|name| !entry.config.contains_key(*name)).cloned().collect();
        let known = || lock.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = (key.id(), missing);
        if asked.1.is_empty() || known().contains(&asked) {
            return Ok(());
        }
        let options = CompileOptions { target: site.target().or_else(|| options.target.clone()), ..options.clone() };
        let idle = self.choices(&question.types, &options)?.idle;
        if let Some(name) = asked.1.iter().find(|name| !idle.contains(name)) {
            return Err(file::refused(
                &lock.path,
                key,
                &format!("has no `{name}` in its `config`, which the kernel's space has"),
            ));
        }
        known().insert(asked);
        Ok(())
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
        let Some(lock) = self.lock.as_ref().filter(|_| Lock::is_asked(options)) else { return Ok(written()) };
        let Some(question) = Question::of_types(types) else {
            if lock.frozen && self.has_choice_where(options.target.is_none())? {
                return Err(KernelError::OpenSizes { kernel: self.name().to_string(), lock: lock.path.display().to_string() });
            }
            return Ok(written());
        };
        let site = options.target.as_deref().map_or(Site::Device(&Device::Cpu), Site::Target);
        let (options, tuned) = self.tuned_options(&question, options, site)?;
        Ok(if tuned.is_some() { Chosen { types: question.types, options, tuned } } else { written() })
    }
}
