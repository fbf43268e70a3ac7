//! Marks: one lane of each warp writes the time where its kernel's timeline has a word for it.
//!
//! A word belongs to a mark, to a round of each loop around it, to a warp and to a recorded block, so that nothing is counted and
//! nobody waits: a read of `%globaltimer` and a store under a predicate, without a branch that would part products in flight. Only the
//! first rounds of a loop have words.
//!
//! ```text
//! tile.mark {name="wait for data", phase=begin}      mov.u64 %t, %globaltimer ; @%p st.global.u64 [%a], %t
//! ```

use tessera_ir::attrs::MarkPhase;
use tessera_ir::{HiddenParam, TimelineMark, TimelinePlan};
use tessera_ptx::ssa::{Class, Guard, Value as Reg};
use tessera_ptx::{Special, Type as Ty, Word};

use super::control::Frame;
use super::lowering::Lowering;

/// Recorded rounds of the innermost loop around a mark, and of each loop around that.
const INNER: u32 = 16;
const OUTER: u32 = 4;

impl Lowering<'_> {
    /// Lowers a mark: nothing where the function asks for no timeline.
    pub(super) fn mark(&mut self, name: &str, phase: MarkPhase) {
        let Some(every) = self.func.hints.timeline else { return };
        let every = every.max(1);
        let loops: Vec<[Reg; 3]> = self
            .frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::For { counting, .. } => Some(*counting),
                Frame::Loop { .. } | Frame::If { .. } | Frame::Inline { .. } => None,
            })
            .collect();
        let depth = loops.len();
        let rounds: Vec<u32> = (0..depth).map(|at| if at + 1 == depth { INNER } else { OUTER }).collect();
        let (memory, slot) = self.recorded(every, name, phase, &rounds);

        // Which slot: the rounds of all loops, while each has words for them.
        let mut recorded: Option<Reg> = None;
        let mut at = self.b.u32(0);
        for (counting, &most) in loops.into_iter().zip(&rounds) {
            let round = self.round_of(counting);
            let limit = self.b.u32(most);
            let within = self.b.setp(Word::Lt, Ty::U32, round, limit);
            recorded = self.both(recorded, Some(within));
            at = self.b.mad(Ty::U32, at, limit, round);
        }
        let slot = self.b.u32(slot);
        let slot = self.b.add(Ty::U32, slot, at);

        // Which block and warp.
        let [x, y, z] = [Special::CtaidX, Special::CtaidY, Special::CtaidZ].map(|axis| self.b.special(axis));
        let [nx, ny, nz] = [Special::NctaidX, Special::NctaidY, Special::NctaidZ].map(|axis| self.b.special(axis));
        let block = self.b.mad(Ty::U32, z, ny, y);
        let block = self.b.mad(Ty::U32, block, nx, x);
        let plane = self.b.mul(Ty::U32, nx, ny);
        let blocks = self.b.mul(Ty::U32, plane, nz);
        let (mut number, mut count) = (block, blocks);
        if every > 1 {
            let (step, rest) = (self.b.u32(every), self.b.u32(every - 1));
            number = self.b.div(Ty::U32, block, step);
            let covered = self.b.add(Ty::U32, blocks, rest);
            count = self.b.div(Ty::U32, covered, step);
            let again = self.b.mul(Ty::U32, number, step);
            let sampled = self.b.setp(Word::Eq, Ty::U32, again, block);
            recorded = self.both(recorded, Some(sampled));
        }
        let thread = self.b.special(Special::TidX);
        let (five, mask, zero) = (self.b.u32(5), self.b.u32(31), self.b.u32(0));
        let warp = self.b.shr(Ty::U32, thread, five);
        let lane = self.b.and(thread, mask);
        let first = self.b.setp(Word::Eq, Ty::U32, lane, zero);
        let recorded = self.both(recorded, Some(first)).unwrap_or(first);

        let row = self.b.mad(Ty::U32, slot, count, number);
        let warps = self.b.u32(self.func.hints.threads().div_ceil(32).max(1));
        let word = self.b.mad(Ty::U32, row, warps, warp);
        let eight = self.b.u32(8);
        let address = self.b.mad_wide(Ty::U32, word, eight, memory);
        let time = self.b.special(Special::Globaltimer);
        self.b.under(Guard { value: recorded, negated: false }, |b| b.st("global", Ty::B64, address, time));
    }

    /// The round that a loop is in, counted from 0.
    fn round_of(&mut self, [counter, first, step]: [Reg; 3]) -> Reg {
        let wide = self.class(counter) == Class::B64;
        let ty = if wide { Ty::U64 } else { Ty::U32 };
        let passed = self.b.sub(ty, counter, first);
        let round = if self.b.kernel().constant(step) == Some(1) { passed } else { self.b.div(ty, passed, step) };
        if !wide {
            return round;
        }
        // Rounds beyond 2^32 have no words either.
        let most = self.b.u64(u64::from(u32::MAX));
        let round = self.b.min(Ty::U64, round, most);
        self.b.cvt(Ty::U32, Ty::U64, round)
    }

    /// The memory of the kernel's timeline, and the first slot of one more mark.
    fn recorded(&mut self, every: u32, name: &str, phase: MarkPhase, rounds: &[u32]) -> (Reg, u32) {
        let known = self.hidden.iter().position(|hidden| matches!(hidden, HiddenParam::Timeline(_)));
        let place = known.unwrap_or_else(|| {
            let memory = self.b.pointer_param("timeline", 16);
            let warps = self.func.hints.threads().div_ceil(32).max(1);
            self.hidden.push(HiddenParam::Timeline(TimelinePlan { every, warps, marks: Vec::new() }));
            self.maps.push(memory);
            self.hidden.len() - 1
        });
        let warps = [self.team.first_warp, if self.team.alone { 1 } else { self.team.warps }];
        let mut slot = 0;
        if let HiddenParam::Timeline(plan) = &mut self.hidden[place] {
            slot = plan.slots();
            plan.marks.push(TimelineMark { name: name.to_string(), phase, warps, slot, rounds: rounds.to_vec() });
        }
        (self.maps[place], slot)
    }
}
