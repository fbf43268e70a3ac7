//! Compiled kernels of this process, found by what they were compiled from.
//!
//! A key is a hash of everything that compilation depends on: source text, kernel, argument types, options. The number of kernels
//! held is bounded; the one that was not asked for longest goes first. Any number of threads may use the cache; two that
//! miss at once compile twice and share the first result.

use std::sync::{Arc, Mutex, OnceLock};

use tessera_compile::CompileOptions;
use tessera_lang::ArgType;
use tessera_types::Arch;

use crate::kernel::Executable;

/// Kernels held at once.
const CAPACITY: usize = 512;

/// What a kernel was compiled from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// The key of a compilation; `source` is the hash of a file's name and text, `arch` a device's architecture.
    pub(crate) fn new(
        source: &[u8; 32],
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
        arch: Option<Arch>,
    ) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(source);
        hasher.update(&(kernel.len() as u64).to_le_bytes());
        hasher.update(kernel.as_bytes());
        // The debug form names every field, and quotes what could be taken for another one.
        hasher.update(format!("{types:?}{options:?}{arch:?}").as_bytes());
        Key(*hasher.finalize().as_bytes())
    }
}

struct Entry {
    key: Key,
    used: u64,
    kernel: Arc<Executable>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    clock: u64,
}

/// The cache of this process.
pub(crate) struct KernelCache {
    state: Mutex<State>,
    capacity: usize,
}

impl KernelCache {
    pub(crate) fn global() -> &'static KernelCache {
        static CACHE: OnceLock<KernelCache> = OnceLock::new();
        CACHE.get_or_init(|| KernelCache::with_capacity(CAPACITY))
    }

    fn with_capacity(capacity: usize) -> KernelCache {
        KernelCache { state: Mutex::default(), capacity }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every change leaves the list whole, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The kernel of a key, made if it is not there; and whether it was there.
    pub(crate) fn get<E>(&self, key: Key, make: impl FnOnce() -> Result<Executable, E>) -> Result<(Arc<Executable>, bool), E> {
        if let Some(kernel) = self.find(key) {
            return Ok((kernel, true));
        }
        // Compiled without the lock: other kernels are found meanwhile.
        let made = Arc::new(make()?);
        if let Some(kernel) = self.find(key) {
            return Ok((kernel, true));
        }
        let mut state = self.state();
        state.clock += 1;
        let used = state.clock;
        if state.entries.len() >= self.capacity
            && let Some(oldest) = (0..state.entries.len()).min_by_key(|&at| state.entries[at].used)
        {
            state.entries.swap_remove(oldest);
        }
        state.entries.push(Entry { key, used, kernel: Arc::clone(&made) });
        Ok((made, false))
    }

    fn find(&self, key: Key) -> Option<Arc<Executable>> {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let entry = state.entries.iter_mut().find(|entry| entry.key == key)?;
        entry.used = clock;
        Some(Arc::clone(&entry.kernel))
    }
}
