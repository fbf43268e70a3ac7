//! How often each value is used by linked operations.

use tessera_ir::{EntityId, Func, Value};

/// Use counts by value.
pub struct Uses(Vec<u32>);

impl Uses {
    /// The uses in a function.
    pub fn of(func: &Func) -> Uses {
        let mut counts = vec![0; func.values.len()];
        for op in func.linked_ops() {
            for operand in func.ops[op].used() {
                counts[operand.index()] += 1;
            }
        }
        Uses(counts)
    }

    /// Uses of a value as they were counted: one that was made since has none.
    pub fn count(&self, value: Value) -> u32 {
        self.0.get(value.index()).copied().unwrap_or(0)
    }
}
