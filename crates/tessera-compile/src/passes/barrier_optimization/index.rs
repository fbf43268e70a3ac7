//! Index expressions of single threads: a number for each thread of the block, plus values that all threads have in common.
//!
//! ```text
//! %t = tile.thread_id                    0, 1, 2, ...
//! %a = muli %t, 4                        0, 4, 8, ...
//! for %i = %t to %n step 128 { ... }     0, 1, 2, ... + 128 * %i
//! %b = addi %a, %i                       0, 5, 10, ... + 128 * %i
//! ```
//!
//! Invariant: two threads' indices differ by their numbers in `lanes` and, where the common values are the same, by nothing else.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{Predicate, Rounding, Signedness};
use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Block, Const, Def, Func, Op, OpKind, ScheduleOp, TileOp, Value};
use tessera_types::{Arch, DType};

/// An index that each thread computes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Index {
    /// The part that each thread's number decides.
    pub(super) lanes: Rc<[i64]>,
    /// Common values, each with its factor; a loop's counter stands for the round.
    pub(super) common: Vec<(Value, i64)>,
}

impl Index {
    /// The index so many entries ahead.
    pub(super) fn ahead(self, entries: i64) -> Index {
        if entries == 0 { self } else { Index { lanes: self.lanes.iter().map(|lane| lane + entries).collect(), ..self } }
    }

    fn pure(&self) -> Option<&[i64]> {
        self.common.is_empty().then_some(&self.lanes)
    }

    /// The number that it is in all threads.
    pub(super) fn constant(&self) -> Option<i64> {
        let (&first, rest) = self.pure()?.split_first()?;
        rest.iter().all(|&lane| lane == first).then_some(first)
    }

    fn plus(&self, other: &Index, factor: i64) -> Index {
        let mut common = self.common.clone();
        for &(value, count) in &other.common {
            match common.iter_mut().find(|(known, _)| *known == value) {
                Some((_, sum)) => *sum += factor * count,
                None => common.push((value, factor * count)),
            }
        }
        common.retain(|&(_, count)| count != 0);
        Index { lanes: self.zip(other, |a, b| a.wrapping_add(factor.wrapping_mul(b))), common }
    }

    fn zip(&self, other: &Index, combine: impl Fn(i64, i64) -> i64) -> Rc<[i64]> {
        self.lanes.iter().zip(other.lanes.iter()).map(|(&a, &b)| combine(a, b)).collect()
    }

    fn times(&self, factor: i64) -> Index {
        let common = self.common.iter().map(|&(value, count)| (value, count * factor)).filter(|&(_, count)| count != 0);
        Index { common: common.collect(), lanes: self.lanes.iter().map(|&lane| lane.wrapping_mul(factor)).collect() }
    }
}

/// Index expressions of a function, computed when they are asked for.
pub(super) struct Indices<'f> {
    func: &'f Func,
    uniform: &'f UniformityMap,
    threads: usize,
    /// For each block that a loop runs, the loop.
    loops: FxHashMap<Block, Op>,
    known: FxHashMap<Value, Option<Index>>,
}

impl<'f> Indices<'f> {
    pub(super) fn new(func: &'f Func, uniform: &'f UniformityMap) -> Indices<'f> {
        let mut loops = FxHashMap::default();
        for op in func.linked_ops() {
            if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. })) {
                loops.insert(func.ops[op].regions[0], op);
            }
        }
        Indices { func, uniform, threads: func.hints.threads() as usize, loops, known: FxHashMap::default() }
    }

    /// The index that a scalar is; `None` where a thread's number does not decide about it.
    pub(super) fn of(&mut self, value: Value) -> Option<Index> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        // A value that depends on itself through a loop is no expression of this kind.
        self.known.insert(value, None);
        let found = self.computed(value).or_else(|| {
            let common = self.uniform.value(value) <= Uniformity::Role && self.func.ty(value).is_scalar();
            common.then(|| Index { common: vec![(value, 1)], ..self.splat(0) })
        });
        self.known.insert(value, found.clone());
        found
    }

    /// A number as an index.
    pub(super) fn number(&self, number: i64) -> Index {
        self.splat(number)
    }

    /// Whether all threads of a team have the same value.
    pub(super) fn is_common(&self, value: Value) -> bool {
        self.uniform.value(value) <= Uniformity::Role
    }

    /// Which threads a condition holds in, where their numbers alone decide.
    pub(super) fn mask(&mut self, condition: Value) -> Option<Rc<[bool]>> {
        let lanes = self.of(condition)?;
        Some(lanes.pure()?.iter().map(|&lane| lane & 1 == 1).collect())
    }

    fn splat(&self, value: i64) -> Index {
        Index { lanes: std::iter::repeat_n(value, self.threads).collect(), common: Vec::new() }
    }

    fn computed(&mut self, value: Value) -> Option<Index> {
        if !self.func.ty(value).is_scalar() {
            return None;
        }
        if let Some(number) = self.func.constant(value).and_then(Const::as_int) {
            return Some(self.splat(number));
        }
        let op = match self.func.values[value].def {
            Def::Argument(block, 0) => return self.counter(block, value),
            Def::Argument(..) => return None,
            Def::Result(op, _) => op,
        };
        let data = &self.func.ops[op];
        let numbered =
            |number: fn(i64) -> i64| Index { lanes: (0..self.threads as i64).map(number).collect(), common: Vec::new() };
        let warp = i64::from(Arch::WARP);
        debug_assert_eq!(warp, 32);
        match &data.kind {
            OpKind::Tile(TileOp::ThreadId {}) => Some(numbered(|thread| thread)),
            OpKind::Tile(TileOp::LaneId {}) => Some(numbered(|thread| thread % 32)),
            OpKind::Tile(TileOp::WarpId {}) => Some(numbered(|thread| thread / 32)),
            OpKind::Schedule(kind) => self.arithmetic(kind, &data.operands),
            OpKind::Tile(_) | OpKind::Graph(_) => None,
        }
    }

    /// A counter that starts where each thread says and goes on in common steps.
    fn counter(&mut self, block: Block, counter: Value) -> Option<Index> {
        let looped = *self.loops.get(&block)?;
        let data = &self.func.ops[looped];
        let step = self.of(data.one(2))?.constant()?;
        let mut start = self.of(data.one(0))?;
        start.common.push((counter, step));
        Some(start)
    }

    fn arithmetic(&mut self, kind: &ScheduleOp, operands: &[Value]) -> Option<Index> {
        let a = self.of(*operands.first()?)?;
        match kind {
            ScheduleOp::ExtI { .. } | ScheduleOp::Assume { .. } => return Some(a),
            ScheduleOp::TruncI { .. } => return a.pure().is_some().then_some(a),
            ScheduleOp::NegI { .. } => return Some(a.times(-1)),
            _ => {}
        }
        let b = self.of(*operands.get(1)?)?;
        match kind {
            ScheduleOp::AddI { .. } => return Some(a.plus(&b, 1)),
            ScheduleOp::SubI { .. } => return Some(a.plus(&b, -1)),
            ScheduleOp::MulI { .. } => {
                if let Some(factor) = b.constant() {
                    return Some(a.times(factor));
                }
                if let Some(factor) = a.constant() {
                    return Some(b.times(factor));
                }
            }
            ScheduleOp::ShlI { .. } => {
                if let Some(count @ 0..=31) = b.constant() {
                    return Some(a.times(1 << count));
                }
            }
            _ => {}
        }
        let (x, y) = (a.pure()?, b.pure()?);
        let natural = x.iter().chain(y).all(|&lane| lane >= 0);
        let nonzero = y.iter().all(|&lane| lane != 0);
        let lanes = match kind {
            ScheduleOp::MulI { .. } => a.zip(&b, |a, b| a.wrapping_mul(b)),
            ScheduleOp::DivI { rounding: Rounding::Zero | Rounding::NegativeInf, .. } if natural && nonzero => {
                a.zip(&b, |a, b| a / b)
            }
            ScheduleOp::RemI { .. } if natural && nonzero => a.zip(&b, |a, b| a % b),
            ScheduleOp::ShrI { .. } if natural && y.iter().all(|&count| count < 64) => a.zip(&b, |a, b| a >> b),
            ScheduleOp::AndI {} => a.zip(&b, |a, b| a & b),
            ScheduleOp::OrI {} => a.zip(&b, |a, b| a | b),
            ScheduleOp::XorI {} => a.zip(&b, |a, b| a ^ b),
            ScheduleOp::MaxI { signedness } if natural || *signedness == Signedness::Signed => a.zip(&b, i64::max),
            ScheduleOp::MinI { signedness } if natural || *signedness == Signedness::Signed => a.zip(&b, i64::min),
            ScheduleOp::CmpI { predicate, signedness } if natural || *signedness == Signedness::Signed => {
                let holds = |a: i64, b: i64| match predicate {
                    Predicate::Eq => a == b,
                    Predicate::Ne => a != b,
                    Predicate::Lt => a < b,
                    Predicate::Le => a <= b,
                    Predicate::Gt => a > b,
                    Predicate::Ge => a >= b,
                };
                a.zip(&b, |a, b| i64::from(holds(a, b)))
            }
            ScheduleOp::Select {} => {
                let c = self.of(*operands.get(2)?)?;
                let z = c.pure()?;
                a.lanes.iter().zip(y.iter().zip(z)).map(|(&a, (&b, &c))| if a & 1 == 1 { b } else { c }).collect()
            }
            _ => return None,
        };
        Some(Index { lanes, common: Vec::new() })
    }
}

/// A slot's number as a ring of slots counts them: `(phase + round) % count` in a round of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) looped: Op,
    phase: i64,
    count: i64,
}

impl Turn {
    /// The number that a carried value is, if it counts slots: it is followed by one more, by 0 behind the last one; or it is what such a number was
    /// a round ago; or the number before that is computed from such a one.
    pub(super) fn of(func: &Func, value: Value) -> Option<Turn> {
        if let Some((number, last)) = preceding(func, value) {
            let turn = Turn::of(func, number).filter(|turn| turn.count == last + 1)?;
            return Some(Turn { phase: (turn.phase + last) % turn.count, ..turn });
        }
        let Def::Argument(block, position) = func.values[value].def else { return None };
        let (looped, next) = carried(func, block, position)?;
        let start = func.constant(init(func, looped, position)?).and_then(Const::as_int)?;
        if let Some(count) = followed(func, value, next) {
            return (0..count).contains(&start).then_some(Turn { looped, phase: start, count });
        }
        let Def::Argument(other, before) = func.values[next].def else { return None };
        if other != block || next == value {
            return None;
        }
        let (_, after) = carried(func, block, before)?;
        let first = func.constant(init(func, looped, before)?).and_then(Const::as_int)?;
        let count = followed(func, next, after)?;
        ((start + 1 - first) % count == 0).then_some(Turn { looped, phase: start, count })
    }

    /// Whether this number, some rounds later, can be the other one.
    pub(super) fn meets(self, rounds_later: i64, other: Turn) -> bool {
        (self.phase + rounds_later - other.phase) % self.count == 0
    }

    pub(super) fn same_ring(self, other: Turn) -> bool {
        self.looped == other.looped && self.count == other.count
    }
}

/// The loop that carries a block's argument, and what the next round gets; only where rounds end in one place.
fn carried(func: &Func, block: Block, position: u32) -> Option<(Op, Value)> {
    let looped = func.linked_ops().into_iter().find(|&op| func.ops[op].regions.contains(&block))?;
    if !matches!(func.ops[looped].kind, OpKind::Schedule(ScheduleOp::For { .. })) || position == 0 {
        return None;
    }
    let exits = tessera_analysis::exits::loop_exits(func, looped);
    let [exit] = exits[..] else { return None };
    Some((looped, *func.ops[exit].group(0).get(position as usize - 1)?))
}

fn init(func: &Func, looped: Op, position: u32) -> Option<Value> {
    func.ops[looped].group(3).get(position as usize - 1).copied()
}

/// The number of slots, where `next` is the slot behind `value`: `select(value + 1 == count, 0, value + 1)`.
fn followed(func: &Func, value: Value, next: Value) -> Option<i64> {
    let number = |value: Value| func.constant(value).and_then(Const::as_int);
    let select = &func.ops[func.defining_op(next)?];
    let OpKind::Schedule(ScheduleOp::Select {}) = select.kind else { return None };
    let compare = &func.ops[func.defining_op(select.one(0))?];
    let OpKind::Schedule(ScheduleOp::CmpI { predicate: Predicate::Eq, .. }) = compare.kind else { return None };
    let more = &func.ops[func.defining_op(select.one(2))?];
    let one =
        matches!(more.kind, OpKind::Schedule(ScheduleOp::AddI { .. })) && more.one(0) == value && number(more.one(1)) == Some(1);
    let fits = one && compare.one(0) == select.one(2) && number(select.one(1)) == Some(0);
    let small = func.ty(value).num() == Some(DType::I32);
    number(compare.one(1)).filter(|&count| fits && small && count > 0)
}

/// The slot that `value` is the one before, and the last slot's number: `select(number == 0, last, number - 1)`.
fn preceding(func: &Func, value: Value) -> Option<(Value, i64)> {
    let number = |value: Value| func.constant(value).and_then(Const::as_int);
    let select = &func.ops[func.defining_op(value)?];
    let OpKind::Schedule(ScheduleOp::Select {}) = select.kind else { return None };
    let compare = &func.ops[func.defining_op(select.one(0))?];
    let OpKind::Schedule(ScheduleOp::CmpI { predicate: Predicate::Eq, .. }) = compare.kind else { return None };
    let less = &func.ops[func.defining_op(select.one(2))?];
    let one = matches!(less.kind, OpKind::Schedule(ScheduleOp::SubI { .. }))
        && less.one(0) == compare.one(0)
        && number(less.one(1)) == Some(1);
    let last = number(select.one(1))?;
    (one && number(compare.one(1)) == Some(0)).then_some((compare.one(0), last))
}
