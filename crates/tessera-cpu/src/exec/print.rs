//! Printing with C's conversions.

use tessera_types::printf::{Conversion, Number};
use tessera_types::{DType, FloatFormat};

use super::{Machine, sign_extend};
use crate::plan::{Piece, Printed};

impl Machine<'_> {
    pub(super) fn print(&mut self, pieces: &[Piece]) {
        let mut line = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => line.push_str(text),
                Piece::Value { conversion, place: Printed::Scalar(reg), dtype } => {
                    line.push_str(&number(conversion, *dtype, self.get(*reg)));
                }
                Piece::Value { conversion, place: Printed::Tile(place, shape), dtype } => {
                    let from = self.place(*place);
                    let bytes = dtype.unpacked_bytes();
                    let element = |index: usize| {
                        let mut bits = [0; 8];
                        // SAFETY: indices stay below the tile's number of elements.
                        unsafe { std::ptr::copy_nonoverlapping(from.add(index * bytes), bits.as_mut_ptr(), bytes) };
                        number(conversion, *dtype, u64::from_le_bytes(bits))
                    };
                    nested(&mut line, shape, 0, &element);
                }
            }
        }
        self.text.push_str(&line);
    }
}

/// `[[1, 2], [3, 4]]`
fn nested(out: &mut String, shape: &[u32], first: usize, element: &dyn Fn(usize) -> String) {
    let Some((&extent, rest)) = shape.split_first() else {
        out.push_str(&element(first));
        return;
    };
    let step: usize = rest.iter().map(|&extent| extent as usize).product();
    out.push('[');
    for i in 0..extent as usize {
        if i > 0 {
            out.push_str(", ");
        }
        nested(out, rest, first + i * step, element);
    }
    out.push(']');
}

/// One value by its conversion.
fn number(conversion: &Conversion, dtype: DType, bits: u64) -> String {
    let bytes = dtype.unpacked_bytes() as u8;
    let number = match FloatFormat::of(dtype) {
        Some(format) => Number::Real(format.decode(bits)),
        None if dtype == DType::B1 => Number::Unsigned(bits & 1),
        None if conversion.is_unsigned() => Number::Unsigned(super::mask(bits, bytes)),
        None => Number::Signed(sign_extend(bits, bytes)),
    };
    conversion.show(number)
}
