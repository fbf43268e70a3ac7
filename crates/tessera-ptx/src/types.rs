//! The fundamental types of PTX, one row each.

use std::fmt;

/// What kind of value a type holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Untyped,
    Int,
    Float,
    Predicate,
    /// A handle of a texture, sampler or surface.
    Handle,
}

macro_rules! types {
    ($($variant:ident $name:literal $bits:literal $kind:ident;)*) => {
        /// A fundamental type of PTX.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Type { $(#[doc = concat!("`.", $name, "`")] $variant,)* }

        impl Type {
            /// Every type.
            pub const ALL: &'static [Type] = &[$(Type::$variant),*];

            /// The name without its dot.
            pub const fn name(self) -> &'static str { match self { $(Type::$variant => $name,)* } }

            /// Width in bits; a predicate counts as 1.
            pub const fn bits(self) -> u32 { match self { $(Type::$variant => $bits,)* } }

            pub(crate) const fn kind(self) -> Kind { match self { $(Type::$variant => Kind::$kind,)* } }

            /// Finds a type by its name without the dot.
            pub fn parse(name: &str) -> Option<Type> { match name { $($name => Some(Type::$variant),)* _ => None } }
        }
    };
}

types! {
    Pred "pred" 1 Predicate;
    B1 "b1" 1 Untyped;
    B8 "b8" 8 Untyped;
    B16 "b16" 16 Untyped;
    B32 "b32" 32 Untyped;
    B64 "b64" 64 Untyped;
    B128 "b128" 128 Untyped;
    U8 "u8" 8 Int;
    U16 "u16" 16 Int;
    U32 "u32" 32 Int;
    U64 "u64" 64 Int;
    S8 "s8" 8 Int;
    S16 "s16" 16 Int;
    S32 "s32" 32 Int;
    S64 "s64" 64 Int;
    U4 "u4" 4 Int;
    S4 "s4" 4 Int;
    U2 "u2" 2 Int;
    S2 "s2" 2 Int;
    F16 "f16" 16 Float;
    F16x2 "f16x2" 32 Float;
    Bf16 "bf16" 16 Float;
    Bf16x2 "bf16x2" 32 Float;
    Tf32 "tf32" 32 Float;
    F32 "f32" 32 Float;
    F64 "f64" 64 Float;
    E4m3 "e4m3" 8 Float;
    E5m2 "e5m2" 8 Float;
    E4m3x2 "e4m3x2" 16 Float;
    E5m2x2 "e5m2x2" 16 Float;
    U16x2 "u16x2" 32 Int;
    S16x2 "s16x2" 32 Int;
    Texref "texref" 64 Handle;
    Samplerref "samplerref" 64 Handle;
    Surfref "surfref" 64 Handle;
}

impl Type {
    /// The integers of twice the width, which products of these have.
    pub(crate) fn wide(self) -> Option<Type> {
        match self {
            Type::U16 => Some(Type::U32),
            Type::S16 => Some(Type::S32),
            Type::U32 => Some(Type::U64),
            Type::S32 => Some(Type::S64),
            _ => None,
        }
    }

    /// Whether a register of this type may stand where `wanted` is asked for. `loose` is the rule of loads, stores and
    /// conversions: any register that is wide enough.
    pub(crate) fn serves(self, wanted: Type, loose: bool) -> bool {
        if (self.kind() == Kind::Predicate) != (wanted.kind() == Kind::Predicate) {
            return false;
        }
        if loose {
            return self.bits() >= wanted.bits();
        }
        let kinds_meet = self.kind() == wanted.kind() || self.kind() == Kind::Untyped || wanted.kind() == Kind::Untyped;
        // Formats that no register can be declared with travel in integer registers of their width.
        let carried = matches!(
            wanted,
            Type::Bf16
                | Type::Bf16x2
                | Type::F16x2
                | Type::Tf32
                | Type::E4m3
                | Type::E5m2
                | Type::E4m3x2
                | Type::E5m2x2
                | Type::F16
        );
        self.bits() == wanted.bits() && (kinds_meet || (carried && self.kind() == Kind::Int))
    }

    /// Whether `.reg` can declare it.
    pub(crate) fn declares_register(self) -> bool {
        self.kind() != Kind::Handle
            && !matches!(
                self,
                Type::B1
                    | Type::U4
                    | Type::S4
                    | Type::U2
                    | Type::S2
                    | Type::Tf32
                    | Type::E4m3
                    | Type::E5m2
                    | Type::E4m3x2
                    | Type::E5m2x2
                    | Type::U16x2
                    | Type::S16x2
                    | Type::Bf16
                    | Type::Bf16x2
            )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
