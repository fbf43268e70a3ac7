//! Conversions executed on data: every way has to leave what the result's layout says.

use proptest::prelude::*;
use tessera_layout::{
    Axis, Conversion, Distribution, MmaAtom, Operand, RoundTrip, Shuffle, Vector, WarpGrid, conversion, round_trip,
};

use crate::random::{practical, ragged, scattered};

/// The registers of all threads: `[thread][register]`, each the element's coordinates; holes hold a mark that no element has.
type Registers = Vec<Vec<Vec<u64>>>;

fn hole() -> Vec<u64> {
    vec![u64::MAX]
}

fn fill(tile: &Distribution) -> Registers {
    let value = |register, thread| tile.element(register, thread).map_or_else(hole, |element| element.to_vec());
    (0..tile.threads()).map(|thread| (0..tile.registers()).map(|register| value(register, thread)).collect()).collect()
}

fn run_shuffle(shuffle: &Shuffle, from: &Registers, to: &Distribution) -> Registers {
    let mut result = vec![vec![hole(); to.registers() as usize]; to.threads() as usize];
    for round in &shuffle.rounds {
        for warp in 0..to.warps() as usize {
            // All lanes offer before any lane writes, as the instruction does.
            let offered: Vec<Vec<u64>> = (0..32)
                .map(|lane| {
                    shuffle.from[round.offer.at(lane) as usize]
                        .map_or_else(hole, |r| from[warp * 32 + lane as usize][r as usize].clone())
                })
                .collect();
            for lane in 0..32 {
                if let Some(register) = shuffle.to[round.write.at(lane) as usize] {
                    result[warp * 32 + lane as usize][register as usize] = offered[round.source.at(lane) as usize].clone();
                }
            }
        }
        assert!(!round.stays() || (0..32).all(|lane| round.source.at(lane) == lane));
    }
    result
}

fn run_shared(trip: &RoundTrip, from: &Distribution, values: &Registers, to: &Distribution) -> Registers {
    let layout = &trip.layout;
    let bytes = layout.element_bytes();
    let mut memory = vec![hole(); (layout.bytes() / bytes) as usize];
    let vectors = |tile: &Distribution, vector: &Vector, mut each: Box<dyn FnMut(usize, usize, usize) + '_>| {
        for thread in 0..tile.threads() {
            for base in vector.bases(tile) {
                let Some(first) = tile.element(base, thread) else { continue };
                let start = layout.offset(&first);
                assert_eq!(start % (vector.elements() * bytes), 0, "vectors are aligned");
                for element in 0..vector.elements() {
                    each(thread as usize, vector.register(base, element) as usize, (start / bytes + element) as usize);
                }
            }
        }
    };
    vectors(from, &trip.store, Box::new(|thread, register, place| memory[place] = values[thread][register].clone()));
    let mut result = vec![vec![hole(); to.registers() as usize]; to.threads() as usize];
    vectors(to, &trip.load, Box::new(|thread, register, place| result[thread][register] = memory[place].clone()));
    result
}

fn run(from: &Distribution, to: &Distribution, element_bytes: u64) -> Conversion {
    let plan = conversion(from, to, element_bytes).expect("one shape, one set of threads");
    let values = fill(from);
    let result = match &plan {
        Conversion::Same => values,
        Conversion::Registers(map) => values
            .iter()
            .map(|thread| map.iter().map(|source| source.map_or_else(hole, |source| thread[source as usize].clone())).collect())
            .collect(),
        Conversion::Shuffle(shuffle) => run_shuffle(shuffle, &values, to),
        Conversion::Shared(trip) => run_shared(trip, from, &values, to),
    };
    for thread in 0..to.threads() {
        for register in 0..to.registers() {
            if let Some(element) = to.element(register, thread) {
                assert_eq!(result[thread as usize][register as usize], element.to_vec(), "{from:?} to {to:?} by {plan:?}");
            }
        }
    }
    plan
}

/// Every element that a warp holds in the result it holds in the source, by asking all.
fn stays_in_warps(from: &Distribution, to: &Distribution) -> bool {
    (0..to.threads()).all(|thread| {
        (0..to.registers())
            .filter_map(|register| to.element(register, thread))
            .all(|element| from.owners(&element).iter().any(|owner| owner.thread / 32 == thread / 32))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn scattered_tiles_convert(from in scattered(), to in scattered()) {
        let plan = run(&from, &to, 4);
        let stays = stays_in_warps(&from, &to);
        match plan {
            Conversion::Shared(trip) => prop_assert_eq!(trip.within_warps, stays),
            _ => prop_assert!(stays),
        }
    }

    #[test]
    fn fragments_and_blocks_convert(from in practical([64, 96]), to in practical([64, 96]), log in 0u32..4) {
        run(&from, &to, 1 << log);
        prop_assert_eq!(conversion(&from, &from, 4), Ok(Conversion::Same));
    }

    #[test]
    fn ragged_tiles_convert(from in ragged(), order in any::<prop::sample::Index>(), vector in 0u32..4) {
        let mut dims: Vec<usize> = (0..from.rank()).collect();
        dims.rotate_left(order.index(from.rank()));
        let to = Distribution::blocked(from.shape(), &dims, 1 << vector, from.threads()).expect("a tile");
        run(&from, &to, 2);
    }
}

#[test]
fn the_cheapest_way_is_found() {
    let (atom, warpgroup) = (MmaAtom::wgmma(128, 16).unwrap(), WarpGrid { m: 4, n: 1 });
    // The result of one product is the register operand of the next: attention's P.
    let scores = atom.operand(Operand::C, [64, 128], warpgroup).unwrap();
    let weights = atom.operand(Operand::A, [64, 128], warpgroup).unwrap();
    assert!(matches!(run(&scores, &weights, 2), Conversion::Same));
    // 8-bit operands pack four neighbours, so lanes of a quad exchange values.
    let bytes = MmaAtom::wgmma(128, 8).unwrap().operand(Operand::A, [64, 128], warpgroup).unwrap();
    match run(&scores.slice(0).unwrap().expand(0).unwrap(), &bytes.slice(0).unwrap().expand(0).unwrap(), 1) {
        Conversion::Shuffle(shuffle) => assert_eq!(shuffle.rounds.len(), 32),
        other => panic!("{other:?}"),
    }
    // Registers and lanes exchange places: 8 x 8 transposed within each group of eight lanes.
    let along = Distribution::blocked(&[32, 8], &[1, 0], 8, 32).unwrap();
    let across = Distribution::blocked(&[32, 8], &[0, 1], 8, 32).unwrap();
    match run(&along, &across, 4) {
        Conversion::Shuffle(shuffle) => {
            assert_eq!(shuffle.rounds.len(), 8);
            assert!(shuffle.rounds.iter().all(|round| !round.offer.is_constant() && !round.write.is_constant()));
        }
        other => panic!("{other:?}"),
    }
    // Registers in another order.
    let rows = Distribution::blocked(&[32, 8], &[1, 0], 8, 32).unwrap();
    let turned = rows.core().restrict(Axis::Register, 0);
    let columns = tessera_layout::LinearLayout::from_bases(
        &[32, 8],
        &[
            (Axis::Register, vec![[0, 4].as_slice().into(), [0, 2].as_slice().into(), [0, 1].as_slice().into()]),
            (Axis::Lane, (0..5).map(|bit| turned.basis(Axis::Lane, bit)).collect()),
        ],
    )
    .unwrap();
    match run(&rows, &Distribution::new(&[32, 8], columns, 1).unwrap(), 4) {
        Conversion::Registers(map) => assert_eq!(map, [0, 4, 2, 6, 1, 5, 3, 7].map(Some)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn transposes_through_shared_memory() {
    // Element bytes, vector, degrees of stores and loads. Where both sides could move 16 bytes, one has a conflict: it is cheaper
    // than narrow accesses on both sides.
    let cases = [(4, 1, (1, 1)), (8, 1, (1, 1)), (2, 2, (1, 1)), (4, 4, (1, 2)), (2, 8, (1, 1)), (8, 2, (1, 2))];
    for (element_bytes, vector, degrees) in cases {
        let from = Distribution::blocked(&[64, 64], &[1, 0], vector, 128).unwrap();
        let to = Distribution::blocked(&[64, 64], &[0, 1], vector, 128).unwrap();
        run(&from, &to, element_bytes);
        let trip = round_trip(&from, &to, element_bytes).unwrap();
        assert_eq!((trip.store_conflicts.degree, trip.load_conflicts.degree), degrees);
    }
}

/// The epilogue of a product: the accumulator leaves in 16-byte rows, stored by `stmatrix`.
#[test]
fn accumulators_leave_by_matrix_moves() {
    let from = MmaAtom::wgmma(128, 16).unwrap().operand(Operand::C, [128, 128], WarpGrid { m: 8, n: 1 }).unwrap();
    let to = Distribution::blocked(&[128, 128], &[1, 0], 8, 256).unwrap();
    let Conversion::Shared(trip) = run(&from, &to, 2) else { panic!("threads of all warps exchange") };
    assert_eq!((trip.load.elements(), trip.load_conflicts.degree, trip.store_conflicts.degree), (8, 1, 1));
    assert_eq!(trip.store_matrices.map(|access| (access.matrices, access.transposed)), Some((4, false)));
    assert_eq!(trip.load_matrices, None);
}

#[test]
fn what_does_not_fit_is_refused() {
    let tile = Distribution::blocked(&[64, 64], &[1, 0], 4, 128).unwrap();
    assert!(conversion(&tile, &Distribution::blocked(&[64, 32], &[1, 0], 4, 128).unwrap(), 4).is_err());
    assert!(conversion(&tile, &Distribution::blocked(&[64, 64], &[1, 0], 4, 256).unwrap(), 4).is_err());
    assert!(round_trip(&tile, &tile, 3).is_err());
}
