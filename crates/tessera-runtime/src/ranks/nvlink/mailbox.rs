//! A rank's mailbox: memory into which the other ranks put parts of what it is to compute with, and flags that say what has come.
//!
//! Nothing here takes multiprocessors from what is computed meanwhile: parts come by copy engines ([`Mailbox::send`]), and flags by the stream that
//! copies. A kernel of one warp waits for them, between others ([`Mailbox::await_ranks`]), and ends when a rank does not come.
//!
//! There are two sets of parts, which take turns. What a rank does in a call waits for something that every other one does in it, of its own or by way of
//! others; so what a rank writes in a call comes when the call before the last has been done by all, and that was the last one to read where it
//! writes. A rank that waited in vain tells all others, before it sends what it made of nothing.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tessera_compile::CompileOptions;
use tessera_driver::{DevicePtr, Event, Stream};
use tessera_launch::{Argument, LaunchGrid};
use tessera_types::{DType, packed_bytes};

use super::communicator::looks;
use super::region::{FLAGS, HEADER_BYTES, Layout, SymmetricMemory};
use super::variant::{FILE, MOST_RANKS, SOURCE};
use crate::device::DriverDevice;
use crate::error::{DeviceError, TensorError};
use crate::kernel::{Kernel, KernelError, Later, Often};
use crate::ranks::call::CallName;
use crate::ranks::communicator::Communicator;
use crate::ranks::error::ExchangeError;
use crate::tensor::Tensor;
use crate::value::Value;

/// Threads of the kernel that waits, each for a flag.
const THREADS: u32 = 32;

/// One rank's mailbox, and its way to those of the others.
pub struct Mailbox {
    memory: Arc<SymmetricMemory>,
    /// The stream that copies: one copy engine is as fast as several, which get in each other's way.
    lane: Stream,
    /// Reached when what is copied has been made, and when all was copied.
    made: Event,
    copied: Event,
    /// Steps of a call.
    steps: u32,
    limit: Duration,
    awaiting: Often,
    calls: u32,
}

/// Which of the two sets a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(usize);

impl Turn {
    /// Both, in the order of calls.
    pub const BOTH: [Turn; 2] = [Turn(0), Turn(1)];

    /// Its place among them.
    pub fn index(self) -> usize {
        self.0
    }
}

impl Mailbox {
    /// The mailbox of this rank, of so many bytes a set, and its way to those of all ranks of `others`, which are on this machine and all ask for as much.
    /// A call has `steps` steps, from 1 on, to which each rank comes. `limit` is how long a kernel waits for another rank.
    ///
    /// # Errors
    /// Those of [`SymmetricMemory::meet`], and more than [`MOST_RANKS`] ranks.
    pub fn meet(
        device: &DriverDevice,
        bytes: u64,
        steps: u32,
        others: &mut dyn Communicator,
        limit: Duration,
    ) -> Result<Mailbox, ExchangeError> {
        if others.ranks() > MOST_RANKS {
            let reason = format!("a mailbox has flags of {MOST_RANKS} ranks, and there are {}", others.ranks());
            return Err(ExchangeError::Mismatch { reason });
        }
        let layout = Layout { lines_bytes: 0, set_bytes: bytes.next_multiple_of(Mailbox::ALIGN) };
        let memory = Arc::new(SymmetricMemory::meet(device, layout, others)?);
        let name = CallName { rank: others.rank(), number: 0, signature: "a mailbox".to_string() };
        let awaiting = prepare(&memory).map_err(|error| ExchangeError::Transport { reason: error.to_string(), call: name })?;
        let context = device.context();
        let lane = context.stream().map_err(TensorError::from)?;
        let [made, copied] = [context.event().map_err(TensorError::from)?, context.event().map_err(TensorError::from)?];
        Ok(Mailbox { memory, lane, made, copied, steps, limit, awaiting, calls: 0 })
    }

    /// Parts begin at multiples of so many bytes.
    pub const ALIGN: u64 = 256;

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.memory.ranks()
    }

    /// Whose it is.
    pub fn rank(&self) -> usize {
        self.memory.rank()
    }

    /// Begins a call: the set that it has.
    pub fn begin(&mut self) -> Turn {
        self.calls = self.calls.wrapping_add(1);
        Turn(self.calls as usize % 2)
    }

    /// An array in a rank's mailbox, `at` bytes behind the start of a set, as this rank's kernels see it.
    ///
    /// # Errors
    /// An array that has no place there.
    pub fn tensor(&self, rank: usize, turn: Turn, at: u64, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let bytes = packed_bytes(dtype, shape.iter().product());
        let set = self.memory.layout().set_bytes;
        if at + bytes as u64 > set {
            return Err(TensorError::View {
                what: format!("{bytes} bytes from {at} of a mailbox of {set}"),
                shape: shape.to_vec(),
            });
        }
        let strides: Vec<usize> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        let owner = Box::new(Arc::clone(&self.memory));
        Tensor::kept_by(self.memory.device(), self.place(rank, turn, at), dtype, shape, &strides, owner)
    }

    /// Queues a copy of an array, whose elements lie in a row, into a rank's mailbox, `at` bytes behind the start of the call's set, and tells the rank that
    /// this rank has come to a step. The copy begins when what was queued on the device's stream before is done, and runs beside what is queued
    /// there next.
    ///
    /// # Errors
    /// An array that is not in a row, and what the driver refuses.
    pub fn send(&self, array: &Tensor, rank: usize, turn: Turn, at: u64, step: u32) -> Result<(), TensorError> {
        let what = || "elements that are not in a row".to_string();
        let from = array.is_contiguous().then(|| array.device_pointer()).flatten();
        let from = from.ok_or_else(|| TensorError::View { what: what(), shape: array.shape().to_vec() })?;
        let device = self.memory.device();
        self.made.record(device.stream())?;
        self.lane.wait(&self.made)?;
        let bytes = packed_bytes(array.dtype(), array.len()) as u64;
        device.context().table()?.copy_on_device(self.place(rank, turn, at), from, bytes, self.lane.handle())?;
        Ok(self.lane.write_value(self.flag_of(rank), self.number(step))?)
    }

    /// What is queued on the device's stream next waits for the copies: their arrays may be written again.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn sent(&self) -> Result<(), TensorError> {
        self.copied.record(&self.lane)?;
        Ok(self.memory.device().stream().wait(&self.copied)?)
    }

    /// What is queued on the device's stream next waits until some ranks have come to a step of this call. To step `n` a rank has `n` times the limit: one that
    /// waits before it sends on can say first who did not come.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn await_ranks(&self, ranks: Range<usize>, step: u32) -> Result<(), ExchangeError> {
        let changes: Vec<(&str, Argument<_>)> = self
            .numbers(&ranks, step)
            .into_iter()
            .map(|(name, number)| (name, Argument::Constant(tessera_launch::Constant::Int(number))))
            .collect();
        let failed = |error: DeviceError| ExchangeError::Transport { reason: error.to_string(), call: self.name() };
        self.awaiting.prepared.enqueue(self.memory.device().stream().handle(), &changes).map_err(failed)
    }

    /// An address behind the start of a rank's set, as this rank's device sees it.
    fn place(&self, rank: usize, turn: Turn, at: u64) -> DevicePtr {
        DevicePtr(self.memory.address_of(rank) + HEADER_BYTES + turn.index() as u64 * self.memory.layout().set_bytes + at)
    }

    /// The same of the flag that this rank has there.
    fn flag_of(&self, rank: usize) -> DevicePtr {
        DevicePtr(self.memory.address_of(rank) + 4 * (FLAGS + self.rank() as u64))
    }

    /// What a flag holds when its rank has come to a step of this call.
    fn number(&self, step: u32) -> u32 {
        self.calls.wrapping_mul(self.steps).wrapping_add(step)
    }

    fn numbers(&self, ranks: &Range<usize>, step: u32) -> [(&'static str, i64); 5] {
        [
            ("call", i64::from(self.number(step).cast_signed())),
            ("polls", i64::from(looks(self.limit.saturating_mul(step)))),
            ("first", ranks.start as i64),
            ("count", ranks.len() as i64),
            ("own", self.rank() as i64),
        ]
    }

    /// Whether all ranks came in time, once the stream that waited was waited for.
    ///
    /// # Errors
    /// The rank that did not: nothing can be done with the mailbox after that.
    pub fn check(&self) -> Result<(), ExchangeError> {
        let Some(rank) = self.memory.missing()? else { return Ok(()) };
        let detail = "; its parts did not come".to_string();
        Err(ExchangeError::Late { ranks: vec![rank], waited: self.limit, detail, call: self.name() })
    }

    fn name(&self) -> CallName {
        let signature = "parts that come while others are computed with".to_string();
        CallName { rank: self.rank(), number: u64::from(self.calls), signature }
    }
}

fn prepare(memory: &SymmetricMemory) -> Result<Often, KernelError> {
    let options = CompileOptions { block: Some(THREADS), ..CompileOptions::default() };
    let kernel = Kernel::from_source(FILE, SOURCE, "await_ranks")?;
    let (region, table) = memory.places();
    let known = [("region", region.cast_signed()), ("table", table.cast_signed()), ("ranks", memory.ranks() as i64)];
    let zeros = ["call", "polls", "first", "count", "own"].map(|name| (name, 0));
    let arguments: Vec<(&str, Value)> = known.into_iter().chain(zeros).map(|(name, number)| (name, Value::Int(number))).collect();
    kernel.prepare_often(&arguments, (LaunchGrid::Blocks([1; 3]), Later::Any), &options, memory.device())
}
