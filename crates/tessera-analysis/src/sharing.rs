//! How the warps of a block share a product that is made of a warp's instructions.
//!
//! A warp's instructions lie side by side: a 128 x 128 accumulator on 2 x 4 warps is eight parts of 64 x 32. A thread then holds
//! neighbouring columns of several instructions, which fill whole sectors of memory when they are stored, also as 16 bits. Where
//! extents are no powers of two of instructions, warps take instructions in turn.

use tessera_layout::{Axis, Distribution, LinearLayout, MmaAtom, Operand, WarpGrid};
use tessera_types::{Arch, DType, Issuer};

/// Shapes of a warp's instructions for factors of a type on a target, the best first: rows, columns, contraction. Tiles are shared by those of
/// targets that fill a slot while they multiply; Turing's serve `tile.mma_fragment` alone.
pub fn instructions(arch: Arch, dtype: DType) -> impl Iterator<Item = (u64, u64, u64)> {
    let rows = arch.matrix_instructions(Issuer::Warp, dtype).filter(move |_| arch.has_cp_async());
    rows.flat_map(|row| row.columns.iter().map(|&columns| (u64::from(row.rows), u64::from(columns), u64::from(row.depth))))
}

/// An instruction and the grid of warps that repeat it over a product.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// The instruction.
    pub atom: MmaAtom,
    /// How the warps share the tile.
    pub grid: WarpGrid,
    /// How many warps do the same, where there are more than parts of the product.
    pub copies: u64,
    together: bool,
}

impl Sharing {
    /// The instruction of an architecture whose fragments an accumulator's layout has, and how warps share the product.
    pub fn of(arch: Arch, dtype: DType, acc: &Distribution, contraction: u64) -> Option<Sharing> {
        instructions(arch, dtype).filter(|(_, _, k)| contraction.is_multiple_of(*k)).find_map(|(m, n, k)| {
            let atom = MmaAtom::sync(m, n, k, u64::from(dtype.bits())).ok()?;
            Sharing::by(atom, acc, contraction)
        })
    }

    /// A product of these extents: rows, columns, contraction.
    pub fn new(atom: MmaAtom, grid: WarpGrid, copies: u64, [m, n, k]: [u64; 3]) -> Sharing {
        let counts = [(m, grid.m * atom.m), (n, grid.n * atom.n), (k, atom.k)];
        let together = atom.warps == 1
            && grid.m.is_power_of_two()
            && grid.n.is_power_of_two()
            && copies.is_power_of_two()
            && counts.iter().all(|&(extent, step)| extent.is_multiple_of(step) && (extent / step).is_power_of_two());
        Sharing { atom, grid, copies, together }
    }

    /// How so many warps share a product by an instruction; `None` where its extents are not made of it.
    pub fn among(atom: MmaAtom, warps: u64, [m, n, k]: [u64; 3]) -> Option<Sharing> {
        let mut grid = WarpGrid { m: 1, n: 1 };
        while grid.warps() < warps {
            let (rows, columns) = (m / grid.m, n / grid.n);
            let taller = rows >= columns && rows.is_multiple_of(2 * atom.m);
            if taller || !columns.is_multiple_of(2 * atom.n) {
                grid.m *= 2;
            } else {
                grid.n *= 2;
            }
        }
        if m.is_multiple_of(grid.m * atom.m) && n.is_multiple_of(grid.n * atom.n) {
            return Some(Sharing::new(atom, grid, 1, [m, n, k]));
        }
        // Fewer warps than there are cover it: the others do the same.
        let fitting = |parts: u64, extent: u64, step: u64| extent.is_multiple_of(parts * step);
        let grid = (0..=warps.ilog2()).rev().map(|bits| 1u64 << bits).filter(|parts| warps.is_multiple_of(*parts)).find_map(
            |parts| {
                (0..=parts.ilog2())
                    .map(|bits| WarpGrid { m: 1 << bits, n: parts >> bits })
                    .find(|grid| fitting(grid.m, m, atom.m) && fitting(grid.n, n, atom.n))
            },
        )?;
        let sharing = Sharing::new(atom, grid, warps / grid.warps(), [m, n, k]);
        (sharing.together && k.is_multiple_of(atom.k)).then_some(sharing)
    }

    /// The sharing by an instruction whose accumulator a layout is.
    pub fn by(atom: MmaAtom, acc: &Distribution, contraction: u64) -> Option<Sharing> {
        let (&[m, n], warps) = (acc.shape(), acc.warps()) else { return None };
        let divides = |all: u64| move |part: &u64| all.is_multiple_of(*part);
        (1..=warps).filter(divides(warps)).find_map(|copies| {
            let parts = warps / copies;
            (1..=parts).filter(divides(parts)).find_map(|rows| {
                let sharing = Sharing::new(atom, WarpGrid { m: rows, n: parts / rows }, copies, [m, n, contraction]);
                sharing.operand(Operand::C, [m, n]).is_some_and(|layout| layout == *acc).then_some(sharing)
            })
        })
    }

    /// The layout of the words `[m, k / 32]` that say where the elements of a left factor stand that is stored by half.
    pub fn places(&self, shape: [u64; 2]) -> Option<Distribution> {
        let Sharing { atom, grid, copies, together } = self;
        if !together {
            return if *copies == 1 { atom.places(shape, *grid).ok() } else { None };
        }
        let fragment = atom.place_words(shape[1]);
        let count = |dim: usize, step: u64| {
            let whole = shape[dim].is_multiple_of(step) && (shape[dim] / step).is_power_of_two();
            whole.then(|| LinearLayout::identity(Axis::Register, shape[dim] / step, dim, 2))
        };
        let core = fragment
            .product(&count(1, fragment.extent(1))?)
            .product(&count(0, grid.m * atom.m)?)
            .product(&LinearLayout::identity(Axis::Warp, grid.m, 0, 2))
            .product(&LinearLayout::replicated(Axis::Warp, grid.n * copies, 2));
        Distribution::new(&shape, core, grid.warps() * copies).ok()
    }

    /// The layout of an operand, or of some whole steps of the contraction of one: `[m, k]`, `[k, n]` or `[m, n]`.
    pub fn operand(&self, operand: Operand, shape: [u64; 2]) -> Option<Distribution> {
        let Sharing { atom, grid, copies, together } = self;
        if !together {
            return if *copies == 1 { atom.operand(operand, shape, *grid).ok() } else { None };
        }
        let steps = match operand {
            Operand::A => [grid.m * atom.m, atom.k],
            Operand::B => [atom.k, grid.n * atom.n],
            Operand::C => [grid.m * atom.m, grid.n * atom.n],
        };
        let count = |dim: usize| shape[dim] / steps[dim];
        if (0..2).any(|dim| !shape[dim].is_multiple_of(steps[dim]) || !count(dim).is_power_of_two()) {
            return None;
        }
        let warps = |size: u64, dim: usize| match operand {
            Operand::A if dim == 1 => LinearLayout::replicated(Axis::Warp, size, 2),
            Operand::B if dim == 0 => LinearLayout::replicated(Axis::Warp, size, 2),
            _ => LinearLayout::identity(Axis::Warp, size, dim, 2),
        };
        // Registers enumerate instructions row by row.
        let core = atom
            .fragment(operand)
            .ok()?
            .product(&LinearLayout::identity(Axis::Register, count(1), 1, 2))
            .product(&LinearLayout::identity(Axis::Register, count(0), 0, 2))
            .product(&warps(grid.m, 0))
            .product(&warps(grid.n, 1))
            .product(&LinearLayout::replicated(Axis::Warp, *copies, 2));
        Distribution::new(&shape, core, grid.warps() * copies).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_holds_one_block_and_factors_fit_it() {
        let atom = MmaAtom::sync(16, 8, 16, 16).expect("an instruction");
        let sharing = Sharing::new(atom, WarpGrid { m: 2, n: 4 }, 1, [128, 128, 32]);
        let at = |operand, shape, register, thread| {
            sharing.operand(operand, shape).expect("a layout").position(register, thread).expect("a position").to_vec()
        };
        assert_eq!(at(Operand::C, [128, 128], 4, 0), [0, 8]);
        assert_eq!(at(Operand::C, [128, 128], 16, 0), [16, 0]);
        assert_eq!([at(Operand::C, [128, 128], 0, 32), at(Operand::C, [128, 128], 0, 64)], [[64, 0], [0, 32]]);
        assert_eq!([at(Operand::A, [128, 32], 8, 32), at(Operand::A, [128, 32], 16, 64)], [[64, 16], [16, 0]]);
        assert_eq!([at(Operand::B, [32, 128], 4, 64), at(Operand::B, [32, 128], 16, 32)], [[0, 40], [16, 0]]);
    }

    #[test]
    fn odd_extents_take_turns() {
        let atom = MmaAtom::sync(16, 8, 16, 16).expect("an instruction");
        let grid = WarpGrid { m: 2, n: 2 };
        let sharing = Sharing::new(atom, grid, 1, [64, 96, 32]);
        assert_eq!(sharing.operand(Operand::C, [64, 96]), atom.operand(Operand::C, [64, 96], grid).ok());
    }

    #[test]
    fn warps_without_a_part_of_their_own_do_the_same() {
        let atom = MmaAtom::sync(16, 8, 16, 16).expect("an instruction");
        let sharing = Sharing::among(atom, 4, [16, 16, 16]).expect("shared");
        assert_eq!((sharing.grid.warps(), sharing.copies), (2, 2));
        let acc = sharing.operand(Operand::C, [16, 16]).expect("a layout");
        assert_eq!(acc.warps(), 4);
        let found = Sharing::by(atom, &acc, 16).expect("found again");
        assert_eq!((found.grid, found.copies), (sharing.grid, 2));
    }
}
