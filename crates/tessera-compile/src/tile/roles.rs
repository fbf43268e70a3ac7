//! The recipe for a loop that multiplies what it loads: `acc = mma(factor, factor, acc)` on a target with warpgroup instructions.
//!
//! One role of four warps has the copy engine fill a ring of slots; a role of one or two warpgroups multiplies from slots and does
//! everything else the kernel does. Where the tensor cores cannot read a factor as it comes ([`feed`](super::feed)), the first role
//! also waits for what was brought, some rounds ahead, and fills the slots that are multiplied from. What both need (sizes, views, block
//! numbers) is computed before the roles.
//!
//! ```text
//! %ring = tile.ring [%lhs, %rhs] {stages=4, producer=tma, ...}
//! tile.role {first_warp=0, warps=4} { for ... { acquire; tma_load; tma_load; commit } }
//! tile.role {first_warp=4, warps=8} { for ... { wait; mma_shared; release }  ... the rest ... }
//!
//! %ring = tile.ring [%lhs] {producer=tma}; %raw = tile.ring [%raw_rhs] {stages=2, producer=tma}; %made = tile.ring [%rhs] {producer=threads}
//! tile.role { for the first rounds { load }  for ... { wait %raw; acquire %made; copy_shared; fence_async; commit %made; release %raw; load } }
//! ```
//!
//! **Predicate.** All products of the function stand in one loop that counts, at the top of the function or of a loop there
//! ([`around`](super::around): the copies for the next tile go on while this one is stored). Each factor is computed in a round by loads
//! and arithmetic of elements, at places that follow from scalars and the counter, and goes into products alone; several products may
//! share one. What else the loop does is the computing role's, unless it writes memory. Accumulators are `f32`, or `i32` of `i8`, with
//! equally many rows, of whole warpgroups, and fit the registers. Nothing else about the kernel matters.
//! Blocks of a plane are taken in the order of [`order`].

use rustc_hash::FxHashSet;
use tessera_ir::attrs::{MemoryOrder, RingProducer, Signedness};
use tessera_ir::{Block, Effects, Elem, Extent, Func, Op, OpData, OpKind, ScheduleOp, SharedType, Span, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::anchors::Units;
use super::around::Around;
use super::feed::{Factor, Way};
use super::makers::{Feeding, Rings};
use super::queue::{Queue, role};
use super::relation::{Relation, has_layout};
use super::{apart, order, slots};
use crate::analysis::exits::{can_leave, loop_exits};
use tessera_ir::Reason;

/// Warps of the role that feeds the rings: a warpgroup, so that registers can be moved from it.
pub(super) const FEEDERS: u32 = 4;
/// Registers a thread of the feeding role and of two multiplying warpgroups: 128 x 40 + 256 x 232 fit a multiprocessor.
const REGISTERS: (u32, u32) = (40, 232);
/// Registers for addresses and for what an epilogue works with: where threads compute factors meanwhile, and where they turn them.
const WORKING: [u32; 2] = [40, 64];
/// Registers a thread that multiplies while others of its block turn one factor, and where they do more.
const MOST: [u32; 2] = [216, 208];
/// Slots of a ring between the copy engine and threads: one is worked on while the other is filled.
pub(super) const RAW_STAGES: u32 = 2;

/// A loop that fits.
pub(super) struct Candidate {
    arch: Arch,
    pub(super) looped: Op,
    /// A loop around it, of the function's own body.
    outer: Option<Op>,
    products: Vec<Op>,
    /// The left and the right factor of each product, by position among `factors`.
    sides: Vec<[usize; 2]>,
    pub(super) factors: Vec<Factor>,
    /// Scalar operations of the loop's body that say where to load, in order.
    pub(super) scalars: Vec<Op>,
    /// What computes factors and something else besides.
    kept: FxHashSet<Op>,
    /// Warps that multiply.
    warps: u32,
}

impl Candidate {
    /// Everything that computes factors.
    pub(super) fn computes(&self, op: Op) -> bool {
        self.factors.iter().any(|factor| factor.ops.contains(&op))
    }

    /// The factors that threads fill slots with.
    pub(super) fn made(&self) -> impl Iterator<Item = &Factor> {
        self.factors.iter().filter(|factor| factor.way != Way::Brought)
    }

    /// Whether sums of the tensor cores are added up beside them.
    fn promotes(&self, func: &Func) -> bool {
        self.products
            .iter()
            .zip(&self.sides)
            .any(|(&product, &[_, right])| is_coarse(self.factors[right].slot.elem) && !signs(&func.ops[product].kind).0)
    }

    /// The accumulators, what else the loop carries, and the sums beside them, in elements a thread.
    fn sums(&self, func: &Func) -> u32 {
        let elements = |value: Value| func.ty(value).as_tile().map_or(0, |tile| tile.len() as u32) / (Arch::WARP * self.warps);
        let of = |&product: &Op| elements(func.ops[product].result());
        let carried = &func.blocks[func.ops[self.looped].regions[0]].args[1..];
        let accumulator = |arg: &&Value| self.products.iter().any(|&product| func.ops[product].one(2) == **arg);
        let others: u32 = carried.iter().filter(|arg| !accumulator(arg)).map(|&arg| elements(arg)).sum();
        let beside = if self.promotes(func) { self.products.iter().map(of).max().unwrap_or(0).min(64) } else { 0 };
        self.products.iter().map(of).sum::<u32>() + others + beside
    }

    /// Warps of the role that feeds. As many as multiply where they have arithmetic to do and the file of registers has room.
    pub(super) fn feeders(&self, func: &Func) -> u32 {
        let computes = self.made().any(|factor| matches!(factor.way, Way::Computed { .. }));
        let room = self.arch.limits().registers_per_sm / (2 * Arch::WARP * self.warps) >= self.sums(func) + WORKING[0];
        if computes && room { self.warps } else { FEEDERS }
    }
}

/// Splits the function into roles where its product allows.
pub(super) fn separate(func: &mut Func, units: &Units) -> Result<(), Reason> {
    let candidate = find(func, units)?;
    let (parts, around) = partition(func, &candidate)?;
    build(func, units, &candidate, (parts, around.as_ref()));
    order::by_groups(func);
    Ok(())
}

fn find(func: &Func, units: &Units) -> Result<Candidate, Reason> {
    if !units.warpgroups {
        return Err("the target has no products of warpgroups".into());
    }
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
    let products: Vec<Op> = func.linked_ops().into_iter().filter(is_product).collect();
    let &first = products.first().ok_or("there is no product")?;
    let (looped, outer) = loops_around(func, first).ok_or_else(|| {
        let text = "the product stands in no counted loop of the function's own body, or of a loop there";
        Reason::at(text, func.ops[first].span)
    })?;
    let body = func.ops[looped].regions[0];
    let (_, ops) = func.blocks[body].ops.split_last().ok_or("the product's loop has no end")?;
    if let Some(other) = products.iter().find(|product| !ops.contains(product)) {
        return Err(Reason::at("a second product stands outside the first one's loop", func.ops[*other].span));
    }
    if can_leave(func, looped) || loop_exits(func, looped).len() != 1 {
        return Err(Reason::at("the product's loop is left from within a round", func.ops[looped].span));
    }
    if let Some(&op) = ops.iter().find(|op| !is_quiet(func, **op)) {
        let name = func.ops[op].row().mnemonic;
        return Err(Reason::at(format!("the product's loop holds `{name}` too"), func.ops[op].span));
    }
    let mut rows = None;
    let mut factors: Vec<Factor> = Vec::new();
    let mut sides = Vec::new();
    for &product in &products {
        let m = rows_of(func, product)?;
        if *rows.get_or_insert(m) != m {
            return Err(Reason::at("two products have different rows", func.ops[product].span));
        }
        let mut side = |position: usize, inner: usize| -> Result<usize, Reason> {
            let value = func.ops[product].one(position);
            if let Some(at) = factors.iter().position(|factor| factor.value == value && factor.inner == inner) {
                return Ok(at);
            }
            factors.push(Factor::of(func, ops, value, inner)?);
            Ok(factors.len() - 1)
        };
        sides.push([side(0, 1)?, side(1, 0)?]);
    }
    let scalars = scalars(func, looped, &factors)?;
    let warps = if rows.is_some_and(|m| m.is_multiple_of(128)) { 8 } else { 4 };
    let kept = FxHashSet::default();
    let candidate = Candidate { arch: units.arch, looped, outer, products, sides, factors, scalars, kept, warps };
    let carried = func.blocks[body].args.len() - 1;
    if (candidate.products.len() > 1 || carried > 1) && candidate.sums(func) + WORKING[0] > REGISTERS.1 {
        return Err(Reason::at("the accumulators do not fit the registers", func.ops[first].span));
    }
    // What is loaded in a round goes into products alone, and by one way.
    let loads = |op: Op| candidate.factors.iter().filter(|factor| factor.loads.iter().any(|&(load, _)| load == op)).count();
    let others = used_by_others(func, &candidate);
    let wrong = |op: &&Op| loads(**op) > 1 || loads(**op) > 0 && others.contains(*op);
    if let Some(&op) = ops.iter().find(wrong) {
        return Err(Reason::at("a factor is used outside the product, or by both sides", func.ops[op].span));
    }
    Ok(Candidate { kept: others, ..candidate })
}

/// Of what computes factors, what the rest of the function needs as well.
fn used_by_others(func: &Func, candidate: &Candidate) -> FxHashSet<Op> {
    let own = |op: Op| candidate.computes(op);
    let rest = func.linked_ops().into_iter().filter(|&op| !own(op) && !candidate.products.contains(&op));
    let mut needed: Vec<Value> = rest.flat_map(|op| func.ops[op].operands.to_vec()).collect();
    needed.extend(candidate.products.iter().map(|&product| func.ops[product].one(2)));
    let mut found = FxHashSet::default();
    while let Some(value) = needed.pop() {
        if let Some(op) = func.defining_op(value).filter(|&op| own(op))
            && found.insert(op)
        {
            needed.extend(&func.ops[op].operands);
        }
    }
    found
}

/// The operation, with what its regions hold, writes no memory.
fn is_quiet(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let quiet = match data.row().effects {
        Effects::Pure | Effects::MayTrap | Effects::Read | Effects::Regions => true,
        Effects::Terminator => !matches!(data.kind, OpKind::Schedule(ScheduleOp::Return {})),
        Effects::Write | Effects::Observable => false,
    };
    quiet && data.regions.iter().all(|&region| func.blocks[region].ops.iter().all(|&inner| is_quiet(func, inner)))
}

/// Scalar operations of a loop's body that loads of factors need, in order.
fn scalars(func: &Func, looped: Op, factors: &[Factor]) -> Result<Vec<Op>, Reason> {
    let block = func.ops[looped].regions[0];
    let (args, ops) = (&func.blocks[block].args, &func.blocks[block].ops);
    let mut needed: Vec<Value> = Vec::new();
    let computed: FxHashSet<Op> = factors.iter().flat_map(|factor| factor.ops.iter().copied()).collect();
    needed.extend(computed.iter().flat_map(|&op| func.ops[op].operands.iter().copied()));
    let mut found: FxHashSet<Op> = FxHashSet::default();
    while let Some(value) = needed.pop() {
        if args[1..].contains(&value) {
            return Err(Reason::at("where to load from is carried around the product's loop", func.ops[looped].span));
        }
        let Some(op) = func.defining_op(value).filter(|op| ops.contains(op) && !computed.contains(op)) else { continue };
        let data = &func.ops[op];
        if !data.regions.is_empty() || !is_free(func, op) || data.results.iter().any(|&result| has_layout(func, result)) {
            return Err(Reason::at("where to load from does not follow from scalars", data.span));
        }
        if found.insert(op) {
            needed.extend(&data.operands);
        }
    }
    Ok(ops.iter().copied().filter(|op| found.contains(op)).collect())
}

/// The rows of a product that has an instruction for warpgroups.
fn rows_of(func: &Func, product: Op) -> Result<u32, Reason> {
    let (mma, at) = (&func.ops[product], func.ops[product].span);
    let tile = |value| func.ty(value).as_tile().ok_or_else(|| Reason::at("an operand is no tile", at));
    let (lhs, rhs, out) = (tile(mma.one(0))?, tile(mma.one(1))?, tile(mma.result())?);
    let (&[m, n], &[_, k]) = (&out.shape[..], &lhs.shape[..]) else {
        return Err(Reason::at("the product has a batch axis", at));
    };
    let number = |elem: &Elem| elem.num().ok_or_else(|| Reason::at("an operand holds no numbers", at));
    let (left, right) = (number(&lhs.elem)?, number(&rhs.elem)?);
    let fits = matches!(
        (left, number(&out.elem)?),
        (DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::TF32, DType::F32) | (DType::I8, DType::I32)
    );
    if !fits || left != right {
        return Err(Reason::at(format!("products of `{left}` into `{}` have no instruction for warpgroups", out.elem), at));
    }
    if !m.is_multiple_of(64) || !n.is_multiple_of(16) || !(k * left.bits() / 8).is_multiple_of(32) {
        let text =
            format!("a {m}x{n}x{k} product is not of whole instructions: 64 rows, 16 columns, 32 bytes of a factor's line");
        return Err(Reason::at(text, at));
    }
    Ok(m)
}

/// The counted loop that a product stands in, and the loop around that, where it is not the function's own body.
fn loops_around(func: &Func, product: Op) -> Option<(Op, Option<Op>)> {
    let loops = |block: Block, open: bool| {
        let loops = move |op: &Op| match func.ops[*op].kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => true,
            OpKind::Schedule(ScheduleOp::Loop {}) => open,
            _ => false,
        };
        func.blocks[block].ops.iter().copied().filter(loops)
    };
    let body = |op: Op| func.ops[op].regions[0];
    let holds = |op: &Op| func.blocks[body(*op)].ops.contains(&product);
    if let Some(looped) = loops(func.body, false).find(holds) {
        return Some((looped, None));
    }
    loops(func.body, true).find_map(|outer| Some((loops(body(outer), false).find(holds)?, Some(outer))))
}

/// Formats whose products the tensor cores of warpgroups add with about 14 bits.
pub(super) fn is_coarse(dtype: DType) -> bool {
    matches!(dtype, DType::F8E4M3 | DType::F8E5M2)
}

/// Pure, at most an error for some inputs, or a scalar of memory that nobody writes: any role may do it, at any time.
pub(super) fn is_free(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    matches!(data.row().effects, Effects::Pure | Effects::MayTrap) || reads_constant(func, data)
}

/// A load of a scalar that is ordered with no write.
fn reads_constant(func: &Func, data: &OpData) -> bool {
    let token = match &data.kind {
        OpKind::Schedule(ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, .. }) => data.optional(2),
        OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, .. }) => data.optional(3),
        _ => return false,
    };
    let ordered = || func.linked_ops().into_iter().any(|op| func.ops[op].used().any(|used| used == data.results[1]));
    token.is_none() && func.ty(data.results[0]).is_scalar() && !ordered()
}

/// The function's operations in order: what stays before the roles and what does not, and the values of the latter.
pub(super) struct Parts {
    pub(super) shared: Vec<Op>,
    pub(super) moved: Vec<Op>,
    pub(super) inside: FxHashSet<Value>,
}

/// Scalars that any role may need stay before the roles.
pub(super) fn parts(func: &Func) -> Result<Parts, Reason> {
    let mut parts = Parts { shared: Vec::new(), moved: Vec::new(), inside: FxHashSet::default() };
    let leaves = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Return {}));
    let (last, ops) = func.blocks[func.body].ops.split_last().ok_or("the function is empty")?;
    if !leaves(last) || func.linked_ops().iter().filter(|op| leaves(op)).count() != 1 {
        return Err("some blocks return before the end".into());
    }
    for &op in ops {
        let data = &func.ops[op];
        let tiles = data.results.iter().any(|&result| func.ty(result).as_tile().is_some_and(|tile| !tile.shape.is_empty()));
        let known = !data.operands.iter().any(|value| parts.inside.contains(value));
        if data.regions.is_empty() && is_free(func, op) && !tiles && known {
            parts.shared.push(op);
        } else {
            parts.inside.extend(&data.results);
            parts.moved.push(op);
        }
    }
    Ok(parts)
}

/// What stays before the roles, and what the computing role does.
fn partition(func: &Func, candidate: &Candidate) -> Result<(Parts, Option<Around>), Reason> {
    let Parts { shared, moved, mut inside } = parts(func)?;
    let around = candidate.outer.map(|outer| Around::of(func, outer, &inside)).transpose()?;
    if let Some(around) = &around {
        inside.extend(around.own(func));
    }
    let looped = &func.ops[candidate.looped];
    let own: FxHashSet<Op> = candidate.factors.iter().flat_map(|factor| factor.ops.iter().copied()).collect();
    let first = candidate.scalars.iter().copied();
    let needed = first.chain(own.iter().copied()).flat_map(|op| func.ops[op].operands.iter().copied());
    // What factors are computed by is repeated where they are.
    let known = |value: Value| {
        func.defining_op(value).is_some_and(|op| own.contains(&op) || candidate.scalars.contains(&op))
            || value == func.blocks[looped.regions[0]].args[0]
    };
    if looped.operands[..3].iter().copied().chain(needed).any(|value| !known(value) && inside.contains(&value)) {
        return Err(Reason::at("where to load from is computed from what the computing role holds", looped.span));
    }
    Ok((Parts { shared, moved, inside }, around))
}

fn build(func: &mut Func, units: &Units, candidate: &Candidate, (parts, around): (Parts, Option<&Around>)) {
    let Parts { mut shared, moved, .. } = parts;
    let span = func.ops[candidate.looped].span;
    let bytes = |slots: &[SharedType]| -> u32 { slots.iter().map(|slot| slot.bytes() as u32).sum() };
    let of_brought = candidate.factors.iter().filter(|factor| factor.way == Way::Brought).map(|factor| factor.slot.clone());
    let brought: Vec<SharedType> = of_brought.collect();
    let made: Vec<SharedType> = candidate.made().map(|factor| factor.slot.clone()).collect();
    let loads = candidate.made().flat_map(|factor| factor.loads.iter());
    let raw: Vec<SharedType> = loads.filter_map(|(_, buffer)| buffer.clone()).collect();
    let turned: Vec<SharedType> = candidate.made().filter_map(Factor::before_turn).collect();
    let behind = around.map_or(moved.clone(), |around| func.blocks[func.ops[around.op].regions[0]].ops.to_vec());
    let others = RAW_STAGES * bytes(&raw) + bytes(&turned) + epilogue_bytes(func, candidate, &behind);
    let stages = slots::stages(func, units, bytes(&brought) + bytes(&made), others);
    let ring = |func: &mut Func, slots: &[SharedType], stages, producer, shared: &mut Vec<Op>| {
        (!slots.is_empty()).then(|| Queue::new(func, slots, (stages, producer), span, shared))
    };
    let rings = Rings {
        brought: ring(func, &brought, stages, RingProducer::Tma, &mut shared),
        made: ring(func, &made, stages, RingProducer::Threads, &mut shared),
        raw: ring(func, &raw, RAW_STAGES, RingProducer::Tma, &mut shared),
    };
    let mut before_turn = Vec::new();
    for ty in turned {
        let alloc =
            func.make_op(TileOp::AllocShared { align: 1024, offset: None }.into(), &[], [Type::Shared(Box::new(ty))], [], span);
        shared.push(alloc);
        before_turn.push(func.ops[alloc].result());
    }
    let feeders = candidate.feeders(func);
    let (few, many) = budgets(func, candidate);
    let first = Feeding { candidate, around, rings: &rings, before_turn: &before_turn }.role(func);
    computer(func, candidate, around, &rings);
    let mut parts = [first, moved];
    if many.is_some_and(|many| candidate.sums(func) + WORKING[0] > many) {
        apart::repeat(func, &mut shared, &mut parts);
    }
    let [first, moved] = parts;
    let feeding = role(func, (0, feeders), few, first, span);
    let computing = role(func, (feeders, candidate.warps), many, moved, span);
    shared.extend([feeding, computing]);
    let last = func.blocks[func.body].ops.last().copied();
    shared.extend(last);
    func.blocks[func.body].ops = shared;
    func.hints.num_warps = Some(feeders + candidate.warps);
    func.hints.num_stages = Some(stages);
    // Registers are shared out for one block a multiprocessor.
    func.hints.occupancy = None;
}

/// Registers a thread of the role that feeds and of the one that multiplies, where they are moved at all.
fn budgets(func: &Func, candidate: &Candidate) -> (Option<u32>, Option<u32>) {
    let feeders = candidate.feeders(func);
    if candidate.warps != 8 || feeders != FEEDERS {
        return (None, None);
    }
    if candidate.made().next().is_none() {
        return (Some(REGISTERS.0), Some(REGISTERS.1));
    }
    // Registers are moved among those that the block starts with, the same number a thread.
    let all = feeders + candidate.warps;
    let given = candidate.arch.registers_at_launch(all * Arch::WARP);
    let computes = candidate.made().any(|factor| matches!(factor.way, Way::Computed { .. }));
    let more = candidate.made().count() > 1 || candidate.promotes(func);
    let most = MOST[usize::from(more)];
    let working = WORKING[usize::from(!computes)];
    let many = (candidate.sums(func) + working).next_multiple_of(8).clamp(given, most);
    let few = (given * all - many * candidate.warps) / feeders / 8 * 8;
    (Some(few.min(candidate.arch.limits().registers_moved.1)), Some(many))
}

/// Bytes of shared memory that the operations behind the loop borrow. Fragments of 32-bit elements fill whole sectors of memory, so
/// such a result is stored as it lies; others go through shared memory once.
fn epilogue_bytes(func: &Func, candidate: &Candidate, ops: &[Op]) -> u32 {
    let length = |&product: &Op| func.ty(func.ops[product].result()).as_tile().map_or(0, |tile| tile.len() as u32);
    let out = candidate.products.iter().map(length).max().unwrap_or(0);
    let borrowed = |&op: &Op| {
        let data = &func.ops[op];
        match (&data.kind, Relation::of(func, op)) {
            (OpKind::Schedule(ScheduleOp::StoreViewTko { .. }), _) => {
                let view = data.operands.iter().find_map(|&value| match func.ty(value) {
                    Type::TileView(view) => Some(view),
                    _ => None,
                });
                let in_lines = view.is_some_and(|view| {
                    let last = view.dim_map.last().and_then(|&axis| view.tensor.strides.get(axis as usize));
                    last == Some(&Extent::Static(1)) && view.tensor.elem.bits() >= 32
                });
                if in_lines { 0 } else { 2 * out }
            }
            (OpKind::Schedule(ScheduleOp::If {}), _) => {
                let inside = |&region: &Block| epilogue_bytes(func, candidate, &func.blocks[region].ops);
                data.regions.iter().map(inside).max().unwrap_or(0)
            }
            (_, Relation::Same | Relation::Broadcast | Relation::Free) => 0,
            (OpKind::Schedule(ScheduleOp::Reshape {} | ScheduleOp::LoadViewTko { .. } | ScheduleOp::Yield {}), _) => 0,
            _ if op == candidate.looped => 0,
            _ => 2 * out,
        }
    };
    ops.iter().map(borrowed).max().unwrap_or(0)
}

/// The loop with slots in place of what computes the factors. All rings that it reads have equally many slots: one cursor goes through
/// them.
fn computer(func: &mut Func, candidate: &Candidate, around: Option<&Around>, rings: &Rings) {
    let looped = candidate.looped;
    let (body, span) = (func.ops[looped].regions[0], func.ops[looped].span);
    let queues: Vec<&Queue> = [&rings.brought, &rings.made].into_iter().flatten().collect();
    let Some(first) = queues.first() else { return };
    let cursor = carried(func, looped, around, first.start);

    let mut ops = Vec::new();
    for queue in &queues {
        queue.at(func, TileOp::Wait {}, cursor, &mut ops);
    }
    let mut factors = Vec::new();
    for op in func.blocks[body].ops.clone() {
        if candidate.computes(op) && !candidate.kept.contains(&op) {
            continue;
        }
        if let Some(at) = candidate.products.iter().position(|&product| product == op) {
            if at == 0 {
                factors = factors_in(func, candidate, rings, (cursor, span), &mut ops);
            }
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&func.ops[op].kind);
            let data = &mut func.ops[op];
            data.kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }.into();
            data.operands[..2].copy_from_slice(&candidate.sides[at].map(|side| factors[side]));
            ops.push(op);
            if at + 1 == candidate.products.len() {
                for queue in &queues {
                    queue.at(func, TileOp::Release {}, cursor, &mut ops);
                }
            }
        } else if matches!(func.ops[op].row().effects, Effects::Terminator) {
            let next = first.next(func, cursor, &mut ops);
            func.append_operands(op, &[next]);
            ops.push(op);
        } else {
            ops.push(op);
        }
    }
    func.blocks[body].ops = ops;
}

/// The cursor that the product's loop carries from `start` on; a loop around it carries it from one tile to the next.
fn carried(func: &mut Func, looped: Op, around: Option<&Around>, start: Value) -> Value {
    let start = around.map_or(start, |around| func.carry(around.op, start));
    let cursor = func.carry(looped, start);
    if let Some(around) = around {
        let behind: Vec<Value> = func.ops[looped].results.last().copied().into_iter().collect();
        around.hand_on(func, &behind);
    }
    cursor
}

/// The matrices of the factors in the slots at the cursor.
fn factors_in(
    func: &mut Func,
    candidate: &Candidate,
    rings: &Rings,
    (cursor, span): (Value, Span),
    out: &mut Vec<Op>,
) -> Vec<Value> {
    let mut positions = [0, 0];
    let mut factors = Vec::new();
    for factor in &candidate.factors {
        let at = usize::from(factor.way != Way::Brought);
        let Some(queue) = [&rings.brought, &rings.made][at] else { continue };
        let slot = queue.slot(func, cursor, positions[at], out);
        positions[at] += 1;
        factors.push(if factor.way == Way::Brought { factor.looked_at(func, slot, span, out) } else { slot });
    }
    factors
}

/// Attributes of a product, in the order of [`TileOp::MmaShared`].
pub(super) fn signs(kind: &OpKind) -> (bool, Signedness, Signedness) {
    match kind {
        OpKind::Schedule(ScheduleOp::MmaF { fast_acc }) => (*fast_acc, Signedness::Signed, Signedness::Signed),
        OpKind::Schedule(ScheduleOp::MmaI { lhs_signedness, rhs_signedness }) => (false, *lhs_signedness, *rhs_signedness),
        _ => (false, Signedness::Signed, Signedness::Signed),
    }
}
