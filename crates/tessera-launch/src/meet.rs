//! Whether two arrays that are spread over one range of memory have a byte in common.
//!
//! Element `i` of an array of `e` bytes takes the bytes `a + sum i_k s_k + p`, `0 <= p < e`. Two arrays have one in common where
//!
//! ```text
//! a + sum i_k s_k + p = b + sum j_k t_k + q
//! ```
//!
//! holds for indices within both shapes. With `j_k` counted from the last one, and `q` too, all terms stand on the left with positive steps: is
//! `sum c_k x_k = d` for some `0 <= x_k <= n_k`? Steps are tried from the largest on. What is left has to be a multiple of the steps that
//! follow and within their reach, which leaves one or two values of each for arrays whose axes nest, such as columns of one matrix:
//!
//! | arrays | terms | d | in common |
//! |---|---|---|---|
//! | `x[0::2]`, `x[1::2]`, 4 elements of 4 bytes | 8 (6 times), 1 (6 times) | 4 + 24 + 3 | none: 31 - 8 k is no number from 0 to 6 |
//! | `x[0:4]`, `x[3:7]` | 4 (6 times), 1 (6 times) | 12 + 12 + 3 | 27 = 4 * 6 + 3 |

use crate::array::Placed;
use crate::layout::storage_bits;

/// Values that are tried before it is given up, and the arrays count as having bytes in common.
const MOST: usize = 10_000;

/// A term: its step, and the largest number that it is multiplied with.
type Term = (i128, i128);

/// Whether two arrays of one address space have a byte in common, or may have one: for elements that share bytes, and for strides that do not nest, the ranges decide.
pub fn meet<A: Placed>(left: &A, right: &A) -> bool {
    let (own, other) = (left.address_range(), right.address_range());
    if own.end <= other.start || other.end <= own.start || own.is_empty() || other.is_empty() {
        return false;
    }
    let bits = [storage_bits(left.dtype()), storage_bits(right.dtype())];
    if bits.iter().any(|bits| bits % 8 != 0) {
        return true;
    }
    let bytes = bits.map(|bits| (bits / 8) as i128);
    let terms = |array: &A, bytes: i128| -> Vec<Term> {
        let axes = array.steps().iter().zip(array.sizes()).filter(|&(&step, &size)| step > 0 && size > 1);
        axes.map(|(&step, &size)| (step as i128 * bytes, size as i128 - 1)).collect()
    };
    let others = terms(right, bytes[1]);
    let reach: i128 = others.iter().map(|(step, most)| step * most).sum();
    let wanted = i128::from(other.start) - i128::from(own.start) + reach + bytes[1] - 1;
    let mut all = terms(left, bytes[0]);
    all.extend(others);
    all.push((1, bytes[0] + bytes[1] - 2));
    all.sort_unstable_by(|one, two| two.cmp(one));
    let mut merged: Vec<Term> = Vec::with_capacity(all.len());
    for (step, most) in all {
        match merged.last_mut() {
            Some(last) if last.0 == step => last.1 += most,
            _ => merged.push((step, most)),
        }
    }
    // Of each term, the greatest common divisor and the reach of those behind it.
    let mut behind = vec![(0_i128, 0_i128); merged.len()];
    for at in (1..merged.len()).rev() {
        let ((step, most), (divisor, reach)) = (merged[at], behind[at]);
        behind[at - 1] = (common(step, divisor), reach + step * most);
    }
    let mut left = MOST;
    has_solution(&merged, &behind, wanted, &mut left).unwrap_or(true)
}

/// Whether terms come to a number; `None` where that took too long to find out.
fn has_solution(terms: &[Term], behind: &[(i128, i128)], wanted: i128, left: &mut usize) -> Option<bool> {
    let Some(&(step, most)) = terms.first() else { return Some(wanted == 0) };
    let (divisor, reach) = behind[0];
    let first = (wanted - reach).max(0).div_euclid(step) + i128::from((wanted - reach).max(0) % step != 0);
    for times in first..=most.min(wanted.div_euclid(step)) {
        *left = left.checked_sub(1)?;
        let rest = wanted - times * step;
        if divisor != 0 && rest % divisor != 0 {
            continue;
        }
        if has_solution(&terms[1..], &behind[1..], rest, left)? {
            return Some(true);
        }
    }
    Some(false)
}

/// The greatest common divisor.
fn common(one: i128, other: i128) -> i128 {
    if other == 0 { one } else { common(other, one % other) }
}

#[cfg(test)]
mod tests {
    use tessera_types::DType;

    use super::*;
    use crate::array::Array;

    fn array(dtype: DType, address: u64, shape: &[usize], strides: &[usize]) -> Array {
        Array::new(dtype, address, shape, Some(strides)).expect("array")
    }

    #[test]
    fn arrays_between_each_other_have_no_byte_in_common() {
        let f32 = |address, shape: &[usize], strides: &[usize]| array(DType::F32, address, shape, strides);
        let apart = [
            (f32(64, &[4], &[2]), f32(68, &[4], &[2])),
            // Columns of one matrix, and parts of one fused tensor of queries, keys and values.
            (f32(64, &[4, 8], &[16, 1]), f32(64 + 32, &[4, 8], &[16, 1])),
            (f32(64, &[100, 16], &[48, 1]), f32(64 + 64, &[100, 16], &[48, 1])),
            // Halves of elements.
            (array(DType::F16, 64, &[8], &[2]), array(DType::F16, 66, &[8], &[2])),
        ];
        for (one, other) in apart {
            assert!(!meet(&one, &other) && !meet(&other, &one), "{one:?} {other:?}");
        }
        let together = [
            (f32(64, &[4], &[1]), f32(76, &[4], &[1])),
            (f32(64, &[4], &[2]), f32(66, &[4], &[2])),
            (f32(64, &[4, 9], &[16, 1]), f32(64 + 32, &[4, 8], &[16, 1])),
            (f32(64, &[100, 16], &[48, 1]), f32(64 + 4 * 48 * 99 + 60, &[1], &[1])),
            (f32(64, &[5], &[3]), f32(68, &[5], &[5])),
        ];
        for (one, other) in together {
            assert!(meet(&one, &other) && meet(&other, &one), "{one:?} {other:?}");
        }
    }

    /// Against the bytes themselves, for arrays drawn at random.
    #[test]
    fn what_is_said_holds_of_each_byte() {
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut seen = [0, 0];
        for _ in 0..20_000 {
            let mut one = || {
                let dtype = [DType::I8, DType::F16, DType::F32][draw(3) as usize];
                let axes = draw(3) as usize;
                let mut drawn = |below| (0..axes).map(|_| draw(below) as usize).collect::<Vec<_>>();
                let (shape, strides) = (drawn(5), drawn(9));
                array(dtype, 64 + draw(40), &shape, &strides)
            };
            let (left, right) = (one(), one());
            let bytes = |array: &Array| -> Vec<u64> {
                let size = storage_bits(array.dtype()) / 8;
                let at = |place| array.address_range().start + (array.layout().offset_of(place) * size) as u64;
                (0..array.layout().len()).flat_map(|place| at(place)..at(place) + size as u64).collect()
            };
            let (own, other) = (bytes(&left), bytes(&right));
            let shared = own.iter().any(|byte| other.contains(byte));
            assert_eq!(meet(&left, &right), shared, "{left:?} {right:?}");
            seen[usize::from(shared)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 1000), "{seen:?}");
    }
}
