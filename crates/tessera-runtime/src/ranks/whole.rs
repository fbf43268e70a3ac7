//! Running all ranks' programs on whole arguments: parts are cut out of them, and what the ranks write is put together in them.

use std::sync::Arc;
use std::time::Duration;

use tessera_compile::CompileOptions;
use tessera_cuda::Nccl;
use tessera_ir::{Diagnostic, Sharding};

use crate::device::{Device, DriverDevice};
use crate::kernel::KernelError;
use crate::launch::LaunchOptions;
use crate::ranks::board::Board;
use crate::ranks::checked::Checked;
use crate::ranks::communicator::Communicator;
use crate::ranks::error::ExchangeError;
use crate::ranks::meeting::Meeting;
use crate::ranks::nccl::NcclRank;
use crate::ranks::nvlink::NvlinkCommunicator;
use crate::ranks::parts::part;
use crate::ranks::program::{RankedKernel, refused};
use crate::ranks::staged::Staged;
use crate::ranks::world::World;
use crate::tensor::Tensor;
use crate::value::Value;

/// More ranks than this are not simulated: each is a thread.
const MAX_SIMULATED: usize = 256;

type Args<'a> = Vec<(&'a str, Value)>;

impl RankedKernel {
    /// Runs the programs of all ranks on threads of this process, on one device or the CPU. They exchange on the CPU.
    pub fn run(
        &self,
        args: &[(&str, Value)],
        device: &Device,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        let count = self.program.mesh.ranks();
        if count > MAX_SIMULATED {
            let message = format!("`{}` is for {count} ranks, and {MAX_SIMULATED} can be simulated", self.name);
            return Err(refused(Diagnostic::bare("ranks", message).help("make the mesh smaller: shardings stay as they are")));
        }
        let meeting = Meeting::new(count);
        self.on_threads(args, |rank, own| {
            self.run_through(&mut meeting.rank(rank), Arc::new(meeting.seat(rank)), own, device, options)
        })
    }

    /// Runs a rank's program with a communicator, whose calls are compared first where that was asked for.
    fn run_through(
        &self,
        communicator: &mut dyn Communicator,
        board: Arc<dyn Board>,
        own: &[(&str, Value)],
        device: &Device,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        let rank = board.rank();
        let outcome = match self.checks_calls {
            true => self.run_rank(rank, own, &mut Checked::new(&mut *communicator, board), device, options),
            false => self.run_rank(rank, own, communicator, device, options),
        };
        outcome.inspect_err(|error| communicator.abort(&error.to_string()))
    }

    /// Runs the programs of all ranks on threads of this process, each on a device of its own. They exchange by NCCL.
    pub fn run_on(
        &self,
        args: &[(&str, Value)],
        devices: &[Device],
        nccl: &Nccl,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        let meeting = self.meeting_of(devices.len())?;
        self.on_threads(args, |rank, own| {
            let device = &devices[rank];
            moved(own, device)?;
            let seat: Arc<dyn Board> = Arc::new(meeting.seat(rank));
            let joined = NcclRank::join(nccl, Arc::clone(&seat), device);
            let mut end = joined.inspect_err(|error| seat.leave(&error.to_string()))?;
            self.run_through(&mut end, seat, own, device, options)
        })
    }

    /// The same without NCCL, on devices that reach each other's memory: they exchange by our own kernels what these can, and the rest by way of the CPU.
    /// `limit` is how long a kernel waits for another rank.
    pub fn run_on_peers(
        &self,
        args: &[(&str, Value)],
        devices: &[DriverDevice],
        limit: Duration,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        let meeting = self.meeting_of(devices.len())?;
        self.on_threads(args, |rank, own| {
            let device = Device::Driver(devices[rank].clone());
            moved(own, &device)?;
            let seat: Arc<dyn Board> = Arc::new(meeting.seat(rank));
            let inner = Box::new(Staged::new(Box::new(meeting.rank(rank)), &devices[rank]));
            let joined = NvlinkCommunicator::over(inner, limit);
            let mut end = joined.inspect_err(|error| seat.leave(&error.to_string()))?;
            self.run_through(&mut end, seat, own, &device, options)?;
            // The others' kernels may still write into this one's memory.
            let world = end.world();
            Ok(end.barrier(&world)?)
        })
    }

    /// A meeting of the ranks, each of which has one of so many devices.
    fn meeting_of(&self, devices: usize) -> Result<Meeting, KernelError> {
        let count = self.program.mesh.ranks();
        if devices < count {
            let message = format!("`{}` is for {count} ranks, and {devices} devices are given", self.name);
            let help = "make the mesh smaller, or start a process a device on several hosts";
            return Err(refused(Diagnostic::bare("ranks", message).help(help)));
        }
        Ok(Meeting::new(count))
    }

    /// Runs one rank's program in this process, as all processes of a world do with the same arguments. On a CUDA device they exchange by NCCL, on
    /// the CPU over TCP. Rank 0 has the results in its arguments afterwards.
    pub fn run_as_rank(
        &self,
        world: &World,
        args: &[(&str, Value)],
        device: &Device,
        nccl: Option<&Nccl>,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        self.expect_arguments(args)?;
        let (rank, count) = (world.rank(), self.program.mesh.ranks());
        if world.ranks() != count {
            let message = format!("`{}` is for {count} ranks, and {} processes were started", self.name, world.ranks());
            return Err(refused(Diagnostic::bare("ranks", message).help("start as many processes as the mesh has ranks")));
        }
        let mut own = self.parts_of(rank, args)?;
        moved(&mut own, device)?;
        let mut tcp = world.tcp().map_err(ExchangeError::from)?;
        let board: Arc<dyn Board> = Arc::new(world.clone());
        match (device, nccl) {
            (Device::Cpu, _) => self.run_through(&mut tcp, board, &own, device, options)?,
            (Device::Driver(_), Some(nccl)) => {
                let mut end = NcclRank::join(nccl, Arc::clone(&board), device)?;
                self.run_through(&mut end, board, &own, device, options)?;
            }
            (Device::Driver(_), None) => {
                let message = "ranks on devices exchange by NCCL, which is not given";
                return Err(refused(Diagnostic::bare("ranks", message).help("run on the CPU, or load NCCL")));
            }
        }
        self.send_results(args, &own, &mut tcp)
    }

    /// Sends the parts of results to rank 0, which puts them together.
    fn send_results(&self, args: &[(&str, Value)], own: &[(&str, Value)], tcp: &mut dyn Communicator) -> Result<(), KernelError> {
        for (at, param) in self.program.params.iter().enumerate().filter(|(at, _)| self.program.written[*at]) {
            let (Some(whole), Some(part)) = (tensor_of(args, &param.name), tensor_of(own, &param.name)) else { continue };
            let part = part.to_device(&Device::Cpu).and_then(|part| part.contiguous()).map_err(ExchangeError::from)?;
            if tcp.rank() != 0 {
                if self.program.shardings[at].is_some() {
                    tcp.send(0, &part)?.wait()?;
                }
                continue;
            }
            self.place(at, 0, &whole, &part)?;
            for rank in 1..tcp.ranks() {
                if self.program.shardings[at].is_some() {
                    let theirs = part.same_shape()?;
                    tcp.recv(rank, &theirs)?.wait()?;
                    self.place(at, rank, &whole, &theirs)?;
                }
            }
        }
        Ok(())
    }

    /// Runs `work` for every rank on a thread with the rank's parts, and puts results together.
    fn on_threads(
        &self,
        args: &[(&str, Value)],
        work: impl Fn(usize, &mut Args<'_>) -> Result<(), KernelError> + Sync,
    ) -> Result<(), KernelError> {
        self.expect_arguments(args)?;
        let count = self.program.mesh.ranks();
        let mut parts: Vec<Args<'_>> = (0..count).map(|rank| self.parts_of(rank, args)).collect::<Result<_, _>>()?;
        let outcomes: Vec<Result<(), KernelError>> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = parts.iter_mut().enumerate().map(|(rank, own)| scope.spawn(move || work(rank, own))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        // A rank that failed by itself says more than those who waited for it.
        let waited = |error: &KernelError| matches!(error, KernelError::Exchange(error) if error.is_of_another());
        let mut failures: Vec<KernelError> = outcomes.into_iter().filter_map(Result::err).collect();
        failures.sort_by_key(waited);
        if let Some(first) = failures.into_iter().next() {
            return Err(first);
        }
        for (at, param) in self.program.params.iter().enumerate().filter(|(at, _)| self.program.written[*at]) {
            let Some(whole) = tensor_of(args, &param.name) else { continue };
            for (rank, own) in parts.iter().enumerate() {
                if let Some(part) = tensor_of(own, &param.name) {
                    self.place(at, rank, &whole, &part)?;
                }
            }
        }
        Ok(())
    }

    /// A rank's arguments.
    fn parts_of<'a>(&self, rank: usize, args: &[(&'a str, Value)]) -> Result<Args<'a>, KernelError> {
        args.iter().map(|(name, value)| Ok((*name, self.part_of(rank, name, value)?))).collect()
    }

    /// A rank's part of an argument, in memory of its own where the rank writes it.
    fn part_of(&self, rank: usize, name: &str, value: &Value) -> Result<Value, KernelError> {
        let at = self.program.params.iter().position(|param| param.name == name);
        let (Value::Tensor(tensor), Some(at)) = (value, at) else { return Ok(value.clone()) };
        let sharding = self.program.shardings[at].as_ref().filter(|sharding| !sharding.is_whole());
        let view = match sharding {
            Some(sharding) => {
                self.expect_parts(name, tensor, sharding)?;
                self.view(rank, tensor, sharding)?
            }
            None => tensor.clone(),
        };
        if sharding.is_none() && !self.program.written[at] {
            return Ok(value.clone());
        }
        Ok(Value::Tensor(view.contiguous().map_err(ExchangeError::from)?))
    }

    /// Refuses an array that has no equal parts for all ranks.
    fn expect_parts(&self, name: &str, tensor: &Tensor, sharding: &Sharding) -> Result<(), KernelError> {
        for (axis, dim) in sharding.dims.iter().enumerate() {
            let Some(by) = dim.as_ref().and_then(|name| self.program.mesh.axis(name)) else { continue };
            let (extent, count) = (tensor.shape()[axis], by.size as usize);
            if !extent.is_multiple_of(count) {
                let message = format!(
                    "axis {axis} of `{name}`, {:?}, does not divide by the {count} ranks of `{}`",
                    tensor.shape(),
                    by.name
                );
                let help = format!("pad it to {}, or ask for another number of ranks", extent.next_multiple_of(count));
                return Err(refused(Diagnostic::bare("ranks", message).help(help)));
            }
        }
        Ok(())
    }

    /// The view of a rank's part.
    fn view(&self, rank: usize, tensor: &Tensor, sharding: &Sharding) -> Result<Tensor, ExchangeError> {
        let mut view = tensor.clone();
        for (axis, dim) in sharding.dims.iter().enumerate() {
            if let Some(by) = dim.as_ref().and_then(|name| self.program.mesh.axis(name)) {
                view = part(&view, axis, by.size as usize, self.program.mesh.position(rank, &by.name))?;
            }
        }
        Ok(view)
    }

    /// Puts a rank's part of a result where it belongs.
    fn place(&self, at: usize, rank: usize, whole: &Tensor, part: &Tensor) -> Result<(), KernelError> {
        whole.memory.set_poisoned(false);
        let place = match self.program.shardings[at].as_ref() {
            Some(sharding) => self.view(rank, whole, sharding)?,
            // Every rank has the same.
            None if rank == 0 => whole.clone(),
            None => return Ok(()),
        };
        Ok(place.copy_from(part).map_err(ExchangeError::from)?)
    }
}

fn tensor_of(args: &[(&str, Value)], name: &str) -> Option<Tensor> {
    match args.iter().find(|(own, _)| *own == name) {
        Some((_, Value::Tensor(tensor))) => Some(tensor.clone()),
        _ => None,
    }
}

/// Moves arguments to a device.
fn moved(args: &mut Args<'_>, device: &Device) -> Result<(), ExchangeError> {
    for (_, value) in args.iter_mut() {
        if let Value::Tensor(tensor) = value {
            *tensor = tensor.to_device(device)?;
        }
    }
    Ok(())
}
