//! Inputs of ranks as a function of seed, rank and index, and digests of results: 32-bit arithmetic that NumPy and PyTorch do as well, so
//! that a baseline fills and digests its own memory.
//!
//! ```text
//! key    = seed * 0x85ebca6b + rank * 0xc2b2ae35 + 0x165667b1                  modulo 2^32, as all of it
//! x      = mix(index * 0x9e3779b1 + key)
//! exact  = x % (2 a + 1) - a             a = 4, and 1 from 65 ranks on: sums of all ranks, up to 256, are exact in bf16
//! random = (x >> (32 - b)) / 2^(b - 1) - 1      b = significant bits of the type: every value is exact in it, in [-1, 1)
//! digest = sum over i of code(i) * (2 mix(i) + 1)     modulo 2^64
//! ```
//! `mix` is a finaliser of 32 bits (two multiplications, three shifts). Codes are an element's bits as an unsigned number.

use rayon::prelude::*;
use tessera_types::{DType, FloatFormat, unit_roundoff};

use super::kind::{Form, Origin};

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 18;

const fn mix(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// What ranks have before a collective.
#[derive(Clone, Debug)]
pub struct Inputs {
    seed: u64,
    /// Small integers whose sums are exact, instead of random values.
    exact: bool,
    dtype: DType,
    amplitude: u32,
    bits: u32,
    /// The codes of all random values, for types of 16 bits.
    codes: Vec<u64>,
}

/// Significant bits of a float type.
fn significant(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F32 => Some(24),
        DType::F16 => Some(11),
        DType::BF16 => Some(8),
        _ => None,
    }
}

impl Inputs {
    /// Inputs of ranks in a type; `None` for types that the suite does not have.
    pub fn new(seed: u64, exact: bool, ranks: usize, dtype: DType) -> Option<Inputs> {
        let bits = significant(dtype)?;
        let amplitude = if ranks <= 64 { 4 } else { 1 };
        let mut inputs = Inputs { seed, exact, dtype, amplitude, bits, codes: Vec::new() };
        if dtype != DType::F32 {
            let format = FloatFormat::of(dtype)?;
            let values = if exact { 2 * amplitude + 1 } else { 1 << bits };
            inputs.codes = (0..values).map(|step| format.encode_nearest(inputs.number(step))).collect();
        }
        Some(inputs)
    }

    fn key(&self, rank: usize) -> u32 {
        (self.seed as u32)
            .wrapping_mul(0x85eb_ca6b)
            .wrapping_add((rank as u32).wrapping_mul(0xc2b2_ae35))
            .wrapping_add(0x1656_67b1)
    }

    /// Which of the possible values an element has.
    fn step(&self, key: u32, index: usize) -> u32 {
        let x = mix((index as u32).wrapping_mul(0x9e37_79b1).wrapping_add(key));
        if self.exact { x % (2 * self.amplitude + 1) } else { x >> (32 - self.bits) }
    }

    fn number(&self, step: u32) -> f64 {
        match self.exact {
            true => f64::from(step) - f64::from(self.amplitude),
            false => f64::from(step) / f64::from(1u32 << (self.bits - 1)) - 1.0,
        }
    }

    /// A rank's element.
    pub fn value(&self, rank: usize, index: usize) -> f64 {
        self.number(self.step(self.key(rank), index))
    }

    /// Its bits.
    pub fn code(&self, rank: usize, index: usize) -> u64 {
        let step = self.step(self.key(rank), index);
        if self.codes.is_empty() { u64::from((self.number(step) as f32).to_bits()) } else { self.codes[step as usize] }
    }

    /// The bytes of some of a rank's elements.
    pub(super) fn bytes(&self, rank: usize, range: std::ops::Range<usize>) -> Vec<u8> {
        let size = self.dtype.unpacked_bytes();
        let mut bytes = vec![0; range.len() * size];
        bytes.par_chunks_mut(CHUNK * size).enumerate().for_each(|(at, chunk)| {
            let first = range.start + at * CHUNK;
            for (i, place) in chunk.chunks_exact_mut(size).enumerate() {
                place.copy_from_slice(&self.code(rank, first + i).to_le_bytes()[..size]);
            }
        });
        bytes
    }

    /// What an element of a rank's result should be, and how far a right one may be from that: a sum in any order and with a rounding
    /// after each addition.
    pub(super) fn expected(&self, form: &Form, rank: usize, index: usize) -> (f64, f64) {
        match form.origin(rank, index) {
            Origin::Of(rank, index) => (self.value(rank, index), 0.0),
            Origin::Sum(index) => {
                let (mut sum, mut magnitude) = (0.0, 0.0);
                for rank in 0..form.ranks {
                    let value = self.value(rank, index);
                    sum += value;
                    magnitude += value.abs();
                }
                let bound = if self.exact { 0.0 } else { form.ranks as f64 * unit_roundoff(self.dtype) * magnitude };
                (sum, bound)
            }
        }
    }

    /// The digest of a rank's result, where its bits are known: elements that are moved, and exact sums.
    pub(super) fn result_digest(&self, form: &Form, rank: usize) -> Option<u64> {
        if form.collective.adds() && !self.exact {
            return None;
        }
        let format = FloatFormat::of(self.dtype)?;
        let sums: Vec<u64> = match form.collective.adds() {
            // Sums are integers between these.
            true => {
                let most = form.ranks as i64 * i64::from(self.amplitude);
                (-most..=most).map(|sum| format.encode_nearest(sum as f64)).collect()
            }
            false => Vec::new(),
        };
        let code = |index: usize| match form.origin(rank, index) {
            Origin::Of(rank, index) => self.code(rank, index),
            Origin::Sum(_) => {
                let (sum, _) = self.expected(form, rank, index);
                sums[(sum as i64 + sums.len() as i64 / 2) as usize]
            }
        };
        Some(digest(form.got(), code))
    }

    /// The digest of what a rank gives.
    pub(super) fn given_digest(&self, form: &Form, rank: usize) -> u64 {
        digest(form.given(), |index| self.code(rank, index))
    }
}

fn digest(count: usize, code: impl Fn(usize) -> u64 + Sync) -> u64 {
    let chunk = |first: usize| {
        let range = first..(first + CHUNK).min(count);
        range.fold(0u64, |sum, index| sum.wrapping_add(code(index).wrapping_mul(2 * u64::from(mix(index as u32)) + 1)))
    };
    let firsts: Vec<usize> = (0..count).step_by(CHUNK).collect();
    firsts.into_par_iter().map(chunk).reduce(|| 0, u64::wrapping_add)
}

/// The digest of elements of so many bytes, the first of which is number `first` of the whole: digests of pieces add up.
pub fn digest_of(bytes: &[u8], size: usize, first: usize) -> u64 {
    let parts = bytes.par_chunks(CHUNK * size).enumerate().map(|(at, chunk)| {
        let start = first + at * CHUNK;
        chunk.chunks_exact(size).enumerate().fold(0u64, |sum, (i, element)| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(element);
            sum.wrapping_add(u64::from_le_bytes(word).wrapping_mul(2 * u64::from(mix((start + i) as u32)) + 1))
        })
    });
    parts.reduce(|| 0, u64::wrapping_add)
}
