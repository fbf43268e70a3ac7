//! Operations on whole tiles: shapes, products, reductions, scans, and what a program says about itself.

use smallvec::{SmallVec, smallvec};
use tessera_ir::attrs::{GridAxis, ReduceOrder};
use tessera_ir::{EntityId, OpData, Shape, Value};
use tessera_types::{DType, printf};

use super::expr::{ExprId, ExprKind, Wanted};
use super::{Builder, Built, Lane, Val, element_bytes};
use crate::lanes::{Int, IntOp, LaneOp};
use crate::plan::{BoxCopy, Combine, Fetch, Inst, Mma, Piece, Place, Printed, Reg, ScalarCheck, Sink, SparseMma};

/// Distances of neighbours in a row-major tile.
pub(super) fn row_major(shape: &[u32]) -> SmallVec<[isize; 4]> {
    let mut strides: SmallVec<[isize; 4]> = smallvec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

/// Joins axes that are walked as one.
fn collapse(extents: &mut SmallVec<[usize; 4]>, strides: &mut SmallVec<[isize; 4]>) {
    let mut axis = 0;
    while axis < extents.len() {
        if extents[axis] == 1 {
            extents.remove(axis);
            strides.remove(axis);
        } else {
            axis += 1;
        }
    }
    let mut axis = 1;
    while axis < extents.len() {
        if strides[axis - 1] == strides[axis] * extents[axis] as isize {
            extents[axis - 1] *= extents[axis];
            strides[axis - 1] = strides[axis];
            extents.remove(axis);
            strides.remove(axis);
        } else {
            axis += 1;
        }
    }
    if extents.is_empty() {
        extents.push(1);
        strides.push(0);
    }
}

fn shape_of(shape: &Shape) -> SmallVec<[usize; 4]> {
    shape.iter().map(|&extent| extent as usize).collect()
}

impl Builder<'_> {
    /// The tile as an expression, with whether it is wide; a scalar becomes a tile of one element.
    fn tile(&mut self, value: Value) -> Built<(ExprId, bool)> {
        match self.val(value)? {
            Val::Tile { expr, wide } => Ok((expr, wide)),
            Val::Reg(reg) => {
                let bytes = element_bytes(self.tile_type(value)?.elem);
                Ok((self.uniform(reg, 1, bytes), false))
            }
            Val::View(_) | Val::Token => Err(self.refuse("cpu-type", "a tile was expected")),
        }
    }

    /// The value's elements in a place, as stored.
    pub(super) fn stored(&mut self, value: Value) -> Built<Place> {
        let ty = self.tile_type(value)?;
        let lane = self.raw(value)?;
        let expr = self.lane_expr(lane, ty.len(), element_bytes(ty.elem));
        Ok(self.evaluated(expr))
    }

    fn bind_tile(&mut self, result: Value, expr: ExprId, wide: bool) -> Built<()> {
        if self.func.ty(result).is_scalar() {
            let dtype = self.dtype(result)?;
            let lane = if wide {
                self.lane(LaneOp::Narrow(dtype), &[Lane::Expr(expr)], dtype.unpacked_bytes() as u8)
            } else {
                Lane::Expr(expr)
            };
            return self.bind_raw(result, lane);
        }
        self.bind(result, Val::Tile { expr, wide });
        Ok(())
    }

    /// The tile walked with strides over other extents.
    fn walked(&mut self, source: ExprId, shape: &Shape, strides: SmallVec<[isize; 4]>, first: Option<Reg>) -> ExprId {
        let (mut extents, mut strides) = (shape_of(shape), strides);
        collapse(&mut extents, &mut strides);
        let len = shape.iter().map(|&extent| extent as usize).product();
        let bytes = self.exprs[source.index()].bytes;
        match self.exprs[source.index()].kind.clone() {
            ExprKind::Fetch(Fetch::Uniform(reg)) => self.uniform(reg, len, bytes),
            ExprKind::Fetch(Fetch::Counting { extents: own, strides: steps })
                if own.len() == 1 && steps[0] == 1 && first.is_none() =>
            {
                self.fetch(Fetch::Counting { extents, strides }, len, bytes)
            }
            _ => {
                let place = self.evaluated(source);
                let id = self.fetch(Fetch::Strided { place, extents, strides, first }, len, bytes);
                if !self.options.fuse {
                    self.evaluated(id);
                }
                id
            }
        }
    }

    /// The first element of a part of a tile, by the part's number along each axis: what is known of it, and a register to add.
    fn part(&mut self, indices: &[Value], whole: &[u32], part: &[u32]) -> Built<(usize, Option<Reg>)> {
        let mut known = 0;
        let mut sum: Option<Reg> = None;
        for (axis, (&index, stride)) in indices.iter().zip(row_major(whole)).enumerate() {
            let factor = stride as usize * part[axis] as usize;
            let parts = (whole[axis] / part[axis]) as usize;
            let reg = self.extended(index)?;
            let constant = self.constant_bits(reg);
            if constant.is_none_or(|bits| bits >= parts as u64) {
                self.emit(Inst::CheckScalar(ScalarCheck::Part { index: reg, axis, parts }, self.span));
            }
            if let Some(bits) = constant {
                known += bits as usize * factor;
                continue;
            }
            let factor = Lane::Reg(self.constant(factor as u64));
            let term = self.lane(LaneOp::Int(IntOp::Mul, Int::B64, true), &[Lane::Reg(reg), factor], 8);
            let total = match sum {
                None => term,
                Some(sum) => self.lane(LaneOp::Int(IntOp::Add, Int::B64, true), &[Lane::Reg(sum), term], 8),
            };
            if let Lane::Reg(reg) = total {
                sum = Some(reg);
            }
        }
        Ok((known, sum))
    }

    pub(super) fn iota(&mut self, data: &OpData) -> Built<()> {
        let ty = self.tile_type(data.result())?;
        let fetch = Fetch::Counting { extents: smallvec![ty.len()], strides: smallvec![1] };
        let expr = self.fetch(fetch, ty.len(), element_bytes(ty.elem));
        self.bind_tile(data.result(), expr, false)
    }

    pub(super) fn broadcast(&mut self, data: &OpData) -> Built<()> {
        let (from, to) = (self.tile_type(data.one(0))?, self.tile_type(data.result())?);
        self.origins[data.result().index()] = self.origin(data.one(0));
        let (source, wide) = self.tile(data.one(0))?;
        if from.shape == to.shape {
            self.bind_tile(data.result(), source, wide)?;
            return Ok(());
        }
        let mut strides = row_major(&from.shape);
        // A scalar repeats along every axis.
        strides.resize(to.shape.len(), 0);
        for (axis, stride) in strides.iter_mut().enumerate() {
            if from.shape.get(axis).is_none_or(|&extent| extent == 1) {
                *stride = 0;
            }
        }
        let expr = self.walked(source, &to.shape, strides, None);
        self.bind_tile(data.result(), expr, wide)
    }

    pub(super) fn reshape(&mut self, data: &OpData) -> Built<()> {
        self.origins[data.result().index()] = self.origin(data.one(0));
        let (source, wide) = self.tile(data.one(0))?;
        self.bind_tile(data.result(), source, wide)
    }

    pub(super) fn permute(&mut self, data: &OpData, permutation: &Shape) -> Built<()> {
        let (from, to) = (self.tile_type(data.one(0))?, self.tile_type(data.result())?);
        self.origins[data.result().index()] = self.origin(data.one(0));
        let (source, wide) = self.tile(data.one(0))?;
        if permutation.len() != from.shape.len() {
            return Err(self.refuse("cpu-type", "the permutation has another number of axes than the tile"));
        }
        if let ExprKind::Fetch(Fetch::View(access)) = &self.exprs[source.index()].kind {
            let same = access.axes.len() == from.shape.len()
                && access.axes.iter().zip(&from.shape).all(|(axis, &extent)| axis.extent == extent as usize);
            if same && self.options.fuse {
                let mut access = access.clone();
                access.axes = permutation.iter().map(|&axis| access.axes[axis as usize]).collect();
                let bytes = self.exprs[source.index()].bytes;
                let expr = self.fetch(Fetch::View(access), to.len(), bytes);
                self.bind_tile(data.result(), expr, wide)?;
                return Ok(());
            }
        }
        let strides = row_major(&from.shape);
        let strides = permutation.iter().map(|&axis| strides[axis as usize]).collect();
        let expr = self.walked(source, &to.shape, strides, None);
        self.bind_tile(data.result(), expr, wide)
    }

    pub(super) fn extract(&mut self, data: &OpData) -> Built<()> {
        let (from, to) = (self.tile_type(data.one(0))?, self.tile_type(data.result())?);
        self.origins[data.result().index()] = self.origin(data.one(0));
        let (source, wide) = self.tile(data.one(0))?;
        let strides = row_major(&from.shape);
        let (known, sum) = self.part(data.group(1), &from.shape, &to.shape)?;
        let known = Lane::Reg(self.constant(known as u64));
        let first = match sum {
            None => known,
            Some(sum) => self.lane(LaneOp::Int(IntOp::Add, Int::B64, true), &[Lane::Reg(sum), known], 8),
        };
        let Lane::Reg(first) = first else { return Err(self.refuse("cpu-type", "a scalar was expected")) };
        let expr = self.walked(source, &to.shape, strides, Some(first));
        self.bind_tile(data.result(), expr, wide)
    }

    pub(super) fn concatenate(&mut self, data: &OpData, dim: u32) -> Built<()> {
        let result = data.result();
        let to = self.tile_type(result)?;
        let bytes = element_bytes(to.elem);
        let sources = [self.stored(data.one(0))?, self.stored(data.one(1))?];
        let dst = self.buffer(to.len(), bytes as usize);
        let dst_strides = row_major(&to.shape);
        let mut along = 0;
        for (src, value) in sources.into_iter().zip([data.one(0), data.one(1)]) {
            let from = self.tile_type(value)?;
            let first = along * dst_strides[dim as usize] as usize;
            along += from.shape[dim as usize] as usize;
            self.box_copy(src, dst, &from.shape, row_major(&from.shape), dst_strides.clone(), (first, None), bytes);
        }
        let expr = self.place_expr(dst, to.len(), bytes);
        self.bind(result, Val::Tile { expr, wide: false });
        Ok(())
    }

    pub(super) fn insert(&mut self, data: &OpData) -> Built<()> {
        let result = data.result();
        let (from, to) = (self.tile_type(data.one(0))?, self.tile_type(result)?);
        let bytes = element_bytes(to.elem);
        let src = self.stored(data.one(0))?;
        let whole = self.stored(data.one(1))?;
        let dst_strides = row_major(&to.shape);
        let first = self.part(data.group(2), &to.shape, &from.shape)?;
        let dst = self.buffer(to.len(), bytes as usize);
        self.copy(dst, whole, to.len() * bytes as usize);
        self.box_copy(src, dst, &from.shape, row_major(&from.shape), dst_strides, first, bytes);
        let expr = self.place_expr(dst, to.len(), bytes);
        self.bind(result, Val::Tile { expr, wide: false });
        Ok(())
    }

    /// Bytes of packed elements from tiles of them, or the other way.
    pub(super) fn pack(&mut self, data: &OpData, unpack: bool) -> Built<()> {
        let result = data.result();
        let to = self.tile_type(result)?;
        let elements = if unpack { to.len() } else { self.tile_type(data.one(0))?.len() };
        let dtype = self.dtype(if unpack { result } else { data.one(0) })?;
        let src = self.stored(data.one(0))?;
        let bytes = element_bytes(to.elem);
        let dst = self.buffer(to.len(), bytes as usize);
        self.touch(src);
        self.emit(Inst::Pack { dst, src, elements, dtype, unpack });
        let expr = self.place_expr(dst, to.len(), bytes);
        self.bind_tile(result, expr, false)
    }

    pub(super) fn scan(&mut self, data: &OpData, dim: u32, reverse: bool) -> Built<()> {
        let extents = self.three(data.group(0), dim as usize)?;
        let mut src: SmallVec<[Place; 2]> = SmallVec::new();
        for &operand in data.group(0) {
            src.push(self.stored(operand)?);
        }
        let region = Box::new(self.strip_region(data.regions[0])?);
        let dst = self.results(&data.results)?;
        self.touch_all(&src);
        self.touch_all(&dst);
        self.emit(Inst::Scan { region, extents, reverse, src, dst: dst.clone() });
        self.bind_results(&data.results, &dst)
    }

    pub(super) fn block_id(&mut self, data: &OpData, axis: GridAxis) -> Built<()> {
        let dst = self.register();
        self.emit(Inst::BlockId { dst, axis: axis_index(axis) });
        self.bind(data.result(), Val::Reg(dst));
        Ok(())
    }

    pub(super) fn block_count(&mut self, data: &OpData, axis: GridAxis) -> Built<()> {
        let dst = self.register();
        self.emit(Inst::NumBlocks { dst, axis: axis_index(axis) });
        self.bind(data.result(), Val::Reg(dst));
        Ok(())
    }

    pub(super) fn assert(&mut self, data: &OpData, message: &str) -> Built<()> {
        let span = self.span;
        let message: Box<str> = message.into();
        match self.raw(data.one(0))? {
            Lane::Reg(reg) => self.emit(Inst::CheckScalar(ScalarCheck::Assert(reg, message), span)),
            Lane::Expr(expr) => {
                let make = move |nodes: &[u16]| Sink::Assert { node: nodes[0], message, span };
                self.run(vec![Wanted::Sink(smallvec![expr], Box::new(make))]);
            }
        }
        Ok(())
    }

    pub(super) fn print(&mut self, data: &OpData, format: &str) -> Built<()> {
        let pieces = self.pieces(format, data.group(0))?;
        for piece in &pieces {
            if let Piece::Value { place: Printed::Tile(place, _), .. } = piece {
                self.touch(*place);
            }
        }
        self.emit(Inst::Print { pieces });
        self.bind_tokens(&data.results);
        Ok(())
    }

    pub(super) fn bind_tokens(&mut self, results: &[Value]) {
        for &result in results {
            self.bind(result, Val::Token);
        }
    }

    fn touch_all(&mut self, places: &[Place]) {
        for &place in places {
            self.touch(place);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a box has two sides")]
    fn box_copy(
        &mut self,
        src: Place,
        dst: Place,
        shape: &Shape,
        src_strides: SmallVec<[isize; 4]>,
        dst_strides: SmallVec<[isize; 4]>,
        dst_first: (usize, Option<Reg>),
        bytes: u8,
    ) {
        self.touch(src);
        self.touch(dst);
        let extents = shape_of(shape);
        self.emit(Inst::Box(Box::new(BoxCopy { src, dst, extents, src_strides, dst_strides, dst_first, bytes })));
    }

    /// The extents before, along and after an axis.
    fn three(&self, operands: &[Value], dim: usize) -> Built<[usize; 3]> {
        let Some(&first) = operands.first() else {
            return Err(self.refuse("cpu-type", "there is nothing to combine"));
        };
        let shape = self.tile_type(first)?.shape;
        if dim >= shape.len() {
            return Err(self.refuse("cpu-type", "the tile has no such axis"));
        }
        let product = |extents: &[u32]| extents.iter().map(|&extent| extent as usize).product();
        Ok([product(&shape[..dim]), shape[dim] as usize, product(&shape[dim + 1..])])
    }

    fn results(&mut self, results: &[Value]) -> Built<SmallVec<[Place; 2]>> {
        let mut places = SmallVec::new();
        for &result in results {
            let ty = self.tile_type(result)?;
            places.push(self.buffer(ty.len(), element_bytes(ty.elem) as usize));
        }
        Ok(places)
    }

    fn bind_results(&mut self, results: &[Value], places: &[Place]) -> Built<()> {
        for (&result, &place) in results.iter().zip(places) {
            let ty = self.tile_type(result)?;
            let expr = self.place_expr(place, ty.len(), element_bytes(ty.elem));
            self.bind_tile(result, expr, false)?;
        }
        Ok(())
    }

    pub(super) fn reduce(&mut self, data: &OpData, dim: u32, order: ReduceOrder) -> Built<()> {
        let (results, operands, block) = (&data.results, data.group(0), data.regions[0]);
        let extents = self.three(operands, dim as usize)?;
        if let (&[operand], ReduceOrder::Free) = (operands, order) {
            let dtype = self.dtype(operand)?;
            if let Some((combine, lane)) = self.combination(block, dtype) {
                let source = if dtype.is_float() { self.float_lane(operand)?.0 } else { self.raw(operand)? };
                let bytes = lane.bytes() as u8;
                let source = self.lane_expr(source, extents.iter().product(), bytes);
                let len = extents[0] * extents[2];
                let place = self.buffer(len, bytes as usize);
                let make = move |nodes: &[u16]| Sink::Reduce { node: nodes[0], combine, lane, extents, place };
                self.run(vec![Wanted::Sink(smallvec![source], Box::new(make))]);
                let expr = self.place_expr(place, len, bytes);
                if dtype.is_float() {
                    return self.bind_float(results[0], Lane::Expr(expr), !matches!(combine, Combine::Add | Combine::Mul));
                }
                return self.bind_tile(results[0], expr, false);
            }
        }
        let mut src: SmallVec<[Place; 2]> = SmallVec::new();
        for &operand in operands {
            src.push(self.stored(operand)?);
        }
        let region = Box::new(self.strip_region(block)?);
        let dst = self.results(results)?;
        self.touch_all(&src);
        self.touch_all(&dst);
        self.emit(Inst::ReduceTree { region, extents, src, dst: dst.clone() });
        self.bind_results(results, &dst)
    }

    pub(super) fn mma(&mut self, data: &OpData, signed: [bool; 2]) -> Built<()> {
        let operands = &data.operands;
        let (lhs_ty, rhs_ty) = (self.tile_type(operands[0])?, self.tile_type(operands[1])?);
        let acc_ty = self.tile_type(operands[2])?;
        let rank = lhs_ty.shape.len();
        if !(rank == 2 || rank == 3) || rhs_ty.shape.len() != rank || acc_ty.shape.len() != rank {
            return Err(self.refuse("cpu-type", "a matrix product takes tiles of rank 2 or 3"));
        }
        let (m, k, n) = (lhs_ty.shape[rank - 2] as usize, lhs_ty.shape[rank - 1] as usize, rhs_ty.shape[rank - 1] as usize);
        let batch = if rank == 3 { lhs_ty.shape[0] as usize } else { 1 };
        let acc_type = self.dtype(operands[2])?;
        let mut places = [Place::Pool(0); 2];
        let mut types = [DType::F32; 2];
        for side in 0..2 {
            // Wide lanes hold the same numbers: the product takes them as they are.
            match self.val(operands[side])? {
                Val::Tile { expr, wide: true } => places[side] = self.evaluated(expr),
                _ => {
                    places[side] = self.stored(operands[side])?;
                    types[side] = self.dtype(operands[side])?;
                }
            }
        }
        let acc = self.stored(operands[2])?;
        let mut scales = None;
        if let [_, _, _, lhs_scale, rhs_scale] = operands[..] {
            let lhs = (self.stored(lhs_scale)?, self.dtype(lhs_scale)?, {
                let shape = self.tile_type(lhs_scale)?.shape;
                k / (shape[shape.len() - 1] as usize).max(1)
            });
            let rhs = (self.stored(rhs_scale)?, self.dtype(rhs_scale)?, {
                let shape = self.tile_type(rhs_scale)?.shape;
                k / (shape[shape.len() - 2] as usize).max(1)
            });
            scales = Some([lhs, rhs]);
        }
        let stand = data.places().map(|words| self.stored(words)).transpose()?;
        let bytes = element_bytes(acc_ty.elem);
        let dst = self.buffer(acc_ty.len(), bytes as usize);
        self.touch_all(&[places[0], places[1], acc, dst]);
        self.touch_all(stand.as_slice());
        if let Some(scales) = &scales {
            let scales = [scales[0].0, scales[1].0];
            self.touch_all(&scales);
        }
        let mma = Mma {
            batch,
            m,
            n,
            k,
            lhs: places[0],
            rhs: places[1],
            acc,
            dst,
            lhs_type: types[0],
            rhs_type: types[1],
            acc_type,
            signed,
            scales,
        };
        self.emit(match stand {
            Some(places) => Inst::SparseMma(Box::new(SparseMma { mma, places, span: data.span })),
            None => Inst::Mma(Box::new(mma)),
        });
        let expr = self.place_expr(dst, acc_ty.len(), bytes);
        self.bind(data.result(), Val::Tile { expr, wide: false });
        Ok(())
    }

    /// Cuts a C format into texts and conversions.
    fn pieces(&mut self, format: &str, arguments: &[Value]) -> Built<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut arguments = arguments.iter();
        for part in printf::parts(format) {
            let conversion = match part {
                printf::Part::Text(text) => {
                    pieces.push(Piece::Text(text));
                    continue;
                }
                printf::Part::Value(conversion) => conversion,
            };
            let Some(&value) = arguments.next() else {
                return Err(self.refuse("cpu-print", "the format has more conversions than there are values to print"));
            };
            let dtype = self.dtype(value)?;
            let place = match self.val(value)? {
                Val::Reg(reg) => Printed::Scalar(reg),
                _ => Printed::Tile(self.stored(value)?, self.tile_type(value)?.shape),
            };
            pieces.push(Piece::Value { conversion, place, dtype });
        }
        Ok(pieces)
    }
}

fn axis_index(axis: GridAxis) -> u8 {
    match axis {
        GridAxis::X => 0,
        GridAxis::Y => 1,
        GridAxis::Z => 2,
    }
}
