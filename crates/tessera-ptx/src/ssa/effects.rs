//! What an instruction may do beside computing its results: the one place that passes ask.
//!
//! | effects | example | unused: dropped | twice: merged | moved |
//! |---|---|---|---|---|
//! | `Pure` | `add`, `cvt`, `setp` | yes | yes | anywhere |
//! | `ReadConstant` | `ld.global.nc` | yes | yes | where it runs anyway |
//! | `Read` | `ld.shared` | yes | up to the next effect | no |
//! | `Warp` | `shfl`, `mma`, `ldmatrix` | yes | no | no |
//! | `Effect` | `st`, `bar`, `atom`, `wgmma` | no | no | no |

use crate::mnemonic::{Mnemonic, Reach};
use crate::types::Type;
use crate::word::{Modifier, Word};

/// What an instruction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effects {
    /// Computes its results from its operands and nothing else.
    Pure,
    /// Reads memory that does not change while the kernel runs.
    ReadConstant,
    /// Reads memory.
    Read,
    /// Talks to the other threads of its warp; what it does depends on where it stands.
    Warp,
    /// Changes memory, waits, or changes what others see.
    Effect,
}

/// The effects of a mnemonic with its modifiers.
pub(crate) fn effects(mnemonic: Mnemonic, modifiers: &[Modifier]) -> Effects {
    let has = |words: &[Word]| modifiers.iter().any(|found| words.iter().any(|&word| *found == Modifier::Word(word)));
    match mnemonic.reach() {
        // The carry flag is a register that no operand names.
        Reach::Operands if has(&[Word::Cc]) => Effects::Effect,
        Reach::Operands => Effects::Pure,
        Reach::Warp => Effects::Warp,
        Reach::Machine if mnemonic == Mnemonic::Mbarrier && has(&[Word::PendingCount]) => Effects::Pure,
        Reach::Machine if mnemonic == Mnemonic::Ld && !has(&[Word::Volatile, Word::Relaxed, Word::Acquire]) => {
            let constant = has(&[Word::Nc, Word::Param, Word::ParamEntry, Word::Const]);
            if constant { Effects::ReadConstant } else { Effects::Read }
        }
        Reach::Machine => Effects::Effect,
    }
}

/// Whether a special register keeps its value while a thread runs.
pub(crate) fn is_steady(special: crate::word::Special) -> bool {
    use crate::word::Special as S;
    !matches!(
        special,
        S::Clock | S::ClockHi | S::Clock64 | S::Globaltimer | S::GlobaltimerLo | S::GlobaltimerHi | S::Smid | S::Warpid
    ) && special.ty() != Type::Pred
}
