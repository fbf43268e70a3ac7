//! The document's operations on tiles: products, reductions along rows, what a softmax is made of.
//!
//! A *row tile* has one number a row. `exp_diff` and `exp_subtract` yield 0 where what is exponentiated is minus infinity, also
//! against minus infinity: a row that a mask leaves empty adds nothing.

use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, NanOrder, Overflow, Predicate, Rounding, Signedness};
use tessera_ir::text::cursor::Parsed;
use tessera_ir::{Axis, Const, Elem, GraphOp, ScheduleOp, Shape, SharedType, TensorType, TileOp, TileType, Type, Value};
use tessera_types::DType;

use crate::emit::{Bound, Emit, WithHelp, combination};
use crate::memref::{Space, register};
use crate::syntax::{Operand, Statement};

const SIGNED: Signedness = Signedness::Signed;

/// One factor of a product.
enum Factor {
    Buffer(Value),
    Tile(Value),
}

impl<'a> Emit<'a, '_> {
    /// An operation on tiles that yields one; `None` if there is none of that name.
    pub(super) fn tiles(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = statement.name.text;
        let known: &[&str] = match name {
            "tile.mma" => &["transpose_a", "transpose_b", "accumulate", "layout"],
            "tile.reduce" => &["axis", "kind"],
            "tile.broadcast" | "tile.iota" => &["axis"],
            _ => &[],
        };
        let bound = match name {
            "tile.mma" => self.product(statement)?,
            "tile.row_max" => self.along_rows(statement, Combine::Max)?,
            "tile.row_min" => self.along_rows(statement, Combine::Min)?,
            "tile.row_sum" => self.along_rows(statement, Combine::Sum)?,
            "tile.reduce" => self.reduction(statement)?,
            "tile.broadcast" => self.broadcast(statement)?,
            "tile.iota" => self.iota(statement)?,
            "tile.element_max" => self.combined(statement, Combine::Max)?,
            "tile.element_min" => self.combined(statement, Combine::Min)?,
            "tile.add" => self.combined(statement, Combine::Sum)?,
            "tile.mul" => self.combined(statement, Combine::Prod)?,
            "tile.sub" => self.difference(statement)?,
            "tile.div" => {
                self.floats(statement, ScheduleOp::DivF { rounding: Rounding::NearestEven, flush_to_zero: false }, 2)?
            }
            "tile.exp" => self.floats(statement, ScheduleOp::Exp { rounding: Rounding::NearestEven, flush_to_zero: false }, 1)?,
            "tile.fma" => self.floats(statement, ScheduleOp::Fma { rounding: Rounding::NearestEven, flush_to_zero: false }, 3)?,
            "tile.exp_diff" => {
                let (operands, tile) = self.alike(statement, 0, 2)?;
                let value = self.exp_of_difference(operands[0], operands[1], &tile)?;
                self.yielded(value, tile)
            }
            "tile.exp_subtract" | "tile.div_broadcast" => self.by_rows(statement)?,
            "tile.cast" => self.convert(statement, SIGNED)?,
            "tile.transpose" => self.transpose(statement)?,
            _ => return Ok(None),
        };
        self.attributes(name, &statement.attributes, known)?;
        Ok(Some(bound))
    }

    /// An operation that changes its first operand; false if there is none of that name.
    pub(super) fn changes(&mut self, statement: &Statement<'a>) -> Parsed<bool> {
        let name = statement.name.text;
        if !matches!(name, "tile.fill" | "tile.broadcast_scale" | "tile.mask_fill" | "tile.scale_accumulator" | "tile.accumulate")
        {
            return Ok(false);
        }
        self.attributes(name, &statement.attributes, &[])?;
        let first = self.operand(statement, 0)?.clone();
        if name == "tile.fill"
            && let Some(Bound::Shared(shared)) = self.plain(&first)?.cloned()
        {
            self.at_most(statement, 2)?;
            let tile = self.func.ty(shared.value).as_shared().map(SharedType::tile);
            let Some(tile) = tile else { return Err(self.error("document-space", "no buffer")) };
            let operand = self.operand(statement, 1)?.clone();
            let scalar = self.scalar_of(&operand)?;
            let value = self.splat(scalar, &tile.shape)?;
            self.op(TileOp::StoreShared { matrices: false }, &[&[value], &[shared.value]], []);
            return Ok(true);
        }
        let cell = self.target(&first)?;
        let tile = self.cells[cell].tile.clone();
        let old = self.cells[cell].value;
        let operand = self.operand(statement, 1)?.clone();
        let value = match name {
            "tile.fill" => {
                self.at_most(statement, 2)?;
                let scalar = self.scalar_of(&operand)?;
                self.splat(scalar, &tile.shape)?
            }
            "tile.broadcast_scale" => {
                self.at_most(statement, 2)?;
                let scalar = self.scalar_of(&operand)?;
                let factor = self.splat(scalar, &tile.shape)?;
                self.times(old, factor, &tile)?
            }
            "tile.mask_fill" => {
                self.at_most(statement, 3)?;
                let scalar = self.scalar_of(&operand)?;
                let filled = self.splat(scalar, &tile.shape)?;
                match statement.operands.get(2).cloned() {
                    None => filled,
                    Some(mask) => {
                        let (mask, found) = self.tile_of(&mask)?;
                        if found != tile.with_elem(Elem::Num(DType::B1)) {
                            let message = format!("`{}` is no mask of `{}`", register(&found), register(&tile));
                            return Err(self.error("document-type", message));
                        }
                        let ty = self.func.ty(old).clone();
                        self.value(ScheduleOp::Select {}, &[&[mask], &[filled], &[old]], ty)
                    }
                }
            }
            "tile.scale_accumulator" => {
                self.at_most(statement, 2)?;
                let (row, found) = self.tile_of(&operand)?;
                let row = self.row(row, &found, &tile)?;
                self.times(old, row, &tile)?
            }
            _ => {
                self.at_most(statement, 2)?;
                let (value, found) = self.tile_of(&operand)?;
                if found != tile {
                    let message = format!("`{}` is added to `{}`", register(&found), register(&tile));
                    return Err(self.error("document-type", message));
                }
                let dtype = tile.elem.num().unwrap_or(DType::F32);
                self.same(combination(Combine::Sum, dtype), &[old, value])
            }
        };
        self.assign_like(cell, value)?;
        Ok(true)
    }

    fn assign_like(&mut self, cell: usize, value: Value) -> Parsed<()> {
        if self.func.ty(value) != self.func.ty(self.cells[cell].value) {
            let message = format!("another type than `{}`", register(&self.cells[cell].tile));
            return Err(self.error("document-type", message));
        }
        self.cells[cell].value = value;
        Ok(())
    }

    fn times(&mut self, lhs: Value, rhs: Value, tile: &TileType) -> Parsed<Value> {
        if self.func.ty(lhs) != self.func.ty(rhs) {
            let message = format!("the factor is no `{}`", tile.elem);
            return Err(self.error("document-type", message));
        }
        let dtype = tile.elem.num().unwrap_or(DType::F32);
        Ok(self.same(combination(Combine::Prod, dtype), &[lhs, rhs]))
    }

    // Element by element

    fn combined(&mut self, statement: &Statement<'a>, combine: Combine) -> Parsed<Bound> {
        let (operands, tile) = self.alike(statement, 0, 2)?;
        let dtype = tile.elem.num().unwrap_or(DType::F32);
        let value = self.same(combination(combine, dtype), &operands);
        Ok(self.yielded(value, tile))
    }

    fn subtraction(dtype: DType) -> ScheduleOp {
        match dtype.is_float() {
            true => ScheduleOp::SubF { rounding: Rounding::NearestEven, flush_to_zero: false },
            false => ScheduleOp::SubI { overflow: Overflow::Wraps },
        }
    }

    fn difference(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        let (operands, tile) = self.alike(statement, 0, 2)?;
        let value = self.same(Self::subtraction(tile.elem.num().unwrap_or(DType::F32)), &operands);
        Ok(self.yielded(value, tile))
    }

    fn floats(&mut self, statement: &Statement<'a>, kind: ScheduleOp, count: usize) -> Parsed<Bound> {
        let (operands, tile) = self.alike(statement, 0, count)?;
        self.float(&tile)?;
        let value = self.same(kind, &operands);
        Ok(self.yielded(value, tile))
    }

    fn float(&self, tile: &TileType) -> Parsed<DType> {
        match tile.elem.num() {
            Some(dtype) if dtype.is_float() => Ok(dtype),
            _ => Err(self.error("document-type", format!("floats are needed, not `{}`", tile.elem))),
        }
    }

    fn exp_of_difference(&mut self, lhs: Value, rhs: Value, tile: &TileType) -> Parsed<Value> {
        let dtype = self.float(tile)?;
        let difference = self.same(Self::subtraction(dtype), &[lhs, rhs]);
        let power = self.same(ScheduleOp::Exp { rounding: Rounding::NearestEven, flush_to_zero: false }, &[difference]);
        let lowest = self.lowest(dtype);
        let (lowest, zero) = (self.constant_like(lowest, lhs, tile)?, self.constant_like(Const::splat(dtype, 0), lhs, tile)?);
        let truth = match self.func.ty(lhs).clone() {
            Type::Tensor(tensor) => Type::Tensor(Box::new(TensorType { elem: DType::B1, ..*tensor })),
            _ => self.tile_type(&tile.with_elem(Elem::Num(DType::B1)))?,
        };
        let kind = ScheduleOp::CmpF { predicate: Predicate::Eq, nan: NanOrder::Ordered };
        let empty = self.value(kind, &[&[lhs], &[lowest]], truth);
        let ty = self.func.ty(lhs).clone();
        Ok(self.value(ScheduleOp::Select {}, &[&[empty], &[zero], &[power]], ty))
    }

    fn lowest(&self, dtype: DType) -> Const {
        Const::splat(
            dtype,
            match dtype {
                DType::F64 => f64::NEG_INFINITY.to_bits(),
                DType::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
                DType::F16 => 0xfc00,
                _ => 0xff80,
            },
        )
    }

    /// A constant of the type that a value has.
    fn constant_like(&mut self, value: Const, like: Value, tile: &TileType) -> Parsed<Value> {
        match self.func.ty(like).clone() {
            Type::Tensor(tensor) => {
                let scalar = self.constant(value, &[])?;
                Ok(self.value(GraphOp::Broadcast {}, &[&[scalar]], Type::Tensor(tensor)))
            }
            _ => self.constant(value, &tile.shape),
        }
    }

    // Rows

    /// A row tile repeated along the rows of a tile.
    fn row(&mut self, value: Value, found: &TileType, tile: &TileType) -> Parsed<Value> {
        let rank = tile.shape.len();
        if rank == 0 || found.elem != tile.elem || found.shape[..] != tile.shape[..rank - 1] {
            let message = format!("`{}` does not have one number for each row of `{}`", register(found), register(tile));
            return Err(self.error("document-type", message));
        }
        self.spread(value, found, &tile.shape, rank - 1)
    }

    fn by_rows(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 2)?;
        let (first, second) = (self.operand(statement, 0)?.clone(), self.operand(statement, 1)?.clone());
        let ((value, tile), (row, found)) = (self.tile_of(&first)?, self.tile_of(&second)?);
        let row = self.row(row, &found, &tile)?;
        self.float(&tile)?;
        let value = match statement.name.text {
            "tile.exp_subtract" => self.exp_of_difference(value, row, &tile)?,
            _ => self.same(ScheduleOp::DivF { rounding: Rounding::NearestEven, flush_to_zero: false }, &[value, row]),
        };
        Ok(self.yielded(value, tile))
    }

    fn along_rows(&mut self, statement: &Statement<'a>, combine: Combine) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let axis = tile.shape.len().checked_sub(1).filter(|&last| last > 0);
        let axis = axis.ok_or_else(|| self.error("document-type", format!("`{}` has no rows", register(&tile))))?;
        let (value, reduced) = self.reduce(value, &tile, axis, combine)?;
        self.check_stated(statement, &reduced)?;
        Ok(self.yielded(value, reduced))
    }

    fn reduction(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let kinds = ["sum", "max", "min", "prod"];
        let combine = self
            .choice(&statement.attributes, "kind", &kinds)?
            .map_or(Combine::Sum, |kind| [Combine::Sum, Combine::Max, Combine::Min, Combine::Prod][kind]);
        let axis = self.number(&statement.attributes, "axis")?.unwrap_or(tile.shape.len() as i64 - 1);
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < tile.shape.len());
        let axis = axis.ok_or_else(|| self.error("ir-attribute", format!("`{}` has no such axis", register(&tile))))?;
        let (value, reduced) = self.reduce(value, &tile, axis, combine)?;
        self.check_stated(statement, &reduced)?;
        Ok(self.yielded(value, reduced))
    }

    /// The type behind `->` must be what the operation yields.
    fn check_stated(&self, statement: &Statement<'a>, tile: &TileType) -> Parsed<()> {
        let Some((stated, at)) = statement.result_types.first() else { return Ok(()) };
        let fits = match stated {
            crate::memref::Ty::Scalar(dtype) => tile.shape.is_empty() && tile.elem == Elem::signless(*dtype),
            crate::memref::Ty::Memref(memref) => memref.space == Space::Register && memref.tile().as_ref() == Some(tile),
        };
        if fits {
            return Ok(());
        }
        let message = format!("`{}` yields `{}`, not `{stated}`", statement.name.text, register(tile));
        let found = tessera_ir::Diagnostic::error("document-type", *at, message);
        Err(Box::new(found.help("a register memref is one tile of the whole block, not each thread's part of it")))
    }

    fn broadcast(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let wanted = self.stated(statement).and_then(|memref| memref.tile()).filter(|wanted| wanted.elem == tile.elem);
        let Some(wanted) = wanted else {
            return Err(self
                .error("document-type", "the tile that it becomes is needed")
                .help_boxed("write `: f32 -> memref<16x16xf32, 5>`"));
        };
        if tile.shape.is_empty() {
            let value = self.splat(value, &wanted.shape)?;
            return Ok(self.yielded(value, wanted));
        }
        let rank = wanted.shape.len();
        let axis =
            self.number(&statement.attributes, "axis")?.map_or(Some(rank.wrapping_sub(1)), |axis| usize::try_from(axis).ok());
        let axis = axis.filter(|&axis| axis < rank).ok_or_else(|| self.error("ir-attribute", "there is no such axis"))?;
        let mut left = wanted.shape.clone();
        left.remove(axis);
        if left != tile.shape || (self.is_graph() && axis + 1 != rank) {
            let message = format!("`{}` repeated along axis {axis} is no `{}`", register(&tile), register(&wanted));
            return Err(self.error("document-type", message));
        }
        let value = self.spread(value, &tile, &wanted.shape, axis)?;
        Ok(self.yielded(value, wanted))
    }

    /// `tile.iota %start {axis = 0} : memref<16x16xindex, 5>`: each element's number along an axis, counted from a start.
    fn iota(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        if self.is_graph() {
            return Err(self.error("document-level", "whole operands have no numbered elements"));
        }
        let tile = self.stated(statement).filter(|memref| memref.space == Space::Register).and_then(|memref| memref.tile());
        let counts = |tile: &TileType| {
            !tile.shape.is_empty() && tile.elem.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8)
        };
        let Some(tile) = tile.filter(counts) else {
            return Err(self
                .error("document-type", "the type of the numbers is needed")
                .help_boxed("write `: memref<16x16xindex, 5>`"));
        };
        let axis = self.number(&statement.attributes, "axis")?.unwrap_or(0);
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < tile.shape.len());
        let axis = axis.ok_or_else(|| self.error("ir-attribute", format!("`{}` has no such axis", register(&tile))))?;
        let line = TileType { shape: [tile.shape[axis]].into_iter().collect(), elem: tile.elem };
        let ty = self.tile_type(&line)?;
        let numbers = self.value(ScheduleOp::Iota {}, &[], ty);
        let ones: Shape = (0..tile.shape.len()).map(|other| if other == axis { tile.shape[axis] } else { 1 }).collect();
        let (ones, whole) = (self.tile_type(&TileType { shape: ones, elem: tile.elem })?, self.tile_type(&tile)?);
        let numbers = self.value(ScheduleOp::Reshape {}, &[&[numbers]], ones);
        let mut numbers = self.value(ScheduleOp::Broadcast {}, &[&[numbers]], whole);
        if let Some(start) = statement.operands.first().cloned() {
            let start = self.scalar_of(&start)?;
            let start = self.splat(start, &tile.shape)?;
            if self.func.ty(start) != self.func.ty(numbers) {
                return Err(self.error("document-type", "the start has another type than the numbers"));
            }
            numbers = self.add(start, numbers);
        }
        Ok(self.yielded(numbers, tile))
    }

    fn transpose(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let operand = self.operand(statement, 0)?.clone();
        if let Some(Bound::Shared(shared)) = self.plain(&operand)?.cloned() {
            let value = self.turned(shared.value)?;
            return Ok(Bound::Shared(crate::emit::Shared { value, deep: None }));
        }
        let (value, tile) = self.tile_of(&operand)?;
        let &[rows, columns] = &tile.shape[..] else {
            return Err(self.error("document-type", format!("`{}` is no matrix", register(&tile))));
        };
        if self.is_graph() {
            return Err(self.error("document-level", "whole operands are turned where they are multiplied: `transpose_b`"));
        }
        let turned = TileType { shape: [columns, rows].into_iter().collect(), elem: tile.elem };
        let ty = self.tile_type(&turned)?;
        let value = self.value(ScheduleOp::Permute { permutation: [1, 0].into_iter().collect() }, &[&[value]], ty);
        Ok(self.yielded(value, turned))
    }

    /// A buffer of two axes with its axes exchanged.
    fn turned(&mut self, buffer: Value) -> Parsed<Value> {
        let Some(ty) = self.func.ty(buffer).as_shared().filter(|ty| ty.shape.len() == 2).cloned() else {
            return Err(self.error("document-type", "a matrix is needed"));
        };
        let turned = SharedType {
            shape: [ty.shape[1], ty.shape[0]].into_iter().collect(),
            order: ty.order.iter().map(|axis| 1 - axis).collect(),
            ..ty
        };
        let kind = TileOp::TransposeShared { permutation: [1, 0].into_iter().collect() };
        Ok(self.value(kind, &[&[buffer]], Type::Shared(Box::new(turned))))
    }

    // Products

    fn factor(&mut self, operand: &Operand<'a>, turned: bool) -> Parsed<(Factor, TileType)> {
        if let Some(Bound::Shared(shared)) = self.plain(operand)?.cloned() {
            let value = if turned { self.turned(shared.value)? } else { shared.value };
            let tile = self.func.ty(value).as_shared().map(SharedType::tile);
            return tile.map(|tile| (Factor::Buffer(value), tile)).ok_or_else(|| self.error("document-space", "no buffer"));
        }
        if let Some(Bound::Operand(operand)) = self.plain(operand)?.cloned()
            && turned
        {
            let Type::Operand(ty) = self.func.ty(operand).clone() else { return Err(self.error("document-space", "no operand")) };
            let mut ty = *ty;
            if ty.axes.len() < 2 {
                return Err(self.error("document-type", "a matrix is needed"));
            }
            let last = ty.axes.len() - 1;
            ty.axes.swap(last, last - 1);
            let shape = ty.axes.iter().map(|axis| if let Axis::Fixed(extent) = axis { *extent } else { 1 }).collect();
            let tile = TileType { shape, elem: Elem::Num(ty.elem) };
            let value = self.value(GraphOp::Load { transpose: true }, &[&[operand]], Type::Tensor(Box::new(ty)));
            return Ok((Factor::Tile(value), tile));
        }
        let (mut value, mut tile) = self.tile_of(operand)?;
        if turned {
            let &[rows, columns] = &tile.shape[..] else {
                return Err(self.error("document-type", format!("`{}` is no matrix", register(&tile))));
            };
            if self.is_graph() {
                return Err(self.error("document-level", "only an operand itself can be turned, not what was computed"));
            }
            tile = TileType { shape: [columns, rows].into_iter().collect(), elem: tile.elem };
            let ty = self.tile_type(&tile)?;
            value = self.value(ScheduleOp::Permute { permutation: [1, 0].into_iter().collect() }, &[&[value]], ty);
        }
        Ok((Factor::Tile(value), tile))
    }

    /// `tile.mma %a, %b` is a product, `tile.mma %a, %b, %c` is added to what `%c` holds; neither changes `%c`.
    fn product(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 3)?;
        let attributes = &statement.attributes;
        let turned =
            [self.flag(attributes, "transpose_a")?, self.flag(attributes, "transpose_b")?].map(|flag| flag == Some(true));
        let accumulate = self.flag(attributes, "accumulate")?;
        self.choice(attributes, "layout", &["row_major"])?;
        let operands = statement.operands.clone();
        let (Some(lhs), Some(rhs)) = (operands.first(), operands.get(1)) else {
            return Err(self.error("document-operands", "two factors are needed"));
        };
        let (lhs, left) = self.factor(lhs, turned[0])?;
        let (rhs, right) = self.factor(rhs, turned[1])?;
        let rank = left.shape.len();
        let fits = rank >= 2
            && right.shape.len() == rank
            && left.shape[..rank - 2] == right.shape[..rank - 2]
            && left.shape[rank - 1] == right.shape[rank - 2]
            && (rank == 2 || self.is_graph());
        if !fits {
            let message = format!("`{left}` and `{right}` do not form a product (M x K and K x N)");
            return Err(self.error("document-type", message).help_boxed("`transpose_b` reads the right factor as N x K"));
        }
        let elem = match (left.elem.num(), self.stated(statement)) {
            (Some(dtype), _) if dtype.is_integer() => DType::I32,
            (Some(DType::F64), _) => DType::F64,
            (_, Some(stated)) if stated.elem == DType::F16 => DType::F16,
            _ => DType::F32,
        };
        let mut shape = left.shape.clone();
        shape[rank - 1] = right.shape[rank - 1];
        let tile = TileType { shape, elem: Elem::Num(elem) };
        self.check_stated(statement, &tile)?;
        let acc = match operands.get(2) {
            None if accumulate == Some(true) => {
                return Err(self
                    .error("document-operands", "`accumulate` has nothing to add to")
                    .help_boxed("name it: `tile.mma %a, %b, %c`; without it the product stands alone"));
            }
            Some(acc) if accumulate != Some(false) => {
                let (value, found) = self.tile_of(acc)?;
                if found != tile {
                    let message = format!("a product of `{}` is added to `{}`", register(&tile), register(&found));
                    return Err(self.error("document-type", message));
                }
                Some(value)
            }
            _ => None,
        };
        let value = if self.is_graph() {
            self.contraction(lhs, rhs, acc, &tile)?
        } else {
            self.multiplied(lhs, rhs, acc, [&left, &right], &tile)?
        };
        Ok(self.yielded(value, tile))
    }

    fn contraction(&mut self, lhs: Factor, rhs: Factor, acc: Option<Value>, tile: &TileType) -> Parsed<Value> {
        let (Factor::Tile(lhs), Factor::Tile(rhs)) = (lhs, rhs) else {
            return Err(self.error("document-level", "whole operands are multiplied with each other, not with buffers"));
        };
        let ty = self.tile_type(tile)?;
        let product = self.value(GraphOp::Contract {}, &[&[lhs], &[rhs]], ty);
        // Zero is not added.
        let empty = |value: Value| {
            let scalar = self.func.defining_op(value).map(|op| self.func.ops[op].operands[..].to_vec());
            matches!(scalar.as_deref(), Some([scalar]) if self.func.constant(*scalar).is_some_and(|known| known.splat_bits() == Some(0)))
        };
        match acc {
            Some(acc) if !empty(acc) => {
                let dtype = tile.elem.num().unwrap_or(DType::F32);
                Ok(self.same(combination(Combine::Sum, dtype), &[product, acc]))
            }
            _ => Ok(product),
        }
    }

    fn multiplied(
        &mut self,
        lhs: Factor,
        rhs: Factor,
        acc: Option<Value>,
        factors: [&TileType; 2],
        tile: &TileType,
    ) -> Parsed<Value> {
        let acc = match acc {
            Some(acc) => acc,
            None => self.constant(Const::splat(tile.elem.num().unwrap_or(DType::F32), 0), &tile.shape)?,
        };
        let ty = self.func.ty(acc).clone();
        let integers = factors[0].elem.num().is_some_and(DType::is_integer);
        match (lhs, rhs) {
            (Factor::Tile(lhs), Factor::Tile(rhs)) => {
                let kind = match integers {
                    true => ScheduleOp::MmaI { lhs_signedness: SIGNED, rhs_signedness: SIGNED },
                    false => ScheduleOp::MmaF { fast_acc: false },
                };
                Ok(self.value(kind, &[&[lhs], &[rhs], &[acc]], ty))
            }
            (Factor::Tile(lhs) | Factor::Buffer(lhs), Factor::Buffer(rhs)) => {
                let kind = TileOp::MmaShared { fast_acc: false, lhs_signedness: SIGNED, rhs_signedness: SIGNED };
                Ok(self.value(kind, &[&[lhs], &[rhs], &[acc], &[]], ty))
            }
            (Factor::Buffer(lhs), Factor::Tile(rhs)) => {
                let loaded = self.tile_type(factors[0])?;
                let lhs = self.value(TileOp::LoadShared {}, &[&[lhs]], loaded);
                let kind = match integers {
                    true => ScheduleOp::MmaI { lhs_signedness: SIGNED, rhs_signedness: SIGNED },
                    false => ScheduleOp::MmaF { fast_acc: false },
                };
                Ok(self.value(kind, &[&[lhs], &[rhs], &[acc]], ty))
            }
        }
    }

    /// A whole operand's type.
    pub(super) fn operand_type(&self, tile: &TileType) -> Type {
        let axes: SmallVec<[Axis; 4]> = tile.shape.iter().map(|&extent| Axis::Fixed(extent)).collect();
        Type::Operand(Box::new(TensorType { axes, elem: tile.elem.num().unwrap_or(DType::F32) }))
    }
}
