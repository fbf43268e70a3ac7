//! A communicator that does with its own kernels what they are the fastest at, and hands the rest to another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tessera_compile::CompileOptions;
use tessera_driver::{Event, StreamHandle};
use tessera_launch::LaunchGrid;

use super::choice::Choice;
use super::region::{Layout, SymmetricMemory};
use super::variant::{Algorithm, Combining, Form, Numbers, SOURCE, THREADS, Variant};
use crate::device::Device;
use crate::error::TensorError;
use crate::kernel::{KernelError, Later, Often};
use crate::ranks::call::{Call, CallName};
use crate::ranks::communicator::{Communicator, Pending, Work};
use crate::ranks::error::ExchangeError;
use crate::tensor::Tensor;

/// Looks at a flag in a second, about: one takes 0.7 us on an H200.
const LOOKS_A_SECOND: f64 = 1.5e6;

/// Looks at a flag within a time.
pub(super) fn looks(limit: Duration) -> u32 {
    (limit.as_secs_f64() * LOOKS_A_SECOND).clamp(1.0, f64::from(i32::MAX)) as u32
}

/// One rank's end: own kernels over [`SymmetricMemory`], and an inner communicator.
///
/// A rank that does not come within the time limit ends the wait of the others: their kernels end, and whoever waits for the call is
/// told who was missing. Nothing can be done with the communicator after that.
///
/// Calls share the regions, so they follow each other on the device. What is started on another stream than the call before waits for that;
/// what is queued with [`Communicator::enqueue`] is the caller's to order, since a graph may hold it.
pub struct NvlinkCommunicator {
    inner: Box<dyn Communicator>,
    memory: Arc<SymmetricMemory>,
    device: Device,
    choice: Choice,
    limit: Duration,
    kernels: BTreeMap<(Variant, u32), Often>,
    calls: u64,
    failure: Arc<Mutex<Option<String>>>,
    /// The end of what was started last, and its stream.
    last: Option<(StreamHandle, Arc<Event>)>,
}

impl NvlinkCommunicator {
    /// Over regions that all ranks of `inner` have. `limit` is how long a kernel waits for another rank.
    ///
    /// # Errors
    /// A region of another rank or of other ranks than the communicator's.
    pub fn new(
        inner: Box<dyn Communicator>,
        memory: SymmetricMemory,
        choice: Choice,
        limit: Duration,
    ) -> Result<NvlinkCommunicator, ExchangeError> {
        if (inner.rank(), inner.ranks()) != (memory.rank(), memory.ranks()) {
            let reason = format!(
                "the communicator is rank {} of {}, the region rank {} of {}",
                inner.rank(),
                inner.ranks(),
                memory.rank(),
                memory.ranks()
            );
            return Err(ExchangeError::Mismatch { reason });
        }
        let device = Device::Driver(memory.device().clone());
        let (kernels, failure) = (BTreeMap::new(), Arc::default());
        Ok(NvlinkCommunicator { inner, memory: Arc::new(memory), device, choice, limit, kernels, calls: 0, failure, last: None })
    }

    /// Over regions of its own, on the device of `inner`, whose ranks are all on this machine; the choice is the model's.
    ///
    /// # Errors
    /// Ranks without a device, and those of [`SymmetricMemory::meet`].
    pub fn over(mut inner: Box<dyn Communicator>, limit: Duration) -> Result<NvlinkCommunicator, ExchangeError> {
        let Device::Driver(device) = inner.device().clone() else {
            let reason = "ranks on the CPU have no memory that kernels of others reach".to_string();
            return Err(ExchangeError::Mismatch { reason });
        };
        let memory = SymmetricMemory::meet(&device, Layout::default(), inner.as_mut())?;
        let choice = Choice::of_ranks(memory.ranks());
        NvlinkCommunicator::new(inner, memory, choice, limit)
    }

    /// What does a call here; `None` where the inner communicator does it.
    pub fn algorithm(&self, call: &Call) -> Option<Algorithm> {
        self.choice.algorithm(call, self.memory.ranks(), self.memory.layout()).map(|(algorithm, _)| algorithm)
    }

    /// Whether all ranks came in time to every call that has ended.
    ///
    /// # Errors
    /// The rank that did not.
    pub fn check(&self) -> Result<(), ExchangeError> {
        let name = CallName { rank: self.rank(), number: self.calls, signature: "calls that were queued".to_string() };
        verdict(&self.memory, &self.failure, name, self.limit)
    }

    /// Queues those of some calls that there are kernels for: the last one's name, and the calls that are left.
    fn own(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(Option<CallName>, Vec<Call>), ExchangeError> {
        calls.iter().try_for_each(|call| call.check(self.rank(), self.ranks()))?;
        let (mut last, mut rest) = (None, Vec::new());
        for call in calls {
            let Some(how) = self.choice.algorithm(call, self.memory.ranks(), self.memory.layout()) else {
                rest.push(call.clone());
                continue;
            };
            self.calls += 1;
            let name = self.name(call);
            self.sound(&name)?;
            self.queue(call, how, stream, &name)?;
            if let Some(result) = &call.result {
                result.memory.set_poisoned(false);
            }
            last = Some(name);
        }
        Ok((last, rest))
    }

    fn name(&self, call: &Call) -> CallName {
        CallName { rank: self.rank(), number: self.calls, signature: call.signature() }
    }

    /// Refuses what comes after a failure.
    fn sound(&self, name: &CallName) -> Result<(), ExchangeError> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(ExchangeError::Aborted { reason: reason.clone(), call: name.clone() }),
            None => Ok(()),
        }
    }

    fn queue(
        &mut self,
        call: &Call,
        (algorithm, combine): (Algorithm, Combining),
        stream: StreamHandle,
        name: &CallName,
    ) -> Result<(), ExchangeError> {
        let (Some(source), Some(result)) = (&call.source, &call.result) else { return Err(call.lacks("tensor for it")) };
        let part = if algorithm == Algorithm::ReduceScatter { result } else { source };
        if part.is_empty() {
            return Ok(());
        }
        let failed = |reason: String| ExchangeError::Transport { reason, call: name.clone() };
        let place = |tensor: &Tensor| match tensor.device() {
            Device::Driver(device) if device.is(self.memory.device()) => {
                Ok(tensor.device_pointer().ok_or_else(|| call.lacks("tensor that begins with a byte"))?.0)
            }
            other => {
                let reason = format!("a tensor is on `{other}`, and the communicator on `{}`", self.device);
                Err(ExchangeError::Mismatch { reason })
            }
        };
        let (ranks, size) = (self.memory.ranks(), part.dtype().unpacked_bytes() as u64);
        let (from, to, bytes) = (place(source)?, place(result)?, part.len() as u64 * size);
        // Rows of several parts begin at multiples of 16 bytes where one is a multiple.
        let rows = matches!(algorithm, Algorithm::ReduceScatter | Algorithm::AllGather);
        let form = match (from.is_multiple_of(16) && to.is_multiple_of(16), bytes.is_multiple_of(16)) {
            (true, true) => Form::Whole,
            (true, false) if !rows => Form::Tail,
            _ => Form::Odd,
        };
        let form = if algorithm == Algorithm::SmallAllReduce { Form::Odd } else { form };
        let variant = Variant { algorithm, dtype: part.dtype(), combine, ranks, form };
        let (region, table) = self.memory.places();
        let numbers = Numbers {
            source: from,
            result: to,
            table,
            region,
            elements: part.len() as u64,
            layout: self.memory.layout(),
            rank: self.memory.rank(),
            polls: looks(self.limit),
        };
        let blocks = algorithm.blocks(bytes, ranks as u64);
        let key = (variant, blocks);
        if !self.kernels.contains_key(&key) {
            let often = prepare(&variant, &numbers, blocks, self.memory.device()).map_err(|error| failed(error.to_string()))?;
            self.kernels.insert(key, often);
        }
        let changes = variant.changes(&numbers);
        self.kernels[&key].prepared.enqueue(stream, &changes).map_err(|error| failed(error.to_string()))
    }
}

/// Compiles a kernel and loads it.
fn prepare(
    variant: &Variant,
    numbers: &Numbers,
    blocks: u32,
    device: &crate::device::DriverDevice,
) -> Result<Often, KernelError> {
    let options = CompileOptions { block: Some(THREADS), ..CompileOptions::default() };
    let grid = LaunchGrid::Blocks([blocks, 1, 1]);
    variant.kernel(SOURCE)?.prepare_often(&variant.arguments(numbers), (grid, Later::Any), &options, device)
}

/// What the status says once kernels have ended.
fn verdict(
    memory: &SymmetricMemory,
    failure: &Mutex<Option<String>>,
    call: CallName,
    waited: Duration,
) -> Result<(), ExchangeError> {
    let Some(rank) = memory.missing()? else { return Ok(()) };
    let detail = "; its flag or data did not come".to_string();
    let error = ExchangeError::Late { ranks: vec![rank], waited, detail, call };
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
    Err(error)
}

impl Communicator for NvlinkCommunicator {
    fn rank(&self) -> usize {
        self.memory.rank()
    }

    fn ranks(&self) -> usize {
        self.memory.ranks()
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        let start = Instant::now();
        let (asked, stream) = (stream, stream.unwrap_or_else(|| self.memory.device().stream().handle()));
        if let Some((_, before)) = self.last.as_ref().filter(|(other, _)| *other != stream) {
            before.hold(stream).map_err(TensorError::from)?;
        }
        let (last, rest) = self.own(calls, stream)?;
        let Some(name) = last else { return self.inner.start(calls, asked) };
        let event = Arc::new(self.memory.device().context().event().map_err(TensorError::from)?);
        event.record_in(stream).map_err(TensorError::from)?;
        self.last = Some((stream, Arc::clone(&event)));
        let inner = if rest.is_empty() { None } else { Some(self.inner.start(&rest, asked)?) };
        let (memory, failure) = (Arc::clone(&self.memory), Arc::clone(&self.failure));
        Ok(Pending::of(Queued { event, memory, failure, name, start, inner, _tensors: calls.to_vec() }))
    }

    /// [`NvlinkCommunicator::check`] tells whether all ranks came, once the stream was waited for.
    fn enqueue(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(), ExchangeError> {
        let (_, rest) = self.own(calls, stream)?;
        if rest.is_empty() { Ok(()) } else { self.inner.enqueue(&rest, stream) }
    }

    fn abort(&mut self, reason: &str) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_string());
        self.inner.abort(reason);
    }
}

/// Calls that were queued, and what the inner communicator was given of the same list.
struct Queued {
    event: Arc<Event>,
    memory: Arc<SymmetricMemory>,
    failure: Arc<Mutex<Option<String>>>,
    name: CallName,
    start: Instant,
    inner: Option<Pending>,
    /// Kept until the kernels have ended.
    _tensors: Vec<Call>,
}

impl Work for Queued {
    fn is_done(&mut self) -> Result<bool, ExchangeError> {
        if !self.event.is_reached().map_err(TensorError::from)? {
            return Ok(false);
        }
        verdict(&self.memory, &self.failure, self.name.clone(), self.start.elapsed())?;
        self.inner.as_mut().map_or(Ok(true), Pending::is_done)
    }

    fn wait(&mut self) -> Result<(), ExchangeError> {
        self.event.synchronize().map_err(TensorError::from)?;
        verdict(&self.memory, &self.failure, self.name.clone(), self.start.elapsed())?;
        self.inner.take().map_or(Ok(()), Pending::wait)
    }
}
