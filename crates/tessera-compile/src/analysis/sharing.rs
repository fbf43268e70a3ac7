//! How the warps of a block share a product that is made of a warp's instructions.
//!
//! A warp's instructions lie side by side: a 128 x 128 accumulator on 2 x 4 warps is eight parts of 64 x 32. A thread then holds
//! neighbouring columns of several instructions, which fill whole sectors of memory when they are stored, also as 16 bits. Where
//! extents are no powers of two of instructions, warps take instructions in turn.

use tessera_layout::{Axis, Distribution, LinearLayout, MmaAtom, Operand, WarpGrid};
use tessera_types::{Arch, DType};

/// An instruction and the grid of warps that repeat it over a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    pub(crate) atom: MmaAtom,
    pub(crate) grid: WarpGrid,
    together: bool,
}

impl Sharing {
    /// The instruction of an architecture whose fragments an accumulator's layout has, and how warps share the product.
    pub(crate) fn of(arch: Arch, dtype: DType, acc: &Distribution, contraction: u64) -> Option<Sharing> {
        if acc.rank() != 2 || !has_instruction(arch, dtype) {
            return None;
        }
        let warps = acc.warps();
        let shape = [acc.shape()[0], acc.shape()[1]];
        for &(m, n, k) in shapes(dtype) {
            if !contraction.is_multiple_of(k) || (m == 16 && dtype == DType::F64 && !arch.has_bf16_add()) {
                continue;
            }
            let Ok(atom) = MmaAtom::sync(m, n, k, u64::from(dtype.bits())) else { continue };
            for rows in (1..=warps).filter(|rows| warps.is_multiple_of(*rows)) {
                let grid = WarpGrid { m: rows, n: warps / rows };
                let sharing = Sharing::new(atom, grid, [shape[0], shape[1], contraction]);
                if sharing.operand(Operand::C, shape).is_some_and(|layout| layout == *acc) {
                    return Some(sharing);
                }
            }
        }
        None
    }

    /// A product of these extents: rows, columns, contraction.
    pub(crate) fn new(atom: MmaAtom, grid: WarpGrid, [m, n, k]: [u64; 3]) -> Sharing {
        let counts = [(m, grid.m * atom.m), (n, grid.n * atom.n), (k, atom.k)];
        let together = atom.warps == 1
            && grid.m.is_power_of_two()
            && grid.n.is_power_of_two()
            && counts.iter().all(|&(extent, step)| extent.is_multiple_of(step) && (extent / step).is_power_of_two());
        Sharing { atom, grid, together }
    }

    /// The layout of an operand, or of some whole steps of the contraction of one: `[m, k]`, `[k, n]` or `[m, n]`.
    pub(crate) fn operand(&self, operand: Operand, shape: [u64; 2]) -> Option<Distribution> {
        let Sharing { atom, grid, together } = self;
        if !together {
            return atom.operand(operand, shape, *grid).ok();
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
            .product(&warps(grid.n, 1));
        Distribution::new(&shape, core, grid.warps()).ok()
    }
}

/// Shapes of `mma.sync` by factor type: rows, columns, contraction.
fn shapes(dtype: DType) -> &'static [(u64, u64, u64)] {
    match dtype {
        DType::F16 | DType::BF16 => &[(16, 8, 16), (16, 8, 8)],
        DType::TF32 | DType::F32 => &[(16, 8, 8), (16, 8, 4)],
        DType::F8E4M3 | DType::F8E5M2 => &[(16, 8, 32)],
        DType::I8 => &[(16, 8, 32), (16, 8, 16)],
        DType::F64 => &[(16, 8, 16), (16, 8, 8), (16, 8, 4), (8, 8, 4)],
        _ => &[],
    }
}

fn has_instruction(arch: Arch, dtype: DType) -> bool {
    match dtype {
        DType::F16 | DType::BF16 => arch.has_bf16_mma(),
        DType::TF32 => arch.has_tf32_mma(),
        DType::F8E4M3 | DType::F8E5M2 => arch.has_fp8_mma(),
        DType::I8 => arch.has_bf16_mma() && arch.has_i8_mma(),
        DType::F64 => arch.has_f64_mma(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_holds_one_block_and_factors_fit_it() {
        let atom = MmaAtom::sync(16, 8, 16, 16).expect("an instruction");
        let sharing = Sharing::new(atom, WarpGrid { m: 2, n: 4 }, [128, 128, 32]);
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
        let sharing = Sharing::new(atom, grid, [64, 96, 32]);
        assert_eq!(sharing.operand(Operand::C, [64, 96]), atom.operand(Operand::C, [64, 96], grid).ok());
    }
}
