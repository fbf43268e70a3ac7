//! What accesses to shared memory cost: the bank conflicts of every instruction of a finished kernel, from the addresses that its lanes
//! compute.
//!
//! A degree of 4 means that the busiest bank is asked for four different words in one phase of an instruction (32 lanes of up to 4
//! bytes, 16 of 8, 8 of 16); 1 is free of conflicts.

use tessera_layout::wavefronts;
use tessera_ptx::ssa::{Kernel, Space, Touch};

use super::access::{Access, accesses};

/// What one instruction on shared memory costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BankCost {
    /// How often the busiest bank is asked by a phase of it; `None` where data decides.
    pub degree: Option<u32>,
    /// How long it occupies the banks.
    pub wavefronts: u32,
    /// The same without conflicts.
    pub ideal: u32,
}

/// Every access of a kernel to shared memory.
pub fn shared_accesses(kernel: &Kernel) -> Vec<Access<BankCost>> {
    accesses(kernel, Space::Shared, cost)
}

fn cost(touch: &Touch) -> BankCost {
    let mut cost = BankCost::default();
    for addresses in &touch.rounds {
        let phases = wavefronts(addresses, u64::from(touch.bytes));
        let (all, worst) = (phases.iter().sum::<u32>(), phases.iter().copied().fold(1, u32::max));
        if cost.degree.is_none_or(|degree| worst > degree) {
            cost.degree = Some(worst);
        }
        if all > cost.wavefronts {
            cost.wavefronts = all;
            cost.ideal = phases.iter().filter(|&&degree| degree > 0).count() as u32;
        }
    }
    cost
}
