//! Bundles: any index, under a right checksum, is an error or variants that can be shown, written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_bundle::{Bundle, VERSION};

/// The code that parts of the index may point into.
const CODE: &[u8] = &[b'/'; 256];

fuzz_target!(|index: &[u8]| {
    let mut bytes = b"tessera bundle\r\n".to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((index.len() as u64).to_le_bytes());
    bytes.extend((CODE.len() as u64).to_le_bytes());
    bytes.resize(64, 0);
    let sum = blake3::hash(&[&bytes, index, CODE].concat());
    bytes.extend([sum.as_bytes(), index, CODE].concat());
    let Ok(bundle) = Bundle::read(&bytes) else { return };
    bundle.variants().iter().for_each(|variant| _ = variant.describe());
    let again = Bundle::read(&bundle.to_bytes()).expect("what was written can be read");
    assert_eq!(format!("{again:?}"), format!("{bundle:?}"));
});
