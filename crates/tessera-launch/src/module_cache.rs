//! Assembled kernels on disk, shared by every process of a user.
//!
//! An entry's name is a hash of everything that its contents depend on; its contents carry their own checksum. A file appears
//! whole (it is written beside its place and renamed), so any number of processes may read and write at once, and what is
//! damaged, truncated or foreign is assembled again. Nothing here is ever an error: a cache that cannot be read or written is
//! a slower start.
//!
//! ```text
//! <folder>/4f/4f09...e1.cubin     "tessera module 1\n", checksum of the rest (32 bytes), machine code
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const MAGIC: &[u8] = b"tessera module 1\n";
/// Entries beyond which the oldest quarter goes.
const MOST_ENTRIES: usize = 4096;

/// What an entry depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ModuleKey([u8; 32]);

impl ModuleKey {
    /// The key of a text assembled by `assembler` (with its version) for `target` with `options`.
    pub(crate) fn new(text: &[u8], target: &str, assembler: &str, options: &str) -> ModuleKey {
        let mut hasher = blake3::Hasher::new();
        for part in [env!("CARGO_PKG_VERSION").as_bytes(), target.as_bytes(), assembler.as_bytes(), options.as_bytes(), text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        ModuleKey(*hasher.finalize().as_bytes())
    }

    fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How often the cache was of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleCacheCounters {
    /// Entries found.
    pub hits: u64,
    /// Entries not found.
    pub misses: u64,
    /// Entries found damaged.
    pub damaged: u64,
    /// Entries that could not be written.
    pub unwritten: u64,
}

/// Assembled kernels on disk.
#[derive(Debug, Default)]
pub struct ModuleCache {
    folder: Option<PathBuf>,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    unwritten: AtomicU64,
}

impl ModuleCache {
    /// A cache in a folder, which need not exist; without one nothing is kept.
    pub fn new(folder: Option<PathBuf>) -> ModuleCache {
        ModuleCache { folder, ..ModuleCache::default() }
    }

    /// Where it keeps its entries.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// How often it was of use in this process.
    pub fn counters(&self) -> ModuleCacheCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ModuleCacheCounters {
            hits: read(&self.hits),
            misses: read(&self.misses),
            damaged: read(&self.damaged),
            unwritten: read(&self.unwritten),
        }
    }

    /// The entry of a key, or what `make` gives, which is kept. True when it was found.
    pub(crate) fn get<E>(&self, key: ModuleKey, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<(Vec<u8>, bool), E> {
        let Some(folder) = &self.folder else { return Ok((make()?, false)) };
        let name = key.hex();
        let place = folder.join(&name[..2]).join(format!("{name}.cubin"));
        if let Some(found) = self.read(&place) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok((found, true));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let made = make()?;
        if write(&place, &made).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        bound(folder);
        Ok((made, false))
    }

    fn read(&self, place: &Path) -> Option<Vec<u8>> {
        let bytes = fs::read(place).ok()?;
        let body = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(32));
        match body {
            Some((checksum, code)) if blake3::hash(code).as_bytes() == checksum => Some(code.to_vec()),
            _ => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

fn write(place: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = place.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(MAGIC)?;
    file.write_all(blake3::hash(code).as_bytes())?;
    file.write_all(code)?;
    file.persist(place)?;
    Ok(())
}

/// Removes the oldest entries of a folder that holds too many. Several processes may do so at once.
fn bound(folder: &Path) {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries(folder).flat_map(|part| entries(&part).collect::<Vec<_>>()).collect();
    if files.len() <= MOST_ENTRIES {
        return;
    }
    let age = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    files.sort_by_cached_key(age);
    for file in &files[..files.len() / 4] {
        // Somebody else may have been faster.
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(code: &'static [u8]) -> impl FnOnce() -> Result<Vec<u8>, ()> {
        move || Ok(code.to_vec())
    }

    fn unmade() -> Result<Vec<u8>, ()> {
        Err(())
    }

    #[test]
    fn entries_are_found_again_and_depend_on_every_part() {
        let folder = tempfile::tempdir().expect("folder");
        let cache = ModuleCache::new(Some(folder.path().join("deep/er")));
        let key = ModuleKey::new(b"text", "sm_90a", "driver 13000", "");
        assert_eq!(cache.get(key, made(b"code")), Ok((b"code".to_vec(), false)));
        assert_eq!(cache.get(key, unmade), Ok((b"code".to_vec(), true)));
        let others = [
            ModuleKey::new(b"texts", "sm_90a", "driver 13000", ""),
            ModuleKey::new(b"text", "sm_90", "driver 13000", ""),
            ModuleKey::new(b"text", "sm_90a", "driver 12080", ""),
            ModuleKey::new(b"text", "sm_90a", "driver 13000", "O0"),
        ];
        assert!(others.iter().all(|&other| cache.get(other, unmade).is_err()));
        // A second process sees what the first left.
        let again = ModuleCache::new(Some(folder.path().join("deep/er")));
        assert_eq!(again.get(key, unmade), Ok((b"code".to_vec(), true)));
    }

    #[test]
    fn what_is_damaged_is_made_again() {
        let folder = tempfile::tempdir().expect("folder");
        let cache = ModuleCache::new(Some(folder.path().to_owned()));
        let key = ModuleKey::new(b"text", "", "", "");
        cache.get(key, made(b"machine code")).expect("made");
        let place = folder.path().join(&key.hex()[..2]).join(format!("{}.cubin", key.hex()));
        let whole = fs::read(&place).expect("entry");
        let mut flipped = whole.clone();
        flipped[MAGIC.len() + 34] ^= 1;
        for broken in [&whole[..whole.len() - 1], &whole[..10], &flipped, b""] {
            fs::write(&place, broken).expect("write");
            assert_eq!(cache.get(key, made(b"machine code")), Ok((b"machine code".to_vec(), false)));
        }
        assert_eq!(cache.counters().damaged, 4);
        assert_eq!(cache.get(key, unmade), Ok((b"machine code".to_vec(), true)));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("file");
        fs::write(&file, b"").expect("write");
        let cache = ModuleCache::new(Some(file));
        let key = ModuleKey::new(b"text", "", "", "");
        assert_eq!(cache.get(key, made(b"code")), Ok((b"code".to_vec(), false)));
        assert_eq!(cache.counters().unwritten, 1);
        assert_eq!(ModuleCache::new(None).get(key, made(b"code")), Ok((b"code".to_vec(), false)));
    }

    #[test]
    fn many_writers_leave_one_whole_entry() {
        let folder = tempfile::tempdir().expect("folder");
        let key = ModuleKey::new(b"text", "", "", "");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let cache = ModuleCache::new(Some(folder.path().to_owned()));
                    for _ in 0..20 {
                        assert_eq!(cache.get(key, made(b"the same code")).map(|(code, _)| code), Ok(b"the same code".to_vec()));
                        assert_eq!(cache.counters().damaged, 0);
                    }
                });
            }
        });
    }
}
