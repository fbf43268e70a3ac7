//! Regions of reductions and scans: recognised combinations, and groups that run over strips of elements.

use smallvec::SmallVec;
use tessera_ir::attrs::{Rounding, Signedness};
use tessera_ir::{Block, EntityId, OpKind, ScheduleOp};
use tessera_types::DType;

use super::elementwise::is_narrow;
use super::{Builder, Built, Val, element_bytes};
use crate::plan::{Combine, Fetch, ReduceLane, Region};

impl Builder<'_> {
    /// The combination that a region of one operand is, if it has kernels of its own.
    pub(super) fn combination(&self, block: Block, dtype: DType) -> Option<(Combine, ReduceLane)> {
        let func = self.func;
        let data = &func.blocks[block];
        let [op, exit] = data.ops.as_slice() else { return None };
        let (op, exit) = (&func.ops[*op], &func.ops[*exit]);
        if exit.operands.as_slice() != op.results.as_slice() || op.operands.len() != 2 || data.args.len() != 2 {
            return None;
        }
        if !(data.args.contains(&op.operands[0]) && data.args.contains(&op.operands[1]) && op.operands[0] != op.operands[1]) {
            return None;
        }
        let OpKind::Schedule(kind) = &op.kind else { return None };
        let signed = |signedness: &Signedness| *signedness == Signedness::Signed;
        let (combine, is_signed) = match kind {
            ScheduleOp::AddF { rounding: Rounding::NearestEven, flush_to_zero: false } => (Combine::Add, true),
            ScheduleOp::MulF { rounding: Rounding::NearestEven, flush_to_zero: false } => (Combine::Mul, true),
            ScheduleOp::MaxF { propagate_nan: false, flush_to_zero: false } => (Combine::Max, true),
            ScheduleOp::MinF { propagate_nan: false, flush_to_zero: false } => (Combine::Min, true),
            ScheduleOp::MaxF { propagate_nan: true, flush_to_zero: false } => (Combine::MaxNan, true),
            ScheduleOp::MinF { propagate_nan: true, flush_to_zero: false } => (Combine::MinNan, true),
            ScheduleOp::AddI { .. } => (Combine::Add, true),
            ScheduleOp::MulI { .. } => (Combine::Mul, true),
            ScheduleOp::MaxI { signedness } => (Combine::Max, signed(signedness)),
            ScheduleOp::MinI { signedness } => (Combine::Min, signed(signedness)),
            _ => return None,
        };
        let lane = match dtype {
            DType::F64 => ReduceLane::F64,
            dtype if dtype == DType::F32 || is_narrow(dtype) => ReduceLane::F32,
            DType::I64 => ReduceLane::I64(is_signed),
            DType::I32 => ReduceLane::I32(is_signed),
            DType::I16 => ReduceLane::I16(is_signed),
            DType::I8 => ReduceLane::I8(is_signed),
            _ => return None,
        };
        Some((combine, lane))
    }

    /// Compiles a region to run over strips: parameters are its arguments in order.
    pub(super) fn strip_region(&mut self, block: Block) -> Built<Region> {
        let func = self.func;
        let args = func.blocks[block].args.clone();
        let outer = (self.region, self.strips, self.span);
        self.regions += 1;
        self.region = self.regions;
        self.strips = true;
        let mut bytes: SmallVec<[u8; 2]> = SmallVec::new();
        for (position, &arg) in args.iter().enumerate() {
            let size = element_bytes(self.tile_type(arg)?.elem);
            if position % 2 == 0 {
                bytes.push(size);
            }
            // A region runs over any number of elements; one that no tile has keeps its expressions apart.
            let expr = self.fetch(Fetch::Param(position as u8), usize::MAX, size);
            self.bind(arg, Val::Tile { expr, wide: false });
        }
        let mut results = Vec::new();
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            if let OpKind::Schedule(ScheduleOp::Yield {}) = &data.kind {
                for &value in data.group(0) {
                    // A value from outside that is a tile can't be named here: regions work on scalars.
                    if self.values[value.index()].is_none() {
                        return Err(self.refuse("cpu-value", "a value is used before it is defined"));
                    }
                    let size = element_bytes(self.tile_type(value)?.elem);
                    let lane = self.raw(value)?;
                    results.push(self.lane_expr(lane, usize::MAX, size));
                }
            } else {
                self.visit(op)?;
            }
        }
        if results.len() * 2 != args.len() {
            return Err(self.refuse("cpu-region", "the region yields another number of values than it takes pairs"));
        }
        let group = self.strip_group(&results);
        (self.region, self.strips, self.span) = outer;
        Ok(Region { group, bytes })
    }
}
