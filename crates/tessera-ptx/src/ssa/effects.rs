//! What an instruction may do beside computing its results: the one place that passes ask.
//!
//! | effects | example | unused: dropped | twice: merged | moved |
//! |---|---|---|---|---|
//! | `Pure` | `add`, `cvt`, `setp` | yes | yes | anywhere |
//! | `ReadConstant` | `ld.global.nc` | yes | yes | where it runs anyway |
//! | `Read` | `ld.shared` | yes | up to the next effect | no |
//! | `Warp` | `shfl`, `mma`, `ldmatrix` | yes | no | no |
//! | `Effect` | `st`, `bar`, `atom`, `wgmma` | no | no | no |

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

const PURE: &[&str] = &[
    "mov",
    "cvta",
    "isspacep",
    "mapa",
    "getctarank",
    "selp",
    "prmt",
    "add",
    "sub",
    "mul",
    "mad",
    "mul24",
    "mad24",
    "sad",
    "div",
    "rem",
    "abs",
    "neg",
    "min",
    "max",
    "popc",
    "clz",
    "bfind",
    "brev",
    "bfe",
    "bfi",
    "bmsk",
    "fns",
    "szext",
    "dp4a",
    "dp2a",
    "and",
    "or",
    "xor",
    "not",
    "cnot",
    "lop3",
    "shl",
    "shr",
    "shf",
    "fma",
    "copysign",
    "testp",
    "rcp",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "lg2",
    "ex2",
    "tanh",
    "setp",
    "set",
    "slct",
    "cvt",
    "createpolicy",
];

const WARP: &[&str] = &["shfl", "vote", "match", "redux", "activemask", "elect", "ldmatrix", "movmatrix", "mma"];

/// The effects of a mnemonic with its modifiers.
pub(crate) fn effects(mnemonic: &str, modifiers: &[Modifier]) -> Effects {
    let has = |words: &[Word]| modifiers.iter().any(|found| words.iter().any(|&word| *found == Modifier::Word(word)));
    if PURE.contains(&mnemonic) {
        // The carry flag is a register that no operand names.
        return if has(&[Word::Cc]) { Effects::Effect } else { Effects::Pure };
    }
    if WARP.contains(&mnemonic) {
        return Effects::Warp;
    }
    if mnemonic == "mbarrier" && has(&[Word::PendingCount]) {
        return Effects::Pure;
    }
    if mnemonic == "ld" {
        if has(&[Word::Volatile, Word::Relaxed, Word::Acquire]) {
            return Effects::Effect;
        }
        let constant = has(&[Word::Nc, Word::Param, Word::ParamEntry, Word::Const]);
        return if constant { Effects::ReadConstant } else { Effects::Read };
    }
    Effects::Effect
}

/// Whether a special register keeps its value while a thread runs.
pub(crate) fn is_steady(special: crate::word::Special) -> bool {
    use crate::word::Special as S;
    !matches!(
        special,
        S::Clock | S::ClockHi | S::Clock64 | S::Globaltimer | S::GlobaltimerLo | S::GlobaltimerHi | S::Smid | S::Warpid
    ) && special.ty() != Type::Pred
}
