//! Arithmetic: integers bit for bit, IEEE operations bit for bit by an exact library, approximations and library functions
//! within their bounds, f16, bf16 and fp8 through the formats of `tessera-types`.

use rustc_apfloat::ieee::{Double, Single};
use rustc_apfloat::{Float, Round};
use tessera_driver::Params;
use tessera_types::{DType, FloatFormat, Overflow, Rounding, element};

use super::machine::{Machine, Stream, each, near, wide};

/// What `words` of `integers.cu` gives.
fn words(x: u32, y: u32, z: u32) -> [u32; 24] {
    let (p, q) = (x as i32, y as i32);
    let low = |v: u32| v & 0xff_ffff;
    let low_signed = |v: u32| (v << 8) as i32 >> 8;
    let bytes = u64::from(y) << 32 | u64::from(x);
    let permuted = (0..4).fold(0u32, |word, k| {
        // The intrinsic leaves the selector's sign bit out.
        word | u32::from((bytes >> (8 * (z >> (4 * k) & 7))) as u8) << (8 * k)
    });
    let dot = (0..4).fold(z as i32, |sum, k| sum.wrapping_add(i32::from((x >> (8 * k)) as i8) * i32::from((y >> (8 * k)) as i8)));
    let both = u64::from(y) << 32 | u64::from(x);
    [
        x.wrapping_add(y.wrapping_mul(z)),
        x / (y | 1),
        x % (y | 1),
        p.wrapping_div(q | 1) as u32,
        p.wrapping_rem(q | 1) as u32,
        x << (z & 31),
        x >> (z & 31),
        (p >> (z & 31)) as u32,
        ((u64::from(x) * u64::from(y)) >> 32) as u32,
        ((i64::from(p) * i64::from(q)) >> 32) as u32,
        low(x).wrapping_mul(low(y)),
        low_signed(x).wrapping_mul(low_signed(y)) as u32,
        x.abs_diff(y).wrapping_add(z),
        p.abs_diff(q).wrapping_add(z),
        x.reverse_bits(),
        x.leading_zeros(),
        x.count_ones(),
        if x == 0 { 0 } else { x.trailing_zeros() + 1 },
        permuted,
        ((both << (z & 31)) >> 32) as u32,
        (both >> z.min(32)) as u32,
        dot as u32,
        (x & y) ^ (!z | x),
        find_set(x, z & 31, (y & 7) as i32 - 3),
    ]
}

/// What `longs` gives.
fn longs(x: u64, y: u64) -> [u64; 14] {
    let product = u128::from(x) * u128::from(y) + u128::from(x);
    [
        x.wrapping_mul(y),
        x / (y | 1),
        x % (y | 1),
        (x as i64).wrapping_div((y | 1) as i64) as u64,
        x << (y & 63),
        (x as i64 >> (y & 63)) as u64,
        ((u128::from(x) * u128::from(y)) >> 64) as u64,
        ((i128::from(x as i64) * i128::from(y as i64)) >> 64) as u64,
        product as u64,
        (product >> 64) as u64,
        x.reverse_bits(),
        u64::from(x.leading_zeros()),
        u64::from(x.count_ones()),
        (product % 1_000_003) as u64,
    ]
}

/// What `packed` gives.
fn packed(a: u32, b: u32) -> [u32; 12] {
    let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
    let bytes = |f: &dyn Fn(u8, u8) -> u8| u32::from_le_bytes([0, 1, 2, 3].map(|k| f(x[k], y[k])));
    let halves = |f: &dyn Fn(i16, i16) -> i16| {
        let part = |k: u32| u32::from(f((a >> k) as i16, (b >> k) as i16) as u16) << k;
        part(0) | part(16)
    };
    [
        bytes(&u8::wrapping_add),
        bytes(&u8::wrapping_sub),
        bytes(&u8::abs_diff),
        bytes(&|a, b| (a as i8).max(b as i8) as u8),
        bytes(&u8::min),
        halves(&i16::saturating_add),
        bytes(&|a, b| (u16::from(a) + u16::from(b)).div_ceil(2) as u8),
        bytes(&|a, b| if a > b { 255 } else { 0 }),
        halves(&i16::max),
        (0..4).map(|k| u32::from(x[k].abs_diff(y[k]))).sum(),
        bytes(&|a, _| 0u8.wrapping_sub(a)),
        halves(&|a, b| a.max(b).max(0)),
    ]
}

/// What `small` gives.
fn small(a: i8, b: i16) -> [i32; 8] {
    let (x, y) = (i32::from(a), i32::from(b));
    let (u, v) = (i32::from(a as u8), i32::from(b as u16));
    [
        x * y,
        u + v,
        i32::from((x * y) as i8),
        i32::from((y * y) as u16),
        i32::from((v >> 3) as i16) / (x | 1),
        i32::from((y / 5) as u8),
        x.max(y),
        (i64::from(x) << 20 >> 12) as i32,
    ]
}

#[test]
fn integers() {
    each(&["integers.sm_90a"], |m| {
        let mut stream = Stream(31);
        let n = 256;
        let (mut a, mut b, c) = (stream.words(n), stream.words(n), stream.words(n));
        (a[0], b[0], a[1], b[1]) = (0x8000_0000, u32::MAX, 0, 0);
        let (at, bt, ct, out) = (m.put(&a), m.put(&b), m.put(&c), m.room(n * 24 * 4));
        m.run("words", 4, 64, &Params::new().pointer(at).pointer(bt).pointer(ct).pointer(out));
        for (i, got) in m.get::<u32>(out, n * 24).chunks(24).enumerate() {
            let (x, y, z) = (a[i], b[i], c[i]);
            let wanted = words(x, y, z);
            assert_eq!(got, wanted, "{x:x} {y:x} {z:x}");
        }

        let a: Vec<u64> = (0..n).map(|_| stream.bits()).collect();
        let b: Vec<u64> = (0..n).map(|_| stream.bits() >> stream.below(60)).collect();
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(n * 14 * 8));
        m.run("longs", 4, 64, &Params::new().pointer(at).pointer(bt).pointer(out));
        for (i, got) in m.get::<u64>(out, n * 14).chunks(14).enumerate() {
            let (x, y) = (a[i], b[i]);
            let wanted = longs(x, y);
            assert_eq!(got, wanted, "{x:x} {y:x}");
        }

        let (a, b) = (stream.words(n), stream.words(n));
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(n * 12 * 4));
        m.run("packed", 4, 64, &Params::new().pointer(at).pointer(bt).pointer(out));
        for (i, got) in m.get::<u32>(out, n * 12).chunks(12).enumerate() {
            let wanted = packed(a[i], b[i]);
            assert_eq!(got, wanted, "{:x} {:x}", a[i], b[i]);
        }

        let a: Vec<i8> = (0..n).map(|_| stream.bits() as i8).collect();
        let b: Vec<i16> = (0..n).map(|_| stream.bits() as i16).collect();
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(n * 8 * 4));
        m.run("small", 4, 64, &Params::new().pointer(at).pointer(bt).pointer(out));
        for (i, got) in m.get::<i32>(out, n * 8).chunks(8).enumerate() {
            let wanted = small(a[i], b[i]);
            assert_eq!(got, wanted, "{} {}", a[i], b[i]);
        }
    });
}

/// The position of the n-th one from a base, upwards or downwards; none is all ones.
fn find_set(mask: u32, base: u32, offset: i32) -> u32 {
    let holds = |at: &i64| (0..32).contains(at) && mask >> at & 1 == 1;
    let from = i64::from(base);
    let found = match offset {
        0 => Some(from).filter(holds),
        1.. => (from..32).filter(holds).nth(offset as usize - 1),
        _ => (0..=from).rev().filter(holds).nth(offset.unsigned_abs() as usize - 1),
    };
    found.map_or(u32::MAX, |at| at as u32)
}

fn singles(stream: &mut Stream, count: usize) -> Vec<f32> {
    let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -3e-42, f32::MAX, f32::MIN_POSITIVE];
    (0..count)
        .map(|i| match i % 4 {
            0 => special[stream.below(10) as usize],
            1 => f32::from_bits(stream.bits() as u32),
            _ => (stream.unit()) * 2f32.powi(stream.below(40) as i32 - 20),
        })
        .collect()
}

fn f32_of(a: f32) -> Single {
    Single::from_bits(u128::from(a.to_bits()))
}

fn f64_of(a: f64) -> Double {
    Double::from_bits(u128::from(a.to_bits()))
}

const ROUNDS: [Round; 4] = [Round::NearestTiesToEven, Round::TowardZero, Round::TowardPositive, Round::TowardNegative];

/// The nearest root, and its neighbours for the other modes.
fn root(x: f32, round: Round) -> f32 {
    let near = x.sqrt();
    if !near.is_finite() || near == 0.0 {
        return near;
    }
    let (exact, square) = (f64::from(x), f64::from(near) * f64::from(near));
    match round {
        Round::TowardPositive if square < exact => near.next_up(),
        Round::TowardZero | Round::TowardNegative if square > exact => near.next_down(),
        _ => near,
    }
}

/// NaNs are all one; anything else bit for bit.
fn same_32(what: &str, got: f32, wanted: f32) {
    assert!(got.to_bits() == wanted.to_bits() || (got.is_nan() && wanted.is_nan()), "{what}: {got:e}, not {wanted:e}");
}

#[test]
fn every_rounding_of_f32_and_f64() {
    each(&["floats.sm_90a"], |m| {
        let mut stream = Stream(32);
        let n = 512;
        let (a, b, c) = (singles(&mut stream, n), singles(&mut stream, n), singles(&mut stream, n));
        let (at, bt, ct, out) = (m.put(&a), m.put(&b), m.put(&c), m.room(n * 24 * 4));
        m.run("rounded", 8, 64, &Params::new().pointer(at).pointer(bt).pointer(ct).pointer(out));
        for (i, got) in m.get::<f32>(out, n * 24).chunks(24).enumerate() {
            let (x, y, z) = (f32_of(a[i]), f32_of(b[i]), f32_of(c[i]));
            let back = |v: Single| f32::from_bits(v.to_bits() as u32);
            let one = f32_of(1.0);
            for (mode, round) in ROUNDS.into_iter().enumerate() {
                let what = |name: &str| format!("{name} {round:?} {:e} {:e} {:e}", a[i], b[i], c[i]);
                same_32(&what("add"), got[mode], back(x.add_r(y, round).value));
                same_32(&what("mul"), got[4 + mode], back(x.mul_r(y, round).value));
                same_32(&what("fma"), got[8 + mode], back(x.mul_add_r(y, z, round).value));
                same_32(&what("div"), got[12 + mode], back(x.div_r(y, round).value));
                same_32(&what("sqrt"), got[16 + mode], root(a[i], round));
            }
            same_32("rcp", got[20], back(one.div_r(x, Round::NearestTiesToEven).value));
            same_32("rcp", got[21], back(one.div_r(x, Round::TowardPositive).value));
            same_32("sub", got[22], a[i] - b[i]);
            same_32("saturate", got[23], if a[i] > 0.0 { a[i].min(1.0) } else { 0.0 });
        }
        let doubles =
            |stream: &mut Stream| -> Vec<f64> {
                (0..n)
                    .map(|i| {
                        if i % 3 == 0 {
                            f64::from_bits(stream.bits())
                        } else {
                            f64::from(stream.unit()) / f64::from(stream.unit())
                        }
                    })
                    .collect()
            };
        let (a, b, c) = (doubles(&mut stream), doubles(&mut stream), doubles(&mut stream));
        let (at, bt, ct, out) = (m.put(&a), m.put(&b), m.put(&c), m.room(n * 14 * 8));
        m.run("rounded_double", 8, 64, &Params::new().pointer(at).pointer(bt).pointer(ct).pointer(out));
        for (i, got) in m.get::<f64>(out, n * 14).chunks(14).enumerate() {
            let (x, y, z) = (f64_of(a[i]), f64_of(b[i]), f64_of(c[i]));
            let back = |v: Double| f64::from_bits(v.to_bits() as u64);
            let (nearest, zero, up, down) = (ROUNDS[0], ROUNDS[1], ROUNDS[2], ROUNDS[3]);
            let root_up = {
                let near = a[i].sqrt();
                let below = near.is_finite() && near != 0.0 && near.mul_add(near, -a[i]) < 0.0;
                if below { near.next_up() } else { near }
            };
            let wanted = [
                back(x.add_r(y, nearest).value),
                back(x.add_r(y, zero).value),
                back(x.add_r(y, up).value),
                back(x.mul_r(y, down).value),
                back(x.mul_add_r(y, z, nearest).value),
                back(x.mul_add_r(y, z, up).value),
                back(x.div_r(y, nearest).value),
                back(x.div_r(y, zero).value),
                a[i].sqrt(),
                root_up,
                back(f64_of(1.0).div_r(x, nearest).value),
                a[i].floor(),
                f64::from(a[i] as f32),
                f64::from(f32::from_bits(
                    FloatFormat::of(DType::F32).unwrap().encode(a[i], Rounding::TowardZero, Overflow::Ieee) as u32,
                )),
            ];
            for (index, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                let same = got.to_bits() == wanted.to_bits() || (got.is_nan() && wanted.is_nan());
                assert!(same, "{index}: {:e} {:e} {:e} gives {got:e}, not {wanted:e}", a[i], b[i], c[i]);
            }
        }
    });
}

#[test]
fn conversions() {
    each(&["floats.sm_90a"], |m| {
        let mut stream = Stream(33);
        let n = 512;
        let a = singles(&mut stream, n);
        let d: Vec<f64> = (0..n)
            .map(|i| {
                if i % 4 == 0 {
                    f64::from_bits(stream.bits())
                } else {
                    f64::from(stream.unit()) * 2f64.powi(stream.below(70) as i32)
                }
            })
            .collect();
        let (at, dt) = (m.put(&a), m.put(&d));
        let (ints, longs, floats) = (m.room(n * 32), m.room(n * 32), m.room(n * 24));
        m.run("converted", 8, 64, &Params::new().pointer(at).pointer(dt).pointer(ints).pointer(longs).pointer(floats));
        let (ints, longs, floats) = (m.get::<i32>(ints, n * 8), m.get::<u64>(longs, n * 4), m.get::<f32>(floats, n * 6));
        let rounded = |v: i128, round: Rounding| {
            let format = FloatFormat::of(DType::F32).unwrap();
            let value = match u64::try_from(v) {
                Ok(value) => tessera_types::Exact::from(value),
                Err(_) => tessera_types::Exact::from(v as i64),
            };
            f32::from_bits(format.encode(value, round, Overflow::Ieee) as u32)
        };
        for i in 0..n {
            let (x, y) = (f64::from(a[i]), d[i]);
            // A NaN becomes zero, of 64 bits the top bit alone.
            let top = |v: f64, other: u64| if v.is_nan() { 1 << 63 } else { other };
            let wanted = [
                x.round_ties_even() as i32,
                x as i32,
                x.ceil() as i32,
                x.floor() as i32,
                x.round_ties_even() as u32 as i32,
                if y.is_nan() { i32::MIN } else { y.round_ties_even() as i32 },
                if y.is_nan() { i32::MIN } else { y as u32 as i32 },
                a[i].to_bits() as i32 >> 4,
            ];
            assert_eq!(ints[i * 8..][..8], wanted, "{x:e} {y:e}");
            let wanted = [
                top(x, x.round_ties_even() as i64 as u64),
                top(x, x as u64),
                top(y, y.floor() as i64 as u64),
                top(y, y.round_ties_even() as u64),
            ];
            assert_eq!(longs[i * 4..][..4], wanted, "{x:e} {y:e}");
            let big = y.to_bits() as i64;
            let wanted = [
                rounded(i128::from(big as i32), Rounding::TowardZero),
                rounded(i128::from(big as u32), Rounding::Up),
                rounded(i128::from(big), Rounding::NearestEven),
                rounded(i128::from(big as u64), Rounding::Down),
                big as f64 as f32,
                a[i].round_ties_even(),
            ];
            for (got, wanted) in floats[i * 6..][..6].iter().zip(wanted) {
                same_32(&format!("{big:x} {x:e}"), *got, wanted);
            }
        }
    });
}

/// Allowed relative and absolute error of a function, and the function.
type Approximation<'a> = (f64, f64, &'a dyn Fn(f64) -> f64);

fn table(m: &Machine, kernel: &str, x: &[f32], of: &[Approximation<'_>]) {
    let (n, k) = (x.len(), of.len());
    let (at, out) = (m.put(x), m.room(n * k * 4));
    m.run(kernel, n as u32 / 64, 64, &Params::new().pointer(at).pointer(out));
    let got = m.get::<f32>(out, n * k);
    for (index, (share, least, f)) in of.iter().enumerate() {
        let column = got.iter().skip(index).step_by(k).map(|v| f64::from(*v));
        near(&format!("{} {kernel} {index}", m.file), column, wide(x).map(f), *share, *least);
    }
}

fn error_function(x: f64) -> f64 {
    // The integral by Simpson's rule; the integrand is gone beyond 6.
    let end = x.abs().min(6.5);
    let steps = 2000;
    let h = end / f64::from(steps);
    let f = |t: f64| (-t * t).exp();
    let sum: f64 = (0..steps).map(|i| f64::from(i) * h).map(|t| f(t) + 4.0 * f(t + h / 2.0) + f(t + h)).sum();
    x.signum() * sum * h / 6.0 * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn approximations_and_library_functions() {
    each(&["floats.sm_90a", "floats.fast"], |m| {
        let mut stream = Stream(34);
        let x: Vec<f32> = stream.units(256).into_iter().map(|v| v * 3.0).collect();
        let shifted = |v: f64| f64::from(v.abs() as f32 + 0.1f32);
        table(
            m,
            "fast",
            &x,
            &[
                (0.0, 2e-6, &f64::sin),
                (0.0, 2e-6, &f64::cos),
                (1e-6, 0.0, &|v| (v * f64::from(0.1f32)).exp()),
                (1e-6, 1e-6, &|v| shifted(v).ln()),
                (1e-6, 0.0, &|v| 1.0 / v),
                (1e-6, 0.0, &|v| 1.0 / shifted(v).sqrt()),
                (2e-6, 0.0, &|v| shifted(v).powf(1.5)),
                (2e-5, 0.0, &|v| (v * f64::from(0.1f32)).tan()),
            ],
        );
        let fast = m.file == "floats.fast";
        let x: Vec<f32> = (0..256).map(|i| stream.unit() * if i % 2 == 0 || fast { 12.0 } else { 1e6 }).collect();
        let small = |v: f64| v % 10.0;
        // The fast versions of these err absolutely, and more.
        let (share, least) = if fast { (3e-5, 1e-5) } else { (1e-6, 2e-7) };
        table(
            m,
            "library",
            &x,
            &[
                (share, least, &f64::sin),
                (share, least, &f64::cos),
                (share, 0.0, &|v| small(v).exp()),
                (share, least, &|v| v.abs().ln()),
                (share, 0.0, &|v| v.abs().powf(f64::from(0.3f32))),
                (share, least, &|v| error_function(small(v))),
                (share, least, &|v| small(v).tanh()),
                (share, 0.0, &f64::cbrt),
                (share, 0.0, &|v| v.hypot(3.0)),
                (share, least, &|v| v.atan2(2.0)),
                (share, least, &|v| small(v).abs().ln_1p()),
                (share, least, &|v| 0.5 * (1.0 + error_function(small(v) * f64::from(0.3f32) / 2f64.sqrt()))),
            ],
        );
        let x: Vec<f64> = (0..128).map(|_| f64::from(stream.unit()) * 1e4).collect();
        let (at, out) = (m.put(&x), m.room(128 * 48));
        m.run("library_double", 2, 64, &Params::new().pointer(at).pointer(out));
        for (got, &x) in m.get::<f64>(out, 128 * 6).chunks(6).zip(&x) {
            let wanted = [x.sin(), (x % 20.0).exp(), x.abs().ln(), x.abs().powf(0.7), x.atan(), 1.0 / x.abs().sqrt()];
            near(&format!("{x:e}"), got.iter().copied(), wanted, 1e-14, 1e-16);
        }
    });
}

/// The value of a format's number nearest to an exact result.
fn to(dtype: DType, value: f64, rounding: Rounding) -> u16 {
    FloatFormat::of(dtype).unwrap().encode(value, rounding, Overflow::Ieee) as u16
}

fn same_half(what: &str, dtype: DType, got: u16, wanted: u16) {
    let nan = |code: u16| FloatFormat::of(dtype).unwrap().decode(u64::from(code)).is_nan();
    assert!(got == wanted || (nan(got) && nan(wanted)), "{what}: {got:04x}, not {wanted:04x}");
}

/// What the k-th of a kernel's functions of pairs gives, exactly or, where a sum is rounded, to odd: rounding it again is right.
fn exact_half(k: usize, [x, y, z]: [f64; 3]) -> f64 {
    // Products and sums of two are exact in f64 or round to the same place; a fused one is rounded to odd first.
    let fused = odd_sum(x * y, z);
    match k {
        0 => x + y,
        1 => x - y,
        2 => x * y,
        3 => fused,
        4 if x + y > 0.0 => (x + y).min(1.0),
        4 => 0.0,
        5 if fused <= 0.0 => 0.0,
        5 => fused,
        6 if x.is_nan() => y,
        6 if y.is_nan() || x > y || (x == y && x.is_sign_positive()) => x,
        6 => y,
        7 if x.is_nan() || y.is_nan() => f64::NAN,
        7 if x < y || (x == y && x.is_sign_negative()) => x,
        7 => y,
        10 => f64::from(u8::from(x > y)),
        _ => panic!("no such function"),
    }
}

#[test]
fn halves_in_pairs() {
    each(&["halves.sm_80", "halves.sm_90a"], |m| {
        let mut stream = Stream(35);
        let n = 256;
        for (kernel, dtype, count) in [("f16_pairs", DType::F16, 12), ("bf16_pairs", DType::BF16, 9)] {
            let format = FloatFormat::of(dtype).unwrap();
            let mut numbers = || -> Vec<u16> {
                (0..2 * n)
                    .map(|i| {
                        if i % 3 == 0 {
                            stream.bits() as u16
                        } else {
                            to(dtype, f64::from(stream.unit()) * 4.0, Rounding::NearestEven)
                        }
                    })
                    .collect()
            };
            let (a, b, c) = (numbers(), numbers(), numbers());
            let (at, bt, ct, out) = (m.put(&a), m.put(&b), m.put(&c), m.room(2 * n * count * 2));
            m.run(kernel, 4, 64, &Params::new().pointer(at).pointer(bt).pointer(ct).pointer(out));
            let got = m.get::<u16>(out, 2 * n * count);
            for (place, &code) in got.iter().enumerate() {
                let (i, k) = (place / (2 * count) * 2 + place % 2, place % (2 * count) / 2);
                let [x, y, z] = [a[i], b[i], c[i]].map(|code| format.decode(u64::from(code)));
                let what = format!("{} {kernel} {k}: {x:e} {y:e} {z:e}", m.file);
                match if dtype == DType::BF16 && k > 3 { k + 1 } else { k } {
                    8 => same_half("abs", dtype, code, a[i] & 0x7fff),
                    9 => same_half("neg", dtype, code, a[i] ^ 0x8000),
                    11 => {
                        let (got, wanted) = (format.decode(u64::from(code)), z.exp2());
                        let bound = wanted * 2f64.powi(-9) + 2f64.powi(-24);
                        assert!(
                            (got - wanted).abs() <= bound || got == wanted || wanted > 65000.0 || z.is_nan(),
                            "exp2 {z}: {got}"
                        );
                    }
                    function => same_half(&what, dtype, code, to(dtype, exact_half(function, [x, y, z]), Rounding::NearestEven)),
                }
            }
        }
    });
}

#[test]
fn halves_alone() {
    each(&["halves.sm_80", "halves.sm_90a"], |m| {
        let mut stream = Stream(36);
        let n = 256;
        let halves = |stream: &mut Stream| -> Vec<u16> {
            (0..n).map(|i| if i % 4 == 0 { stream.bits() as u16 } else { element::f32_to_f16(stream.unit() * 300.0) }).collect()
        };
        let (a, b) = (halves(&mut stream), halves(&mut stream));
        let (at, bt, out, ints) = (m.put(&a), m.put(&b), m.room(n * 32), m.room(n * 32));
        m.run("f16_scalars", 4, 64, &Params::new().pointer(at).pointer(bt).pointer(out).pointer(ints));
        let (out, ints) = (m.get::<f32>(out, n * 8), m.get::<i32>(ints, n * 8));
        for i in 0..n {
            let (x, y) = (f64::from(element::f16_to_f32(a[i])), f64::from(element::f16_to_f32(b[i])));
            let half = |v: f64, rounding| element::f16_to_f32(to(DType::F16, v, rounding));
            let near = Rounding::NearestEven;
            let wanted = [
                half(x / y, near),
                half(x.abs().sqrt(), near),
                x.round_ties_even() as f32,
                x.floor() as f32,
                x.ceil() as f32,
                x.trunc() as f32,
                half(f64::from(x as f32 * 1.000_976_6), Rounding::TowardZero),
                half(x * f64::from(half(i as f64, near)), near),
            ];
            for (k, (got, wanted)) in out[i * 8..][..8].iter().zip(wanted).enumerate() {
                same_32(&format!("{} scalar {k} of {x:e} {y:e}", m.file), *got, wanted);
            }
            let flags = i32::from(x < y)
                + 2 * i32::from(x == y)
                + 4 * i32::from(x >= y || x.is_nan() || y.is_nan())
                + 8 * i32::from(x.is_nan());
            let wanted = [
                x.round_ties_even() as i32,
                x as i32,
                x.floor() as i32,
                x.ceil() as i32,
                flags,
                i32::from(x.abs().round_ties_even() as u16),
                (if x.is_nan() { i64::MIN } else { x.floor() as i64 } >> 1) as i32,
                i32::from(to(DType::F16, f64::from((i * 517) as u16), Rounding::Up)),
            ];
            assert_eq!(ints[i * 8..][..8], wanted, "{} {x:e} {y:e}", m.file);
        }
    });
}

/// `a + b`, rounded to odd: rounding the result again to few digits is rounding the exact sum once.
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = f64_of(a).add_r(f64_of(b), Round::TowardZero);
    let bits = sum.value.to_bits() as u64;
    f64::from_bits(if sum.status.contains(rustc_apfloat::Status::INEXACT) { bits | 1 } else { bits })
}

#[test]
fn fp8_in_both_formats() {
    each(&["fp8.sm_90a"], |m| {
        let mut stream = Stream(36);
        let n = 512;
        let x: Vec<f32> = (0..n)
            .map(|i| match i % 8 {
                0 => f32::from_bits(stream.bits() as u32),
                _ => stream.unit() * 2f32.powi(stream.below(30) as i32 - 18),
            })
            .collect();
        let (at, e4, e5, pairs) = (m.put(&x), m.room(n), m.room(n), m.room(n * 2));
        m.run("to_fp8", 8, 64, &Params::new().pointer(at).pointer(e4).pointer(e5).pointer(pairs));
        let (e4, e5, pairs) = (m.get::<u8>(e4, n), m.get::<u8>(e5, n), m.get::<u16>(pairs, n));
        let code = |dtype, v: f64| match v.is_nan() {
            true => 0x7f,
            false => FloatFormat::of(dtype).unwrap().encode(v, Rounding::NearestEven, Overflow::Saturate) as u8,
        };
        for i in 0..n {
            let v = f64::from(x[i]);
            assert_eq!((e4[i], e5[i]), (code(DType::F8E4M3, v), code(DType::F8E5M2, v)), "{v:e}");
            let half = f64::from(element::f16_to_f32(element::f32_to_f16(x[i])));
            let wanted = [code(DType::F8E4M3, half), code(DType::F8E4M3, -half)];
            assert_eq!(pairs[i].to_le_bytes(), wanted, "{v:e}");
        }
        let codes: Vec<u8> = (0..=255).collect();
        let (at, e4, e5) = (m.put(&codes), m.room(1024), m.room(1024));
        m.run("from_fp8", 4, 64, &Params::new().pointer(at).pointer(e4).pointer(e5));
        for (code, got) in codes.iter().zip(m.get::<f32>(e4, 256)) {
            same_32("e4m3", got, element::f8e4m3_to_f32(*code));
        }
        for (code, got) in codes.iter().zip(m.get::<f32>(e5, 256)) {
            same_32("e5m2", got, element::f8e5m2_to_f32(*code));
        }
        let codes: Vec<u8> = (0..256).map(|_| stream.below(0x7f) as u8 | (stream.bits() as u8 & 0x80)).collect();
        let (at, out) = (m.put(&codes), m.room(256));
        m.run("scale_fp8", 1, 64, &Params::new().pointer(at).f32(1.7).pointer(out));
        let wanted: Vec<u8> = codes.iter().map(|c| code(DType::F8E4M3, f64::from(element::f8e4m3_to_f32(*c) * 1.7f32))).collect();
        assert_eq!(m.get::<u8>(out, 256), wanted);
    });
}

#[test]
fn softmax_and_layer_norm() {
    each(&["softmax.sm_80", "softmax.fast"], |m| {
        let (rows, n) = (5usize, 77usize);
        let x: Vec<f32> = Stream(37).units(rows * n).into_iter().map(|v| v * 8.0).collect();
        let wanted = |x: &[f64]| -> Vec<f64> {
            x.chunks(n)
                .flat_map(|row| {
                    let sum: f64 = row.iter().map(|v| v.exp()).sum();
                    row.iter().map(move |v| v.exp() / sum).collect::<Vec<_>>()
                })
                .collect()
        };
        let (at, out) = (m.put(&x), m.room(x.len() * 4));
        m.run("softmax_warp", 2, 128, &Params::new().pointer(at).pointer(out).i32(rows as i32).i32(n as i32));
        near("warp", wide(&m.get::<f32>(out, x.len())), wanted(&wide(&x).collect::<Vec<_>>()), 1e-5, 1e-7);
        let halves: Vec<u16> = x.iter().map(|v| element::f32_to_f16(*v)).collect();
        let exact: Vec<f64> = halves.iter().map(|h| f64::from(element::f16_to_f32(*h))).collect();
        let (at, out) = (m.put(&halves), m.room(x.len() * 2));
        m.run("softmax_online", rows as u32, 96, &Params::new().pointer(at).pointer(out).i32(n as i32));
        let got = m.get::<u16>(out, x.len()).into_iter().map(|h| f64::from(element::f16_to_f32(h)));
        near("online", got, wanted(&exact), 2f64.powi(-10), 1e-7);
    });
    each(&["layer_norm.sm_80"], |m| {
        let (rows, n) = (3usize, 200usize);
        let mut stream = Stream(38);
        let x: Vec<u16> = (0..rows * n).map(|_| element::f32_to_bf16(stream.unit() * 3.0 + 0.5)).collect();
        let (gain, bias) = (stream.units(n), stream.units(n));
        let (at, gt, bt, out) = (m.put(&x), m.put(&gain), m.put(&bias), m.room(rows * n * 2));
        let args = Params::new().pointer(at).pointer(gt).pointer(bt).pointer(out).i32(n as i32).f32(1e-5);
        m.run("layer_norm", rows as u32, 64, &args);
        let exact: Vec<f64> = x.iter().map(|b| f64::from(element::bf16_to_f32(*b))).collect();
        near(
            "norm",
            m.get::<u16>(out, rows * n).into_iter().map(|b| f64::from(element::bf16_to_f32(b))),
            normed(&exact, n, &gain, &bias),
            2f64.powi(-8),
            1e-4,
        );
    });
}

pub(crate) fn normed(x: &[f64], n: usize, gain: &[f32], bias: &[f32]) -> Vec<f64> {
    x.chunks(n)
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / n as f64;
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            row.iter().enumerate().map(|(i, v)| (v - mean) * scale * f64::from(gain[i]) + f64::from(bias[i])).collect::<Vec<_>>()
        })
        .collect()
}
