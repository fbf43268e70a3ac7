//! The layout of an accumulator whose threads multiply and add by themselves: each holds a few rows times a few columns, and reads
//! a column of its rows and a row of its columns for every step of the contraction.
//!
//! A warp is 8 x 4 threads (4 x 8 where only the left factor's steps are neighbours in memory: such a factor is read in small pieces, the
//! other is held), and its part of the tile as square as the tile allows. Which rows are a thread's depends on how the left factor
//! lies in shared memory, and likewise for columns:
//!
//! | factor's neighbours in memory | a thread's lines | so that |
//! |---|---|---|
//! | next line | four neighbours, then every 32nd or 16th | a load takes four lines |
//! | next step, rows | every 8th or 4th | padded lines meet no bank twice |
//! | next step, columns | two neighbours, then every 8th | the same, and results fill sectors of memory |
//!
//! For 128 x 128 on four warps: 8 x 16 elements a thread, six loads of 16 bytes for 128 multiply-adds.

use smallvec::SmallVec;
use tessera_ir::SharedType;
use tessera_layout::{Axis, Distribution, LinearLayout, WarpGrid};

/// The most elements of an accumulator that leave a thread registers for its factors.
pub const MOST: u64 = 128;

/// The layout of an accumulator of these extents; `deep` says of each factor whether its neighbours in memory are steps of the
/// contraction. `None` where warps cannot share the tile evenly, or a thread would hold more than [`MOST`] elements.
pub fn layout(shape: [u64; 2], deep: [bool; 2], warps: u64) -> Option<Distribution> {
    // Lanes along rows and along columns, as powers of two.
    let lanes = if deep == [true, false] { [2, 3] } else { [3, 2] };
    if !warps.is_power_of_two()
        || shape.iter().zip(lanes).any(|(extent, lanes)| !extent.is_power_of_two() || *extent < 1 << lanes)
    {
        return None;
    }
    let mut grid = WarpGrid { m: 1, n: 1 };
    while grid.warps() < warps {
        let [rows, columns] = [shape[0] / grid.m, shape[1] / grid.n];
        let [splits_rows, splits_columns] = [rows > 1 << lanes[0], columns > 1 << lanes[1]];
        match (splits_rows, splits_columns) {
            (true, _) if rows >= columns || !splits_columns => grid.m *= 2,
            (_, true) => grid.n *= 2,
            _ => return None,
        }
    }
    let mut bits: [(Axis, Vec<_>); 3] = [(Axis::Register, Vec::new()), (Axis::Lane, Vec::new()), (Axis::Warp, Vec::new())];
    // Columns first: their registers are the lowest, so that a store's vector is a run of registers.
    for dim in [1, 0] {
        let (extent, warps) = (shape[dim], [grid.m, grid.n][dim]);
        let held = (extent / warps).trailing_zeros() - lanes[dim];
        let near = if deep[dim] { dim as u32 } else { 2 }.min(held);
        let parts = [(0, near), (1, lanes[dim]), (0, held - near), (2, warps.trailing_zeros())];
        let mut step = 1;
        for (axis, count) in parts {
            for _ in 0..count {
                let mut basis = SmallVec::from_elem(0, 2);
                basis[dim] = step;
                bits[axis].1.push(basis);
                step *= 2;
            }
        }
    }
    if bits[0].1.len() as u32 > MOST.trailing_zeros() {
        return None;
    }
    Distribution::new(&shape, LinearLayout::from_bases(&shape, &bits).ok()?, warps).ok()
}

/// Whether neighbours in memory of a factor are steps of the contraction: of the left one its last axis, of the right one the axis
/// before.
pub fn deep([lhs, rhs]: [&SharedType; 2]) -> [bool; 2] {
    let fastest = |ty: &SharedType| ty.order.last().map(|&axis| axis as usize);
    [fastest(lhs) == lhs.shape.len().checked_sub(1), fastest(rhs) == rhs.shape.len().checked_sub(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_owner_and_warps_are_square() {
        for shape in [[128, 128], [128, 256], [64, 64], [32, 16], [256, 32]] {
            for deep in [[false, false], [true, false], [false, true], [true, true]] {
                let Some(layout) = layout(shape, deep, 4) else { continue };
                assert!(!layout.has_copies() && !layout.has_holes(), "{shape:?} {deep:?}: {layout:?}");
            }
        }
        let layout = layout([128, 128], [true, true], 4).expect("a layout");
        let first = |register, thread| layout.position(register, thread).expect("a position").to_vec();
        assert_eq!([first(0, 1), first(0, 4), first(0, 32), first(0, 64)], [vec![0, 2], vec![1, 0], vec![0, 64], vec![64, 0]]);
        assert_eq!([first(1, 0), first(2, 0), first(16, 0)], [vec![0, 1], vec![0, 8], vec![8, 0]]);
    }

    #[test]
    fn a_thread_cannot_hold_more_than_its_registers() {
        assert!(layout([256, 256], [true, true], 4).is_none());
        assert!(layout([8, 4], [true, true], 4).is_none());
    }
}
