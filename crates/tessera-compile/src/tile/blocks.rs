//! Blocks behind pointers: an access through a tile of pointers that go through an array row by row is an access to a tile of a view.
//!
//! ```text
//! %r = addi (broadcast %first), iota        %p = offset %x, %r * %stride + %c     the tile at [%i, %j] of %x cut into tiles,
//! %m = andi (cmpi %r, %n0), (cmpi %c, %n1)  load_ptr_tko %p, mask=%m              where %first = %i * 128
//! ```
//!
//! Such an access names, for each axis of an array argument, an index that stays the same or counts up by one along one axis of the
//! tile. Where it starts at a multiple of how far it counts, tiles partition the array there; else, as neighbours' do (`%first - 1`), the view's tiles are one
//! element apart. Its mask, if any, asks whether indices lie in the array, and
//! nothing else; what it does not ask about the author promises. Recipes and layouts then see what they see of tiles loaded by index.
//! Sizes and strides may be those of an array that has the same ([`Stated::Alike`]).
//!
//! Invariant: every value stays, but where the 32 bits of an index wrap around. What lies outside of an array is padded and dropped as before.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{MemoryOrder, Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{
    Changed, Const, Elem, Extent, Func, IndexType, Op, OpKind, Padding, ParamKind, ScheduleOp, Shape, Stated, TensorViewType,
    TileType, TileViewType, Type, Value, ViewKind, bug,
};
use tessera_types::{DType, FloatFormat};

use crate::rewrite::{Step, drop_dead, make, rewrite};
use tessera_analysis::arrays::array_at;
use tessera_analysis::facts::Facts;

/// Makes accesses by pointers that cover a block of an array accesses to a tile of it.
pub(super) fn from_pointers(func: &mut Func) -> Changed {
    let facts = Facts::of(func);
    let mut arrays: FxHashMap<(usize, TileViewType), Value> = FxHashMap::default();
    let mut made: Vec<Op> = Vec::new();
    let Changed(rewritten) = rewrite(func, |func, op, out| {
        let Some(block) = find(func, &facts, op) else { return Step::Keep };
        replace(func, &facts, op, &block, (&mut arrays, &mut made), out)
    });
    // Views are made where their arrays are known, before everything that uses them.
    for op in made {
        let source = func.defining_op(func.ops[op].one(0));
        let body = &mut func.blocks[func.body];
        let at = source.map_or(0, |source| body.place_of(source) + 1);
        body.ops.insert(at, op);
    }
    Changed(rewritten | drop_dead(func).0)
}

/// A block of an array, as pointers go through it.
struct Block {
    param: usize,
    base: Value,
    tensor: TensorViewType,
    /// For each axis of the array.
    indices: Vec<Index>,
    padding: Padding,
    inbounds: bool,
    /// The shape of the tile of pointers.
    shape: Shape,
    /// Elements between the view's tiles along each axis of the array.
    steps: Shape,
}

/// Indices along an axis of an array.
#[derive(Clone, Default)]
struct Index {
    /// Their sum is where they start.
    starts: Vec<Value>,
    constant: i64,
    /// The tile's axis along which they count.
    along: Option<usize>,
}

fn find(func: &Func, facts: &Facts, op: Op) -> Option<Block> {
    let data = &func.ops[op];
    let (pointers, mask, padding) = match data.kind.schedule()? {
        ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, .. } => (data.one(0), data.optional(1), data.optional(2)),
        ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, .. } => (data.one(0), data.optional(2), None),
        _ => return None,
    };
    let tile = func.ty(pointers).as_tile().filter(|tile| !tile.shape.is_empty())?;
    let Elem::Ptr(elem) = tile.elem else { return None };
    let offset = func.defining_op(pointers).filter(|_| matches!(kind_of(func, pointers), Some(ScheduleOp::Offset {})))?;
    let base = single(func, func.ops[offset].one(0))?;
    let param = array_at(func, base)?;
    let ParamKind::Array { dtype, shape, strides, index: IndexType::I32, .. } = &func.abi.params[param].kind else { return None };
    if dtype.bits() < 8 || dtype.bits() != elem.bits() {
        return None;
    }
    let rank = shape.len();
    let own = [param, owner(func, param)].map(|param| extents(func, param));
    let is = |value: Value, at: usize, known: Extent| match single(func, value) {
        Some(scalar) if own.iter().any(|own| own[at] == scalar) => true,
        _ => matches!((known, number(func, value)), (Extent::Static(size), Some(number)) if size == number),
    };

    let (mut terms, mut tests) = (Vec::new(), Vec::new());
    sum(func, func.ops[offset].one(1), &mut terms);
    if let Some(mask) = mask {
        all(func, mask, &mut tests);
    }
    let mut indices: Vec<Option<Index>> = vec![None; rank];
    let mut values = vec![None; rank];
    for term in terms {
        let (value, axis) = match product(func, term) {
            Some((value, step)) if let Some(axis) = (0..rank).find(|&axis| is(step, rank + axis, strides[axis])) => (value, axis),
            _ => (term, (0..rank).find(|&axis| strides[axis] == Extent::Static(1))?),
        };
        if indices[axis].is_some() {
            return None;
        }
        indices[axis] = Some(counted(func, value)?);
        values[axis] = Some(under(func, value));
    }
    let indices: Vec<Index> = indices.into_iter().collect::<Option<_>>()?;

    for test in &tests {
        let data = &func.ops[func.defining_op(*test)?];
        let OpKind::Schedule(ScheduleOp::CmpI { predicate: Predicate::Lt, signedness }) = data.kind else { return None };
        let of = |&axis: &usize| {
            let bounded = is(data.one(1), axis, shape[axis]) && values[axis] == Some(under(func, data.one(0)));
            let above =
                indices[axis].constant >= 0 && indices[axis].starts.iter().all(|&start| facts.fact(start).is_non_negative());
            bounded && (signedness == Signedness::Unsigned || above)
        };
        (0..rank).find(of)?;
    }
    let mut seen = vec![false; tile.shape.len()];
    let mut steps = Shape::new();
    for index in &indices {
        let Some(along) = index.along else {
            steps.push(1);
            continue;
        };
        let extent = tile.shape[along];
        let start = |&start: &Value| quotient(func, facts, start, i64::from(extent)).is_some();
        if std::mem::replace(&mut seen[along], true) {
            return None;
        }
        let whole = index.constant % i64::from(extent) == 0 && index.starts.iter().all(start);
        steps.push(if whole { extent } else { 1 });
    }
    if (0..tile.shape.len()).any(|axis| tile.shape[axis] != 1 && !seen[axis]) {
        return None;
    }
    let padding = match padding {
        Some(value) => padding_of(func, value)?,
        None => Padding::Undetermined,
    };
    let tensor = TensorViewType { elem, shape: shape.clone(), strides: strides.clone() };
    Some(Block { param, base, tensor, indices, padding, inbounds: mask.is_none(), shape: tile.shape.clone(), steps })
}

/// The first parameter that is known to have the sizes and strides of one.
fn owner(func: &Func, param: usize) -> usize {
    let alike = func.abi.stated.iter().find_map(|stated| match stated {
        Stated::Alike { array, other } if *array == func.abi.params[param].name => func.abi.position(other),
        _ => None,
    });
    alike.map_or(param, |other| owner(func, other))
}

/// The sizes and strides of an array.
fn extents(func: &Func, param: usize) -> &[Value] {
    let first = func.abi.first_argument(param) + 1;
    let count = func.abi.params[param].kind.argument_count() - 1;
    &func.args()[first..first + count]
}

/// The scalar that all elements of a value are.
fn single(func: &Func, mut value: Value) -> Option<Value> {
    while !func.ty(value).is_scalar() || matches!(kind_of(func, value), Some(ScheduleOp::ExtI { signedness: Signedness::Signed }))
    {
        match kind_of(func, value)? {
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::ExtI { signedness: Signedness::Signed } => {
                value = func.ops[func.defining_op(value)?].one(0);
            }
            _ => return None,
        }
    }
    Some(value)
}

fn kind_of(func: &Func, value: Value) -> Option<&ScheduleOp> {
    func.ops[func.defining_op(value)?].kind.schedule()
}

/// The integer that all elements of a value are.
fn number(func: &Func, value: Value) -> Option<i64> {
    func.constant(single(func, value).unwrap_or(value)).and_then(Const::as_int)
}

/// The summands of a value.
fn sum(func: &Func, value: Value, terms: &mut Vec<Value>) {
    match (kind_of(func, value), func.defining_op(value)) {
        (Some(ScheduleOp::AddI { .. }), Some(op)) if counted(func, value).is_none() => {
            let data = &func.ops[op];
            sum(func, data.one(0), terms);
            sum(func, data.one(1), terms);
        }
        _ => terms.push(value),
    }
}

/// The conditions that a value joins.
fn all(func: &Func, value: Value, tests: &mut Vec<Value>) {
    match (kind_of(func, value), func.defining_op(value)) {
        (Some(ScheduleOp::AndI {} | ScheduleOp::Broadcast {}), Some(op)) => {
            for &operand in &func.ops[op].operands {
                all(func, operand, tests);
            }
        }
        _ => tests.push(value),
    }
}

/// A product's factors, the one that is the same everywhere last.
fn product(func: &Func, value: Value) -> Option<(Value, Value)> {
    let data = &func.ops[func.defining_op(value)?];
    matches!(data.kind, OpKind::Schedule(ScheduleOp::MulI { .. })).then(|| {
        let (lhs, rhs) = (data.one(0), data.one(1));
        let same = |value| single(func, value).is_some() || number(func, value).is_some();
        if same(rhs) { (lhs, rhs) } else { (rhs, lhs) }
    })
}

/// The value that broadcasts and extensions repeat.
fn under(func: &Func, mut value: Value) -> Value {
    while let Some(ScheduleOp::Broadcast {} | ScheduleOp::ExtI { signedness: Signedness::Signed } | ScheduleOp::Reshape {}) =
        kind_of(func, value)
        && let Some(op) = func.defining_op(value)
    {
        value = func.ops[op].one(0);
    }
    value
}

/// Indices that stay the same or count up by one along one axis.
fn counted(func: &Func, value: Value) -> Option<Index> {
    let tile = func.ty(value).as_tile()?;
    if let Some(constant) = func.constant(value) {
        return Some(Index { constant: constant.as_int()?, ..Index::default() });
    }
    let shape = |value: Value| func.ty(value).as_tile().map(|tile| &tile.shape[..]);
    let Some(op) = func.defining_op(value) else { return start(func, value) };
    let data = &func.ops[op];
    match data.kind.schedule()? {
        ScheduleOp::Iota {} => Some(Index { along: Some(0), ..Index::default() }),
        ScheduleOp::Broadcast {} | ScheduleOp::ExtI { signedness: Signedness::Signed } => counted(func, data.one(0)),
        ScheduleOp::Reshape {} => {
            let index = counted(func, data.one(0))?;
            let Some(from) = index.along else { return Some(index) };
            let wide = |shape: &[u32]| (0..shape.len()).filter(|&axis| shape[axis] != 1).collect::<Vec<_>>();
            let (before, after) = (wide(shape(data.one(0))?), wide(&tile.shape));
            let place = before.iter().position(|&axis| axis == from)?;
            let one = before.len() == 1 && after.len() == 1;
            one.then(|| Index { along: Some(after[place]), ..index })
        }
        ScheduleOp::AddI { .. } => {
            let (lhs, rhs) = (counted(func, data.one(0))?, counted(func, data.one(1))?);
            if lhs.along.is_some() && rhs.along.is_some() {
                return None;
            }
            Some(Index {
                starts: [lhs.starts, rhs.starts].concat(),
                constant: lhs.constant.checked_add(rhs.constant)?,
                along: lhs.along.or(rhs.along),
            })
        }
        ScheduleOp::SubI { .. } => {
            let (lhs, rhs) = (counted(func, data.one(0))?, counted(func, data.one(1))?);
            let is_number = rhs.starts.is_empty() && rhs.along.is_none();
            is_number.then_some(())?;
            Some(Index { constant: lhs.constant.checked_sub(rhs.constant)?, ..lhs })
        }
        _ => start(func, value),
    }
}

/// An index that is a scalar of 32 bits.
fn start(func: &Func, value: Value) -> Option<Index> {
    let plain = func.ty(value).is_scalar() && func.ty(value).num() == Some(DType::I32);
    plain.then(|| Index { starts: vec![value], ..Index::default() })
}

/// How a multiple of `extent` is divided by it.
enum Quotient {
    /// It is a value times this.
    Times(Value, i64),
    /// Only division says.
    Divided,
}

fn quotient(func: &Func, facts: &Facts, value: Value, extent: i64) -> Option<Quotient> {
    if let Some((factor, by)) = product(func, value)
        && let Some(by) = number(func, by).filter(|by| by % extent == 0)
    {
        return Some(Quotient::Times(factor, by / extent));
    }
    facts.is_divisible(value, extent as u64).then_some(Quotient::Divided)
}

fn padding_of(func: &Func, value: Value) -> Option<Padding> {
    let constant = func.constant(value)?;
    let bits = constant.splat_bits()?;
    let Some(format) = FloatFormat::of(constant.dtype) else { return (bits == 0).then_some(Padding::Zero) };
    let number = format.decode(bits);
    match number {
        _ if number == 0.0 => Some(if number.is_sign_negative() { Padding::NegZero } else { Padding::Zero }),
        f64::INFINITY => Some(Padding::PosInf),
        f64::NEG_INFINITY => Some(Padding::NegInf),
        _ => None,
    }
}

type Made<'a> = (&'a mut FxHashMap<(usize, TileViewType), Value>, &'a mut Vec<Op>);

fn replace(func: &mut Func, facts: &Facts, op: Op, block: &Block, (views, made): Made<'_>, out: &mut Vec<Op>) -> Step {
    let data = func.ops[op].clone();
    let extent = |index: &Index| index.along.map_or(1, |along| block.shape[along]);
    let tile: Shape = block.indices.iter().map(extent).collect();
    let ty = TileViewType {
        kind: if block.steps == tile { ViewKind::Partition } else { ViewKind::Strided(block.steps.clone()) },
        tile: tile.clone(),
        dim_map: (0..tile.len() as u32).collect(),
        padding: block.padding,
        tensor: block.tensor.clone(),
    };
    let view = *views.entry((block.param, ty.clone())).or_insert_with(|| view(func, op, block, ty, made));
    let stepped = block.indices.iter().zip(&block.steps);
    let index: Vec<Value> = stepped.map(|(index, &step)| tile_index(func, facts, op, index, step, out)).collect();
    // The tile's axes in the order of the array's.
    let order: SmallVec<[usize; 4]> =
        block.indices.iter().filter_map(|index| index.along).filter(|&at| block.shape[at] != 1).collect();
    let elem = Elem::Num(block.tensor.elem);
    let of = |shape: Shape| Type::Tile(TileType { shape, elem });
    let wide = |order: &[usize]| -> Shape { order.iter().map(|&axis| block.shape[axis]).collect() };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let groups = |token: Option<Value>| token.into_iter().collect::<SmallVec<[Value; 1]>>();
    match data.kind {
        OpKind::Schedule(ScheduleOp::LoadPtrTko { order: memory, scope, latency, cache }) => {
            let inbounds = block.inbounds;
            let kind = ScheduleOp::LoadViewTko { order: memory, scope, latency, allow_tma: None, inbounds, cache };
            let token = groups(data.optional(3));
            let load = func.make_op(kind.into(), &[&[view], &index, &token], [of(tile), Type::Token], [], data.span);
            out.push(load);
            let mut value = func.ops[load].results[0];
            if order != sorted {
                value = make(func, op, ScheduleOp::Reshape {}, &[value], of(wide(&order)), out);
                let permutation = places(&sorted, &order);
                value = make(func, op, ScheduleOp::Permute { permutation }, &[value], of(wide(&sorted)), out);
            }
            if *func.ty(value) != of(block.shape.clone()) {
                value = make(func, op, ScheduleOp::Reshape {}, &[value], of(block.shape.clone()), out);
            }
            Step::Replace(SmallVec::from_slice(&[value, func.ops[load].results[1]]))
        }
        OpKind::Schedule(ScheduleOp::StorePtrTko { order: memory, scope, latency, cache }) => {
            let inbounds = block.inbounds;
            let kind = ScheduleOp::StoreViewTko { order: memory, scope, latency, allow_tma: None, inbounds, cache };
            let token = groups(data.optional(3));
            let mut value = data.one(1);
            if order != sorted {
                value = make(func, op, ScheduleOp::Reshape {}, &[value], of(wide(&sorted)), out);
                let permutation = places(&order, &sorted);
                value = make(func, op, ScheduleOp::Permute { permutation }, &[value], of(wide(&order)), out);
            }
            if *func.ty(value) != of(tile.clone()) {
                value = make(func, op, ScheduleOp::Reshape {}, &[value], of(tile), out);
            }
            let store = func.make_op(kind.into(), &[&[value], &[view], &index, &token], [Type::Token], [], data.span);
            out.push(store);
            Step::value(func.ops[store].result())
        }
        _ => Step::Keep,
    }
}

/// The permutation that brings axes from one order into another.
fn places(wanted: &[usize], held: &[usize]) -> Shape {
    let place = |axis: &usize| {
        let place = held.iter().position(|other| other == axis);
        place.unwrap_or_else(|| bug!("orders of different axes")) as u32
    };
    wanted.iter().map(place).collect()
}

/// The array cut into tiles.
fn view(func: &mut Func, op: Op, block: &Block, ty: TileViewType, made: &mut Vec<Op>) -> Value {
    let rank = block.tensor.shape.len();
    let own = extents(func, owner(func, block.param)).to_vec();
    let open = |values: &[Value], extents: &[Extent]| -> Vec<Value> {
        values.iter().zip(extents).filter(|(_, extent)| **extent == Extent::Dynamic).map(|(&value, _)| value).collect()
    };
    let (sizes, steps) = (open(&own[..rank], &block.tensor.shape), open(&own[rank..], &block.tensor.strides));
    let span = func.ops[op].span;
    let tensor = Type::TensorView(Box::new(block.tensor.clone()));
    let tensor = func.make_op(ScheduleOp::MakeTensorView {}.into(), &[&[block.base], &sizes, &steps], [tensor], [], span);
    let array = func.ops[tensor].result();
    let kind = match ty.kind {
        ViewKind::Strided(_) => ScheduleOp::MakeStridedView {},
        ViewKind::Partition | ViewKind::GatherScatter { .. } => ScheduleOp::MakePartitionView {},
    };
    let view = func.make_op(kind.into(), &[&[array]], [Type::TileView(Box::new(ty))], [], span);
    made.extend([tensor, view]);
    func.ops[view].result()
}

/// The tile's index along an axis: where its indices start, in steps of the view.
fn tile_index(func: &mut Func, facts: &Facts, op: Op, index: &Index, extent: u32, out: &mut Vec<Op>) -> Value {
    let (ty, overflow, extent) = (Type::scalar(DType::I32), Overflow::Wraps, i64::from(extent));
    let constant = |func: &mut Func, number: i64, out: &mut Vec<Op>| {
        make(func, op, ScheduleOp::Constant { value: Const::int(DType::I32, number) }, &[], ty.clone(), out)
    };
    let mut total = None;
    for &start in &index.starts {
        let part = match quotient(func, facts, start, extent) {
            _ if extent == 1 => start,
            Some(Quotient::Times(factor, 1)) => factor,
            Some(Quotient::Times(factor, by)) => {
                let by = constant(func, by, out);
                make(func, op, ScheduleOp::MulI { overflow }, &[factor, by], ty.clone(), out)
            }
            _ => {
                let by = constant(func, extent, out);
                let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::Zero };
                make(func, op, kind, &[start, by], ty.clone(), out)
            }
        };
        total = Some(match total {
            None => part,
            Some(before) => make(func, op, ScheduleOp::AddI { overflow }, &[before, part], ty.clone(), out),
        });
    }
    match total {
        Some(total) if index.constant == 0 => total,
        _ => {
            let more = constant(func, index.constant / extent, out);
            match total {
                None => more,
                Some(total) => make(func, op, ScheduleOp::AddI { overflow }, &[total, more], ty.clone(), out),
            }
        }
    }
}
