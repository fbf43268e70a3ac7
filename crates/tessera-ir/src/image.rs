//! A compiled kernel for a device as data: its code, its interface and what a launch must know.
//!
//! A compiler makes one, a runtime launches it; neither needs the other. Invariant: the entry's parameters are exactly the
//! [`Abi`]'s arguments in order, then one for each [`HiddenParam`]. Of the user's arguments
//!
//! | argument | parameter of the entry |
//! |---|---|
//! | array | `.u64` address of element 0, then sizes, then strides in elements, each `.s32` or `.s64` by the array's index type |
//! | list | `.u64` address of a table of 64-bit words (address, sizes, strides of each item), then its length |
//! | scalar | its type's own width, a byte where it has less |
//!
//! ```
//! use tessera_ir::{Abi, GridRule, ImageCode, KernelImage, LaunchFacts};
//! let image = KernelImage {
//!     entry: "scale".into(),
//!     target: "sm_90a".into(),
//!     code: ImageCode::Ptx(".version 8.0 ...".into()),
//!     abi: Abi::default(),
//!     hidden: Vec::new(),
//!     launch: LaunchFacts { threads: [256, 1, 1], ..LaunchFacts::default() },
//! };
//! assert_eq!(image.launch.grid.physical([7, 1, 1], 132, None), Some([7, 1, 1]));
//! assert_eq!(GridRule { per_multiprocessor: Some(1), ..GridRule::default() }.physical([1000, 2, 1], 132, None), Some([132, 1, 1]));
//! ```

use serde::{Deserialize, Serialize};
use tessera_types::{DType, L2Promotion, OutOfBounds, Swizzle};

use crate::abi::Abi;
use crate::attrs::MarkPhase;
use crate::diag::{SourceId, Span};
use crate::entity::EntityId;

/// A kernel that was compiled for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// The entry's name in the code.
    pub entry: String,
    /// What it was compiled for: `sm_90a`.
    pub target: String,
    /// The code.
    pub code: ImageCode,
    /// The user's arguments.
    pub abi: Abi,
    /// What the launcher adds after them, in order.
    pub hidden: Vec<HiddenParam>,
    /// How it is launched.
    pub launch: LaunchFacts,
}

/// Code in a form that a driver loads.
#[derive(Clone, PartialEq, Eq)]
pub enum ImageCode {
    /// PTX text, which the driver assembles.
    Ptx(String),
    /// Machine code.
    Cubin(Vec<u8>),
}

impl ImageCode {
    /// The bytes that a driver is given.
    pub fn bytes(&self) -> &[u8] {
        match self {
            ImageCode::Ptx(text) => text.as_bytes(),
            ImageCode::Cubin(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for ImageCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImageCode::Ptx(text) => write!(f, "Ptx({} bytes)", text.len()),
            ImageCode::Cubin(bytes) => write!(f, "Cubin({} bytes)", bytes.len()),
        }
    }
}

/// A parameter that the launcher supplies by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HiddenParam {
    /// A tensor map over an array argument: 128 bytes aligned to 64, by value.
    TensorMap(TensorMapPlan),
    /// The blocks that the user asked for, along x, y and z: three parameters of type `.u32`.
    Grid,
    /// The address (`.u64`) of memory of the kernel's own. Zeroed once, when the launch is prepared; a kernel that counts in it
    /// leaves it as it was.
    Workspace {
        /// Bytes for the whole launch.
        bytes: u64,
        /// Bytes for each block of the launched grid.
        bytes_per_block: u64,
    },
    /// The address (`.u64`) of 16 bytes, zero at first, that the host can read when the kernel has faulted. An assertion that fails leaves its
    /// number in this list there, from 1 on, and its block along x, y and z, and stops the kernel.
    Assertions(Vec<Assertion>),
    /// The address (`.u64`) of zeroed memory for the times at which blocks came to marks. Only who compiled the kernel can show them.
    #[serde(skip)]
    Timeline(TimelinePlan),
}

/// Which marks a kernel records, and where each of their times goes: words of 64 bits, nanoseconds, zero where nothing came.
///
/// Slot `s` of warp `w` of the `b`-th recorded block is word `(s * recorded + b) * warps + w`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelinePlan {
    /// Blocks are recorded whose number is a multiple of this.
    pub every: u32,
    /// Warps of a block.
    pub warps: u32,
    /// The marks, in order of their slots.
    pub marks: Vec<TimelineMark>,
}

/// A mark that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineMark {
    /// What begins, ends or happens.
    pub name: String,
    /// Which of these.
    pub phase: MarkPhase,
    /// The first warp that comes here, and how many do.
    pub warps: [u32; 2],
    /// Its first slot.
    pub slot: u32,
    /// Recorded rounds of the loops around it, outermost first; a slot each.
    pub rounds: Vec<u32>,
}

impl TimelineMark {
    /// How many slots it has.
    pub fn slots(&self) -> u32 {
        self.rounds.iter().product()
    }
}

impl TimelinePlan {
    /// Slots of a warp.
    pub fn slots(&self) -> u32 {
        self.marks.last().map_or(0, |mark| mark.slot + mark.slots())
    }

    /// How many of a grid's blocks are recorded.
    pub fn recorded(&self, blocks: u64) -> u64 {
        blocks.div_ceil(u64::from(self.every.max(1)))
    }

    /// Bytes that a launch of so many blocks records.
    pub fn bytes(&self, blocks: u64) -> u64 {
        8 * u64::from(self.slots()) * self.recorded(blocks) * u64::from(self.warps)
    }

    /// The word that a slot of a warp of a recorded block is.
    pub fn word(&self, slot: u32, block: u64, warp: u32, blocks: u64) -> u64 {
        (u64::from(slot) * self.recorded(blocks) + block) * u64::from(self.warps) + u64::from(warp)
    }
}

/// An assertion of a kernel, for who has to tell that it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// What its author wrote; may be empty.
    pub message: String,
    /// Where it stands; not written down, since its text is elsewhere.
    #[serde(skip, default = "nowhere")]
    pub span: Span,
}

/// The place of what has no text.
fn nowhere() -> Span {
    Span { source: SourceId::new(0), start: 0, end: 0 }
}

/// A tensor map over an array argument, before the array is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMapPlan {
    /// Position of the array among the [`Abi`]'s parameters.
    pub param: usize,
    /// The array's axes, the contiguous one first; one for each dimension of the map.
    pub axes: Vec<usize>,
    /// Elements of the box that one copy moves, in the same order.
    pub tile: Vec<u32>,
    /// The element type as the engine sees it; the array's own where absent.
    pub dtype: Option<DType>,
    /// The permutation in shared memory.
    pub swizzle: Swizzle,
    /// Cache promotion.
    pub l2: L2Promotion,
    /// What lies outside.
    pub outside: OutOfBounds,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFacts {
    /// Threads of a block, or of a program of one ([`GridRule::programs`]).
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// For kernels that say themselves how many blocks they need: as many as the product of these counts, along x.
    pub tiles: Option<Vec<TileCount>>,
    /// From the user's grid to the launched one.
    pub grid: GridRule,
    /// True when the kernel waits itself for its predecessor in the stream (`griddepcontrol.wait`), so that it may start early.
    pub overlaps_predecessor: bool,
}

impl LaunchFacts {
    /// The launched grid and the threads of a block; `None` where they are beyond what a grid can be.
    pub fn physical(&self, asked: [u32; 3], multiprocessors: u32) -> Option<([u32; 3], [u32; 3])> {
        let grid = self.grid.physical(asked, multiprocessors, self.cluster)?;
        let [x, y, z] = self.threads;
        Some((grid, [x.checked_mul(self.grid.together(asked, multiprocessors))?, y, z]))
    }
}

impl Default for LaunchFacts {
    fn default() -> LaunchFacts {
        LaunchFacts {
            threads: [1; 3],
            shared_bytes: 0,
            cluster: None,
            tiles: None,
            grid: GridRule::default(),
            overlaps_predecessor: false,
        }
    }
}

/// How many tiles an axis of a parameter is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TileCount {
    /// Position of the parameter in the [`Abi`].
    pub param: usize,
    /// Its axis, in memory order.
    pub axis: usize,
    /// Extent of a tile.
    pub tile: u32,
}

impl TileCount {
    /// The number of blocks for arrays of these sizes, `size(param, axis)`; `None` when it exceeds what a grid can have.
    pub fn blocks(counts: &[TileCount], size: impl Fn(usize, usize) -> i64) -> Option<u32> {
        let blocks = counts.iter().try_fold(1i64, |product, count| {
            let extent = size(count.param, count.axis).max(0);
            let tile = i64::from(count.tile);
            product.checked_mul(extent / tile + i64::from(extent % tile != 0))
        })?;
        u32::try_from(blocks).ok().filter(|&blocks| blocks < i32::MAX as u32)
    }
}

/// From the user's grid to the launched one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridRule {
    /// Launched blocks for each of the user's, along x, y and z (a cluster that shares one of them).
    pub blocks: [u32; 3],
    /// For persistent kernels, the most launched blocks for each multiprocessor. The grid then is one row, and the kernel finds
    /// its work from [`HiddenParam::Grid`].
    pub per_multiprocessor: Option<u32>,
    /// So many are launched even where fewer are asked for: blocks share the work of one.
    pub fills: bool,
    /// More are launched along x than are asked for, where that makes whole clusters. The kernel knows them by [`HiddenParam::Grid`].
    pub whole_clusters: bool,
    /// A launched block takes up to so many neighbours along x of the user's: programs of it, which have threads of their own. The kernel knows how many
    /// by the threads that it is launched with, and which were asked for by [`HiddenParam::Grid`].
    pub programs: u32,
}

impl Default for GridRule {
    fn default() -> GridRule {
        GridRule { blocks: [1; 3], per_multiprocessor: None, fills: false, whole_clusters: false, programs: 1 }
    }
}

impl GridRule {
    /// The launched grid; `None` where it is beyond what a grid can be.
    pub fn physical(&self, asked: [u32; 3], multiprocessors: u32, cluster: Option<[u32; 3]>) -> Option<[u32; 3]> {
        let mut grid = [0; 3];
        for (axis, blocks) in grid.iter_mut().enumerate() {
            *blocks = asked[axis].checked_mul(self.blocks[axis])?;
        }
        grid[0] = grid[0].div_ceil(self.together(asked, multiprocessors));
        if let Some(cluster) = cluster.filter(|_| self.whole_clusters) {
            grid[0] = grid[0].checked_next_multiple_of(cluster[0])?;
        }
        let Some(per_multiprocessor) = self.per_multiprocessor else { return Some(grid) };
        let unit = cluster.map_or(1, |cluster| cluster.iter().map(|&n| u64::from(n)).product()).max(1);
        let wanted: u64 = grid.iter().try_fold(1u64, |all, &blocks| all.checked_mul(u64::from(blocks)))?;
        let resident = (u64::from(multiprocessors) * u64::from(per_multiprocessor) / unit * unit).max(unit);
        let wanted = if self.fills { resident } else { wanted.next_multiple_of(unit).min(resident) };
        Some([u32::try_from(wanted).ok()?, 1, 1])
    }

    /// The user's blocks that each launched one takes: one while all that are asked for are resident at once, and where most places would be empty.
    pub fn together(&self, asked: [u32; 3], multiprocessors: u32) -> u32 {
        let all: u64 = asked.iter().map(|&blocks| u64::from(blocks)).product();
        let many = all > u64::from(multiprocessors) * u64::from(MOST_RESIDENT);
        let fits = |together: &u32| asked[0].is_multiple_of(*together) || asked[0] >= 8 * together;
        let halves = std::iter::successors(Some(self.programs), |together| Some(together / 2).filter(|&half| half > 0));
        halves.filter(|_| many).find(fits).unwrap_or(1)
    }
}

/// Blocks that a multiprocessor holds at once, on every architecture with programs of blocks.
const MOST_RESIDENT: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_grids_are_whole_clusters() {
        let rule = GridRule { blocks: [2, 1, 1], per_multiprocessor: Some(1), ..GridRule::default() };
        assert_eq!(rule.physical([1000, 1, 1], 132, Some([2, 1, 1])), Some([132, 1, 1]));
        assert_eq!(rule.physical([1000, 1, 1], 133, Some([2, 1, 1])), Some([132, 1, 1]));
        assert_eq!(rule.physical([3, 1, 1], 132, Some([2, 1, 1])), Some([6, 1, 1]));
        assert_eq!(rule.physical([u32::MAX, 1, 1], 132, None), None);
        let full = GridRule { per_multiprocessor: Some(2), fills: true, ..GridRule::default() };
        assert_eq!(full.physical([3, 1, 1], 132, None), Some([264, 1, 1]));
        let split = GridRule { blocks: [1, 4, 1], ..GridRule::default() };
        assert_eq!(split.physical([5, 2, 1], 132, None), Some([5, 8, 1]));
        let pairs = GridRule { whole_clusters: true, ..GridRule::default() };
        assert_eq!(pairs.physical([5, 2, 1], 132, Some([2, 1, 1])), Some([6, 2, 1]));
        assert_eq!(pairs.physical([u32::MAX, 1, 1], 132, Some([2, 1, 1])), None);
    }

    #[test]
    fn programs_lie_side_by_side_where_there_are_many() {
        let rule = GridRule { programs: 4, ..GridRule::default() };
        let launched = |asked| LaunchFacts { threads: [32, 1, 1], grid: rule, ..LaunchFacts::default() }.physical(asked, 132);
        assert_eq!(launched([132 * 32, 1, 1]), Some(([132 * 32, 1, 1], [32, 1, 1])));
        assert_eq!(launched([132 * 32 + 1, 1, 1]), Some(([132 * 8 + 1, 1, 1], [128, 1, 1])));
        // Few along x, many along the others.
        assert_eq!(launched([1, 100_000, 1]), Some(([1, 100_000, 1], [32, 1, 1])));
        assert_eq!(launched([2, 100_000, 1]), Some(([1, 100_000, 1], [64, 1, 1])));
        assert_eq!(launched([3, 100_000, 1]), Some(([3, 100_000, 1], [32, 1, 1])));
        assert_eq!(launched([4, 100_000, 1]), Some(([1, 100_000, 1], [128, 1, 1])));
        assert_eq!(launched([0, 100_000, 1]), Some(([0, 100_000, 1], [32, 1, 1])));
    }
}
