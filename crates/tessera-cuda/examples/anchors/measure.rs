//! Timing by events: cold (the cache is overwritten before each launch) and warm (ten launches in a row).

use tessera_driver::{Context, DeviceBuffer, Event, Stream};

use crate::Outcome;

/// Whether the second-level cache holds the kernel's data when it starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Cold,
    Warm,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Mode::Cold => "cold",
            Mode::Warm => "warm",
        }
    }
}

/// Launches in a row that one warm repetition times.
const WARM_LAUNCHES: u32 = 10;

pub(crate) struct Timer {
    start: Event,
    end: Event,
    flush: DeviceBuffer,
}

impl Timer {
    pub(crate) fn new(context: &Context) -> Outcome<Timer> {
        Ok(Timer { start: context.event()?, end: context.event()?, flush: context.buffer(256 << 20)? })
    }

    /// Milliseconds of each repetition.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        mode: Mode,
        reps: u32,
        launch: &dyn Fn() -> tessera_driver::Result<()>,
    ) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..reps {
            let inner = match mode {
                Mode::Cold => {
                    self.flush.fill(0, stream)?;
                    1
                }
                Mode::Warm => {
                    launch()?;
                    WARM_LAUNCHES
                }
            };
            self.start.record(stream)?;
            for _ in 0..inner {
                launch()?;
            }
            self.end.record(stream)?;
            self.end.synchronize()?;
            times.push(f64::from(self.end.elapsed_ms_since(&self.start)?) / f64::from(inner));
        }
        Ok(times)
    }
}

/// The median; NaN for none.
pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
