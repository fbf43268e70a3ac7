//! What ranks use to exchange tensors.
//!
//! A [`Communicator`] is one rank's end: of threads of one process ([`crate::ranks::SimulatedRank`]), of processes that exchange over TCP,
//! or of devices. All ranks of a group make the same calls in the same order.
//!
//! The one method that does anything is [`Communicator::start`]. The rest are written with it:
//! - `..._into` takes tensors for source and result (contiguous, possibly in place) and gives a [`Pending`];
//! - the ones without take any number of tensors of any strides, along an axis, wait, and give results in new memory.
//!
//! Invariant: what a rank gets depends on what the ranks gave and on the kind of communicator, not on who was faster. On the CPU
//! elements are combined in the order of ranks.

use tessera_driver::StreamHandle;

use crate::device::Device;
use crate::ranks::call::{Call, Group, Operation, Reduction};
use crate::ranks::error::ExchangeError;
use crate::ranks::parts::{joined, part};
use crate::tensor::Tensor;

/// Calls that are under way. Dropped, it waits for them: their tensors are in use until then.
#[must_use = "results are there once this has been waited for"]
pub struct Pending {
    work: Option<Box<dyn Work>>,
}

/// What a communicator has queued.
pub trait Work: Send {
    /// Whether it is done, without waiting.
    fn is_done(&mut self) -> Result<bool, ExchangeError>;
    /// Waits until it is done, or something ends the wait: a time limit, a rank that is lost.
    fn wait(&mut self) -> Result<(), ExchangeError>;
}

impl Pending {
    /// What is done already.
    pub fn done() -> Pending {
        Pending { work: None }
    }

    /// What is queued.
    pub fn of(work: impl Work + 'static) -> Pending {
        Pending { work: Some(Box::new(work)) }
    }

    /// Whether the results are there.
    pub fn is_done(&mut self) -> Result<bool, ExchangeError> {
        self.work.as_mut().map_or(Ok(true), |work| work.is_done())
    }

    /// Waits until the host may read the results. Work queued later on the same stream needs no wait.
    pub fn wait(mut self) -> Result<(), ExchangeError> {
        self.work.take().map_or(Ok(()), |mut work| work.wait())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(mut work) = self.work.take() {
            // Whoever drops it asks for no outcome; the communicator's next call repeats a failure.
            let _ = work.wait();
        }
    }
}

/// One rank's end of the exchanges.
pub trait Communicator: Send {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn ranks(&self) -> usize;

    /// Where tensors lie.
    fn device(&self) -> &Device;

    /// Starts calls as one: none of them waits for an earlier one of the list, so that a `send` and a `recv` of two ranks to each other
    /// cannot wait for ever. On a device they are queued on `stream`, on the device's own where that is `None`; on the CPU they are done on return.
    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError>;

    /// Queues calls on a stream that is being recorded as a graph, with nothing to wait for: whoever launches the graph waits for its
    /// stream. On the CPU there is no such stream.
    fn enqueue(&mut self, calls: &[Call], _stream: StreamHandle) -> Result<(), ExchangeError> {
        let call = calls.first().map_or("enqueue", |call| call.operation.name());
        Err(ExchangeError::Refused { call, reason: format!("tensors on `{}` are exchanged without a stream", self.device()) })
    }

    /// Gives up: calls under way end with an error here, other ranks hear of it, and later calls fail.
    fn abort(&mut self, reason: &str);

    /// All ranks.
    fn world(&self) -> Group {
        Group::world(self.rank(), self.ranks())
    }

    /// Combines `source` of all ranks into `result`.
    fn all_reduce_into(
        &mut self,
        group: &Group,
        reduction: Reduction,
        source: &Tensor,
        result: &Tensor,
    ) -> Result<Pending, ExchangeError> {
        self.start(&[Call::new(Operation::AllReduce(reduction), group, Some(source), Some(result))], None)
    }

    /// Combines `source` of all ranks; `result` is the part at this rank's position.
    fn reduce_scatter_into(
        &mut self,
        group: &Group,
        reduction: Reduction,
        source: &Tensor,
        result: &Tensor,
    ) -> Result<Pending, ExchangeError> {
        self.start(&[Call::new(Operation::ReduceScatter(reduction), group, Some(source), Some(result))], None)
    }

    /// Puts `source` of all ranks one after another into `result`.
    fn all_gather_into(&mut self, group: &Group, source: &Tensor, result: &Tensor) -> Result<Pending, ExchangeError> {
        self.start(&[Call::new(Operation::AllGather, group, Some(source), Some(result))], None)
    }

    /// Gives each rank its part of `source`, and puts what comes from the ranks one after another into `result`.
    fn all_to_all_into(&mut self, group: &Group, source: &Tensor, result: &Tensor) -> Result<Pending, ExchangeError> {
        self.start(&[Call::new(Operation::AllToAll, group, Some(source), Some(result))], None)
    }

    /// Writes what rank `root` has in `tensor` to the tensor of every rank.
    fn broadcast_into(&mut self, group: &Group, root: usize, tensor: &Tensor) -> Result<Pending, ExchangeError> {
        self.start(&[Call::new(Operation::Broadcast { root }, group, None, Some(tensor))], None)
    }

    /// Sends a tensor to a rank, which receives one of the same size and type.
    fn send(&mut self, to: usize, tensor: &Tensor) -> Result<Pending, ExchangeError> {
        let call = Call::new(Operation::Send { to }, &self.world(), Some(tensor), None);
        self.start(&[call], None)
    }

    /// Receives a tensor from a rank.
    fn recv(&mut self, from: usize, tensor: &Tensor) -> Result<Pending, ExchangeError> {
        let call = Call::new(Operation::Recv { from }, &self.world(), None, Some(tensor));
        self.start(&[call], None)
    }

    /// Waits until all ranks of the group are here.
    fn barrier(&mut self, group: &Group) -> Result<(), ExchangeError> {
        self.start(&[Call::new(Operation::Barrier, group, None, None)], None)?.wait()
    }

    /// Combines element by element; every rank gets the results.
    fn all_reduce(&mut self, group: &Group, reduction: Reduction, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        let results = tensors.iter().map(|tensor| self.there(tensor)?.same_shape()).collect::<Result<Vec<_>, _>>()?;
        self.each(group, Operation::AllReduce(reduction), tensors, &results)?;
        Ok(results)
    }

    /// Joins the parts along an axis, in the order of ranks; every rank gets the whole.
    fn all_gather(&mut self, group: &Group, axis: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        let stack = |tensor: &Tensor| -> Result<Tensor, ExchangeError> {
            let shape: Vec<usize> = [group.size()].iter().chain(tensor.shape()).copied().collect();
            Ok(Tensor::unwritten_on(tensor.dtype(), &shape, self.device())?)
        };
        let stacks = tensors.iter().map(stack).collect::<Result<Vec<_>, _>>()?;
        self.each(group, Operation::AllGather, tensors, &stacks)?;
        stacks.iter().zip(tensors).map(|(stack, tensor)| unstacked(stack, tensor.shape(), axis)).collect()
    }

    /// Combines as [`Communicator::all_reduce`] does; each rank gets its part along an axis.
    fn reduce_scatter(
        &mut self,
        group: &Group,
        axis: usize,
        reduction: Reduction,
        tensors: &[Tensor],
    ) -> Result<Vec<Tensor>, ExchangeError> {
        let (mut sources, mut results) = (Vec::new(), Vec::new());
        for tensor in tensors {
            let source = stacked(&self.there(tensor)?, group, axis)?;
            results.push(Tensor::unwritten_on(tensor.dtype(), &source.shape()[1..], self.device())?);
            sources.push(source);
        }
        self.each(group, Operation::ReduceScatter(reduction), &sources, &results)?;
        Ok(results)
    }

    /// Splits along one axis, gives each rank its part, and joins along another what comes from the ranks.
    fn all_to_all(&mut self, group: &Group, split: usize, join: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        let sources = tensors.iter().map(|tensor| stacked(&self.there(tensor)?, group, split)).collect::<Result<Vec<_>, _>>()?;
        let stacks = sources.iter().map(Tensor::same_shape).collect::<Result<Vec<_>, _>>()?;
        self.each(group, Operation::AllToAll, &sources, &stacks)?;
        stacks.iter().map(|stack| unstacked(stack, &stack.shape()[1..], join)).collect()
    }

    /// One call a tensor, started as one and waited for.
    fn each(&mut self, group: &Group, operation: Operation, sources: &[Tensor], results: &[Tensor]) -> Result<(), ExchangeError> {
        let sources = sources.iter().map(|source| self.there(source)?.in_a_row()).collect::<Result<Vec<_>, _>>()?;
        let calls: Vec<Call> =
            sources.iter().zip(results).map(|(source, result)| Call::new(operation, group, Some(source), Some(result))).collect();
        self.start(&calls, None)?.wait()
    }

    /// A tensor where the communicator works.
    fn there(&self, tensor: &Tensor) -> Result<Tensor, ExchangeError> {
        Ok(tensor.to_device(self.device())?)
    }
}

impl<C: Communicator + ?Sized> Communicator for &mut C {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn ranks(&self) -> usize {
        (**self).ranks()
    }

    fn device(&self) -> &Device {
        (**self).device()
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        (**self).start(calls, stream)
    }

    fn enqueue(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(), ExchangeError> {
        (**self).enqueue(calls, stream)
    }

    fn abort(&mut self, reason: &str) {
        (**self).abort(reason);
    }
}

/// Parts along an axis one after another.
fn stacked(tensor: &Tensor, group: &Group, axis: usize) -> Result<Tensor, ExchangeError> {
    let count = group.size();
    let first = part(tensor, axis, count, 0)?;
    let shape: Vec<usize> = [count].iter().chain(first.shape()).copied().collect();
    if axis == 0 && tensor.is_contiguous() {
        return Ok(tensor.reshape(&shape)?);
    }
    let parts = (0..count).map(|position| part(tensor, axis, count, position)).collect::<Result<Vec<_>, _>>()?;
    Ok(joined(&parts, 0)?.reshape(&shape)?)
}

/// What is one after another, joined along an axis.
fn unstacked(stack: &Tensor, shape: &[usize], axis: usize) -> Result<Tensor, ExchangeError> {
    let count = stack.shape()[0];
    let row = |position: usize| Ok(stack.slice(0, position..position + 1, 1)?.reshape(shape)?);
    if axis == 0 && !shape.is_empty() {
        let mut whole = shape.to_vec();
        whole[0] *= count;
        return Ok(stack.reshape(&whole)?);
    }
    let parts = (0..count).map(row).collect::<Result<Vec<_>, ExchangeError>>()?;
    joined(&parts, axis)
}

impl Tensor {
    /// New memory for a tensor of this type and shape on the same device.
    pub(super) fn same_shape(&self) -> Result<Tensor, ExchangeError> {
        Ok(Tensor::unwritten_on(self.dtype(), self.shape(), &self.device())?)
    }

    /// Itself where it is contiguous, else a copy that is.
    fn in_a_row(&self) -> Result<Tensor, ExchangeError> {
        Ok(if self.is_contiguous() { self.clone() } else { self.contiguous()? })
    }
}
