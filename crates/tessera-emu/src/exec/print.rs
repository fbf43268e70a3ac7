//! `vprintf`: what a kernel prints.

use tessera_types::printf::{Number, Part, parts};

use super::undefined::{Use, Who};
use super::{Cluster, Fault, Warp};
use crate::lanes::lanes;
use crate::program::{Passed, Space};

impl Cluster<'_> {
    /// `vprintf`: the format and the arguments lie where two pointers say.
    pub(super) fn print(
        &mut self,
        warp: &mut Warp,
        active: u32,
        pc: u32,
        format: Passed,
        arguments: Passed,
    ) -> Result<(), Fault> {
        for lane in lanes(active) {
            let pointer = |place: Passed| {
                let bytes = self.copy_in(warp, place, 8, lane);
                bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            let (format, mut from) = (pointer(format), pointer(arguments));
            let mut text = Vec::new();
            loop {
                let mut byte = [0];
                self.read_bytes(warp, Space::Generic, format + text.len() as u64, &mut byte, lane)?;
                if byte[0] == 0 || text.len() >= 4096 {
                    break;
                }
                text.push(byte[0]);
            }
            let mut next = |bytes: u64, warp: &mut Warp| {
                from = from.next_multiple_of(bytes);
                let mut word = [0; 8];
                self.read_bytes(warp, Space::Generic, from, &mut word[..bytes as usize], lane)?;
                let target = self.resolve(warp, Space::Generic, from, bytes as u32, 1, lane)?;
                self.need_bytes(warp, target, bytes as u32, Who::lane(warp, lane, pc), "an argument", Use::Printed);
                from += bytes;
                Ok(u64::from_le_bytes(word))
            };
            let line = printed(&String::from_utf8_lossy(&text), |bytes| next(bytes, warp))?;
            let mut resolved = String::new();
            for piece in line {
                match piece {
                    Piece::Text(text) => resolved.push_str(&text),
                    Piece::Pointer(mut address) => loop {
                        let mut byte = [0];
                        self.read_bytes(warp, Space::Generic, address, &mut byte, lane)?;
                        if byte[0] == 0 || resolved.len() > 1 << 16 {
                            break;
                        }
                        resolved.push(char::from(byte[0]));
                        address += 1;
                    },
                }
            }
            let block = self.block_number(warp.rank);
            if let Ok(mut output) = self.launch.output.lock() {
                output.entry(block).or_default().push_str(&resolved);
            }
        }
        Ok(())
    }
}

/// A part of a printed line.
enum Piece {
    Text(String),
    /// A string in memory.
    Pointer(u64),
}

/// Formats as `printf` does, with the arguments that `next` gives: 4 bytes for `int`, 8 for `long`, pointers and `double`.
fn printed(format: &str, mut next: impl FnMut(u64) -> Result<u64, Fault>) -> Result<Vec<Piece>, Fault> {
    let mut out = Vec::new();
    for part in parts(format) {
        out.push(Piece::Text(match part {
            Part::Text(text) => text,
            Part::Value(conversion) if conversion.letter == 's' => {
                out.push(Piece::Pointer(next(8)?));
                continue;
            }
            Part::Value(conversion) if conversion.is_real() => conversion.show(Number::Real(f64::from_bits(next(8)?))),
            Part::Value(conversion) => {
                let long = conversion.letter == 'p' || conversion.length.contains(['l', 'j', 'z', 't']);
                let bits = next(if long { 8 } else { 4 })?;
                conversion.show(match (conversion.is_unsigned(), long) {
                    (true, _) => Number::Unsigned(bits),
                    (false, true) => Number::Signed(bits as i64),
                    (false, false) => Number::Signed((bits as i32).into()),
                })
            }
        }));
    }
    Ok(out)
}
