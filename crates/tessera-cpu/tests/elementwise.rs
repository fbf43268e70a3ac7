//! Every elementwise operation against a plain scalar reference, fused and not.

#![allow(clippy::type_complexity, clippy::if_same_then_else, reason = "tables of plain functions")]

use crate::harness::{Data, launch};

/// A program that applies `body` (which defines `%r` from `%a`, `%b`, `%c`) to tiles of 32 elements.
fn program(from: &str, to: &str, body: &str) -> String {
    let mut text =
        format!("schedule @k(%x: tile<ptr<{from}>>, %y: tile<ptr<{from}>>, %z: tile<ptr<{from}>>, %o: tile<ptr<{to}>>) {{\n");
    text += "  %i = get_tile_block_id {axis=x} : tile<i32>\n";
    for (array, tile) in [("x", "a"), ("y", "b"), ("z", "c")] {
        text += &format!("  %{array}v = make_tensor_view %{array}, [], [] : tensor_view<96x{from}, strides=[1]>\n");
        text += &format!(
            "  %{array}p = make_partition_view %{array}v : partition_view<tile=(32), tensor_view<96x{from}, strides=[1]>>\n"
        );
        text += &format!("  %{tile}, %{tile}t = load_view_tko %{array}p, [%i] : tile<32x{from}>, token\n");
    }
    text += &format!("  %ov = make_tensor_view %o, [], [] : tensor_view<96x{to}, strides=[1]>\n");
    text += &format!("  %op = make_partition_view %ov : partition_view<tile=(32), tensor_view<96x{to}, strides=[1]>>\n");
    text += body;
    text += "\n  %done = store_view_tko %r, %op, [%i] : token\n  return\n}\n";
    text
}

fn run<T: Copy, R: Copy>(from: &str, to: &str, body: &str, input: [&[T]; 3]) -> Vec<R> {
    let bytes = vec![0_u8; 96 * size_of::<R>()];
    let mut data = [Data::of(input[0]), Data::of(input[1]), Data::of(input[2]), Data::of(&bytes)];
    launch(&program(from, to, body), [3, 1, 1], &mut data);
    data[3].read()
}

fn floats() -> [Vec<f32>; 3] {
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-40, f32::MAX, 0.5, 3.25];
    let make = |seed: u32| {
        (0..96_u32)
            .map(|i| {
                let hash = (i + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 3;
                match hash % 4 {
                    0 => special[(hash / 4 % special.len() as u32) as usize],
                    _ => (hash % 20_000) as f32 / 1000.0 - 10.0,
                }
            })
            .collect()
    };
    [make(1), make(7), make(13)]
}

#[test]
fn float32_arithmetic() {
    let [a, b, c] = floats();
    let cases: &[(&str, fn(f32, f32, f32) -> f32)] = &[
        ("addf %a, %b", |a, b, _| a + b),
        ("subf %a, %b", |a, b, _| a - b),
        ("mulf %a, %b", |a, b, _| a * b),
        ("divf %a, %b", |a, b, _| a / b),
        ("remf %a, %b", |a, b, _| a % b),
        ("fma %a, %b, %c", |a, b, c| a.mul_add(b, c)),
        ("negf %a", |a, _, _| -a),
        ("absf %a", |a, _, _| a.abs()),
        ("ceil %a", |a, _, _| a.ceil()),
        ("floor %a", |a, _, _| a.floor()),
        ("sqrt %a", |a, _, _| a.sqrt()),
        ("maxf %a, %b", |a, b, _| {
            if a.is_nan() {
                b
            } else if b.is_nan() {
                a
            } else if a > b {
                a
            } else if b > a {
                b
            } else {
                f32::from_bits(a.to_bits() & b.to_bits())
            }
        }),
        ("minf %a, %b {propagate_nan=true}", |a, b, _| {
            if a.is_nan() || b.is_nan() {
                f32::NAN
            } else if a < b {
                a
            } else if b < a {
                b
            } else {
                f32::from_bits(a.to_bits() | b.to_bits())
            }
        }),
        ("addf %a, %b {flush_to_zero=true}", |a, b, _| {
            let f = |x: f32| if x.is_subnormal() { 0.0_f32.copysign(x) } else { x };
            f(f(a) + f(b))
        }),
    ];
    for (op, reference) in cases {
        let got: Vec<f32> = run("f32", "f32", &format!("  %r = {op} : tile<32xf32>").replace("} :", "} :"), [&a, &b, &c]);
        for i in 0..96 {
            let want = reference(a[i], b[i], c[i]);
            assert!(
                got[i].to_bits() == want.to_bits() || got[i].is_nan() && want.is_nan(),
                "{op}: {} {} {}: {} != {want}",
                a[i],
                b[i],
                c[i],
                got[i]
            );
        }
    }
}

#[test]
fn float_functions() {
    let [a, b, c] = floats();
    let cases: &[(&str, fn(f64, f64) -> f64)] = &[
        ("exp %a", |a, _| a.exp()),
        ("exp2 %a", |a, _| a.exp2()),
        ("log %a", |a, _| a.ln()),
        ("log2 %a", |a, _| a.log2()),
        ("rsqrt %a", |a, _| 1.0 / a.sqrt()),
        ("sin %a", |a, _| a.sin()),
        ("cos %a", |a, _| a.cos()),
        ("tan %a", |a, _| a.tan()),
        ("sinh %a", |a, _| a.sinh()),
        ("cosh %a", |a, _| a.cosh()),
        ("tanh %a", |a, _| a.tanh()),
        ("pow %a, %b", |a, b| a.powf(b)),
        ("atan2 %a, %b", |a, b| a.atan2(b)),
    ];
    for (op, reference) in cases {
        let got: Vec<f32> = run("f32", "f32", &format!("  %r = {op} : tile<32xf32>"), [&a, &b, &c]);
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let (wa, wb) = (wide(&a), wide(&b));
        let got64: Vec<f64> = run("f64", "f64", &format!("  %r = {op} : tile<32xf64>"), [&wa, &wb, &wide(&c)]);
        for i in 0..96 {
            let want = reference(wa[i], wb[i]);
            let near = |got: f64, want: f64, eps: f64| {
                got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= eps * want.abs() + 1e-44
            };
            assert!(near(f64::from(got[i]), f64::from(want as f32), 3e-7), "{op}: {} {}: {} != {want}", a[i], b[i], got[i]);
            assert!(near(got64[i], want, 1e-14), "{op}: {} {}: {} != {want}", a[i], b[i], got64[i]);
        }
    }
}

/// The neighbours of an exact sum or product, by 128-bit integers: both are exact in f64 pairs only sometimes, never there.
#[test]
fn directed_rounding() {
    let a: Vec<f32> = (0..96).map(|i| f32::from_bits(0x3f80_0000 + i * 77_777)).collect();
    let b: Vec<f32> = (0..96).map(|i| -f32::from_bits(0x3e00_0000 + i * 55_555)).collect();
    let c: Vec<f32> = (0..96).map(|i| f32::from_bits(0x3c00_0001 + i * 33_333)).collect();
    for (mode, up) in [("negative_inf", Some(false)), ("positive_inf", Some(true)), ("zero", None)] {
        for (op, exact) in [
            ("addf %a, %b", (|a, b, _| a + b) as fn(f64, f64, f64) -> f64),
            ("mulf %a, %b", |a, b, _| a * b),
            ("subf %a, %b", |a, b, _| a - b),
        ] {
            let got: Vec<f32> = run("f32", "f32", &format!("  %r = {op} {{rounding={mode}}} : tile<32xf32>"), [&a, &b, &c]);
            for i in 0..96 {
                // Exponents are near: the f64 result is exact.
                let want = exact(f64::from(a[i]), f64::from(b[i]), f64::from(c[i]));
                let near = want as f32;
                let above = if f64::from(near) >= want { near } else { near.next_up() };
                let below = if f64::from(near) <= want { near } else { near.next_down() };
                let want = match up {
                    Some(true) => above,
                    Some(false) => below,
                    None => {
                        if want > 0.0 {
                            below
                        } else {
                            above
                        }
                    }
                };
                assert_eq!(got[i], want, "{op} {mode}: {} {}", a[i], b[i]);
            }
        }
        for op in ["divf %a, %b", "sqrt %a", "fma %a, %b, %c"] {
            let low: Vec<f32> = run("f32", "f32", &format!("  %r = {op} {{rounding=negative_inf}} : tile<32xf32>"), [&a, &b, &c]);
            let high: Vec<f32> =
                run("f32", "f32", &format!("  %r = {op} {{rounding=positive_inf}} : tile<32xf32>"), [&a, &b, &c]);
            let near: Vec<f32> = run("f32", "f32", &format!("  %r = {op} : tile<32xf32>"), [&a, &b, &c]);
            for i in 0..96 {
                assert!(low[i] <= near[i] && near[i] <= high[i], "{op}");
                assert!(low[i] == high[i] || low[i].next_up() == high[i], "{op}: {} {}", low[i], high[i]);
            }
        }
    }
}

#[test]
fn narrow_floats_round_after_every_operation() {
    use tessera_types::element::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
    let raw = |seed: u32| {
        (0..96_u32).map(|i| (i.wrapping_mul(7919).wrapping_add(seed * 104_729) % 0x7000) as u16).collect::<Vec<u16>>()
    };
    let (a, b, c) = (raw(1), raw(2), raw(3));
    type Codec = (fn(u16) -> f32, fn(f32) -> u16);
    let formats: [(&str, Codec); 2] = [("f16", (f16_to_f32, f32_to_f16)), ("bf16", (bf16_to_f32, f32_to_bf16))];
    for (name, (decode, encode)) in formats {
        let body = format!(
            "  %m = mulf %a, %b : tile<32x{name}>\n  %s = addf %m, %c : tile<32x{name}>\n  %q = divf %s, %b : tile<32x{name}>\n  %r = maxf %q, %c : tile<32x{name}>"
        );
        let got: Vec<u16> = run(name, name, &body, [&a, &b, &c]);
        for i in 0..96 {
            let r = |x: f32| decode(encode(x));
            let (x, y, z) = (decode(a[i]), decode(b[i]), decode(c[i]));
            let q = r(r(r(x * y) + z) / y);
            let want = if q.is_nan() { z } else { q.max(z) };
            assert_eq!(decode(got[i]), want, "{name} {x} {y} {z}");
        }
        let copied: Vec<u16> = run(
            name,
            name,
            "  %k = constant {value=i1(true)} : tile<32xi1>\n  %r = select %k, %a, %b : tile<32xT>".replace('T', name).as_str(),
            [&a, &b, &c],
        );
        assert_eq!(copied, a);
    }
}

#[test]
fn integer_arithmetic() {
    macro_rules! check {
        ($name:literal, $ty:ident, $unsigned:ident, $wide:ident) => {{
            let make = |seed: u64| -> Vec<$ty> {
                (0..96_u64)
                    .map(|i| match i % 5 {
                        0 => [$ty::MIN, $ty::MAX, 0, 1, -1][(i / 5 % 5) as usize],
                        _ => (i + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(seed).rotate_left(17) as $ty,
                    })
                    .collect()
            };
            let (a, b, c) = (make(3), make(5), make(7));
            let b: Vec<$ty> = b.iter().map(|&b| if b == 0 { 3 } else { b }).collect();
            let counts: Vec<$ty> = (0..96).map(|i| (i % $ty::BITS as i32) as $ty).collect();
            type F = fn($ty, $ty) -> $ty;
            let cases: &[(&str, F)] = &[
                ("addi %a, %b", |a, b| a.wrapping_add(b)),
                ("subi %a, %b", |a, b| a.wrapping_sub(b)),
                ("muli %a, %b", |a, b| a.wrapping_mul(b)),
                ("mulhii %a, %b", |a, b| ((a as $unsigned as $wide * b as $unsigned as $wide) >> $ty::BITS) as $ty),
                ("divi %a, %b {rounding=zero}", |a, b| a.wrapping_div(b)),
                ("divi %a, %b {rounding=negative_inf}", |a, b| {
                    let q = a.wrapping_div(b);
                    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
                }),
                ("divi %a, %b {rounding=positive_inf}", |a, b| {
                    let q = a.wrapping_div(b);
                    if a.wrapping_rem(b) != 0 && (a < 0) == (b < 0) { q + 1 } else { q }
                }),
                ("divi %a, %b {signedness=unsigned, rounding=zero}", |a, b| (a as $unsigned / b as $unsigned) as $ty),
                ("remi %a, %b", |a, b| a.wrapping_rem(b)),
                ("remi %a, %b {signedness=unsigned}", |a, b| (a as $unsigned % b as $unsigned) as $ty),
                ("maxi %a, %b", |a, b| a.max(b)),
                ("mini %a, %b {signedness=unsigned}", |a, b| (a as $unsigned).min(b as $unsigned) as $ty),
                ("andi %a, %b", |a, b| a & b),
                ("ori %a, %b", |a, b| a | b),
                ("xori %a, %b", |a, b| a ^ b),
                ("absi %a", |a, _| a.wrapping_abs()),
                ("negi %a", |a, _| a.wrapping_neg()),
            ];
            for (op, reference) in cases {
                let got: Vec<$ty> = run($name, $name, &format!("  %r = {op} : tile<32x{}>", $name), [&a, &b, &c]);
                let want: Vec<$ty> = a.iter().zip(&b).map(|(&a, &b)| reference(a, b)).collect();
                assert_eq!(got, want, "{op} {}", $name);
            }
            let shifts: &[(&str, F)] = &[
                ("shli %a, %b", |a, b| a.wrapping_shl(b as u32)),
                ("shri %a, %b", |a, b| a.wrapping_shr(b as u32)),
                ("shri %a, %b {signedness=unsigned}", |a, b| (a as $unsigned).wrapping_shr(b as u32) as $ty),
            ];
            for (op, reference) in shifts {
                let got: Vec<$ty> = run($name, $name, &format!("  %r = {op} : tile<32x{}>", $name), [&a, &counts, &c]);
                let want: Vec<$ty> = a.iter().zip(&counts).map(|(&a, &b)| reference(a, b)).collect();
                assert_eq!(got, want, "{op} {}", $name);
            }
            for (predicate, reference) in
                [("lt", (|a, b| a < b) as fn($ty, $ty) -> bool), ("ge", |a, b| a >= b), ("ne", |a, b| a != b)]
            {
                let body = format!(
                    "  %k = cmpi %a, %b {{predicate={predicate}}} : tile<32xi1>\n  %r = select %k, %a, %c : tile<32x{}>",
                    $name
                );
                let got: Vec<$ty> = run($name, $name, &body, [&a, &b, &c]);
                let want: Vec<$ty> = (0..96).map(|i| if reference(a[i], b[i]) { a[i] } else { c[i] }).collect();
                assert_eq!(got, want, "{predicate} {}", $name);
            }
        }};
    }
    check!("i8", i8, u8, u16);
    check!("i16", i16, u16, u32);
    check!("i32", i32, u32, u64);
    check!("i64", i64, u64, u128);
}

#[test]
fn conversions() {
    let [a, b, c] = floats();
    let got: Vec<i32> = run("f32", "i32", "  %r = ftoi %a {rounding=nearest_int_to_zero} : tile<32xi32>", [&a, &b, &c]);
    assert_eq!(got, a.iter().map(|&a| a as i32).collect::<Vec<_>>());
    let got: Vec<u8> =
        run("f32", "i8", "  %r = ftoi %a {signedness=unsigned, rounding=nearest_int_to_zero} : tile<32xi8>", [&a, &b, &c]);
    assert_eq!(got, a.iter().map(|&a| a as u8).collect::<Vec<_>>());
    let got: Vec<f64> = run("f32", "f64", "  %r = ftof %a : tile<32xf64>", [&a, &b, &c]);
    assert!(got.iter().zip(&a).all(|(g, &a)| g.to_bits() == f64::from(a).to_bits() || a.is_nan()));
    for (name, format) in [("f8e4m3", tessera_types::FloatFormat::F8E4M3), ("f8e5m2", tessera_types::FloatFormat::F8E5M2)] {
        let got: Vec<u8> = run("f32", name, &format!("  %r = ftof %a : tile<32x{name}>"), [&a, &b, &c]);
        assert_eq!(got, a.iter().map(|&a| format.encode_nearest(a) as u8).collect::<Vec<_>>());
        let back: Vec<f32> = run(name, "f32", "  %r = ftof %a : tile<32xf32>", [&got, &got, &got]);
        assert!(back.iter().zip(&got).all(|(x, &code)| f64::from(*x) == format.decode(u64::from(code)) || x.is_nan()));
    }
    for (mode, rounding) in [
        ("zero", tessera_types::Rounding::TowardZero),
        ("positive_inf", tessera_types::Rounding::Up),
        ("nearest_away", tessera_types::Rounding::NearestAway),
    ] {
        let got: Vec<u16> = run("f32", "bf16", &format!("  %r = ftof %a {{rounding={mode}}} : tile<32xbf16>"), [&a, &b, &c]);
        let format = tessera_types::FloatFormat::BF16;
        assert_eq!(got, a.iter().map(|&a| format.encode(a, rounding, tessera_types::Overflow::Ieee) as u16).collect::<Vec<_>>());
    }
    let ints: Vec<i32> = (0..96).map(|i| (i * 123_456_789_i64 - 5_000_000_000) as i32).collect();
    let got: Vec<f32> = run("i32", "f32", "  %r = itof %a {signedness=unsigned} : tile<32xf32>", [&ints, &ints, &ints]);
    assert_eq!(got, ints.iter().map(|&i| i as u32 as f32).collect::<Vec<_>>());
    let got: Vec<u16> = run("i32", "f16", "  %r = itof %a : tile<32xf16>", [&ints, &ints, &ints]);
    assert_eq!(
        got,
        ints.iter().map(|&i| tessera_types::FloatFormat::F16.encode_nearest(i64::from(i)) as u16).collect::<Vec<_>>()
    );
    let got: Vec<i64> = run("i32", "i64", "  %r = exti %a {signedness=unsigned} : tile<32xi64>", [&ints, &ints, &ints]);
    assert_eq!(got, ints.iter().map(|&i| i64::from(i as u32)).collect::<Vec<_>>());
    let got: Vec<i8> = run("i32", "i8", "  %r = trunci %a : tile<32xi8>", [&ints, &ints, &ints]);
    assert_eq!(got, ints.iter().map(|&i| i as i8).collect::<Vec<_>>());
    let got: Vec<u32> = run("f32", "i32", "  %r = bitcast %a : tile<32xi32>", [&a, &b, &c]);
    assert_eq!(got, a.iter().map(|a| a.to_bits()).collect::<Vec<_>>());
}

/// Each number stands in a strip of its own, of half a cache line: memory is planned for whole ones.
#[test]
fn chains_of_many_numbers_have_room_for_their_strips() {
    let a: Vec<i8> = (0..96).collect();
    let mut body = String::from("  %v0 = addi %a, %a : tile<32xi8>\n");
    for k in 0..40 {
        body += &format!("  %k{k} = constant {{value=i8({k})}} : tile<32xi8>\n");
        body += &format!("  %v{} = xori %v{k}, %k{k} : tile<32xi8>\n", k + 1);
    }
    body += "  %r = addi %v40, %b : tile<32xi8>";
    let numbers = (0..40).fold(0, |all, k: i8| all ^ k);
    let want: Vec<i8> = a.iter().map(|&a| (a.wrapping_add(a) ^ numbers).wrapping_add(a)).collect();
    assert_eq!(run::<i8, i8>("i8", "i8", &body, [&a, &a, &a]), want);
}
