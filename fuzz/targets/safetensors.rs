//! `.safetensors` files: listing and reading never panic or allocate more than the file holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_runtime::safetensors::{decode, encode, entries};

fuzz_target!(|bytes: &[u8]| {
    let Ok(entries) = entries(bytes) else { return };
    for entry in entries {
        let Ok(tensor) = decode(bytes, &entry.name) else { continue };
        assert_eq!(tensor.shape(), entry.shape);
        let written = encode(&[(&entry.name, &tensor)]).expect("what was read can be written");
        let again = decode(&written, &entry.name).expect("what was written can be read");
        assert!(again.same_bits(&tensor).expect("both are on the host"));
    }
});
