//! `.npy` files: reading never panics or allocates more than the file holds, and what is read is written and read the same
//! (`tf32` alone comes back as `f32`, as which it is written).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tessera_runtime::npy::{decode, encode};
use tessera_types::DType;

fuzz_target!(|bytes: &[u8]| {
    let Ok(tensor) = decode(bytes) else { return };
    let written = encode(&tensor).expect("what was read can be written");
    let again = decode(&written).expect("what was written can be read");
    assert_eq!(again.shape(), tensor.shape());
    let same = again.same_bits(&tensor).expect("both are on the host");
    assert!(same || tensor.dtype() == DType::TF32);
});
