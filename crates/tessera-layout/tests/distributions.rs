//! Distributions of random tiles: ownership, derived layouts, text.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_layout::{Axis, Distribution, LinearLayout, MmaAtom, Operand, Owner, WarpGrid, register_map};

use crate::random::{practical, ragged, scattered};

fn any_distribution() -> impl Strategy<Value = Distribution> {
    prop_oneof![scattered(), ragged(), practical([64, 96]), practical([40, 24])]
}

/// Owners of every element, by asking every register of every thread.
fn owners(tile: &Distribution) -> BTreeMap<Vec<u64>, Vec<Owner>> {
    let mut owners: BTreeMap<Vec<u64>, Vec<Owner>> = BTreeMap::new();
    for thread in 0..tile.threads() {
        for register in 0..tile.registers() {
            if let Some(element) = tile.element(register, thread) {
                owners.entry(element.to_vec()).or_default().push(Owner { thread, register });
            }
        }
    }
    owners
}

/// Coordinates with one entry changed.
fn with(coordinates: &[u64], dim: usize, value: u64) -> Vec<u64> {
    let mut changed = coordinates.to_vec();
    changed[dim] = value;
    changed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_element_has_owners_and_one_is_primary(tile in any_distribution()) {
        let owners = owners(&tile);
        prop_assert_eq!(owners.len() as u64, tile.elements());
        for (element, found) in &owners {
            prop_assert_eq!(&tile.owners(element), found);
            let primary = found.iter().filter(|owner| tile.is_primary(owner.register, owner.thread)).count();
            prop_assert_eq!(primary, 1, "element {:?}", element);
        }
        let held: usize = owners.values().map(Vec::len).sum();
        prop_assert_eq!(tile.has_holes() && tile.warps().is_power_of_two(), tile.warps().is_power_of_two() && (held as u64) < tile.threads() * tile.registers());
        prop_assert!(tile.has_copies() || owners.values().all(|owners| owners.len() == 1));
    }

    #[test]
    fn positions_of_a_thread_are_its_registers_positions(tile in any_distribution(), thread in any::<prop::sample::Index>()) {
        let thread = thread.index(tile.threads() as usize) as u64;
        let one_by_one: Vec<_> = (0..tile.registers()).map(|register| tile.position(register, thread).expect("a register")).collect();
        prop_assert_eq!(tile.positions(thread), one_by_one);
        prop_assert!(tile.positions(tile.threads()).is_empty());
    }

    #[test]
    fn text_reads_back(tile in any_distribution()) {
        let text = tile.to_string();
        let read = Distribution::parse(&text, tile.shape()).expect("printed text parses");
        prop_assert_eq!(&read, &tile);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn broken_text_is_an_error(tile in any_distribution(), cut in any::<prop::sample::Index>(), with in "[<>=@.^_*,0-9a-z \\[\\]]{0,3}") {
        let text = tile.to_string();
        let at = cut.index(text.len());
        let broken = format!("{}{with}{}", &text[..at], &text[at + 1..]);
        if let Ok(read) = Distribution::parse(&broken, tile.shape()) {
            prop_assert_eq!(Distribution::parse(&read.to_string(), tile.shape()), Ok(read));
        }
    }

    #[test]
    fn a_slice_is_where_the_parts_of_a_sum_are(tile in any_distribution(), dim in any::<prop::sample::Index>()) {
        let dim = dim.index(tile.rank());
        let slice = tile.slice(dim).expect("a dimension");
        prop_assert_eq!(slice.threads(), tile.threads());
        // Each thread holds the result of every line of which it holds a part, and broadcasting it back renames registers only.
        let back = slice.expand(dim).unwrap();
        let map = register_map(&back, &tile).expect("no data moves");
        for thread in 0..tile.threads() {
            for register in 0..tile.registers() {
                let Some(element) = tile.element(register, thread) else { continue };
                let source = map[register as usize].expect("an element has a source");
                prop_assert_eq!(back.element(u64::from(source), thread).expect("an element").to_vec(), with(&element, dim, 0));
            }
        }
        let wide = back.broadcast(tile.shape()).expect("extents of 1");
        for thread in (0..wide.threads()).step_by(7) {
            for element in (0..wide.registers()).step_by(5).filter_map(|register| wide.element(register, thread)) {
                prop_assert!(back.owners(&with(&element, dim, 0)).iter().any(|source| source.thread == thread));
            }
        }
        let before: Vec<u64> = with(tile.shape(), dim, 1);
        prop_assert_eq!(tile.before_broadcast(&before).unwrap(), if tile.shape()[dim] == 1 { tile.clone() } else { back });
    }

    #[test]
    fn a_permuted_tile_has_the_elements_of_the_tile(tile in any_distribution()) {
        let order: Vec<usize> = (0..tile.rank()).rev().collect();
        let turned = tile.permute(&order).unwrap();
        prop_assert_eq!(turned.registers(), tile.registers());
        for (element, found) in owners(&turned) {
            let element: Vec<u64> = element.into_iter().rev().collect();
            let threads = |owners: &[Owner]| owners.iter().map(|owner| owner.thread).collect::<Vec<_>>();
            prop_assert_eq!(threads(&found), threads(&tile.owners(&element)));
        }
    }

    #[test]
    fn a_reshaped_tile_keeps_its_registers(tile in any_distribution(), put in any::<prop::sample::Index>()) {
        let mut shape = tile.shape().to_vec();
        shape.insert(put.index(shape.len() + 1), 1);
        let flat = [tile.elements()];
        for to in [&shape[..], &flat[..]] {
            let Ok(reshaped) = tile.reshape(to) else { continue };
            let index = |element: &[u64], shape: &[u64]| element.iter().zip(shape).fold(0, |all, (value, extent)| all * extent + value);
            for thread in 0..tile.threads() {
                for register in 0..tile.registers() {
                    let before = tile.element(register, thread).map(|element| index(&element, tile.shape()));
                    let after = reshaped.element(register, thread).map(|element| index(&element, to));
                    prop_assert_eq!(before, after);
                }
            }
        }
    }
}

#[test]
fn blocked_layouts() {
    let text = |shape: &[u64], order: &[usize], vector, threads| {
        let tile = Distribution::blocked(shape, order, vector, threads).expect("a tile");
        format!("{tile} {}", tile.registers())
    };
    let row_major = text(&[128, 64], &[1, 0], 8, 128);
    assert_eq!(row_major, "<reg=[1..4@1, 16..64@0], lane=[8..32@1, 1..2@0], warp=[4..8@0]> 64");
    assert_eq!(text(&[128, 64], &[0, 1], 4, 64), "<reg=[1..2@0, 2..32@1], lane=[4..64@0], warp=[1@1]> 128");
    // 96 columns: 4 lanes of 8, three times.
    assert_eq!(
        text(&[64, 96], &[1, 0], 8, 128),
        "<reg=[1..4@1, 32@0], lane=[8..16@1, 1..4@0], warp=[8..16@0], core=[64, 32]> 48"
    );
    // 1000 columns: 125 vectors on 128 threads, three of which hold holes.
    assert_eq!(text(&[1000], &[0], 8, 128), "<reg=[1..4@0], lane=[8..128@0], warp=[256..512@0]> 8");
    assert_eq!(text(&[3], &[0], 8, 64), "<lane=[1..2@0, _*3], warp=[_]> 1");
    assert_eq!(text(&[64], &[0], 1, 96), "<lane=[1..16@0], warp=[32@0, _], warps=3> 1");
    assert!(Distribution::blocked(&[4, 4], &[1, 1], 1, 32).is_err());
    assert!(Distribution::blocked(&[4, 0], &[1, 0], 1, 32).is_err());
    assert!(Distribution::blocked(&[4], &[0], 1, 48).is_err());
    assert!(Distribution::blocked(&[1 << 30, 1 << 30], &[1, 0], 1, 32).is_err());
}

#[test]
fn scalars_are_everywhere() {
    let scalar = Distribution::replicated(&[], 384).expect("a scalar");
    assert_eq!((scalar.registers(), scalar.threads(), scalar.owners(&[]).len()), (1, 384, 384));
    assert_eq!(scalar.to_string(), "<lane=[_*5], warp=[_*4], warps=12>");
    let small = Distribution::replicated(&[3, 4], 32).expect("a tile");
    assert_eq!((small.registers(), small.element(7, 9).map(|element| element.to_vec())), (12, Some(vec![1, 3])));
}

#[test]
fn equal_maps_are_equal() {
    let lanes = LinearLayout::identity(Axis::Lane, 32, 0, 1);
    let whole = lanes.product(&LinearLayout::identity(Axis::Register, 4, 0, 1));
    assert_eq!(Distribution::new(&[128], lanes.clone(), 1), Distribution::new(&[128], whole, 1));
    assert_eq!(Distribution::new(&[96], lanes, 1).expect("a tile").repeats().as_slice(), [3]);
}

#[test]
fn cute_notation() {
    let c = MmaAtom::sync(16, 8, 16, 16).unwrap().operand(Operand::C, [16, 8], WarpGrid { m: 1, n: 1 }).unwrap();
    assert_eq!(c.cute(), "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))");
    let c = MmaAtom::wgmma(96, 16).unwrap().operand(Operand::C, [64, 96], WarpGrid { m: 4, n: 1 }).unwrap();
    assert_eq!(c.cute(), "((4,8,4),(2,2,4,3)):((2@1,1@0,16@0),(1@1,8@0,8@1,32@1))");
    assert_eq!(Distribution::replicated(&[], 64).unwrap().cute(), "(64,1):(0,0)");
}

#[test]
fn errors_say_where() {
    let error = |text: &str| Distribution::parse(text, &[64]).expect_err("not a layout").to_string();
    assert_eq!(error("<lane=[1..16@0], 3>"), "layout text: expected `=` at byte 18");
    assert_eq!(error("<lane=[1..17@0]>"), "layout text: 1 doubled does not reach 17 at byte 13");
    assert_eq!(error("<lame=[]>"), "layout text: unknown key `lame` at byte 1");
    assert_eq!(error("<lane=[1..16@1]>"), "layout text: expected a coordinate above 0 of a dimension of the tile at byte 13");
    assert_eq!(error("<lane=[_*5]>"), "not every element of the tile has an owner");
    assert_eq!(error("<reg=[32@0], lane=[1..8@0, 32@0]>"), "not every element of the tile has an owner");
    assert_eq!(error("<lane=[1..8@0]>"), "a tile is distributed over `reg`, `lane` (32) and `warp` only");
}
