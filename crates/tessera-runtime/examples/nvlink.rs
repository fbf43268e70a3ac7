//! Own kernels over NVLink on all GPUs of this machine, or on emulated devices: checked first, then timed.
//!
//! ```text
//! nvlink [--device cuda|emu] [--ranks N] [--share] [--check-only] [--seconds S]
//! ```
//! Each algorithm is checked with integers, whose sums are exact, and all ranks' bits are compared; then each size is timed with each
//! algorithm that has room for it and with NCCL where it can be loaded, 20 calls in a graph, and the slowest rank's time is printed.
//! Everything ends after `--seconds`. With `--share` there may be more ranks than GPUs: they take the GPUs by turns, and exchange through their memory. That
//! checks the kernels on a machine with one GPU; times are not those of NVLink.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tessera_emu::EmuOptions;
use tessera_runtime::ranks::nvlink::{Algorithm, Choice, Layout, NvlinkCommunicator, SymmetricMemory};
use tessera_runtime::ranks::{Call, Communicator, Group, Meeting, NcclRank, Operation, Reduction};
use tessera_runtime::{Device, DriverDevice, Knobs, Tensor};
use tessera_types::DType;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Calls of a graph.
const CALLS: usize = 20;
/// Graphs that are timed; the median counts.
const SAMPLES: usize = 25;

struct Asked {
    emulated: bool,
    ranks: Option<usize>,
    share: bool,
    check_only: bool,
    seconds: u64,
}

fn asked() -> Outcome<Asked> {
    let mut asked = Asked { emulated: false, ranks: None, share: false, check_only: false, seconds: 240 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` misses its value"));
        match word.as_str() {
            "--device" => asked.emulated = value()? == "emu",
            "--ranks" => asked.ranks = Some(value()?.parse()?),
            "--share" => asked.share = true,
            "--check-only" => asked.check_only = true,
            "--seconds" => asked.seconds = value()?.parse()?,
            _ => return Err(format!("`{word}` is no option: --device, --ranks, --share, --check-only, --seconds").into()),
        }
    }
    Ok(asked)
}

fn devices(asked: &Asked) -> Outcome<Vec<DriverDevice>> {
    let (table, wanted) = match asked.emulated {
        true => {
            let ranks = asked.ranks.unwrap_or(2);
            let options = EmuOptions { devices: ranks as u32, multiprocessors: Some(8), ..EmuOptions::default() };
            (Arc::new(tessera_emu::driver(&options)?), ranks)
        }
        false => {
            let table = Arc::new(tessera_cuda::driver()?);
            let count = table.device_count()? as usize;
            (table, asked.ranks.unwrap_or(count))
        }
    };
    let count = if asked.share { table.device_count()?.max(1) } else { u32::MAX };
    (0..wanted as u32).map(|rank| Ok(DriverDevice::open(Arc::clone(&table), rank % count)?)).collect()
}

/// The choice that takes one algorithm for everything.
fn only(algorithm: Algorithm) -> Choice {
    let all = u64::MAX;
    match algorithm {
        Algorithm::SmallAllReduce => Choice { small: all, ..Choice::NONE },
        Algorithm::OneShotAllReduce => Choice { one_shot: all, ..Choice::NONE },
        Algorithm::TwoShotAllReduce => Choice { two_shot: all, ..Choice::NONE },
        Algorithm::ReduceScatter => Choice { reduce_scatter: all, ..Choice::NONE },
        Algorithm::AllGather => Choice { all_gather: all, ..Choice::NONE },
    }
}

/// One rank of one algorithm.
struct Rank {
    communicator: NvlinkCommunicator,
    device: Device,
    group: Group,
    algorithm: Algorithm,
}

impl Rank {
    fn operation(&self) -> Operation {
        match self.algorithm {
            Algorithm::ReduceScatter => Operation::ReduceScatter(Reduction::Sum),
            Algorithm::AllGather => Operation::AllGather,
            _ => Operation::AllReduce(Reduction::Sum),
        }
    }

    /// A call whose larger tensor has so many elements.
    fn call(&self, dtype: DType, elements: usize) -> Outcome<Call> {
        let ranks = self.group.size();
        let (given, gets) = match self.algorithm {
            Algorithm::ReduceScatter => (elements, elements / ranks),
            Algorithm::AllGather => (elements / ranks, elements),
            _ => (elements, elements),
        };
        let values = given_by(self.group.position, given);
        let source = Tensor::from_bytes(dtype, &[given], &encoded(dtype, &values))?.to_device(&self.device)?;
        let result = Tensor::zeros_on(dtype, &[gets], &self.device)?;
        Ok(Call::new(self.operation(), &self.group, Some(&source), Some(&result)))
    }

    fn expected(&self, elements: usize) -> Vec<i32> {
        let ranks = self.group.size();
        let given = if self.algorithm == Algorithm::AllGather { elements / ranks } else { elements };
        let all: Vec<Vec<i32>> = (0..ranks).map(|rank| given_by(rank, given)).collect();
        let sums = || (0..given).map(|at| all.iter().map(|values| values[at]).sum()).collect::<Vec<i32>>();
        match self.algorithm {
            Algorithm::AllGather => all.concat(),
            Algorithm::ReduceScatter => {
                let part = elements / ranks;
                sums()[self.group.position * part..][..part].to_vec()
            }
            _ => sums(),
        }
    }

    fn check(&mut self, dtype: DType, elements: usize) -> Outcome<()> {
        let call = self.call(dtype, elements)?;
        let expected = encoded(dtype, &self.expected(elements));
        // Several in a row: sets take turns.
        for _ in 0..3 {
            self.communicator.start(std::slice::from_ref(&call), None)?.wait()?;
            let found = call.result.as_ref().ok_or("no result")?.to_bytes()?;
            if let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                let rank = self.group.position;
                return Err(format!("rank {rank}: {:?}, {elements} of {dtype}: byte {at} is wrong", self.algorithm).into());
            }
        }
        Ok(())
    }

    /// Microseconds of a call, in graphs.
    fn time(&mut self, dtype: DType, elements: usize, together: &Barrier) -> Outcome<f64> {
        let call = self.call(dtype, elements)?;
        let device = self.device.driver().ok_or("no device")?.clone();
        device.synchronize()?;
        let stream = device.context().stream()?;
        let mut queue = || -> Outcome<()> { Ok(self.communicator.enqueue(std::slice::from_ref(&call), stream.handle())?) };
        queue()?;
        stream.synchronize()?;
        let mut queued = Ok(());
        let graph = stream.record(|| {
            queued = (0..CALLS).try_for_each(|_| queue());
            Ok(())
        })?;
        queued?;
        let events: Vec<_> = (0..SAMPLES)
            .map(|_| Ok((device.context().event()?, device.context().event()?)))
            .collect::<Result<_, tessera_driver::DriverError>>()?;
        together.wait();
        graph.launch(&stream)?;
        for (start, end) in &events {
            start.record(&stream)?;
            graph.launch(&stream)?;
            end.record(&stream)?;
        }
        stream.synchronize()?;
        self.communicator.check()?;
        let mut times: Vec<f64> = events
            .iter()
            .map(|(start, end)| Ok(f64::from(end.elapsed_ms_since(start)?) * 1e3 / CALLS as f64))
            .collect::<Result<_, tessera_driver::DriverError>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

/// Small integers, whose sums are exact in every type.
fn given_by(rank: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|at| ((at * 7 + rank * 5 + at / 13) % 15) as i32 - 7).collect()
}

fn encoded(dtype: DType, values: &[i32]) -> Vec<u8> {
    use tessera_types::element::{f64_to_bf16, f64_to_f16};
    values
        .iter()
        .flat_map(|&value| match dtype {
            DType::I32 => value.to_le_bytes().to_vec(),
            DType::F16 => f64_to_f16(value.into()).to_le_bytes().to_vec(),
            DType::BF16 => f64_to_bf16(value.into()).to_le_bytes().to_vec(),
            _ => (value as f32).to_le_bytes().to_vec(),
        })
        .collect()
}

/// Who does calls that the kernels are not asked for.
type Inner = Box<dyn Communicator>;

/// What every rank does, each on a thread; the results in the order of ranks.
fn on_ranks<T: Send>(
    devices: &[DriverDevice],
    (algorithm, choice, inner): (Algorithm, Choice, Vec<Inner>),
    work: impl Fn(&mut Rank, &Barrier) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    let ranks = devices.len();
    let regions = SymmetricMemory::of_devices(devices, Layout::default())?;
    let (together, work) = (&Barrier::new(ranks), &work);
    let one = |(rank, memory): (usize, SymmetricMemory), inner: Inner| {
        let device = Device::Driver(devices[rank].clone());
        let communicator = NvlinkCommunicator::new(inner, memory, choice, Duration::from_secs(10))?;
        work(&mut Rank { communicator, device, group: Group::world(rank, ranks), algorithm }, together)
    };
    let one = &one;
    std::thread::scope(|scope| {
        let start = |(own, inner)| scope.spawn(move || one(own, inner));
        let threads: Vec<_> = regions.into_iter().enumerate().zip(inner).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".into()))).collect()
    })
}

/// Ranks on the CPU: nothing is left to them.
fn nobody(ranks: usize) -> Vec<Inner> {
    let meeting = Meeting::new(ranks);
    (0..ranks).map(|rank| Box::new(meeting.rank(rank)) as Inner).collect()
}

fn nccl(devices: &[DriverDevice]) -> Outcome<Vec<Inner>> {
    let devices: Vec<Device> = devices.iter().cloned().map(Device::Driver).collect();
    Ok(NcclRank::all(&Knobs::nccl()?, &devices)?.into_iter().map(|rank| Box::new(rank) as Inner).collect())
}

/// Prints the slowest rank's time of calls whose larger tensor has so many bytes.
fn tell_times(name: &str, devices: &[DriverDevice], how: (Algorithm, Choice, Vec<Inner>), sizes: &[usize]) -> Outcome<()> {
    let times = on_ranks(devices, how, |rank, together| {
        sizes
            .iter()
            .map(|bytes| rank.time(DType::BF16, (bytes / 2).next_multiple_of(devices.len()), together))
            .collect::<Outcome<Vec<f64>>>()
    })?;
    for (at, bytes) in sizes.iter().enumerate() {
        let slowest = times.iter().map(|times| times[at]).fold(0.0, f64::max);
        println!("{name:<20} {:>9} KiB {slowest:>9.2} us  {:>7.1} GB/s", bytes >> 10, *bytes as f64 / slowest / 1e3);
    }
    Ok(())
}

/// Whether the default layout has room for a call whose larger tensor has so many bytes.
fn has_room(algorithm: Algorithm, bytes: usize, ranks: usize) -> bool {
    let layout = Layout::default();
    let part = if matches!(algorithm, Algorithm::ReduceScatter | Algorithm::AllGather) { bytes / ranks } else { bytes };
    let room = if algorithm == Algorithm::SmallAllReduce { layout.lines_bytes } else { layout.set_bytes };
    algorithm.set_bytes(part as u64, ranks as u64) <= room
}

fn run(asked: &Asked) -> Outcome<()> {
    let devices = devices(asked)?;
    let ranks = devices.len();
    println!("{ranks} x {}", devices[0].name());
    let dtypes = [DType::F32, DType::F16, DType::BF16, DType::I32];
    let sizes: &[usize] = if asked.emulated { &[8, 250, 1000] } else { &[1, 7, 1000, 4096, 100_003, 1 << 20] };
    for algorithm in Algorithm::ALL {
        on_ranks(&devices, (algorithm, only(algorithm), nobody(ranks)), |rank, _| {
            for dtype in dtypes {
                for &size in sizes {
                    let elements = size.next_multiple_of(ranks);
                    if has_room(algorithm, 4 * elements, ranks) {
                        rank.check(dtype, elements)?;
                    }
                }
            }
            Ok(())
        })?;
        println!("{}: right on all ranks", algorithm.name());
    }
    if asked.check_only {
        return Ok(());
    }
    println!("bf16, {CALLS} calls in a graph, the slowest rank's median of {SAMPLES}");
    let powers = [12, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24];
    for algorithm in Algorithm::ALL {
        let sizes: Vec<usize> =
            powers.iter().map(|power| 1 << power).filter(|&bytes| has_room(algorithm, bytes, ranks)).collect();
        tell_times(algorithm.name(), &devices, (algorithm, only(algorithm), nobody(ranks)), &sizes)?;
    }
    let sizes: Vec<usize> = powers.iter().chain(&[26]).map(|power| 1 << power).collect();
    for algorithm in [Algorithm::TwoShotAllReduce, Algorithm::ReduceScatter, Algorithm::AllGather] {
        match nccl(&devices) {
            Ok(inner) => {
                let name = format!("NCCL {}", algorithm.name().replace("two_shot_", ""));
                tell_times(&name, &devices, (algorithm, Choice::NONE, inner), &sizes)?;
            }
            Err(why) => {
                println!("NCCL is not compared with: {why}");
                break;
            }
        }
    }
    Ok(())
}

fn main() {
    let outcome = asked().and_then(|asked| {
        let limit = Duration::from_secs(asked.seconds);
        std::thread::spawn(move || {
            std::thread::sleep(limit);
            eprintln!("not done after {} s", limit.as_secs());
            std::process::exit(3);
        });
        run(&asked)
    });
    if let Err(error) = outcome {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
