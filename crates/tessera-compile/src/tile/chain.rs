//! The recipe for loops that hold two products, the second of which takes what became of the first: `s = mma(a, load)`, anything done
//! with `s` row by row, `acc = mma(cast(p), load, acc)`.
//!
//! One role of four warps has the copy engine fill two rings, one for each right factor. A second role multiplies and does everything
//! else: a warpgroup has 64 rows, its sums of products stay in registers, and what becomes of the first ones is the second product's
//! left factor as it lies there. The first product's left factor is in shared memory for the whole loop.
//!
//! ```text
//! tile.role {first_warp=0, warps=4} { acquire; tma_load; commit   for ... { acquire; tma_load; commit   acquire; tma_load; commit } }
//! tile.role {first_warp=4, warps=8} { wait   for ... { wait; mma_shared; release   ...   wait; mma_shared; release } ... the rest ... }
//! ```
//!
//! **Predicate.** Every product of the function stands in a loop of two such products that counts and stands at the top of the function, or
//! in one loop there ([`around`](super::around): the next tile is fetched while this one is stored); right factors are loaded in the loop, as [`factor`](super::factor) says, at places that follow from scalars; the first left factor
//! comes from outside of the loop; factors have 16 bits and sums 32; rows are whole warpgroups; sums fit the registers. Loops one
//! behind the other share the rings. Nothing else about the kernel matters.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Def, Effects, Extent, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::anchors::Units;
use super::around::Around;
use super::factor::{Loaded, loaded, matrix};
use super::guard::guard;
use super::queue::{Queue, copied, mapped, over, range, role};
use super::roles::{FEEDERS, Parts, is_free, parts, signs};
use super::slots;
use tessera_ir::Reason;

/// Slots of a ring that were found useful.
const STAGES: u32 = 2;

/// Bytes of shared memory that small operations may borrow.
const SCRATCH: u32 = 4 << 10;

/// The barrier at which the computing role meets; roles have the first ones as their own.
const BARRIER: u32 = 15;

/// Registers of a computing thread beside its sums of products.
const OTHERS: u32 = 40;

/// A loop that fits.
struct Link {
    looped: Op,
    products: [Op; 2],
    /// The right factors.
    right: [Loaded; 2],
    /// Operations of the body that say where to load.
    scalars: FxHashSet<Op>,
    /// Carried scalars among what they need.
    carried: Vec<usize>,
}

/// Where the first product's left factor is.
enum Left {
    /// The copy engine brings it.
    Loaded(Loaded, SharedType),
    /// The computing role writes it.
    Stored(Value, SharedType),
}

/// What the recipe makes of a function.
struct Chain {
    /// The loop that the links stand in, if any.
    outer: Option<Op>,
    links: Vec<Link>,
    left: Left,
    /// The slots of both rings.
    slots: [SharedType; 2],
    stages: u32,
    plan: Plan,
}

/// How many warps compute, and registers of feeding and computing threads where they are moved.
#[derive(Clone, Copy)]
struct Plan {
    warps: u32,
    registers: Option<(u32, u32)>,
}

/// The rings: of both right factors, and of the left one where the copy engine brings it.
struct Queues {
    right: [Queue; 2],
    left: Option<Queue>,
}

impl Queues {
    /// The cursors before the first slots: of both right factors, then of the left one.
    fn starts(&self) -> Vec<Value> {
        self.right.iter().chain(&self.left).map(|queue| queue.start).collect()
    }
}

/// Splits the function into roles where its products allow.
pub(super) fn separate(func: &mut Func, units: &Units) -> Result<(), Reason> {
    let chain = find(func, units)?;
    let mut parts = parts(func)?;
    let around = chain.outer.map(|outer| Around::of(func, outer, &parts.inside)).transpose()?;
    if let Some(around) = &around {
        parts.inside.extend(around.own(func));
    }
    if !feeds(func, &chain, &parts) {
        let at = func.ops[chain.links[0].looped].span;
        return Err(Reason::at("where to load from is computed from what the computing role holds", at));
    }
    for link in &chain.links {
        let body = func.ops[link.looped].regions[0];
        guard(func, body);
    }
    build(func, &chain, parts, around.as_ref());
    Ok(())
}

/// A product of two tiles, before recipes.
pub(super) fn is_product(func: &Func, op: Op) -> bool {
    let kind = &func.ops[op].kind;
    matches!(kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled { .. }))
}

fn find(func: &Func, units: &Units) -> Result<Chain, Reason> {
    if !units.warpgroups {
        return Err("the target has no products of warpgroups".into());
    }
    let holds = |op: &&Op| {
        let data = &func.ops[**op];
        let counts = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
        counts && func.blocks[data.regions[0]].ops.iter().any(|&op| is_product(func, op))
    };
    let body = |op: Op| func.ops[op].regions[0];
    let loops = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
    let top = &func.blocks[func.body].ops;
    let outer = match top.iter().any(|op| holds(&op)) {
        true => None,
        false => top.iter().filter(loops).find(|op| func.blocks[body(**op)].ops.iter().any(|op| holds(&op))).copied(),
    };
    let home = outer.map_or(func.body, body);
    let links: Vec<Link> =
        func.blocks[home].ops.iter().filter(holds).map(|&looped| link(func, looped)).collect::<Result<_, Reason>>()?;
    let first = links.first().ok_or("no product stands in a counted loop of the function's own body, or of a loop there")?;
    let members: Vec<Op> = links.iter().flat_map(|link| link.products).collect();
    if let Some(other) = func.linked_ops().into_iter().find(|op| is_product(func, *op) && !members.contains(op)) {
        let text = "the product stands in no counted loop of the function's own body, or of a loop there";
        return Err(Reason::at(text, func.ops[other].span));
    }
    let [inner, out] = first.products.map(|product| &func.ops[product]);
    let at = inner.span;
    let shape = |value: Value| func.ty(value).as_tile().map_or(&[][..], |tile| &tile.shape[..]);
    let (&[m, k], &[_, n], &[_, columns]) = (shape(inner.one(0)), shape(inner.result()), shape(out.result())) else {
        return Err(Reason::at("the product has a batch axis", at));
    };
    if !m.is_multiple_of(64) || !k.is_multiple_of(16) || !n.is_multiple_of(16) || !columns.is_multiple_of(8) {
        let text =
            format!("products of {m}x{n}x{k} and {m}x{columns}x{n} are not of whole instructions: 64 rows, 16 of the others");
        return Err(Reason::at(text, at));
    }
    let plan = Plan::of(units.arch, m, m * n + m * columns)
        .ok_or_else(|| Reason::at(format!("{m} rows of {n} and {columns} sums do not fit the registers"), at))?;
    let buffers = [first.right[0].slot(func)?, first.right[1].slot(func)?];
    for other in &links {
        let left = func.ops[other.products[0]].one(0) == inner.one(0);
        if !left || (0..2).any(|at| other.right[at].slot(func).as_ref() != Ok(&buffers[at])) {
            return Err(Reason::at("two loops differ in their factors", func.ops[other.looped].span));
        }
    }
    let left = left_side(func, home, &links, inner.one(0))?;
    if let (Left::Stored(..), Some(_)) = (&left, outer) {
        return Err(Reason::at("the first product's left factor is computed for each tile", at));
    }
    let bytes: u64 = buffers.iter().map(SharedType::bytes).sum();
    let others = 2 * m * k + SCRATCH + if stores_along_lines(func) { 0 } else { 2 * m * columns + 16 * m };
    if bytes + u64::from(others) > u64::from(units.shared) {
        return Err(Reason::at("one tile of each factor does not fit the shared memory of a block", at));
    }
    let stages = slots::stages(func, units, bytes as u32, others).min(func.hints.num_stages.unwrap_or(STAGES));
    Ok(Chain { outer, links, left, slots: buffers, stages, plan })
}

/// Every store's lines lie as the last axis of its tile, which a warpgroup's sums fill by whole sectors: they need not go through shared
/// memory on their way out.
fn stores_along_lines(func: &Func) -> bool {
    func.linked_ops().into_iter().all(|op| match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::StoreViewTko { .. }) => func.ops[op].operands.iter().all(|&value| match func.ty(value) {
            Type::TileView(view) => {
                let last = view.dim_map.last().and_then(|&axis| view.tensor.strides.get(axis as usize));
                last == Some(&Extent::Static(1))
            }
            _ => true,
        }),
        _ => true,
    })
}

/// Where the first products' left factor comes from.
fn left_side(func: &Func, home: Block, links: &[Link], factor: Value) -> Result<Left, Reason> {
    let top = &func.blocks[home].ops;
    let users: Vec<Op> = links.iter().map(|link| link.products[0]).collect();
    if let Ok(left) = loaded(func, factor, &users)
        && top.contains(&left.load)
        && let Ok(slot) = left.slot(func)
    {
        return Ok(Left::Loaded(left, slot));
    }
    let outside = func.defining_op(factor).is_some_and(|op| top.contains(&op));
    let (Some(tile), true) = (func.ty(factor).as_tile(), outside) else {
        return Err(Reason::at("the first product's left factor differs from round to round", func.ops[users[0]].span));
    };
    let dtype = func.ty(factor).num().unwrap_or(DType::BF16);
    let swizzle = slots::swizzle(tile.shape[1] * dtype.bits() / 8).ok_or_else(|| {
        Reason::at("a line of the left factor has no swizzle: 32, 64 or a multiple of 128 bytes", func.ops[users[0]].span)
    })?;
    Ok(Left::Stored(factor, SharedType { swizzle, ..SharedType::new(tile.shape.clone(), dtype) }))
}

impl Plan {
    /// Warps for so many rows, where this many sums of products fit their registers.
    fn of(arch: Arch, rows: u32, sums: u32) -> Option<Plan> {
        let (warps, registers, most) = match rows / 64 {
            3 => (12, Some((32, 160)), 160),
            groups if groups.is_multiple_of(2) => (8, Some((40, 232)), 232),
            _ => (4, None, arch.limits().registers_per_thread),
        };
        (sums / (32 * warps) + OTHERS <= most).then_some(Plan { warps, registers })
    }
}

fn link(func: &Func, looped: Op) -> Result<Link, Reason> {
    let body = func.ops[looped].regions[0];
    let ops = &func.blocks[body].ops;
    let products: Vec<Op> = ops.iter().copied().filter(|&op| is_product(func, op)).collect();
    let &[first, second] = &products[..] else {
        return Err(Reason::at("the loop does not hold two products", func.ops[looped].span));
    };
    let [sums, out] = [first, second].map(|product| &func.ops[product]);
    if !reaches(func, ops, sums.result(), out.one(0)) {
        return Err(Reason::at("the second product's left factor does not come from the first product", out.span));
    }
    for product in [sums, out] {
        let num = |value: Value| func.ty(value).num();
        let halves = matches!(num(product.one(0)), Some(DType::F16 | DType::BF16)) && num(product.one(0)) == num(product.one(1));
        let float = matches!(product.kind, OpKind::Schedule(ScheduleOp::MmaF { .. }));
        if !float || !halves || num(product.result()) != Some(DType::F32) {
            return Err(Reason::at("a chained product is not one of 16-bit floats that adds up in `float32`", product.span));
        }
    }
    let right = [loaded(func, sums.one(1), &[first])?, loaded(func, out.one(1), &[second])?];
    if let Some(outside) = right.iter().find(|factor| !ops.contains(&factor.load)) {
        return Err(Reason::at("a right factor is loaded outside the loop", func.ops[outside.load].span));
    }
    let handed = ops.last().map_or(&[][..], |&last| func.ops[last].group(0));
    let (mut scalars, mut carried) = (FxHashSet::default(), Vec::new());
    let mut needed: Vec<Value> = right.iter().flat_map(|factor| func.ops[factor.load].operands.clone()).collect();
    while let Some(value) = needed.pop() {
        match func.values[value].def {
            Def::Result(op, _) if ops.contains(&op) => {
                let data = &func.ops[op];
                let scalar = data.results.iter().all(|&result| !spread(func, result));
                if !data.regions.is_empty() || !is_free(func, op) || !scalar {
                    return Err(Reason::at("where to load from does not follow from scalars", data.span));
                }
                if scalars.insert(op) {
                    needed.extend(&data.operands);
                }
            }
            Def::Argument(block, position) if block == body && position > 0 => {
                let position = position as usize - 1;
                if !carried.contains(&position) {
                    carried.push(position);
                    needed.push(handed[position]);
                }
            }
            _ => {}
        }
    }
    carried.sort_unstable();
    Ok(Link { looped, products: [first, second], right, scalars, carried })
}

/// The value is a tile with axes.
fn spread(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|tile| !tile.shape.is_empty())
}

/// Some operations make `to` out of `from`.
fn reaches(func: &Func, ops: &[Op], from: Value, to: Value) -> bool {
    let mut reached: FxHashSet<Value> = std::iter::once(from).collect();
    for &op in ops {
        let mut uses = func.ops[op].operands.iter().any(|value| reached.contains(value));
        for &region in &func.ops[op].regions {
            uses |= func.blocks[region].ops.iter().any(|&op| func.ops[op].operands.iter().any(|value| reached.contains(value)));
        }
        if uses {
            reached.extend(&func.ops[op].results);
        }
    }
    reached.contains(&to)
}

/// What says where to load is known before the roles.
fn feeds(func: &Func, chain: &Chain, parts: &Parts) -> bool {
    let mut needed: Vec<Value> = Vec::new();
    if let Left::Loaded(left, _) = &chain.left {
        needed.extend(&func.ops[left.load].operands);
    }
    for link in &chain.links {
        let looped = &func.ops[link.looped];
        needed.extend(&looped.operands[..3]);
        needed.extend(link.carried.iter().map(|&position| looped.group(3)[position]));
        let own = |value: Value| match func.values[value].def {
            Def::Result(op, _) => link.scalars.contains(&op),
            Def::Argument(block, _) => block == looped.regions[0],
        };
        let inner = link.scalars.iter().copied().chain(link.right.iter().map(|factor| factor.load));
        needed.extend(inner.flat_map(|op| func.ops[op].operands.clone()).filter(|&value| !own(value)));
    }
    !needed.iter().any(|value| parts.inside.contains(value))
}

fn build(func: &mut Func, chain: &Chain, parts: Parts, around: Option<&Around>) {
    let span = func.ops[chain.links[0].looped].span;
    let Parts { mut shared, moved, .. } = parts;
    let mut make = |func: &mut Func, slot: &SharedType, stages: u32| {
        Queue::new(func, std::slice::from_ref(slot), (stages, RingProducer::Tma), span, &mut shared)
    };
    let right = [make(func, &chain.slots[0], chain.stages), make(func, &chain.slots[1], chain.stages)];
    let left = match &chain.left {
        Left::Loaded(_, slot) => Some(make(func, slot, 1)),
        Left::Stored(..) => None,
    };
    let queues = Queues { right, left };
    let (feed, compute) = match around {
        None => {
            let starts = queues.starts();
            let feed = feeder(func, chain, &queues, &moved, (&FxHashMap::default(), &starts)).0;
            (feed, computer(func, chain, &queues, &moved, &starts).0)
        }
        Some(around) => {
            let home = func.ops[around.op].regions[0];
            let ops = func.blocks[home].ops.clone();
            let feed =
                around.again(func, &queues.starts(), |func, names, cursors| feeder(func, chain, &queues, &ops, (names, cursors)));
            let cursors: Vec<Value> = queues.starts().iter().map(|&start| func.carry(around.op, start)).collect();
            let (ops, next) = computer(func, chain, &queues, &ops, &cursors);
            func.blocks[home].ops = ops;
            around.hand_on(func, &next);
            (vec![feed], moved)
        }
    };

    let Plan { warps, registers } = chain.plan;
    let feeding = role(func, (0, FEEDERS), registers.map(|(feeding, _)| feeding), feed, span);
    let computing = role(func, (FEEDERS, warps), registers.map(|(_, computing)| computing), compute, span);
    shared.extend([feeding, computing]);
    shared.extend(func.blocks[func.body].ops.last().copied());
    func.blocks[func.body].ops = shared;
    func.hints.num_warps = Some(FEEDERS + warps);
    func.hints.num_stages = Some(chain.stages);
    // Registers are shared out for one block a multiprocessor.
    func.hints.occupancy = None;
}

/// Fills a slot with what a load loads.
fn fill(func: &mut Func, load: Op, queue: &Queue, cursor: Value, map: &FxHashMap<Value, Value>, out: &mut Vec<Op>) {
    let data = func.ops[load].clone();
    queue.at(func, TileOp::Acquire {}, cursor, out);
    queue.load(func, (mapped(map, data.group(0))[0], &mapped(map, data.group(1))), (cursor, 0), out);
    queue.at(func, TileOp::Commit {}, cursor, out);
}

/// What fills slots: the loops again, with nothing but the loads as copies, and the cursors behind them. `names` stand for values of the
/// loop around.
fn feeder(
    func: &mut Func,
    chain: &Chain,
    queues: &Queues,
    moved: &[Op],
    (names, starts): (&FxHashMap<Value, Value>, &[Value]),
) -> (Vec<Op>, Vec<Value>) {
    let mut ops = Vec::new();
    let mut next = starts.to_vec();
    for &op in moved {
        if let (Left::Loaded(factor, _), Some(queue)) = (&chain.left, &queues.left)
            && factor.load == op
        {
            fill(func, op, queue, starts[2], names, &mut ops);
            if chain.outer.is_some() {
                next[2] = queue.next(func, starts[2], &mut ops);
            }
        }
        if let Some(link) = chain.links.iter().find(|link| link.looped == op) {
            let behind = feeding_loop(func, link, queues, ([next[0], next[1]], names), &mut ops);
            next[..2].copy_from_slice(&behind);
        }
    }
    (ops, next)
}

fn feeding_loop(
    func: &mut Func,
    link: &Link,
    queues: &Queues,
    (cursors, names): ([Value; 2], &FxHashMap<Value, Value>),
    out: &mut Vec<Op>,
) -> [Value; 2] {
    let looped = func.ops[link.looped].clone();
    let old = looped.regions[0];
    let scalars: Vec<Value> = link.carried.iter().map(|&position| looped.group(3)[position]).collect();
    let starts = [&mapped(names, &scalars)[..], &cursors].concat();
    let rounds = range(func, link.looped).map(|value| names.get(&value).copied().unwrap_or(value));
    let made = over(func, link.looped, rounds, &starts, |func, counter, carried| {
        let mut map = names.clone();
        let args = func.blocks[old].args.clone();
        map.insert(args[0], counter);
        map.extend(link.carried.iter().zip(carried).map(|(&position, &own)| (args[position + 1], own)));
        let cursors = &carried[scalars.len()..];
        let (mut ops, mut next) = (Vec::new(), Vec::new());
        for op in func.blocks[old].ops.clone() {
            if let Some(at) = link.right.iter().position(|factor| factor.load == op) {
                fill(func, op, &queues.right[at], cursors[at], &map, &mut ops);
            } else if link.scalars.contains(&op) {
                ops.push(copied(func, op, &mut map));
            } else if matches!(func.ops[op].row().effects, Effects::Terminator) {
                let handed = func.ops[op].group(0);
                next = mapped(&map, &link.carried.iter().map(|&position| handed[position]).collect::<Vec<_>>());
            }
        }
        for (queue, &cursor) in queues.right.iter().zip(cursors) {
            next.push(queue.next(func, cursor, &mut ops));
        }
        (ops, next)
    });
    out.push(made);
    last_two(func, made)
}

/// The last two results: the cursors behind a loop.
fn last_two(func: &Func, op: Op) -> [Value; 2] {
    let results = &func.ops[op].results;
    [results[results.len() - 2], results[results.len() - 1]]
}

/// What computes: what the function did, with buffers in place of the loads, and the cursors behind it.
fn computer(func: &mut Func, chain: &Chain, queues: &Queues, moved: &[Op], starts: &[Value]) -> (Vec<Op>, Vec<Value>) {
    let mut ops = Vec::new();
    let mut next = starts.to_vec();
    let mut buffer = None;
    let last = chain.links.last().map(|link| link.looped);
    for &op in moved {
        if matches!(&chain.left, Left::Loaded(factor, _) if factor.covers(op)) {
            continue;
        }
        let Some(link) = chain.links.iter().find(|link| link.looped == op) else {
            ops.push(op);
            continue;
        };
        let left = match buffer {
            Some(left) => left,
            None => left_factor(func, chain, queues, (link, starts), &mut ops),
        };
        buffer = Some(left);
        computing_loop(func, link, left, queues, [next[0], next[1]]);
        next[..2].copy_from_slice(&last_two(func, op));
        ops.push(op);
        if let (Some(queue), true) = (&queues.left, last == Some(op)) {
            queue.at(func, TileOp::Release {}, starts[2], &mut ops);
            if chain.outer.is_some() {
                next[2] = queue.next(func, starts[2], &mut ops);
            }
        }
    }
    (ops, next)
}

/// The first product's left factor as a buffer.
fn left_factor(func: &mut Func, chain: &Chain, queues: &Queues, (link, starts): (&Link, &[Value]), ops: &mut Vec<Op>) -> Value {
    let span = func.ops[link.looped].span;
    match (&chain.left, &queues.left) {
        (Left::Loaded(factor, _), Some(queue)) => {
            queue.at(func, TileOp::Wait {}, starts[2], ops);
            let slot = queue.slot(func, starts[2], 0, ops);
            matrix(func, factor, slot, span, ops)
        }
        (Left::Loaded(..), None) => func.ops[link.products[0]].one(0),
        (Left::Stored(value, ty), _) => {
            let ty = Type::Shared(Box::new(ty.clone()));
            let alloc = func.make_op(TileOp::AllocShared { align: 1024, offset: None }.into(), &[], [ty], [], span);
            let buffer = func.ops[alloc].result();
            let store = func.make_op(TileOp::StoreShared { matrices: false }.into(), &[&[*value], &[buffer]], [], [], span);
            let fence = func.make_op(TileOp::FenceAsync {}.into(), &[], [], [], span);
            let kind = TileOp::NamedBarrier { id: BARRIER, threads: 32 * chain.plan.warps };
            let barrier = func.make_op(kind.into(), &[], [], [], span);
            ops.extend([alloc, store, fence, barrier]);
            buffer
        }
    }
}

fn computing_loop(func: &mut Func, link: &Link, left: Value, queues: &Queues, cursors: [Value; 2]) {
    let looped = link.looped;
    let (body, span) = (func.ops[looped].regions[0], func.ops[looped].span);
    let own = cursors.map(|cursor| func.carry(looped, cursor));
    let mut ops = Vec::new();
    for op in func.blocks[body].ops.clone() {
        if link.right.iter().any(|factor| factor.covers(op)) {
            continue;
        }
        if let Some(at) = link.products.iter().position(|&product| product == op) {
            let (queue, cursor) = (&queues.right[at], own[at]);
            queue.at(func, TileOp::Wait {}, cursor, &mut ops);
            let slot = queue.slot(func, cursor, 0, &mut ops);
            let right = matrix(func, &link.right[at], slot, span, &mut ops);
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&func.ops[op].kind);
            let data = &mut func.ops[op];
            data.kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }.into();
            data.operands[1] = right;
            if at == 0 {
                data.operands[0] = left;
            }
            ops.push(op);
            queue.at(func, TileOp::Release {}, cursor, &mut ops);
        } else if matches!(func.ops[op].row().effects, Effects::Terminator) {
            for (queue, cursor) in queues.right.iter().zip(own) {
                let next = queue.next(func, cursor, &mut ops);
                func.append_operands(op, &[next]);
            }
            ops.push(op);
        } else {
            ops.push(op);
        }
    }
    func.blocks[body].ops = ops;
}
