//! The exchanges as messages between pairs of ranks, for tensors on the CPU: what threads of a process and processes on hosts have
//! in common.
//!
//! Elements are combined in the order of ranks, whatever the size, so that results do not depend on it:
//! ```text
//! small   every rank sends all to all, and combines            one step    (n - 1) * bytes a rank
//! large   every rank sends part j to rank j, which combines;   two steps   2 * (n - 1) / n * bytes a rank: as a ring
//!         the combined parts go to all
//! ```
//! A broadcast follows a binomial tree, a barrier is a dissemination barrier (log2 n rounds).
//!
//! A message says what call it belongs to. One that belongs to another call than the receiver's is the error
//! [`ExchangeError::Differ`] there: so calls in another order, with other sizes or types are found.

use std::sync::Arc;

use tessera_driver::StreamHandle;

use crate::device::Device;
use crate::ranks::call::{Call, CallName, Operation};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::ExchangeError;
use crate::ranks::parts::combined;
use crate::tensor::Tensor;

/// Bytes up to which an `all_reduce` takes one step.
const ONE_STEP: usize = 32 << 10;

/// What goes from one rank to another.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The sender's call: [`Call::signature`].
    pub(super) signature: Arc<str>,
    /// Elements, packed.
    pub(super) bytes: Arc<Vec<u8>>,
}

/// Ways to the other ranks. Messages of one rank to another arrive in the order in which they were sent.
pub(super) trait Links: Send {
    /// Hands a message over; does not wait until it is taken.
    fn send(&mut self, to: usize, message: Message, call: &CallName) -> Result<(), ExchangeError>;
    /// The next message of a rank. Waits for it, but not for ever where a limit is set.
    fn receive(&mut self, from: usize, call: &CallName) -> Result<Message, ExchangeError>;
    /// Tells the others that this rank exchanges no more, and why.
    fn leave(&mut self, reason: Option<&str>);
}

/// A communicator on links.
pub(super) struct Linked<L: Links> {
    links: L,
    rank: usize,
    ranks: usize,
    calls: u64,
    /// Why nothing can be exchanged any more.
    failed: Option<String>,
}

impl<L: Links> Linked<L> {
    pub(super) fn new(links: L, rank: usize, ranks: usize) -> Linked<L> {
        Linked { links, rank, ranks, calls: 0, failed: None }
    }

    fn begin<'a>(&mut self, call: &'a Call) -> Step<'a> {
        self.calls += 1;
        let signature = call.signature();
        let name = CallName { rank: self.rank, number: self.calls, signature: signature.clone() };
        Step { call, name, signature: signature.into() }
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), ExchangeError> {
        let call = step.call;
        let (source, result) = (call.source.as_ref(), call.result.as_ref());
        match (call.operation, source, result) {
            (Operation::AllReduce(reduction), Some(source), Some(result)) => {
                let count = call.group.size();
                if source.bytes() <= ONE_STEP || source.len() < count {
                    let all = self.gathered(step, source)?;
                    return Ok(result.copy_from(&combined(&all, reduction)?.reshape(result.shape())?)?);
                }
                let (from, to) = (source.reshape(&[source.len()])?, result.reshape(&[result.len()])?);
                let parts = even(source.len(), count).map(|range| from.slice(0, range, 1)).collect::<Result<Vec<_>, _>>()?;
                let own = combined(&self.scattered(step, &parts)?, reduction)?;
                self.give_others(step, |_| Ok(own.clone()))?;
                for (position, range) in even(source.len(), count).enumerate() {
                    let place = to.slice(0, range, 1)?;
                    match position == call.group.position {
                        true => place.copy_from(&own)?,
                        false => self.take(step, position, &place)?,
                    }
                }
                Ok(())
            }
            (Operation::ReduceScatter(reduction), Some(source), Some(result)) => {
                let parts = step.parts(source)?;
                let own = combined(&self.scattered(step, &parts)?, reduction)?;
                Ok(result.copy_from(&own.reshape(result.shape())?)?)
            }
            (Operation::AllGather, Some(source), Some(result)) => {
                let all = self.gathered(step, source)?;
                step.place(result, &all)
            }
            (Operation::AllToAll, Some(source), Some(result)) => {
                let parts = step.parts(source)?;
                let all = self.scattered(step, &parts)?;
                step.place(result, &all)
            }
            (Operation::Broadcast { root }, _, Some(tensor)) => self.broadcast(step, root, tensor),
            (Operation::Send { to }, Some(source), _) => self.give(step, to, source),
            (Operation::Recv { from }, _, Some(result)) => {
                let message = self.message(step, from)?;
                Ok(result.copy_from(&elements(result, &message)?)?)
            }
            (Operation::Barrier, ..) => self.barrier(step),
            _ => Err(call.lacks("tensor for it")),
        }
    }

    /// Every rank's source, by position.
    fn gathered(&mut self, step: &Step<'_>, source: &Tensor) -> Result<Vec<Tensor>, ExchangeError> {
        self.give_others(step, |_| Ok(source.clone()))?;
        self.take_others(step, source)
    }

    /// What the ranks have for this one, by position, where this one has `parts` for them.
    fn scattered(&mut self, step: &Step<'_>, parts: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        self.give_others(step, |position| Ok(parts[position].clone()))?;
        self.take_others(step, &parts[step.call.group.position])
    }

    /// Sends to every other rank, the next one first, so that not all send to one.
    fn give_others(
        &mut self,
        step: &Step<'_>,
        part: impl Fn(usize) -> Result<Tensor, ExchangeError>,
    ) -> Result<(), ExchangeError> {
        let group = &step.call.group;
        let mut last: Option<(Tensor, Arc<Vec<u8>>)> = None;
        for ahead in 1..group.size() {
            let position = (group.position + ahead) % group.size();
            let tensor = part(position)?;
            // One copy of what all get.
            let bytes = match last.take() {
                Some((before, bytes)) if before.same_place(&tensor) => bytes,
                _ => Arc::new(tensor.to_bytes()?),
            };
            last = Some((tensor, Arc::clone(&bytes)));
            self.links.send(group.ranks[position], step.message(bytes), &step.name)?;
        }
        Ok(())
    }

    /// One tensor like `own` of each other rank, and `own` at this rank's position.
    fn take_others(&mut self, step: &Step<'_>, own: &Tensor) -> Result<Vec<Tensor>, ExchangeError> {
        let group = &step.call.group;
        (0..group.size())
            .map(|position| match position == group.position {
                true => Ok(own.reshape(&[own.len()])?),
                false => elements(&own.reshape(&[own.len()])?, &self.message(step, group.ranks[position])?),
            })
            .collect()
    }

    fn take(&mut self, step: &Step<'_>, position: usize, place: &Tensor) -> Result<(), ExchangeError> {
        let message = self.message(step, step.call.group.ranks[position])?;
        Ok(place.copy_from(&elements(place, &message)?)?)
    }

    fn give(&mut self, step: &Step<'_>, to: usize, tensor: &Tensor) -> Result<(), ExchangeError> {
        self.links.send(to, step.message(Arc::new(tensor.to_bytes()?)), &step.name)
    }

    fn message(&mut self, step: &Step<'_>, from: usize) -> Result<Message, ExchangeError> {
        let message = self.links.receive(from, &step.name)?;
        if message.signature != step.signature {
            let theirs = message.signature.to_string();
            return Err(ExchangeError::Differ { rank: from, theirs, call: step.name.clone() });
        }
        Ok(message)
    }

    /// A binomial tree from the root: in round `k` those who have it send it `2^k` positions on.
    fn broadcast(&mut self, step: &Step<'_>, root: usize, tensor: &Tensor) -> Result<(), ExchangeError> {
        let group = &step.call.group;
        let first = group.position_of(root).ok_or_else(|| step.call.lacks("root in the group"))?;
        let count = group.size();
        let own = (group.position + count - first) % count;
        let rank_at = |turned: usize| group.ranks[(turned + first) % count];
        let mut distance = 1;
        while distance <= own {
            distance *= 2;
        }
        let bytes = if own == 0 {
            Arc::new(tensor.to_bytes()?)
        } else {
            let message = self.message(step, rank_at(own - distance / 2))?;
            tensor.copy_from(&elements(tensor, &message)?)?;
            message.bytes
        };
        while own + distance < count {
            self.links.send(rank_at(own + distance), step.message(Arc::clone(&bytes)), &step.name)?;
            distance *= 2;
        }
        Ok(())
    }

    fn barrier(&mut self, step: &Step<'_>) -> Result<(), ExchangeError> {
        let group = &step.call.group;
        let count = group.size();
        let mut distance = 1;
        while distance < count {
            let empty = Arc::new(Vec::new());
            self.links.send(group.ranks[(group.position + distance) % count], step.message(empty), &step.name)?;
            self.message(step, group.ranks[(group.position + count - distance) % count])?;
            distance *= 2;
        }
        Ok(())
    }

    fn attempt(&mut self, calls: &[Call]) -> Result<(), ExchangeError> {
        let steps: Vec<Step<'_>> = calls.iter().map(|call| self.begin(call)).collect();
        if let (Some(reason), Some(step)) = (self.failed.clone(), steps.first()) {
            return Err(ExchangeError::Aborted { reason, call: step.name.clone() });
        }
        // What a rank sends in a list must not wait for what it receives there, on either side.
        for turn in 0..3 {
            for step in &steps {
                let own = match step.call.operation {
                    Operation::Send { .. } => 0,
                    Operation::Recv { .. } => 1,
                    _ => 2,
                };
                if own == turn {
                    self.run(step)?;
                }
            }
        }
        Ok(())
    }
}

impl<L: Links> Communicator for Linked<L> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        if let (Some(_), Some(call)) = (stream, calls.first()) {
            let reason = "tensors on the CPU have no stream".to_string();
            return Err(ExchangeError::Refused { call: call.operation.name(), reason });
        }
        calls.iter().try_for_each(|call| call.check(self.rank, self.ranks))?;
        match self.attempt(calls) {
            Ok(()) => Ok(Pending::done()),
            Err(error) => {
                // What was sent of this call would be taken for the next one's.
                self.abort(&error.to_string());
                Err(error)
            }
        }
    }

    fn abort(&mut self, reason: &str) {
        if self.failed.is_none() {
            self.failed = Some(reason.to_string());
            self.links.leave(Some(reason));
        }
    }
}

impl<L: Links> Drop for Linked<L> {
    fn drop(&mut self) {
        if self.failed.is_none() {
            self.links.leave(None);
        }
    }
}

/// A call under way.
struct Step<'a> {
    call: &'a Call,
    name: CallName,
    signature: Arc<str>,
}

impl Step<'_> {
    fn message(&self, bytes: Arc<Vec<u8>>) -> Message {
        Message { signature: Arc::clone(&self.signature), bytes }
    }

    fn parts(&self, tensor: &Tensor) -> Result<Vec<Tensor>, ExchangeError> {
        (0..self.call.group.size()).map(|position| self.call.part(tensor, position)).collect()
    }

    /// Writes one tensor a rank, one after another.
    fn place(&self, result: &Tensor, all: &[Tensor]) -> Result<(), ExchangeError> {
        for (position, from) in all.iter().enumerate() {
            let place = self.call.part(result, position)?;
            // In place, this rank's own is there already.
            if !place.same_place(from) {
                place.copy_from(&from.reshape(&[from.len()])?)?;
            }
        }
        Ok(())
    }
}

/// The elements of a message, in the shape of a tensor.
fn elements(like: &Tensor, message: &Message) -> Result<Tensor, ExchangeError> {
    Ok(Tensor::from_bytes(like.dtype(), like.shape(), &message.bytes)?)
}

/// `count` ranges of nearly equal length.
fn even(length: usize, count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..count).map(move |position| length * position / count..length * (position + 1) / count)
}
