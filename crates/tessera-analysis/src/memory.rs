//! What memory an operation may touch. The alias rule: arrays that the ABI calls disjoint share nothing with anything else;
//! other arrays may share memory with one another; a pointer of unknown origin may point into any of them. Constants of the
//! module and the tables behind list parameters are never written.

use smallvec::SmallVec;
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::effect::{Space, Touch};
use tessera_ir::{Def, Func, Op, OpKind, ParamKind, ScheduleOp, TileOp, Value};

/// Where a pointer or view comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// Memory that no kernel writes.
    ReadOnly,
    /// The disjoint array of the parameter at a position.
    Param(usize),
    /// Memory of one `alloca`.
    Alloca(Op),
    /// The launch's memory that a `tile.workspace` names.
    Workspace(Op),
    /// Any array that is not disjoint.
    Shared,
    /// Anywhere.
    Unknown,
}

impl Root {
    /// Whether two accesses may meet.
    pub fn meets(self, other: Root) -> bool {
        match (self, other) {
            (Root::ReadOnly, _) | (_, Root::ReadOnly) => false,
            (Root::Unknown, _) | (_, Root::Unknown) => true,
            (a, b) => a == b,
        }
    }
}

/// A memory operation's part in the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where it reads or writes.
    pub root: Root,
    /// False for a read.
    pub writes: bool,
}

/// The access of one operation, regions aside; `None` when it touches no memory.
pub fn access(func: &Func, op: Op) -> Option<Access> {
    let data = &func.ops[op];
    let OpKind::Schedule(kind) = &data.kind else { return None };
    // What other kernels wrote before becomes visible; what this one wrote becomes visible to them.
    if data.kind.effects().iter().any(|effect| effect.writes() && effect.operand.is_none()) {
        return Some(Access { root: Root::Unknown, writes: true });
    }
    let (touch, order) = (func.touches(data).first().copied()?, kind.memory_order()?);
    let ordered = matches!(order, MemoryOrder::Acquire | MemoryOrder::Release | MemoryOrder::AcqRel);
    if ordered {
        return Some(Access { root: Root::Unknown, writes: true });
    }
    let writes = touch.effect.writes() || order == MemoryOrder::Relaxed;
    Some(Access { root: root(func, touch.value), writes })
}

/// Whether the function writes what an operation reads; true where that is not known. Elsewhere more may be read than is asked for: nobody writes it
/// meanwhile.
pub fn is_written(func: &Func, read: Op) -> bool {
    let Some(own) = access(func, read) else { return true };
    let writes = |op: Op| match &func.ops[op].kind {
        // Copies and vectors of threads.
        OpKind::Tile(_) => {
            let touches = func.touches(&func.ops[op]);
            let stored = |touch: &Touch| touch.effect.writes() && touch.space == Space::Global;
            touches.iter().filter(|touch| stored(touch)).any(|touch| root(func, touch.value).meets(own.root))
        }
        _ => access(func, op).is_some_and(|access| access.writes && access.root.meets(own.root)),
    };
    func.linked_ops().into_iter().any(writes)
}

/// Every access of an operation and of what its regions hold, without duplicates.
pub fn accesses(func: &Func, op: Op, found: &mut SmallVec<[Access; 8]>) {
    if let Some(access) = access(func, op)
        && !found.contains(&access)
    {
        found.push(access);
    }
    for &region in &func.ops[op].regions {
        for &inner in &func.blocks[region].ops {
            accesses(func, inner, found);
        }
    }
}

/// Follows a pointer or view to where it comes from.
pub fn root(func: &Func, mut value: Value) -> Root {
    loop {
        let op = match func.values[value].def {
            Def::Argument(block, position) if block == func.body => return argument(func, position as usize),
            Def::Argument(..) => return Root::Unknown,
            Def::Result(op, _) => op,
        };
        let data = &func.ops[op];
        let kind = match &data.kind {
            OpKind::Schedule(kind) => kind,
            OpKind::Tile(TileOp::Workspace { .. }) => return Root::Workspace(op),
            OpKind::Tile(_) | OpKind::Graph(_) => return Root::Unknown,
        };
        match kind {
            ScheduleOp::Alloca { .. } => return Root::Alloca(op),
            ScheduleOp::GetGlobal { .. } => return Root::ReadOnly,
            ScheduleOp::Offset {}
            | ScheduleOp::Assume { .. }
            | ScheduleOp::Broadcast {}
            | ScheduleOp::Reshape {}
            | ScheduleOp::Permute { .. }
            | ScheduleOp::Extract {}
            | ScheduleOp::PtrToPtr {}
            | ScheduleOp::MakeTensorView {}
            | ScheduleOp::MakePartitionView {}
            | ScheduleOp::MakeStridedView {}
            | ScheduleOp::MakeGatherScatterView {} => value = data.operands[0],
            _ => return Root::Unknown,
        }
    }
}

fn argument(func: &Func, position: usize) -> Root {
    match func.abi.parameter_of(position).map(|param| (param, &func.abi.params[param].kind)) {
        Some((param, ParamKind::Array { disjoint: true, .. })) => Root::Param(param),
        Some((_, ParamKind::Array { disjoint: false, .. })) => Root::Shared,
        Some((_, ParamKind::List { .. })) => Root::ReadOnly,
        Some((_, ParamKind::Scalar { .. } | ParamKind::Operand { .. })) | None => Root::Unknown,
    }
}
