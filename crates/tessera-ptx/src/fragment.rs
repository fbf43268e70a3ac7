//! How many registers of a thread hold its share of a matrix, and how many numbers say a place: the lengths of vectors that an
//! instruction's modifiers decide.
//!
//! | instruction | threads that share a matrix |
//! |---|---|
//! | `wmma`, `mma` | the 32 of a warp; 8 for `mma.m8n8k4.f16`; `wmma` holds the elements of f16 factors twice |
//! | `wgmma` | the 128 of a warpgroup |

use crate::form::types_of;
use crate::types::Type;
use crate::word::{Modifier, Word};

/// The length of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Any,
    Fixed(u32),
    /// `D`, `A`, `B`, `C`: a thread's share of the matrix of a product.
    Result,
    Left,
    Right,
    Summand,
    /// `F`: of the one matrix of `wmma.load` and `wmma.store`.
    Fragment,
    /// `N`: what `.x1`, `.x2`, `.x4` says.
    Matrices,
    /// `G`: the numbers of an offset or a gradient in a texture.
    Geometry,
    /// `O`: the offsets of an `im2col` copy.
    Im2colOffsets,
    /// Of a tensor.
    Coordinates,
    /// Of a texture or surface.
    TextureCoordinates,
}

impl Count {
    pub(crate) fn parse(text: &str) -> Option<Count> {
        Some(match text {
            "" => Count::Any,
            "D" => Count::Result,
            "A" => Count::Left,
            "B" => Count::Right,
            "C" => Count::Summand,
            "F" => Count::Fragment,
            "N" => Count::Matrices,
            "G" => Count::Geometry,
            "O" => Count::Im2colOffsets,
            digits => Count::Fixed(digits.parse().ok()?),
        })
    }

    /// The length under these modifiers; none for any.
    pub(crate) fn of(self, modifiers: &[Modifier]) -> Option<usize> {
        let has = |word: Word| modifiers.contains(&Modifier::Word(word));
        let count = match self {
            Count::Any => return None,
            Count::Fixed(count) => count,
            Count::Matrices if has(Word::X1) => 1,
            Count::Matrices if has(Word::X2) => 2,
            Count::Matrices => 4,
            Count::Geometry if has(Word::D1) || has(Word::A1d) => 1,
            Count::Geometry if has(Word::D3) || has(Word::Cube) || has(Word::Acube) => 4,
            Count::Geometry => 2,
            Count::Coordinates => dimensions(modifiers)?,
            Count::Im2colOffsets => dimensions(modifiers)?.checked_sub(2)?,
            Count::TextureCoordinates if has(Word::D1) => 1,
            Count::TextureCoordinates if has(Word::D2) || has(Word::A1d) => 2,
            Count::TextureCoordinates => 4,
            Count::Result | Count::Left | Count::Right | Count::Summand | Count::Fragment => matrix(self, modifiers)?,
        };
        Some(count as usize)
    }
}

fn dimensions(modifiers: &[Modifier]) -> Option<u32> {
    const WORDS: [Word; 5] = [Word::D1, Word::D2, Word::D3, Word::D4, Word::D5];
    let at = WORDS.iter().position(|word| modifiers.contains(&Modifier::Word(*word)))?;
    Some(at as u32 + 1)
}

/// Registers for a thread's share of `elements`.
fn share(elements: u32, ty: Type, threads: u32) -> u32 {
    let of_word = (32 / ty.bits().max(1)).max(1);
    elements / (threads * of_word)
}

fn matrix(which: Count, modifiers: &[Modifier]) -> Option<u32> {
    let (m, n, k) = modifiers.iter().find_map(|modifier| match modifier {
        Modifier::Shape { m, n, k } => Some((u32::from(*m), u32::from(*n), u32::from(*k))),
        Modifier::Type(_) | Modifier::Word(_) => None,
    })?;
    let has = |word: Word| modifiers.contains(&Modifier::Word(word));
    let types: Vec<Type> = types_of(modifiers).collect();
    let warpgroup = has(Word::MmaAsync);
    let sparse = has(Word::Sp) || has(Word::SpOrdered);
    // Without types of the factors they are f16.
    let (d, a, b, c) = match types[..] {
        [only] => (only, only, only, only),
        [d, c] => (d, Type::F16, Type::F16, c),
        [d, a, b] => (d, a, b, d),
        [d, a, b, c] => (d, a, b, c),
        _ => return None,
    };
    let fragment = has(Word::Load) || has(Word::Store) || has(Word::Mma);
    let threads = match warpgroup {
        true => 128,
        false if !fragment && (m, n, k) == (8, 8, 4) && a == Type::F16 => 8,
        false => 32,
    };
    let left = if sparse { m * k / 2 } else { m * k };
    let doubled = |count: u32, ty: Type| if fragment && ty == Type::F16 { 8 } else { count };
    Some(match which {
        Count::Result => share(m * n, d, threads),
        Count::Left => doubled(share(left, a, threads), a),
        Count::Right => doubled(share(k * n, b, threads), b),
        Count::Summand => share(m * n, c, threads),
        _ if has(Word::MatrixA) => doubled(share(m * k, a, threads), a),
        _ if has(Word::MatrixB) => doubled(share(k * n, b, threads), b),
        _ => share(m * n, c, threads),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_manual() {
        let modifiers = |text: &str| -> Vec<Modifier> { text.split('.').map(|part| Modifier::parse(part).unwrap()).collect() };
        let all = |text: &str| {
            let modifiers = modifiers(text);
            [Count::Result, Count::Left, Count::Right, Count::Summand].map(|count| count.of(&modifiers).unwrap())
        };
        assert_eq!(all("m16n8k16.f32.f16.f16.f32"), [4, 4, 2, 4]);
        assert_eq!(all("m16n8k16.f16.f16.f16.f16"), [2, 4, 2, 2]);
        assert_eq!(all("m8n8k4.f32.f16.f16.f16"), [8, 2, 2, 4]);
        assert_eq!(all("m16n8k8.f64.f64.f64.f64"), [4, 4, 2, 4]);
        assert_eq!(all("m16n8k256.s32.b1.b1.s32"), [4, 4, 2, 4]);
        assert_eq!(all("sp.m16n8k32.f32.bf16.bf16.f32"), [4, 4, 4, 4]);
        assert_eq!(all("mma.m16n16k16.f32.f16"), [8, 8, 8, 4]);
        assert_eq!(all("mma.m8n32k16.s32.u8.u8.s32"), [8, 1, 4, 8]);
        assert_eq!(all("mma_async.m64n64k16.f32.bf16.bf16")[..2], [32, 4]);
        assert_eq!(all("mma_async.sp.m64n16k64.f16.e4m3.e4m3")[..2], [4, 4]);
        let one = |text: &str, count: Count| count.of(&modifiers(text));
        assert_eq!(one("load.b.m32n8k16.bf16", Count::Fragment), Some(2));
        assert_eq!(one("5d", Count::Im2colOffsets), Some(3));
        assert_eq!(one("x2", Count::Matrices), Some(2));
    }
}
