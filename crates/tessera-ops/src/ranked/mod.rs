//! Programs of several ranks that compute while they exchange: every rank calls the same function with its own parts.
//!
//! | program | a rank has | a rank gets | what goes round |
//! |---|---|---|---|
//! | [`ring_attention`] | its queries, keys and values | the results of its queries | keys and values |
//! | [`gathered_product`] | its rows of A, its columns of B | all rows of C, its columns | rows of A |
//! | [`scattered_product`] | its columns of A, its rows of B | its rows of C | sums of rows of C |
//!
//! Each is a ring of as many steps as there are ranks. In a step a rank computes with what it has, and meanwhile sends that on and receives what
//! the next step needs: on a device the exchange has a stream of its own ([`Lanes`]). Sums and merges have an order that depends on the ranks'
//! numbers alone.
//!
//! Where all ranks are GPUs of one machine that reach each other's memory, [`GatheredProduct`] and [`ScatteredProduct`] are the same products without a
//! ring: every rank sends to every other one. They are made once for some arrays and then run often.

mod mailed;
mod products;
mod ring_attention;

pub use mailed::{GatheredProduct, ScatteredProduct};
pub use products::{gathered_product, scattered_product};
pub use ring_attention::{Attended, RingAttention, ring_attention};

use tessera_runtime::ranks::{ExchangeError, Lanes};
use tessera_runtime::{CompileOptions, KernelError, Tensor, TensorError};

use crate::call::{Call, CallError};
use crate::operator::Operator;

/// Why a program of ranks ended.
#[derive(Debug, thiserror::Error)]
pub enum RankedError {
    /// The ranks could not exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An operator does not take what it is given.
    #[error(transparent)]
    Call(Box<CallError>),
    /// A kernel does not run.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Memory cannot be had or used.
    #[error(transparent)]
    Memory(#[from] TensorError),
    /// The parts do not fit the program.
    #[error("{program}: {why}")]
    Parts {
        /// The program.
        program: &'static str,
        /// What does not fit, and what would.
        why: String,
    },
}

impl From<CallError> for RankedError {
    fn from(error: CallError) -> RankedError {
        RankedError::Call(Box::new(error))
    }
}

/// Queues an operator on the lane that computes.
fn queue(lanes: &Lanes<'_>, operator: &'static Operator, call: &Call<'_>, outputs: &[Tensor]) -> Result<(), RankedError> {
    let launches = operator.resolve(call)?.prepare(outputs, &CompileOptions::default())?;
    Ok(launches.iter().try_for_each(|launch| lanes.queue(launch))?)
}

/// Itself where its elements are in a row, as exchanges want them, else a copy of which that is true.
fn in_a_row(tensor: &Tensor) -> Result<Tensor, TensorError> {
    if tensor.is_contiguous() { Ok(tensor.clone()) } else { tensor.contiguous() }
}
