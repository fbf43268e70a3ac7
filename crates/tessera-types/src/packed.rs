//! Packed storage of sub-byte elements: one little-endian string of bits, without gaps.
//!
//! Element `i` of a `w`-bit type takes bits `i*w .. (i+1)*w`, bit `b` being bit `b % 8` of byte `b / 8`. So four-bit elements go
//! low nibble first, four six-bit elements fill three bytes, and the last byte's unused bits are zero:
//!
//! | codes | bytes |
//! |---|---|
//! | `i4` 1, 2, 3 | `0x21 0x03` |
//! | `f6e2m3` 0x01, 0x02, 0x03, 0x04 | `0x81 0x30 0x10` |
//!
//! Unpacked codes take the low bits of a byte each, the high ones zero; [`element::i4_to_i8`](crate::element::i4_to_i8) reads
//! the sign of an `i4`. Arrays of `b1` are not packed by themselves ([`DType::is_byte_bool`]): packing them is a request.
//!
//! ```
//! use tessera_types::{DType, packed::Packing};
//! let packing = Packing::of(DType::I4).unwrap();
//! let mut bytes = [0; 2];
//! packing.pack(&[1, 2, 3], &mut bytes);
//! assert_eq!(bytes, [0x21, 0x03]);
//! assert_eq!(packing.get(&bytes, 1), 2);
//! ```

use crate::dtype::DType;

/// The bytes that `elements` elements take when packed; whole-byte types take what they always take.
pub const fn packed_bytes(dtype: DType, elements: usize) -> usize {
    let bits = dtype.bits() as usize;
    // In eights, which are whole bytes: the product of elements and bits could overflow.
    elements / 8 * bits + (elements % 8 * bits).div_ceil(8)
}

/// How the elements of a sub-byte type share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Eight elements a byte.
    OneBit,
    /// Two elements a byte.
    FourBits,
    /// Four elements in three bytes.
    SixBits,
}

impl Packing {
    /// The packing of a sub-byte type; `None` for types of whole bytes.
    pub const fn of(dtype: DType) -> Option<Packing> {
        match dtype.bits() {
            1 => Some(Packing::OneBit),
            4 => Some(Packing::FourBits),
            6 => Some(Packing::SixBits),
            _ => None,
        }
    }

    /// Width of an element.
    pub const fn bits(self) -> u32 {
        match self {
            Packing::OneBit => 1,
            Packing::FourBits => 4,
            Packing::SixBits => 6,
        }
    }

    /// The bytes that `elements` elements take.
    pub const fn bytes(self, elements: usize) -> usize {
        let bits = self.bits() as usize;
        elements / 8 * bits + (elements % 8 * bits).div_ceil(8)
    }

    const fn mask(self) -> u8 {
        0xff >> (8 - self.bits())
    }

    /// The code of element `index`.
    ///
    /// # Panics
    /// If the element lies beyond `bytes`, as slice indexing does.
    pub fn get(self, bytes: &[u8], index: usize) -> u8 {
        let (byte, shift) = self.place(index);
        let mut window = u16::from(bytes[byte]);
        if shift + self.bits() > 8 {
            window |= u16::from(bytes[byte + 1]) << 8;
        }
        (window >> shift) as u8 & self.mask()
    }

    /// Makes `code` the code of element `index`; its high bits are ignored.
    ///
    /// # Panics
    /// If the element lies beyond `bytes`, as slice indexing does.
    pub fn set(self, bytes: &mut [u8], index: usize, code: u8) {
        let (byte, shift) = self.place(index);
        let mask = u16::from(self.mask()) << shift;
        let window = u16::from(code & self.mask()) << shift;
        bytes[byte] = bytes[byte] & !(mask as u8) | window as u8;
        if shift + self.bits() > 8 {
            bytes[byte + 1] = bytes[byte + 1] & !((mask >> 8) as u8) | (window >> 8) as u8;
        }
    }

    /// Where element `index` begins: its byte and the bit in it.
    const fn place(self, index: usize) -> (usize, u32) {
        let bits = self.bits() as usize;
        let within = index % 8 * bits;
        (index / 8 * bits + within / 8, within as u32 % 8)
    }

    /// Packs `codes`, whose high bits are ignored, into `packed`.
    ///
    /// # Panics
    /// If `packed` does not have [`Packing::bytes`] bytes.
    pub fn pack(self, codes: &[u8], packed: &mut [u8]) {
        assert_eq!(packed.len(), self.bytes(codes.len()), "bytes for the elements");
        match self {
            Packing::OneBit => self.pack_groups::<8, 1>(codes, packed),
            Packing::FourBits => self.pack_groups::<2, 1>(codes, packed),
            Packing::SixBits => self.pack_groups::<4, 3>(codes, packed),
        }
    }

    /// Unpacks the first `codes.len()` elements of `packed`.
    ///
    /// # Panics
    /// If `packed` does not have [`Packing::bytes`] bytes.
    pub fn unpack(self, packed: &[u8], codes: &mut [u8]) {
        assert_eq!(packed.len(), self.bytes(codes.len()), "bytes for the elements");
        match self {
            Packing::OneBit => self.unpack_groups::<8, 1>(packed, codes),
            Packing::FourBits => self.unpack_groups::<2, 1>(packed, codes),
            Packing::SixBits => self.unpack_groups::<4, 3>(packed, codes),
        }
    }

    /// Packs `CODES` elements into `BYTES` whole bytes at a time.
    #[inline(always)]
    fn pack_groups<const CODES: usize, const BYTES: usize>(self, codes: &[u8], packed: &mut [u8]) {
        let (groups, rest) = codes.as_chunks::<CODES>();
        let (whole, tail) = packed.split_at_mut(groups.len() * BYTES);
        for (group, bytes) in groups.iter().zip(whole.as_chunks_mut::<BYTES>().0) {
            let mut word = 0_u32;
            for (place, &code) in group.iter().enumerate() {
                word |= u32::from(code & self.mask()) << (place as u32 * self.bits());
            }
            bytes.copy_from_slice(&word.to_le_bytes()[..BYTES]);
        }
        tail.fill(0);
        for (index, &code) in rest.iter().enumerate() {
            self.set(tail, index, code);
        }
    }

    /// Unpacks `BYTES` whole bytes into `CODES` elements at a time.
    #[inline(always)]
    fn unpack_groups<const CODES: usize, const BYTES: usize>(self, packed: &[u8], codes: &mut [u8]) {
        let (groups, rest) = codes.as_chunks_mut::<CODES>();
        let (whole, tail) = packed.split_at(groups.len() * BYTES);
        for (group, bytes) in groups.iter_mut().zip(whole.as_chunks::<BYTES>().0) {
            let mut word = [0; 4];
            word[..BYTES].copy_from_slice(bytes);
            let word = u32::from_le_bytes(word);
            for (place, code) in group.iter_mut().enumerate() {
                *code = (word >> (place as u32 * self.bits())) as u8 & self.mask();
            }
        }
        for (index, code) in rest.iter_mut().enumerate() {
            *code = self.get(tail, index);
        }
    }
}
