//! Integer formats and casts between any two element types.

use proptest::prelude::*;
use tessera_types::{DType, FloatFormat, IntFormat, NumberClass, Overflow, Rounding, cast, convert, default_rounding};

fn integers() -> impl Iterator<Item = (DType, IntFormat)> {
    DType::ALL.iter().filter_map(|&t| IntFormat::of(t).map(|f| (t, f)))
}

/// Rounding by the standard library, whose results are exact.
fn rounded(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => x.round_ties_even(),
        Rounding::TowardZero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
        Rounding::NearestAway => x.round(),
    }
}

fn check_float(x: f64) {
    for (dtype, format) in integers() {
        for rounding in Rounding::ALL {
            // i128's own conversion saturates far outside every format.
            let want = (rounded(x, rounding) as i128).clamp(format.min(), format.max());
            let got = format.value(format.from_float(x, rounding));
            assert_eq!(got, want, "{dtype} {x:e} {rounding:?}");
        }
    }
}

#[test]
fn halves_and_limits_round_and_saturate() {
    for i in -600..600 {
        check_float(f64::from(i) / 4.0);
    }
    for (_, format) in integers() {
        for limit in [format.min() as f64, format.max() as f64] {
            for offset in [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5] {
                check_float(limit + offset);
            }
            check_float(limit.next_up());
            check_float(limit.next_down());
        }
    }
    for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::from_bits(1), -0.0] {
        check_float(x);
    }
}

#[test]
fn every_narrow_code_survives_value_and_wrap() {
    for (dtype, format) in integers().filter(|(_, f)| f.bits <= 16) {
        let mut seen = Vec::new();
        for code in 0..1_u64 << format.bits {
            let value = format.value(code);
            assert!((format.min()..=format.max()).contains(&value), "{dtype}");
            assert_eq!(format.wrap(value), code);
            assert_eq!(format.wrap(value + (1 << format.bits)), code);
            assert_eq!(format.saturate(value), code);
            assert_eq!(format.value(code | !0 << format.bits), value, "high bits are ignored");
            seen.push(value);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1 << format.bits);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn floats_saturate_as_rusts_casts_do(x in any::<f64>(), y in -1e20..1e20_f64) {
        for x in [x, y] {
            check_float(x);
            let rz = |dtype| IntFormat::of(dtype).unwrap().from_float(x, Rounding::TowardZero);
            prop_assert_eq!(rz(DType::I64), x as i64 as u64);
            prop_assert_eq!(rz(DType::U64), x as u64);
            prop_assert_eq!(rz(DType::I32), u64::from(x as i32 as u32));
            prop_assert_eq!(rz(DType::U8), u64::from(x as u8));
        }
    }

    #[test]
    fn casts_are_rusts_where_rust_has_them(bits in any::<u64>()) {
        let to = |from, to| cast(bits, from, to, default_rounding(from, to));
        let x = f32::from_bits(bits as u32);
        prop_assert_eq!(to(DType::I64, DType::I32), u64::from(bits as u32));
        prop_assert_eq!(to(DType::I8, DType::I64), bits as i8 as i64 as u64);
        prop_assert_eq!(to(DType::U16, DType::U64), u64::from(bits as u16));
        prop_assert_eq!(to(DType::I64, DType::F32), u64::from((bits as i64 as f32).to_bits()));
        prop_assert_eq!(to(DType::U64, DType::F64), (bits as f64).to_bits());
        prop_assert_eq!(to(DType::F32, DType::I16), u64::from(x as i16 as u16));
        prop_assert_eq!(to(DType::F32, DType::B1), u64::from(x != 0.0));
        prop_assert_eq!(to(DType::I32, DType::B1), u64::from(bits as u32 != 0));
        prop_assert_eq!(to(DType::B1, DType::F16), if bits & 1 == 1 { 0x3c00 } else { 0 });
        if !x.is_nan() {
            prop_assert_eq!(to(DType::F32, DType::F64), f64::from(x).to_bits());
        }
    }

    #[test]
    fn a_number_that_both_types_hold_survives_the_way_there_and_back(code in any::<u64>()) {
        for &from in DType::ALL {
            for &to in DType::ALL {
                let code = cast(code, from, from, Rounding::NearestEven);
                let there = cast(code, from, to, Rounding::NearestEven);
                let value = |dtype: DType, bits| match (FloatFormat::of(dtype), IntFormat::of(dtype)) {
                    (Some(f), _) => f.decode(bits),
                    (_, Some(i)) if i.value(bits).unsigned_abs() < 1 << 53 => i.value(bits) as f64,
                    (_, Some(_)) => f64::NAN,
                    _ => bits as f64,
                };
                let (x, y) = (value(from, code), value(to, there));
                let signed_zero = x == 0.0 && x.is_sign_negative() && to.class() != NumberClass::Float;
                if x == y && !signed_zero {
                    prop_assert_eq!(cast(there, to, from, Rounding::NearestEven), code, "{} {}", from, to);
                }
            }
        }
    }
}

#[test]
fn casts_saturate_or_overflow_by_target() {
    let from_f32 = |x: f32, to| cast(u64::from(x.to_bits()), DType::F32, to, Rounding::NearestEven);
    assert_eq!(from_f32(1e9, DType::F8E4M3), 0x7e);
    assert_eq!(from_f32(1e9, DType::F8E5M2), 0x7b);
    assert_eq!(from_f32(1e9, DType::F16), 0x7c00);
    assert_eq!(from_f32(-100.0, DType::F4E2M1), 0xf);
    assert_eq!(from_f32(-9.0, DType::I4), 0x8);
    assert_eq!(cast(200, DType::I32, DType::I4, Rounding::NearestEven), 0x8);
    assert_eq!(cast(1 << 24 | 1, DType::I32, DType::F32, Rounding::Up), u64::from((16_777_218_f32).to_bits()));
    let e4m3 = FloatFormat::F8E4M3;
    assert_eq!(e4m3.encode(464.0, Rounding::NearestEven, Overflow::Ieee), 0x7e);
    assert_eq!(e4m3.encode(464.1, Rounding::NearestEven, Overflow::Ieee), 0x7f);
}

#[test]
fn four_bit_integers_keep_their_sign_in_slices() {
    let codes: Vec<u8> = (0..=255).collect();
    let mut numbers = vec![0; 256];
    convert::i4_to_i8(&codes, &mut numbers);
    let format = IntFormat::of(DType::I4).unwrap();
    for (&code, &number) in codes.iter().zip(&numbers) {
        assert_eq!(i128::from(number), format.value(code.into()));
    }
    let mut again = vec![0; 256];
    convert::i8_to_i4(&numbers, &mut again);
    assert!(again.iter().zip(&codes).all(|(a, c)| *a == c & 0xf));
}
