//! Loops that are one matrix product over the whole K axis.
//!
//! ```text
//! for %k in lower..upper step 1, acc = init:
//!   a = load A [.., %k]     through reshapes, permutations and one conversion
//!   b = load B [%k, ..]
//!   acc = mma a, b, acc
//! ```
//!
//! Nothing else in the loop may depend on the counter or touch memory. Loads pad with zero, or leave what lies outside undetermined,
//! and then it counts as zero. The loop becomes one instruction, and the operands are read in place.

use smallvec::SmallVec;
use tessera_ir::attrs::{MemoryOrder, Rounding, Signedness};
use tessera_ir::{Def, EntityId, Op, OpKind, Padding, ScheduleOp, Type, Value, ViewKind};
use tessera_types::DType;

use super::{Builder, Built, Lane, Val, element_bytes};
use crate::exec::operand_type;
use crate::lanes::{Int, IntOp, LaneOp};
use crate::plan::{Axis, Fetch, Inst, Product, Reg};

/// A product's operand as it comes from memory.
struct Source {
    load: Op,
    /// The axes of the loaded tile that are the operand's rows and columns.
    axes: [usize; 2],
    /// What is stored, and what it is converted to.
    stored: DType,
    compute: DType,
}

/// A loop that is a product.
struct Recognised {
    mma: Op,
    /// Which of the carried values is the accumulator.
    position: usize,
    /// The factors, each with what is added to the counter in its index along K.
    lhs: (Source, Option<Value>),
    rhs: (Source, Option<Value>),
    /// What the loop holds besides and does not change from round to round.
    outside: Vec<Op>,
}

impl Builder<'_> {
    /// Visits `for k: acc = mma(load, load, acc)` as one product; false if the operation is something else.
    pub(super) fn visit_product(&mut self, op: Op) -> Built<bool> {
        let data = &self.func.ops[op];
        let OpKind::Schedule(ScheduleOp::For { .. }) = &data.kind else { return Ok(false) };
        let step = self.reg(data.one(2))?;
        if self.constant_bits(step) != Some(1) {
            return Ok(false);
        }
        // A loop that is a product is refused nowhere below.
        match self.recognise(op) {
            Some(found) => self.emit_product(op, &found).map(|()| true),
            None => Ok(false),
        }
    }

    fn recognise(&self, op: Op) -> Option<Recognised> {
        let func = self.func;
        let block = &func.blocks[func.ops[op].regions[0]];
        let ((&counter, carried), (&exit, ops)) = (block.args.split_first()?, block.ops.split_last()?);
        let exit = &func.ops[exit];
        if !matches!(exit.kind, OpKind::Schedule(ScheduleOp::Continue { .. })) {
            return None;
        }
        let is_product =
            |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
        let mma = ops.iter().copied().find(is_product)?;
        let data = &func.ops[mma];
        let result = data.result();
        let position = carried.iter().position(|&arg| arg == data.operands[2])?;
        // Everything else that is carried stays as it is, tokens aside.
        for (i, (&next, &arg)) in exit.group(0).iter().zip(carried).enumerate() {
            let token = matches!(func.ty(arg), Type::Token);
            if if i == position { next != result } else { next != arg && !token } {
                return None;
            }
        }
        if self.counts[result.index()] != 1 || self.counts[data.operands[2].index()] != 1 {
            return None;
        }
        let (lhs, rhs) = (self.source(data.operands[0])?, self.source(data.operands[1])?);
        if !multiplies([&lhs, &rhs], self.dtype(result).ok()?) {
            return None;
        }
        let mut varying: Vec<Value> = vec![counter];
        varying.extend_from_slice(carried);
        let outside = self.unchanging(mma, ops, &mut varying)?;
        let lhs_offset = self.counted_axis(&lhs, 1, counter, &varying)?;
        let rhs_offset = self.counted_axis(&rhs, 0, counter, &varying)?;
        Some(Recognised { mma, position, lhs: (lhs, lhs_offset), rhs: (rhs, rhs_offset), outside })
    }

    /// What a loop holds besides its product: pure, and free of the counter unless it is part of the recognised shape. Yields
    /// what does not change, and notes what varies.
    fn unchanging(&self, mma: Op, ops: &[Op], varying: &mut Vec<Value>) -> Option<Vec<Op>> {
        let func = self.func;
        let mut shape: Vec<Op> = vec![mma];
        for &operand in &func.ops[mma].operands[..2] {
            self.chain(operand, &mut shape);
        }
        let mut outside: Vec<Op> = Vec::new();
        for &inner in ops {
            let data = &func.ops[inner];
            if shape.contains(&inner) {
                varying.extend_from_slice(&data.results);
                continue;
            }
            if !matches!(data.row().effects, tessera_ir::Effects::Pure) || !data.regions.is_empty() {
                return None;
            }
            if data.operands.iter().any(|operand| varying.contains(operand)) {
                varying.extend_from_slice(&data.results);
            } else {
                outside.push(inner);
            }
        }
        Some(outside)
    }

    fn emit_product(&mut self, op: Op, found: &Recognised) -> Built<()> {
        let func = self.func;
        let (data, mma) = (&func.ops[op], &func.ops[found.mma]);
        let ((lhs, lhs_offset), (rhs, rhs_offset)) = (&found.lhs, &found.rhs);
        for &op in &found.outside {
            self.visit(op)?;
        }
        self.span = data.span;
        let lower = self.extended(data.one(0))?;
        let upper = self.extended(data.one(1))?;
        let lhs_access = self.product_access(lhs, 1, lower, *lhs_offset)?;
        let rhs_access = self.product_access(rhs, 0, lower, *rhs_offset)?;
        let ty = self.tile_type(mma.result())?;
        let rank = ty.shape.len();
        let (m, n) = (ty.shape[rank - 2] as usize, ty.shape[rank - 1] as usize);
        let k = self.tile_type(mma.operands[0])?.shape[rank - 1] as usize;
        let init_lane = self.raw(data.group(3)[found.position])?;
        let init_expr = self.lane_expr(init_lane, ty.len(), element_bytes(ty.elem));
        let zero = match &self.exprs[init_expr.index()].kind {
            super::expr::ExprKind::Fetch(Fetch::Uniform(reg)) => self.constant_bits(*reg) == Some(0),
            _ => false,
        };
        let acc = self.buffer(ty.len(), element_bytes(ty.elem) as usize);
        if !zero {
            self.run_into(init_expr, acc);
        }
        self.touch(acc);
        let product = Product {
            op,
            lhs: lhs_access,
            rhs: rhs_access,
            lhs_axes: lhs.axes,
            rhs_axes: rhs.axes,
            types: operand_types([lhs, rhs], &mma.kind),
            acc_type: self.dtype(mma.result())?,
            acc,
            lower,
            upper,
            m,
            n,
            k,
            zero,
        };
        self.notes.push(format!(
            "a loop of {m}x{n}x{k} products of {} and {} runs as one packed product over K",
            lhs.stored, rhs.stored
        ));
        self.emit(Inst::Product(Box::new(product)));
        for (i, &value) in data.results.iter().enumerate() {
            let val = if i == found.position {
                Val::Tile { expr: self.place_expr(acc, ty.len(), element_bytes(ty.elem)), wide: false }
            } else if *func.ty(value) == Type::Token {
                Val::Token
            } else {
                self.val(data.group(3)[i])?
            };
            self.bind(value, val);
        }
        Ok(())
    }

    /// Follows an operand back to its load.
    fn source(&self, operand: Value) -> Option<Source> {
        let func = self.func;
        let shape = &func.ty(operand).as_tile()?.shape;
        let rank = shape.len();
        if rank == 3 && shape[0] != 1 || !(2..=3).contains(&rank) {
            return None;
        }
        // The operand's axes as positions of the tile that is looked at.
        let mut axes = [rank - 2, rank - 1];
        let mut value = operand;
        let mut compute: Option<DType> = None;
        loop {
            let op = func.defining_op(value)?;
            let data = &func.ops[op];
            let OpKind::Schedule(kind) = &data.kind else { return None };
            // Each step is used by the next alone: what else needs the value would lose it.
            if self.counts[value.index()] != 1 {
                return None;
            }
            match kind {
                ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, .. } => {
                    let Type::TileView(view) = func.ty(data.one(0)) else { return None };
                    let padding = matches!(view.padding, Padding::Zero | Padding::NegZero | Padding::Undetermined);
                    let stored = view.tensor.elem;
                    if !padding || view.kind != ViewKind::Partition || view.tile.len() != func.ty(value).as_tile()?.shape.len() {
                        return None;
                    }
                    let others = (0..view.tile.len()).filter(|axis| !axes.contains(axis));
                    if others.into_iter().any(|axis| view.tile[axis] != 1) {
                        return None;
                    }
                    return Some(Source { load: op, axes, stored, compute: compute.unwrap_or(stored) });
                }
                ScheduleOp::FToF { rounding: Rounding::NearestEven } => {
                    if compute.is_some() {
                        return None;
                    }
                    compute = Some(func.ty(value).num()?);
                }
                ScheduleOp::Permute { permutation } => axes = axes.map(|axis| permutation[axis] as usize),
                ScheduleOp::Reshape {} => {
                    // Axes of extent 1 come and go; the others keep their order.
                    let to = &func.ty(value).as_tile()?.shape;
                    let from = &func.ty(data.one(0)).as_tile()?.shape;
                    let long = |shape: &[u32]| -> Vec<usize> { (0..shape.len()).filter(|&i| shape[i] != 1).collect() };
                    let (to_long, from_long) = (long(to), long(from));
                    let same = to_long.len() == 2
                        && from_long.len() == 2
                        && to_long.iter().zip(&from_long).all(|(&a, &b)| to[a] == from[b]);
                    if !same {
                        return None;
                    }
                    for axis in &mut axes {
                        *axis = from_long[to_long.iter().position(|a| a == axis)?];
                    }
                }
                _ => return None,
            }
            value = data.one(0);
        }
    }

    /// The operations between an operand and its load, both ends included.
    fn chain(&self, operand: Value, shape: &mut Vec<Op>) {
        let mut value = operand;
        while let Some(op) = self.func.defining_op(value) {
            shape.push(op);
            if matches!(self.func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })) {
                return;
            }
            value = self.func.ops[op].operands[0];
        }
    }

    /// What is added to the counter in the index of the operand's K axis (`Some(None)`: nothing); `None` when the load's indices
    /// have another shape.
    fn counted_axis(&self, source: &Source, axis: usize, counter: Value, varying: &[Value]) -> Option<Option<Value>> {
        let data = &self.func.ops[source.load];
        // The view itself may not change from round to round, nor come from inside the loop with it.
        if varying.contains(&data.one(0)) {
            return None;
        }
        let mut offset = None;
        for (position, &index) in data.group(1).iter().enumerate() {
            if position == source.axes[axis] {
                offset = Some(self.counter_offset(index, counter, varying)?);
            } else if varying.contains(&index) || !self.func.ty(index).is_scalar() {
                return None;
            }
        }
        offset
    }

    /// The index as the counter plus something that does not change.
    fn counter_offset(&self, index: Value, counter: Value, varying: &[Value]) -> Option<Option<Value>> {
        if index == counter {
            return Some(None);
        }
        let Def::Result(op, _) = self.func.values[index].def else { return None };
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::AddI { .. }) => {
                let [a, b] = [data.operands[0], data.operands[1]];
                let (moving, fixed) = if varying.contains(&a) { (a, b) } else { (b, a) };
                let inner = self.counter_offset(moving, counter, varying)?;
                (inner.is_none() && !varying.contains(&fixed)).then_some(Some(fixed))
            }
            OpKind::Schedule(ScheduleOp::ExtI { .. } | ScheduleOp::Assume { .. }) => {
                self.counter_offset(data.operands[0], counter, varying)
            }
            _ => None,
        }
    }

    /// The load's memory with the first round's index on the K axis.
    fn product_access(&mut self, source: &Source, axis: usize, lower: Reg, offset: Option<Value>) -> Built<crate::plan::Access> {
        let func = self.func;
        let data = &func.ops[source.load];
        let k_axis = source.axes[axis];
        let index: SmallVec<[Value; 4]> = data.group(1).iter().copied().collect();
        let first = match offset {
            None => lower,
            Some(offset) => {
                let offset = self.extended(offset)?;
                match self.lane(LaneOp::Int(IntOp::Add, Int::B64, true), &[Lane::Reg(lower), Lane::Reg(offset)], 8) {
                    Lane::Reg(reg) => reg,
                    Lane::Expr(_) => lower,
                }
            }
        };
        // The counter has no register outside the loop: any will do while the access is built.
        let known = self.values[index[k_axis].index()].replace(Val::Reg(first));
        let outer = (self.op, self.span);
        (self.op, self.span) = (source.load, data.span);
        let access = self.access(data.one(0), &index);
        (self.op, self.span) = outer;
        self.values[index[k_axis].index()] = known;
        let mut access = access?;
        access.axes[k_axis] = Axis { index: first, ..access.axes[k_axis] };
        Ok(access)
    }
}

/// Whether there is a product of what is loaded that adds up in a type.
fn multiplies(factors: [&Source; 2], acc: DType) -> bool {
    let both = |fits: fn(&Source) -> bool| factors.iter().all(|source| fits(source));
    let fits = match acc {
        DType::F32 => both(|source| source.stored.is_float() && source.stored != DType::F64 && source.compute != DType::E8M0),
        DType::F64 => both(|source| source.stored == DType::F64),
        DType::I32 => both(|source| source.stored == DType::I8),
        _ => false,
    };
    fits && both(|source| source.stored.bits() >= 8)
}

/// How each factor is read, and what it is computed in.
fn operand_types(factors: [&Source; 2], kind: &OpKind) -> [(DType, DType); 2] {
    let signed = match kind {
        OpKind::Schedule(ScheduleOp::MmaI { lhs_signedness, rhs_signedness }) => {
            [*lhs_signedness, *rhs_signedness].map(|signedness| signedness == Signedness::Signed)
        }
        _ => [true; 2],
    };
    [(factors[0], signed[0]), (factors[1], signed[1])].map(|(source, signed)| {
        let (stored, _) = operand_type(source.stored, signed);
        let (read, compute) = operand_type(source.compute, signed);
        if source.stored == source.compute { (read, compute) } else { (stored, compute) }
    })
}
