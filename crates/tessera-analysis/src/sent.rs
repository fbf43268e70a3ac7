//! How a tile of sums is sent by warpgroups: in parts of 64 rows and as many columns as a line of 128 bytes holds, or of 64 or 32 where these fill
//! the tile.
//!
//! ```text
//! 128 x 256 of bf16, 8 warps      two warpgroups, four parts of 64 x 64 each
//! ```

use rustc_hash::FxHashMap;
use tessera_layout::{Axis, Dims, Distribution, LinearLayout, MmaAtom, Operand, WARP, WarpGrid};
use tessera_types::DType;
use tessera_types::room::SENT_BY_WARPGROUP;

/// Rows that a warpgroup sends at a time.
pub const ROWS: u64 = 64;
/// Rows of those that a warp sends.
pub const WARP_ROWS: u64 = ROWS / 4;
/// Bytes of a line of a part: what the engine's swizzles mix.
const LINES: [u64; 3] = [128, 64, 32];
/// Bytes that a part has room for.
pub const HALF_BYTES: u64 = ROWS * LINES[0];
/// Parts that a warpgroup has room for.
pub const HALVES: u64 = SENT_BY_WARPGROUP as u64 / HALF_BYTES;
/// What a swizzled buffer's first byte is a multiple of.
pub const STAGING_ALIGN: u64 = 1024;

/// Shared memory that so many warps send through.
pub fn staging_bytes(warps: u64) -> u64 {
    warps / 4 * u64::from(SENT_BY_WARPGROUP)
}

/// A tile in parts.
pub struct Parts {
    /// Columns of a part.
    pub columns: u64,
    /// The parts of the first warpgroup, in the order in which they are sent.
    pub parts: Vec<Part>,
}

/// One part.
pub struct Part {
    /// Where it begins in the tile, for the first warpgroup; the others' begin 64 rows further each.
    pub row: u64,
    /// Its first column.
    pub column: u64,
    /// How a warpgroup holds it.
    pub layout: Distribution,
    /// Which of the tile's registers those are.
    pub registers: Vec<usize>,
}

/// A part as it is written so that rows meet in no bank.
pub struct Spread {
    /// Threads of odd rows hold other columns.
    pub layout: Distribution,
    partners: Vec<usize>,
}

impl Spread {
    /// The register whose element a thread of an odd row holds in a register's place.
    pub fn partner(&self, register: usize) -> usize {
        self.partners[register]
    }
}

impl Part {
    /// Half a warp writes neighbours of 8 bytes in four rows. The swizzle takes rows in pairs to the same banks: the second of a pair writes
    /// the columns that lie two blocks of eight further, or nearer.
    ///
    /// ```text
    /// row 0   columns 0..8     8..16     16..24   24..32
    /// row 1   columns 16..24   24..32    0..8     8..16
    /// ```
    pub fn spread(&self) -> Option<Spread> {
        const APART: u64 = 16;
        let core = self.layout.core();
        let axes = [Axis::Register, Axis::Lane, Axis::Warp];
        let bases = axes.map(|axis| {
            let own = (0..core.bits(axis)).map(|bit| {
                let mut basis = core.basis(axis, bit);
                // The lane's bit that says whether its row is odd.
                if axis == Axis::Lane && basis[0] == 1 {
                    basis[1] ^= APART;
                }
                basis
            });
            (axis, own.collect::<Vec<_>>())
        });
        let core = LinearLayout::from_bases(&core.extents(), &bases).ok()?;
        let layout = Distribution::new(self.layout.shape(), core, self.layout.warps()).ok()?;
        let places = self.layout.positions(0);
        let partner = |place: &Dims| places.iter().position(|other| other[0] == place[0] && other[1] == place[1] ^ APART);
        let partners = places.iter().map(partner).collect::<Option<_>>()?;
        Some(Spread { layout, partners })
    }
}

/// The box of a tile's axes, but the last one, that a warp's rows are: rows run through the later of these axes first. `None` where they are no box,
/// or where they go through several axes that are no powers of two.
///
/// ```text
/// 128 x 256           16
/// 2 x 8 x 8 x 256     1 x 2 x 8
/// ```
pub fn box_of_rows(tile: &[u32]) -> Option<Vec<u32>> {
    let (_, lead) = tile.split_last().filter(|(_, lead)| !lead.is_empty())?;
    let mut own = vec![1; lead.len()];
    let along: Vec<usize> = (0..lead.len()).filter(|&axis| lead[axis] != 1).collect();
    if let &[rows] = &along[..] {
        own[rows] = WARP_ROWS as u32;
        return Some(own);
    }
    let mut left = WARP_ROWS as u32;
    for &axis in along.iter().rev() {
        lead[axis].is_power_of_two().then_some(())?;
        own[axis] = left.min(lead[axis]);
        left /= own[axis];
    }
    (left == 1).then_some(own)
}

/// How a warpgroup takes a part line by line, so many neighbours a thread: lanes side by side have what lies side by side, and each warp the rows
/// that it has of the sums. `None` where neighbours are no power of two, or more than a line.
///
/// ```text
/// 64 columns, one neighbour      lanes 0 .. 31 have columns 0 .. 31 of a row, and then 32 .. 63
/// 64 columns, four of them       lanes 0 .. 15 have columns 0 .. 63 of a row, lanes 16 .. 31 those of the next one
/// ```
pub fn lines(columns: u64, neighbours: u64) -> Option<Distribution> {
    if !neighbours.is_power_of_two() || neighbours > columns {
        return None;
    }
    let powers = |from: u64, to: u64| std::iter::successors(Some(from), |at| Some(2 * at)).take_while(move |&at| at < to);
    let across = columns.min(WARP * neighbours);
    let down = WARP * neighbours / across;
    let basis = |row: u64, column: u64| -> Dims { [row, column].into_iter().collect() };
    let columns_of = |from, to| powers(from, to).map(|column| basis(0, column));
    let rows_of = |from, to| powers(from, to).map(|row| basis(row, 0));
    let registers = columns_of(1, neighbours).chain(columns_of(across, columns)).chain(rows_of(down, WARP_ROWS)).collect();
    let lanes = columns_of(neighbours, across).chain(rows_of(1, down)).collect();
    let bases = [(Axis::Register, registers), (Axis::Lane, lanes), (Axis::Warp, rows_of(WARP_ROWS, ROWS).collect())];
    let core = LinearLayout::from_bases(&[ROWS, columns], &bases).ok()?;
    Distribution::new(&[ROWS, columns], core, 4).ok()
}

/// The register of the first thread that each of its elements of a matrix lies in.
fn first_registers(layout: &Distribution) -> FxHashMap<[u64; 2], usize> {
    layout.positions(0).iter().enumerate().map(|(register, place)| ([place[0], place[1]], register)).collect()
}

/// The parts of a tile that lies as warpgroups' sums do; `None` where it does not, or is not made of whole parts.
pub fn parts(layout: &Distribution, dtype: DType) -> Option<Parts> {
    let bits = u64::from(dtype.bits());
    let (&[rows, columns], warps) = (layout.shape(), layout.warps()) else { return None };
    if !matches!(bits, 16 | 32) || warps == 0 || !warps.is_multiple_of(4) {
        return None;
    }
    let tall = ROWS * warps / 4;
    // Rows of 32-bit sums meet in banks where lines are shorter.
    let widths = LINES.iter().take(if bits == 16 { LINES.len() } else { 1 }).map(|line| 8 * line / bits);
    let wide = widths.into_iter().find(|&wide| columns.is_multiple_of(wide)).filter(|_| rows.is_multiple_of(tall))?;
    let atom = MmaAtom::wgmma(wide, 16).ok()?;
    let part = atom.operand(Operand::C, [ROWS, wide], WarpGrid { m: 4, n: 1 }).ok()?;
    if layout.registers() * 4 * 32 * (warps / 4) != rows * columns {
        return None;
    }
    let first = first_registers(layout);
    // Elements move by exclusive or with the bits of a lane: those that have one bit decide about all.
    let lanes = [0, 1, 2, 4, 8, 16];
    let witnesses = (0..warps).flat_map(|warp| lanes.map(|lane| WARP * warp + lane));
    let held: Vec<_> = witnesses.map(|thread| (thread, layout.positions(thread), part.positions(thread % 128))).collect();
    let mut parts = Vec::new();
    for row in (0..rows).step_by(tall as usize) {
        for column in (0..columns).step_by(wide as usize) {
            let own = |place: &Dims| first.get(&[row + place[0], column + place[1]]).copied();
            let registers = part.positions(0).iter().map(own).collect::<Option<Vec<usize>>>()?;
            // Every thread of every warpgroup holds what the first one does, further down.
            let alike = held.iter().all(|(thread, tile, part)| {
                let row = row + thread / 128 * ROWS;
                registers.iter().zip(part).all(|(&other, place)| tile[other][..] == [row + place[0], column + place[1]])
            });
            if !alike {
                return None;
            }
            parts.push(Part { row, column, layout: part.clone(), registers });
        }
    }
    Some(Parts { columns: wide, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_two_warpgroups_is_sent_in_four_parts_each() {
        let atom = MmaAtom::wgmma(256, 16).expect("an instruction");
        let layout = atom.operand(Operand::C, [128, 256], WarpGrid { m: 8, n: 1 }).expect("a layout");
        let found = parts(&layout, DType::BF16).expect("parts");
        assert_eq!((found.columns, found.parts.len()), (64, 4));
        assert_eq!(found.parts[1].registers, (32..64).collect::<Vec<usize>>());
        assert_eq!(parts(&layout, DType::F32).map(|found| (found.columns, found.parts.len())), Some((32, 8)));
        assert!(parts(&layout, DType::F8E4M3).is_none());
        let of = |columns: u64, dtype| {
            let layout = MmaAtom::wgmma(columns, 16).expect("an instruction");
            let layout = layout.operand(Operand::C, [128, columns], WarpGrid { m: 8, n: 1 }).expect("a layout");
            parts(&layout, dtype).map(|found| (found.columns, found.parts.len()))
        };
        assert_eq!(of(224, DType::F16), Some((32, 7)));
        assert_eq!(of(176, DType::BF16), Some((16, 11)));
        assert_eq!((of(8, DType::BF16), of(176, DType::F32), of(160, DType::F32)), (None, None, Some((32, 5))));
    }

    #[test]
    fn rows_of_a_warp_are_a_box_of_several_axes() {
        assert_eq!(box_of_rows(&[192, 256]), Some(vec![16]));
        assert_eq!(box_of_rows(&[1, 128, 1, 256]), Some(vec![1, 16, 1]));
        assert_eq!(box_of_rows(&[2, 8, 8, 1, 256]), Some(vec![1, 2, 8, 1]));
        assert_eq!(box_of_rows(&[32, 2, 2, 64]), Some(vec![4, 2, 2]));
        assert_eq!((box_of_rows(&[2, 96, 64]), box_of_rows(&[4, 2, 64]), box_of_rows(&[64])), (None, None, None));
    }

    #[test]
    fn lines_lie_along_lanes_of_the_warp_that_has_their_rows() {
        for (columns, neighbours) in [(64, 1), (64, 2), (64, 4), (64, 8), (32, 1), (32, 2), (32, 4)] {
            let layout = lines(columns, neighbours).expect("a layout");
            assert!(!layout.has_copies() && !layout.has_holes());
            for thread in 0..128 {
                for register in 0..layout.registers() {
                    let at = layout.position(register, thread).expect("a place");
                    assert_eq!(at[0] / WARP_ROWS, thread / WARP, "rows of the warp");
                }
                let first = layout.position(0, thread).expect("a place");
                let lane = thread % WARP;
                assert_eq!(first[0] % WARP_ROWS * columns + first[1] % columns, {
                    let across = (columns / neighbours).min(WARP);
                    lane / across * columns + lane % across * neighbours
                });
            }
        }
        assert!(lines(64, 3).is_none());
    }

    #[test]
    fn odd_rows_hold_other_columns() {
        let atom = MmaAtom::wgmma(64, 16).expect("an instruction");
        let layout = atom.operand(Operand::C, [64, 64], WarpGrid { m: 4, n: 1 }).expect("a layout");
        let found = parts(&layout, DType::F32).expect("parts");
        let part = &found.parts[0];
        let spread = part.spread().expect("spread");
        for thread in 0..128 {
            for register in 0..part.layout.registers() {
                let odd = thread % 32 / 4 % 2 == 1;
                let from = if odd { spread.partner(register as usize) as u64 } else { register };
                assert_eq!(
                    spread.layout.position(register, thread),
                    part.layout.position(from, thread),
                    "{register} of {thread}"
                );
            }
        }
    }

    #[test]
    fn other_layouts_are_no_sums() {
        let atom = MmaAtom::wgmma(64, 16).expect("an instruction");
        let layout = atom.operand(Operand::C, [64, 64], WarpGrid { m: 4, n: 1 }).expect("a layout");
        assert!(parts(&layout, DType::F32).is_some());
        assert!(parts(&layout.permute(&[1, 0]).expect("turned"), DType::F32).is_none());
        assert!(parts(&Distribution::replicated(&[64, 64], 128).expect("copies"), DType::F32).is_none());
    }
}
