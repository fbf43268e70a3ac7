//! Tensors compared, element by element, as the numbers that they are: integers with all their digits, floats as `f64`.

use std::fmt;

use tessera_types::{DType, IntFormat};

use crate::error::TensorError;
use crate::numbers::number;
use crate::tensor::Tensor;

/// The number that an element is. Integers are exact: an `f64` holds those of 64 bits up to 2^53 alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of a float.
    Float(f64),
    /// Of an integer or a truth value.
    Integer(i128),
}

impl Number {
    /// What an element code stands for.
    pub fn of(dtype: DType, code: u64) -> Number {
        match IntFormat::of(dtype) {
            Some(int) => Number::Integer(int.value(code)),
            None if dtype.is_float() => Number::Float(number(dtype, code)),
            None => Number::Integer(i128::from(code != 0)),
        }
    }

    /// The nearest `f64`.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Float(value) => value,
            Number::Integer(value) => value as f64,
        }
    }

    /// The number as an integer, where it is one of so many bits that differences of two have room.
    fn whole(self) -> Option<i128> {
        match self {
            Number::Integer(value) => Some(value),
            Number::Float(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(100) => Some(value as i128),
            Number::Float(_) => None,
        }
    }

    /// How far it is from another: zero for equals, of which NaN is one and each infinity, infinite where no number says it.
    fn distance(self, other: Number) -> f64 {
        match (self, other) {
            (Number::Integer(_), _) | (_, Number::Integer(_)) => {
                if let (Some(a), Some(b)) = (self.whole(), other.whole()) {
                    return (a - b).abs() as f64;
                }
            }
            (Number::Float(_), Number::Float(_)) => {}
        }
        let (a, b) = (self.to_f64(), other.to_f64());
        match (a - b).abs() {
            _ if a == b || a.is_nan() && b.is_nan() => 0.0,
            distance if distance.is_nan() => f64::INFINITY,
            distance => distance,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Float(value) => value.fmt(f),
            Number::Integer(value) => value.fmt(f),
        }
    }
}

/// Where and by how much two tensors differ most.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Elements that differ by more than the tolerance.
    pub count: usize,
    /// Place of the element that differs most, in row-major order.
    pub place: usize,
    /// Index of the element that differs most.
    pub index: Vec<usize>,
    /// The left tensor's number there.
    pub left: Number,
    /// The right tensor's.
    pub right: Number,
}

/// A tensor's numbers, floats decoded strip by strip.
enum Numbers {
    Floats(Vec<f64>),
    Codes(DType, Vec<u64>),
}

impl Numbers {
    fn of(tensor: &Tensor) -> Result<Numbers, TensorError> {
        Ok(match tensor.dtype().is_float() {
            true => Numbers::Floats(tensor.to_f64()?),
            false => Numbers::Codes(tensor.dtype(), tensor.to_codes()?),
        })
    }

    fn at(&self, place: usize) -> Number {
        match self {
            Numbers::Floats(values) => Number::Float(values[place]),
            Numbers::Codes(dtype, codes) => Number::of(*dtype, codes[place]),
        }
    }
}

impl Tensor {
    /// Numbers of the elements from place `start` on, as many as there are, at most `count`.
    pub fn numbers(&self, start: usize, count: usize) -> Result<Vec<Number>, TensorError> {
        let mut codes = vec![0; count.min(self.len().saturating_sub(start))];
        self.read_codes(start, &mut codes)?;
        Ok(codes.into_iter().map(|code| Number::of(self.dtype(), code)).collect())
    }

    /// The difference from `other` where an element differs by more than is `allowed` at its place in row-major order for other's
    /// number there; NaN equals NaN and an infinity itself only.
    pub fn difference(&self, other: &Tensor, allowed: impl Fn(usize, f64) -> f64) -> Result<Option<Difference>, TensorError> {
        if self.shape() != other.shape() {
            return Err(TensorError::Shape { left: self.shape().to_vec(), right: other.shape().to_vec() });
        }
        let (left, right) = (Numbers::of(self)?, Numbers::of(other)?);
        let mut count = 0;
        let mut worst: Option<(usize, f64)> = None;
        for place in 0..self.len() {
            let want = right.at(place);
            let distance = left.at(place).distance(want);
            // What is infinitely far off is so whatever is allowed.
            if distance == 0.0 || distance.is_finite() && distance <= allowed(place, want.to_f64()) {
                continue;
            }
            count += 1;
            if worst.is_none_or(|(_, most)| distance > most) {
                worst = Some((place, distance));
            }
        }
        Ok(worst.map(|(place, _)| Difference {
            count,
            place,
            index: self.index_at(place),
            left: left.at(place),
            right: right.at(place),
        }))
    }
}
