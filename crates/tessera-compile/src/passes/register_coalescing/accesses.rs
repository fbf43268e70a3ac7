//! What a thread's access to one element touches, and what else may touch the same.
//!
//! An element's place is a base and a sum: `load_ptr_tko (offset %x, 4 %t + 3)` lies at `%x`, terms `4 %t`, element 3. Two accesses
//! with one base and the same terms are a known distance apart; all others meet where the alias rule says that they may.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Does, Effect, Effects, Elem, Func, Op, OpData, OpKind, ScheduleOp, Space, TileOp, Touch, Type, Value};
use tessera_types::DType;

use tessera_analysis::exits::can_leave;
use tessera_analysis::facts::{Facts, power};
use tessera_analysis::linear::{Linear, Wraps};
use tessera_analysis::memory::{Root, access, root};
use tessera_analysis::uses::Uses;

/// Where elements lie that are a known distance apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// A pointer or a buffer.
    base: Value,
    /// The sum along the axis of neighbours, without its constant.
    terms: SmallVec<[(Value, i64); 4]>,
    /// The indices along the other axes of a buffer.
    others: SmallVec<[Linear; 2]>,
    pub(super) dtype: DType,
}

/// A thread's plain access to one element.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) op: Op,
    pub(super) place: Place,
    /// The element, counted from what the place's terms say.
    pub(super) element: i64,
    pub(super) stores: bool,
    pub(super) cache: CacheHint,
    /// A power of two that divides the address of element 0, in bytes.
    pub(super) align: u64,
    /// Elements that lie in a row at most, from a multiple of as many on.
    pub(super) line: u64,
}

impl Access {
    /// The values that decide about its place along the axis of neighbours, and how much each counts.
    pub(super) fn terms(&self) -> &[(Value, i64)] {
        &self.place.terms
    }

    /// Bytes of an element.
    pub(super) fn bytes(&self) -> u64 {
        self.place.dtype.unpacked_bytes() as u64
    }
}

/// What accesses are asked about.
pub(super) struct Context<'f> {
    pub(super) func: &'f Func,
    pub(super) facts: Facts,
    uses: Uses,
    accesses: FxHashMap<Op, Access>,
}

impl<'f> Context<'f> {
    pub(super) fn new(func: &'f Func) -> Context<'f> {
        let mut cx = Context { func, facts: Facts::of(func), uses: Uses::of(func), accesses: FxHashMap::default() };
        cx.accesses = func.linked_ops().into_iter().filter_map(|op| Some((op, cx.found(op)?))).collect();
        cx
    }

    /// The access that an operation is, if it is a plain one to an element that can be part of a wider access.
    pub(super) fn access(&self, op: Op) -> Option<&Access> {
        self.accesses.get(&op)
    }

    fn found(&self, op: Op) -> Option<Access> {
        let data = &self.func.ops[op];
        let (target, stores, cache) = match &data.kind {
            OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, cache, .. }) => (data.one(0), false, *cache),
            OpKind::Schedule(ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, cache, .. }) => (data.one(0), true, *cache),
            OpKind::Tile(TileOp::LoadElement {}) => return self.element(op, data.one(0), data.group(1), false),
            OpKind::Tile(TileOp::StoreElement { relaxed: false }) => return self.element(op, data.one(1), data.group(2), true),
            _ => return None,
        };
        let masked = if stores { data.optional(2) } else { data.optional(1) };
        let ordered = data.optional(3).is_some() || data.results.last().is_some_and(|&token| self.uses.count(token) > 0);
        if masked.is_some() || ordered || !self.func.ty(target).is_scalar() {
            return None;
        }
        let Elem::Ptr(dtype) = self.func.ty(target).as_tile()?.elem else { return None };
        let (base, sum) = self.pointer(target);
        let bytes = whole_bytes(dtype)?;
        let align = power(self.facts.fact(base).divisor).min(sum.terms_divisor(&self.facts) * bytes);
        let place = Place { base, terms: sum.terms, others: SmallVec::new(), dtype };
        Some(Access { op, place, element: sum.constant, stores, cache, align, line: power(0) })
    }

    /// The pointer that others are made of by counting, and how far this one is from it.
    fn pointer(&self, mut pointer: Value) -> (Value, Linear) {
        let mut offsets: SmallVec<[Value; 2]> = SmallVec::new();
        while let Some(op) = self.func.defining_op(pointer)
            && let OpKind::Schedule(ScheduleOp::Offset {}) = self.func.ops[op].kind
        {
            offsets.push(self.func.ops[op].one(1));
            pointer = self.func.ops[op].one(0);
        }
        let wraps = Wraps::within(self.func, pointer);
        let mut sum = Linear::default();
        for offset in offsets {
            sum = sum.plus(&Linear::of(self.func, &self.facts, offset, wraps));
        }
        (pointer, sum)
    }

    fn element(&self, op: Op, buffer: Value, indices: &[Value], stores: bool) -> Option<Access> {
        let Type::Shared(ty) = self.func.ty(buffer) else { return None };
        let made = self.func.defining_op(buffer)?;
        if !matches!(self.func.ops[made].kind, OpKind::Tile(TileOp::AllocShared { .. })) {
            return None;
        }
        let bytes = whole_bytes(ty.elem)?;
        let &fastest = ty.order.last()?;
        // An index lies in its axis, so that wrapping makes no difference.
        let sums: SmallVec<[Linear; 4]> =
            indices.iter().map(|&index| Linear::of(self.func, &self.facts, index, Wraps::Ignored)).collect();
        let strides = ty.strides();
        let mut align = 16.min(sums[fastest as usize].terms_divisor(&self.facts) * bytes);
        for (axis, sum) in sums.iter().enumerate().filter(|(axis, _)| *axis != fastest as usize) {
            let index = sum.terms_divisor(&self.facts).min(power(sum.constant.unsigned_abs()));
            align = align.min(power(strides[axis] * bytes) * index);
        }
        if ty.swizzle.bits > 0 {
            align = align.min(1 << ty.swizzle.base);
        }
        let line = power(u64::from(ty.shape[fastest as usize])).min(power(u64::from(ty.shape[fastest as usize] + ty.pad)));
        let others = sums.iter().enumerate().filter(|(axis, _)| *axis != fastest as usize).map(|(_, sum)| sum.clone()).collect();
        let Linear { terms, constant } = sums[fastest as usize].clone();
        let place = Place { base: buffer, terms, others, dtype: ty.elem };
        Some(Access { op, place, element: constant, stores, cache: CacheHint::Normal, align, line })
    }

    /// A power of two that divides the address of an access in bytes when one of its terms is a number.
    pub(super) fn aligned_without(&self, access: &Access, term: Value, number: i64) -> u64 {
        let bytes = access.bytes();
        let rest = Linear {
            terms: access.place.terms.iter().copied().filter(|&(value, _)| value != term).collect(),
            constant: access.element.wrapping_add(number),
        };
        let base = match self.func.ty(access.place.base) {
            Type::Shared(_) => 16,
            _ => power(self.facts.fact(access.place.base).divisor),
        };
        let sum = rest.terms_divisor(&self.facts).min(power(rest.constant.unsigned_abs()));
        base.min(sum.saturating_mul(bytes))
    }

    /// Where an access may meet others.
    fn area(&self, of: &Access) -> Area {
        area(self.func, of.place.base)
    }

    /// How an operation stands to accesses at a place: whether it may touch the same memory, in a way that keeps them in order.
    pub(super) fn relation(&self, op: Op, of: &Access) -> Relation {
        let data = &self.func.ops[op];
        let effects = data.row().effects;
        if matches!(effects, Effects::Pure | Effects::MayTrap) {
            return Relation::Apart;
        }
        if !data.regions.is_empty() {
            let inner = || data.regions.iter().flat_map(|&region| &self.func.blocks[region].ops);
            let apart = !can_leave(self.func, op) && inner().all(|&inner| self.inner(inner, of) == Relation::Apart);
            return if apart { Relation::Apart } else { Relation::Meets };
        }
        if let Some(other) = self.access(op) {
            if !other.stores && !of.stores {
                return Relation::Apart;
            }
            if other.place == of.place {
                return Relation::Element(other.element);
            }
        }
        let (touched, writes) = match &data.kind {
            OpKind::Tile(_) => return self.tile_relation(data, of),
            OpKind::Schedule(_) => match access(self.func, op) {
                Some(found) if found.root == Root::Unknown && found.writes => return Relation::Meets,
                Some(found) => (Area::Global(found.root), found.writes),
                None if effects == Effects::Terminator => return Relation::Apart,
                None => return Relation::Meets,
            },
            OpKind::Graph(_) => return Relation::Meets,
        };
        if (writes || of.stores) && touched.meets(self.area(of)) { Relation::Meets } else { Relation::Apart }
    }

    /// The same for a Tile operation, by what its row says.
    fn tile_relation(&self, data: &OpData, of: &Access) -> Relation {
        let stays = |effect: &Effect| effect.does == Does::Order || effect.queue.is_some() || effect.spaces == [Space::Ring];
        if data.kind.effects().iter().any(stays) {
            return Relation::Meets;
        }
        let meets = |touch: &Touch| (touch.effect.writes() || of.stores) && area(self.func, touch.value).meets(self.area(of));
        if self.func.touches(data).iter().any(meets) { Relation::Meets } else { Relation::Apart }
    }

    /// The same for an operation of a region that control does not leave.
    fn inner(&self, op: Op, of: &Access) -> Relation {
        if self.func.ops[op].row().effects == Effects::Terminator { Relation::Apart } else { self.relation(op, of) }
    }
}

/// How an operation stands to the accesses at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// It touches nothing of it, or both only read.
    Apart,
    /// It touches this element alone.
    Element(i64),
    /// It may touch any of it, or orders accesses.
    Meets,
}

/// Memory that accesses may meet in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    Global(Root),
    /// The buffer that an operation allocates; `None` where it is not known which.
    Shared(Option<Op>),
    /// A thread's own.
    Own,
}

impl Area {
    fn meets(self, other: Area) -> bool {
        match (self, other) {
            (Area::Global(a), Area::Global(b)) => a.meets(b),
            (Area::Shared(Some(a)), Area::Shared(Some(b))) => a == b,
            (Area::Shared(_), Area::Shared(_)) => true,
            _ => false,
        }
    }
}

fn area(func: &Func, mut value: Value) -> Area {
    match func.ty(value) {
        Type::Registers(_) => return Area::Own,
        Type::Shared(_) => {}
        _ => return Area::Global(root(func, value)),
    }
    loop {
        let Some(op) = func.defining_op(value) else { return Area::Shared(None) };
        match &func.ops[op].kind {
            OpKind::Tile(TileOp::AllocShared { .. }) => return Area::Shared(Some(op)),
            OpKind::Tile(
                TileOp::SliceShared {}
                | TileOp::SubviewShared { .. }
                | TileOp::TransposeShared { .. }
                | TileOp::CollapseShared {},
            ) => {
                value = func.ops[op].operands[0];
            }
            _ => return Area::Shared(None),
        }
    }
}

/// Bytes of an element that has whole ones.
fn whole_bytes(dtype: DType) -> Option<u64> {
    let bytes = dtype.unpacked_bytes() as u64;
    (u64::from(dtype.bits()) == 8 * bytes).then_some(bytes)
}
