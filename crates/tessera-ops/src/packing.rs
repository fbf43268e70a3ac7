//! Weights of 4 bits as `linear_w4` reads them: what a fragment's thread needs stands in one word, and neighbours in its halves.
//!
//! ```text
//! row = 8 line + r, column = 64 c + 32 b + 8 i + 2 t + p
//! word 64 c + 8 r + 2 t + b of the line, bits 16 p + 4 i to 16 p + 4 i + 3
//! ```
//!
//! | row | column | line | word | bits |
//! |---|---|---|---|---|
//! | 0 | 0, 1 | 0 | 0 | 0 to 3, 16 to 19 |
//! | 0 | 2 | 0 | 2 | 0 to 3 |
//! | 0 | 8 | 0 | 0 | 4 to 7 |
//! | 0 | 32 | 0 | 1 | 0 to 3 |
//! | 9 | 64 | 1 | 72 | 0 to 3 |

use tessera_runtime::{Tensor, TensorError};

/// Rows of weights in a line of words.
pub(crate) const LINE: usize = 8;
/// Columns of weights that a line is made of.
pub(crate) const CHUNK: usize = 64;

/// Why weights cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// There are more or fewer codes than the shape has.
    #[error("{codes} codes are no {rows} x {columns}")]
    Count {
        /// How many there are.
        codes: usize,
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
    },
    /// Columns do not fill words.
    #[error(
        "{0} columns are no multiple of 64: add columns of code 8 to the weights, and of zeros to what they are multiplied by"
    )]
    Columns(usize),
    /// A code has more than four bits.
    #[error("code {code} of row {row}, column {column} has more than 4 bits")]
    Code {
        /// The code.
        code: u8,
        /// Where it stands.
        row: usize,
        /// Where it stands.
        column: usize,
    },
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

/// The word, counted through all lines of so many `columns`, that has the weight of a row and column, and its lowest bit.
pub(crate) fn place(columns: usize, row: usize, column: usize) -> (usize, u32) {
    let (chunk, within) = (column / CHUNK, column % CHUNK);
    let (b, i, t, p) = (within / 32, within / 8 % 4, within / 2 % 4, within % 2);
    let word = (row / LINE) * columns + CHUNK * chunk + LINE * (row % LINE) + 2 * t + b;
    (word, (16 * p + 4 * i) as u32)
}

/// Packs the codes of weights, 0 to 15, row by row of `columns` each, for [`linear_w4`](crate::linear_w4): words `i32[ceil(rows / 8),
/// columns]`. A last line that is not full is filled with code 0, which nothing reads.
///
/// # Errors
/// Where there are not `rows` times `columns` codes, columns are no multiple of 64, or a code has more than four bits.
///
/// ```
/// let w = tessera_ops::pack_int4(&[9; 3 * 64], 3, 64)?;
/// assert_eq!((w.shape(), w.read::<i32>()?[0]), (&[1, 64][..], 0x9999_9999_u32 as i32));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pack_int4(codes: &[u8], rows: usize, columns: usize) -> Result<Tensor, PackError> {
    if rows.checked_mul(columns) != Some(codes.len()) {
        return Err(PackError::Count { codes: codes.len(), rows, columns });
    }
    if !columns.is_multiple_of(CHUNK) {
        return Err(PackError::Columns(columns));
    }
    let lines = rows.div_ceil(LINE);
    let mut words = vec![0_i32; lines * columns];
    for (at, &code) in codes.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        if code > 15 {
            return Err(PackError::Code { code, row, column });
        }
        let (word, shift) = place(columns, row, column);
        words[word] |= i32::from(code) << shift;
    }
    Ok(Tensor::from_vec(&[lines, columns], words)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_has_a_place_of_its_own() {
        let (rows, columns) = (19_usize, 192);
        let mut taken = vec![0_u32; rows.div_ceil(LINE) * columns];
        for row in 0..rows {
            for column in 0..columns {
                let (word, shift) = place(columns, row, column);
                assert_eq!(taken[word] >> shift & 15, 0, "row {row}, column {column}");
                taken[word] |= 15 << shift;
            }
        }
        let full = taken.iter().filter(|&&word| word == u32::MAX).count();
        assert_eq!(full * 8, rows * columns);
    }

    #[test]
    fn codes_are_found_where_they_were_put() {
        let (rows, columns) = (9, 64);
        let codes: Vec<u8> = (0..rows * columns).map(|at| (at * 7 % 16) as u8).collect();
        let packed = pack_int4(&codes, rows, columns).expect("a tensor");
        let words = packed.read::<i32>().expect("words");
        for (at, &code) in codes.iter().enumerate() {
            let (word, shift) = place(columns, at / columns, at % columns);
            assert_eq!(words[word] >> shift & 15, i32::from(code), "{at}");
        }
    }

    #[test]
    fn what_cannot_be_packed_is_told() {
        let told = |codes: &[u8], rows, columns| pack_int4(codes, rows, columns).unwrap_err().to_string();
        assert_eq!(told(&[0; 3], 2, 64), "3 codes are no 2 x 64");
        assert!(told(&[0; 96], 1, 96).starts_with("96 columns are no multiple of 64"));
        let mut codes = [0; 128];
        codes[70] = 16;
        assert_eq!(told(&codes, 2, 64), "code 16 of row 1, column 6 has more than 4 bits");
    }
}
