//! Tensor maps.

use tessera_driver::TensorMapSpec;

pub(crate) fn encode(_spec: &TensorMapSpec) -> [u8; 128] {
    [0; 128]
}
