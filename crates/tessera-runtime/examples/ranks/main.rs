//! Checks exchanges between ranks where tests cannot: on a machine with several GPUs, on several hosts.
//!
//! ```text
//! ranks nccl                             which NCCL is found
//! ranks threads N SEED COUNT             COUNT random calls on N devices of this process, a thread each
//! ranks one-thread N                     all devices of this process by one thread, and a recorded graph on each
//! ranks calls SEED COUNT [cpu|cuda]      the same as one of the processes of a launcher
//! ranks fault KIND [cpu|cuda]            as one of the processes: what rank 1 does wrong ends the others
//! ```
//! `KIND`: `killed`, `stopped`, `late`, `leaves`, `sizes`, `types`, `order`, `again` (`sizes`, and then a new communicator).
//! The last line is `fine`, or what the rank says.

mod drawn;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_runtime::ranks::{
    Board, Call, Checked, Communicator, ExchangeError, Group, Meeting, NcclRank, Operation, Reduction, World, start_together,
};
use tessera_runtime::{Device, Knobs, Tensor};
use tessera_types::DType;

type Outcome = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let start = Instant::now();
    let outcome = run(&words);
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(()) => println!("fine, {seconds:.1} s"),
        Err(reason) => println!("after {seconds:.1} s: {reason}"),
    }
    // A device that still waits for a rank that is gone would hold up a tidy end.
    tessera_runtime::exit_at_once(u8::from(outcome.is_err()))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

fn run(words: &[&str]) -> Outcome {
    match words {
        ["nccl"] => {
            let nccl = Knobs::nccl().map_err(text)?;
            println!("{nccl}");
            let id = nccl.unique_id().map_err(text)?;
            println!("an identifier was made: {}", if id.to_bytes() == [0; 128] { "empty" } else { "128 bytes" });
            Ok(())
        }
        ["threads", ranks, seed, count] => threads(number(ranks)?, number(seed)?, number(count)?),
        ["one-thread", ranks] => one_thread(number(ranks)?),
        ["calls", seed, count, rest @ ..] => {
            let (seed, count) = (number(seed)?, number(count)?);
            as_process(rest, |communicator, _| drawn::make_calls(communicator, seed, count))
        }
        ["fault", kind, rest @ ..] => as_process(rest, |communicator, again| fault(kind, communicator, again)),
        _ => Err("see the head of `crates/tessera-runtime/examples/ranks/main.rs`".to_string()),
    }
}

fn devices(count: usize) -> Result<Vec<Device>, String> {
    (0..count).map(|ordinal| Device::cuda(ordinal as u32).map_err(text)).collect()
}

fn threads(ranks: usize, seed: u64, count: usize) -> Outcome {
    let (nccl, devices, meeting) = (Knobs::nccl().map_err(text)?, devices(ranks)?, Meeting::new(ranks));
    println!("{nccl}, {ranks} x {}", devices[0]);
    std::thread::scope(|scope| {
        let (nccl, meeting) = (&nccl, &meeting);
        let start = |(rank, device)| {
            scope.spawn(move || {
                let mut end = NcclRank::join(nccl, Arc::new(meeting.seat(rank)), device).map_err(text)?;
                drawn::make_calls(&mut end, seed, count)
            })
        };
        let threads: Vec<_> = devices.iter().enumerate().map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".to_string())))
    })
}

/// One thread starts a sum on all devices as one; then each device records sums as a graph and launches it.
fn one_thread(ranks: usize) -> Outcome {
    let (nccl, devices) = (Knobs::nccl().map_err(text)?, devices(ranks)?);
    let mut ends = NcclRank::all(&nccl, &devices).map_err(text)?;
    let make = |device: &Device| Tensor::ones(DType::F32, &[1000]).and_then(|tensor| tensor.to_device(device)).map_err(text);
    let tensors = devices.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let sum = |rank: usize| {
        let (group, tensor) = (Group::world(rank, ranks), Some(&tensors[rank]));
        vec![Call::new(Operation::AllReduce(Reduction::Sum), &group, tensor, tensor)]
    };
    let calls: Vec<Vec<Call>> = (0..ranks).map(sum).collect();
    for pending in start_together(&mut ends, &calls).map_err(text)? {
        pending.wait().map_err(text)?;
    }
    let all = |value: f64| -> Outcome {
        for (rank, tensor) in tensors.iter().enumerate() {
            let found = tensor.to_device(&Device::Cpu).and_then(|tensor| tensor.to_f64()).map_err(text)?;
            if found.iter().any(|&found| found != value) {
                return Err(format!("rank {rank} has {} where {value} is right", found[0]));
            }
        }
        Ok(())
    };
    all(ranks as f64)?;
    println!("one thread starts all: right");
    std::thread::scope(|scope| {
        let record = |((end, calls), device): ((NcclRank, &Vec<Call>), &Device)| {
            let driver = device.driver().cloned();
            let calls = calls.clone();
            scope.spawn(move || {
                let (driver, mut end) = (driver.ok_or("no device")?, end);
                let stream = driver.context().stream().map_err(text)?;
                driver.synchronize().map_err(text)?;
                let mut failed = None;
                let graph = stream.record(|| {
                    failed = end.enqueue(&calls, stream.handle()).err();
                    Ok(())
                });
                if let Some(error) = failed {
                    return Err(text(error));
                }
                let graph = graph.map_err(text)?;
                for _ in 0..3 {
                    graph.launch(&stream).map_err(text)?;
                }
                stream.synchronize().map_err(text)
            })
        };
        let threads: Vec<_> = ends.into_iter().zip(&calls).zip(&devices).map(record).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".to_string())))
    })?;
    all((ranks as f64).powi(4))?;
    println!("a recorded graph: right");
    Ok(())
}

type Again<'a> = dyn Fn() -> Result<Box<dyn Communicator>, String> + 'a;

/// Joins the other processes and does something with a communicator, or with one made again.
fn as_process(rest: &[&str], work: impl Fn(&mut dyn Communicator, &Again<'_>) -> Outcome) -> Outcome {
    let (on_device, checked) = (rest.contains(&"cuda"), rest.contains(&"checked"));
    let placement = Knobs::placement().map_err(text)?.ok_or("no launcher started this process")?;
    let limits = Knobs::from_env().map_err(text)?.limits;
    let world = World::join(&placement, limits).map_err(text)?;
    let device = if on_device { Some(placement.device().map_err(text)?) } else { None };
    let nccl = if on_device { Some(Knobs::nccl().map_err(text)?) } else { None };
    let make = || -> Result<Box<dyn Communicator>, String> {
        let board: Arc<dyn Board> = Arc::new(world.clone());
        Ok(match (&nccl, &device, checked) {
            (Some(nccl), Some(device), false) => Box::new(NcclRank::join(nccl, board, device).map_err(text)?),
            (Some(nccl), Some(device), true) => {
                Box::new(Checked::new(NcclRank::join(nccl, Arc::clone(&board), device).map_err(text)?, board))
            }
            (_, _, false) => Box::new(world.tcp().map_err(text)?),
            (_, _, true) => Box::new(Checked::new(world.tcp().map_err(text)?, board)),
        })
    };
    let mut communicator = make()?;
    let outcome = work(&mut *communicator, &make);
    if let Err(reason) = &outcome {
        world.fail(reason);
    }
    outcome
}

fn sums(communicator: &mut dyn Communicator, count: usize) -> Outcome {
    let world = communicator.world();
    for _ in 0..count {
        let tensor = ones(communicator, 100_000, DType::F32)?;
        wait(communicator.all_reduce_into(&world, Reduction::Sum, &tensor, &tensor))?;
    }
    Ok(())
}

fn ones(communicator: &dyn Communicator, length: usize, dtype: DType) -> Result<Tensor, String> {
    Tensor::ones(dtype, &[length]).and_then(|tensor| tensor.to_device(communicator.device())).map_err(text)
}

fn wait(pending: Result<tessera_runtime::ranks::Pending, ExchangeError>) -> Outcome {
    pending.and_then(|pending| pending.wait()).map_err(text)
}

fn signal(name: &str) -> Outcome {
    Command::new("kill").args([name, &std::process::id().to_string()]).status().map_err(text)?;
    std::thread::sleep(Duration::from_secs(600));
    Err("the signal did nothing".to_string())
}

fn fault(kind: &str, communicator: &mut dyn Communicator, again: &Again<'_>) -> Outcome {
    let (wrong, everyone) = (communicator.rank() == 1, communicator.world());
    sums(communicator, 3)?;
    let sum = |communicator: &mut dyn Communicator, length, dtype| {
        let tensor = ones(communicator, length, dtype)?;
        let group = communicator.world();
        wait(communicator.all_reduce_into(&group, Reduction::Sum, &tensor, &tensor))
    };
    match kind {
        "killed" if wrong => signal("-KILL"),
        "stopped" if wrong => signal("-STOP"),
        "killed" | "stopped" => sums(communicator, 100_000),
        "late" => {
            if wrong {
                let call = Knobs::from_env().map_err(text)?.limits.call;
                std::thread::sleep(call + Duration::from_secs(5));
            }
            sums(communicator, 1)
        }
        "leaves" if wrong => Ok(()),
        "leaves" => sums(communicator, 1),
        "sizes" => sum(communicator, if wrong { 96_000 } else { 128_000 }, DType::F32),
        "types" => sum(communicator, 128_000, if wrong { DType::BF16 } else { DType::F32 }),
        "order" => {
            let (small, large) = (ones(communicator, 2, DType::F32)?, ones(communicator, 2 * everyone.size(), DType::F32)?);
            for gathers in [wrong, !wrong] {
                wait(match gathers {
                    true => communicator.all_gather_into(&everyone, &small, &large),
                    false => communicator.reduce_scatter_into(&everyone, Reduction::Sum, &large, &small),
                })?;
            }
            Ok(())
        }
        "again" => {
            let first = sum(communicator, if wrong { 96_000 } else { 128_000 }, DType::F32);
            println!("first: {}", first.err().ok_or("calls that do not match went through")?);
            sums(&mut *again()?, 10)
        }
        other => Err(format!("there is no fault `{other}`")),
    }
}
