//! Packed storage: the published layouts, and packing against a string of bits.

use proptest::prelude::*;
use tessera_types::DType;
use tessera_types::packed::{Packing, packed_bytes};

const ALL: [Packing; 3] = [Packing::OneBit, Packing::FourBits, Packing::SixBits];

#[test]
fn layouts_are_the_documented_ones() {
    let packed = |packing: Packing, codes: &[u8]| {
        let mut bytes = vec![0xaa; packing.bytes(codes.len())];
        packing.pack(codes, &mut bytes);
        bytes
    };
    assert_eq!(packed(Packing::FourBits, &[1, 2, 3]), [0x21, 0x03]);
    assert_eq!(packed(Packing::SixBits, &[1, 2, 3, 4]), [0x81, 0x30, 0x10]);
    assert_eq!(packed(Packing::SixBits, &[0x3f]), [0x3f]);
    assert_eq!(packed(Packing::OneBit, &[1, 0, 0, 1, 0, 0, 0, 0, 1]), [0x09, 0x01]);
    assert_eq!(packed(Packing::FourBits, &[]), [0_u8; 0]);
}

#[test]
fn sizes_round_up_to_bytes() {
    assert_eq!(packed_bytes(DType::F6E2M3, 5), 4);
    assert_eq!(packed_bytes(DType::F4E2M1, 7), 4);
    assert_eq!(packed_bytes(DType::B1, 9), 2);
    assert_eq!(packed_bytes(DType::F64, 3), 24);
    assert_eq!(packed_bytes(DType::TF32, 3), 12);
    assert_eq!(packed_bytes(DType::I4, usize::MAX), usize::MAX / 2 + 1);
    for &dtype in DType::ALL {
        assert_eq!(Packing::of(dtype).is_some(), dtype.bits() < 8, "{dtype}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packing_is_a_string_of_bits(codes in prop::collection::vec(any::<u8>(), 0..70), writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10)) {
        for packing in ALL {
            let width = packing.bits() as usize;
            let mut bits: Vec<bool> = codes.iter().flat_map(|c| (0..width).map(move |b| c >> b & 1 == 1)).collect();
            let mut packed = vec![0xff; packing.bytes(codes.len())];
            packing.pack(&codes, &mut packed);

            if !codes.is_empty() {
                for (index, code) in &writes {
                    let index = index.index(codes.len());
                    packing.set(&mut packed, index, *code);
                    for b in 0..width {
                        bits[index * width + b] = code >> b & 1 == 1;
                    }
                }
            }

            bits.resize(packed.len() * 8, false);
            let want: Vec<u8> = bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |acc, &bit| acc << 1 | u8::from(bit))).collect();
            prop_assert_eq!(&packed, &want);

            let mut again = vec![0xff; codes.len()];
            packing.unpack(&packed, &mut again);
            for (index, &code) in again.iter().enumerate() {
                prop_assert_eq!(code, packing.get(&packed, index));
            }
            let mut repacked = vec![0; packed.len()];
            packing.pack(&again, &mut repacked);
            prop_assert_eq!(repacked, packed);
        }
    }
}
