//! Elements that a launch was to write and did not.
//!
//! Only arrays that held nothing before ([`Tensor::empty`]) are looked at: what an array with contents keeps was meant. Who counts
//! knows it for certain ([`PreparedLaunch::run_counted`] on a checked CPU run and on a sanitizing emulator). Elsewhere poison tells:
//! an element that shows the poison of two launches, whose poisons differ and whose other arguments do not, was not written.
//!
//! [`PreparedLaunch::run_counted`]: crate::PreparedLaunch::run_counted

use crate::error::TensorError;
use crate::layout::storage_bits;
use crate::numbers::poison_code;
use crate::tensor::Tensor;

/// Elements looked at together.
const STRIP: usize = 1 << 16;

/// Elements of an array that nobody wrote, or that were made of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The argument: `y`, or `ys[1]` of a list.
    pub name: String,
    /// How many they are.
    pub count: usize,
    /// Elements of the array.
    pub elements: usize,
    /// Index of the first.
    pub index: Vec<usize>,
}

impl Unwritten {
    /// Counts places in row-major order that were not written.
    fn of(name: &str, tensor: &Tensor, places: impl Iterator<Item = usize>) -> Option<Unwritten> {
        let mut places = places.peekable();
        let first = *places.peek()?;
        let (name, elements, index) = (name.to_owned(), tensor.len(), tensor.index_at(first));
        Some(Unwritten { name, count: places.count(), elements, index })
    }

    /// By the bytes of the tensor's memory: `is_written` is asked for each byte of each element, counted from the memory's first.
    pub(crate) fn by_bytes(name: &str, tensor: &Tensor, is_written: impl Fn(usize) -> bool) -> Option<Unwritten> {
        let bits = storage_bits(tensor.dtype());
        let is_unwritten = |place: &usize| {
            let start = tensor.layout.offset_of(*place) * bits;
            (start / 8..(start + bits).div_ceil(8)).any(|byte| !is_written(byte))
        };
        Unwritten::of(name, tensor, (0..tensor.len()).filter(is_unwritten))
    }

    /// By poison: the tensor was of one kind before one launch, and its equal of another kind before an equal launch. Both lie on
    /// the CPU.
    pub fn by_poison(name: &str, one: (&Tensor, usize), other: (&Tensor, usize)) -> Result<Option<Unwritten>, TensorError> {
        let [marked, also] = [one, other].map(|(tensor, kind)| (tensor, poison_code(tensor.dtype(), kind)));
        let (mut left, mut right) = (vec![0; STRIP], vec![0; STRIP]);
        let mut places = Vec::new();
        for start in (0..marked.0.len()).step_by(STRIP) {
            let count = STRIP.min(marked.0.len() - start);
            marked.0.read_codes(start, &mut left[..count])?;
            if !left[..count].contains(&marked.1) {
                continue;
            }
            also.0.read_codes(start, &mut right[..count])?;
            places.extend((0..count).filter(|&at| left[at] == marked.1 && right[at] == also.1).map(|at| start + at));
        }
        Ok(Unwritten::of(name, marked.0, places.into_iter()))
    }

    /// Elements whose bits differ between two launches as those of [`Unwritten::by_poison`], though they were written: what they are made of
    /// was in memory before. `poisons` are the kinds that the array itself had, where it held nothing.
    pub fn dependent(
        name: &str,
        one: &Tensor,
        other: &Tensor,
        poisons: Option<(usize, usize)>,
    ) -> Result<Option<Unwritten>, TensorError> {
        let codes = poisons.map(|(one_kind, other_kind)| [one_kind, other_kind].map(|kind| poison_code(one.dtype(), kind)));
        let (mut left, mut right) = (vec![0; STRIP], vec![0; STRIP]);
        let mut places = Vec::new();
        for start in (0..one.len()).step_by(STRIP) {
            let count = STRIP.min(one.len() - start);
            one.read_codes(start, &mut left[..count])?;
            other.read_codes(start, &mut right[..count])?;
            let differs = |&at: &usize| left[at] != right[at] && codes != Some([left[at], right[at]]);
            places.extend((0..count).filter(differs).map(|at| start + at));
        }
        Ok(Unwritten::of(name, one, places.into_iter()))
    }
}

impl Tensor {
    /// Whether an element shows the poison of a kind ([`Tensor::poison_as`]); on the CPU.
    pub fn shows_poison(&self, kind: usize) -> Result<bool, TensorError> {
        let code = poison_code(self.dtype(), kind);
        let mut codes = vec![0; STRIP];
        for start in (0..self.len()).step_by(STRIP) {
            let codes = &mut codes[..STRIP.min(self.len() - start)];
            self.read_codes(start, codes)?;
            if codes.contains(&code) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use tessera_types::DType;

    use super::*;
    use crate::numbers::POISONS;

    /// Two launches that write all but the places of a list: values equal to a poison are written all the same.
    #[test]
    fn poison_tells_what_was_not_written_in_every_type() {
        for &dtype in DType::ALL {
            let bits = storage_bits(dtype).min(8);
            let launch = |kind: usize| {
                let tensor = Tensor::empty(dtype, &[5, 8]).expect("tensor");
                tensor.poison_as(kind).expect("poison");
                let mut codes = tensor.to_codes().expect("codes");
                for (place, code) in codes.iter_mut().enumerate().filter(|(place, _)| ![11, 12, 39].contains(place)) {
                    *code = if dtype == DType::B1 { place as u64 % 2 } else { place as u64 % (1 << bits) };
                }
                let bytes = crate::numbers::bytes_of_codes(dtype, &codes);
                Tensor::from_bytes(dtype, &[5, 8], &bytes).expect("tensor")
            };
            for kind in 1..POISONS {
                let found = Unwritten::by_poison("y", (&launch(0), 0), (&launch(kind), kind)).expect("compared");
                let wanted = Unwritten { name: "y".into(), count: 3, elements: 40, index: vec![1, 3] };
                assert_eq!(found, Some(wanted), "{dtype}, kind {kind}");
            }
        }
    }

    #[test]
    fn bytes_tell_it_of_views_and_packed_elements() {
        let memory = Tensor::empty(DType::F4E2M1, &[4, 4]).expect("tensor");
        let view = memory.slice(1, 2..4, 1).expect("view");
        let found = Unwritten::by_bytes("y", &view, |byte| byte != 3);
        assert_eq!(found, Some(Unwritten { name: "y".into(), count: 2, elements: 8, index: vec![1, 0] }));
        assert_eq!(Unwritten::by_bytes("y", &view, |_| true), None);
    }
}
