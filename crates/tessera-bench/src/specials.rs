//! NaN and infinities here and there among inputs, so that it shows what becomes of them.

use std::collections::BTreeSet;

use tessera_runtime::{RandomStream, Tensor};
use tessera_types::{DType, FloatFormat};

use crate::case::Fault;
use crate::guarded::memory_fault;

/// One element in so many is each of these, [`MOST`] at most, and one at least where there is room: rows and columns without them are left over.
const EVERY: usize = 1 << 14;
const MOST: usize = 4;

/// Puts NaN and both infinities, as far as the type has them, into some places of an array of one axis. Scales of blocks are no numbers of their own.
pub(crate) fn plant(array: &Tensor, name: &str, seed: u64) -> Result<(), Fault> {
    let dtype = array.dtype();
    let Some(format) = FloatFormat::of(dtype).filter(|_| dtype != DType::E8M0 && !array.is_empty()) else { return Ok(()) };
    let stream = RandomStream::named(seed, &format!("{name}.specials"));
    let each = (array.len() / EVERY).clamp(1, MOST) as u64;
    let mut taken = BTreeSet::new();
    // Where there is one place alone, NaN has it.
    for (kind, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().enumerate() {
        let stored = format.decode(format.encode_nearest(value));
        if stored.is_finite() || stored.is_nan() != value.is_nan() {
            continue;
        }
        let special = Tensor::full(dtype, &[1], value).map_err(memory_fault)?;
        for at in 0..each {
            let first = (stream.word(kind as u64 * each + at) % array.len() as u64) as usize;
            let Some(place) = (first..array.len()).chain(0..first).find(|place| !taken.contains(place)) else { return Ok(()) };
            taken.insert(place);
            array.slice(0, place..place + 1, 1).and_then(|place| place.copy_from(&special)).map_err(memory_fault)?;
        }
    }
    Ok(())
}
