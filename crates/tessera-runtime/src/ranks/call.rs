//! What a rank asks of the others: one [`Call`] is an operation, the ranks that take part, and this rank's tensors.
//!
//! | operation | source | result |
//! |---|---|---|
//! | `all_reduce` | `len` elements | `len`: all sources combined element by element |
//! | `reduce_scatter` | `n * len` | `len`: the part at this rank's position of all sources combined |
//! | `all_gather` | `len` | `n * len`: the sources one after another |
//! | `all_to_all` | `n * len` | `n * len`: the parts at this rank's position of all sources, one after another |
//! | `broadcast` | none | what the root has there, in every rank's tensor |
//! | `send`, `recv` | `len`; none | none; `len` |
//! | `barrier` | none | none |
//!
//! Tensors are contiguous and are taken as rows of elements: shapes play no part. `n` is the number of ranks of the group. In
//! place means: one tensor for both in `all_reduce`, and in `reduce_scatter` and `all_gather` the small tensor is the part of the large
//! one at this rank's position. Any other overlap is refused.

use std::fmt;

use tessera_ir::attrs::Combine;
use tessera_types::{DType, NumberClass};

use crate::ranks::error::ExchangeError;
use crate::tensor::Tensor;

/// The ranks that exchange with each other, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Their numbers.
    pub ranks: Vec<usize>,
    /// Which of them this one is.
    pub position: usize,
}

impl Group {
    /// All ranks, seen from one of them.
    pub fn world(rank: usize, ranks: usize) -> Group {
        Group { ranks: (0..ranks).collect(), position: rank }
    }

    /// Some ranks in ascending order; `None` where they are not, or `rank` is none of them.
    pub fn of(ranks: Vec<usize>, rank: usize) -> Option<Group> {
        if !ranks.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let group = Group { ranks, position: 0 };
        let position = group.position_of(rank)?;
        Some(Group { position, ..group })
    }

    /// How many they are.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// At which position a rank is, if it is one of them.
    pub fn position_of(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|&member| member == rank)
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.ranks[self.position]
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for &rank in &self.ranks {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == rank => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        let run = |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        write!(f, "[{}]", runs.iter().map(run).collect::<Vec<_>>().join(","))
    }
}

/// What elements are combined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum. Integers wrap.
    Sum,
    /// Their product. Integers wrap.
    Prod,
    /// The greatest; a not-a-number is ignored.
    Max,
    /// The least; a not-a-number is ignored.
    Min,
    /// Their sum divided by the number of ranks, for integers towards zero.
    Avg,
}

impl Reduction {
    /// Every one.
    pub const ALL: [Reduction; 5] = [Reduction::Sum, Reduction::Prod, Reduction::Max, Reduction::Min, Reduction::Avg];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Prod => "prod",
            Reduction::Max => "max",
            Reduction::Min => "min",
            Reduction::Avg => "avg",
        }
    }

    /// The one of a name.
    pub fn parse(name: &str) -> Option<Reduction> {
        Reduction::ALL.into_iter().find(|reduction| reduction.name() == name)
    }
}

impl From<Combine> for Reduction {
    fn from(combine: Combine) -> Reduction {
        match combine {
            Combine::Sum => Reduction::Sum,
            Combine::Prod => Reduction::Prod,
            Combine::Max => Reduction::Max,
            Combine::Min => Reduction::Min,
        }
    }
}

/// What the ranks of a group do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every rank gets all sources combined.
    AllReduce(Reduction),
    /// Every rank gets its part of all sources combined.
    ReduceScatter(Reduction),
    /// Every rank gets all sources.
    AllGather,
    /// Every rank gets its part of all sources.
    AllToAll,
    /// Every rank gets what the root has.
    Broadcast {
        /// The root's rank.
        root: usize,
    },
    /// One rank's source goes to another, which calls `Recv`.
    Send {
        /// The other's rank.
        to: usize,
    },
    /// The other end of `Send`.
    Recv {
        /// The other's rank.
        from: usize,
    },
    /// Nobody goes on before all are there.
    Barrier,
}

impl Operation {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "all_reduce",
            Operation::ReduceScatter(_) => "reduce_scatter",
            Operation::AllGather => "all_gather",
            Operation::AllToAll => "all_to_all",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Send { .. } => "send",
            Operation::Recv { .. } => "recv",
            Operation::Barrier => "barrier",
        }
    }

    /// What elements are combined by, where they are.
    pub const fn reduction(self) -> Option<Reduction> {
        match self {
            Operation::AllReduce(reduction) | Operation::ReduceScatter(reduction) => Some(reduction),
            Operation::AllGather
            | Operation::AllToAll
            | Operation::Broadcast { .. }
            | Operation::Send { .. }
            | Operation::Recv { .. }
            | Operation::Barrier => None,
        }
    }
}

/// One operation with this rank's tensors.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is done.
    pub operation: Operation,
    /// Who takes part. For `send` and `recv` any group with both ends.
    pub group: Group,
    /// What this rank gives.
    pub source: Option<Tensor>,
    /// What this rank gets.
    pub result: Option<Tensor>,
}

impl Call {
    /// A call with a source and a result.
    pub fn new(operation: Operation, group: &Group, source: Option<&Tensor>, result: Option<&Tensor>) -> Call {
        Call { operation, group: group.clone(), source: source.cloned(), result: result.cloned() }
    }

    /// The tensor whose elements are counted to compare calls: what every rank has the same number of.
    fn counted(&self) -> Option<&Tensor> {
        match self.operation {
            Operation::ReduceScatter(_) | Operation::Broadcast { .. } | Operation::Recv { .. } => self.result.as_ref(),
            Operation::AllReduce(_) | Operation::AllGather | Operation::AllToAll | Operation::Send { .. } => self.source.as_ref(),
            Operation::Barrier => None,
        }
    }

    /// The element type; `None` for a barrier.
    pub fn dtype(&self) -> Option<DType> {
        self.counted().map(Tensor::dtype)
    }

    /// What all ranks that take part must agree on, in words: equal texts are the same call.
    pub fn signature(&self) -> String {
        let what = match self.operation {
            Operation::Send { to } => return self.message(self.group.rank(), to),
            Operation::Recv { from } => return self.message(from, self.group.rank()),
            Operation::Barrier => "barrier()".to_string(),
            operation => {
                let mut args =
                    self.counted().map(|tensor| format!("{} x {}", tensor.len(), tensor.dtype())).into_iter().collect::<Vec<_>>();
                args.extend(operation.reduction().map(|reduction| reduction.name().to_string()));
                if let Operation::Broadcast { root } = operation {
                    args.push(format!("root {root}"));
                }
                format!("{}({})", operation.name(), args.join(", "))
            }
        };
        format!("{what} over {}", self.group)
    }

    /// The signature of both ends of a message.
    fn message(&self, from: usize, to: usize) -> String {
        let tensor = self.counted().map(|tensor| format!("({} x {})", tensor.len(), tensor.dtype())).unwrap_or_default();
        format!("send{tensor} from {from} to {to}")
    }

    /// Refuses what this rank, one of `ranks`, cannot do: a group with another rank at its position, tensors that are missing, strided, of
    /// other sizes or types, or overlap.
    pub fn check(&self, rank: usize, ranks: usize) -> Result<(), ExchangeError> {
        let refuse = |reason: String| Err(ExchangeError::Refused { call: self.operation.name(), reason });
        let Group { ranks: members, position } = &self.group;
        if !members.is_sorted_by(|a, b| a < b) || *position >= members.len() {
            return refuse(format!(
                "the group {members:?} with position {position} is not in ascending order with this rank in it"
            ));
        }
        if self.group.rank() != rank {
            return refuse(format!("the group {} has position {position} for rank {rank}", self.group));
        }
        if let Some(beyond) = members.iter().find(|&&member| member >= ranks) {
            return refuse(format!("the group has rank {beyond}, and there are {ranks} ranks"));
        }
        let (needs_source, needs_result, peer) = match self.operation {
            Operation::AllReduce(_) | Operation::ReduceScatter(_) | Operation::AllGather | Operation::AllToAll => {
                (true, true, None)
            }
            Operation::Broadcast { root } => (false, true, Some(root)),
            Operation::Send { to } => (true, false, Some(to)),
            Operation::Recv { from } => (false, true, Some(from)),
            Operation::Barrier => (false, false, None),
        };
        if let Some(peer) = peer.filter(|peer| !members.contains(peer)) {
            return refuse(format!("rank {peer} is not in the group {}", self.group));
        }
        if matches!(self.operation, Operation::Send { to: peer } | Operation::Recv { from: peer } if peer == self.group.rank()) {
            return refuse("a rank does not send to itself: copy the tensor".to_string());
        }
        for (name, tensor, needed) in [("source", &self.source, needs_source), ("result", &self.result, needs_result)] {
            match tensor {
                None if needed => return refuse(format!("a {name} is needed")),
                Some(_) if !needed => return refuse(format!("a {name} has no use here")),
                Some(tensor) if !tensor.is_contiguous() => {
                    return refuse(format!("the {name} is not contiguous: copy it with `contiguous`"));
                }
                Some(_) | None => {}
            }
        }
        if let (Some(reduction), Some(dtype)) = (self.operation.reduction(), self.dtype())
            && dtype.class() == NumberClass::Bool
            && matches!(reduction, Reduction::Sum | Reduction::Prod | Reduction::Avg)
        {
            return refuse(format!("`{dtype}` has no {}: `max` is or, `min` is and", reduction.name()));
        }
        let (Some(source), Some(result)) = (&self.source, &self.result) else { return Ok(()) };
        if source.dtype() != result.dtype() {
            return refuse(format!("the source holds `{}` and the result `{}`", source.dtype(), result.dtype()));
        }
        let (n, given, gets) = (members.len(), source.len(), result.len());
        let fits = match self.operation {
            Operation::AllToAll => given == gets && given.is_multiple_of(n),
            Operation::ReduceScatter(_) => given == n * gets,
            Operation::AllGather => gets == n * given,
            Operation::AllReduce(_)
            | Operation::Broadcast { .. }
            | Operation::Send { .. }
            | Operation::Recv { .. }
            | Operation::Barrier => given == gets,
        };
        if !fits {
            return refuse(format!("{given} elements of the source and {gets} of the result do not fit {n} ranks"));
        }
        if source.overlaps(result) && !self.is_in_place()? {
            return refuse("source and result overlap, and not as in place".to_string());
        }
        Ok(())
    }

    /// The error of a call without something that [`Call::check`] asks for.
    pub(super) fn lacks(&self, what: &str) -> ExchangeError {
        ExchangeError::Refused { call: self.operation.name(), reason: format!("there is no {what}") }
    }

    /// Whether source and result share memory in the way that counts as in place.
    fn is_in_place(&self) -> Result<bool, ExchangeError> {
        let (Some(source), Some(result)) = (&self.source, &self.result) else { return Ok(false) };
        Ok(match self.operation {
            Operation::AllReduce(_) => source.same_place(result),
            Operation::ReduceScatter(_) => self.part(source, self.group.position)?.same_place(result),
            Operation::AllGather => self.part(result, self.group.position)?.same_place(source),
            Operation::AllToAll
            | Operation::Broadcast { .. }
            | Operation::Send { .. }
            | Operation::Recv { .. }
            | Operation::Barrier => false,
        })
    }

    /// The part of a position of a tensor with one part a rank.
    pub(super) fn part(&self, tensor: &Tensor, position: usize) -> Result<Tensor, ExchangeError> {
        let size = tensor.len() / self.group.size();
        Ok(tensor.reshape(&[tensor.len()])?.slice(0, position * size..(position + 1) * size, 1)?)
    }
}

/// A call as errors name it: whose it is, which one, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// The rank that calls.
    pub rank: usize,
    /// Its how many-th call of this communicator, from 1.
    pub number: u64,
    /// [`Call::signature`].
    pub signature: String,
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, call {}, {}", self.rank, self.number, self.signature)
    }
}
