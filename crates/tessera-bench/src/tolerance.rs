//! How far two results of one computation may lie apart where nothing but their type is known.

use tessera_types::DType;

/// Two units in the last place, one of 8 bits and less; of wide types what sums of some thousand terms differ by. Relative to
/// an element, and, for sums that cancel, to the [median magnitude](median_magnitude) of all.
pub fn relative_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        DType::TF32 => 2e-3,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3 | DType::F6E2M3 => 0.125,
        DType::F8E5M2 | DType::F6E3M2 => 0.25,
        DType::F4E2M1 => 0.5,
        _ => 0.0,
    }
}

/// The median magnitude of finite numbers that are not zero; 0 where there are none.
pub fn median_magnitude(numbers: &[f64]) -> f64 {
    let is_counted = |number: &f64| number.is_finite() && *number != 0.0;
    let mut magnitudes: Vec<f64> = numbers.iter().filter(|number| is_counted(number)).map(|number| number.abs()).collect();
    let middle = magnitudes.len() / 2;
    if magnitudes.is_empty() { 0.0 } else { *magnitudes.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// The allowed distance of a result from what it should be, `atol + rtol * |want|`, where somebody has said it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// As a part of what is wanted.
    pub rtol: Option<f64>,
    /// Of everything.
    pub atol: Option<f64>,
}

impl Tolerance {
    /// Both, where either was given: what is not is 0.
    pub fn given(self) -> Option<(f64, f64)> {
        (self.rtol.is_some() || self.atol.is_some()).then(|| (self.rtol.unwrap_or(0.0), self.atol.unwrap_or(0.0)))
    }

    /// Both, for results of a type and of a median magnitude.
    pub fn of(self, dtype: DType, magnitude: f64) -> (f64, f64) {
        let own = relative_tolerance(dtype);
        (self.rtol.unwrap_or(own), self.atol.unwrap_or(own * magnitude))
    }
}
