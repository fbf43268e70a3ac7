//! How the threads of a product by multiply-adds read a factor from shared memory.
//!
//! A thread holds some elements of the accumulator, so it needs some *lines* of each factor: rows of the left one, columns of the right one.
//! It reads them 16 bytes at a time where neighbours in memory are steps of the contraction, else as many neighbouring lines at once
//! as it has.
//!
//! ```text
//! accumulator element of register 5: (thread's row + 8, thread's column + 1)      rows 0, 8 of the thread; columns 0, 1
//! ```

use tessera_layout::{Axis, Distribution, WARP};

use super::arrangement::Arrangement;

/// A factor as threads read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// What each line of a thread adds to the thread's first one, ascending.
    pub lines: Vec<u64>,
    /// Bytes from a line to the next.
    pub line: u64,
    /// Bytes from a step of the contraction to the next.
    pub step: u64,
    /// Elements of a load, along steps or across lines.
    pub vector: usize,
    /// Neighbours in memory are steps.
    pub deep: bool,
}

impl Lines {
    /// How a factor is read whose lines are the accumulator's coordinate `dim`; `None` where it does not lie as that takes it: addresses are a
    /// thread's corner plus a constant.
    pub fn of(factor: &Arrangement, acc: &Distribution, dim: usize) -> Option<Lines> {
        let plain = factor.swizzle.bits == 0 && factor.slabs.is_none();
        if !plain || factor.shape.len() != 2 || acc.rank() != 2 || acc.has_holes() {
            return None;
        }
        let core = acc.core();
        let bits = |axis: Axis| (0..core.bits(axis)).fold(0, |all, bit| all | core.basis(axis, bit)[dim]);
        let thread_bits = bits(Axis::Lane) | bits(Axis::Warp);
        if bits(Axis::Register) & thread_bits != 0 {
            return None;
        }
        let mut lines = (0..acc.registers()).map(|register| Some(acc.position(register, 0)?[dim])).collect::<Option<Vec<_>>>()?;
        lines.sort_unstable();
        lines.dedup();
        let bytes = factor.element_bytes();
        let (line, step) = (factor.strides[dim] * bytes, factor.strides[1 - dim] * bytes);
        let most = (16 / bytes) as usize;
        let deep = step == bytes;
        let vector = if deep {
            let whole = u64::from(factor.shape[1 - dim]).is_multiple_of(most as u64);
            if !line.is_multiple_of(16) || factor.align < 16 || !whole {
                return None;
            }
            most
        } else {
            let runs = |width: usize| {
                let bits = width as u64 - 1;
                let whole = |run: &[u64]| run[0] & bits == 0 && run.len() == width && run[width - 1] == run[0] + bits;
                line == bytes
                    && thread_bits & bits == 0
                    && step.is_multiple_of(width as u64 * bytes)
                    && factor.align.is_multiple_of(width as u64 * bytes)
                    && lines.chunks(width).all(whole)
            };
            [4, 2].into_iter().find(|&width| width <= most && runs(width)).unwrap_or(1)
        };
        Some(Lines { lines, line, step, vector, deep })
    }

    /// The bytes that the lanes of the first warp ask for at their first lines, before the factor's own place; all other loads are the same
    /// moved by a constant.
    pub fn offsets(&self, acc: &Distribution, dim: usize) -> [Option<u64>; WARP as usize] {
        std::array::from_fn(|lane| Some(acc.position(0, lane as u64)?[dim] * self.line))
    }

    /// How many loads there are over so many steps.
    pub fn loads(&self, steps: u64) -> u64 {
        self.lines.len() as u64 * steps / self.vector as u64
    }
}

#[cfg(test)]
mod tests {
    use tessera_ir::SharedType;
    use tessera_layout::wavefronts;
    use tessera_types::DType;

    use super::*;

    fn degree(pad: u32, elements: [u64; 2], order: [usize; 2]) -> (usize, u32) {
        let ty = SharedType { pad, ..SharedType::new(&[64, 32][..], DType::F32) };
        let acc = Distribution::blocked(&elements, &order, 1, 128).expect("a layout");
        let lines = Lines::of(&Arrangement::of(&ty), &acc, 0).expect("lines");
        let phases = wavefronts(&lines.offsets(&acc, 0), (lines.vector * 4) as u64);
        (lines.vector, phases.into_iter().max().unwrap_or(0))
    }

    #[test]
    fn rows_of_whole_lines_meet_in_one_bank_until_they_are_padded() {
        assert_eq!(degree(0, [64, 64], [0, 1]), (4, 8));
        assert_eq!(degree(4, [64, 64], [0, 1]), (4, 1));
    }

    #[test]
    fn odd_paddings_are_no_lines_of_vectors() {
        let ty = SharedType { pad: 1, ..SharedType::new(&[64, 32][..], DType::F32) };
        let acc = Distribution::blocked(&[64, 64], &[1, 0], 1, 128).expect("a layout");
        assert_eq!(Lines::of(&Arrangement::of(&ty), &acc, 0), None);
        assert!(Lines::of(&Arrangement::of(&SharedType::new(&[32, 64][..], DType::F32)), &acc, 1).is_some());
    }
}
