//! Attribute values: what an operation states besides its operands, and how each is written in the text form.

use smallvec::SmallVec;
use tessera_types::DType;

use crate::constant::Const;
use crate::text::cursor::{Cursor, Parsed};
use crate::types::{Padding, Shape};

/// A value that can stand in an operation's attribute list.
pub trait Attr: Sized + PartialEq {
    /// The value that is left out of the text form, if there is one.
    fn implied() -> Option<Self> {
        None
    }
    /// Appends the text form.
    fn print(&self, out: &mut String);
    /// Reads the text form.
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self>;
}

/// An enumeration whose members are words in the text form; the first is implied unless the type says otherwise.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident $(implied $implied:ident)? { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every member.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// The word that stands for the member.
            pub const fn word(self) -> &'static str { match self { $($name::$variant => $word,)* } }
        }

        word_enum!(@attr $name { $($word => $variant,)* } $($implied)?);
    };
    (@attr $name:ident { $($word:literal => $variant:ident,)* } $($implied:ident)?) => {
        impl Attr for $name {
            $(fn implied() -> Option<Self> { Some($name::$implied) })?
            fn print(&self, out: &mut String) { out.push_str(self.word()); }
            fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
                let mut ahead = cursor.clone();
                match ahead.word() {
                    $(Some($word) => { *cursor = ahead; Ok($name::$variant) })*
                    _ => Err(cursor.unexpected(concat!("one of", $(" `", $word, "`"),*))),
                }
            }
        }
        $(
            impl Default for $name {
                fn default() -> Self { $name::$implied }
            }
        )?
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.word()) }
        }
    };
}

word_enum! {
    /// How a floating-point result is rounded (PTX ISA, "Rounding modifiers"); `approx` and `full` are hardware approximations.
    Rounding implied NearestEven {
        /// To nearest, ties to even.
        NearestEven = "nearest_even",
        /// Toward zero.
        Zero = "zero",
        /// Toward negative infinity.
        NegativeInf = "negative_inf",
        /// Toward positive infinity.
        PositiveInf = "positive_inf",
        /// To nearest, ties away from zero.
        NearestAway = "nearest_away",
        /// Full-range approximation.
        Full = "full",
        /// Fast approximation.
        Approx = "approx",
        /// To the nearest integer toward zero (float to integer conversions).
        NearestIntToZero = "nearest_int_to_zero",
    }
}

word_enum! {
    /// A comparison.
    Predicate {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less than.
        Lt = "lt",
        /// Less than or equal.
        Le = "le",
        /// Greater than.
        Gt = "gt",
        /// Greater than or equal.
        Ge = "ge",
    }
}

word_enum! {
    /// What a floating-point comparison with NaN yields.
    NanOrder implied Ordered {
        /// False.
        Ordered = "ordered",
        /// True.
        Unordered = "unordered",
    }
}

word_enum! {
    /// How the bits of an integer are read.
    Signedness implied Signed {
        /// Two's complement.
        Signed = "signed",
        /// Unsigned.
        Unsigned = "unsigned",
    }
}

word_enum! {
    /// What an integer operation promises about overflow.
    Overflow implied Wraps {
        /// Nothing: it wraps.
        Wraps = "wraps",
        /// No signed wrap.
        NoSigned = "nsw",
        /// No unsigned wrap.
        NoUnsigned = "nuw",
        /// Neither.
        NoWrap = "nw",
    }
}

word_enum! {
    /// Ordering of a memory operation (PTX ISA, "Memory Consistency Model").
    MemoryOrder implied Weak {
        /// Ordered by tokens only.
        Weak = "weak",
        /// Atomic, unordered.
        Relaxed = "relaxed",
        /// Later operations stay later.
        Acquire = "acquire",
        /// Earlier operations stay earlier.
        Release = "release",
        /// Both.
        AcqRel = "acq_rel",
    }
}

word_enum! {
    /// Who can observe a memory operation's order.
    MemoryScope implied Device {
        /// The same block.
        Block = "block",
        /// The same device.
        Device = "device",
        /// Every device and the host.
        System = "system",
    }
}

word_enum! {
    /// What caches may expect of the memory that is touched. It changes no meaning.
    CacheHint implied Normal {
        /// Nothing in particular.
        Normal = "normal",
        /// It is touched once: it may leave the caches first.
        Streamed = "streamed",
        /// It is touched again, by other blocks or in later rounds: it shall leave the caches last.
        Kept = "kept",
    }
}

word_enum! {
    /// What a mark says about the time that it stands at.
    MarkPhase implied Instant {
        /// Something happens.
        Instant = "instant",
        /// Something begins that ends at the next mark of its name.
        Begin = "begin",
        /// It ends.
        End = "end",
    }
}

word_enum! {
    /// What an atomic update does.
    AtomicMode {
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Integer addition.
        Add = "add",
        /// Floating-point addition; formats of 8 bits are added in `f32` and rounded.
        AddF = "addf",
        /// Floating-point maximum; a NaN is ignored.
        MaxF = "maxf",
        /// Floating-point minimum; a NaN is ignored.
        MinF = "minf",
        /// Signed maximum.
        Max = "max",
        /// Signed minimum.
        Min = "min",
        /// Unsigned maximum.
        UMax = "umax",
        /// Unsigned minimum.
        UMin = "umin",
        /// Exchange.
        Xchg = "xchg",
    }
}

word_enum! {
    /// The order in which a reduction combines its elements.
    ReduceOrder implied Free {
        /// The executor's choice, fixed for an artefact.
        Free = "free",
        /// A balanced binary tree over neighbouring elements: bit-equal on every executor.
        Tree = "tree",
    }
}

word_enum! {
    /// An associative combination (Graph IR reductions, reductions over a warp).
    Combine {
        /// Sum.
        Sum = "sum",
        /// Product.
        Prod = "prod",
        /// Maximum.
        Max = "max",
        /// Minimum.
        Min = "min",
    }
}

word_enum! {
    /// Which lane a shuffle reads, from the operand `lane` (PTX ISA, "shfl.sync"). A lane outside the warp reads itself.
    ShuffleMode {
        /// That lane of the warp.
        Index = "idx",
        /// The lane that is so many below.
        Up = "up",
        /// The lane that is so many above.
        Down = "down",
        /// The lane whose number differs in these bits.
        Xor = "xor",
    }
}

word_enum! {
    /// Who fills the slots of a ring, and so what completes a commit.
    RingProducer {
        /// The tensor memory accelerator: a slot is full when all its bytes have arrived.
        Tma = "tma",
        /// Asynchronous copies: a slot is full when the copies before the commit have arrived.
        CopyAsync = "copy_async",
        /// Stores of threads: a slot is full when every thread has committed.
        Threads = "threads",
    }
}

word_enum! {
    /// What a warpgroup does about the turns that those of its role take.
    TurnStep {
        /// Nobody has had a turn: the first group may take the first one.
        Open = "open",
        /// Waits until the group before has given its turn on.
        Take = "take",
        /// Lets the group behind take its turn.
        Give = "give",
    }
}

word_enum! {
    /// A grid or tile axis.
    GridAxis {
        /// The fastest-varying axis.
        X = "x",
        /// The second axis.
        Y = "y",
        /// The slowest axis.
        Z = "z",
    }
}

impl GridAxis {
    /// Axis 0, 1 or 2.
    pub fn from_index(index: usize) -> Option<GridAxis> {
        GridAxis::ALL.get(index).copied()
    }
}

/// What a kernel's author promises about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assumption {
    /// Every element (or pointer address) is divisible by this.
    DivisibleBy(u64),
    /// Every element lies within these bounds, inclusive.
    Bounded {
        /// Least value, if bounded below.
        least: Option<i64>,
        /// Greatest value, if bounded above.
        greatest: Option<i64>,
    },
}

impl Attr for Assumption {
    fn print(&self, out: &mut String) {
        match self {
            Assumption::DivisibleBy(divisor) => out.push_str(&format!("div_by({divisor})")),
            Assumption::Bounded { least, greatest } => {
                let show = |bound: &Option<i64>| bound.map_or("?".to_string(), |value| value.to_string());
                out.push_str(&format!("bounded({}, {})", show(least), show(greatest)));
            }
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        if cursor.eat_word("div_by") {
            cursor.expect("(")?;
            let divisor = cursor.integer()?;
            cursor.expect(")")?;
            return Ok(Assumption::DivisibleBy(divisor));
        }
        if !cursor.eat_word("bounded") {
            return Err(cursor.unexpected("`div_by` or `bounded`"));
        }
        let mut bounds = [None; 2];
        for (i, bound) in bounds.iter_mut().enumerate() {
            cursor.expect(if i == 0 { "(" } else { "," })?;
            if !cursor.eat("?") {
                *bound = Some(cursor.integer()?);
            }
        }
        cursor.expect(")")?;
        Ok(Assumption::Bounded { least: bounds[0], greatest: bounds[1] })
    }
}

impl Attr for bool {
    fn implied() -> Option<Self> {
        Some(false)
    }
    fn print(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        if cursor.eat_word("true") {
            Ok(true)
        } else if cursor.eat_word("false") {
            Ok(false)
        } else {
            Err(cursor.unexpected("`true` or `false`"))
        }
    }
}

impl Attr for u32 {
    fn print(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        cursor.integer()
    }
}

impl Attr for String {
    fn print(&self, out: &mut String) {
        out.push('"');
        for c in self.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        cursor.string()
    }
}

impl Attr for DType {
    fn print(&self, out: &mut String) {
        out.push_str(crate::types::elem_name(*self));
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        cursor.dtype()
    }
}

/// `None` is left out of the text form.
impl<T: Attr> Attr for Option<T> {
    fn implied() -> Option<Self> {
        Some(None)
    }
    fn print(&self, out: &mut String) {
        if let Some(value) = self {
            value.print(out);
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        T::parse(cursor).map(Some)
    }
}

fn print_list<T: Attr>(items: &[T], out: &mut String) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        item.print(out);
    }
    out.push(']');
}

impl Attr for Shape {
    fn print(&self, out: &mut String) {
        print_list(self, out);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        cursor.list("[", "]", |c| c.integer()).map(SmallVec::from_vec)
    }
}

impl<T: Attr> Attr for Vec<T> {
    fn print(&self, out: &mut String) {
        print_list(self, out);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        cursor.list("[", "]", T::parse)
    }
}

impl Attr for Const {
    fn print(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        Const::parse(cursor)
    }
}

impl Attr for Padding {
    fn implied() -> Option<Self> {
        Some(Padding::Undetermined)
    }
    fn print(&self, out: &mut String) {
        out.push_str(self.word());
    }
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        let mut ahead = cursor.clone();
        let found = ahead.word().and_then(|word| Padding::ALL.iter().copied().find(|padding| padding.word() == word));
        match found {
            Some(padding) => {
                *cursor = ahead;
                Ok(padding)
            }
            None => Err(cursor.unexpected("a padding value such as `zero`")),
        }
    }
}
