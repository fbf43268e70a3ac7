//! A communicator of devices on NCCL: one device a rank, in processes ([`World`](crate::ranks::World)) or in threads of one process
//! ([`Meeting`](crate::ranks::Meeting)).
//!
//! Calls are queued on a stream; [`Pending::wait`] asks whether they are done, and meanwhile whether all ranks live. Who is lost, leaves
//! or is late aborts the communicator: what waits on the device ends, and a new one can be made over the same board.
//!
//! Each group of ranks has a communicator of its own in the library, made when the group is first used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tessera_cuda::{Nccl, NcclCall, NcclComm, NcclError, NcclId, NcclOperation, NcclReduction, OnComm, queue_nccl};
use tessera_driver::{DeviceOrdinal, DriverError, Event, StreamHandle};
use tessera_types::DType;

use crate::device::{Device, DriverDevice};
use crate::error::TensorError;
use crate::ranks::board::Board;
use crate::ranks::call::{Call, CallName, Group, Operation, Reduction};
use crate::ranks::communicator::{Communicator, Pending, Work};
use crate::ranks::error::{ExchangeError, RendezvousError};
use crate::ranks::meeting::Meeting;
use crate::tensor::Tensor;

impl From<Reduction> for NcclReduction {
    fn from(reduction: Reduction) -> NcclReduction {
        match reduction {
            Reduction::Sum => NcclReduction::Sum,
            Reduction::Prod => NcclReduction::Prod,
            Reduction::Max => NcclReduction::Max,
            Reduction::Min => NcclReduction::Min,
            Reduction::Avg => NcclReduction::Avg,
        }
    }
}

/// One rank's end on a device.
pub struct NcclRank {
    shared: Arc<Shared>,
    nccl: Nccl,
    board: Arc<dyn Board>,
    device: Device,
    driver: DriverDevice,
    calls: u64,
    /// What a barrier sums up.
    scratch: Tensor,
}

/// What waits and alarms reach from other threads.
struct Shared {
    comms: Mutex<BTreeMap<Vec<usize>, NcclComm>>,
    failed: Mutex<Option<String>>,
    board: Arc<dyn Board>,
    name: String,
}

/// How long a rank may have left before this one's wait ends: what it did with this one may still be under way here.
const GRACE: Duration = Duration::from_secs(2);
/// How often the board is asked whether another rank gave up.
const LOOK: Duration = Duration::from_millis(50);

impl Shared {
    fn comms(&self) -> MutexGuard<'_, BTreeMap<Vec<usize>, NcclComm>> {
        self.comms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends everything; whether this is the first reason to.
    fn abort(&self, reason: &str) -> bool {
        let first = {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            let first = failed.is_none();
            failed.get_or_insert_with(|| reason.to_string());
            first
        };
        let comms: Vec<NcclComm> = std::mem::take(&mut *self.comms()).into_values().collect();
        NcclComm::abort_all(&comms);
        first
    }

    /// Ends everything, and lets the other ranks know.
    fn fail(&self, reason: &str) {
        if self.abort(reason) {
            self.tell("failed", reason);
        }
    }

    /// Writes what another rank's waits look for.
    fn tell(&self, what: &str, reason: &str) {
        // Whoever cannot be told sees the time limit.
        let _ = self.board.set(&format!("{}/{what}/{}", self.name, self.board.rank()), reason.as_bytes());
    }
}

/// A wait for the ranks of a group.
struct Wait {
    group: Group,
    call: CallName,
    start: Instant,
    looked: Instant,
    /// When a rank was first seen to have left.
    noticed: Option<Instant>,
}

impl Wait {
    fn new(group: &Group, call: &CallName) -> Wait {
        let start = Instant::now();
        Wait { group: group.clone(), call: call.clone(), start, looked: start, noticed: None }
    }

    /// Why it has to end, if it has.
    fn ended(&mut self, shared: &Shared) -> Option<ExchangeError> {
        let error = match self.look(shared)? {
            (error, true) => return Some(error),
            (error, false) => error,
        };
        let noticed = *self.noticed.get_or_insert_with(Instant::now);
        (noticed.elapsed() >= GRACE).then_some(error)
    }

    /// A reason to end, and whether it is one at once.
    fn look(&mut self, shared: &Shared) -> Option<(ExchangeError, bool)> {
        if let Some(error) = shared.board.ended_by(&self.group, &self.call, self.start) {
            let at_once = !matches!(error, ExchangeError::Left { .. });
            return Some((error, at_once));
        }
        if let Some(reason) = shared.failed() {
            return Some((ExchangeError::Aborted { reason, call: self.call.clone() }, true));
        }
        if self.noticed.is_none() && self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let own = shared.board.rank();
        for &rank in self.group.ranks.iter().filter(|&&rank| rank != own) {
            for (what, at_once) in [("failed", true), ("left", false)] {
                if let Ok(Some(reason)) = shared.board.get(&format!("{}/{what}/{rank}", shared.name), Duration::ZERO) {
                    let reason = String::from_utf8_lossy(&reason).into_owned();
                    return Some((ExchangeError::Left { rank, reason, call: self.call.clone() }, at_once));
                }
            }
        }
        None
    }

    /// The rank that is at fault for an error of the library, where one is found soon.
    fn blame(&mut self, shared: &Shared) -> Option<ExchangeError> {
        let noticed = Instant::now();
        while noticed.elapsed() < shared.board.limits().patience / 2 {
            if let Some((error, _)) = self.look(shared) {
                return Some(error);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

/// Pauses longer and longer, at first not at all.
struct Pause {
    start: Instant,
}

impl Pause {
    fn take(&self) {
        let waited = self.start.elapsed();
        match waited < Duration::from_micros(200) {
            true => std::hint::spin_loop(),
            false => thread::sleep((waited / 16).min(Duration::from_millis(2))),
        }
    }
}

impl NcclRank {
    /// Joins the other ranks of a board, with a device of this rank's own. Returns when all are there.
    pub fn join(nccl: &Nccl, board: Arc<dyn Board>, device: &Device) -> Result<NcclRank, ExchangeError> {
        let Some(driver) = device.driver().filter(|driver| !driver.is_emulated()).cloned() else {
            let reason = format!("NCCL exchanges between CUDA devices, and this rank's is `{device}`");
            return Err(RendezvousError::Library { rank: board.rank(), reason }.into());
        };
        if board.is_one_process() {
            open_memory(&driver).map_err(TensorError::from)?;
        }
        let name = board.next("nccl");
        let shared = Arc::new(Shared { comms: Mutex::default(), failed: Mutex::default(), board: Arc::clone(&board), name });
        let scratch = Tensor::zeros_on(DType::F32, &[1], device)?;
        let mut rank = NcclRank { shared, nccl: nccl.clone(), board, device: device.clone(), driver, calls: 0, scratch };
        let world = rank.world();
        let call = CallName { rank: rank.rank(), number: 0, signature: format!("joining {world}") };
        let joined = rank.comm(&world, &call);
        rank.fails(joined)?;
        let alarmed = Arc::clone(&rank.shared);
        rank.board.on_loss(Box::new(move |reason| {
            alarmed.abort(reason);
        }));
        Ok(rank)
    }

    /// The library's communicator of a group, made where there is none yet.
    fn comm(&mut self, group: &Group, call: &CallName) -> Result<NcclComm, ExchangeError> {
        let made = self.shared.comms().get(&group.ranks).cloned();
        if let Some(comm) = made {
            return Ok(comm);
        }
        let (name, mut wait) = (format!("{}/{group}", self.shared.name), Wait::new(group, call));
        let library = |error: NcclError| RendezvousError::Library { rank: self.board.rank(), reason: error.to_string() };
        let id = if group.position == 0 {
            let id = self.nccl.unique_id().map_err(library)?;
            self.board.set(&name, &id.to_bytes())?;
            id
        } else {
            let bytes = loop {
                if let Some(bytes) = self.board.get(&name, LOOK)? {
                    break bytes;
                }
                if let Some(error) = wait.ended(&self.shared) {
                    return Err(error);
                }
            };
            let wrong =
                |_| RendezvousError::Library { rank: self.board.rank(), reason: "an identifier of another length".to_string() };
            NcclId::from_bytes(bytes.try_into().map_err(wrong)?)
        };
        let comm = self.nccl.join(self.driver.context(), id, group.size(), group.position).map_err(library)?;
        // It is there to be aborted with the others, which may run meanwhile.
        self.shared.comms().insert(group.ranks.clone(), comm.clone());
        self.until_ready(&comm, &mut wait)?;
        Ok(comm)
    }

    /// Waits until the library has done what a communicator was asked for.
    fn until_ready(&self, comm: &NcclComm, wait: &mut Wait) -> Result<(), ExchangeError> {
        let pause = Pause { start: Instant::now() };
        loop {
            match comm.is_ready() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let blamed = wait.blame(&self.shared);
                    return Err(blamed.unwrap_or_else(|| transport(&error, &wait.call)));
                }
            }
            if let Some(error) = wait.ended(&self.shared) {
                return Err(error);
            }
            pause.take();
        }
    }

    /// Refuses calls that this rank cannot make; what is refused is no call, and ends nothing.
    fn check(&self, calls: &[Call]) -> Result<(), ExchangeError> {
        for call in calls {
            call.check(self.rank(), self.ranks())?;
            for tensor in [&call.source, &call.result].into_iter().flatten() {
                if !tensor.device().driver().is_some_and(|there| there.is(&self.driver)) {
                    let reason = format!("a tensor is on `{}`, and this rank's device is `{}`", tensor.device(), self.device);
                    return Err(ExchangeError::Refused { call: call.operation.name(), reason });
                }
            }
        }
        Ok(())
    }

    fn names(&mut self, calls: &[Call]) -> Vec<CallName> {
        let rank = self.board.rank();
        let mut name = |call: &Call| {
            self.calls += 1;
            CallName { rank, number: self.calls, signature: call.signature() }
        };
        calls.iter().map(&mut name).collect()
    }

    /// Finds the communicators for calls that were checked.
    fn ready(&mut self, calls: &[Call], names: &[CallName]) -> Result<Vec<NcclComm>, ExchangeError> {
        if let (Some(reason), Some(name)) = (self.shared.failed(), names.first()) {
            return Err(ExchangeError::Aborted { reason, call: name.clone() });
        }
        let mut comms = Vec::new();
        for (call, name) in calls.iter().zip(names) {
            comms.push(self.comm(&call.group, name)?);
        }
        if let Some(name) = names.last() {
            self.board.begins(name);
        }
        Ok(comms)
    }

    /// A call as the library takes it; none where it has no elements.
    fn translated(&self, call: &Call) -> Result<Option<NcclCall>, ExchangeError> {
        // Which of them a call has was checked; a barrier sums up a number of its own.
        let (given, gets) = match (&call.source, &call.result) {
            (Some(source), Some(result)) => (source, result),
            (Some(one), None) | (None, Some(one)) => (one, one),
            (None, None) => (&self.scratch, &self.scratch),
        };
        if given.is_empty() && gets.is_empty() {
            return Ok(None);
        }
        // The library refuses the mean of one rank's fp8, which is that itself.
        let combining = |reduction: Reduction| match (reduction, call.group.size()) {
            (Reduction::Avg, 1) => NcclReduction::Sum,
            (reduction, _) => reduction.into(),
        };
        let position = |rank| call.group.position_of(rank).ok_or_else(|| call.lacks("such rank in the group"));
        let (operation, count) = match call.operation {
            Operation::AllReduce(reduction) => (NcclOperation::AllReduce(combining(reduction)), given.len()),
            Operation::ReduceScatter(reduction) => (NcclOperation::ReduceScatter(combining(reduction)), gets.len()),
            Operation::AllGather => (NcclOperation::AllGather, given.len()),
            Operation::AllToAll => (NcclOperation::AllToAll, given.len() / call.group.size()),
            Operation::Broadcast { root } => (NcclOperation::Broadcast { root: position(root)? }, gets.len()),
            Operation::Send { to } => (NcclOperation::Send { to: position(to)? }, given.len()),
            Operation::Recv { from } => (NcclOperation::Recv { from: position(from)? }, gets.len()),
            Operation::Barrier => (NcclOperation::AllReduce(NcclReduction::Sum), given.len()),
        };
        let at = |tensor: &Tensor| tensor.device_pointer().ok_or_else(|| call.lacks("tensor that begins with a byte"));
        Ok(Some(NcclCall { operation, count, dtype: given.dtype(), source: at(given)?, result: at(gets)? }))
    }

    /// Calls as the library takes them. Those without elements are none for it.
    fn on_comms<'a>(&self, calls: &[Call], comms: &'a [NcclComm]) -> Result<Vec<OnComm<'a>>, ExchangeError> {
        let mut queued = Vec::new();
        for (call, comm) in calls.iter().zip(comms) {
            queued.extend(self.translated(call)?.map(|translated| (comm, call.group.size(), translated)));
        }
        Ok(queued)
    }

    /// Queues calls that were made ready, and waits until they are queued.
    fn queue(&self, calls: &[Call], names: &[CallName], comms: &[NcclComm], stream: StreamHandle) -> Result<(), ExchangeError> {
        let Some(name) = names.first() else { return Ok(()) };
        let queued = self.on_comms(calls, comms)?;
        queue_nccl(&queued, &vec![stream; queued.len()]).map_err(|error| transport(&error, name))?;
        self.until_queued(calls, names, comms)
    }

    fn until_queued(&self, calls: &[Call], names: &[CallName], comms: &[NcclComm]) -> Result<(), ExchangeError> {
        calls
            .iter()
            .zip(names)
            .zip(comms)
            .try_for_each(|((call, name), comm)| self.until_ready(comm, &mut Wait::new(&call.group, name)))
    }

    fn fails<T>(&mut self, outcome: Result<T, ExchangeError>) -> Result<T, ExchangeError> {
        outcome.inspect_err(|error| self.shared.fail(&error.to_string()))
    }

    /// Queues checked calls; they count as written where that succeeds.
    fn attempt(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(), ExchangeError> {
        let names = self.names(calls);
        let comms = self.ready(calls, &names)?;
        self.queue(calls, &names, &comms, stream)?;
        NcclRank::written(calls);
        Ok(())
    }

    /// What waits for calls that were queued on a stream.
    fn pending(&self, calls: &[Call], stream: StreamHandle) -> Result<Pending, ExchangeError> {
        let Some(last) = calls.last() else { return Ok(Pending::done()) };
        let event = self.driver.context().event().map_err(TensorError::from)?;
        event.record_in(stream).map_err(TensorError::from)?;
        let name = CallName { rank: self.rank(), number: self.calls, signature: last.signature() };
        let members: BTreeSet<usize> = calls.iter().flat_map(|call| call.group.ranks.iter().copied()).collect();
        let wait = Wait::new(&Group { ranks: members.into_iter().collect(), position: 0 }, &name);
        let shared = Arc::clone(&self.shared);
        Ok(Pending::of(Queued { event, calls: calls.to_vec(), wait, shared, _scratch: self.scratch.clone() }))
    }

    fn stream(&self, stream: Option<StreamHandle>) -> StreamHandle {
        stream.unwrap_or_else(|| self.driver.stream().handle())
    }

    /// What is written counts as written.
    fn written(calls: &[Call]) {
        calls.iter().filter_map(|call| call.result.as_ref()).for_each(|result| result.memory.set_poisoned(false));
    }
}

/// Lets the other devices reach the memory of tensors of this one: in one process the library copies from one to the other directly.
fn open_memory(device: &DriverDevice) -> Result<(), DriverError> {
    let (table, own) = (device.context().table()?, device.context().device());
    for other in (0..table.device_count()?).map(DeviceOrdinal).filter(|&other| other != own) {
        if table.pool_open.is_some() && table.peer_can_access(other, own)? {
            table.pool_open(own, other)?;
        }
    }
    Ok(())
}

fn transport(error: &NcclError, call: &CallName) -> ExchangeError {
    ExchangeError::Transport { reason: error.to_string(), call: call.clone() }
}

impl Communicator for NcclRank {
    fn rank(&self) -> usize {
        self.board.rank()
    }

    fn ranks(&self) -> usize {
        self.board.ranks()
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        self.check(calls)?;
        let stream = self.stream(stream);
        let outcome = self.attempt(calls, stream).and_then(|()| self.pending(calls, stream));
        self.fails(outcome)
    }

    fn enqueue(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(), ExchangeError> {
        self.check(calls)?;
        let outcome = self.attempt(calls, stream);
        self.fails(outcome)
    }

    fn abort(&mut self, reason: &str) {
        self.shared.fail(reason);
    }
}

impl NcclRank {
    /// All ranks of this process's devices, one each, held by one thread; see [`start_together`].
    pub fn all(nccl: &Nccl, devices: &[Device]) -> Result<Vec<NcclRank>, ExchangeError> {
        let meeting = Meeting::new(devices.len());
        on_threads(devices.iter().enumerate(), |(rank, device)| NcclRank::join(nccl, Arc::new(meeting.seat(rank)), device))
    }
}

/// Does something for each item on a thread of its own: what waits for the others' does not wait for ever.
fn on_threads<I: Send, T: Send>(
    items: impl Iterator<Item = I>,
    work: impl Fn(I) -> Result<T, ExchangeError> + Sync,
) -> Result<Vec<T>, ExchangeError> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Starts one list of calls for each of several ranks that one thread holds, as one: started one after another, the first would wait
/// for the others for ever.
pub fn start_together(ranks: &mut [NcclRank], calls: &[Vec<Call>]) -> Result<Vec<Pending>, ExchangeError> {
    if ranks.len() != calls.len() {
        let reason = format!("{} lists of calls for {} ranks: one list a rank is needed", calls.len(), ranks.len());
        return Err(ExchangeError::Refused { call: "start_together", reason });
    }
    ranks.iter().zip(calls).try_for_each(|(rank, calls)| rank.check(calls))?;
    let prepared = on_threads(ranks.iter_mut().zip(calls), |(rank, calls)| {
        let names = rank.names(calls);
        let comms = rank.ready(calls, &names);
        rank.fails(comms).map(|comms| (names, comms))
    })?;
    let (mut queued, mut streams) = (Vec::new(), Vec::new());
    for ((rank, calls), (_, comms)) in ranks.iter().zip(calls).zip(&prepared) {
        let called = rank.on_comms(calls, comms)?;
        streams.resize(streams.len() + called.len(), rank.stream(None));
        queued.extend(called);
    }
    if let Some(name) = prepared.iter().find_map(|(names, _)| names.first())
        && let Err(error) = queue_nccl(&queued, &streams)
    {
        ranks.iter_mut().for_each(|rank| rank.abort(&error.to_string()));
        return Err(transport(&error, name));
    }
    let mut pending = Vec::new();
    for ((rank, calls), (names, comms)) in ranks.iter_mut().zip(calls).zip(&prepared) {
        let outcome = rank.until_queued(calls, names, comms).and_then(|()| rank.pending(calls, rank.stream(None)));
        let started = rank.fails(outcome)?;
        NcclRank::written(calls);
        pending.push(started);
    }
    Ok(pending)
}

/// Calls on a stream.
struct Queued {
    event: Event,
    calls: Vec<Call>,
    wait: Wait,
    shared: Arc<Shared>,
    _scratch: Tensor,
}

impl Queued {
    fn fails(&self, error: ExchangeError) -> ExchangeError {
        self.shared.fail(&error.to_string());
        error
    }
}

impl Work for Queued {
    fn is_done(&mut self) -> Result<bool, ExchangeError> {
        let reached = self.event.is_reached().map_err(TensorError::from)?;
        // What an aborted communicator left behind is no result.
        if reached && self.shared.failed().is_none() {
            return Ok(true);
        }
        match self.wait.ended(&self.shared) {
            Some(error) => Err(self.fails(error)),
            None => Ok(false),
        }
    }

    fn wait(&mut self) -> Result<(), ExchangeError> {
        let pause = Pause { start: Instant::now() };
        while !self.is_done()? {
            let comms: Vec<NcclComm> = {
                let made = self.shared.comms();
                self.calls.iter().filter_map(|call| made.get(&call.group.ranks).cloned()).collect()
            };
            if let Some(error) = comms.iter().find_map(|comm| comm.is_ready().err()) {
                let blamed = self.wait.blame(&self.shared).unwrap_or_else(|| transport(&error, &self.wait.call));
                return Err(self.fails(blamed));
            }
            pause.take();
        }
        Ok(())
    }
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        if self.shared.failed().is_none() {
            self.shared.tell("left", "");
        }
        // Communicators are given back while the device's context is certainly open.
        drop(std::mem::take(&mut *self.shared.comms()));
    }
}
