//! What computing while exchanging gains on all GPUs of this machine: the programs of `tessera_ops::ranked` beside their two parts.
//!
//! ```text
//! overlap RANKS [EXTENT]        a GPU a rank; matrices of 8192 x 8192 in bf16 when absent
//! ```
//! Each program is compared with its parts one after the other, then all three take turns, 15 times each; printed are the slowest rank's medians
//! from the host's clock, and what the program takes of the longer part and 10 us.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use tessera_ops::ranked::{gathered_product, scattered_product};
use tessera_ops::{Call, find};
use tessera_runtime::ranks::{Communicator, Group, Meeting, NcclRank, Reduction};
use tessera_runtime::{Device, Knobs, RandomStream, Tensor};
use tessera_types::DType;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a rank does once.
type Work<'w> = dyn Fn(&mut NcclRank, &Group) -> Outcome<()> + 'w;

const TURNS: usize = 15;

/// One rank's end of what is measured.
struct Rank<'a> {
    end: NcclRank,
    group: Group,
    extent: usize,
    together: &'a Barrier,
}

/// A program, the parts of which it is made, and its name.
struct Shown {
    name: &'static str,
    exchange: f64,
    product: f64,
    program: f64,
}

fn product(a: &Tensor, b: &Tensor, c: &Tensor) -> Outcome<()> {
    let tensors = vec![("A", a.clone()), ("B", b.clone()), ("C", c.clone())];
    find("gemm").ok_or("there is no `gemm`")?.resolve(&Call { tensors, ..Call::default() })?.run()?;
    Ok(())
}

/// How far two arrays are from each other, as a part of the largest number.
fn apart(one: &Tensor, other: &Tensor) -> Outcome<f64> {
    let numbers = |tensor: &Tensor| Ok::<_, Box<dyn Error + Send + Sync>>(tensor.to_device(&Device::Cpu)?.to_f64()?);
    let (one, other) = (numbers(one)?, numbers(other)?);
    let largest = one.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    Ok(one.iter().zip(&other).fold(0.0, |most: f64, (one, other)| most.max((one - other).abs())) / largest)
}

impl Rank<'_> {
    fn device(&self) -> Device {
        self.end.device().clone()
    }

    fn array(&self, shape: &[usize], seed: u64) -> Outcome<Tensor> {
        let stream = RandomStream::named(seed, &format!("rank {}", self.group.position));
        Ok(stream.randn(DType::BF16, shape)?.to_device(&self.device())?)
    }

    /// Medians in microseconds of things that take turns; all ranks begin each together.
    fn medians<const N: usize>(&mut self, work: [&Work<'_>; N]) -> Outcome<[f64; N]> {
        let mut times = [(); N].map(|()| Vec::new());
        for turn in 0..TURNS + 2 {
            for (work, times) in work.iter().zip(&mut times) {
                self.together.wait();
                let start = Instant::now();
                work(&mut self.end, &self.group)?;
                self.device().driver().ok_or("no device")?.synchronize()?;
                let took = start.elapsed().as_secs_f64() * 1e6;
                // The first turns compile and connect.
                if turn >= 2 {
                    times.push(took);
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
        let whole = Tensor::zeros_on(DType::BF16, &[extent, extent], &self.device())?;
        let c = Tensor::zeros_on(DType::F32, &[extent, extent / ranks], &self.device())?;
        let exchange = |end: &mut NcclRank, group: &Group| Ok(end.all_gather_into(group, &a, &whole)?.wait()?);
        let multiply = |_: &mut NcclRank, _: &Group| product(&whole, &b, &c);
        let both = |end: &mut NcclRank, group: &Group| gathered_product(end, group, &a, &b).map(drop).map_err(Into::into);
        let [exchange, product, program] = self.medians([&exchange, &multiply, &both])?;
        let distance = apart(&c, &gathered_product(&mut self.end, &self.group, &a, &b)?)?;
        if distance > 1e-4 {
            return Err(format!("all-gather + product: {distance:e} from its parts").into());
        }
        Ok(Shown { name: "all-gather + product", exchange, product, program })
    }

    fn scattered(&mut self) -> Outcome<Shown> {
        let (ranks, extent) = (self.group.size(), self.extent);
        let (a, b) = (self.array(&[extent, extent / ranks], 3)?, self.array(&[extent / ranks, extent], 4)?);
        let whole = Tensor::zeros_on(DType::F32, &[extent, extent], &self.device())?;
        let own = Tensor::zeros_on(DType::F32, &[extent / ranks, extent], &self.device())?;
        let exchange =
            |end: &mut NcclRank, group: &Group| Ok(end.reduce_scatter_into(group, Reduction::Sum, &whole, &own)?.wait()?);
        let multiply = |_: &mut NcclRank, _: &Group| product(&a, &b, &whole);
        let both = |end: &mut NcclRank, group: &Group| scattered_product(end, group, &a, &b).map(drop).map_err(Into::into);
        let [exchange_us, product, program] = self.medians([&exchange, &multiply, &both])?;
        exchange(&mut self.end, &self.group)?;
        let distance = apart(&own, &scattered_product(&mut self.end, &self.group, &a, &b)?)?;
        if distance > 1e-4 {
            return Err(format!("product + reduce-scatter: {distance:e} from its parts").into());
        }
        Ok(Shown { name: "product + reduce-scatter", exchange: exchange_us, product, program })
    }
}

fn run(ranks: usize, extent: usize) -> Outcome<()> {
    let devices = (0..ranks as u32).map(Device::cuda).collect::<Result<Vec<_>, _>>()?;
    let (nccl, meeting, together) = (Knobs::nccl()?, Meeting::new(ranks), Barrier::new(ranks));
    println!("{ranks} x {}, {extent} cubed in bf16 over {ranks}", devices[0]);
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
    println!("{:<26} {:>10} {:>10} {:>10}  of the longer part + 10 us", "", "exchange", "product", "program");
    for at in 0..2 {
        let slowest = |time: fn(&Shown) -> f64| all.iter().map(|shown| time(&shown[at])).fold(0.0, f64::max);
        let (exchange, product, program) = (slowest(|s| s.exchange), slowest(|s| s.product), slowest(|s| s.program));
        let part = program / (exchange.max(product) + 10.0);
        println!("{:<26} {exchange:>7.1} us {product:>7.1} us {program:>7.1} us  {part:.3}", all[0][at].name);
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
