//! Every fragment, element by element, against the index formulas of the PTX ISA.

use tessera_layout::{Axis, MmaAtom, Operand, WarpGrid};

/// Row and column of register `i` of a lane, as the ISA gives them: `g` is lane / 4, `t` lane % 4.
type Formula = fn(i: u64, g: u64, t: u64) -> (u64, u64);

fn check(atom: MmaAtom, operand: Operand, registers: u64, formula: Formula) {
    let layout = atom.fragment(operand).expect("the instruction exists");
    assert_eq!(layout.size(Axis::Register), registers, "{atom:?} {operand:?}");
    assert!(layout.is_injective() && layout.is_surjective());
    for lane in 0..32 {
        for i in 0..registers {
            let found = layout.apply(&[(Axis::Register, i), (Axis::Lane, lane)]);
            let (row, column) = formula(i, lane / 4, lane % 4);
            assert_eq!(found.as_slice(), [row, column], "{atom:?} {operand:?} register {i} lane {lane}");
        }
    }
}

fn sync(m: u64, n: u64, k: u64, bits: u64) -> MmaAtom {
    MmaAtom::sync(m, n, k, bits).expect("the instruction exists")
}

#[test]
fn half_precision() {
    check(sync(16, 8, 8, 16), Operand::A, 4, |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)));
    check(sync(16, 8, 8, 16), Operand::B, 2, |i, g, t| (t * 2 + i, g));
    check(sync(16, 8, 16, 16), Operand::A, 8, |i, g, t| {
        let row = if i < 2 || (4..6).contains(&i) { g } else { g + 8 };
        (row, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
    });
    check(sync(16, 8, 16, 16), Operand::B, 4, |i, g, t| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g));
}

#[test]
fn accumulators() {
    for atom in [sync(16, 8, 8, 16), sync(16, 8, 16, 16), sync(16, 8, 8, 32), sync(16, 8, 32, 8), sync(16, 8, 16, 64)] {
        check(atom, Operand::C, 4, |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)));
    }
    check(sync(8, 8, 4, 64), Operand::C, 2, |i, g, t| (g, t * 2 + i));
}

#[test]
fn tf32() {
    check(sync(16, 8, 4, 32), Operand::A, 2, |i, g, t| (if i == 0 { g } else { g + 8 }, t));
    check(sync(16, 8, 4, 32), Operand::B, 1, |_, g, t| (t, g));
    check(sync(16, 8, 8, 32), Operand::A, 4, |i, g, t| (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }));
    check(sync(16, 8, 8, 32), Operand::B, 2, |i, g, t| (if i == 0 { t } else { t + 4 }, g));
}

#[test]
fn bytes_and_nibbles() {
    check(sync(16, 8, 16, 8), Operand::A, 8, |i, g, t| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)));
    check(sync(16, 8, 16, 8), Operand::B, 4, |i, g, t| (t * 4 + i, g));
    check(sync(16, 8, 32, 8), Operand::A, 16, |i, g, t| {
        let row = if i < 4 || (8..12).contains(&i) { g } else { g + 8 };
        (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
    });
    check(sync(16, 8, 32, 8), Operand::B, 8, |i, g, t| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g));
    check(sync(16, 8, 32, 4), Operand::A, 16, |i, g, t| (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7)));
    check(sync(16, 8, 32, 4), Operand::B, 8, |i, g, t| (t * 8 + (i & 7), g));
    check(sync(16, 8, 64, 4), Operand::A, 32, |i, g, t| {
        let row = if i < 8 || (16..24).contains(&i) { g } else { g + 8 };
        (row, if i < 16 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 })
    });
    check(sync(16, 8, 64, 4), Operand::B, 16, |i, g, t| (if i < 8 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 }, g));
}

#[test]
fn double_precision() {
    check(sync(8, 8, 4, 64), Operand::A, 1, |_, g, t| (g, t));
    check(sync(8, 8, 4, 64), Operand::B, 1, |_, g, t| (t, g));
    check(sync(16, 8, 4, 64), Operand::A, 2, |i, g, t| (if i == 0 { g } else { g + 8 }, t));
    check(sync(16, 8, 8, 64), Operand::A, 4, |i, g, t| (if i % 2 == 0 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }));
    check(sync(16, 8, 16, 64), Operand::A, 8, |i, g, t| if i % 2 == 0 { (g, i * 2 + t) } else { (g + 8, i * 2 - 2 + t) });
    check(sync(16, 8, 8, 64), Operand::B, 2, |i, g, t| (t + 4 * i, g));
    check(sync(16, 8, 16, 64), Operand::B, 4, |i, g, t| (t + 4 * i, g));
}

#[test]
fn unknown_instructions_are_refused() {
    assert!(MmaAtom::sync(16, 8, 16, 32).is_err());
    assert!(MmaAtom::sync(16, 16, 16, 16).is_err());
    assert!(MmaAtom::wgmma(12, 16).is_err());
    assert!(MmaAtom::wgmma(264, 16).is_err());
    assert!(MmaAtom::wgmma(0, 16).is_err());
    assert!(MmaAtom::wgmma(64, 16).and_then(|atom| atom.fragment(Operand::B)).is_err());
    let atom = MmaAtom::wgmma(64, 16).expect("an instruction");
    assert!(atom.operand(Operand::C, [128, 64], WarpGrid { m: 6, n: 1 }).is_err());
}

/// The accumulator of every legal n, also with an odd factor.
#[test]
fn wgmma_results() {
    for n in (8..=256).step_by(8) {
        let atom = MmaAtom::wgmma(n, 16).expect("an instruction");
        let tile = atom.operand(Operand::C, [64, n], WarpGrid { m: 4, n: 1 }).expect("a tile");
        assert_eq!(tile.registers(), n / 2);
        for t in 0..128 {
            for i in 0..n / 2 {
                let row = 16 * (t / 32) + (t % 32) / 4 + 8 * (i / 2 % 2);
                let column = 8 * (i / 4) + 2 * (t % 4) + i % 2;
                assert_eq!(tile.element(i, t).expect("no holes").as_slice(), [row, column], "n {n} thread {t} register {i}");
            }
        }
    }
}

/// Register operands of `wgmma`: the warp's 16 rows as in `mma.sync` of the same width.
#[test]
fn wgmma_register_operands() {
    for (bits, k) in [(16, 16), (8, 32), (32, 8)] {
        let wide = MmaAtom::wgmma(64, bits).expect("an instruction");
        assert_eq!(wide.k, k);
        let (wide, narrow) = (wide.fragment(Operand::A).unwrap(), sync(16, 8, k, bits).fragment(Operand::A).unwrap());
        for index in 0..narrow.size(Axis::Register) * 128 {
            let (register, thread) = (index / 128, index % 128);
            let inputs = [(Axis::Register, register), (Axis::Lane, thread % 32), (Axis::Warp, thread / 32)];
            let inner = narrow.apply(&inputs[..2]);
            assert_eq!(wide.apply(&inputs).as_slice(), [inner[0] + 16 * (thread / 32), inner[1]]);
        }
    }
}

/// A whole tile: instructions are enumerated row-major, warps are laid out m first, copies where warps share an operand.
#[test]
fn tiles_over_grids_of_warps() {
    let atom = sync(16, 8, 16, 16);
    let grid = WarpGrid { m: 4, n: 2 };
    let c = atom.operand(Operand::C, [128, 96], grid).expect("a tile");
    let fragment = atom.fragment(Operand::C).expect("a fragment");
    assert_eq!((c.threads(), c.registers()), (256, 128 * 96 / 256));
    for thread in 0..256 {
        let (lane, warp) = (thread % 32, thread / 32);
        for register in 0..c.registers() {
            let (instruction, i) = (register / 4, register % 4);
            let inner = fragment.apply(&[(Axis::Register, i), (Axis::Lane, lane)]);
            let row = inner[0] + 16 * (warp % 4) + 64 * (instruction / 6);
            let column = inner[1] + 8 * (warp / 4) + 16 * (instruction % 6);
            assert_eq!(c.element(register, thread).expect("no holes").as_slice(), [row, column]);
        }
    }
    let a = atom.operand(Operand::A, [128, 64], grid).expect("a tile");
    assert_eq!(a.registers(), 128 * 64 / (4 * 32));
    assert!((0..a.registers()).all(|register| a.element(register, 37) == a.element(register, 37 + 128)));
    let b = atom.operand(Operand::B, [64, 96], grid).expect("a tile");
    assert!((0..b.registers()).all(|register| b.element(register, 130) == b.element(register, 130 + 32)));
    // Three warpgroups share 192 rows: the missing fourth would own rows beyond the tile only.
    let wide = MmaAtom::wgmma(192, 16).expect("an instruction");
    let tile = wide.operand(Operand::C, [192, 192], WarpGrid { m: 12, n: 1 }).expect("a tile");
    assert_eq!((tile.threads(), tile.registers()), (384, 96));
    assert_eq!(tile.element(5, 300).expect("no hole")[0], 16 * 9 + 3);
}

/// Words of places: rows as an accumulator's, and two neighbouring words in the halves of a row's four lanes, so that either selector of an instruction
/// finds its own.
#[test]
fn words_of_places_lie_beside_the_rows() {
    let (sync, group) = (MmaAtom::sync(16, 8, 16, 16).expect("an instruction"), MmaAtom::wgmma(64, 16).expect("an instruction"));
    let cases = [
        (group, WarpGrid { m: 4, n: 1 }, [64, 2]),
        (group, WarpGrid { m: 8, n: 1 }, [256, 4]),
        (group, WarpGrid { m: 12, n: 1 }, [192, 2]),
        (group, WarpGrid { m: 4, n: 1 }, [64, 1]),
        (group, WarpGrid { m: 4, n: 1 }, [64, 3]),
        (sync, WarpGrid { m: 2, n: 2 }, [32, 2]),
    ];
    for (atom, grid, [rows, words]) in cases {
        let places = atom.places([rows, words], grid).expect("a tile");
        let sums = atom.operand(Operand::C, [rows, 64], grid).expect("a tile");
        let pairs = if words % 2 == 0 { words / 2 } else { words };
        assert_eq!(places.registers(), rows / (16 * grid.m) * 2 * pairs);
        for thread in 0..32 * grid.warps() {
            for (register, place) in places.positions(thread).iter().enumerate() {
                let (lane, register) = (thread % 32, register as u64);
                let of_row = register / 2 % pairs;
                let word = if words % 2 == 0 { 2 * of_row + lane / 2 % 2 } else { of_row };
                let below = register / (2 * pairs);
                // The first of the sums in the same rows.
                let sum =
                    &sums.positions(thread)[(below * sums.registers() / (rows / (16 * grid.m)) + 2 * (register % 2)) as usize];
                assert_eq!(place[..], [sum[0], word], "{atom:?} {rows} x {words}: thread {thread}, register {register}");
            }
        }
    }
    assert!(group.places([64, 2], WarpGrid { m: 2, n: 1 }).is_err());
}
