//! Kernels that Triton made. A file's first line says warps, dynamic shared memory and scratch memory of each block.

use tessera_driver::{Dim3, Params};
use tessera_emu::{Finding, FindingKind, Place};
use tessera_types::{DType, FloatFormat, Overflow, Rounding, element};

use super::machine::{Machine, Stream, each, each_but, near, wide};
use super::numbers::normed;
use super::products::{decoded, product};

/// Launches with what the file's head says; two pointers to scratch memory stand behind the kernel's own parameters.
fn run(m: &Machine, kernel: &str, grid: Dim3, args: Params) {
    let text = std::fs::read_to_string(super::folder().join(format!("{}.ptx", m.file))).unwrap();
    let head: Vec<u32> =
        text.lines().next().unwrap().split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let [warps, shared, scratch] = head[..] else { panic!("{head:?}") };
    let room = m.emulator.alloc(u64::from(scratch.max(16)) * grid.count()).unwrap();
    m.run_with(kernel, grid, warps * 32, shared, &args.pointer(room).pointer(room));
}

/// A product of a warpgroup that reads what `cp.async` wrote, with no proxy fence between.
fn unfenced(finding: &Finding) -> bool {
    let by = |place: &Place, instruction: &str| place.instruction.starts_with(instruction);
    finding.kind == FindingKind::ProxyFence
        && by(&finding.place, "wgmma.mma_async")
        && finding.earlier.as_ref().is_some_and(|place| by(place, "cp.async.cg"))
}

fn line(blocks: u32) -> Dim3 {
    Dim3::from(blocks)
}

fn f16s(stream: &mut Stream, count: usize) -> Vec<u16> {
    stream.units(count).into_iter().map(element::f32_to_f16).collect()
}

#[test]
fn elementwise_and_rows() {
    each(&["triton_add.sm_80"], |m| {
        let mut stream = Stream(51);
        let (x, y) = (stream.units(1008), stream.units(1008));
        let (xt, yt, out) = (m.put(&x), m.put(&y), m.room(4032));
        run(m, "add", line(2), Params::new().pointer(xt).pointer(yt).pointer(out).i32(1008));
        assert_eq!(m.get::<f32>(out, 1008), x.iter().zip(&y).map(|(x, y)| x + y).collect::<Vec<_>>());
    });
    each(&["triton_softmax.sm_80"], |m| {
        let n = 781;
        let x: Vec<f32> = Stream(52).units(3 * n).into_iter().map(|v| v * 6.0).collect();
        let (at, out) = (m.put(&x), m.room(x.len() * 4));
        run(m, "softmax", line(3), Params::new().pointer(at).pointer(out).i32(n as i32));
        let wanted = x.chunks(n).flat_map(|row| {
            let sum: f64 = wide(row).map(f64::exp).sum();
            wide(row).map(move |v| v.exp() / sum).collect::<Vec<_>>()
        });
        near("softmax", wide(&m.get::<f32>(out, x.len())), wanted, 1e-5, 1e-8);
    });
    each(&["triton_layer_norm.sm_80", "triton_layer_norm.sm_90"], |m| {
        let n = 300;
        let mut stream = Stream(53);
        let x: Vec<u16> = (0..2 * n).map(|_| element::f32_to_bf16(stream.unit() * 2.0 - 0.3)).collect();
        let (gain, bias) = (stream.units(n), stream.units(n));
        let (at, gt, bt, out) = (m.put(&x), m.put(&gain), m.put(&bias), m.room(4 * n));
        run(m, "layer_norm", line(2), Params::new().pointer(at).pointer(gt).pointer(bt).pointer(out).i32(n as i32).f32(1e-5));
        let wanted = normed(&decoded(&x, element::bf16_to_f32), n, &gain, &bias);
        near("norm", decoded(&m.get::<u16>(out, 2 * n), element::bf16_to_f32), wanted, 2f64.powi(-8), 1e-4);
    });
    each(&["triton_quantize.sm_90"], |m| {
        let x: Vec<f32> = Stream(54).units(500).into_iter().map(|v| v * 300.0).collect();
        let (at, codes, back) = (m.put(&x), m.room(500), m.room(1000));
        run(m, "quantize", line(2), Params::new().pointer(at).pointer(codes).pointer(back).i32(500));
        let format = FloatFormat::of(DType::F8E4M3).unwrap();
        let wanted: Vec<u8> =
            x.iter().map(|v| format.encode(f64::from(*v), Rounding::NearestEven, Overflow::Saturate) as u8).collect();
        assert_eq!(m.get::<u8>(codes, 500), wanted);
        let halves: Vec<u16> = wanted.iter().map(|code| element::f32_to_f16(element::f8e4m3_to_f32(*code))).collect();
        assert_eq!(m.get::<u16>(back, 500), halves);
    });
}

#[test]
fn products() {
    // Triton takes what `cp.async` wrote for visible to `wgmma` without a proxy fence.
    each_but(&["triton_matmul.sm_80", "triton_matmul.sm_90", "triton_matmul_boxes.sm_90"], unfenced, |m| {
        let kernel = if m.file.contains("boxes") { "matmul_boxes" } else { "matmul" };
        let shape @ (rows, cols, k) = (100usize, 80usize, 208usize);
        let mut stream = Stream(55);
        let (a, b) = (f16s(&mut stream, rows * k), f16s(&mut stream, k * cols));
        let (at, bt, out) = (m.put(&a), m.put(&b), m.put(&vec![0u16; rows * cols]));
        let args = Params::new().pointer(at).pointer(bt).pointer(out).i32(rows as i32).i32(cols as i32).i32(k as i32);
        run(m, kernel, Dim3::new(2, 2, 1), args);
        let exact = product(&decoded(&a, element::f16_to_f32), &decoded(&b, element::f16_to_f32), shape);
        near(&m.file, decoded(&m.get::<u16>(out, rows * cols), element::f16_to_f32), exact, 2f64.powi(-10), 1e-4);
    });
}

#[test]
fn attention() {
    each_but(&["triton_attention.sm_80", "triton_attention.sm_90"], unfenced, |m| {
        let (length, d) = (90usize, 64usize);
        let mut stream = Stream(56);
        let [q, k, v] = [0; 3].map(|_| f16s(&mut stream, 2 * length * d));
        let (qt, kt, vt, out) = (m.put(&q), m.put(&k), m.put(&v), m.room(q.len() * 2));
        let scale = 0.18f32;
        let args = Params::new().pointer(qt).pointer(kt).pointer(vt).pointer(out).i32(length as i32).f32(scale);
        run(m, "attention", Dim3::new(2, 2, 1), args);
        let [q, k, v] = [&q, &k, &v].map(|x| decoded(x, element::f16_to_f32));
        let mut wanted = Vec::new();
        for row in 0..2 * length {
            let head = row / length * length;
            let dot = |other: usize| -> f64 { (0..d).map(|i| q[row * d + i] * k[(head + other) * d + i]).sum() };
            let weights: Vec<f64> = (0..length).map(|other| (dot(other) * f64::from(scale)).exp2()).collect();
            let sum: f64 = weights.iter().sum();
            wanted.extend((0..d).map(|i| (0..length).map(|o| weights[o] * v[(head + o) * d + i]).sum::<f64>() / sum));
        }
        near(&m.file, decoded(&m.get::<u16>(out, 2 * length * d), element::f16_to_f32), wanted, 2e-3, 1e-3);
    });
}

#[test]
fn atomics_scans_and_sorting() {
    each(&["triton_histogram.sm_90"], |m| {
        let x = Stream(57).ints(700, 0, 256);
        let (at, bins) = (m.put(&x), m.put(&[0i32; 260]));
        run(m, "histogram", line(3), Params::new().pointer(at).pointer(bins).i32(700));
        let mut wanted = vec![0; 260];
        x.iter().for_each(|v| wanted[*v as usize] += 1);
        wanted[256] = *x.iter().max().unwrap();
        x.chunks(256).zip(257..).for_each(|(block, at)| wanted[at] = block.iter().sum());
        assert_eq!(m.get::<i32>(bins, 260), wanted);
    });
    each(&["triton_scans.sm_80"], |m| {
        let n = 201;
        let x = Stream(58).ints(2 * n, -100, 100);
        let (at, sums, decayed) = (m.put(&x), m.room(2 * n * 4), m.room(2 * n * 4));
        run(m, "scans", line(2), Params::new().pointer(at).pointer(sums).pointer(decayed).i32(n as i32));
        let (mut wanted, mut faded) = (Vec::new(), Vec::new());
        for row in x.chunks(n) {
            let (mut sum, mut d) = (0, 0.0);
            for v in row {
                sum += v;
                d = d * 0.5 + f64::from(*v);
                wanted.push(sum);
                faded.push(d);
            }
        }
        assert_eq!(m.get::<i32>(sums, 2 * n), wanted);
        near("decayed", wide(&m.get::<f32>(decayed, 2 * n)), faded, 1e-6, 1e-5);
    });
    each(&["triton_extremes.sm_90"], |m| {
        let x = Stream(59).units(3 * 128);
        let (at, most, place, sorted) = (m.put(&x), m.room(12), m.room(12), m.room(3 * 512));
        run(m, "extremes", line(3), Params::new().pointer(at).pointer(most).pointer(place).pointer(sorted).i32(128));
        let (most, place, sorted) = (m.get::<f32>(most, 3), m.get::<i32>(place, 3), m.get::<f32>(sorted, 384));
        for (row, values) in x.chunks(128).enumerate() {
            let mut wanted = values.to_vec();
            wanted.sort_by(f32::total_cmp);
            assert_eq!(sorted[row * 128..][..128], wanted[..]);
            assert_eq!(most[row], wanted[127]);
            assert_eq!(place[row], values.iter().position(|v| *v == wanted[127]).unwrap() as i32);
        }
    });
}

/// Philox 4x32 with ten rounds; the first word of the result.
fn philox(seed: u64, counter: u32) -> u32 {
    let (mut c, mut key) = ([counter, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
    for _ in 0..10 {
        let a = 0xD251_1F53u64 * u64::from(c[0]);
        let b = 0xCD9E_8D57u64 * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c[0]
}

#[test]
fn random_numbers() {
    each(&["triton_dropout.sm_80"], |m| {
        let x = Stream(60).units(500);
        let (at, out) = (m.put(&x), m.room(2000));
        run(m, "dropout", line(2), Params::new().pointer(at).pointer(out).i32(500).i32(99));
        let uniform = |i| {
            let bits = philox(99, i) as i32;
            (if bits < 0 { -bits - 1 } else { bits }) as f32 * 4.656_612_7e-10
        };
        let wanted: Vec<f32> = x.iter().zip(0..).map(|(v, i)| if uniform(i) > 0.5 { v * 2.0 } else { 0.0 }).collect();
        assert_eq!(m.get::<f32>(out, 500), wanted);
    });
}
