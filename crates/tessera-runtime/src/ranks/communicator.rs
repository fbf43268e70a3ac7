//! What ranks use to exchange tensors.
//!
//! A [`Communicator`] is one rank's end: real ranks are processes with a device each, simulated ones ([`crate::ranks::simulated`]) are
//! threads. All ranks of a group call the same operations in the same order, and an operation returns when this rank has what
//! it gets. Tensors given are not written before that.

use tessera_ir::attrs::Combine;

use crate::error::TensorError;
use crate::tensor::Tensor;

/// The ranks that exchange with each other, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their numbers.
    pub ranks: Vec<usize>,
    /// Which of them this one is.
    pub position: usize,
}

/// Why an exchange did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Another rank stopped before it took part.
    #[error("rank {rank} stopped, and this rank waits for it")]
    Left {
        /// The rank.
        rank: usize,
    },
    /// Tensors of the ranks do not fit each other or the operation.
    #[error("the ranks' tensors do not fit: {reason}")]
    Mismatch {
        /// In what.
        reason: String,
    },
    /// A tensor's memory cannot be used.
    #[error(transparent)]
    Memory(#[from] TensorError),
    /// The library between the ranks' devices reported an error.
    #[error("the ranks' devices could not exchange: {0}")]
    Transport(String),
}

/// One rank's end of the exchanges. Each operation takes any number of tensors and gives one result each, in new memory.
pub trait Communicator {
    /// Combines element by element, in the order of ranks; every rank gets the result.
    fn all_reduce(&mut self, group: &Group, combine: Combine, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError>;
    /// Joins the parts along an axis, in the order of ranks; every rank gets the whole.
    fn all_gather(&mut self, group: &Group, axis: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError>;
    /// Combines as [`Communicator::all_reduce`] does; each rank gets its part along an axis.
    fn reduce_scatter(
        &mut self,
        group: &Group,
        axis: usize,
        combine: Combine,
        tensors: &[Tensor],
    ) -> Result<Vec<Tensor>, ExchangeError>;
    /// Splits along one axis, gives each rank its part, and joins along another what comes from the ranks.
    fn all_to_all(&mut self, group: &Group, split: usize, join: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError>;
}
