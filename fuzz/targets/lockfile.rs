//! Lockfiles: reading never panics, and what was read is written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_lock::Lockfile;

fuzz_target!(|text: &str| {
    if let Ok(lockfile) = Lockfile::parse(text) {
        assert_eq!(Lockfile::parse(&lockfile.to_text()).as_ref(), Ok(&lockfile));
    }
});
