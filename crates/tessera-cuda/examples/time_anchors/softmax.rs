//! The row softmax against f64 and against a copy of the same bytes.

use serde_json::json;
use tessera_driver::{Dim3, Params};

use crate::data::{bytes, from_bf16, normal, words};
use crate::measure::Mode;
use crate::report::Row;
use crate::{Bench, Outcome};

/// A kernel of the generator, its threads and its longest row.
const VARIANTS: [(&str, u32, usize); 6] = [
    ("softmax", 512, 8192),
    ("softmax_hints", 512, 8192),
    ("softmax_512x2_r3", 512, 8192),
    ("softmax_256x4_r4", 256, 8192),
    ("softmax_256x4_r5", 256, 8192),
    ("softmax_128x8_r5", 128, 8192),
];

pub(crate) fn run(bench: &mut Bench) -> Outcome<()> {
    for &(rows, columns) in bench.effort.cases(&[(1000, 5000), (8192, 8192), (16384, 6144), (32768, 8192)]) {
        for (name, threads, longest) in VARIANTS {
            if columns <= longest {
                case(bench, name, threads, rows, columns)?;
            }
        }
    }
    Ok(())
}

fn case(bench: &mut Bench, name: &str, threads: u32, rows: usize, columns: usize) -> Outcome<()> {
    let Some(kernel) = bench.kernel(name)? else { return Ok(()) };
    let count = rows * columns;
    let data = normal(count, 7);
    let x = bench.context.buffer(count as u64 * 2)?;
    let y = bench.context.buffer(count as u64 * 2)?;
    x.write(0, &bytes(&data), &bench.stream)?;
    y.fill(0xFF, &bench.stream)?;
    let params = Params::new().pointer(x.pointer()).pointer(y.pointer()).u32(columns as u32);
    let launch = || kernel.launch(&bench.stream, Dim3::from(rows as u32), Dim3::from(threads), 0, &params);
    launch()?;
    let mut out = vec![0; count * 2];
    y.read(0, &mut out, &bench.stream)?;
    let error = check(&data, &words(&out), columns)?;

    if rows < 2000 {
        println!("{name} {rows}x{columns}: right, error {error:.2e}");
        return Ok(());
    }
    let copy = || y.copy_from(&x, &bench.stream);
    let rounds = bench.effort.rounds();
    for mode in [Mode::Cold, Mode::Warm] {
        let (mut times, mut copies, mut torch) = (Vec::new(), Vec::new(), Vec::new());
        let request = json!({"op": "softmax", "rows": rows, "columns": columns});
        for round in 0..rounds {
            for ours in if round % 2 == 0 { [true, false] } else { [false, true] } {
                if ours {
                    times.extend(bench.timer.run(&bench.stream, mode, 5, &launch)?);
                    continue;
                }
                copies.extend(bench.timer.run(&bench.stream, mode, 5, &copy)?);
                if let Some(peer) = &mut bench.peer {
                    torch.extend(peer.run(&request, mode, 5)?);
                }
            }
        }
        for (baseline, baseline_times) in [("copy", copies), ("torch", torch)] {
            if baseline_times.is_empty() {
                continue;
            }
            bench.report.row(Row {
                kernel: name.to_owned(),
                case: format!("{rows}x{columns}"),
                mode,
                times: times.clone(),
                baseline: baseline.to_owned(),
                baseline_times,
                work: count as f64 * 4.0 * 1e-9,
                unit: "GB/s",
                error,
            });
        }
    }
    Ok(())
}

/// Every element was written; rows against f64, all of them or every sixteenth: the largest error in units of bf16
/// rounding (2^-8 of the value, and a floor).
fn check(x: &[u16], y: &[u16], columns: usize) -> Outcome<f64> {
    if let Some(index) = y.iter().position(|&bits| from_bf16(bits).is_nan()) {
        return Err(format!("element {index} is NaN or was not written").into());
    }
    let every = if x.len() / columns > 4096 { 16 } else { 1 };
    let mut worst = 0.0f64;
    for (row, (x, y)) in x.chunks_exact(columns).zip(y.chunks_exact(columns)).enumerate().step_by(every) {
        let largest = x.iter().map(|&bits| from_bf16(bits)).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|&bits| (from_bf16(bits) - largest).exp()).sum();
        for (column, (&x, &y)) in x.iter().zip(y).enumerate() {
            let wanted = (from_bf16(x) - largest).exp() / sum;
            let error = (from_bf16(y) - wanted).abs() / (wanted / 256.0 + 1e-30);
            if error.is_nan() || error > 1.1 {
                return Err(format!("row {row}, column {column}: {} instead of {wanted}", from_bf16(y)).into());
            }
            worst = worst.max(error);
        }
    }
    Ok(worst)
}
