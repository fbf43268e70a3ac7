//! How an operation's work is divided over the ranks: which loop each mesh axis divides.
//!
//! A mesh axis takes part where an operand is divided by it or the result is wanted so. Of all assignments of such axes to loops, the best one
//! - divides the work most (no rank repeats what another one does),
//! - then leaves the operands where they are, if that is possible at all,
//! - then sends fewest bytes, the way of the result to what is wanted of it included,
//! - then exchanges least often.
//!
//! So a contraction with one factor divided along the sum takes a slice of the other one, and its result is combined; and where
//! factors are divided by one axis along different loops, the cheaper of them moves.

use std::cmp::Reverse;

use smallvec::SmallVec;
use tessera_ir::{Axis, Mesh, mesh};
use tessera_types::DType;

use crate::sharding::roles::{Roles, dims};
use crate::sharding::wishes::{Wish, Wishes, granted};
use tessera_analysis::placement::{MeshId, Placement, bytes, steps};

/// With more mesh axes than this, an axis only divides loops that something is divided along already.
const FREE_AXES: usize = 3;

/// An operand as it can be had.
pub(super) struct Input<'i> {
    pub(super) axes: &'i [Axis],
    pub(super) elem: DType,
    /// Where it lies, the place where it was made first.
    pub(super) placed: Vec<&'i Placement>,
}

/// The result.
pub(super) struct Output<'i> {
    pub(super) axes: &'i [Axis],
    pub(super) elem: DType,
    pub(super) wanted: Option<&'i Wishes>,
}

/// One way to divide an operation.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// For each mesh axis the loop that it divides.
    pub(super) divided: SmallVec<[Option<usize>; 2]>,
    /// What is still to be combined in operands stays so in the result.
    pub(super) carry: bool,
}

/// Everything that a choice is made from.
pub(super) struct Question<'i> {
    pub(super) mesh: &'i Mesh,
    pub(super) roles: &'i Roles,
    /// For each operand; nothing for a scalar.
    pub(super) inputs: &'i [Option<Input<'i>>],
    pub(super) output: Output<'i>,
    /// Whether the operation can work on operands that are still to be combined.
    pub(super) carries: bool,
    /// Whether an axis can be divided by a mesh axis.
    pub(super) divides: &'i dyn Fn(&Axis, MeshId) -> bool,
}

impl Question<'_> {
    /// The best choice; to divide nothing is one that always exists.
    pub(super) fn answer(&self) -> Choice {
        let mut best: Option<(Cost, Choice)> = None;
        for carry in [true, false] {
            if carry && !self.carries {
                continue;
            }
            let mut divided = SmallVec::from_elem(None, self.mesh.axes.len());
            self.assign(0, carry, &mut divided, &mut best);
        }
        best.map_or_else(
            || Choice { divided: SmallVec::from_elem(None, self.mesh.axes.len()), carry: false },
            |(_, choice)| choice,
        )
    }

    fn assign(&self, over: MeshId, carry: bool, divided: &mut SmallVec<[Option<usize>; 2]>, best: &mut Option<(Cost, Choice)>) {
        if over == self.mesh.axes.len() {
            let choice = Choice { divided: divided.clone(), carry };
            if let Some(cost) = self.cost(&choice)
                && best.as_ref().is_none_or(|(least, _)| cost < *least)
            {
                *best = Some((cost, choice));
            }
            return;
        }
        let pending = |input: &Input<'_>| input.placed[0].partial.contains(&over);
        let carried = carry && self.inputs.iter().flatten().any(pending);
        for at in self.loops(over) {
            if !carried && !divided[..over].contains(&Some(at)) {
                divided[over] = Some(at);
                self.assign(over + 1, carry, divided, best);
            }
        }
        divided[over] = None;
        self.assign(over + 1, carry, divided, best);
    }

    /// The loops that a mesh axis may divide.
    fn loops(&self, over: MeshId) -> Vec<usize> {
        let mut used: Vec<usize> = Vec::new();
        for (along, input) in self.roles.operands.iter().zip(self.inputs) {
            for placed in input.iter().flat_map(|input| &input.placed) {
                used.extend(placed.dims.iter().zip(along).filter(|(dim, _)| **dim == Some(over)).filter_map(|(_, &at)| at));
            }
        }
        for (&wish, &at) in self.output.wanted.into_iter().flatten().zip(&self.roles.result) {
            used.extend(at.filter(|_| wish == Wish::Divided(Some(over))));
        }
        if used.is_empty() {
            return used;
        }
        let open = self.mesh.axes.len() <= FREE_AXES;
        let fits = |at: &usize| (open || used.contains(at)) && (self.divides)(&self.roles.loops[*at], over);
        (0..self.roles.loops.len()).filter(fits).collect()
    }

    fn cost(&self, choice: &Choice) -> Option<Cost> {
        let mesh = self.mesh;
        let (mut sent, mut exchanges, mut carried) = (0u64, 0, None);
        for (along, input) in self.roles.operands.iter().zip(self.inputs) {
            let Some(input) = input else { continue };
            let to = dims(along, &choice.divided);
            if choice.carry && input.placed[0].is_pending() {
                if input.placed[0].dims != to {
                    return None;
                }
                carried = Some(input.placed[0]);
                continue;
            }
            let way = |from: &&Placement| {
                let steps = steps(from, &to);
                (bytes(mesh, input.axes, input.elem, &from.dims, &steps), steps.len())
            };
            let (cost, count) = input.placed.iter().map(way).min()?;
            sent = sent.saturating_add(cost);
            exchanges += count;
        }
        let moves = sent > 0;
        let result = self.result(choice, carried);
        let goal = granted(self.output.wanted, &result.dims);
        let way = steps(&result, &goal);
        sent = sent.saturating_add(bytes(mesh, self.output.axes, self.output.elem, &result.dims, &way));
        let share: u64 = (0..mesh.axes.len())
            .filter(|&over| choice.divided[over].is_some())
            .map(|over| u64::from(mesh.axes[over].size))
            .product();
        Some(Cost { share: Reverse(share), moves, sent, exchanges: exchanges + way.len() })
    }

    /// Where the result lies; `carried` is an operand that stays to be combined.
    pub(super) fn result(&self, choice: &Choice, carried: Option<&Placement>) -> Placement {
        let mut placement = Placement::settled(dims(&self.roles.result, &choice.divided));
        if let Some(carried) = carried {
            placement.partial.clone_from(&carried.partial);
            placement.combine = carried.combine;
            placement.scaled = carried.scaled;
        }
        if let Some((at, combine)) = self.roles.combined {
            let over = choice.divided.iter().position(|&divided| divided == Some(at));
            if let Some(over) = over {
                placement.partial.push(over);
                placement.partial.sort_unstable();
                placement.combine = combine;
            }
        }
        placement
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    share: Reverse<u64>,
    moves: bool,
    sent: u64,
    exchanges: usize,
}

/// Whether a known extent divides; a symbol does where a sharding says so, which `stated` knows.
pub(super) fn divides(mesh: &Mesh, axis: &Axis, over: MeshId, stated: impl Fn(&str, MeshId) -> bool) -> bool {
    match axis {
        Axis::Fixed(extent) => *extent > 1 && mesh::part(axis, &mesh.axes[over]).is_some(),
        Axis::Symbol(name) => stated(name, over),
    }
}
