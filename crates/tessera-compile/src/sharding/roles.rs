//! What the dimensions of an operation's operands and results are to it.
//!
//! Every operation on tensors runs over some loops, each dimension of an operand or result goes along one of them, and a loop that
//! the result lacks is one that the operation combines over:
//!
//! | operation | loops | lhs | rhs | result | combined |
//! |---|---|---|---|---|---|
//! | elementwise | i j | i j | i j | i j | |
//! | `graph.contract` | b m n k | b m k | b k n | b m n | k, by sums |
//! | `graph.reduce` axis 1 | i j | i j | | i 1 | j |
//! | `graph.broadcast` | i j | i 1 | | i j | |
//!
//! To divide a loop over ranks is to divide every dimension that goes along it. An extent of 1 goes along no loop.

use smallvec::SmallVec;
use tessera_ir::attrs::Combine;
use tessera_ir::{Axis, Func, GraphOp, Op, OpKind, ScheduleOp, Trait, Value};
use tessera_types::DType;

use tessera_analysis::placement::{Dims, Placement};

/// The loop that each dimension of one tensor goes along.
pub(super) type Along = SmallVec<[Option<usize>; 4]>;

/// An operation's loops.
pub(super) struct Roles {
    /// The axis that each loop runs over.
    pub(super) loops: SmallVec<[Axis; 4]>,
    /// For each operand; nothing for a scalar.
    pub(super) operands: SmallVec<[Along; 3]>,
    pub(super) result: Along,
    /// The loop that is combined over, and how.
    pub(super) combined: Option<(usize, Combine)>,
}

/// The roles of an operation that makes one tensor of others; nothing for other operations.
pub(super) fn roles(func: &Func, op: Op) -> Option<Roles> {
    let data = &func.ops[op];
    let &[result] = data.results.as_slice() else { return None };
    let result = func.ty(result).as_tensor()?;
    let straight =
        |axes: &[Axis]| -> Along { axes.iter().enumerate().map(|(i, axis)| (*axis != Axis::Fixed(1)).then_some(i)).collect() };
    match &data.kind {
        OpKind::Graph(GraphOp::Contract {}) => {
            let (lhs, rhs) = (func.ty(data.one(0)).as_tensor()?, func.ty(data.one(1)).as_tensor()?);
            let batch = lhs.axes.len() - 2;
            let mut loops: SmallVec<[Axis; 4]> = result.axes.clone();
            loops.push(lhs.axes[batch + 1].clone());
            let (m, n, k) = (batch, batch + 1, batch + 2);
            let along = |last: [usize; 2]| -> Along {
                (0..batch).chain(last).map(|at| (loops[at] != Axis::Fixed(1)).then_some(at)).collect()
            };
            debug_assert_eq!(rhs.axes.len(), batch + 2);
            let operands = SmallVec::from_iter([along([m, k]), along([k, n])]);
            let result = along([m, n]);
            Some(Roles { loops, operands, result, combined: Some((k, Combine::Sum)) })
        }
        OpKind::Graph(GraphOp::Reduce { axis, combine }) => {
            let source = func.ty(data.one(0)).as_tensor()?;
            let along = straight(&source.axes);
            let mut kept = along.clone();
            kept[*axis as usize] = None;
            let combined = Some((*axis as usize, *combine));
            Some(Roles { loops: source.axes.clone(), operands: SmallVec::from_iter([along]), result: kept, combined })
        }
        OpKind::Graph(GraphOp::Broadcast {}) => {
            let source = match func.ty(data.one(0)).as_tensor() {
                Some(source) => {
                    let skipped = result.axes.len() - source.axes.len();
                    source.axes.iter().enumerate().map(|(i, axis)| (*axis != Axis::Fixed(1)).then_some(skipped + i)).collect()
                }
                None => Along::new(),
            };
            let loops = result.axes.clone();
            Some(Roles { result: straight(&loops), loops, operands: SmallVec::from_iter([source]), combined: None })
        }
        OpKind::Schedule(_) if data.row().has(Trait::Elementwise) => {
            let along = straight(&result.axes);
            let of = |&operand: &Value| if func.ty(operand).as_tensor().is_some() { along.clone() } else { Along::new() };
            let operands = data.operands.iter().map(of).collect();
            Some(Roles { loops: result.axes.clone(), operands, result: along, combined: None })
        }
        OpKind::Graph(_) | OpKind::Schedule(_) | OpKind::Tile(_) => None,
    }
}

/// Whether an operation can work on parts that are still to be combined (or multiplied by the rank's factor), so that its result
/// is so instead: it must be linear in them. `operands` are the placements that it would take, scalars left out.
pub(super) fn carries(func: &Func, op: Op, operands: &[Option<&Placement>]) -> bool {
    let data = &func.ops[op];
    let pending = |at: usize| operands.get(at).copied().flatten().filter(|placement| placement.is_pending());
    let wide = |value: Value| func.ty(value).as_tensor().is_some_and(|t| !matches!(t.elem, DType::F16 | DType::BF16));
    let only = (0..operands.len()).filter(|&at| pending(at).is_some()).count() == 1;
    let scaled = only && operands.iter().flatten().all(|placement| placement.partial.is_empty());
    let first = match pending(0) {
        Some(placement) => placement,
        None => match (&data.kind, pending(1)) {
            (OpKind::Schedule(ScheduleOp::MulF { .. } | ScheduleOp::MulI { .. }), Some(placement)) => placement,
            (OpKind::Graph(GraphOp::Contract {}), Some(placement)) if placement.scaled.is_none() => placement,
            _ => return false,
        },
    };
    // Sums of narrow floats are kept wide until they are complete.
    let wide = wide(data.operands[0]) && wide(data.result());
    if !(first.partial.is_empty() || wide) {
        return false;
    }
    let sum = first.combine == Combine::Sum;
    match &data.kind {
        OpKind::Schedule(ScheduleOp::NegF {} | ScheduleOp::NegI { .. }) => sum,
        // A factor that every rank knows; one that is made of other exchanges would keep those from being joined with this one.
        OpKind::Schedule(ScheduleOp::MulF { .. } | ScheduleOp::MulI { .. } | ScheduleOp::DivF { .. }) => {
            let factor = data.operands[usize::from(pending(0).is_some())];
            sum && only && (scaled || is_spread_scalar(func, factor))
        }
        OpKind::Schedule(ScheduleOp::FToF { .. }) => scaled,
        OpKind::Schedule(
            ScheduleOp::AddF { .. } | ScheduleOp::SubF { .. } | ScheduleOp::AddI { .. } | ScheduleOp::SubI { .. },
        ) => sum && pending(1) == Some(first),
        OpKind::Graph(GraphOp::Contract {}) => sum && only,
        // The rank's factor is one for a whole line along the last axis.
        OpKind::Graph(GraphOp::Reduce { axis, combine }) => {
            *combine == first.combine && (first.scaled.is_none() || *axis as usize + 1 == first.dims.len())
        }
        OpKind::Graph(_) | OpKind::Schedule(_) | OpKind::Tile(_) => false,
    }
}

/// Whether a tensor has one number of the launch everywhere.
fn is_spread_scalar(func: &Func, value: Value) -> bool {
    let made = func.defining_op(value).map(|op| &func.ops[op]);
    made.is_some_and(|made| made.kind == OpKind::Graph(GraphOp::Broadcast {}) && func.ty(made.one(0)).as_tensor().is_none())
}

/// The division of a tensor's dimensions when loops are divided so.
pub(super) fn dims(along: &Along, divided: &[Option<usize>]) -> Dims {
    along.iter().map(|&at| at.and_then(|at| divided.iter().position(|&over| over == Some(at)))).collect()
}
