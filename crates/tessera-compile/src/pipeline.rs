//! Pipelines: lists of passes by name.
//!
//! What changes meaning runs at every level at the same point: Graph functions are tiled, dead code goes (a dead product is no
//! use of its factors), products and sums are contracted; and memory operations get their order at the end. Between lies what
//! only saves work, so every level gives the same bits.

use std::fmt;
use std::str::FromStr;

use tessera_ir::Pass;

use crate::passes::all_of;

/// How much work the compiler puts into a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptLevel {
    /// Only what gives the program its meaning.
    O0,
    /// Local simplification.
    O1,
    /// Nothing twice, nothing in loops that can stand before them.
    O2,
    /// All of that again, after what it made possible.
    #[default]
    O3,
}

impl OptLevel {
    /// Every level.
    pub const ALL: [OptLevel; 4] = [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3];

    /// The names of the level's passes, in order.
    pub const fn pass_names(self) -> &'static [&'static str] {
        match self {
            OptLevel::O0 => &["tile-and-schedule", "dce", "fma-contract", "token-order"],
            OptLevel::O1 => &[
                "tile-and-schedule",
                "dce",
                "fma-contract",
                "specialise-abi",
                "constant-fold",
                "canonicalise",
                "dce",
                "token-order",
            ],
            OptLevel::O2 => &[
                "tile-and-schedule",
                "dce",
                "fma-contract",
                "specialise-abi",
                "constant-fold",
                "canonicalise",
                "cse",
                "licm",
                "count-loops",
                "one-counter",
                "dce",
                "token-order",
                "dce",
            ],
            OptLevel::O3 => &[
                "tile-and-schedule",
                "dce",
                "fma-contract",
                "specialise-abi",
                "constant-fold",
                "canonicalise",
                "narrow-integers",
                "cse",
                "licm",
                "count-loops",
                "one-counter",
                "constant-fold",
                "canonicalise",
                "cse",
                "dce",
                "token-order",
                "dce",
            ],
        }
    }

    /// The names of the passes from Schedule IR to Tile IR, in order: those that put a function into known forms, those that may plan it, and
    /// those that carry the plan out and spread tiles over threads.
    pub const fn staging_pass_names(self) -> [&'static [&'static str]; 3] {
        match self {
            OptLevel::O0 => [&[], &[], &["layouts"]],
            OptLevel::O1 | OptLevel::O2 | OptLevel::O3 => [
                &[
                    "pointer-views",
                    "unit-axes",
                    "product-padding",
                    "read-tokens",
                    "code-sinking",
                    "single-rounds",
                    "load-portions",
                    "row-narrowing",
                    "line-alignment",
                ],
                &["warp-specialization", "multistage-pipeline", "cluster-rows"],
                &[
                    "mask-elision",
                    "pipelining",
                    "load-batching",
                    "layouts",
                    "product-overlap",
                    "product-alternation",
                    "loop-splitting",
                    "product-grouping",
                    "product-pipelining",
                    "load-prefetching",
                    "predicated-load-sinking",
                    "rematerialization",
                    "occupancy",
                ],
            ],
        }
    }

    /// The passes from Schedule IR to Tile IR, in order.
    pub fn staging_passes(self) -> Vec<&'static Pass> {
        all_of(&self.staging_pass_names().concat())
    }

    /// The names of the passes over Tile IR, in order: between layouts and the lowering to the target. Which instructions there are decides
    /// which accesses there are and in which layouts; copies that those made go and accesses become wide, so that they are final; memory is
    /// given out when its buffers and their lives are; that makes hazards, so barriers follow; remarks change no meaning.
    pub const fn tile_pass_names(self) -> &'static [&'static str] {
        match self {
            OptLevel::O0 => &["intrinsic-lowering", "exchange-buffers", "memory-management", "barrier-optimization"],
            OptLevel::O1 | OptLevel::O2 | OptLevel::O3 => &[
                "intrinsic-lowering",
                "register-coalescing",
                "exchange-buffers",
                "memory-management",
                "barrier-optimization",
                "performance-annotation",
                "program-packing",
            ],
        }
    }

    /// The passes over Tile IR, in order.
    pub fn tile_passes(self) -> Vec<&'static Pass> {
        all_of(self.tile_pass_names())
    }

    /// The level's passes, in order.
    pub fn passes(self) -> Vec<&'static Pass> {
        all_of(self.pass_names())
    }
}

/// The names of pipelines.
pub fn pipeline_names() -> &'static [&'static str] {
    &["O0", "O1", "O2", "O3", "staging", "tile", "default"]
}

/// The passes of a pipeline: a level's, `staging` for those from Schedule IR to Tile IR, `tile` for those of Tile IR, `default` for the whole
/// way.
pub fn named_pipeline(name: &str) -> Option<Vec<&'static Pass>> {
    let level = OptLevel::default();
    // Collectives belong to whole operands, before everything else.
    let collectives = all_of(&["collective-insertion"]).into_iter();
    match name {
        "staging" => Some(level.staging_passes()),
        "tile" => Some(collectives.chain(level.tile_passes()).collect()),
        "default" => Some(collectives.chain(level.passes()).chain(level.staging_passes()).chain(level.tile_passes()).collect()),
        name => name.parse::<OptLevel>().ok().map(OptLevel::passes),
    }
}

impl fmt::Display for OptLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for OptLevel {
    type Err = UnknownLevel;
    fn from_str(text: &str) -> Result<OptLevel, UnknownLevel> {
        let digit = text.trim_start_matches(['-', 'O', 'o']);
        OptLevel::ALL.into_iter().find(|level| level.to_string()[1..] == *digit).ok_or_else(|| UnknownLevel(text.to_string()))
    }
}

/// A text that names no level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel(pub String);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no level of optimisation: `O0`, `O1`, `O2` and `O3` are", self.0)
    }
}

impl std::error::Error for UnknownLevel {}
