//! Matrix products of a left factor that is stored by half: each row by itself, with those rows of the right factor that it multiplies.

use tessera_ir::fragment::{SIDE, WORD, stored_places};
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::mma::{multiply, operand_type};
use super::{Machine, Ran};
use crate::kernels::matmul::{Extents, Operand, Start};
use crate::plan::SparseMma;

/// A word of places in which two of four neighbours do not stand in order.
pub(crate) fn misplaced(row: usize, word: u32, four: usize, span: Span) -> Box<Diagnostic> {
    let message = format!(
        "the places of row {row} of a factor stored by half are {word:#010x}: not two in order of columns {} to {}",
        4 * four,
        4 * four + 3
    );
    Box::new(Diagnostic::error("cpu-places", span, message))
}

impl Machine<'_> {
    pub(super) fn sparse_mma(&mut self, sparse: &SparseMma) -> Ran<()> {
        let mma = &sparse.mma;
        let (m, n, stored) = (mma.m, mma.n, mma.k);
        let (lhs_type, lhs_compute) = operand_type(mma.lhs_type, true);
        let (rhs_type, rhs_compute) = operand_type(mma.rhs_type, true);
        let (lhs, rhs) = (self.place(mma.lhs).cast_const(), self.place(mma.rhs).cast_const());
        let (acc, dst, places) = (self.place(mma.acc), self.place(mma.dst), self.place(sparse.places).cast_const());
        let (line, side, words) = (n * rhs_type.unpacked_bytes(), SIDE as usize, stored / SIDE as usize);
        let chosen = self.memory.temporary[1].reserve(stored * line);
        for row in 0..m {
            for at in 0..words {
                // SAFETY: there is a word for each 32 columns of each row, and the right factor has so many rows.
                unsafe {
                    let word = places.cast::<u32>().add(row * words + at).read_unaligned();
                    let from = stored_places(word).map_err(|four| misplaced(row, word, four, sparse.span))?;
                    for (to, from) in from.into_iter().enumerate() {
                        let from = rhs.add((at * WORD as usize + from) * line);
                        std::ptr::copy_nonoverlapping(from, chosen.add((at * side + to) * line), line);
                    }
                }
            }
            let matrix = |base: *const u8, row_stride: usize, (dtype, compute): (DType, DType)| Operand {
                base,
                row_stride: row_stride as isize,
                column_stride: 1,
                dtype,
                compute,
            };
            // SAFETY: the row is one of the left factor's; the result overlaps no operand.
            unsafe {
                let a = matrix(lhs.add(row * stored * lhs_type.unpacked_bytes()), stored, (lhs_type, lhs_compute));
                let b = matrix(chosen.cast_const(), n, (rhs_type, rhs_compute));
                let sums = row * n * mma.acc_type.unpacked_bytes();
                std::ptr::copy_nonoverlapping(acc.add(sums), dst.add(sums), n * mma.acc_type.unpacked_bytes());
                multiply(mma.acc_type, Extents { m: 1, n, k: stored }, a, b, dst.add(sums), n, Start::Accumulate);
            }
        }
        self.sparse_marks(sparse);
        Ok(())
    }

    /// A row of sums lacks something where its row of the left factor or its places do, and a column where its column of the right factor does.
    fn sparse_marks(&mut self, sparse: &SparseMma) {
        let Some(check) = self.check.as_mut() else { return };
        let mma = &sparse.mma;
        check.copy(mma.dst, mma.acc);
        let of_rows = [(mma.lhs, mma.k), (sparse.places, mma.k / SIDE as usize)];
        for (place, columns) in of_rows {
            let Some(marks) = check.marks(place, 0, mma.m * columns) else { continue };
            for (row, marks) in marks.chunks(columns).enumerate() {
                if let Some(&mark) = marks.iter().max().filter(|mark| **mark != 0) {
                    (0..mma.n).for_each(|column| check.raise(mma.dst, row * mma.n + column, mark));
                }
            }
        }
        if let Some(marks) = check.marks(mma.rhs, 0, 2 * mma.k * mma.n) {
            for (index, &mark) in marks.iter().enumerate().filter(|(_, mark)| **mark != 0) {
                (0..mma.m).for_each(|row| check.raise(mma.dst, row * mma.n + index % mma.n, mark));
            }
        }
    }
}
