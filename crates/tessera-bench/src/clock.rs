//! Time as the harness sees it: a trait, so that the schedule can be tested on a clock that never waits.

use std::time::{Duration, Instant};

/// A monotonic clock.
pub trait Clock {
    /// Nanoseconds since the clock was made.
    fn now_ns(&self) -> f64;

    /// Lets time pass.
    fn pause(&self, ns: f64);
}

/// The host's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    origin: Instant,
}

impl Default for Monotonic {
    fn default() -> Monotonic {
        Monotonic { origin: Instant::now() }
    }
}

impl Clock for Monotonic {
    fn now_ns(&self) -> f64 {
        self.origin.elapsed().as_nanos() as f64
    }

    fn pause(&self, ns: f64) {
        std::thread::sleep(Duration::from_nanos(ns.max(0.0) as u64));
    }
}

/// What the clock itself costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockFacts {
    /// The smallest step between two different readings.
    pub tick_ns: f64,
    /// The median time between two readings with nothing in between: reported, never subtracted.
    pub floor_ns: f64,
}

impl ClockFacts {
    /// Reads the clock in pairs and looks at the differences.
    pub fn measure(clock: &dyn Clock) -> ClockFacts {
        let differences: Vec<f64> = (0..2000)
            .map(|_| {
                let start = clock.now_ns();
                clock.now_ns() - start
            })
            .collect();
        let tick_ns = differences.iter().copied().filter(|&d| d > 0.0).fold(f64::INFINITY, f64::min);
        ClockFacts { tick_ns: if tick_ns.is_finite() { tick_ns } else { 1.0 }, floor_ns: crate::stats::median(&differences) }
    }
}
