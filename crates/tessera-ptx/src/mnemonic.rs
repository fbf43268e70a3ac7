//! Mnemonics: what stands in front of an instruction's first dot, and how far such instructions reach.
//!
//! The list holds the mnemonics of the instruction table; a test keeps the two equal. Parsers alone read their text ([`Mnemonic::parse`]).

use std::fmt;

/// What an instruction reads and changes, unless its modifiers say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its operands.
    Operands,
    /// The other threads of its warp.
    Warp,
    /// Memory, barriers, where the thread goes on, or registers that no operand names.
    Machine,
}

macro_rules! mnemonics {
    ($($reach:ident { $($variant:ident $text:literal)* })*) => {
        /// An instruction without its modifiers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mnemonic { $($(#[doc = concat!("`", $text, "`")] $variant,)*)* }

        impl Mnemonic {
            /// Every mnemonic.
            pub const ALL: &'static [Mnemonic] = &[$($(Mnemonic::$variant),*),*];

            /// The text.
            pub const fn text(self) -> &'static str { match self { $($(Mnemonic::$variant => $text,)*)* } }

            /// Finds a mnemonic by its text.
            pub fn parse(text: &str) -> Option<Mnemonic> { match text { $($($text => Some(Mnemonic::$variant),)*)* _ => None } }

            pub(crate) const fn reach(self) -> Reach { match self { $($(Mnemonic::$variant)|* => Reach::$reach,)* } }
        }
    };
}

mnemonics! {
    Operands {
        Mov "mov" Cvta "cvta" Isspacep "isspacep" Mapa "mapa" Getctarank "getctarank" Selp "selp" Prmt "prmt" Add "add" Sub "sub"
        Mul "mul" Mad "mad" Mul24 "mul24" Mad24 "mad24" Sad "sad" Div "div" Rem "rem" Abs "abs" Neg "neg" Min "min" Max "max"
        Popc "popc" Clz "clz" Bfind "bfind" Brev "brev" Bfe "bfe" Bfi "bfi" Bmsk "bmsk" Fns "fns" Szext "szext" Dp4a "dp4a"
        Dp2a "dp2a" And "and" Or "or" Xor "xor" Not "not" Cnot "cnot" Lop3 "lop3" Shl "shl" Shr "shr" Shf "shf" Fma "fma"
        Copysign "copysign" Testp "testp" Rcp "rcp" Sqrt "sqrt" Rsqrt "rsqrt" Sin "sin" Cos "cos" Lg2 "lg2" Ex2 "ex2" Tanh "tanh"
        Setp "setp" Set "set" Slct "slct" Cvt "cvt" Createpolicy "createpolicy"
    }
    Warp {
        Shfl "shfl" Vote "vote" Match "match" Redux "redux" Activemask "activemask" Elect "elect" Ldmatrix "ldmatrix"
        Movmatrix "movmatrix" Mma "mma"
    }
    Machine {
        Addc "addc" Alloca "alloca" Applypriority "applypriority" Atom "atom" Bar "bar" Barrier "barrier" Bra "bra" Brkpt "brkpt"
        Brx "brx" Call "call" Cp "cp" Discard "discard" Exit "exit" Fence "fence" Griddepcontrol "griddepcontrol" Istypep "istypep"
        Ld "ld" Ldu "ldu" Madc "madc" Mbarrier "mbarrier" Membar "membar" Multimem "multimem" Nanosleep "nanosleep"
        Pmevent "pmevent" Prefetch "prefetch" Prefetchu "prefetchu" Red "red" Ret "ret" Setmaxnreg "setmaxnreg" St "st"
        Stackrestore "stackrestore" Stacksave "stacksave" Stmatrix "stmatrix" Subc "subc" Suld "suld" Suq "suq" Sured "sured"
        Sust "sust" Tensormap "tensormap" Tex "tex" Tld4 "tld4" Trap "trap" Txq "txq" Vabsdiff "vabsdiff" Vabsdiff2 "vabsdiff2"
        Vabsdiff4 "vabsdiff4" Vadd "vadd" Vadd2 "vadd2" Vadd4 "vadd4" Vavrg2 "vavrg2" Vavrg4 "vavrg4" Vmad "vmad" Vmax "vmax"
        Vmax2 "vmax2" Vmax4 "vmax4" Vmin "vmin" Vmin2 "vmin2" Vmin4 "vmin4" Vset "vset" Vset2 "vset2" Vset4 "vset4" Vshl "vshl"
        Vshr "vshr" Vsub "vsub" Vsub2 "vsub2" Vsub4 "vsub4" Wgmma "wgmma" Wmma "wmma"
    }
}

impl fmt::Display for Mnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
