//! What needs a whole axis: matrix products and reductions, as loops over the tiles of that axis.
//!
//! Elements beyond an axis's end are zero where they are loaded; when more than a load stands between memory and the loop
//! (`exp`, say), they are masked to what changes nothing.

use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, Overflow, Predicate, ReduceOrder, Rounding, Signedness};
use tessera_ir::{Axis, Const, Elem, GraphOp, Op, OpKind, ScheduleOp, Shape, Type, Value, bug};
use tessera_types::DType;

use crate::tiling::emit::{Coord, Coords, Emitter, WRAPS, shape_of};
use crate::tiling::operand::{signedness, tile};
use crate::tiling::plan::fit;

impl Emitter<'_> {
    /// A tile of a matrix product: a loop over K.
    pub(super) fn contract(&mut self, op: Op, coords: &Coords) -> Value {
        let source = self.source;
        let data = &source.ops[op];
        let (lhs, rhs) = (data.one(0), data.one(1));
        let [left, right, result] = [lhs, rhs, data.result()].map(|value| source.ty(value).the_tensor());
        let rank = coords.len();
        let (m, n) = (coords[rank - 2], coords[rank - 1]);
        let axis = left.axes[rank - 1].clone();
        let types = Product::of(left.elem, right.elem, result.elem);
        let batch: u32 = coords[..rank - 2].iter().map(|coord| coord.extent).product();
        let shaped = |rows: u32, columns: u32| -> Shape {
            if rank == 2 { Shape::from_slice(&[rows, columns]) } else { Shape::from_slice(&[batch, rows, columns]) }
        };
        let extent = fit(self.plan.blocks.k, &axis);
        let acc = self.constant(Const::splat(types.acc, 0), shaped(m.extent, n.extent));

        let open = |row: Option<Coord>, column: Option<Coord>| -> SmallVec<[Option<Coord>; 4]> {
            coords[..rank - 2].iter().copied().map(Some).chain([row, column]).collect()
        };
        self.prefetch(lhs, &open(Some(m), None));
        self.prefetch(rhs, &open(None, Some(n)));
        let unsigned = (self.is_unsigned(lhs), self.is_unsigned(rhs));
        let results = self.over_tiles(&axis, extent, &[acc], |this, index, carried| {
            let k = Coord { index, extent };
            let at = |row: Coord, column: Coord| -> Coords { coords[..rank - 2].iter().copied().chain([row, column]).collect() };
            let mut a = this.eval(lhs, &at(m, k));
            let mut b = this.eval(rhs, &at(k, n));
            if !this.is_zero_padded(lhs) {
                a = this.mask(a, rank - 1, &axis, k, 0);
            }
            if !this.is_zero_padded(rhs) {
                b = this.mask(b, rank - 2, &axis, k, 0);
            }
            a = this.product_operand(a, types.operands, shaped(m.extent, extent));
            b = this.product_operand(b, types.operands, shaped(extent, n.extent));
            let kind = if types.acc.is_float() {
                ScheduleOp::MmaF { fast_acc: false }
            } else {
                ScheduleOp::MmaI { lhs_signedness: signedness(unsigned.0), rhs_signedness: signedness(unsigned.1) }
            };
            let ty = this.func.ty(carried[0]).clone();
            SmallVec::from_slice(&[this.value(kind, &[a, b, carried[0]], ty)])
        });
        let shape = shape_of(coords);
        let mut product = results[0];
        if rank > 3 {
            product = self.value(ScheduleOp::Reshape {}, &[product], tile(shape.clone(), types.acc));
        }
        self.converted(product, types.acc, result.elem, &shape)
    }

    fn product_operand(&mut self, value: Value, elem: DType, shape: Shape) -> Value {
        let ty = self.func.ty(value).the_tile().clone();
        let Elem::Num(from) = ty.elem else { bug!("a product of pointers") };
        let value = self.converted(value, from, elem, &ty.shape);
        if ty.shape == shape { value } else { self.value(ScheduleOp::Reshape {}, &[value], tile(shape, elem)) }
    }

    fn converted(&mut self, value: Value, from: DType, to: DType, shape: &Shape) -> Value {
        if from == to {
            return value;
        }
        self.value(ScheduleOp::FToF { rounding: Rounding::NearestEven }, &[value], tile(shape.clone(), to))
    }

    fn is_unsigned(&self, value: Value) -> bool {
        let Some(op) = self.source.defining_op(value) else { return false };
        let data = &self.source.ops[op];
        matches!(data.kind, OpKind::Graph(GraphOp::Load { .. })) && self.signature.operands[&data.one(0)].unsigned
    }

    /// True when elements beyond the axes' ends are zero for certain.
    fn is_zero_padded(&self, value: Value) -> bool {
        let Some(op) = self.source.defining_op(value) else { return false };
        let data = &self.source.ops[op];
        match &data.kind {
            OpKind::Graph(GraphOp::Load { .. }) => true,
            OpKind::Schedule(ScheduleOp::FToF { .. }) => self.is_zero_padded(data.one(0)),
            _ => false,
        }
    }

    /// A tile of a reduction, of extent 1 along its axis: running values element by element, combined at the end.
    pub(super) fn reduce(&mut self, op: Op, axis: usize, combine: Combine, coords: &Coords) -> Value {
        let source = self.source;
        let from = source.ops[op].one(0);
        let ty = source.ty(from).the_tensor();
        let name = ty.axes[axis].clone();
        let extent = self.plan.blocks.extent(&ty.axes, axis);
        // Narrow floats are combined in `f32`.
        let elem = if matches!(ty.elem, DType::F16 | DType::BF16) { DType::F32 } else { ty.elem };
        let neutral = Const::neutral(combine, elem);
        let outside = neutral.splat_bits().unwrap_or_else(|| bug!("a neutral element of several numbers"));
        let mut shape = shape_of(coords);
        shape[axis] = extent;
        let init = self.constant(neutral.clone(), shape.clone());
        let mut open: SmallVec<[Option<Coord>; 4]> = coords.iter().copied().map(Some).collect();
        open[axis] = None;
        self.prefetch(from, &open);
        let results = self.over_tiles(&name, extent, &[init], |this, index, carried| {
            let mut at = coords.clone();
            at[axis] = Coord { index, extent };
            let value = this.eval(from, &at);
            let value = this.converted(value, ty.elem, elem, &shape);
            let value = this.mask(value, axis, &name, at[axis], outside);
            SmallVec::from_slice(&[this.value(combination(combine, elem), &[carried[0], value], tile(shape.clone(), elem))])
        });
        let total = self.along(results[0], axis, combine, elem, neutral);
        let kept = self.value(ScheduleOp::Reshape {}, &[total], tile(shape_of(coords), elem));
        self.converted(kept, elem, ty.elem, &shape_of(coords))
    }

    /// Combines a tile along an axis, which goes.
    fn along(&mut self, value: Value, axis: usize, combine: Combine, elem: DType, neutral: Const) -> Value {
        let mut shape = self.func.ty(value).the_tile().shape.clone();
        shape.remove(axis);
        let region = self.func.new_block();
        let scalar = Type::scalar(elem);
        let args = [0, 1].map(|_| self.func.add_arg(region, scalar.clone(), None));
        self.within(region, |this| {
            let next = this.value(combination(combine, elem), &args, scalar);
            this.op(ScheduleOp::Yield {}, &[&[next]], []);
        });
        let kind = ScheduleOp::Reduce { dim: axis as u32, identities: vec![neutral], order: ReduceOrder::Free };
        let op = self.build().op_with_regions(kind, &[&[value]], [tile(shape, elem)], [region]);
        self.func.ops[op].result()
    }

    /// The tile with elements beyond the axis's end replaced, where there can be any.
    fn mask(&mut self, value: Value, axis: usize, name: &Axis, at: Coord, outside: u64) -> Value {
        if matches!(name, Axis::Fixed(extent) if extent % at.extent == 0) {
            return value;
        }
        let ty = self.func.ty(value).the_tile().clone();
        let Elem::Num(elem) = ty.elem else { bug!("pointers beyond an axis's end") };
        let line = Shape::from_slice(&[at.extent]);
        let counted = tile(line.clone(), DType::I32);
        let size = self.signature.sizes[name];
        let extent = self.constant(Const::int(DType::I32, i64::from(at.extent)), Shape::new());
        let overflow: Overflow = WRAPS;
        let start = self.value(ScheduleOp::MulI { overflow }, &[at.index, extent], Type::scalar(DType::I32));
        let left = self.value(ScheduleOp::SubI { overflow }, &[size, start], Type::scalar(DType::I32));
        let left = self.spread(left, &line);
        let steps = self.value(ScheduleOp::Iota {}, &[], counted);
        let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Signed };
        let inside = self.value(kind, &[steps, left], tile(line, DType::B1));
        let mut placed = Shape::from_elem(1, ty.shape.len());
        placed[axis] = at.extent;
        let inside = self.value(ScheduleOp::Reshape {}, &[inside], tile(placed, DType::B1));
        let inside = self.spread(inside, &ty.shape);
        let other = self.constant(Const::splat(elem, outside), ty.shape.clone());
        self.value(ScheduleOp::Select {}, &[inside, value, other], Type::Tile(ty))
    }
}

/// The element types that a matrix product is computed with.
#[derive(Clone, Copy)]
struct Product {
    operands: DType,
    acc: DType,
}

impl Product {
    /// The operands' type where the matrix unit takes it, else the narrowest that holds both exactly; the result's type where it
    /// can accumulate, else `f32`.
    fn of(lhs: DType, rhs: DType, result: DType) -> Product {
        if !result.is_float() {
            return Product { operands: DType::I8, acc: DType::I32 };
        }
        if [lhs, rhs, result].contains(&DType::F64) {
            return Product { operands: DType::F64, acc: DType::F64 };
        }
        let direct = matches!(lhs, DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 | DType::TF32);
        let narrow = |dtype: DType| dtype.bits() <= 8 && dtype != DType::E8M0 || dtype == DType::F16;
        let operands = match (lhs == rhs && direct, narrow(lhs) && narrow(rhs)) {
            (true, _) => lhs,
            (false, true) => DType::F16,
            (false, false) => DType::F32,
        };
        let halves = matches!(operands, DType::F8E4M3 | DType::F8E5M2 | DType::F16) && result == DType::F16;
        Product { operands, acc: if halves { DType::F16 } else { DType::F32 } }
    }
}

fn combination(combine: Combine, elem: DType) -> ScheduleOp {
    let (rounding, flush_to_zero, overflow) = (Rounding::NearestEven, false, WRAPS);
    let (signedness, propagate_nan) = (Signedness::Signed, false);
    match (combine, elem.is_float()) {
        (Combine::Sum, true) => ScheduleOp::AddF { rounding, flush_to_zero },
        (Combine::Prod, true) => ScheduleOp::MulF { rounding, flush_to_zero },
        (Combine::Max, true) => ScheduleOp::MaxF { propagate_nan, flush_to_zero },
        (Combine::Min, true) => ScheduleOp::MinF { propagate_nan, flush_to_zero },
        (Combine::Sum, false) => ScheduleOp::AddI { overflow },
        (Combine::Prod, false) => ScheduleOp::MulI { overflow },
        (Combine::Max, false) => ScheduleOp::MaxI { signedness },
        (Combine::Min, false) => ScheduleOp::MinI { signedness },
    }
}
