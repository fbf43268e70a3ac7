//! How results are wanted, carried back from stores to the values that they are computed from: a producer that knows can leave
//! sums as parts that are scattered, or divide its work as its reader does. A wish breaks ties; it never makes a program wrong.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Func, GraphOp, OpKind, ScheduleOp, Value};

use crate::sharding::roles::roles;
use crate::tiling::yielded;
use tessera_analysis::placement::{Dims, MeshId};

/// What is wanted of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Any,
    /// This division.
    Divided(Option<MeshId>),
}

/// What is wanted of a tensor.
pub(super) type Wishes = SmallVec<[Wish; 4]>;

/// The wishes for every value that somebody has one for. `stored` says how an operand that is written is held, where that is
/// given.
pub(super) fn wishes<'d>(func: &Func, stored: impl Fn(Value) -> Option<&'d Dims>) -> FxHashMap<Value, Wishes> {
    let mut found: FxHashMap<Value, Wishes> = FxHashMap::default();
    for op in func.linked_ops().into_iter().rev() {
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Graph(GraphOp::Store {}) => {
                if let Some(dims) = stored(data.one(1)) {
                    let wanted = dims.iter().map(|&dim| Wish::Divided(dim)).collect();
                    found.entry(data.one(0)).or_insert(wanted);
                }
            }
            OpKind::Schedule(ScheduleOp::If {}) => {
                for &result in &data.results {
                    let Some(wanted) = found.get(&result).cloned() else { continue };
                    for value in yielded(func, op, result) {
                        found.entry(value).or_insert_with(|| wanted.clone());
                    }
                }
            }
            _ => {
                let Some(roles) = roles(func, op) else { continue };
                let Some(wanted) = found.get(&data.result()).cloned() else { continue };
                let mut loops: Wishes = SmallVec::from_elem(Wish::Any, roles.loops.len());
                for (&along, &wish) in roles.result.iter().zip(&wanted) {
                    if let Some(at) = along {
                        loops[at] = wish;
                    }
                }
                for (along, &operand) in roles.operands.iter().zip(&data.operands) {
                    if func.ty(operand).as_tensor().is_some() {
                        let wanted = along.iter().map(|&at| at.map_or(Wish::Divided(None), |at| loops[at])).collect();
                        found.entry(operand).or_insert(wanted);
                    }
                }
            }
        }
    }
    found
}

/// The dimensions that fulfil a wish and otherwise stay as they are.
pub(super) fn granted(wanted: Option<&Wishes>, dims: &Dims) -> Dims {
    let Some(wanted) = wanted else { return dims.clone() };
    let named = |over: MeshId| wanted.contains(&Wish::Divided(Some(over)));
    let grant = |(&wish, &dim): (&Wish, &Option<MeshId>)| match wish {
        Wish::Any => dim.filter(|&over| !named(over)),
        Wish::Divided(over) => over,
    };
    wanted.iter().zip(dims).map(grant).collect()
}
