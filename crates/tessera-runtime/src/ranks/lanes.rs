//! Two lanes of a rank: what it computes, on its device's stream, and what it exchanges, on a stream of its own.
//!
//! ```text
//! compute    | step 0 on a | step 1 on b | step 2 on a |      an exchange begins when the step before has been queued, and
//! exchange   | b comes     | a comes     |                    writes where that step read: it waits for it, not for this one
//! ```
//! On the CPU an exchange is done when it has been started, and the lanes are one.

use tessera_driver::{DriverError, Event, Stream};

use crate::device::Device;
use crate::kernel::KernelError;
use crate::launch::PreparedLaunch;
use crate::ranks::call::{Call, Group, Operation};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::ExchangeError;
use crate::tensor::Tensor;

/// The lane beside the device's own stream.
struct Beside {
    stream: Stream,
    /// Reached when what was computed before the last exchange is done.
    computed: Event,
    /// Reached when the last exchange is done.
    exchanged: Event,
}

/// A rank's two lanes, for programs whose ranks stand in a ring.
pub struct Lanes<'c> {
    communicator: &'c mut dyn Communicator,
    group: Group,
    beside: Option<Beside>,
    pending: Vec<Pending>,
}

impl<'c> Lanes<'c> {
    /// The lanes of a rank, whose ring is a group.
    pub fn new(communicator: &'c mut dyn Communicator, group: &Group) -> Result<Lanes<'c>, ExchangeError> {
        let beside = match communicator.device().driver() {
            None => None,
            Some(device) => {
                let context = device.context();
                let (stream, computed) = (context.stream().map_err(memory)?, context.event().map_err(memory)?);
                Some(Beside { stream, computed, exchanged: context.event().map_err(memory)? })
            }
        };
        Ok(Lanes { communicator, group: group.clone(), beside, pending: Vec::new() })
    }

    /// Ranks of the ring.
    pub fn ranks(&self) -> usize {
        self.group.size()
    }

    /// This rank's place in it.
    pub fn position(&self) -> usize {
        self.group.position
    }

    /// Where this rank computes.
    pub fn device(&self) -> &Device {
        self.communicator.device()
    }

    /// Sends tensors to the next rank of the ring and receives as many from the one before, beside what is computed from now on.
    pub fn pass_on(&mut self, give: &[Tensor], get: &[Tensor]) -> Result<(), ExchangeError> {
        let (ranks, position) = (self.ranks(), self.position());
        if ranks == 1 {
            return Ok(());
        }
        let (to, from) = (self.group.ranks[(position + 1) % ranks], self.group.ranks[(position + ranks - 1) % ranks]);
        let sends = give.iter().map(|tensor| Call::new(Operation::Send { to }, &self.group, Some(tensor), None));
        let receives = get.iter().map(|tensor| Call::new(Operation::Recv { from }, &self.group, None, Some(tensor)));
        let calls: Vec<Call> = sends.chain(receives).collect();
        match (&self.beside, self.communicator.device().driver().cloned()) {
            (Some(beside), Some(device)) => {
                beside.computed.record(device.stream()).and_then(|()| beside.stream.wait(&beside.computed)).map_err(memory)?;
                let pending = self.communicator.start(&calls, Some(beside.stream.handle()))?;
                beside.exchanged.record(&beside.stream).map_err(memory)?;
                self.pending.push(pending);
            }
            _ => self.communicator.start(&calls, None)?.wait()?,
        }
        Ok(())
    }

    /// What is computed from now on comes after the last exchange.
    pub fn arrived(&mut self) -> Result<(), ExchangeError> {
        if let (Some(beside), Some(device)) = (&self.beside, self.communicator.device().driver()) {
            device.stream().wait(&beside.exchanged).map_err(memory)?;
        }
        Ok(())
    }

    /// Queues a launch on the lane that computes.
    pub fn queue(&self, launch: &PreparedLaunch) -> Result<(), KernelError> {
        match (launch.on_device(), self.communicator.device().driver()) {
            (Some(queued), Some(device)) => Ok(queued.enqueue_on(device.stream()).map_err(memory)?),
            _ => launch.run(),
        }
    }

    /// Waits until all exchanges are done, and says what became of them.
    pub fn finish(mut self) -> Result<(), ExchangeError> {
        self.pending.drain(..).try_for_each(Pending::wait)?;
        if let Some(device) = self.communicator.device().driver() {
            device.synchronize().map_err(memory)?;
        }
        Ok(())
    }
}

fn memory(error: DriverError) -> ExchangeError {
    ExchangeError::Memory(error.into())
}
