//! Where the parts of a value lie, and how they get elsewhere.
//!
//! A [`Placement`] says for each dimension which mesh axis divides it, and over which axes the ranks' values are still to be
//! combined. [`steps`] lists the exchanges from one placement to another, those first that leave least to be moved by the rest:
//!
//! | from | to | step | bytes a rank sends, of `S` that it holds before, `n` ranks |
//! |---|---|---|---|
//! | held by all | divided | `shard` | none |
//! | to be combined | divided | `reduce_scatter` | S (n-1)/n |
//! | divided | divided along another dimension | `all_to_all` | S (n-1)/n |
//! | to be combined | held by all | `all_reduce` | 2 S (n-1)/n |
//! | divided | held by all | `all_gather` | S (n-1) |

use smallvec::SmallVec;
use tessera_ir::attrs::Combine;
use tessera_ir::{Axis, Mesh, TensorType, mesh};
use tessera_types::DType;

/// A mesh axis by its position.
pub type MeshId = usize;

/// For each dimension the mesh axis that divides it.
pub type Dims = SmallVec<[Option<MeshId>; 4]>;

/// What an extent that is known only at launch counts as.
const SYMBOL_EXTENT: u64 = 4096;

/// Where the parts of a value lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What divides each dimension.
    pub dims: Dims,
    /// Mesh axes, ascending, whose ranks' values are to be combined.
    pub partial: SmallVec<[MeshId; 2]>,
    /// How.
    pub combine: Combine,
    /// Each rank's value is to be multiplied by a factor of its own first: which one.
    pub scaled: Option<usize>,
}

impl Placement {
    /// Nothing left to combine.
    pub fn settled(dims: Dims) -> Placement {
        Placement { dims, partial: SmallVec::new(), combine: Combine::Sum, scaled: None }
    }

    /// Something has to be done before the parts make up the value.
    pub fn is_pending(&self) -> bool {
        !self.partial.is_empty() || self.scaled.is_some()
    }
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Each rank keeps its part of what all hold.
    Shard {
        /// The ranks.
        over: MeshId,
        /// The dimension that is divided.
        axis: usize,
    },
    /// The ranks' values are combined, and each gets its part.
    ReduceScatter {
        /// The ranks.
        over: MeshId,
        /// The dimension that is divided.
        axis: usize,
    },
    /// Parts along one dimension become parts along another.
    AllToAll {
        /// The ranks.
        over: MeshId,
        /// The dimension that is divided.
        split: usize,
        /// The dimension that was.
        join: usize,
    },
    /// The ranks' values are combined, and each gets the whole.
    AllReduce {
        /// The ranks.
        over: SmallVec<[MeshId; 2]>,
    },
    /// Each rank gets all parts.
    AllGather {
        /// The ranks.
        over: MeshId,
        /// The dimension that was divided.
        axis: usize,
    },
}

impl Step {
    /// The dimensions' division after it.
    pub fn apply(&self, dims: &mut Dims) {
        match *self {
            Step::Shard { over, axis } | Step::ReduceScatter { over, axis } => dims[axis] = Some(over),
            Step::AllToAll { over, split, join } => {
                dims[split] = Some(over);
                dims[join] = None;
            }
            Step::AllGather { axis, .. } => dims[axis] = None,
            Step::AllReduce { .. } => {}
        }
    }
}

/// The exchanges from a placement to dimensions divided so, with nothing left to combine.
pub fn steps(from: &Placement, to: &Dims) -> Vec<Step> {
    let mut dims = from.dims.clone();
    let mut partial = from.partial.clone();
    let mut found = Vec::new();
    let at = |dims: &Dims, over: MeshId| dims.iter().position(|&dim| dim == Some(over));
    loop {
        let wanted = |over: MeshId| at(to, over);
        let free = |axis: usize| dims[axis].is_none();
        let moved = |over: MeshId| at(&dims, over).filter(|&axis| to[axis] != Some(over));
        let shard = to
            .iter()
            .enumerate()
            .filter_map(|(axis, &over)| Some((axis, over?)))
            .find(|&(axis, over)| free(axis) && at(&dims, over).is_none() && !partial.contains(&over))
            .map(|(axis, over)| Step::Shard { over, axis });
        let scatter = || {
            let goal = partial.iter().find_map(|&over| wanted(over).filter(|&axis| free(axis)).map(|axis| (over, axis)));
            goal.map(|(over, axis)| Step::ReduceScatter { over, axis })
        };
        let exchange = || {
            dims.iter().flatten().find_map(|&over| {
                let (join, split) = (moved(over)?, wanted(over).filter(|&axis| free(axis))?);
                Some(Step::AllToAll { over, split, join })
            })
        };
        let reduce = || {
            let over: SmallVec<[MeshId; 2]> = partial.iter().copied().filter(|&over| wanted(over).is_none()).collect();
            (!over.is_empty()).then_some(Step::AllReduce { over })
        };
        let gather = || {
            let goal = dims.iter().flatten().copied().find(|&over| moved(over).is_some() && wanted(over).is_none());
            // Axes that wait for each other's dimensions: one gives way.
            let goal = goal.or_else(|| dims.iter().flatten().copied().find(|&over| moved(over).is_some()));
            goal.and_then(|over| Some(Step::AllGather { over, axis: at(&dims, over)? }))
        };
        let Some(step) = shard.or_else(scatter).or_else(exchange).or_else(reduce).or_else(gather) else { break };
        match &step {
            Step::ReduceScatter { over, .. } => partial.retain(|other| other != over),
            Step::AllReduce { over } => partial.retain(|other| !over.contains(other)),
            Step::Shard { .. } | Step::AllToAll { .. } | Step::AllGather { .. } => {}
        }
        step.apply(&mut dims);
        found.push(step);
    }
    found
}

/// The bytes that each rank sends in these steps.
pub fn bytes(mesh: &Mesh, axes: &[Axis], elem: DType, from: &Dims, steps: &[Step]) -> u64 {
    let mut dims = from.clone();
    let mut sum = 0u64;
    for step in steps {
        let held = held(mesh, axes, elem, &dims);
        let size = |over: MeshId| u64::from(mesh.axes[over].size);
        let moved = |n: u64| (u128::from(held) * u128::from(n - 1) / u128::from(n)) as u64;
        sum = sum.saturating_add(match step {
            Step::Shard { .. } => 0,
            Step::ReduceScatter { over, .. } | Step::AllToAll { over, .. } => moved(size(*over)),
            Step::AllReduce { over } => 2 * moved(over.iter().map(|&over| size(over)).product()),
            Step::AllGather { over, .. } => held.saturating_mul(size(*over) - 1),
        });
        step.apply(&mut dims);
    }
    sum
}

/// Bytes of a rank's part.
fn held(mesh: &Mesh, axes: &[Axis], elem: DType, dims: &Dims) -> u64 {
    let extent = |(axis, dim): (&Axis, &Option<MeshId>)| {
        let whole = match axis {
            Axis::Fixed(extent) => u64::from(*extent),
            Axis::Symbol(_) => SYMBOL_EXTENT,
        };
        dim.map_or(whole, |over| whole.div_ceil(u64::from(mesh.axes[over].size)))
    };
    let elements = axes.iter().zip(dims).map(extent).fold(1u64, u64::saturating_mul);
    elements.saturating_mul(u64::from(elem.bits())).div_ceil(8).min(u64::MAX >> 2)
}

/// The type of a rank's part of a tensor with these axes. Each division must be one that the dimension allows.
pub fn local(mesh: &Mesh, axes: &[Axis], elem: DType, dims: &Dims) -> TensorType {
    let part = |(axis, dim): (&Axis, &Option<MeshId>)| {
        dim.and_then(|over| mesh::part(axis, &mesh.axes[over])).unwrap_or_else(|| axis.clone())
    };
    TensorType { axes: axes.iter().zip(dims).map(part).collect(), elem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(dims: &[Option<MeshId>], partial: &[MeshId]) -> Placement {
        let mut placement = Placement::settled(SmallVec::from_slice(dims));
        placement.partial.extend_from_slice(partial);
        placement
    }

    fn to(dims: &[Option<MeshId>]) -> Dims {
        SmallVec::from_slice(dims)
    }

    #[test]
    fn one_step_each() {
        let (x, none) = (Some(0), None);
        assert_eq!(steps(&placed(&[none, none], &[]), &to(&[none, x])), [Step::Shard { over: 0, axis: 1 }]);
        assert_eq!(steps(&placed(&[x, none], &[]), &to(&[none, none])), [Step::AllGather { over: 0, axis: 0 }]);
        assert_eq!(steps(&placed(&[x, none], &[]), &to(&[none, x])), [Step::AllToAll { over: 0, split: 1, join: 0 }]);
        assert_eq!(steps(&placed(&[none, none], &[0]), &to(&[x, none])), [Step::ReduceScatter { over: 0, axis: 0 }]);
        let over = SmallVec::from_slice(&[0, 1]);
        assert_eq!(steps(&placed(&[none, none], &[0, 1]), &to(&[none, none])), [Step::AllReduce { over }]);
    }

    #[test]
    fn every_placement_reaches_every_other() {
        let choices = [None, Some(0), Some(1), Some(2)];
        let mut all: Vec<Dims> = Vec::new();
        for a in choices {
            for b in choices {
                for c in choices {
                    let dims = [a, b, c];
                    let twice = (0..3).any(|i| dims[i].is_some() && dims[..i].contains(&dims[i]));
                    if !twice {
                        all.push(to(&dims));
                    }
                }
            }
        }
        for from in &all {
            for goal in &all {
                for partial in [&[][..], &[0], &[1, 2]] {
                    if partial.iter().any(|&over| from.contains(&Some(over))) {
                        continue;
                    }
                    let found = steps(&placed(from, partial), goal);
                    let mut dims = from.clone();
                    for step in &found {
                        // No dimension is ever divided twice.
                        if let Step::Shard { axis, .. } | Step::ReduceScatter { axis, .. } | Step::AllToAll { split: axis, .. } =
                            step
                        {
                            assert_eq!(dims[*axis], None, "{from:?} to {goal:?}: {found:?}");
                        }
                        step.apply(&mut dims);
                    }
                    assert_eq!(&dims, goal, "{from:?} + {partial:?}: {found:?}");
                }
            }
        }
    }
}
