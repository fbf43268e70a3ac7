//! What accesses to shared memory cost: the bank conflicts of every instruction of a finished kernel, from the addresses that its lanes
//! compute.
//!
//! A degree of 4 means that the busiest bank is asked for four different words in one phase of an instruction (32 lanes of up to 4
//! bytes, 16 of 8, 8 of 16); 1 is free of conflicts.

use tessera_layout::wavefronts;
use tessera_ptx::ssa::{Kernel, Space, Touch, touches};

/// Instructions of one kind that a warp reads or writes shared memory with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAccess {
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
    /// How often the busiest bank is asked by a phase of one of them; `None` where data decides.
    pub degree: Option<u32>,
    /// How long one of them occupies the banks, and how long it would without conflicts.
    pub wavefronts: u32,
    /// The same without conflicts.
    pub ideal: u32,
}

/// Every access of a kernel, equal ones together, in the order of the kernel's text.
pub fn shared_accesses(kernel: &Kernel) -> Vec<SharedAccess> {
    let mut found: Vec<SharedAccess> = Vec::new();
    for touch in touches(kernel).into_iter().filter(|touch| touch.space == Space::Shared) {
        let one = access(&touch);
        match found.iter_mut().find(|known| SharedAccess { instructions: 1, ..(*known).clone() } == one) {
            Some(known) => known.instructions += 1,
            None => found.push(one),
        }
    }
    found
}

fn access(touch: &Touch) -> SharedAccess {
    let mut one = SharedAccess {
        place: touch.loc.map(|loc| (loc.file, loc.line, loc.column)),
        operation: touch.text.clone(),
        stores: touch.stores,
        bytes: touch.bytes,
        loops: touch.loops,
        instructions: 1,
        degree: None,
        wavefronts: 0,
        ideal: 0,
    };
    for addresses in &touch.rounds {
        let phases = wavefronts(addresses, u64::from(touch.bytes));
        let (all, worst) = (phases.iter().sum::<u32>(), phases.iter().copied().max().unwrap_or(0).max(1));
        if one.degree.is_none_or(|degree| worst > degree) {
            one.degree = Some(worst);
        }
        if all > one.wavefronts {
            one.wavefronts = all;
            one.ideal = phases.iter().filter(|&&degree| degree > 0).count() as u32;
        }
    }
    one
}
