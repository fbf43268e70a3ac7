//! Slice conversions against the generic `encode` and `decode`, on random bit patterns and lengths.

use proptest::prelude::*;
use tessera_types::{FloatFormat, Overflow, Rounding, convert, element};

fn narrowed<T: Copy + Default + Into<u64>>(xs: &[f32], convert: fn(&[f32], &mut [T]), format: FloatFormat) {
    let mut codes = vec![T::default(); xs.len()];
    convert(xs, &mut codes);
    for (&code, &x) in codes.iter().zip(xs) {
        assert_eq!(code.into(), format.encode_nearest(x), "{} {x:e} ({:#x})", format.dtype, x.to_bits());
    }
}

fn widened<T: Copy + Into<u64>>(codes: &[T], convert: fn(&[T], &mut [f32]), format: FloatFormat) {
    let mut xs = vec![0.0; codes.len()];
    convert(codes, &mut xs);
    for (&code, &x) in codes.iter().zip(&xs) {
        let want = format.decode(code.into());
        assert!(
            f64::from(x).to_bits() == want.to_bits() || (x.is_nan() && want.is_nan()),
            "{} {:#x}: {x:e} {want:e}",
            format.dtype,
            code.into()
        );
    }
}

/// Any bits, and numbers of the magnitudes that narrow formats have.
fn floats() -> impl Strategy<Value = Vec<f32>> {
    let usual = (any::<bool>(), 97_u32..146, any::<u32>(), 0_u32..24).prop_map(|(negative, exponent, mantissa, cut)| {
        let fraction = (mantissa & 0x007f_ffff) >> cut << cut;
        f32::from_bits(u32::from(negative) << 31 | exponent << 23 | fraction)
    });
    prop::collection::vec(prop_oneof![any::<u32>().prop_map(f32::from_bits), usual], 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn narrowing_is_encoding(xs in floats()) {
        narrowed(&xs, convert::f32_to_f16, FloatFormat::F16);
        narrowed(&xs, convert::f32_to_bf16, FloatFormat::BF16);
        narrowed(&xs, convert::f32_to_f8e4m3, FloatFormat::F8E4M3);
        narrowed(&xs, convert::f32_to_f8e5m2, FloatFormat::F8E5M2);
        narrowed(&xs, convert::f32_to_f6e2m3, FloatFormat::F6E2M3);
        narrowed(&xs, convert::f32_to_f6e3m2, FloatFormat::F6E3M2);
        narrowed(&xs, convert::f32_to_f4e2m1, FloatFormat::F4E2M1);
        narrowed(&xs, convert::f32_to_e8m0, FloatFormat::E8M0);
    }

    #[test]
    fn widening_is_decoding(words in prop::collection::vec(any::<u16>(), 0..200)) {
        widened(&words, convert::f16_to_f32, FloatFormat::F16);
        widened(&words, convert::bf16_to_f32, FloatFormat::BF16);
        let bytes: Vec<u8> = words.iter().map(|&w| w as u8).collect();
        widened(&bytes, convert::f8e4m3_to_f32, FloatFormat::F8E4M3);
        widened(&bytes, convert::f8e5m2_to_f32, FloatFormat::F8E5M2);
        widened(&bytes, convert::f6e2m3_to_f32, FloatFormat::F6E2M3);
        widened(&bytes, convert::f6e3m2_to_f32, FloatFormat::F6E3M2);
        widened(&bytes, convert::f4e2m1_to_f32, FloatFormat::F4E2M1);
        widened(&bytes, convert::e8m0_to_f32, FloatFormat::E8M0);
    }

    #[test]
    fn tf32_rounds_both_ways(xs in floats()) {
        let (mut even, mut away) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
        convert::f32_to_tf32(&xs, &mut even);
        convert::f32_to_tf32_away(&xs, &mut away);
        for ((&x, even), away) in xs.iter().zip(even).zip(away) {
            let format = FloatFormat::TF32;
            prop_assert_eq!(u64::from(even.to_bits()), format.encode_nearest(x));
            let want = format.encode(x, Rounding::NearestAway, Overflow::Ieee);
            prop_assert_eq!(u64::from(away.to_bits()), want);
        }
    }

    #[test]
    fn f64_is_rounded_once(bits in any::<u64>(), x in -70000.0..70000.0_f64, low in -2_i64..3) {
        // Near an f32 the second of two roundings would go astray.
        let near = f64::from(x as f32);
        let near = f64::from_bits(near.to_bits().wrapping_add_signed(low));
        let xs = [f64::from_bits(bits), x, near, near * 2_f64.powi(-20)];
        let (mut f16, mut bf16) = ([0; 4], [0; 4]);
        convert::f64_to_f16(&xs, &mut f16);
        convert::f64_to_bf16(&xs, &mut bf16);
        for ((x, f16), bf16) in xs.into_iter().zip(f16).zip(bf16) {
            prop_assert_eq!(u64::from(f16), FloatFormat::F16.encode_nearest(x));
            prop_assert_eq!(u64::from(bf16), FloatFormat::BF16.encode_nearest(x));
            let odd = FloatFormat::F32.encode(x, Rounding::TowardZero, Overflow::Ieee);
            let rounded = element::f64_to_f32_odd(x);
            if !x.is_nan() {
                let inexact = f64::from(f32::from_bits(odd as u32)) != x;
                prop_assert_eq!(u64::from(rounded.to_bits()), odd | u64::from(inexact));
            }
        }
    }
}

#[test]
fn long_slices_are_converted_to_their_ends() {
    let xs: Vec<f32> =
        (0..10_007).map(|i| if i % 7 == 0 { f32::from_bits(0xffc0_0001) } else { i as f32 * 0.37 - 900.0 }).collect();
    narrowed(&xs, convert::f32_to_f16, FloatFormat::F16);
    narrowed(&xs, convert::f32_to_f8e4m3, FloatFormat::F8E4M3);
}

#[test]
#[should_panic(expected = "slices of one length")]
fn slices_of_two_lengths_are_refused() {
    convert::f32_to_bf16(&[1.0, 2.0], &mut [0]);
}
