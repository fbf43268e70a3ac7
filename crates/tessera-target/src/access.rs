//! The accesses to memory of a finished kernel, equal ones together, each with what it costs a warp.

use tessera_ptx::ssa::{Kernel, Space, Touch, touches};

/// Instructions of one kind that a warp reads or writes memory with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access<C> {
    /// File, by its number among the kernel's from 1 on, line and column of what they are made for.
    pub place: Option<(u32, u32, u32)>,
    /// The operation, such as `ld.shared.v4.b32`.
    pub operation: String,
    /// They write.
    pub stores: bool,
    /// Bytes at each lane's address.
    pub bytes: u32,
    /// Loops around them.
    pub loops: u32,
    /// How many there are.
    pub instructions: u32,
    /// What each of them costs.
    pub cost: C,
}

/// Every access of a kernel to a space, in the order of the kernel's text.
pub(super) fn accesses<C: Clone + PartialEq>(kernel: &Kernel, space: Space, cost: impl Fn(&Touch) -> C) -> Vec<Access<C>> {
    let mut found: Vec<Access<C>> = Vec::new();
    for touch in touches(kernel).into_iter().filter(|touch| touch.space == space) {
        let one = Access {
            place: touch.loc.map(|loc| (loc.file, loc.line, loc.column)),
            operation: touch.text.clone(),
            stores: touch.stores,
            bytes: touch.bytes,
            loops: touch.loops,
            instructions: 1,
            cost: cost(&touch),
        };
        match found.iter_mut().find(|known| Access { instructions: 1, ..(*known).clone() } == one) {
            Some(known) => known.instructions += 1,
            None => found.push(one),
        }
    }
    found
}
