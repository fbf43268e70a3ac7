//! Shared memory against simulations written from the hardware's description: banks, swizzles, matrix moves, descriptors.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tessera_layout::{
    Access, Axis, Distribution, LinearLayout, MmaAtom, Operand, SharedLayout, Swizzle, WarpGrid, WgmmaOperand, bank_conflicts,
    matrix_access, matrix_conflicts, shared_for, wavefronts, widest_global_vector, widest_shared_vector,
};

/// The degree of each phase, by sets of words.
fn simulated(addresses: &[Option<u64>; 32], bytes: u64) -> Vec<u32> {
    let lanes = if bytes == 16 {
        8
    } else if bytes == 8 {
        16
    } else {
        32
    };
    (0..32 / lanes)
        .map(|phase| {
            let mut banks: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for address in addresses[phase * lanes..(phase + 1) * lanes].iter().flatten() {
                for byte in 0..bytes {
                    let word = (address + byte) / 4;
                    banks.entry(word % 32).or_default().insert(word);
                }
            }
            banks.values().map(|words| words.len() as u32).max().unwrap_or(0)
        })
        .collect()
}

proptest! {
    #[test]
    fn conflicts_are_those_of_a_simulation(
        words in prop::collection::vec(prop::option::weighted(0.9, 0u64..4096), 32),
        log in 0u32..5,
    ) {
        let bytes = 1 << log;
        let mut addresses = [None; 32];
        for (address, word) in addresses.iter_mut().zip(words) {
            *address = word.map(|word| word * bytes);
        }
        prop_assert_eq!(wavefronts(&addresses, bytes).to_vec(), simulated(&addresses, bytes));
    }

    #[test]
    fn a_swizzle_undoes_itself_and_permutes(bits in 0u8..5, base in 0u8..6, more in 0u8..3, offset in 0u64..1 << 16) {
        let swizzle = Swizzle { bits, base, shift: bits + more };
        prop_assert_eq!(swizzle.apply(swizzle.apply(offset)), offset);
        prop_assert_eq!(swizzle.apply(offset) & ((1 << base) - 1), offset & ((1 << base) - 1));
    }

    #[test]
    fn what_the_search_says_is_what_a_simulation_counts(
        rows in prop::collection::vec((5u32..10, 0u32..3), 1..3),
    ) {
        // Lanes walk a column of rows of 2^log bytes, in vectors.
        let accesses: Vec<Access> = rows.iter().map(|&(log, vector)| {
            let mut addresses = [None; 32];
            for (lane, address) in addresses.iter_mut().enumerate() {
                *address = Some((lane as u64) << log);
            }
            Access { addresses, bytes: 4 << vector, weight: 1 }
        }).collect();
        let (swizzle, cost) = Swizzle::search(&accesses, 1, 15);
        let counted: u32 = accesses.iter().map(|access| {
            let swizzled = access.addresses.map(|address| address.map(|address| swizzle.apply(address)));
            simulated(&swizzled, access.bytes).iter().sum::<u32>()
        }).sum();
        prop_assert_eq!(u64::from(counted), cost);
        let unswizzled: u32 = accesses.iter().map(|access| simulated(&access.addresses, access.bytes).iter().sum::<u32>()).sum();
        prop_assert!(counted <= unswizzled);
        if rows.len() == 1 {
            // One power-of-two stride can always be spread over all banks.
            prop_assert_eq!(counted, accesses[0].ideal());
        }
    }

    #[test]
    fn a_swizzled_layout_is_the_layout_with_swizzled_offsets(
        rows in 1u64..40, columns in 1u64..130, padding in 0u64..9, boxed in any::<bool>(),
        bits in 1u8..4, base in 1u8..5, more in 0u8..3,
    ) {
        let plain = if boxed {
            SharedLayout::boxed(&[rows, columns], &[1, 0], 2).unwrap()
        } else {
            SharedLayout::padded(&[rows, columns], &[1, 0], padding, 2).unwrap()
        };
        let swizzle = Swizzle { bits, base, shift: bits + more };
        if let Some(layout) = plain.swizzled(swizzle) {
            for row in 0..rows {
                for column in 0..columns {
                    prop_assert_eq!(layout.offset(&[row, column]), swizzle.apply(plain.offset(&[row, column])));
                }
            }
        }
    }

    #[test]
    fn elements_lie_apart(rows in 1u64..40, columns in 1u64..70, padding in 0u64..5, order in 0usize..2) {
        for layout in [
            SharedLayout::padded(&[rows, columns], &[1 - order, order], padding, 2).unwrap(),
            SharedLayout::boxed(&[rows, columns], &[1 - order, order], 2).unwrap(),
        ] {
            let mut seen = BTreeSet::new();
            for row in 0..rows {
                for column in 0..columns {
                    let offset = layout.offset(&[row, column]);
                    prop_assert!(offset + 2 <= layout.bytes() && seen.insert(offset));
                }
            }
        }
        let dense = SharedLayout::padded(&[rows, columns], &[1, 0], padding, 2).unwrap();
        prop_assert_eq!(dense.offset(&[rows - 1, columns - 1]), 2 * ((rows - 1) * (columns + padding) + columns - 1));
    }
}

#[test]
fn the_tma_swizzles() {
    for (swizzle, span, chunk) in [
        (Swizzle::B128, 128, (|row| row % 8) as fn(u64) -> u64),
        (Swizzle::B64, 64, |row| row / 2 % 4),
        (Swizzle::B32, 32, |row| row / 4 % 2),
    ] {
        for (rows, slabs) in [(64, 2), (96, 3), (24, 1)] {
            let wide = span / 2;
            let layout = SharedLayout::tma([rows, wide * slabs], 1, swizzle, 2).expect("a layout");
            for row in 0..rows {
                for column in 0..wide * slabs {
                    let (slab, inner) = (column / wide, column % wide * 2);
                    let place = slab * rows * span + row * span + ((inner / 16) ^ chunk(row)) * 16 + inner % 16;
                    assert_eq!(layout.offset(&[row, column]), place, "{swizzle} row {row} column {column}");
                }
            }
            assert_eq!(layout.bytes(), rows * span * slabs);
            let turned = SharedLayout::tma([wide * slabs, rows], 0, swizzle, 2).expect("a layout");
            assert_eq!(turned.offset(&[5, 9]), layout.offset(&[9, 5]));
        }
    }
    assert_eq!((Swizzle::B128.alignment(), Swizzle::B64.alignment(), Swizzle::B32.alignment()), (1024, 512, 256));
    assert!(SharedLayout::tma([64, 48], 1, Swizzle::B128, 2).is_err());
}

/// Reads operands as the matrix unit does, from nothing but descriptor and start address.
#[test]
fn wgmma_descriptors() {
    let swizzles = [Swizzle::NONE, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    for (k_major, element_bytes) in [(true, 2), (true, 1), (true, 4), (false, 2)] {
        for (swizzle, mn) in swizzles.into_iter().flat_map(|swizzle| [(swizzle, 64), (swizzle, 192)]) {
            let operand = WgmmaOperand { mn, k: 128 / element_bytes * 2, element_bytes, k_major, swizzle };
            let layout = operand.layout().expect("a layout");
            let word = operand.descriptor().encode(0x4000);
            let (leading, stride) = ((word >> 16 & 0x3fff) * 16, (word >> 32 & 0x3fff) * 16);
            let span = match word >> 62 {
                1 => 128,
                2 => 64,
                3 => 32,
                _ => 16,
            };
            let mask = span / 16 - 1;
            for k0 in (0..operand.k).step_by(32 / element_bytes as usize) {
                let start = layout.offset(&[0, k0]);
                for k in 0..32 / element_bytes {
                    for row in 0..mn {
                        let (along, other) = if k_major { (k * element_bytes, row) } else { (row * element_bytes, k) };
                        let plain = match (span, k_major) {
                            (16, true) => along / 16 * leading + other / 8 * stride + other % 8 * 16 + along % 16,
                            (16, false) => along / 16 * stride + other / 8 * leading + other % 8 * 16 + along % 16,
                            (_, true) => other / 8 * stride + other % 8 * span + along,
                            (_, false) => along / span * leading + other / 8 * stride + other % 8 * span + along % span,
                        };
                        let address = start + plain;
                        let place = address ^ (address >> 7 & mask) << 4;
                        assert_eq!(place, layout.offset(&[row, k0 + k]), "{operand:?} row {row} k {}", k0 + k);
                    }
                }
            }
        }
    }
    let steps = WgmmaOperand { mn: 128, k: 64, element_bytes: 2, k_major: true, swizzle: Swizzle::B128 };
    assert_eq!(steps.layout().unwrap().offset(&[0, 16]), 32);
    let steps = WgmmaOperand { k_major: false, ..steps };
    assert_eq!(steps.layout().unwrap().offset(&[0, 16]), 2048);
    assert!(WgmmaOperand { element_bytes: 1, ..steps }.layout().is_err());
}

/// Executes `ldmatrix` (and so, read backwards, `stmatrix`) from the row addresses and compares what each lane gets.
fn run_matrix(registers: &Distribution, shared: &SharedLayout) -> Option<(bool, u64)> {
    let access = matrix_access(registers, shared)?;
    let bytes = shared.element_bytes();
    let mut memory: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for row in 0..shared.shape()[0] {
        for column in 0..shared.shape()[1] {
            memory.insert(shared.offset(&[row, column]), vec![row, column]);
        }
    }
    let words = 4 / bytes;
    for warp in 0..registers.warps() {
        for base in access.registers.bases(registers) {
            let starts: Vec<u64> =
                (0..32).map(|lane| shared.offset(&access.row(registers, base, warp, lane).expect("inside"))).collect();
            assert!(starts.iter().all(|start| start % 16 == 0));
            for lane in 0..32u64 {
                for matrix in 0..access.matrices {
                    for i in 0..words {
                        let address = if access.transposed {
                            starts[(matrix * 8 + lane % 4 * 2 + i) as usize] + lane / 4 * 2
                        } else {
                            starts[(matrix * 8 + lane / 4) as usize] + lane % 4 * 4 + i * bytes
                        };
                        let register = access.registers.register(base, matrix * words + i);
                        let element = registers.element(register, warp * 32 + lane).expect("no holes");
                        assert_eq!(memory[&address], element.to_vec());
                    }
                }
            }
        }
    }
    Some((access.transposed, access.matrices))
}

#[test]
fn matrix_moves() {
    let atom = MmaAtom::sync(16, 8, 16, 16).expect("an instruction");
    let grid = WarpGrid { m: 2, n: 2 };
    let a = atom.operand(Operand::A, [64, 64], grid).unwrap();
    let b = atom.operand(Operand::B, [64, 64], grid).unwrap();
    let c = atom.operand(Operand::C, [64, 64], grid).unwrap();
    let rows = SharedLayout::tma([64, 64], 1, Swizzle::B128, 2).unwrap();
    let columns = SharedLayout::tma([64, 64], 0, Swizzle::B128, 2).unwrap();
    assert_eq!(run_matrix(&a, &rows), Some((false, 4)));
    assert_eq!(run_matrix(&a, &columns), Some((true, 4)));
    assert_eq!(run_matrix(&b, &rows), Some((true, 4)));
    assert_eq!(run_matrix(&b, &columns), Some((false, 4)));
    assert_eq!(run_matrix(&c, &rows), Some((false, 4)));
    assert_eq!(run_matrix(&c, &columns), Some((true, 4)));
    let padded = SharedLayout::padded(&[64, 64], &[1, 0], 8, 2).unwrap();
    assert_eq!(run_matrix(&a, &padded), Some((false, 4)));
    let misaligned = SharedLayout::padded(&[64, 64], &[1, 0], 2, 2).unwrap();
    assert_eq!(run_matrix(&a, &misaligned), None);
    let bytes = MmaAtom::sync(16, 8, 32, 8).unwrap();
    let wide = SharedLayout::tma([64, 128], 1, Swizzle::B128, 1).unwrap();
    assert_eq!(run_matrix(&bytes.operand(Operand::A, [64, 128], grid).unwrap(), &wide), Some((false, 4)));
    let tf32 = MmaAtom::sync(16, 8, 8, 32).unwrap();
    let wide = SharedLayout::tma([64, 32], 1, Swizzle::B128, 4).unwrap();
    assert_eq!(run_matrix(&tf32.operand(Operand::A, [64, 32], grid).unwrap(), &wide), Some((false, 4)));
    let result = MmaAtom::wgmma(96, 16).unwrap().operand(Operand::C, [64, 96], WarpGrid { m: 4, n: 1 }).unwrap();
    assert_eq!(run_matrix(&result, &SharedLayout::tma([64, 96], 1, Swizzle::B64, 2).unwrap()), Some((false, 4)));
    // One and two matrices.
    for (k, count) in [(8, 1), (16, 2)] {
        let b = MmaAtom::sync(16, 8, k, 16).unwrap().operand(Operand::B, [k, 8], WarpGrid { m: 1, n: 1 }).unwrap();
        let layout = |order: [usize; 2]| SharedLayout::dense(&[k, 8], &order, 2).unwrap();
        assert_eq!(run_matrix(&b, &layout([1, 0])), Some((true, count)));
        assert_eq!(run_matrix(&b, &layout([0, 1])), Some((false, count)));
    }
    // Rows that a lane holds whole are no matrix fragments.
    let rows_of_threads = Distribution::blocked(&[64, 64], &[1, 0], 8, 128).unwrap();
    assert_eq!(run_matrix(&rows_of_threads, &rows), None);
}

#[test]
fn matrix_moves_are_free_of_conflicts_behind_the_swizzle() {
    let a = MmaAtom::sync(16, 8, 16, 16).unwrap().operand(Operand::A, [64, 64], WarpGrid { m: 2, n: 2 }).unwrap();
    for (swizzle, degree) in [(Swizzle::B128, 1), (Swizzle::NONE, 8)] {
        let shared = SharedLayout::tma([64, 64], 1, swizzle, 2).unwrap();
        let access = matrix_access(&a, &shared).expect("a fragment");
        let conflicts = matrix_conflicts(&a, &shared, &access);
        assert_eq!((conflicts.degree, conflicts.instructions), (degree, 8));
    }
}

#[test]
fn a_buffer_for_several_users() {
    let rows = Distribution::blocked(&[64, 64], &[1, 0], 8, 128).unwrap();
    let columns = Distribution::blocked(&[64, 64], &[0, 1], 1, 128).unwrap();
    let (wide, narrow) = (widest_global_vector(&rows, 1, 64, 2, 16), widest_global_vector(&columns, 0, 1, 2, 16));
    let layout = shared_for(&[64, 64], &[1, 0], 2, &[(&rows, &wide), (&columns, &narrow)]).unwrap();
    assert_eq!(bank_conflicts(&rows, &layout, &wide).degree, 1);
    assert_eq!(bank_conflicts(&columns, &layout, &narrow).degree, 4);
    let plain = SharedLayout::dense(&[64, 64], &[1, 0], 2).unwrap();
    assert_eq!(bank_conflicts(&columns, &plain, &narrow).degree, 32);
    let alone = shared_for(&[64, 64], &[1, 0], 4, &[(&columns, &narrow)]).unwrap();
    assert_eq!(bank_conflicts(&columns, &alone, &narrow).degree, 1);
    // Rows of 33 elements are apart already.
    let odd = Distribution::blocked(&[32, 33], &[0, 1], 1, 32).unwrap();
    let layout = shared_for(&[32, 33], &[1, 0], 4, &[(&odd, &narrow)]).unwrap();
    assert_eq!(bank_conflicts(&odd, &layout, &narrow).degree, 1);
}

#[test]
fn vectors() {
    let tile = Distribution::blocked(&[128, 64], &[1, 0], 8, 128).unwrap();
    assert_eq!(widest_global_vector(&tile, 1, 8, 2, 16).elements(), 8);
    assert_eq!(widest_global_vector(&tile, 1, 2, 2, 16).elements(), 2);
    assert_eq!(widest_global_vector(&tile, 1, 64, 4, 16).elements(), 4);
    assert_eq!(widest_global_vector(&tile, 0, 64, 4, 16).elements(), 1);
    let swizzled = SharedLayout::tma([128, 64], 1, Swizzle::B128, 2).unwrap();
    let vector = widest_shared_vector(&tile, &swizzled, 16);
    assert_eq!(vector.elements(), 8);
    assert_eq!(bank_conflicts(&tile, &swizzled, &vector).degree, 1);
    // 100 columns: vectors of 8 would cross the edge.
    let ragged = Distribution::new(
        &[100],
        LinearLayout::identity(Axis::Register, 8, 0, 1).product(&LinearLayout::identity(Axis::Lane, 32, 0, 1)),
        1,
    )
    .unwrap();
    assert_eq!(widest_global_vector(&ragged, 0, 1 << 20, 2, 16).elements(), 4);
    // An accumulator's pairs, in the registers' own order.
    let c = MmaAtom::wgmma(64, 16).unwrap().operand(Operand::C, [64, 64], WarpGrid { m: 4, n: 1 }).unwrap();
    assert_eq!(widest_shared_vector(&c, &SharedLayout::dense(&[64, 64], &[1, 0], 4).unwrap(), 16).elements(), 2);
}
