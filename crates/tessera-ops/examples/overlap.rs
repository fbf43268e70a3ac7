//! What computing while exchanging gains on all GPUs of this machine: the programs of `tessera_ops::ranked` beside their two parts.
//!
//! ```text
//! overlap RANKS [EXTENT]        a GPU a rank; matrices of 8192 x 8192 in bf16 when absent
//! ```
//! Each program is compared with its parts one after the other, then all take turns, 15 times each, 10 in a row; printed are the slowest rank's medians
//! by the device's clock: of NCCL's exchange, of the whole product, of the ring over NCCL, and of the program over memory that ranks reach, with
//! what that takes of the longer part and 10 us.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tessera_ops::ranked::{GatheredProduct, ScatteredProduct, gathered_product, scattered_product};
use tessera_ops::{Call, find};
use tessera_runtime::ranks::{Call as Exchange, Communicator, Group, Meeting, NcclRank, Operation, Reduction};
use tessera_runtime::{CompileOptions, Device, DriverDevice, Knobs, PreparedLaunch, RandomStream, Tensor};
use tessera_types::DType;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Queues something once on the device's stream.
type Work<'w> = dyn FnMut(&mut NcclRank) -> Outcome<()> + 'w;

const TURNS: usize = 15;
/// Times that a thing is queued in a turn.
const TIMES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// One rank's end of what is measured.
struct Rank<'a> {
    end: NcclRank,
    group: Group,
    extent: usize,
    together: &'a Barrier,
}

/// A program and the parts of which it is made: microseconds.
struct Shown {
    name: &'static str,
    exchange: f64,
    product: f64,
    ring: f64,
    program: f64,
}

fn product(a: &Tensor, b: &Tensor, c: &Tensor) -> Outcome<Vec<PreparedLaunch>> {
    let tensors = vec![("A", a.clone()), ("B", b.clone()), ("C", c.clone())];
    let resolved = find("gemm").ok_or("there is no `gemm`")?.resolve(&Call { tensors, ..Call::default() })?;
    Ok(resolved.prepare(std::slice::from_ref(c), &CompileOptions::default())?)
}

fn queue(launches: &[PreparedLaunch]) -> Outcome<()> {
    launches.iter().try_for_each(|launch| Ok(launch.on_device().ok_or("a launch is not on a device")?.enqueue()?))
}

/// How far two arrays are from each other, as a part of the largest number.
fn apart(one: &Tensor, other: &Tensor) -> Outcome<f64> {
    let numbers = |tensor: &Tensor| Ok::<_, Box<dyn Error + Send + Sync>>(tensor.to_device(&Device::Cpu)?.to_f64()?);
    let (one, other) = (numbers(one)?, numbers(other)?);
    let largest = one.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    Ok(one.iter().zip(&other).fold(0.0, |most: f64, (one, other)| most.max((one - other).abs())) / largest)
}

/// Sums are rounded to bf16 once a rank.
fn near(name: &str, one: &Tensor, other: &Tensor) -> Outcome<()> {
    match apart(one, other)? {
        distance if distance <= 2e-2 => Ok(()),
        distance => Err(format!("{name}: {distance:e} from its parts").into()),
    }
}

impl Rank<'_> {
    fn device(&self) -> Outcome<DriverDevice> {
        Ok(self.end.device().driver().ok_or("no device")?.clone())
    }

    fn array(&self, shape: &[usize], seed: u64) -> Outcome<Tensor> {
        let stream = RandomStream::named(seed, &format!("rank {}", self.group.position));
        Ok(stream.randn(DType::BF16, shape)?.to_device(self.end.device())?)
    }

    fn zeros(&self, shape: &[usize]) -> Outcome<Tensor> {
        Ok(Tensor::zeros_on(DType::BF16, shape, self.end.device())?)
    }

    /// Medians in microseconds of things that take turns, each queued often; all ranks begin each together.
    fn medians<const N: usize>(&mut self, mut work: [Box<Work<'_>>; N]) -> Outcome<[f64; N]> {
        let mut times = [(); N].map(|()| Vec::new());
        let device = self.device()?;
        let (start, end) = (device.context().event()?, device.context().event()?);
        for turn in 0..TURNS + 2 {
            for (work, times) in work.iter_mut().zip(&mut times) {
                work(&mut self.end)?;
                device.synchronize()?;
                self.together.wait();
                // Not timed: behind it the host is ahead.
                work(&mut self.end)?;
                start.record(device.stream())?;
                (0..TIMES).try_for_each(|_| work(&mut self.end))?;
                end.record(device.stream())?;
                device.synchronize()?;
                // The first turns compile and connect.
                if turn >= 2 {
                    times.push(f64::from(end.elapsed_ms_since(&start)?) * 1e3 / TIMES as f64);
                }
            }
        }
        Ok(times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }))
    }

    fn gathered(&mut self) -> Outcome<Shown> {
        let (ranks, extent) = (self.group.size(), self.extent);
        let (a, b) = (self.array(&[extent / ranks, extent], 1)?, self.array(&[extent, extent / ranks], 2)?);
        let (whole, c, mailed) =
            (self.zeros(&[extent, extent])?, self.zeros(&[extent, extent / ranks])?, self.zeros(&[extent, extent / ranks])?);
        let stream = self.device()?.stream().handle();
        let gather = Exchange::new(Operation::AllGather, &self.group, Some(&a), Some(&whole));
        let multiply = product(&whole, &b, &c)?;
        let mut program = GatheredProduct::new(&mut self.end, [&a, &b, &mailed], PATIENCE)?;
        let group = self.group.clone();
        let [exchange, product, ring, both] = self.medians([
            Box::new(|end| Ok(end.enqueue(std::slice::from_ref(&gather), stream)?)),
            Box::new(|_| queue(&multiply)),
            Box::new(|end| Ok(gathered_product(end, &group, &a, &b).map(drop)?)),
            Box::new(|_| Ok(program.enqueue()?)),
        ])?;
        program.wait()?;
        near("all-gather + product", &c, &mailed)?;
        Ok(Shown { name: "all-gather + product", exchange, product, ring, program: both })
    }

    fn scattered(&mut self) -> Outcome<Shown> {
        let (ranks, extent) = (self.group.size(), self.extent);
        let (a, b) = (self.array(&[extent, extent / ranks], 3)?, self.array(&[extent / ranks, extent], 4)?);
        let (whole, own, mailed) =
            (self.zeros(&[extent, extent])?, self.zeros(&[extent / ranks, extent])?, self.zeros(&[extent / ranks, extent])?);
        let stream = self.device()?.stream().handle();
        let scatter = Exchange::new(Operation::ReduceScatter(Reduction::Sum), &self.group, Some(&whole), Some(&own));
        let multiply = product(&a, &b, &whole)?;
        let mut program = ScatteredProduct::new(&mut self.end, [&a, &b, &mailed], PATIENCE)?;
        let group = self.group.clone();
        let [exchange, product, ring, both] = self.medians([
            Box::new(|end| Ok(end.enqueue(std::slice::from_ref(&scatter), stream)?)),
            Box::new(|_| queue(&multiply)),
            Box::new(|end| Ok(scattered_product(end, &group, &a, &b).map(drop)?)),
            Box::new(|_| Ok(program.enqueue()?)),
        ])?;
        program.wait()?;
        queue(&multiply)?;
        self.end.enqueue(std::slice::from_ref(&scatter), stream)?;
        self.device()?.synchronize()?;
        near("product + reduce-scatter", &own, &mailed)?;
        Ok(Shown { name: "product + reduce-scatter", exchange, product, ring, program: both })
    }
}

fn run(ranks: usize, extent: usize) -> Outcome<()> {
    let devices = (0..ranks as u32).map(Device::cuda).collect::<Result<Vec<_>, _>>()?;
    let (nccl, meeting, together) = (Knobs::nccl()?, Meeting::new(ranks), Barrier::new(ranks));
    println!("{ranks} x {}, {extent} cubed in bf16 over {ranks}, results in bf16", devices[0]);
    let one = |rank: usize| -> Outcome<[Shown; 2]> {
        let end = NcclRank::join(&nccl, Arc::new(meeting.seat(rank)), &devices[rank])?;
        let mut rank = Rank { end, group: Group::world(rank, ranks), extent, together: &together };
        Ok([rank.gathered()?, rank.scattered()?])
    };
    let all: Vec<[Shown; 2]> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".into()))).collect::<Outcome<_>>()
    })?;
    println!("{:<26} {:>10} {:>10} {:>10} {:>10}  of the longer part + 10 us", "", "exchange", "product", "ring", "program");
    for at in 0..2 {
        let slowest = |time: fn(&Shown) -> f64| all.iter().map(|shown| time(&shown[at])).fold(0.0, f64::max);
        let (exchange, product, ring, program) =
            (slowest(|s| s.exchange), slowest(|s| s.product), slowest(|s| s.ring), slowest(|s| s.program));
        let part = program / (exchange.max(product) + 10.0);
        println!("{:<26} {exchange:>7.1} us {product:>7.1} us {ring:>7.1} us {program:>7.1} us  {part:.3}", all[0][at].name);
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).map(|word| word.parse::<usize>()).transpose();
    let outcome = match (number(0), number(1)) {
        (Ok(Some(ranks)), Ok(extent)) => run(ranks, extent.unwrap_or(8192)),
        _ => Err("overlap RANKS [EXTENT]".into()),
    };
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    // A device that still waits for a rank that is gone would hold up a tidy end.
    tessera_runtime::exit_at_once(u8::from(outcome.is_err()))
}
