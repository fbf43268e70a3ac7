//! How the layouts of an operation's operands and results hang together: one place that knows the operations which move
//! elements between coordinates. All others are elementwise.

use std::sync::Arc;

use tessera_ir::{Effects, Elem, Func, Op, OpKind, ScheduleOp, TileOp, Trait, Value};
use tessera_layout::Distribution;
use tessera_types::DType;

/// A layout that many values share.
pub(super) type Layout = Arc<Distribution>;

/// What an operation asks of layouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// All tiles share one layout.
    Same,
    /// The result's coordinates are the source's, with axes of extent 1 repeated.
    Broadcast,
    /// The result's row-major order is the source's.
    Reshape,
    /// Result axis `i` is source axis `permutation[i]`.
    Permute(Vec<usize>),
    /// All operands share one layout; the results have it without an axis.
    Reduce(usize),
    /// All operands and results share one layout.
    Scan,
    /// The result exists in any layout.
    Free,
    /// All operands share one layout; the results have that of one of so many parts along the last axis.
    Part(u64),
    /// Two alike operands share one layout; the result has that of both as one along an axis.
    Joined(usize),
    /// Operands in any layout of their own, results as an anchor says.
    Own,
    /// Operands and results are those of regions.
    Control,
}

impl Relation {
    /// The relation of an operation.
    pub(super) fn of(func: &Func, op: Op) -> Relation {
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else {
            return match &data.kind {
                OpKind::Tile(TileOp::ClusterSum { parts }) => Relation::Part(u64::from(*parts)),
                _ if data.regions.is_empty() => Relation::Own,
                _ => Relation::Control,
            };
        };
        match kind {
            ScheduleOp::Constant { .. } | ScheduleOp::Iota {} => Relation::Free,
            ScheduleOp::Broadcast {} => Relation::Broadcast,
            ScheduleOp::Reshape {} => Relation::Reshape,
            ScheduleOp::Permute { permutation } => Relation::Permute(permutation.iter().map(|&axis| axis as usize).collect()),
            ScheduleOp::Reduce { dim, .. } => Relation::Reduce(*dim as usize),
            ScheduleOp::Scan { .. } => Relation::Scan,
            ScheduleOp::Cat { dim } if shape(func, data.one(0)) == shape(func, data.one(1)) => Relation::Joined(*dim as usize),
            ScheduleOp::Assume { .. }
            | ScheduleOp::LoadPtrTko { .. }
            | ScheduleOp::StorePtrTko { .. }
            | ScheduleOp::AtomicRmwTko { .. }
            | ScheduleOp::AtomicCasTko { .. } => Relation::Same,
            _ if data.row().has(Trait::Elementwise) => Relation::Same,
            _ if matches!(data.row().effects, Effects::Regions | Effects::Terminator) => Relation::Control,
            _ => Relation::Own,
        }
    }

    /// True where the result may be computed again in another layout instead of being converted.
    pub(super) fn repeats(&self, func: &Func, op: Op) -> bool {
        // What may trap is repeated where it stood, under the same conditions.
        let pure = matches!(func.ops[op].row().effects, Effects::Pure | Effects::MayTrap);
        match self {
            Relation::Free | Relation::Broadcast | Relation::Joined(_) => true,
            Relation::Reshape => only_unit_axes(func, op),
            Relation::Same | Relation::Permute(_) => pure && !is_shared_out(func, op),
            Relation::Reduce(_) | Relation::Scan | Relation::Part(_) | Relation::Own | Relation::Control => false,
        }
    }

    /// The result's layout when the operands have this one; `None` where the operands do not determine it.
    pub(super) fn forward(&self, func: &Func, op: Op, operand: &Layout) -> Option<Layout> {
        match self {
            Relation::Same | Relation::Scan => Some(operand.clone()),
            Relation::Permute(permutation) => operand.permute(permutation).ok().map(Arc::new),
            Relation::Reduce(dim) => operand.slice(*dim).ok().map(Arc::new),
            Relation::Joined(dim) => operand.joined(*dim).map(Arc::new),
            Relation::Part(parts) => operand.part(operand.rank() - 1, *parts).map(Arc::new),
            Relation::Reshape => operand.reshape(&shape(func, func.ops[op].result())).ok().map(Arc::new),
            Relation::Broadcast | Relation::Free | Relation::Own | Relation::Control => None,
        }
    }

    /// The operand's layout when the result shall have this one; `None` where any will do.
    pub(super) fn backward(&self, func: &Func, operand: Value, result: &Layout) -> Option<Layout> {
        match self {
            Relation::Same | Relation::Scan => Some(result.clone()),
            Relation::Permute(permutation) => {
                let mut inverse = vec![0; permutation.len()];
                for (to, &from) in permutation.iter().enumerate() {
                    inverse[from] = to;
                }
                result.permute(&inverse).ok().map(Arc::new)
            }
            Relation::Broadcast => {
                let source = shape(func, operand);
                let mut layout = (**result).clone();
                for (dim, (&from, &to)) in source.iter().zip(result.shape()).enumerate() {
                    if from != to {
                        layout = layout.slice(dim).and_then(|layout| layout.expand(dim)).ok()?;
                    }
                }
                Some(Arc::new(layout))
            }
            Relation::Reshape => result.reshape(&shape(func, operand)).ok().map(Arc::new),
            Relation::Joined(dim) => result.part(*dim, 2).map(Arc::new),
            Relation::Reduce(_) | Relation::Part(_) | Relation::Free | Relation::Own | Relation::Control => None,
        }
    }
}

/// A function of many instructions of a tile with no more elements than the block has threads: each of them computes one, and hands it to those
/// that need it. In the layout of a larger tile that it is broadcast to, a thread would compute several.
pub(super) fn is_shared_out(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let OpKind::Schedule(kind) = &data.kind else { return false };
    let Some(tile) = data.results.first().and_then(|&result| func.ty(result).as_tile()) else { return false };
    let is_long = match kind {
        ScheduleOp::Sin {} | ScheduleOp::Cos {} | ScheduleOp::Tan {} | ScheduleOp::Pow {} => true,
        ScheduleOp::Exp { .. } | ScheduleOp::Exp2 { .. } | ScheduleOp::Log {} | ScheduleOp::Log2 {} => {
            tile.elem == Elem::Num(DType::F64)
        }
        _ => false,
    };
    is_long && func.hints.num_warps.is_some_and(|warps| tile.len() > 1 && tile.len() <= 32 * warps as usize)
}

/// Extents of a tile as the layout algebra counts them.
pub(super) fn shape(func: &Func, value: Value) -> Vec<u64> {
    func.ty(value).as_tile().map_or_else(Vec::new, |tile| tile.shape.iter().map(|&extent| u64::from(extent)).collect())
}

/// True for values that have a layout.
pub(super) fn has_layout(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|tile| !tile.shape.is_empty())
}

/// The reshape only adds or removes axes of extent 1.
fn only_unit_axes(func: &Func, op: Op) -> bool {
    let significant = |value| shape(func, value).into_iter().filter(|&extent| extent != 1).collect::<Vec<_>>();
    significant(func.ops[op].one(0)) == significant(func.ops[op].result())
}
