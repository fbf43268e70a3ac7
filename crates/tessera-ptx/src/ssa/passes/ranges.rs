//! What is known of a value's size: an interval of its bits read as an unsigned number.
//!
//! Known are the limits of special registers, masks, shifts, remainders, and a loop's index from its start and its bound:
//! `for i in 0..n` has `i < n` in the body whatever `n` is, so it is not negative there.

use super::super::code::{Code, Half};
use super::super::inst::Terminator;
use super::super::kernel::{Block, Class, Inst, Kernel, Origin, ParamKind, Value};
use crate::mnemonic::Mnemonic;
use crate::model::Limit;
use crate::types::Type;
use crate::word::{Special, Word};

/// How far a definition is followed.
const DEEPEST: u32 = 16;

/// Lowest and highest, both included.
pub(super) type Range = (u64, u64);

#[derive(Debug)]
pub(super) struct Ranges {
    known: Vec<Option<Range>>,
    preds: Vec<Vec<Block>>,
}

impl Ranges {
    pub(super) fn new(kernel: &Kernel) -> Ranges {
        Ranges { known: vec![None; kernel.values.len()], preds: super::super::cfg::Cfg::new(kernel).preds }
    }

    pub(super) fn of(&mut self, kernel: &Kernel, value: Value) -> Range {
        self.follow(kernel, value, 0)
    }

    /// Whether the value is not negative as a signed number of its class.
    pub(super) fn is_not_negative(&mut self, kernel: &Kernel, value: Value) -> bool {
        self.of(kernel, value).1 <= kernel.class(value).mask() / 2
    }

    fn follow(&mut self, kernel: &Kernel, value: Value, depth: u32) -> Range {
        let all = (0, kernel.class(value).mask());
        if let Some(known) = self.known.get(value.index()).copied().flatten() {
            return known;
        }
        if depth > DEEPEST {
            return all;
        }
        self.known.resize(self.known.len().max(value.index() + 1), None);
        // A value that depends on itself may be anything, unless it is an index.
        self.known[value.index()] = Some(all);
        let found = match kernel.origin(value) {
            Origin::Const(bits) => (bits, bits),
            Origin::Special(special) => special_range(kernel, special).unwrap_or(all),
            Origin::Param(index) => match kernel.params[index as usize].kind {
                ParamKind::Scalar(Type::U8) => (0, 255),
                _ => all,
            },
            Origin::Undef | Origin::ParamAddress(_) | Origin::Shared(..) | Origin::Data(_) | Origin::Frame => all,
            Origin::BlockParam(block, index) => self.param(kernel, value, block, index as usize, depth).unwrap_or(all),
            Origin::Result(inst) => self.result(kernel, inst, depth).unwrap_or(all),
        };
        let found = if found.0 <= found.1 && found.1 <= all.1 { found } else { all };
        self.known[value.index()] = Some(found);
        found
    }

    fn result(&mut self, kernel: &Kernel, inst: Inst, depth: u32) -> Option<Range> {
        let op = kernel.op(inst);
        if op.mnemonic() == Mnemonic::Ld {
            let is_byte = matches!(op.element(), Some(Type::U8 | Type::B8));
            let is_one = ![Word::V2, Word::V4, Word::V8].into_iter().any(|word| op.has(word));
            return (is_byte && is_one).then_some((0, 255));
        }
        let code = op.code.filter(|code| code.is_whole() || matches!(code, Code::Selp(_)))?;
        let sources = kernel.sources(inst)?;
        let result = kernel.class(kernel.inst(inst).single_def()?);
        let mut ranges = Vec::with_capacity(sources.len());
        for &source in &sources {
            ranges.push(self.follow(kernel, source, depth + 1));
        }
        let at = |index: usize| ranges.get(index).copied();
        let constant = |index: usize| sources.get(index).and_then(|&source| kernel.constant(source));
        let positive = |range: Range, class: Class| range.1 <= class.mask() / 2;
        let class = kernel.class(*sources.first()?);
        let signed = code.is_signed();
        let fits = |low: Option<u64>, high: Option<u64>| match (low, high) {
            (Some(low), Some(high)) if high <= result.mask() => Some((low, high)),
            _ => None,
        };
        // Wide products extend by sign: their operands must not be negative.
        let both = |at: &dyn Fn(usize) -> Option<Range>| Some(positive(at(0)?, class) && positive(at(1)?, class));
        match code {
            Code::Mul(Half::Wide, _) | Code::Mad(Half::Wide, _) if signed && !both(&at)? => None,
            Code::Add(_) => fits(at(0)?.0.checked_add(at(1)?.0), at(0)?.1.checked_add(at(1)?.1)),
            Code::Sub(_) if at(0)?.0 >= at(1)?.1 => Some((at(0)?.0 - at(1)?.1, at(0)?.1 - at(1)?.0)),
            Code::Mul(Half::Low | Half::Wide, _) => fits(at(0)?.0.checked_mul(at(1)?.0), at(0)?.1.checked_mul(at(1)?.1)),
            Code::Mad(Half::Low | Half::Wide, _) => {
                let low = at(0)?.0.checked_mul(at(1)?.0)?.checked_add(at(2)?.0);
                fits(low, at(0)?.1.checked_mul(at(1)?.1)?.checked_add(at(2)?.1))
            }
            Code::And(_) => Some((0, at(0)?.1.min(at(1)?.1))),
            Code::Or(_) | Code::Xor(_) => {
                let bits = 64 - at(0)?.1.max(at(1)?.1).leading_zeros();
                Some((0, if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }))
            }
            Code::Shl(_) if constant(1)? < 64 => {
                let shift = |value: u64| value.checked_mul(1 << constant(1)?);
                fits(shift(at(0)?.0), shift(at(0)?.1))
            }
            Code::Shr(_) if constant(1)? < 64 && (!signed || positive(at(0)?, class)) => {
                Some((at(0)?.0 >> constant(1)?, at(0)?.1 >> constant(1)?))
            }
            Code::Div(_) | Code::Rem(_) | Code::Min(_) | Code::Max(_) if signed && !both(&at)? => None,
            Code::Div(_) if constant(1)? > 0 => Some((at(0)?.0 / constant(1)?, at(0)?.1 / constant(1)?)),
            Code::Rem(_) if at(1)?.0 > 0 => Some((0, at(0)?.1.min(at(1)?.1 - 1))),
            Code::Min(_) => Some((at(0)?.0.min(at(1)?.0), at(0)?.1.min(at(1)?.1))),
            Code::Max(_) => Some((at(0)?.0.max(at(1)?.0), at(0)?.1.max(at(1)?.1))),
            Code::Selp(_) => Some((at(0)?.0.min(at(1)?.0), at(0)?.1.max(at(1)?.1))),
            Code::Popc(_) | Code::Clz(_) => Some((0, 64)),
            Code::Cvt(to, from) => match (to, from) {
                (Type::U64 | Type::S64 | Type::U32, Type::U32) => at(0),
                (Type::U64 | Type::S64, Type::S32) if positive(at(0)?, class) => at(0),
                (Type::U32 | Type::S32, Type::U64 | Type::S64) if at(0)?.1 <= 0xFFFF_FFFF => at(0),
                (Type::U64 | Type::S64 | Type::U32 | Type::S32, Type::U16) => at(0),
                _ => None,
            },
            Code::Sub(_)
            | Code::Mul(Half::High, _)
            | Code::Mad(Half::High, _)
            | Code::Shl(_)
            | Code::Shr(_)
            | Code::Div(_)
            | Code::Rem(_)
            | Code::Neg(_)
            | Code::Not(_)
            | Code::Setp(..) => None,
        }
    }

    /// All that is passed to a block's parameter; of an index that only grows below a bound, start and bound.
    fn param(&mut self, kernel: &Kernel, value: Value, block: Block, index: usize, depth: u32) -> Option<Range> {
        let (mut start, mut around): (Option<Range>, Option<Range>) = (None, None);
        let join = |all: &mut Option<Range>, (low, high): Range| {
            *all = Some(all.map_or((low, high), |known| (known.0.min(low), known.1.max(high))));
        };
        for pred in self.preds[block.index()].clone() {
            let end = kernel.block(pred).terminator.as_ref()?;
            for target in end.targets().filter(|target| target.block == block) {
                let arg = target.args[index];
                match self.bound(kernel, value, arg, end, block, depth) {
                    Some(bound) => join(&mut around, bound),
                    None => join(&mut start, self.follow(kernel, arg, depth + 1)),
                }
            }
        }
        if let (Some(start), Some(around)) = (start, around) {
            // From a negative start an index grows through all that lies between.
            return (start.1 <= kernel.class(value).mask() / 2).then_some((start.0.min(around.0), start.1.max(around.1)));
        }
        start
    }

    /// What an index may be when it comes around: `next = index + step`, exact, with `next < bound` on the way back.
    fn bound(&mut self, kernel: &Kernel, index: Value, next: Value, end: &Terminator, head: Block, depth: u32) -> Option<Range> {
        let Terminator::Branch { condition, then, .. } = end else { return None };
        let inst = kernel.definition(next)?;
        let sources = kernel.sources(inst)?;
        let [a, b] = sources[..] else { return None };
        let step = kernel.constant(b).filter(|_| a == index)?;
        let (compare, operands) = kernel.expression(*condition)?;
        let Code::Setp(Word::Lt, ty) = compare else { return None };
        let same_type = kernel.code(inst) == Some(Code::Add(ty));
        let signed = compare.is_signed();
        let half = kernel.class(index).mask() / 2;
        if !kernel.inst(inst).exact || !same_type || then.block != head || operands[0] != next || step == 0 || step > half {
            return None;
        }
        let bound = self.follow(kernel, operands[1], depth + 1).1;
        let highest = if signed { bound.min(half) } else { bound };
        // It only grows: nothing below the start comes around, so the start alone gives the low end.
        highest.checked_sub(1).map(|highest| (highest.min(step), highest))
    }
}

fn special_range(kernel: &Kernel, special: Special) -> Option<Range> {
    let threads = kernel.limits.iter().find_map(|limit| match limit {
        Limit::RequiredThreads(extents) | Limit::MaxThreads(extents) => Some(*extents),
        _ => None,
    });
    let thread = |axis: usize, most: u64| threads.map_or(most, |extents| u64::from(extents[axis]).max(1) - 1);
    let grid = 0x7FFF_FFFF;
    let high = match special {
        Special::TidX => thread(0, 1023),
        Special::TidY => thread(1, 1023),
        Special::TidZ => thread(2, 63),
        Special::NtidX | Special::NtidY | Special::NtidZ => 1024,
        Special::CtaidX | Special::NctaidX | Special::ClusteridX | Special::NclusteridX => grid,
        Special::CtaidY | Special::CtaidZ | Special::NctaidY | Special::NctaidZ => 65535,
        Special::Laneid => 31,
        Special::Warpid => 63,
        Special::ClusterCtarank => 15,
        Special::ClusterNctarank => 16,
        _ => return None,
    };
    Some((0, high))
}
