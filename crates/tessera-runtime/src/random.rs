//! Random elements that are the same everywhere: element `i` of the stream `key` is a pure function of both.
//!
//! # The generator
//! Word `i` of a stream is SplitMix64's: `mix(mix(key) + (i + 1) * 0x9e3779b97f4a7c15)` in arithmetic modulo 2^64, where `mix` is
//! its finaliser (shifts by 30, 27, 31; multipliers `0xbf58476d1ce4e5b9`, `0x94d049bb133111eb`). So a stream can be made in any
//! order and by any number of threads.
//!
//! # From words to numbers
//! Only additions, multiplications, divisions and square roots of `f64` are used, which IEEE 754 fixes: no host's library of
//! functions takes part.
//! - **uniform**: the word's top `p` bits times 2^-p, exact and below one, `p` being the bits of the type's significand (53 for
//!   `f64`, 24 for `f32`, 8 for `bf16`; 3 for `f6e2m3` and 1 for `f4e2m1`, which have no finer steps). `e8m0`: a power of two from 1/8 to 8. Integers: any value of the type, of `i8` or `u8` for wider
//!   ones. Truth values: a coin.
//! - **normal**: the inverse distribution function at the word's top 52 bits plus a half, times 2^-52, by a rational approximation
//!   with relative error 1.2e-9 (P. J. Acklam's); then rounded to the type. Integers: 32 times that, for `i4` 2 times, rounded to
//!   nearest, of `i8` or `u8` range (magnitudes, for unsigned types). Truth values: whether it is positive.

use rayon::prelude::*;
use tessera_types::{DType, FloatFormat, IntFormat, NumberClass, Rounding};

use crate::error::TensorError;
use crate::layout::storage_bytes;
use crate::numbers::{bytes_of_codes, code_of, encode_f32};
use crate::tensor::Tensor;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Elements made at a time: a multiple of eight, so that packed strips are whole bytes.
const STRIP: usize = 1 << 14;

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A stream of random numbers with access by position.
///
/// ```
/// use tessera_runtime::RandomStream;
/// let stream = RandomStream::new(7);
/// assert_eq!(stream.word(3), RandomStream::new(7).word(3));
/// assert!((0.0..1.0).contains(&stream.uniform(0)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    state: u64,
}

impl RandomStream {
    /// The stream of a key.
    pub fn new(key: u64) -> RandomStream {
        RandomStream { state: mix(key) }
    }

    /// The stream of a key that is text, such as an argument's name.
    pub fn named(key: u64, name: &str) -> RandomStream {
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        RandomStream::new(key ^ hash)
    }

    /// 64 random bits.
    #[inline]
    pub fn word(self, index: u64) -> u64 {
        mix(self.state.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// A multiple of 2^-53 in `[0, 1)`.
    #[inline]
    pub fn uniform(self, index: u64) -> f64 {
        unit(self.word(index), 53)
    }

    /// A normal number of mean 0 and standard deviation 1.
    #[inline]
    pub fn normal(self, index: u64) -> f64 {
        inverse_normal(((self.word(index) >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64))
    }

    /// A tensor of uniform elements; see the module's head.
    pub fn rand(self, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        if let (Some(format), true) = (FloatFormat::of(dtype), dtype != DType::E8M0) {
            // The smallest formats step by more than their significand's last place below one.
            let step = format.decode(1).log2().abs() as u32;
            let bits = step.min(format.mantissa_bits + 1);
            if bits <= 24 {
                return fill(dtype, shape, |range, out| {
                    let values: Vec<f32> = range.map(|i| unit(self.word(i), bits) as f32).collect();
                    out.copy_from_slice(&encode_f32(dtype, &values));
                });
            }
        }
        fill_codes(dtype, shape, |i| uniform_code(dtype, self.word(i)))
    }

    /// A tensor of normal elements; see the module's head.
    pub fn randn(self, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => fill(dtype, shape, |range, out| {
                let values: Vec<f32> = range.map(|i| self.normal(i) as f32).collect();
                out.copy_from_slice(&encode_f32(dtype, &values));
            }),
            _ => fill_codes(dtype, shape, |i| normal_code(dtype, self.normal(i))),
        }
    }

    /// A tensor of integers between bounds, inclusive, uniformly; converted to the element type.
    pub fn integers(self, dtype: DType, shape: &[usize], least: i64, greatest: i64) -> Result<Tensor, TensorError> {
        let span = greatest.abs_diff(least) as u128 + 1;
        fill_codes(dtype, shape, |i| {
            let step = (u128::from(self.word(i)) * span) >> 64;
            let value = least.min(greatest).wrapping_add(step as u64 as i64);
            tessera_types::cast(value as u64, DType::I64, dtype, Rounding::NearestEven)
        })
    }

    /// A vector of `count` integers that rise from 0 to `greatest`, as bounds of ragged groups do: each of those between is drawn from a part of
    /// the range of its own, from its middle as often as from its ends, so that some neighbours are equal.
    pub fn bounds(self, dtype: DType, count: usize, greatest: u64) -> Result<Tensor, TensorError> {
        let last = count.saturating_sub(1) as u64;
        let parts = last.saturating_sub(1).max(1) as f64;
        fill_codes(dtype, &[count], |i| {
            let within = (2.0 * self.uniform(i) - 0.5).clamp(0.0, 1.0);
            let value = match i {
                0 => 0,
                _ if i == last => greatest,
                _ => (greatest as f64 * ((i - 1) as f64 + within) / parts) as u64,
            };
            tessera_types::cast(value, DType::U64, dtype, Rounding::NearestEven)
        })
    }

    /// A vector of `count` different integers below a number, in random order; where there are not so many, they begin anew.
    pub fn distinct(self, dtype: DType, count: usize, below: u64) -> Result<Tensor, TensorError> {
        let mut order: Vec<(u64, u64)> = (0..below.max(1)).map(|i| (self.word(i), i)).collect();
        order.sort_unstable();
        fill_codes(dtype, &[count], |i| {
            let (_, value) = order[(i % below.max(1)) as usize];
            tessera_types::cast(value, DType::U64, dtype, Rounding::NearestEven)
        })
    }

    /// A tensor of normal elements with a mean and a standard deviation.
    pub fn normal_with(self, dtype: DType, shape: &[usize], mean: f64, sd: f64) -> Result<Tensor, TensorError> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => fill(dtype, shape, |range, out| {
                let values: Vec<f32> = range.map(|i| (mean + sd * self.normal(i)) as f32).collect();
                out.copy_from_slice(&encode_f32(dtype, &values));
            }),
            _ => fill_codes(dtype, shape, |i| code_of(dtype, mean + sd * self.normal(i))),
        }
    }
}

fn unit(word: u64, bits: u32) -> f64 {
    (word >> (64 - bits)) as f64 * (1.0 / (1_u64 << bits) as f64)
}

/// The integers that random elements of a type are drawn from: its own, or those of eight bits.
fn range_of(format: IntFormat) -> IntFormat {
    IntFormat { bits: format.bits.min(8), signed: format.signed }
}

fn uniform_code(dtype: DType, word: u64) -> u64 {
    match (dtype, IntFormat::of(dtype)) {
        (DType::E8M0, _) => 124 + ((u128::from(word) * 7) >> 64) as u64,
        (DType::B1, _) => word >> 63,
        (_, Some(format)) => {
            let drawn = range_of(format);
            format.wrap(drawn.value(word >> (64 - drawn.bits)))
        }
        (_, None) => unit(word, 53).to_bits(),
    }
}

fn normal_code(dtype: DType, value: f64) -> u64 {
    let Some(format) = IntFormat::of(dtype) else {
        return match dtype {
            DType::B1 => u64::from(value > 0.0),
            DType::E8M0 => code_of(dtype, value.abs()),
            _ => code_of(dtype, value),
        };
    };
    let drawn = range_of(format);
    let scaled = value * if format.bits == 4 { 2.0 } else { 32.0 };
    let scaled = if dtype.class() == NumberClass::Unsigned { scaled.abs() } else { scaled };
    format.wrap(drawn.value(drawn.from_float(scaled, Rounding::NearestEven)))
}

fn fill_codes(dtype: DType, shape: &[usize], code: impl Fn(u64) -> u64 + Sync) -> Result<Tensor, TensorError> {
    fill(dtype, shape, |range, out| {
        let codes: Vec<u64> = range.map(&code).collect();
        out.copy_from_slice(&bytes_of_codes(dtype, &codes));
    })
}

/// Makes strips in parallel; each depends on its positions alone.
fn fill(dtype: DType, shape: &[usize], strip: impl Fn(std::ops::Range<u64>, &mut [u8]) + Sync) -> Result<Tensor, TensorError> {
    let tensor = Tensor::zeros(dtype, shape)?;
    let len = tensor.len();
    let strip_bytes = storage_bytes(dtype, STRIP).unwrap_or(1);
    tensor.memory.writer()?.bytes_mut()?.par_chunks_mut(strip_bytes).enumerate().for_each(|(position, out)| {
        let start = position * STRIP;
        strip(start as u64..(start + STRIP).min(len) as u64, out);
    });
    Ok(tensor)
}

/// The number below which a normal number falls with the given probability, strictly between 0 and 1.
fn inverse_normal(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] =
        [-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1, 1.0];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const TAIL: f64 = 0.02425;

    let centred = probability - 0.5;
    if centred.abs() <= 0.5 - TAIL {
        let square = centred * centred;
        return centred * horner(&A, square) / horner(&B, square);
    }
    let tail = if centred < 0.0 { probability } else { 1.0 - probability };
    let root = (-2.0 * natural_logarithm(tail)).sqrt();
    let magnitude = horner(&C, root) / horner(&D, root);
    if centred < 0.0 { magnitude } else { -magnitude }
}

fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, &coefficient| sum * x + coefficient)
}

/// The logarithm of a positive normal number: with m in [sqrt(1/2), sqrt(2)) and s = (m - 1) / (m + 1), |s| < 0.172,
/// ln(2^e m) = e ln 2 + 2 (s + s^3 / 3 + s^5 / 5 + ...).
fn natural_logarithm(x: f64) -> f64 {
    let shifted = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64;
    let exponent = shifted >> 52;
    let mantissa = f64::from_bits(x.to_bits().wrapping_sub((exponent << 52) as u64));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for odd in (1..=21).rev().step_by(2) {
        sum = sum * square + 1.0 / f64::from(odd);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_good_to_the_last_places() {
        for i in 1..2000 {
            let x = f64::from(i) * 1.7e-5;
            let error = (natural_logarithm(x) - x.ln()).abs();
            assert!(error <= 1e-15 * x.ln().abs().max(1.0), "{x}: {error}");
        }
    }

    #[test]
    fn known_quantiles() {
        for (probability, quantile) in
            [(0.5, 0.0), (0.975, 1.959963984540054), (0.01, -2.3263478740408408), (1e-6, -4.753424308822899)]
        {
            let found = inverse_normal(probability);
            assert!((found - quantile).abs() < 1.5e-9 * quantile.abs().max(1.0), "{probability}: {found}");
        }
    }

    #[test]
    fn the_first_words_are_those_of_splitmix64() {
        // SplitMix64 started at 1234567; a stream starts at a mixed key instead.
        let stream = RandomStream { state: 1234567 };
        assert_eq!(
            [stream.word(0), stream.word(1), stream.word(2)],
            [6457827717110365317, 3203168211198807973, 9817491932198370423]
        );
    }

    #[test]
    fn bounds_rise_and_some_are_equal() {
        let bounds = |count, greatest| RandomStream::new(5).bounds(DType::I32, count, greatest).unwrap().to_f64().unwrap();
        let many = bounds(1001, 50_000);
        assert_eq!((many[0], many[1000]), (0.0, 50_000.0));
        let sizes: Vec<f64> = many.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(sizes.iter().all(|&size| (0.0..=101.0).contains(&size)));
        let few = |test: fn(f64) -> bool| sizes.iter().filter(|&&size| test(size)).count();
        assert!(few(|size| size == 0.0) > 30 && few(|size| size > 90.0) > 30);
        assert_eq!((bounds(2, 7), bounds(1, 7)), (vec![0.0, 7.0], vec![0.0]));
    }

    #[test]
    fn distinct_integers_are_all_there() {
        let mut found = RandomStream::new(5).distinct(DType::I32, 100, 100).unwrap().to_f64().unwrap();
        assert!(found.windows(2).any(|pair| pair[0] > pair[1]));
        found.sort_by(f64::total_cmp);
        assert!(found.iter().enumerate().all(|(at, &value)| value == at as f64));
        let again = RandomStream::new(5).distinct(DType::I32, 5, 2).unwrap().to_f64().unwrap();
        assert_eq!((again[0], again[1], again[0] + again[1]), (again[2], again[3], 1.0));
    }

    #[test]
    fn moments() {
        let stream = RandomStream::new(1);
        let n = 200_000;
        let (mut sum, mut square, mut fourth) = (0.0, 0.0, 0.0);
        for i in 0..n {
            let z = stream.normal(i);
            sum += z;
            square += z * z;
            fourth += z * z * z * z;
        }
        let n = n as f64;
        assert!((sum / n).abs() < 0.01 && (square / n - 1.0).abs() < 0.01 && (fourth / n - 3.0).abs() < 0.1);
    }

    #[test]
    fn elements_do_not_depend_on_the_shape() {
        for &dtype in DType::ALL {
            let stream = RandomStream::new(9);
            let (long, short) = (stream.randn(dtype, &[40_000]).unwrap(), stream.randn(dtype, &[3, 7]).unwrap());
            assert_eq!(long.slice(0, 0..21, 1).unwrap().to_codes().unwrap(), short.to_codes().unwrap(), "{dtype}");
            let uniform = stream.rand(dtype, &[999]).unwrap().to_f64().unwrap();
            if dtype.is_float() && dtype != DType::E8M0 {
                assert!(uniform.iter().all(|u| (0.0..1.0).contains(u)), "{dtype}");
            }
            assert!(uniform.iter().any(|u| *u != uniform[0]), "{dtype}");
        }
    }
}
