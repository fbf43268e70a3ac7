//! What a launch costs the host: an empty kernel with eight parameters, through the owned resources and through the table.

use std::time::Instant;

use tessera_driver::{Dim3, LaunchSpec, Params};

use crate::{Bench, Outcome};

const EMPTY: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
    .param .u32 e, .param .u32 f, .param .u32 g, .param .u32 h)
{
    ret;
}";

const LAUNCHES: u32 = 1000;

pub(crate) fn run(bench: &mut Bench) -> Outcome<()> {
    let kernel = bench.context.module(EMPTY.as_bytes())?.kernel("empty")?;
    let stream = bench.stream.clone();
    let params = Params::new().u64(1).u64(2).u64(3).u64(4).u32(5).u32(6).u32(7).u32(8);
    let spec = LaunchSpec {
        function: kernel.handle(),
        grid: Dim3::ONE,
        block: Dim3::from(128),
        cluster: None,
        shared_bytes: 0,
        overlaps_predecessor: false,
        stream: stream.handle(),
        params: &params,
    };
    let table = bench.context.table()?;
    let owned = median_us(&stream, &|| kernel.launch_spec(&spec))?;
    let plain = median_us(&stream, &|| table.launch(&spec))?;
    bench.report.fact("launch_host_us", &format!("owned {owned:.3}, table {plain:.3}"));
    Ok(())
}

/// The median over 20 batches of the host's time for one launch; the queue is drained between batches.
fn median_us(stream: &tessera_driver::Stream, launch: &dyn Fn() -> tessera_driver::Result<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..20 {
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            launch()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES));
    }
    stream.synchronize()?;
    Ok(crate::measure::median(&times))
}
