//! The launch's memory that blocks leave sums in which share the rounds of a tile: one counts itself when it has left its own, and who counts last
//! adds all of them up in the order of their rounds. Nobody waits.
//!
//! ```text
//! slots      | tile 0: piece 0 | piece 1 | ... | tile 1: piece 0 | ...     where sums lie as threads hold them
//! counters   | tile 0 | tile 1 | ...                                       zero before a launch, and again behind it
//! ```
//!
//! Where blocks of a cluster are at the same piece, each has slots and counters of its own among the cluster's.

use tessera_ir::attrs::{AtomicMode, CacheHint, MemoryOrder, MemoryScope, Overflow, Predicate, Rounding};
use tessera_ir::{
    Block, Builder, Const, Elem, Extent, Func, Padding, ScheduleOp, Shape, TensorViewType, TileOp, TileType, TileViewType, Type,
    Value, ViewKind, bug,
};
use tessera_types::DType;

use super::left::Left;
use super::numbers::Numbers;

/// Counters for each block.
const COUNTERS: u32 = 1;
/// Elements of a thread that are on their way from memory while others are added up.
const AHEAD: u32 = 128;
/// The most pieces at a time, as a power of two.
const MOST_AHEAD: u32 = 3;

/// Who leaves sums in a pool, and how many.
#[derive(Clone, Copy)]
pub(super) struct Leavers {
    /// Slots for each of so many blocks.
    pub(super) slots: u32,
    /// Those that are launched, or as many of them as leave sums.
    pub(super) blocks: Value,
    /// Blocks of a cluster that leave sums of the same piece, and which of them this one is.
    pub(super) cluster: Option<[Value; 2]>,
    /// Pieces of every tile, where that is known.
    pub(super) pieces: Option<u32>,
    /// Threads that hold the sums.
    pub(super) threads: u32,
}

/// Memory for sums and counters.
pub(super) struct Pool {
    leavers: Leavers,
    /// One counter a tile that is shared.
    counters: Value,
    /// Where sums are left, one array of tiles for each value.
    left: Vec<Value>,
}

impl Pool {
    /// For sums of the types of these values.
    pub(super) fn of(b: &mut Builder<'_>, sums: &[Value], leavers: Leavers) -> Pool {
        let ty = Type::Tile(TileType { shape: Shape::new(), elem: Elem::Ptr(DType::I32) });
        let counters = b.value(TileOp::Workspace { number: 0, bytes_per_block: 4 * COUNTERS }, &[], ty);
        let left = sums.iter().enumerate().map(|(at, &sum)| slots(b, sum, at as u32 + 1, &leavers)).collect();
        Pool { leavers, counters, left }
    }

    /// What this block has for its own of what its cluster has under a number.
    pub(super) fn own(&self, b: &mut Builder<'_>, number: Value) -> Value {
        let Some([blocks, rank]) = self.leavers.cluster else { return number };
        let before = b.times(number, blocks);
        b.plus(before, rank)
    }

    /// Leaves the sums of a piece in its slot and counts it at its tile. The tile's sums, of the pieces from the first slot to the last one, where it
    /// is the last to be counted, and whether it is.
    pub(super) fn met(
        &self,
        b: &mut Builder<'_>,
        (slot, tile): (Value, Value),
        [first, last]: [Value; 2],
        sums: &[Value],
    ) -> Vec<Value> {
        let [zero, one] = [0, 1].map(|number| b.number(number));
        let slot = self.own(b, slot);
        let mut tokens = Vec::new();
        for (&sum, &left) in sums.iter().zip(&self.left) {
            let index = corner(b, sum, slot);
            let sum = Left::leave(b, sum);
            let kind = ScheduleOp::StoreViewTko {
                order: MemoryOrder::Weak,
                scope: None,
                latency: None,
                allow_tma: Some(false),
                inbounds: true,
                cache: CacheHint::Normal,
            };
            tokens.push(b.value(kind, &[&[sum], &[left], &index, &[]], Type::Token));
        }
        let token = b.value(ScheduleOp::JoinTokens {}, &[&tokens], Type::Token);
        let counter = self.own(b, tile);
        let pointer = b.same(ScheduleOp::Offset {}, &[self.counters, counter]);
        let kind = ScheduleOp::AtomicRmwTko { order: MemoryOrder::AcqRel, scope: MemoryScope::Device, mode: AtomicMode::Add };
        let counted = b.op(kind, &[&[pointer], &[one], &[], &[token]], [Type::scalar(DType::I32), Type::Token]);
        let [before, token] = b.func.ops[counted].results[..] else { bug!("an atomic update without two results") };
        let others = b.minus(last, first);
        let mine = b.is(before, Predicate::Eq, others);
        let types: Vec<Type> = sums.iter().map(|&sum| b.func.ty(sum).clone()).collect();
        let totals = branch(
            b,
            mine,
            &types,
            |b| {
                // As the next launch needs it.
                let kind =
                    ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, scope: None, latency: None, cache: CacheHint::Normal };
                b.value(kind, &[&[pointer], &[zero], &[], &[token]], Type::Token);
                self.added(b, [first, last], token, sums)
            },
            |_| sums.to_vec(),
        );
        [&totals[..], &[mine]].concat()
    }

    /// What the pieces with these slots have left, added up in the order of their rounds. Several are on their way from memory at a time.
    fn added(&self, b: &mut Builder<'_>, [first, last]: [Value; 2], token: Value, sums: &[Value]) -> Vec<Value> {
        let start: Vec<Value> = sums.iter().map(|&sum| zeros(b, sum)).collect();
        let ahead = self.ahead(b.func, sums);
        let one = b.number(1);
        let end = b.plus(last, one);
        if ahead == 1 {
            return self.pass(b, [first, end, one], token, &start, 1);
        }
        let step = b.number(ahead);
        let count = b.minus(end, first);
        let groups = b.over(count, step);
        let whole = b.times(groups, step);
        let middle = b.plus(first, whole);
        let most = self.pass(b, [first, middle, step], token, &start, ahead);
        // A number that is known is divided without rest.
        if self.leavers.pieces.is_some() {
            return most;
        }
        self.pass(b, [middle, end, one], token, &most, 1)
    }

    /// How many pieces a thread can hold beside its sums.
    fn ahead(&self, func: &Func, sums: &[Value]) -> i64 {
        let elements: usize = sums.iter().map(|&sum| func.ty(sum).the_tile().len()).sum();
        let held = (elements as u32).div_ceil(self.leavers.threads).max(1);
        let most = (AHEAD / held).max(1);
        match self.leavers.pieces {
            Some(pieces) => (1..=i64::from(pieces.min(most)))
                .rev()
                .find(|ahead| i64::from(pieces) % ahead == 0)
                .unwrap_or_else(|| bug!("no pieces")),
            None => 1 << most.ilog2().min(MOST_AHEAD),
        }
    }

    /// A loop over slots: each round loads some pieces, and adds them.
    fn pass(
        &self,
        b: &mut Builder<'_>,
        [first, end, step]: [Value; 3],
        token: Value,
        start: &[Value],
        pieces: i64,
    ) -> Vec<Value> {
        let types: Vec<Type> = start.iter().map(|&sum| b.func.ty(sum).clone()).collect();
        let body = b.func.new_block();
        let slot = b.func.add_arg(body, Type::scalar(DType::I32), None);
        let mut sums: Vec<Value> = types.iter().map(|ty| b.func.add_arg(body, ty.clone(), None)).collect();
        b.within(body, |b| {
            let mut loaded = Vec::new();
            for piece in 0..pieces {
                let behind = b.number(piece);
                let slot = b.plus(slot, behind);
                let slot = self.own(b, slot);
                loaded.push(sums.iter().zip(&self.left).map(|(&sum, &left)| load(b, sum, left, slot, token)).collect::<Vec<_>>());
            }
            for parts in loaded {
                sums = sums.iter().zip(parts).map(|(&sum, part)| add(b, sum, part)).collect();
            }
            b.op(ScheduleOp::Continue {}, &[&sums], []);
        });
        let kind = ScheduleOp::For { unsigned: false, unroll: None };
        let looped = b.op_with_regions(kind, &[&[first], &[end], &[step], start], types, [body]);
        b.func.ops[looped].results.to_vec()
    }
}

/// A view of the launch's memory in which each slot is a tile of a sum's type.
fn slots(b: &mut Builder<'_>, sum: Value, number: u32, leavers: &Leavers) -> Value {
    let tile = b.func.ty(sum).the_tile();
    let tile = TileType { shape: Left::shape_of(&tile.shape), elem: tile.elem };
    let elem = element(&tile);
    let bytes = tile.len() as u32 * elem.bits().div_ceil(8);
    let pointer = Type::Tile(TileType { shape: Shape::new(), elem: Elem::Ptr(elem) });
    let base = b.value(TileOp::Workspace { number, bytes_per_block: leavers.slots * bytes }, &[], pointer);
    let rank = tile.shape.len();
    let mut strides = vec![1i64; rank];
    for axis in (1..rank).rev() {
        strides[axis - 1] = strides[axis] * i64::from(tile.shape[axis]);
    }
    let extents = tile.shape.iter().enumerate();
    let extents = extents.map(|(axis, &extent)| if axis == 0 { Extent::Dynamic } else { Extent::Static(i64::from(extent)) });
    let tensor = TensorViewType { elem, shape: extents.collect(), strides: strides.into_iter().map(Extent::Static).collect() };
    let rows = b.number(i64::from(leavers.slots * tile.shape[0]));
    let rows = b.times(leavers.blocks, rows);
    let array = b.value(ScheduleOp::MakeTensorView {}, &[&[base], &[rows], &[]], Type::TensorView(Box::new(tensor.clone())));
    let view = TileViewType {
        kind: ViewKind::Partition,
        dim_map: (0..rank as u32).collect(),
        tile: tile.shape,
        padding: Padding::Undetermined,
        tensor,
    };
    b.value(ScheduleOp::MakePartitionView {}, &[&[array]], Type::TileView(Box::new(view)))
}

/// What sums are made of.
pub(super) fn element(tile: &TileType) -> DType {
    tile.elem.num().unwrap_or_else(|| bug!("sums of {}", tile.elem))
}

/// A tile of zeros like another one.
fn zeros(b: &mut Builder<'_>, like: Value) -> Value {
    let tile = b.func.ty(like).the_tile().clone();
    b.constant(Const::splat(element(&tile), 0), tile.shape)
}

/// What a piece has left in a slot.
fn load(b: &mut Builder<'_>, like: Value, left: Value, slot: Value, token: Value) -> Value {
    let index = corner(b, like, slot);
    let kind = ScheduleOp::LoadViewTko {
        order: MemoryOrder::Weak,
        scope: None,
        latency: None,
        allow_tma: Some(false),
        inbounds: true,
        cache: CacheHint::Normal,
    };
    let tile = b.func.ty(like).the_tile();
    let ty = Type::Tile(TileType { shape: Left::shape_of(&tile.shape), elem: tile.elem });
    let made = b.op(kind, &[&[left], &index, &[token]], [ty, Type::Token]);
    let loaded = b.func.ops[made].results[0];
    Left::take(b, loaded, like)
}

fn add(b: &mut Builder<'_>, sum: Value, part: Value) -> Value {
    match element(b.func.ty(sum).the_tile()).is_float() {
        true => b.same(ScheduleOp::AddF { rounding: Rounding::NearestEven, flush_to_zero: false }, &[sum, part]),
        false => b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[sum, part]),
    }
}

/// The index of a slot.
fn corner(b: &mut Builder<'_>, sum: Value, slot: Value) -> Vec<Value> {
    let rank = Left::shape_of(&b.func.ty(sum).the_tile().shape).len();
    let zero = b.number(0);
    (0..rank).map(|axis| if axis == 0 { slot } else { zero }).collect()
}

/// An `if` whose branches yield values.
pub(super) fn branch(
    b: &mut Builder<'_>,
    condition: Value,
    types: &[Type],
    yes: impl FnOnce(&mut Builder<'_>) -> Vec<Value>,
    no: impl FnOnce(&mut Builder<'_>) -> Vec<Value>,
) -> Vec<Value> {
    let blocks: [Block; 2] = [b.func.new_block(), b.func.new_block()];
    b.within(blocks[0], |b| {
        let values = yes(b);
        b.op(ScheduleOp::Yield {}, &[&values], []);
    });
    b.within(blocks[1], |b| {
        let values = no(b);
        b.op(ScheduleOp::Yield {}, &[&values], []);
    });
    let made = b.op_with_regions(ScheduleOp::If {}, &[&[condition]], types.iter().cloned(), blocks);
    b.func.ops[made].results.to_vec()
}
