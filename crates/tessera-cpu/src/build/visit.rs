//! One row an operation: what each does to the plan. The methods stand with their subjects.

use tessera_ir::attrs::{AtomicMode, Signedness};
use tessera_ir::{EntityId, Op, OpData, OpKind, ScheduleOp};

use super::elementwise::FloatCall as Call;
use super::memory::Compares;
use super::order::Ordered;
use super::{Builder, Built, Val};
use crate::lanes::{FloatOp, IntOp};

fn signed(signedness: Signedness) -> bool {
    signedness == Signedness::Signed
}

impl Builder<'_> {
    /// Visits an operation.
    pub(super) fn visit(&mut self, op: Op) -> Built<()> {
        let func = self.func;
        let data = &func.ops[op];
        (self.op, self.span) = (op, data.span);
        for &operand in &data.operands {
            if let Some(Val::Tile { expr, .. }) = self.values[operand.index()] {
                let uses = &mut self.exprs[expr.index()].uses;
                *uses = uses.saturating_sub(1);
            }
        }
        let OpKind::Schedule(kind) = &data.kind else {
            return Err(self.refuse("cpu-level", "an operation on whole operands has no place in a block program"));
        };
        self.meaning(op, data, kind)
    }

    /// The table of meanings.
    fn meaning(&mut self, op: Op, data: &OpData, kind: &ScheduleOp) -> Built<()> {
        match kind {
            ScheduleOp::Constant { value } => self.visit_constant(data.result(), value),
            ScheduleOp::For { .. } | ScheduleOp::Loop {} | ScheduleOp::If {} => self.visit_control(op),
            ScheduleOp::Yield {} | ScheduleOp::Continue {} | ScheduleOp::Break {} | ScheduleOp::Return {} => self.visit_exit(op),

            ScheduleOp::AbsF {} => self.float(data, Call::exact(FloatOp::Abs)),
            ScheduleOp::NegF {} => self.float(data, Call::exact(FloatOp::Neg)),
            ScheduleOp::AddF { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Add, *rounding, *flush_to_zero))
            }
            ScheduleOp::SubF { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Sub, *rounding, *flush_to_zero))
            }
            ScheduleOp::MulF { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Mul, *rounding, *flush_to_zero))
            }
            ScheduleOp::DivF { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Div, *rounding, *flush_to_zero))
            }
            ScheduleOp::Sqrt { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Sqrt, *rounding, *flush_to_zero))
            }
            ScheduleOp::Fma { rounding, flush_to_zero } => {
                self.float(data, Call::rounded(FloatOp::Fma, *rounding, *flush_to_zero))
            }
            ScheduleOp::RemF {} => self.float(data, Call::exact(FloatOp::Rem)),
            ScheduleOp::MaxF { propagate_nan, flush_to_zero } => {
                self.float(data, Call::extreme([FloatOp::Max, FloatOp::MaxNan], *propagate_nan).flushed(*flush_to_zero))
            }
            ScheduleOp::MinF { propagate_nan, flush_to_zero } => {
                self.float(data, Call::extreme([FloatOp::Min, FloatOp::MinNan], *propagate_nan).flushed(*flush_to_zero))
            }
            ScheduleOp::CmpF { predicate, nan } => self.compare_floats(data, *predicate, *nan),
            ScheduleOp::Ceil {} => self.float(data, Call::exact(FloatOp::Ceil)),
            ScheduleOp::Floor {} => self.float(data, Call::exact(FloatOp::Floor)),
            ScheduleOp::Rsqrt { flush_to_zero } => self.float(data, Call::plain(FloatOp::Rsqrt).flushed(*flush_to_zero)),
            ScheduleOp::Exp { flush_to_zero, .. } => self.float(data, Call::plain(FloatOp::Exp).flushed(*flush_to_zero)),
            ScheduleOp::Exp2 { flush_to_zero } => self.float(data, Call::plain(FloatOp::Exp2).flushed(*flush_to_zero)),
            ScheduleOp::Log {} => self.float(data, Call::plain(FloatOp::Log)),
            ScheduleOp::Log2 {} => self.float(data, Call::plain(FloatOp::Log2)),
            ScheduleOp::Pow {} => self.float(data, Call::plain(FloatOp::Pow)),
            ScheduleOp::Sin {} => self.float(data, Call::plain(FloatOp::Sin)),
            ScheduleOp::Cos {} => self.float(data, Call::plain(FloatOp::Cos)),
            ScheduleOp::Tan {} => self.float(data, Call::plain(FloatOp::Tan)),
            ScheduleOp::SinH {} => self.float(data, Call::plain(FloatOp::Sinh)),
            ScheduleOp::CosH {} => self.float(data, Call::plain(FloatOp::Cosh)),
            ScheduleOp::TanH { .. } => self.float(data, Call::plain(FloatOp::Tanh)),
            ScheduleOp::Atan2 {} => self.float(data, Call::plain(FloatOp::Atan2)),
            ScheduleOp::FPowI {} => self.integer_power(data),

            ScheduleOp::AbsI {} => self.int(data, IntOp::Abs, true),
            ScheduleOp::NegI { .. } => self.int(data, IntOp::Neg, true),
            ScheduleOp::AddI { .. } => self.int(data, IntOp::Add, true),
            ScheduleOp::SubI { .. } => self.int(data, IntOp::Sub, true),
            ScheduleOp::MulI { .. } => self.int(data, IntOp::Mul, true),
            ScheduleOp::MulHiI {} => self.int(data, IntOp::MulHi, false),
            ScheduleOp::DivI { signedness, rounding } => self.divide(data, *signedness, *rounding),
            ScheduleOp::RemI { signedness } => self.int(data, IntOp::Rem, signed(*signedness)),
            ScheduleOp::MaxI { signedness } => self.int(data, IntOp::Max, signed(*signedness)),
            ScheduleOp::MinI { signedness } => self.int(data, IntOp::Min, signed(*signedness)),
            ScheduleOp::ShlI { .. } => self.shift(data, IntOp::Shl, true),
            ScheduleOp::ShrI { signedness } => self.shift(data, IntOp::Shr, signed(*signedness)),
            ScheduleOp::AndI {} => self.int(data, IntOp::And, true),
            ScheduleOp::OrI {} => self.int(data, IntOp::Or, true),
            ScheduleOp::XorI {} => self.int(data, IntOp::Xor, true),
            ScheduleOp::CmpI { predicate, signedness } => self.compare_integers(data, *predicate, *signedness),

            ScheduleOp::Select {} => self.select(data),
            ScheduleOp::Bitcast {} => self.bitcast(data),
            ScheduleOp::ExtI { signedness } => self.extend_integer(data, *signedness),
            ScheduleOp::TruncI { .. } => self.truncate(data),
            ScheduleOp::FToF { rounding } => self.float_to_float(data.result(), data.one(0), *rounding),
            ScheduleOp::FToI { signedness, rounding } => {
                self.float_to_integer(data.result(), data.one(0), signed(*signedness), *rounding)
            }
            ScheduleOp::IToF { signedness, rounding } => {
                self.integer_to_float(data.result(), data.one(0), signed(*signedness), *rounding)
            }
            ScheduleOp::IntToPtr {} => self.integer_to_pointer(data),
            ScheduleOp::PtrToInt {} | ScheduleOp::PtrToPtr {} => self.keep_address(data),
            ScheduleOp::Offset {} => self.offset(data),
            ScheduleOp::Assume { predicate } => self.assume(data.result(), data.one(0), predicate),

            _ if self.strips => {
                let message = format!("`{}` can't stand in the region of a reduction or scan", data.row().mnemonic);
                Err(self.refuse("cpu-region", message))
            }

            ScheduleOp::Iota {} => self.iota(data),
            ScheduleOp::Broadcast {} => self.broadcast(data),
            ScheduleOp::Reshape {} => self.reshape(data),
            ScheduleOp::Permute { permutation } => self.permute(data, permutation),
            ScheduleOp::Cat { dim } => self.concatenate(data, *dim),
            ScheduleOp::Extract {} => self.extract(data),
            ScheduleOp::Insert {} => self.insert(data),
            ScheduleOp::Pack {} => self.pack(data, false),
            ScheduleOp::Unpack {} => self.pack(data, true),
            ScheduleOp::MmaF { .. } | ScheduleOp::MmaFScaled {} | ScheduleOp::MmaFSparse {} => self.mma(data, [true; 2]),
            ScheduleOp::MmaI { lhs_signedness, rhs_signedness } => {
                self.mma(data, [signed(*lhs_signedness), signed(*rhs_signedness)])
            }
            ScheduleOp::Reduce { dim, order, .. } => self.reduce(data, *dim, *order),
            ScheduleOp::Scan { dim, reverse, .. } => self.scan(data, *dim, *reverse),
            ScheduleOp::GetTileBlockId { axis } => self.block_id(data, *axis),
            ScheduleOp::GetNumTileBlocks { axis } => self.block_count(data, *axis),
            ScheduleOp::Assert { message } => self.assert(data, message),
            ScheduleOp::PrintTko { format } => self.print(data, format),

            ScheduleOp::GetGlobal { name } => self.global(data, name),
            ScheduleOp::MakeTensorView {} => self.tensor_view(data),
            ScheduleOp::MakePartitionView {} | ScheduleOp::MakeStridedView {} | ScheduleOp::MakeGatherScatterView {} => {
                self.tile_view(data)
            }
            ScheduleOp::GetTensorShape {} => self.tensor_shape(data),
            ScheduleOp::GetIndexSpaceShape {} => self.index_space_shape(data),
            ScheduleOp::LoadViewTko { inbounds, order, scope, .. } => {
                self.load_view(data, *inbounds, Ordered::of(*order, *scope))
            }
            ScheduleOp::StoreViewTko { inbounds, order, scope, .. } => {
                self.store_view(data, *inbounds, Ordered::of(*order, *scope))
            }
            ScheduleOp::LoadPtrTko { order, scope, .. } => self.load_pointers(data, Ordered::of(*order, *scope)),
            ScheduleOp::StorePtrTko { order, scope, .. } => self.store_pointers(data, Ordered::of(*order, *scope)),
            ScheduleOp::AtomicRmwTko { order, scope, mode } => {
                self.atomic(data, *mode, Ordered::of(*order, *scope), Compares::No)
            }
            ScheduleOp::AtomicCasTko { order, scope } => {
                self.atomic(data, AtomicMode::Xchg, Ordered::of(*order, *scope), Compares::Yes)
            }
            ScheduleOp::AtomicRedViewTko { order, scope, mode } => self.reduce_view(data, *mode, Ordered::of(*order, *scope)),
            ScheduleOp::Alloca { count, .. } => self.alloca(data, *count),
            // Launches of this device run one after another: what came before has finished.
            ScheduleOp::MakeToken {}
            | ScheduleOp::JoinTokens {}
            | ScheduleOp::GdcWaitTko {}
            | ScheduleOp::GdcLaunchDependentsTko {} => {
                self.bind_tokens(&data.results);
                Ok(())
            }
        }
    }
}
