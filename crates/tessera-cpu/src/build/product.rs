//! Loops that are one matrix product over the whole K axis.

use tessera_ir::Op;

use super::{Builder, Built};

impl Builder<'_> {
    /// Visits `for k: acc = mma(load, load, acc)` as one product; false if the operation is something else.
    pub(super) fn visit_product(&mut self, _op: Op) -> Built<bool> {
        Ok(false)
    }
}
