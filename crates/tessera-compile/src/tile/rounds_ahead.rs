//! Loads of loops without products come some rounds ahead, in registers, so that a round does not wait for memory.
//!
//! ```text
//! for %k in 0..%n (%sum) { %x = load [%k]; %sum = %sum + %x }
//!
//! %x0 = if 0 < %n { load [0] } else { 0 } ; %x1 = if 1 < %n { load [1] } else { 0 }
//! for %k in 0..%n (%sum, %x = %x0, %y = %x1) { %next = if %k + 2 < %n { load [%k + 2] } else { %y }; %sum = %sum + %x; continue %sum, %y, %next }
//! ```
//!
//! A grid of few blocks, as one that sums the columns of a matrix or walks over its rows, has no other block to run meanwhile: of 64 blocks with rounds of 8
//! KiB each took 590 ns, which is what memory takes to answer.
//!
//! **Predicate.** The place of what is loaded follows from the counter and from what is the same in all rounds; the loop writes nothing, since one that does
//! walks over work that a grid shares, in blocks enough; nobody writes the array; the loads of a round are tiles of a whole vector for each thread, and no more than [`REGISTERS`] of one; and the
//! author has said neither how many warps a block has nor how many blocks shall be resident, by which registers were shared out.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_analysis::memory::{accesses, is_written};
use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Block, Changed, Const, Func, Op, OpKind, ScheduleOp, Span, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::early::{Loads, from_the_counter, zero};
use super::peel::counts;
use super::queue::range;
use super::threads;
use crate::rewrite::drop_dead;

/// Registers of a thread for what is on its way.
const REGISTERS: u64 = 32;

/// Registers of the widest access.
const VECTOR: u64 = 4;

/// Rounds ahead, at most.
const ROUNDS: u64 = 3;

/// Rearranges every loop that allows it.
pub(super) fn load_ahead(func: &mut Func) -> Changed {
    if func.plan.is_some()
        || func.hints.occupancy.or(func.hints.num_warps).is_some()
        || func.linked_ops().into_iter().any(|op| is_planned(func, op))
    {
        return Changed(false);
    }
    let threads = u64::from(Arch::WARP * threads::warps(func));
    let mut changed = false;
    for block in func.linked_blocks() {
        for op in func.blocks[block].ops.clone() {
            if let Some((loads, rounds)) = find(func, op, threads) {
                rearrange(func, block, op, &loads, rounds);
                changed = true;
            }
        }
    }
    if changed {
        drop_dead(func);
    }
    Changed(changed)
}

/// Whether an operation belongs to a product of matrices or to a plan, which have pipelines of their own, or is what one thread does.
fn is_planned(func: &Func, op: Op) -> bool {
    match &func.ops[op].kind {
        OpKind::Tile(kind) => !matches!(kind, TileOp::AllocShared { .. } | TileOp::ConvertLayout { .. } | TileOp::Vary {}),
        OpKind::Schedule(kind) => matches!(kind, ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {}),
        OpKind::Graph(_) => true,
    }
}

/// The loads of a loop, and how many rounds ahead registers allow.
fn find(func: &Func, looped: Op, threads: u64) -> Option<(Loads, u64)> {
    if !counts(func, looped) {
        return None;
    }
    let ops = &func.blocks[func.ops[looped].regions[0]].ops;
    let mut touched = SmallVec::new();
    accesses(func, looped, &mut touched);
    let loads = from_the_counter(func, looped);
    if loads.is_empty() || touched.iter().any(|access| access.writes) || loads.iter().any(|&load| is_written(func, load)) {
        return None;
    }
    let sizes: Vec<u64> = loads
        .iter()
        .map(|&load| func.ty(func.ops[load].results[0]).the_tile())
        .map(|tile| (tile.len() as u64 * tile.elem.bits()).div_ceil(32 * threads))
        .collect();
    if sizes.iter().any(|&registers| registers < VECTOR) {
        return None;
    }
    let rounds = (REGISTERS / sizes.iter().sum::<u64>()).min(ROUNDS);
    (rounds > 0).then(|| (Loads::of(func, ops, loads), rounds))
}

/// Makes operations in a row.
struct Maker<'f> {
    func: &'f mut Func,
    ops: Vec<Op>,
    span: Span,
}

impl Maker<'_> {
    fn value(&mut self, kind: impl Into<OpKind>, operands: &[Value], ty: Type) -> Value {
        let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
        let op = self.func.make_op(kind.into(), &groups, [ty], [], self.span);
        self.ops.push(op);
        self.func.ops[op].result()
    }

    /// What is loaded `rounds` behind the round of `counter`, where there is such a round; else `otherwise`.
    fn round(
        &mut self,
        loads: &Loads,
        (counter, from): (Value, Value),
        rounds: u64,
        [upper, step]: [Value; 2],
        otherwise: &[Value],
    ) -> Vec<Value> {
        let index = self.func.ty(from).clone();
        let number = Const::splat(index.num().unwrap_or(DType::I32), rounds);
        let count = self.value(ScheduleOp::Constant { value: number }, &[], index.clone());
        let ahead = self.value(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[count, step], index.clone());
        let left = self.value(ScheduleOp::SubI { overflow: Overflow::Wraps }, &[upper, from], index.clone());
        let below = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Signed };
        let more = self.value(below, &[ahead, left], Type::scalar(DType::B1));
        let mut ops = Vec::new();
        let outer = std::mem::take(&mut self.ops);
        let next = self.value(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[from, ahead], index);
        ops.append(&mut self.ops);
        self.ops = outer;
        let loaded = loads.at(self.func, counter, next, &mut ops);
        let types: Vec<Type> = loaded.iter().map(|&value| self.func.ty(value).clone()).collect();
        let ways = [(ops, loaded), (Vec::new(), otherwise.to_vec())].map(|(mut ops, values)| {
            ops.push(self.func.make_op(ScheduleOp::Yield {}.into(), &[&values], [], [], self.span));
            let way = self.func.new_block();
            self.func.blocks[way].ops = ops;
            way
        });
        let branch = self.func.make_op(ScheduleOp::If {}.into(), &[&[more]], types, ways, self.span);
        self.ops.push(branch);
        self.func.ops[branch].results.to_vec()
    }
}

fn rearrange(func: &mut Func, block: Block, looped: Op, loads: &Loads, rounds: u64) {
    let old = func.ops[looped].clone();
    let (body, [lower, upper, step]) = (old.regions[0], range(func, looped));
    let counter = func.blocks[body].args[0];
    let results = loads.results(func);
    let types: Vec<Type> = results.iter().map(|&result| func.ty(result).clone()).collect();
    let zeros: Vec<(Const, Type)> =
        results.iter().zip(&types).filter_map(|(&result, ty)| Some((zero(func, result)?, ty.clone()))).collect();
    // Those of the first rounds, where there are such.
    let mut made = Maker { func, ops: Vec::new(), span: old.span };
    let nothing: Vec<Value> = zeros.into_iter().map(|(value, ty)| made.value(ScheduleOp::Constant { value }, &[], ty)).collect();
    let first: Vec<Value> =
        (0..rounds).flat_map(|ahead| made.round(loads, (counter, lower), ahead, [upper, step], &nothing)).collect();
    let mut before = made.ops;
    // Each round begins with those of a later one.
    let own: Vec<Value> = (0..rounds).flat_map(|_| types.clone()).map(|ty| func.add_arg(body, ty, None)).collect();
    let (now, later) = own.split_at(results.len());
    let last = &own[own.len() - results.len()..];
    let mut made = Maker { func, ops: Vec::new(), span: old.span };
    let next = made.round(loads, (counter, counter), rounds, [upper, step], last);
    let mut ops = made.ops;
    let skipped: FxHashSet<Op> = loads.ops().iter().copied().collect();
    ops.extend(func.blocks[body].ops.iter().copied().filter(|op| !skipped.contains(op)));
    func.blocks[body].ops = ops;
    let meant: FxHashMap<Value, Value> = results.iter().copied().zip(now.iter().copied()).collect();
    func.replace_uses(|value| meant.get(&value).copied().unwrap_or(value));
    let end = func.blocks[body].ops.pop().map(|end| func.ops[end].clone());
    let handed: Vec<Value> = end.iter().flat_map(|end| end.group(0).to_vec()).chain(later.iter().copied()).chain(next).collect();
    let end = func.make_op(ScheduleOp::Continue {}.into(), &[&handed], [], [], old.span);
    func.blocks[body].ops.push(end);
    let starts: Vec<Value> = old.group(3).iter().copied().chain(first).collect();
    let ahead = (0..rounds).flat_map(|_| types.clone());
    let types: Vec<Type> = old.results.iter().map(|&result| func.ty(result).clone()).chain(ahead).collect();
    let made = func.make_op(old.kind, &[&[lower], &[upper], &[step], &starts], types, [body], old.span);
    let replaced: FxHashMap<Value, Value> = old.results.iter().copied().zip(func.ops[made].results.iter().copied()).collect();
    func.replace_uses(|value| replaced.get(&value).copied().unwrap_or(value));
    before.push(made);
    let at = func.blocks[block].place_of(looped);
    func.blocks[block].ops.splice(at..=at, before);
}
