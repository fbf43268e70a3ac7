//! Measured ceilings: how fast this machine copies, reads and multiplies, and therefore what no kernel can beat.
//!
//! Rates of memory depend on where the data lies, so copy and read are curves over the footprint; a case is held against the
//! point at or below its own footprint (or any larger one that happens to be faster). With `B` a curve's rate and `C` the
//! multiply-add rate, the least time of a case is
//!
//! ```text
//! t* = max( 2 w / B_copy + (r - w) / B_read,  flops / C,  floor )     r, w: bytes read and written, r >= w
//! ```
//!
//! and its efficiency `t* / t`. A time far below `t*` is not a fast kernel but a broken measurement: the ceilings are measured
//! again, and if it still stands out the row is refused as `over_peak`.

use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::case::{FlopClass, Work};
use crate::probe::{self, CopyLoop};
use crate::stats::{Confidence, Interval, median, median_interval};

/// How far an arithmetic rate may exceed the measured one before it is refused.
const COMPUTE_SLACK: f64 = 1.05;
/// The same for memory, where neighbouring cache levels blur.
const MEMORY_SLACK: f64 = 1.25;

/// One measured rate, in bytes or operations a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Bytes touched by all threads together; 0 for arithmetic.
    pub footprint_bytes: u64,
    /// The best trial: the ceiling.
    pub best: f64,
    /// The median trial.
    pub median: f64,
    /// Interval of the median.
    pub ci95: Option<Interval>,
    /// Trials.
    pub n: usize,
    /// The loop that won: `memcpy`, `non-temporal`, `vector`, `portable`.
    pub how: String,
}

/// Everything measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Threads that ran together.
    pub threads: usize,
    /// Copying, read and written bytes counted, by rising footprint.
    pub copy: Vec<Rate>,
    /// Reading, by rising footprint.
    pub read: Vec<Rate>,
    /// Multiply-adds by class, two operations each.
    pub compute: Vec<(FlopClass, Rate)>,
}

/// What bounds a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory traffic.
    Memory,
    /// Arithmetic.
    Compute,
    /// The clock's own cost.
    Floor,
}

/// The least time of a case on this machine and what it is bound by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attainable {
    /// Least time.
    pub ns: f64,
    /// The binding resource.
    pub bound: Bound,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// Size of the largest footprint: beyond the last-level cache, and no more than may be spent.
    pub max_bytes: u64,
    /// Trials of each point.
    pub trials: usize,
}

impl ProbeOptions {
    /// Footprints up to eight last-level caches or the largest case, whichever is less, but at least 56 MiB.
    pub fn for_cases(last_level_bytes: u64, largest_case_bytes: u64) -> ProbeOptions {
        const LEAST: u64 = 56 << 20;
        const MOST: u64 = 512 << 20;
        let wanted = (8 * last_level_bytes).min(largest_case_bytes);
        ProbeOptions { max_bytes: wanted.clamp(LEAST, MOST), trials: 7 }
    }
}

impl Ceilings {
    /// Measures everything with all threads of the pool that kernels run on.
    pub fn measure(options: ProbeOptions) -> Ceilings {
        let threads = rayon::current_num_threads();
        let mut ceilings = Ceilings { threads, ..Ceilings::default() };
        let half = (options.max_bytes / 8) as usize;
        let (src, mut dst) = (filled(half), filled(half));
        for footprint in footprints(options.max_bytes) {
            let n = (footprint / 8) as usize;
            let (src, dst) = (&src[..n], &mut dst[..n]);
            let copies = [(CopyLoop::Memcpy, "memcpy"), (CopyLoop::NonTemporal, "non-temporal")]
                .map(|(method, how)| copy_rate(method, how, src, dst, options.trials));
            ceilings.copy.extend(copies.into_iter().max_by(|a, b| a.best.total_cmp(&b.best)));
            ceilings.read.push(read_rate(src, dst, options.trials));
        }
        for class in FlopClass::ALL {
            ceilings.compute.extend(compute_rate(class, options.trials).map(|rate| (class, rate)));
        }
        ceilings
    }

    /// Takes the better of two measurements of the same machine, point by point.
    pub fn raise(&mut self, again: &Ceilings) {
        let better = |old: &mut Rate, new: &Rate| {
            if new.best > old.best {
                *old = new.clone();
            }
        };
        for (mine, theirs) in [(&mut self.copy, &again.copy), (&mut self.read, &again.read)] {
            mine.iter_mut().zip(theirs).for_each(|(old, new)| better(old, new));
        }
        self.compute.iter_mut().zip(&again.compute).for_each(|((_, old), (_, new))| better(old, new));
    }

    /// The fastest rate at which `footprint` bytes can be streamed.
    fn along(curve: &[Rate], footprint: u64) -> Option<f64> {
        let below = curve.iter().rposition(|r| r.footprint_bytes <= footprint).unwrap_or(0);
        curve[below.min(curve.len())..].iter().map(|r| r.best).reduce(f64::max)
    }

    fn memory_ns(&self, work: &Work) -> Option<f64> {
        let copy = Ceilings::along(&self.copy, work.min_bytes())?;
        let read = Ceilings::along(&self.read, work.min_bytes())?;
        let copied = 2 * work.write_bytes.min(work.read_bytes);
        let rest = work.min_bytes() - copied;
        let rest_rate = if work.read_bytes >= work.write_bytes { read } else { copy };
        Some((copied as f64 / copy + rest as f64 / rest_rate) * 1e9)
    }

    /// The multiply-add ceiling of a class; 0 rates are absent.
    pub fn compute(&self, class: FlopClass) -> Option<&Rate> {
        self.compute.iter().find(|(c, _)| *c == class).map(|(_, rate)| rate)
    }

    /// The class's own rate, or binary32's where narrow formats have no unit here.
    fn compute_for(&self, work: &Work) -> Option<&Rate> {
        let class = work.class?;
        self.compute(class).or_else(|| if class == FlopClass::Bf16 { self.compute(FlopClass::F32) } else { None })
    }

    fn compute_ns(&self, work: &Work) -> Option<f64> {
        self.compute_for(work).map(|rate| work.flops as f64 / rate.best * 1e9)
    }

    /// The least time of a case; none when nothing was measured that bounds it.
    pub fn attainable(&self, work: &Work, floor_ns: f64) -> Option<Attainable> {
        let candidates =
            [(self.memory_ns(work), Bound::Memory), (self.compute_ns(work), Bound::Compute), (Some(floor_ns), Bound::Floor)];
        let mut binding = None;
        for (ns, bound) in candidates {
            let Some(ns) = ns else { continue };
            if binding.is_none_or(|b: Attainable| ns > b.ns) {
                binding = Some(Attainable { ns, bound });
            }
        }
        binding.filter(|b| b.bound != Bound::Floor || !self.copy.is_empty())
    }

    /// Why a time cannot be: it needs more than the machine has. None for a possible one.
    pub fn refuse(&self, work: &Work, median_ns: f64) -> Option<String> {
        let memory = self.memory_ns(work).map(|ns| (ns / MEMORY_SLACK, "memory"));
        // A rate that only shows what the compiler did with a plain loop refuses nothing.
        let exact = self.compute_for(work).is_some_and(|rate| rate.how != PORTABLE);
        let compute = self.compute_ns(work).filter(|_| exact).map(|ns| (ns / COMPUTE_SLACK, "arithmetic"));
        [memory, compute].into_iter().flatten().find(|(least, _)| median_ns < *least).map(|(least, what)| {
            format!("{median_ns:.0} ns is impossible: the measured {what} ceiling allows no less than {least:.0} ns")
        })
    }
}

const PORTABLE: &str = "portable";

/// Total footprints: 32 KiB, then four times more each, then the largest.
fn footprints(max: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..).map(|i| (32 << 10) << (2 * i)).take_while(|&b| b <= max / 2).collect();
    list.push(max);
    list
}

/// A buffer whose pages were touched by the threads that will use them.
fn filled(len: usize) -> Vec<f32> {
    let mut buffer = vec![0f32; len];
    let parts = split_mut(&mut buffer);
    rayon::broadcast(|context| {
        if let Ok(mut part) = parts[context.index()].lock() {
            part.fill(1.0);
        }
    });
    drop(parts);
    buffer
}

fn split_mut(buffer: &mut [f32]) -> Vec<Mutex<&mut [f32]>> {
    let threads = rayon::current_num_threads();
    let share = buffer.len().div_ceil(threads).max(1);
    let mut parts: Vec<Mutex<&mut [f32]>> = buffer.chunks_mut(share).map(Mutex::new).collect();
    parts.resize_with(threads, || Mutex::new(&mut []));
    parts
}

/// Runs `body(thread)` `reps` times on every thread, `trials` times, and turns the times into rates of `amount` a repetition.
fn rate(amount: f64, reps: usize, trials: usize, footprint_bytes: u64, how: &str, body: &(dyn Fn(usize) + Sync)) -> Rate {
    let mut rates = Vec::with_capacity(trials);
    // The first run is for the caches and the clock.
    for trial in 0..=trials {
        let start = Instant::now();
        rayon::broadcast(|context| (0..reps).for_each(|_| body(context.index())));
        let seconds = start.elapsed().as_secs_f64();
        if trial > 0 {
            rates.push(amount * reps as f64 / seconds);
        }
    }
    Rate {
        footprint_bytes,
        best: rates.iter().copied().fold(0.0, f64::max),
        median: median(&rates),
        ci95: median_interval(&rates, Confidence::P95),
        n: rates.len(),
        how: how.into(),
    }
}

/// Repetitions that make a trial last a few hundred microseconds at least.
fn repetitions(bytes: u64) -> usize {
    ((32 << 20) / bytes.max(1)).max(1) as usize
}

fn copy_rate(method: CopyLoop, how: &str, src: &[f32], dst: &mut [f32], trials: usize) -> Rate {
    let bytes = 8 * src.len() as u64;
    let share = src.len().div_ceil(rayon::current_num_threads()).max(1);
    let sources: Vec<&[f32]> = src.chunks(share).collect();
    let parts = split_mut(dst);
    rate(bytes as f64, repetitions(bytes), trials, bytes, how, &|thread| {
        if let (Some(src), Ok(mut dst)) = (sources.get(thread), parts[thread].lock()) {
            probe::copy(method, std::hint::black_box(src), std::hint::black_box(&mut dst));
        }
    })
}

/// Reads both halves, so that the footprint is that of a copy.
fn read_rate(first: &[f32], second: &[f32], trials: usize) -> Rate {
    let bytes = 8 * first.len() as u64;
    let share = first.len().div_ceil(rayon::current_num_threads()).max(1);
    let halves: Vec<(&[f32], &[f32])> = first.chunks(share).zip(second.chunks(share)).collect();
    rate(bytes as f64, repetitions(bytes), trials, bytes, "vector", &|thread| {
        if let Some((a, b)) = halves.get(thread) {
            std::hint::black_box(probe::read(std::hint::black_box(a)) + probe::read(std::hint::black_box(b)));
        }
    })
}

fn compute_rate(class: FlopClass, trials: usize) -> Option<Rate> {
    const STEPS: usize = 200_000;
    let operations = probe::operations(class, STEPS)? * rayon::current_num_threads() as u64;
    let how = if probe::knows_this_cpu() { "vector" } else { PORTABLE };
    Some(rate(operations as f64, 1, trials, 0, how, &|_| {
        std::hint::black_box(probe::multiply_add(class, STEPS));
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Metric;

    fn flat(best: f64, footprint_bytes: u64) -> Rate {
        Rate { footprint_bytes, best, median: best, ci95: None, n: 1, how: "vector".into() }
    }

    fn machine() -> Ceilings {
        Ceilings {
            threads: 2,
            copy: vec![flat(100e9, 1 << 15), flat(20e9, 1 << 26)],
            read: vec![flat(200e9, 1 << 15), flat(40e9, 1 << 26)],
            compute: vec![(FlopClass::F32, flat(1e12, 0))],
        }
    }

    fn work(read_bytes: u64, write_bytes: u64, flops: u64) -> Work {
        Work {
            read_bytes,
            write_bytes,
            flops,
            class: Some(FlopClass::F32),
            metric: Metric::Bandwidth,
            tensor_bytes: read_bytes + write_bytes,
            formula: String::new(),
        }
    }

    #[test]
    fn least_time_by_hand() {
        let m = machine();
        // 100 MB in, 100 MB out from memory: 200 MB at 20 GB/s.
        let copy = m.attainable(&work(100_000_000, 100_000_000, 0), 10.0).unwrap();
        assert_eq!((copy.ns.round(), copy.bound), (10e6, Bound::Memory));
        // 300 MB in, 100 MB out: 200 MB copied and 200 MB read at 40 GB/s.
        assert_eq!(m.attainable(&work(300_000_000, 100_000_000, 0), 10.0).unwrap().ns.round(), 15e6);
        // 10 KB lie in the cache.
        assert_eq!(m.attainable(&work(5000, 5000, 0), 10.0).unwrap().ns.round(), 100.0);
        let gemm = m.attainable(&work(1000, 1000, 1_000_000), 10.0).unwrap();
        assert_eq!((gemm.ns.round(), gemm.bound), (1000.0, Bound::Compute));
        assert_eq!(m.attainable(&work(10, 10, 0), 30.0).unwrap().bound, Bound::Floor);
        assert_eq!(Ceilings::default().attainable(&work(10, 10, 0), 30.0), None);
    }

    #[test]
    fn impossible_times_are_refused() {
        let m = machine();
        let copy = work(100_000_000, 100_000_000, 0);
        assert!(m.refuse(&copy, 10e6).is_none());
        assert!(m.refuse(&copy, 8.5e6).is_none(), "within the slack");
        assert!(m.refuse(&copy, 7e6).unwrap().contains("memory"));
        assert!(m.refuse(&work(1000, 1000, 1_000_000), 900.0).unwrap().contains("arithmetic"));
        let mut portable = machine();
        portable.compute[0].1.how = PORTABLE.into();
        assert!(portable.refuse(&work(1000, 1000, 1_000_000), 900.0).is_none());
    }

    #[test]
    fn raising_keeps_the_better_point() {
        let mut m = machine();
        let mut again = machine();
        again.copy[0].best = 150e9;
        again.read[0].best = 1.0;
        m.raise(&again);
        assert_eq!((m.copy[0].best, m.read[0].best), (150e9, 200e9));
    }

    #[test]
    fn this_machine_has_plausible_ceilings() {
        let m = Ceilings::measure(ProbeOptions { max_bytes: 1 << 20, trials: 6 });
        assert_eq!(m.copy.iter().map(|r| r.footprint_bytes).collect::<Vec<_>>(), [32 << 10, 128 << 10, 512 << 10, 1 << 20]);
        for rate in m.copy.iter().chain(&m.read) {
            assert!((1e8..1e14).contains(&rate.best) && rate.ci95.is_some(), "{rate:?}");
        }
        assert!(m.compute(FlopClass::F32).unwrap().best > 1e8);
    }
}
