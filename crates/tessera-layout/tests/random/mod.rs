//! Random layouts for the property tests.

use proptest::prelude::*;
use tessera_layout::{Axis, Dims, Distribution, LinearLayout, MmaAtom, Operand, WarpGrid};

/// Any linear map: extents and bases at random.
pub(crate) fn linear() -> impl Strategy<Value = LinearLayout> {
    (prop::collection::vec(0u32..4, 1..4), prop::collection::vec(0usize..3, 5)).prop_flat_map(|(dims, sizes)| {
        let extents: Vec<u64> = dims.iter().map(|bits| 1 << bits).collect();
        let total: usize = sizes.iter().sum();
        let basis: Vec<_> = extents.iter().map(|&extent| 0..extent).collect();
        prop::collection::vec(basis, total).prop_map(move |mut all| {
            let bases: Vec<(Axis, Vec<Dims>)> = Axis::ALL
                .into_iter()
                .zip(&sizes)
                .map(|(axis, &bits)| (axis, all.split_off(all.len() - bits).into_iter().map(Dims::from_vec).collect()))
                .collect();
            LinearLayout::from_bases(&extents, &bases).expect("bases within their extents")
        })
    })
}

/// A bijection of shared-memory offsets to a tile of 2^bits elements: bits shuffled, then mixed.
pub(crate) fn bijection(bits: usize) -> impl Strategy<Value = LinearLayout> {
    let order: Vec<u64> = (0..bits as u64).collect();
    (Just(order).prop_shuffle(), prop::collection::vec(0..bits, 4), 0..=bits).prop_map(move |(order, mix, split)| {
        let mut columns: Vec<u64> = order.iter().map(|bit| 1 << bit).collect();
        for pair in mix.chunks(2).filter(|pair| pair[0] != pair[1]) {
            columns[pair[0]] ^= columns[pair[1]];
        }
        let extents = [1 << split, 1 << (bits - split)];
        let basis = |column: u64| Dims::from_slice(&[column >> (bits - split), column & (extents[1] - 1)]);
        LinearLayout::from_bases(&extents, &[(Axis::Offset, columns.into_iter().map(basis).collect())]).expect("a bijection")
    })
}

/// A tile of 32 x 16 over two warps with its bits in any places, some mixed, perhaps with copies.
pub(crate) fn scattered() -> impl Strategy<Value = Distribution> {
    let order: Vec<u64> = (0..9).collect();
    (Just(order).prop_shuffle(), prop::collection::vec(0usize..9, 4), 0usize..9, 0usize..7).prop_map(
        |(order, mix, at, copies)| {
            let mut columns: Vec<u64> = order.iter().map(|bit| 1 << bit).collect();
            for pair in mix.chunks(2).filter(|pair| pair[0] != pair[1]) {
                columns[pair[0]] ^= columns[pair[1]];
            }
            for _ in 0..copies / 3 {
                columns.insert(at, 0);
            }
            let basis = |column: &u64| Dims::from_slice(&[column >> 4, column & 15]);
            let bases = |from: usize, to: usize| columns[from..to].iter().map(basis).collect::<Vec<_>>();
            let bases = [(Axis::Lane, bases(0, 5)), (Axis::Warp, bases(5, 6)), (Axis::Register, bases(6, columns.len()))];
            let core = LinearLayout::from_bases(&[32, 16], &bases).expect("bases within their extents");
            Distribution::new(&[32, 16], core, 2).expect("every element has an owner")
        },
    )
}

/// Distributions as kernels have them, of one shape on four warps.
pub(crate) fn practical(shape: [u64; 2]) -> impl Strategy<Value = Distribution> {
    let grids = [WarpGrid { m: 4, n: 1 }, WarpGrid { m: 2, n: 2 }, WarpGrid { m: 1, n: 4 }];
    (0usize..2, 0u32..5, 0usize..6, 0usize..3).prop_map(move |(order, vector, kind, grid)| match kind {
        0 => MmaAtom::sync(16, 8, 16, 16).and_then(|atom| atom.operand(Operand::C, shape, grids[grid])).expect("a tile"),
        1 => MmaAtom::sync(16, 8, 16, 16).and_then(|atom| atom.operand(Operand::A, shape, grids[grid])).expect("a tile"),
        2 => MmaAtom::sync(16, 8, 8, 32).and_then(|atom| atom.operand(Operand::B, shape, grids[grid])).expect("a tile"),
        _ => Distribution::blocked(&shape, &[order, 1 - order], 1 << vector, 128).expect("a tile"),
    })
}

/// Any extents, any number of warps.
pub(crate) fn ragged() -> impl Strategy<Value = Distribution> {
    let shapes = prop_oneof![
        prop::collection::vec(1u64..2000, 1..2),
        prop::collection::vec(1u64..50, 2..3),
        prop::collection::vec(1u64..14, 3..4),
    ];
    (shapes, 0u64..5, 1u64..14, any::<prop::sample::Index>()).prop_map(|(shape, vector, warps, at)| {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.rotate_left(at.index(shape.len()));
        Distribution::blocked(&shape, &order, 1 << vector, 32 * warps).expect("a tile")
    })
}
