//! Every operation of a Tile function, and the subject that lowers it.
//!
//! Both matches name every operation: one that is new does not compile until it has a subject here. Within a subject's function a match ends
//! with what this file does not send there.

use std::fmt::Debug;

use tessera_ir::{Op, OpData, OpKind, ScheduleOp, TileOp, bug};

use super::elementwise::Family;
use super::lowering::{Lowered, Lowering};

/// Ends the match of a subject, which [`Lowering::operation`] sends its own operations to and no others.
#[track_caller]
pub(super) fn astray(kind: &impl Debug) -> ! {
    bug!("`{kind:?}` where another subject is lowered")
}

impl Lowering<'_> {
    /// Lowers one operation.
    pub(super) fn operation(&mut self, op: Op) -> Lowered<()> {
        let data = self.data(op);
        match &data.kind {
            OpKind::Schedule(kind) => self.of_schedule(op, data, kind),
            OpKind::Tile(kind) => self.of_tile(op, data, kind),
            OpKind::Graph(_) => Err(self.broken("an operation on whole operands")),
        }
    }

    fn of_schedule(&mut self, op: Op, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        use ScheduleOp as S;
        match kind {
            S::Constant { .. }
            | S::Iota {}
            | S::Broadcast {}
            | S::Reshape {}
            | S::Permute { .. }
            | S::Cat { .. }
            | S::Extract {}
            | S::Insert {}
            | S::Pack {}
            | S::Unpack {} => self.shape(data, kind),
            S::Assume { .. } => self.assumed(data),
            S::Select {} | S::Offset {} | S::CmpF { .. } | S::CmpI { .. } | S::FPowI {} => {
                self.elementwise(data, kind, Family::Mixed)
            }
            S::AbsF {}
            | S::NegF {}
            | S::AddF { .. }
            | S::SubF { .. }
            | S::MulF { .. }
            | S::DivF { .. }
            | S::Fma { .. }
            | S::MaxF { .. }
            | S::MinF { .. }
            | S::Ceil {}
            | S::Floor {}
            | S::Sqrt { .. } => self.elementwise(data, kind, Family::Float),
            S::RemF {}
            | S::Rsqrt { .. }
            | S::Exp { .. }
            | S::Exp2 { .. }
            | S::Log {}
            | S::Log2 {}
            | S::Pow {}
            | S::Sin {}
            | S::Cos {}
            | S::Tan {}
            | S::SinH {}
            | S::CosH {}
            | S::TanH { .. }
            | S::Atan2 {} => self.elementwise(data, kind, Family::Function),
            S::AbsI {}
            | S::NegI { .. }
            | S::AddI { .. }
            | S::SubI { .. }
            | S::MulI { .. }
            | S::MulHiI {}
            | S::DivI { .. }
            | S::RemI { .. }
            | S::MaxI { .. }
            | S::MinI { .. }
            | S::ShlI { .. }
            | S::ShrI { .. }
            | S::AndI {}
            | S::OrI {}
            | S::XorI {} => self.elementwise(data, kind, Family::Integer),
            S::Bitcast {}
            | S::ExtI { .. }
            | S::TruncI { .. }
            | S::FToF { .. }
            | S::FToI { .. }
            | S::IToF { .. }
            | S::IntToPtr {}
            | S::PtrToInt {}
            | S::PtrToPtr {} => self.elementwise(data, kind, Family::Cast),
            S::MmaF { .. } | S::MmaFScaled {} | S::MmaFSparse {} | S::MmaI { .. } => self.products(data, kind),
            S::Reduce { dim, identities, order } => self.reduce(data, *dim as usize, identities, *order),
            S::Scan { dim, identities, reverse } => self.scan(data, *dim as usize, identities, *reverse),
            S::GetTileBlockId { .. } | S::GetNumTileBlocks { .. } => self.program(data, kind),
            S::MakeTensorView {}
            | S::MakePartitionView {}
            | S::MakeStridedView {}
            | S::MakeGatherScatterView {}
            | S::GetTensorShape {}
            | S::GetIndexSpaceShape {} => self.views(data, kind),
            S::LoadViewTko { .. }
            | S::StoreViewTko { .. }
            | S::LoadPtrTko { .. }
            | S::StorePtrTko { .. }
            | S::Alloca { .. }
            | S::GetGlobal { .. }
            | S::MakeToken {}
            | S::JoinTokens {} => self.memory(op, data, kind),
            S::AtomicRedViewTko { .. } | S::AtomicRmwTko { .. } | S::AtomicCasTko { .. } => self.atomics(data, kind),
            S::For { .. } | S::Loop {} | S::If {} | S::Yield {} | S::Continue {} | S::Break {} | S::Return {} => {
                self.control(op, kind)
            }
            S::Assert { .. } | S::PrintTko { .. } | S::GdcWaitTko {} | S::GdcLaunchDependentsTko {} => self.debug(op, data, kind),
        }
    }

    fn of_tile(&mut self, op: Op, data: &OpData, kind: &TileOp) -> Lowered<()> {
        use TileOp as T;
        match kind {
            T::ThreadId {}
            | T::LaneId {}
            | T::WarpId {}
            | T::Worker {}
            | T::Workers {}
            | T::Workspace { .. }
            | T::ClusterRank {}
            | T::ClusterNumber {}
            | T::Vary {}
            | T::WarpReduce { .. }
            | T::Shuffle { .. }
            | T::MatchAny { .. }
            | T::Popcount {} => self.lanes(data, kind),
            T::ConvertLayout {} => self.convert_layout(data.one(0), data.result()),
            T::Renew { number } => self.renew(data, *number),
            T::ClusterSum { parts } => self.cluster_sum(op, data, *parts),
            T::ClusterArrive {} => self.cluster_arrive(),
            T::ClusterGather {} => self.cluster_gather(op, data),
            T::Barrier {}
            | T::ClusterBarrier {}
            | T::ClusterWait {}
            | T::NamedBarrier { .. }
            | T::NamedArrive { .. }
            | T::FenceAsync {} => {
                self.meeting(kind);
                Ok(())
            }
            T::GroupTurn { id, groups, step } => self.group_turn(*id, *groups, *step),
            T::Mark { name, phase } => {
                self.mark(name, *phase);
                Ok(())
            }
            T::AllocShared { .. }
            | T::AllocRegister {}
            | T::SliceShared {}
            | T::SubviewShared { .. }
            | T::TransposeShared { .. }
            | T::CollapseShared {}
            | T::LoadShared {}
            | T::StoreShared { .. }
            | T::CopyShared {}
            | T::LoadElement {}
            | T::StoreElement { .. }
            | T::AtomicElement { .. }
            | T::AtomicCasElement {}
            | T::CopyAsync { .. }
            | T::CopyAsyncElement { .. }
            | T::CommitGroup {}
            | T::WaitGroup { .. } => self.shared(op, data, kind),
            T::LoadVector { .. } | T::StoreVector { .. } | T::Prefetch {} => self.vectors(data, kind),
            T::Ring { .. }
            | T::RingStart {}
            | T::Advance {}
            | T::Skip {}
            | T::Acquire {}
            | T::Commit { .. }
            | T::Wait {}
            | T::Release {}
            | T::Slot { .. } => self.queues(op, data, kind),
            T::TmaLoad { .. } | T::TmaStore {} | T::SendTile {} | T::TmaStoreWait { .. } => self.engine(op, data, kind),
            T::StoreLines {} => self.store_lines(op, data),
            T::MmaFragment { lhs_signedness, rhs_signedness } => self.fragments(data, (*lhs_signedness, *rhs_signedness)),
            T::MmaFragmentSparse { lhs_signedness, rhs_signedness } => {
                self.sparse_fragments(data, (*lhs_signedness, *rhs_signedness))
            }
            T::MmaShared { .. } | T::MmaSync { .. } => self.shared_products(data, kind),
            T::Wgmma { .. } | T::WgmmaPromoted { .. } | T::WgmmaWait { .. } => self.warpgroups(data, kind),
            // Roles that stand next to each other are lowered together.
            T::Role { .. } => Err(self.broken("a role apart from its block")),
        }
    }
}
