//! The assembled kernels that this process keeps on disk, where the settings say.

use std::sync::OnceLock;

use tessera_launch::ModuleCache;

use crate::knobs::Knobs;

/// The cache of this process.
pub fn module_cache() -> &'static ModuleCache {
    static CACHE: OnceLock<ModuleCache> = OnceLock::new();
    CACHE.get_or_init(|| ModuleCache::new(Knobs::from_env().ok().and_then(|knobs| knobs.cache)))
}
