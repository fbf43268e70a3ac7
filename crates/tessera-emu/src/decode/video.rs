//! Video instructions: which bytes and halves of registers they take.

use smallvec::SmallVec;
use tessera_ptx::{Operand, Part, Type, Word};

use super::modifiers::Mods;
use super::{Builder, Result};
use crate::ops::video::{How, Mad, One, Several, Side, Then, Video};
use crate::program::Op;

/// A register operand without what is selected of it, that, and whether it is negated.
fn selected(operand: &Operand) -> (Operand, Option<Part>, bool) {
    match operand {
        Operand::Part { register, part, negated } => (Operand::Register(*register), *part, *negated),
        other => (other.clone(), None, false),
    }
}

impl Builder<'_> {
    /// Some forms of one operation alone. Those of which an H200 gave what the manual says are executed.
    fn departs(&self) -> String {
        let reason = "what ptxas makes of it for sm_90a departs from the manual (on an H200)";
        format!("`{}` is not executed: {reason}", self.current.mnemonic)
    }

    pub(super) fn video(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let types: SmallVec<[Type; 3]> = mods.types().collect();
        let signed = |index: usize| types.get(index).is_some_and(|ty| *ty == Type::S32);
        let compares = mnemonic.starts_with("vset");
        // The types of the operands stand behind the result's, which a comparison does not have.
        let first = usize::from(!compares);
        let [to, a, b, rest @ ..] = operands else { return Ok(false) };
        let ((to, mask, _), (a, part_a, minus_a), (b, part_b, minus_b)) = (selected(to), selected(a), selected(b));
        let none = Operand::Int(0);
        let (c, _, minus_c) = selected(rest.first().unwrap_or(&none));
        let lanes = mnemonic.as_bytes().last().map_or(1, |digit| if digit.is_ascii_digit() { digit - b'0' } else { 1 });
        let (a_side, b_side) = (Side { signed: signed(first), part: part_a }, Side { signed: signed(first + 1), part: part_b });
        let saturate = mods.has(Word::Sat);
        if saturate && lanes == 1 {
            return Err(self.departs());
        }
        let video = if mnemonic == "vmad" {
            if mods.any(&[Word::Shr7, Word::Shr15]).is_some() {
                return Err(self.departs());
            }
            Video::Mad(Mad {
                a: a_side,
                b: b_side,
                negate_product: minus_a != minus_b,
                negate_c: minus_c,
                plus_one: mods.has(Word::PlusOne),
            })
        } else {
            let compare = if compares { Some(Self::compare(mods)?.0) } else { None };
            let wrap = mods.any(&[Word::Wrap, Word::Clamp]) == Some(Word::Wrap);
            let name = mnemonic[1..].trim_end_matches(|digit: char| digit.is_ascii_digit());
            let Some(how) = How::of(name, wrap, compare) else { return Ok(false) };
            let to_signed = !compares && signed(0);
            if lanes > 1 {
                let places = [part_a, part_b];
                let sum = mods.has(Word::Add);
                let (a, b) = (a_side.signed, b_side.signed);
                Video::Several(Several { how, bytes: lanes == 4, to: to_signed, a, b, saturate, sum, places, mask })
            } else {
                let then = match (mods.any(&[Word::Add, Word::Min, Word::Max]), mask) {
                    (Some(Word::Add), _) => Then::Add,
                    (Some(_), _) => return Err(self.departs()),
                    (None, Some(part)) if !part.bytes && part.places().eq([1]) => return Err(self.departs()),
                    (None, Some(part)) => Then::Merge(part),
                    (None, None) => Then::Nothing,
                };
                Video::One(One { how, a: a_side, b: b_side, then })
            }
        };
        let from = [self.source(&a, false)?, self.source(&b, false)?, self.source(&c, false)?];
        let to = self.destination(&to, false)?;
        self.emit(Op::Video { video, to, from });
        Ok(true)
    }
}
