//! Timing by events: cold (other data was read through the cache before each launch) and warm (ten launches in a row).
//!
//! The cache is emptied by reading, not by writing: lines that were written would have to go to memory while the kernel runs.

use tessera_driver::{Context, DeviceBuffer, Dim3, Event, Kernel, Params, Stream};

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

/// Bytes read to empty the cache: four times its size.
const FLUSH_BYTES: u64 = 256 << 20;

/// Each thread reads four vectors of 16 bytes; the store never happens, as the buffer holds zeros.
const FLUSH: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry flush(.param .u64 data)
{
    .reg .pred %p;
    .reg .b32 %r<8>, %a;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [data];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r0, %r0, 1024, %r1;
    mul.wide.u32 %d1, %r0, 16;
    add.u64 %d0, %d0, %d1;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d0+4096];
    or.b32 %a, %r0, %r4;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0+8192];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d0+12288];
    or.b32 %a, %a, %r0;
    or.b32 %a, %a, %r4;
    setp.ne.u32 %p, %a, 0;
    @%p st.global.b32 [%d0], %a;
    ret;
}";

pub(crate) struct Timer {
    start: Event,
    end: Event,
    flush: Kernel,
    data: DeviceBuffer,
}

impl Timer {
    pub(crate) fn new(context: &Context, stream: &Stream) -> Outcome<Timer> {
        let data = context.buffer(FLUSH_BYTES)?;
        data.fill(0, stream)?;
        let flush = context.module(FLUSH.as_bytes())?.kernel("flush")?;
        Ok(Timer { start: context.event()?, end: context.event()?, flush, data })
    }

    fn empty_cache(&self, stream: &Stream) -> tessera_driver::Result<()> {
        let blocks = (FLUSH_BYTES / (256 * 64)) as u32;
        let params = Params::new().pointer(self.data.pointer());
        self.flush.launch(stream, Dim3::from(blocks), Dim3::from(256), 0, &params)
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
                    self.empty_cache(stream)?;
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
