//! The GEMM against f64 on random rows, against random projections of all of it, and against cuBLAS.

use serde_json::json;
use tessera_driver::{DeviceBuffer, Dim3, Kernel, L2Promotion, OutOfBounds, Params, Swizzle, TensorMap, TensorMapSpec};
use tessera_types::DType;

use crate::data::{Random, bytes, from_bf16, normal, words};
use crate::measure::Mode;
use crate::report::Row;
use crate::{Bench, Outcome};

/// A kernel of the generator and what its launch needs to know.
struct Variant {
    name: &'static str,
    layout: &'static str,
    stages: u32,
    boxes: u32,
}

const fn variant(name: &'static str, layout: &'static str, stages: u32, boxes: u32) -> Variant {
    Variant { name, layout, stages, boxes }
}

const VARIANTS: [Variant; 8] = [
    variant("gemm_nn", "nn", 4, 2),
    variant("gemm_nt", "nt", 4, 2),
    variant("gemm_nt_waits", "nt", 4, 2),
    variant("gemm_nt_2_stages", "nt", 2, 2),
    variant("gemm_nt_3_stages", "nt", 3, 2),
    variant("gemm_nt_whole_c", "nt", 3, 4),
    variant("gemm_nt_group_1", "nt", 4, 2),
    variant("gemm_nt_group_8", "nt", 4, 2),
];

pub(crate) fn run(bench: &mut Bench) -> Outcome<()> {
    let shapes: &[(usize, usize, usize)] =
        &[(300, 320, 200), (512, 768, 320), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 11008, 4096)];
    for &(m, n, k) in bench.effort.cases(shapes) {
        for variant in &VARIANTS {
            case(bench, variant, m, n, k).map_err(|error| format!("{} {m}x{n}x{k}: {error}", variant.name))?;
        }
    }
    Ok(())
}

fn map(bench: &Bench, buffer: &DeviceBuffer, extents: &[u64], strides: &[u64], tile: &[u32]) -> Outcome<TensorMap> {
    Ok(bench.context.tensor_map(&TensorMapSpec {
        dtype: DType::BF16,
        address: buffer.pointer(),
        extents: extents.to_vec(),
        strides: strides.to_vec(),
        tile: tile.to_vec(),
        swizzle: Swizzle::B128,
        l2: L2Promotion::B256,
        outside: OutOfBounds::Zero,
    })?)
}

fn case(bench: &mut Bench, variant: &Variant, m: usize, n: usize, k: usize) -> Outcome<()> {
    let Some(kernel) = bench.kernel(variant.name)? else { return Ok(()) };
    let (a_data, b_data) = (normal(m * k, 11), normal(n * k, 13));
    let a = bench.context.buffer((m * k * 2) as u64)?;
    let b = bench.context.buffer((n * k * 2) as u64)?;
    let c = bench.context.buffer((m * n * 2) as u64)?;
    a.write(0, &bytes(&a_data), &bench.stream)?;
    b.write(0, &bytes(&b_data), &bench.stream)?;
    c.fill(0xFF, &bench.stream)?;
    let (wide_m, wide_n, wide_k) = (m as u64, n as u64, k as u64);
    let map_a = map(bench, &a, &[wide_k, wide_m], &[wide_k * 2], &[64, 128])?;
    let map_b = if variant.layout == "nt" {
        map(bench, &b, &[wide_k, wide_n], &[wide_k * 2], &[64, 256])?
    } else {
        map(bench, &b, &[64, wide_k, wide_n / 64], &[wide_n * 2, 128], &[64, 64, 4])?
    };
    let map_c = map(bench, &c, &[wide_n, wide_m], &[wide_n * 2], &[64, 64])?;
    let tiles = (m.div_ceil(128) as u32, n.div_ceil(256) as u32);
    let params = Params::new()
        .tensor_map(&map_a)
        .tensor_map(&map_b)
        .tensor_map(&map_c)
        .u32(tiles.0)
        .u32(tiles.1)
        .u32(k.div_ceil(64) as u32);
    let shared = variant.stages * (49152 + 16) + 2 * variant.boxes * 8192;
    kernel.allow_shared(shared)?;
    // The grid is balanced: as many blocks as the fullest wave needs, no more than the chip has.
    let work = tiles.0 * tiles.1;
    let grid = work.div_ceil(work.div_ceil(bench.multiprocessors));
    let stream = bench.stream.clone();
    let launch = || kernel.launch(&stream, Dim3::from(grid), Dim3::from(384), shared, &params);
    launch()?;
    let mut out = vec![0; m * n * 2];
    c.read(0, &mut out, &bench.stream)?;
    let error = Check { a: &a_data, b: &b_data, c: &words(&out), layout: variant.layout, m, n, k }.all()?;
    time(bench, &kernel, variant, (m, n, k), error, &launch)
}

fn time(
    bench: &mut Bench,
    kernel: &Kernel,
    variant: &Variant,
    (m, n, k): (usize, usize, usize),
    error: f64,
    launch: &dyn Fn() -> tessera_driver::Result<()>,
) -> Outcome<()> {
    if m < 1024 {
        println!("{} {m}x{n}x{k}: right, error {error:.2e}", kernel.name());
        return Ok(());
    }
    let request = json!({"op": "gemm", "m": m, "n": n, "k": k, "layout": variant.layout});
    let rounds = bench.effort.rounds();
    for mode in [Mode::Cold, Mode::Warm] {
        let (mut times, mut cublas) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            for ours in if round % 2 == 0 { [true, false] } else { [false, true] } {
                if ours {
                    times.extend(bench.timer.run(&bench.stream, mode, 4, launch)?);
                } else if let Some(peer) = &mut bench.peer {
                    cublas.extend(peer.run(&request, mode, 4)?);
                }
            }
        }
        bench.report.row(Row {
            kernel: kernel.name().to_owned(),
            case: format!("{m}x{n}x{k} {}", variant.layout),
            mode,
            times,
            baseline: "cublas".to_owned(),
            baseline_times: cublas,
            work: 2.0 * m as f64 * n as f64 * k as f64 * 1e-12,
            unit: "TFLOP/s",
            error,
        });
    }
    Ok(())
}

struct Check<'a> {
    a: &'a [u16],
    b: &'a [u16],
    c: &'a [u16],
    layout: &'a str,
    m: usize,
    n: usize,
    k: usize,
}

impl Check<'_> {
    /// Two checks: eight rows element by element in f64, and every row and column through random projections.
    /// The result is the largest element error relative to the bound that bf16 rounding of the result allows.
    fn all(&self) -> Outcome<f64> {
        let mut random = Random::new(self.m as u64 ^ 0x5EED);
        let mut worst = 0.0f64;
        for _ in 0..8 {
            let row = random.below(self.m);
            worst = worst.max(self.row(row)?);
        }
        self.projection(&mut random)?;
        Ok(worst)
    }

    fn b_at(&self, column: usize, k: usize) -> f64 {
        from_bf16(if self.layout == "nt" { self.b[column * self.k + k] } else { self.b[k * self.n + column] })
    }

    fn row(&self, row: usize) -> Outcome<f64> {
        let a: Vec<f64> = self.a[row * self.k..][..self.k].iter().map(|&bits| from_bf16(bits)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = self.n.div_ceil(threads);
        let mut wanted = vec![0.0; self.n];
        std::thread::scope(|scope| {
            for (index, part) in wanted.chunks_mut(share).enumerate() {
                let a = &a;
                scope.spawn(move || {
                    for (k, &left) in a.iter().enumerate() {
                        for (offset, sum) in part.iter_mut().enumerate() {
                            *sum += left * self.b_at(index * share + offset, k);
                        }
                    }
                });
            }
        });
        let mut worst = 0.0f64;
        for (column, &wanted) in wanted.iter().enumerate() {
            let found = from_bf16(self.c[row * self.n + column]);
            // bf16 rounding of the result, and f32 rounding of a sum of k products of N(0, 1) numbers.
            let bound = wanted.abs() / 256.0 + 1e-5 * (self.k as f64);
            let error = (found - wanted).abs() / bound;
            if error.is_nan() || error > 1.0 {
                return Err(format!("row {row}, column {column}: {found} instead of {wanted}").into());
            }
            worst = worst.max(error);
        }
        Ok(worst)
    }

    /// C x = A (B x) for a random x of +-1: a tile that is wrong anywhere shows in its rows.
    fn projection(&self, random: &mut Random) -> Outcome<()> {
        let x: Vec<f64> = (0..self.n).map(|_| if random.next() & 1 == 0 { 1.0 } else { -1.0 }).collect();
        let mut bx = vec![0.0; self.k];
        if self.layout == "nt" {
            for (column, &sign) in x.iter().enumerate() {
                for (sum, &bits) in bx.iter_mut().zip(&self.b[column * self.k..][..self.k]) {
                    *sum += sign * from_bf16(bits);
                }
            }
        } else {
            for (sum, row) in bx.iter_mut().zip(self.b.chunks_exact(self.n)) {
                *sum = row.iter().zip(&x).map(|(&bits, sign)| sign * from_bf16(bits)).sum();
            }
        }
        for row in 0..self.m {
            let wanted: f64 = self.a[row * self.k..][..self.k].iter().zip(&bx).map(|(&a, b)| from_bf16(a) * b).sum();
            let found: f64 = self.c[row * self.n..][..self.n].iter().zip(&x).map(|(&c, s)| from_bf16(c) * s).sum();
            // Each element is off by at most half a bf16 step of about sqrt(k); the errors add up like a random walk.
            let bound = 8.0 * (self.k as f64).sqrt() * (self.n as f64).sqrt() / 512.0 + 1e-3;
            let error = (found - wanted).abs();
            if error.is_nan() || error > bound {
                return Err(format!("the projection of row {row} is {found} instead of {wanted}").into());
            }
        }
        Ok(())
    }
}
