//! Every value of every format of at most 19 bits, every midpoint between neighbours, and the `f64` and `f32` numbers next to
//! each, in every rounding and overflow mode, against an oracle that knows nothing of exponents and mantissas: it has the
//! sorted list of a format's values and compares. All its sums and differences are exact in `f64`.

use tessera_types::{Exact, FloatFormat, Overflow, Rounding, Specials, element};

/// A format as a sorted list: `values[i]` is the magnitude of code `i`; one more entry, unreachable, is the number that would
/// follow the largest finite one.
struct Ladder {
    format: FloatFormat,
    values: Vec<f64>,
}

impl Ladder {
    fn new(format: FloatFormat) -> Ladder {
        let last = format.max_finite_code() >> format.padding;
        let mut values: Vec<f64> = (0..=last).map(|code| format.decode(code << format.padding)).collect();
        let top = values[last as usize];
        // e8m0 doubles, the others go on in even steps (the step holds up to the next power of two).
        values.push(if format.signed { top + (top - values[last as usize - 1]) } else { top * 2.0 });
        Ladder { format, values }
    }

    fn signed(&self, index: usize, negative: bool) -> u64 {
        let sign = if negative { self.format.sign_mask() } else { 0 };
        sign | (index as u64) << self.format.padding
    }

    fn overflowed(&self, negative: bool, overflow: Overflow) -> u64 {
        let largest = self.signed(self.values.len() - 2, negative);
        match (overflow, self.format.specials) {
            (Overflow::Saturate, _) | (_, Specials::None) => largest,
            (Overflow::Ieee, Specials::Ieee) => self.signed(self.values.len() - 1, negative),
            (Overflow::Ieee, Specials::NanOnly) => self.format.nan_code().unwrap(),
        }
    }

    /// `above`: how many values lie below |x|.
    fn encode(&self, x: f64, above: usize, rounding: Rounding, overflow: Overflow) -> u64 {
        let negative = x.is_sign_negative();
        let magnitude = x.abs();
        if x < 0.0 && !self.format.signed {
            return self.format.nan_code().unwrap();
        }
        let beyond = self.values.len() - 1;
        if above > beyond || magnitude == self.values[beyond] {
            let inward = match rounding {
                Rounding::TowardZero => true,
                Rounding::Up => negative,
                Rounding::Down => !negative,
                Rounding::NearestEven | Rounding::NearestAway => false,
            };
            return if inward { self.signed(beyond - 1, negative) } else { self.overflowed(negative, overflow) };
        }
        let index = if above == 0 || self.values[above] == magnitude {
            above
        } else {
            let (low, high) = (self.values[above - 1], self.values[above]);
            let (to_low, to_high) = (magnitude - low, high - magnitude);
            let nearest = to_low.partial_cmp(&to_high).unwrap();
            let up = match rounding {
                Rounding::TowardZero => false,
                Rounding::Down => negative,
                Rounding::Up => !negative,
                Rounding::NearestAway => nearest.is_ge(),
                // With one significant bit there is no even neighbour: the larger one is taken.
                Rounding::NearestEven if self.format.mantissa_bits == 0 => nearest.is_ge(),
                Rounding::NearestEven => nearest.is_gt() || (nearest.is_eq() && above.is_multiple_of(2)),
            };
            if up { above } else { above - 1 }
        };
        if index == beyond { self.overflowed(negative, overflow) } else { self.signed(index, negative) }
    }
}

fn small_formats() -> impl Iterator<Item = FloatFormat> {
    FloatFormat::ALL.iter().copied().filter(|f| f.bits() <= 19)
}

/// Each value, each midpoint, and what `f64` and `f32` have next to them.
fn probes(ladder: &Ladder) -> Vec<f64> {
    let mut probes = vec![0.0, f64::MIN_POSITIVE, f64::from_bits(1), f64::MAX, f64::from(f32::MAX), 1e300];
    for pair in ladder.values.windows(2) {
        let middle = pair[0] + (pair[1] - pair[0]) / 2.0;
        for x in [pair[0], middle, pair[1]] {
            probes.extend([x, x.next_up(), x.next_down()]);
            let narrow = x as f32;
            if f64::from(narrow) == x {
                probes.extend([f64::from(narrow.next_up()), f64::from(narrow.next_down())]);
            }
        }
    }
    probes.retain(|x| x.is_finite() && *x >= 0.0);
    probes
}

#[test]
fn values_and_midpoints_round_as_the_sorted_list_says() {
    for format in small_formats() {
        let ladder = Ladder::new(format);
        assert!(ladder.values.is_sorted(), "{}", format.dtype);
        let mut checked = 0_u64;
        for magnitude in probes(&ladder) {
            let above = ladder.values.partition_point(|&v| v < magnitude);
            // Overflow is asked about only where it can happen.
            let modes: &[Overflow] =
                if above + 3 > ladder.values.len() { &[Overflow::Saturate, Overflow::Ieee] } else { &[Overflow::Ieee] };
            for x in [magnitude, -magnitude] {
                for rounding in Rounding::ALL {
                    for &overflow in modes {
                        let (got, want) = (format.encode(x, rounding, overflow), ladder.encode(x, above, rounding, overflow));
                        assert_eq!(got, want, "{} {x:e} {rounding:?} {overflow:?}", format.dtype);
                        checked += 1;
                    }
                }
            }
        }
        println!("{}: {checked} conversions", format.dtype);
    }
}

#[test]
fn every_code_survives_decode_and_encode() {
    for format in small_formats() {
        for code in 0..1_u64 << format.bits() {
            let bits = code << format.padding;
            let value = format.decode(bits);
            for rounding in Rounding::ALL {
                let again = format.encode(value, rounding, Overflow::Ieee);
                if value.is_nan() {
                    assert_eq!(Some(again), format.nan_code());
                } else {
                    assert_eq!(again, bits, "{} {bits:#x} {rounding:?}", format.dtype);
                }
            }
        }
    }
}

#[test]
fn special_values_follow_the_table() {
    use Overflow::{Ieee, Saturate};
    let cases: [(FloatFormat, f64, Overflow, u64); 22] = [
        (FloatFormat::F16, f64::INFINITY, Ieee, 0x7c00),
        (FloatFormat::F16, f64::NEG_INFINITY, Saturate, 0xfbff),
        (FloatFormat::F16, f64::NAN, Ieee, 0x7e00),
        (FloatFormat::BF16, f64::NEG_INFINITY, Ieee, 0xff80),
        (FloatFormat::BF16, -f64::NAN, Ieee, 0x7fc0),
        (FloatFormat::TF32, f64::INFINITY, Ieee, 0x7f80_0000),
        (FloatFormat::F8E4M3, f64::INFINITY, Saturate, 0x7e),
        (FloatFormat::F8E4M3, f64::NEG_INFINITY, Ieee, 0x7f),
        (FloatFormat::F8E4M3, f64::NAN, Saturate, 0x7f),
        (FloatFormat::F8E5M2, f64::INFINITY, Saturate, 0x7b),
        (FloatFormat::F8E5M2, f64::NEG_INFINITY, Ieee, 0xfc),
        (FloatFormat::F8E5M2, f64::NAN, Saturate, 0x7e),
        (FloatFormat::F6E2M3, f64::NAN, Saturate, 0x1f),
        (FloatFormat::F6E2M3, f64::NEG_INFINITY, Ieee, 0x3f),
        (FloatFormat::F6E3M2, f64::INFINITY, Saturate, 0x1f),
        (FloatFormat::F4E2M1, f64::NAN, Saturate, 0x7),
        (FloatFormat::F4E2M1, f64::NEG_INFINITY, Saturate, 0xf),
        (FloatFormat::E8M0, f64::NAN, Saturate, 0xff),
        (FloatFormat::E8M0, f64::INFINITY, Saturate, 0xfe),
        (FloatFormat::E8M0, f64::INFINITY, Ieee, 0xff),
        (FloatFormat::E8M0, -1.0, Saturate, 0xff),
        (FloatFormat::E8M0, -0.0, Saturate, 0x00),
    ];
    for (format, x, overflow, want) in cases {
        assert_eq!(format.encode(x, Rounding::NearestEven, overflow), want, "{} {x} {overflow:?}", format.dtype);
    }
}

#[test]
fn the_largest_and_smallest_numbers_are_the_published_ones() {
    let facts = [
        (FloatFormat::F64, f64::MAX, f64::MIN_POSITIVE),
        (FloatFormat::F32, f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE)),
        (FloatFormat::F16, 65504.0, 2_f64.powi(-14)),
        (FloatFormat::BF16, 255.0 * 2_f64.powi(120), 2_f64.powi(-126)),
        (FloatFormat::TF32, 2047.0 * 2_f64.powi(117), 2_f64.powi(-126)),
        (FloatFormat::F8E4M3, 448.0, 2_f64.powi(-6)),
        (FloatFormat::F8E5M2, 57344.0, 2_f64.powi(-14)),
        (FloatFormat::E8M0, 2_f64.powi(127), 2_f64.powi(-127)),
        (FloatFormat::F6E2M3, 7.5, 1.0),
        (FloatFormat::F6E3M2, 28.0, 0.25),
        (FloatFormat::F4E2M1, 6.0, 1.0),
    ];
    for (format, max, min) in facts {
        assert_eq!(format.max_finite(), max, "{}", format.dtype);
        assert_eq!(format.min_positive_normal(), min, "{}", format.dtype);
    }
}

#[test]
fn the_padding_of_tf32_is_ignored_when_read() {
    let code = FloatFormat::TF32.encode_nearest(1.5);
    assert_eq!(FloatFormat::TF32.decode(code | 0x1fff), 1.5);
}

#[test]
fn an_exact_number_equals_itself_whatever_its_spelling() {
    assert_eq!(Exact::from(1_u64 << 60), Exact::from((1_u64 << 60) as f64));
    assert_eq!(Exact::from(-0.0), Exact::from(0_i64));
    assert_ne!(Exact::from(f64::NAN), Exact::from(f64::NAN));
    assert_ne!(Exact::from(3.0_f32), Exact::from(-3_i64));
}

/// The fast conversion of one element and the format that it targets.
type Fast = (FloatFormat, fn(f32) -> u64);

const NARROWING: [Fast; 8] = [
    (FloatFormat::TF32, |x| element::f32_to_tf32(x).to_bits().into()),
    (FloatFormat::F16, |x| element::f32_to_f16(x).into()),
    (FloatFormat::BF16, |x| element::f32_to_bf16(x).into()),
    (FloatFormat::F8E4M3, |x| element::f32_to_f8e4m3(x).into()),
    (FloatFormat::F8E5M2, |x| element::f32_to_f8e5m2(x).into()),
    (FloatFormat::F6E2M3, |x| element::f32_to_f6e2m3(x).into()),
    (FloatFormat::F6E3M2, |x| element::f32_to_f6e3m2(x).into()),
    (FloatFormat::F4E2M1, |x| element::f32_to_f4e2m1(x).into()),
];

#[test]
fn fast_conversions_agree_at_every_value_and_midpoint() {
    for (format, fast) in NARROWING {
        let odd = [0.0, f32::INFINITY, f32::MAX, f32::from_bits(1), f32::MIN_POSITIVE, 1e-40].map(f64::from);
        for x in probes(&Ladder::new(format)).into_iter().chain(odd) {
            let x = x as f32;
            for x in [x, -x] {
                assert_eq!(fast(x), format.encode_nearest(x), "{} {x:e}", format.dtype);
            }
        }
        for nan in [0x7f80_0001, 0x7fff_ffff, 0xffc0_0000, 0xffff_ffff].map(f32::from_bits) {
            assert_eq!(fast(nan), format.encode_nearest(f64::NAN), "{} NaN", format.dtype);
        }
    }
}

#[test]
fn scales_agree_at_every_value_and_midpoint() {
    let format = FloatFormat::E8M0;
    let mut inputs: Vec<f32> = probes(&Ladder::new(format)).into_iter().map(|x| x as f32).collect();
    inputs.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, -1e-45, -0.0, 1e-45]);
    for x in inputs {
        assert_eq!(u64::from(element::f32_to_e8m0(x)), format.encode_nearest(x), "{x:e}");
        let up = format.encode(x, Rounding::Up, Overflow::Saturate);
        assert_eq!(u64::from(element::f32_to_e8m0_up(x)), up, "up {x:e}");
    }
}

#[test]
fn rounding_once_from_f64_agrees_at_every_midpoint() {
    for x in probes(&Ladder::new(FloatFormat::F16)).into_iter().flat_map(|x| [x, -x]) {
        assert_eq!(u64::from(element::f64_to_f16(x)), FloatFormat::F16.encode_nearest(x), "{x:e}");
    }
    for x in probes(&Ladder::new(FloatFormat::BF16)).into_iter().flat_map(|x| [x, -x]) {
        assert_eq!(u64::from(element::f64_to_bf16(x)), FloatFormat::BF16.encode_nearest(x), "{x:e}");
    }
}

#[test]
fn widening_is_decoding() {
    let same = |a: f32, b: f64, what: &str| {
        assert!(f64::from(a).to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what}: {a} {b}");
    };
    for code in 0..=u16::MAX {
        same(element::f16_to_f32(code), FloatFormat::F16.decode(code.into()), "f16");
        same(element::bf16_to_f32(code), FloatFormat::BF16.decode(code.into()), "bf16");
    }
    for code in 0..=u8::MAX {
        same(element::f8e4m3_to_f32(code), FloatFormat::F8E4M3.decode(code.into()), "f8e4m3");
        same(element::f8e5m2_to_f32(code), FloatFormat::F8E5M2.decode(code.into()), "f8e5m2");
        same(element::e8m0_to_f32(code), FloatFormat::E8M0.decode(code.into()), "e8m0");
        same(element::f6e2m3_to_f32(code), FloatFormat::F6E2M3.decode(code.into()), "f6e2m3");
        same(element::f6e3m2_to_f32(code), FloatFormat::F6E3M2.decode(code.into()), "f6e3m2");
        same(element::f4e2m1_to_f32(code), FloatFormat::F4E2M1.decode(code.into()), "f4e2m1");
    }
}
