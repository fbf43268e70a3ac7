//! What an instruction of scalar arithmetic computes, as a value that passes match on.
//!
//! A [`Code`] is a mnemonic with all of its modifiers. Plain forms alone have one: what rounds, saturates or carries does not, and neither does
//! what computes several numbers at once. Its text is the instruction's: `Code::Mad(Half::Wide, Type::S32)` is `mad.wide.s32`.

use crate::mnemonic::Mnemonic;
use crate::types::{Kind, Type};
use crate::word::{Modifier, Word};

/// Which half of a product is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// `.lo`
    Low,
    /// `.hi`
    High,
    /// Both: the result is twice as wide as the factors.
    Wide,
}

impl Half {
    fn of(word: Word) -> Option<Half> {
        [Half::Low, Half::High, Half::Wide].into_iter().find(|half| half.word() == word)
    }

    pub(crate) const fn word(self) -> Word {
        match self {
            Half::Low => Word::Lo,
            Half::High => Word::Hi,
            Half::Wide => Word::Wide,
        }
    }
}

macro_rules! codes {
    ($($variant:ident)*) => {
        /// An instruction of scalar arithmetic.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = concat!("[`Mnemonic::", stringify!($variant), "`]")] $variant(Type),)*
            /// `mul`
            Mul(Half, Type),
            /// `mad`
            Mad(Half, Type),
            /// `cvt`: the result's type, then the source's.
            Cvt(Type, Type),
            /// `setp` without a further predicate.
            Setp(Word, Type),
        }

        impl Code {
            /// The code of a mnemonic with these modifiers, where they have one.
            pub(crate) fn of(mnemonic: Mnemonic, modifiers: &[Modifier]) -> Option<Code> {
                match (mnemonic, modifiers) {
                    $((Mnemonic::$variant, &[Modifier::Type(ty)]) => Some(Code::$variant(ty)),)*
                    (Mnemonic::Mul, &[Modifier::Word(word), Modifier::Type(ty)]) => Some(Code::Mul(Half::of(word)?, ty)),
                    (Mnemonic::Mad, &[Modifier::Word(word), Modifier::Type(ty)]) => Some(Code::Mad(Half::of(word)?, ty)),
                    (Mnemonic::Cvt, &[Modifier::Type(to), Modifier::Type(from)]) => Some(Code::Cvt(to, from)),
                    (Mnemonic::Setp, &[Modifier::Word(compare), Modifier::Type(ty)]) => Some(Code::Setp(compare, ty)),
                    _ => None,
                }
            }

            /// The instruction's text without operands.
            pub fn text(self) -> String {
                match self {
                    $(Code::$variant(ty) => format!("{}.{ty}", Mnemonic::$variant),)*
                    Code::Mul(half, ty) => format!("mul.{}.{ty}", half.word()),
                    Code::Mad(half, ty) => format!("mad.{}.{ty}", half.word()),
                    Code::Cvt(to, from) => format!("cvt.{to}.{from}"),
                    Code::Setp(compare, ty) => format!("setp.{compare}.{ty}"),
                }
            }

            /// The same in another type; of a conversion from another one.
            pub(crate) fn within(self, ty: Type) -> Code {
                match self {
                    $(Code::$variant(_) => Code::$variant(ty),)*
                    Code::Mul(half, _) => Code::Mul(half, ty),
                    Code::Mad(half, _) => Code::Mad(half, ty),
                    Code::Cvt(to, _) => Code::Cvt(to, ty),
                    Code::Setp(compare, _) => Code::Setp(compare, ty),
                }
            }

            /// The type that it computes in; of a conversion that of its source.
            pub fn ty(self) -> Type {
                match self {
                    $(Code::$variant(ty))|* | Code::Mul(_, ty) | Code::Mad(_, ty) | Code::Cvt(_, ty) | Code::Setp(_, ty) => ty,
                }
            }
        }
    };
}

codes! {
    Add Sub Div Rem Min Max Neg And Or Xor Not Shl Shr Popc Clz Selp
}

impl Code {
    /// Whether it is an integer sum.
    pub fn is_integer_sum(self) -> bool {
        matches!(self, Code::Add(Type::U32 | Type::S32 | Type::U64 | Type::S64))
    }

    /// Whether it computes with one whole number, or with bits.
    pub(crate) fn is_whole(self) -> bool {
        let ty = self.ty();
        matches!(ty.kind(), Kind::Int | Kind::Untyped | Kind::Predicate) && !matches!(ty, Type::U16x2 | Type::S16x2)
    }

    /// Whether its numbers have a sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self.ty(), Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_that_of_its_code() {
        for text in ["add.s32", "mul.lo.u64", "mad.wide.s32", "cvt.u64.u32", "setp.lt.s32", "selp.b32", "not.pred", "shr.u32"] {
            let mut parts = text.split('.');
            let mnemonic = parts.next().and_then(Mnemonic::parse).expect("a mnemonic");
            let modifiers: Vec<Modifier> = parts.map(|part| Modifier::parse(part).expect("a modifier")).collect();
            assert_eq!(Code::of(mnemonic, &modifiers).map(Code::text).as_deref(), Some(text));
        }
        let rounded = [Modifier::Word(Word::Rn), Modifier::Type(Type::F32)];
        assert_eq!(Code::of(Mnemonic::Add, &rounded), None);
    }
}
