//! Laws of the algebra, on random layouts.

use proptest::prelude::*;
use tessera_layout::{Axis, LinearLayout};

use crate::random::{bijection, linear};

/// Brings two layouts to one rank.
fn level(a: &LinearLayout, b: &LinearLayout) -> (LinearLayout, LinearLayout) {
    let rank = a.rank().max(b.rank());
    let to = |layout: &LinearLayout| (layout.rank()..rank).fold(layout.clone(), |layout, dim| layout.expand(dim));
    (to(a), to(b))
}

proptest! {
    #[test]
    fn a_layout_is_linear(a in linear(), x in any::<u64>(), y in any::<u64>()) {
        let mask = (1 << a.in_bits()) - 1;
        prop_assert_eq!(a.apply_packed(x & mask ^ y & mask), a.apply_packed(x & mask) ^ a.apply_packed(y & mask));
        prop_assert_eq!(a.pack(&a.unpack(a.apply_packed(x & mask))), a.apply_packed(x & mask));
    }

    #[test]
    fn the_product_is_associative_with_a_unit(a in linear(), b in linear(), c in linear()) {
        let (a, b) = level(&a, &b);
        let (a, c) = level(&a, &c);
        let (b, c) = level(&b, &c);
        prop_assert_eq!(a.product(&b).product(&c), a.product(&b.product(&c)));
        let unit = LinearLayout::unit(a.rank());
        prop_assert_eq!(a.product(&unit), a.clone());
        prop_assert_eq!(unit.product(&a), a);
    }

    #[test]
    fn the_product_repeats_the_inner_layout(a in linear(), b in linear(), x in any::<u64>(), y in any::<u64>()) {
        let (a, b) = level(&a, &b);
        let split = |layout: &LinearLayout, packed: u64| Axis::ALL.map(|axis| layout.unpack_input(packed, axis));
        let (inner, outer) = (split(&a, x), split(&b, y));
        let index = Axis::ALL.map(|axis| (axis, inner[axis as usize] | outer[axis as usize] << a.bits(axis)));
        let named = |values: [u64; 5]| Axis::ALL.map(|axis| (axis, values[axis as usize]));
        let (low, high) = (a.apply(&named(inner)), b.apply(&named(outer)));
        let all = a.product(&b).apply(&index);
        for dim in 0..a.rank() {
            prop_assert_eq!(all[dim], low[dim] + a.extent(dim) * high[dim]);
        }
    }

    #[test]
    fn division_undoes_the_product(a in linear(), b in linear()) {
        let (a, b) = level(&a, &b);
        prop_assert_eq!(a.product(&b).divide_left(&a), Some(b.clone()));
        if let Some(factor) = b.divide_left(&a) {
            prop_assert_eq!(a.product(&factor), b);
        }
    }

    #[test]
    fn composition_is_associative_and_inverses_undo(a in bijection(7), b in bijection(7), c in bijection(7), x in 0u64..128) {
        let ab = a.compose(&b).unwrap();
        prop_assert_eq!(ab.apply_packed(x), b.apply_packed(a.apply_packed(x)));
        prop_assert_eq!(ab.compose(&c).unwrap(), a.compose(&b.compose(&c).unwrap()).unwrap());
        let inverse = a.invert().expect("a bijection");
        prop_assert_eq!(inverse.apply_packed(a.apply_packed(x)), x);
        prop_assert_eq!(a.apply_packed(inverse.apply_packed(x)), x);
        prop_assert!(a.is_injective() && a.is_surjective());
    }

    #[test]
    fn a_right_inverse_finds_an_index(a in linear()) {
        match a.right_inverse() {
            Some(inverse) => {
                prop_assert!(a.is_surjective());
                for y in 0..1u64 << a.out_bits() {
                    prop_assert_eq!(a.apply_packed(inverse.apply_packed(y)), y);
                }
                prop_assert_eq!(a.invert().is_some(), a.is_injective());
            }
            None => prop_assert!(!a.is_surjective() && a.invert().is_none()),
        }
    }

    #[test]
    fn the_quotient_is_what_one_index_sees(a in linear(), b in bijection(4)) {
        let (a, b) = level(&a.restrict(Axis::Warp, 0), &b);
        // Warps over a part of the coordinates of their own: dividing them out leaves the rest.
        let offsets = b.restrict(Axis::Offset, 0);
        let warps = LinearLayout::identity(Axis::Warp, 4, 0, a.rank());
        prop_assert_eq!(warps.product(&a).quotient(Axis::Warp), Some(a.clone()));
        prop_assert_eq!(a.product(&warps).quotient(Axis::Warp), Some(a));
        prop_assert_eq!(offsets.quotient(Axis::Warp), Some(offsets));
    }

    #[test]
    fn dimensions_can_be_permuted_sliced_and_reshaped(a in linear(), x in any::<u64>()) {
        let x = x & ((1 << a.in_bits()) - 1);
        let at = |layout: &LinearLayout| layout.unpack(layout.apply_packed(x));
        let order: Vec<usize> = (0..a.rank()).rev().collect();
        let turned = a.permute(&order);
        prop_assert_eq!(at(&turned).into_iter().rev().collect::<Vec<_>>(), at(&a).to_vec());
        prop_assert_eq!(turned.permute(&order), a.clone());
        let flat = a.reshape(&[1 << a.out_bits()]).unwrap();
        prop_assert_eq!(at(&flat)[0], a.apply_packed(x));
        prop_assert_eq!(flat.reshape(&a.extents()).unwrap(), a.clone());
        let mut rest = at(&a);
        rest.remove(0);
        prop_assert_eq!(at(&a.slice(0)), rest);
        prop_assert_eq!(a.expand(0).slice(0), a);
    }
}

#[test]
fn the_accumulator_as_a_product() {
    let c = LinearLayout::identity(Axis::Register, 2, 1, 2)
        .product(&LinearLayout::identity(Axis::Lane, 4, 1, 2))
        .product(&LinearLayout::identity(Axis::Lane, 8, 0, 2))
        .product(&LinearLayout::identity(Axis::Register, 2, 0, 2));
    assert_eq!(c.apply(&[(Axis::Lane, 5), (Axis::Register, 2)]).as_slice(), [9, 2]);
    assert_eq!(c.to_string(), "{reg=[1@1, 8@0], lane=[2..4@1, 1..4@0]} -> [16, 8]");
}

#[test]
fn impossible_layouts_are_refused() {
    let basis = |values: &[u64]| vec![values.into()];
    assert!(LinearLayout::from_bases(&[12], &[]).is_err());
    assert!(LinearLayout::from_bases(&[8], &[(Axis::Lane, basis(&[8]))]).is_err());
    assert!(LinearLayout::from_bases(&[8], &[(Axis::Lane, basis(&[1, 1]))]).is_err());
    assert!(LinearLayout::from_bases(&[8], &[(Axis::Lane, basis(&[1])), (Axis::Lane, basis(&[2]))]).is_err());
    assert!(LinearLayout::from_bases(&[1 << 40, 1 << 40], &[]).is_err());
    assert!(LinearLayout::unit(1).reshape(&[2]).is_err());
}
