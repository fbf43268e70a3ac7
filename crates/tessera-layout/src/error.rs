//! What can be wrong with a layout that somebody asked for.

use thiserror::Error;

/// A layout that does not exist, or text that names none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A size that has to be a power of two.
    #[error("{size} is not a power of two")]
    NotPowerOfTwo {
        /// The size.
        size: u64,
    },
    /// A coordinate at or beyond its extent.
    #[error("coordinate {value} lies outside the extent {extent}")]
    OutOfRange {
        /// The coordinate.
        value: u64,
        /// The extent.
        extent: u64,
    },
    /// Coordinates of the wrong number of dimensions.
    #[error("expected {expected} dimensions, found {found}")]
    Rank {
        /// Dimensions of the tile.
        expected: usize,
        /// Dimensions given.
        found: usize,
    },
    /// An axis given more than once.
    #[error("`{axis}` is given twice")]
    AxisTwice {
        /// Its name.
        axis: &'static str,
    },
    /// More elements or indices than are supported.
    #[error("the layout has too many elements")]
    TooLarge,
    /// Two layouts that do not fit one behind the other.
    #[error("{outputs} output bits do not fit {inputs} input bits")]
    Compose {
        /// Bits of the first layout's coordinates.
        outputs: usize,
        /// Bits of the second layout's index.
        inputs: usize,
    },
    /// Extents of another product, or an odd factor that would be split.
    #[error("the layout has no form under these extents")]
    Reshape,
    /// A tile with an extent of zero or without threads.
    #[error("extents and thread counts are positive, thread counts multiples of 32")]
    Empty,
    /// Some element would be held by no thread.
    #[error("not every element of the tile has an owner")]
    NotCovered,
    /// An axis that cannot distribute a tile over threads.
    #[error("a tile is distributed over `reg`, `lane` (32) and `warp` only")]
    Axes,
    /// An instruction that does not exist in this form.
    #[error("no such matrix instruction: {what}")]
    NoInstruction {
        /// What was asked for.
        what: String,
    },
    /// Text that is not a layout.
    #[error("layout text: {what} at byte {at}")]
    Text {
        /// What is wrong.
        what: String,
        /// Where, from the start of the text.
        at: usize,
    },
}
