//! The words of PTX: modifiers behind a mnemonic, and special registers.
//!
//! A modifier is a type (`.f32`), a shape (`.m64n256k16`) or one of a closed list of words (`.sync`). The list holds the
//! words that the instruction table uses; a test keeps the two equal.

use std::borrow::Cow;
use std::fmt;

use crate::target::{Needs, PtxVersion};
use crate::types::Type;

macro_rules! words {
    ($($variant:ident $text:literal)*) => {
        /// A modifier that is neither a type nor a shape.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Word { $(#[doc = concat!("`.", $text, "`")] $variant,)* }

        impl Word {
            /// Every word.
            pub const ALL: &'static [Word] = &[$(Word::$variant),*];

            /// The text without its dot.
            pub const fn text(self) -> &'static str { match self { $(Word::$variant => $text,)* } }

            /// Finds a word by its text without the dot.
            pub fn parse(text: &str) -> Option<Word> { match text { $($text => Some(Word::$variant),)* _ => None } }
        }
    };
}

words! {
    // rounding, saturation
    Rn "rn" Rz "rz" Rm "rm" Rp "rp" Rna "rna" Rni "rni" Rzi "rzi" Rmi "rmi" Rpi "rpi" Ftz "ftz" Sat "sat"
    Satfinite "satfinite" Relu "relu" Approx "approx" Full "full" Nan "NaN" XorSign "xorsign" Noftz "noftz"
    Abs "abs" Cc "cc" Oob "oob" AccF32 "acc::f32"
    // integer parts and wrapping
    Lo "lo" Hi "hi" Wide "wide" Wrap "wrap" Clamp "clamp" L "l" R "r" ShiftAmt "shiftamt"
    // prmt modes
    F4e "f4e" B4e "b4e" Rc8 "rc8" Ecl "ecl" Ecr "ecr" Rc16 "rc16"
    // comparison and boolean
    Eq "eq" Ne "ne" Lt "lt" Le "le" Gt "gt" Ge "ge" Ls "ls" Hs "hs" Equ "equ" Neu "neu" Ltu "ltu" Leu "leu"
    Gtu "gtu" Geu "geu" Num "num" Unordered "nan" And "and" Or "or" Xor "xor" Popc "popc"
    Finite "finite" Infinite "infinite" Number "number" Notanumber "notanumber" Normal "normal" Subnormal "subnormal" Cvt "cvt" Mask "mask" Mmio "mmio"
    // spaces
    Param "param" ParamEntry "param::entry" ParamFunc "param::func" Global "global" Shared "shared"
    SharedCta "shared::cta" SharedCluster "shared::cluster" Local "local" Const "const" To "to"
    // order, scope, caching
    Weak "weak" Volatile "volatile" Relaxed "relaxed" Acquire "acquire" Release "release" AcqRel "acq_rel" Sc "sc"
    Cta "cta" Cluster "cluster" Gpu "gpu" Sys "sys" Gl "gl" Nc "nc" Ca "ca" Cg "cg" Cs "cs" Lu "lu" Cv "cv" Wb "wb"
    Wt "wt" L1EvictNormal "L1::evict_normal" L1EvictUnchanged "L1::evict_unchanged" L1EvictFirst "L1::evict_first"
    L1EvictLast "L1::evict_last" L1NoAllocate "L1::no_allocate" L2CacheHint "L2::cache_hint" L2B64 "L2::64B"
    L2B128 "L2::128B" L2B256 "L2::256B" L2EvictLast "L2::evict_last" L2EvictNormal "L2::evict_normal"
    L2EvictFirst "L2::evict_first" L2EvictUnchanged "L2::evict_unchanged" Fractional "fractional" Range "range"
    L1 "L1" L2 "L2" Tensormap "tensormap" LdReduce "ld_reduce" St "st"
    // vectors, counts, dimensions
    V2 "v2" V4 "v4" V8 "v8" X1 "x1" X2 "x2" X4 "x4" D1 "1d" D2 "2d" D3 "3d" D4 "4d" D5 "5d" Trans "trans"
    Row "row" Col "col"
    // atomics
    Add "add" Inc "inc" Dec "dec" Min "min" Max "max" Exch "exch" Cas "cas"
    // synchronisation
    Sync "sync" Aligned "aligned" Arrive "arrive" Red "red" Warp "warp" Wait "wait" All "all" Any "any" Uni "uni"
    Ballot "ballot" Up "up" Down "down" Bfly "bfly" Idx "idx" Proxy "proxy" Alias "alias" Async "async"
    SyncRestrictCta "sync_restrict::shared::cta" SyncRestrictCluster "sync_restrict::shared::cluster"
    AsyncGeneric "async::generic" MbarrierInit "mbarrier_init" GenericProxy "tensormap::generic" Init "init" Inval "inval"
    ExpectTx "expect_tx" CompleteTx "complete_tx" ArriveDrop "arrive_drop" NoComplete "noComplete" TestWait "test_wait"
    TryWait "try_wait" Parity "parity" PendingCount "pending_count" Noinc "noinc" Mbarrier "mbarrier"
    // asynchronous copies and matrix instructions
    Bulk "bulk" Tensor "tensor" Tile "tile" Im2col "im2col" Im2colNoOffs "im2col_no_offs"
    MbarrierCompleteTx "mbarrier::complete_tx::bytes" MulticastCluster "multicast::cluster" BulkGroup "bulk_group"
    CommitGroup "commit_group" WaitGroup "wait_group" WaitAll "wait_all" Read "read" Reduce "reduce"
    Prefetch "prefetch" Fence "fence" MmaAsync "mma_async" Sp "sp" SpOrdered "sp::ordered_metadata" M8n8 "m8n8"
    Replace "replace" CpFenceproxy "cp_fenceproxy" GlobalAddress "global_address" Rank "rank" BoxDim "box_dim"
    GlobalDim "global_dim" GlobalStride "global_stride" ElementStride "element_stride" Elemtype "elemtype"
    InterleaveLayout "interleave_layout" SwizzleMode "swizzle_mode" FillMode "fill_mode" B1024 "b1024"
    // textures and surfaces
    A1d "a1d" A2d "a2d" Cube "cube" Acube "acube" Ms2d "2dms" Ams2d "a2dms" Base "base" Level "level" Grad "grad" Green "g"
    Width "width" Height "height" Depth "depth" ChannelDataType "channel_data_type" ChannelOrder "channel_order"
    NormalizedCoords "normalized_coords" ArraySize "array_size" NumMipmapLevels "num_mipmap_levels" NumSamples "num_samples"
    ForceUnnormalizedCoords "force_unnormalized_coords" FilterMode "filter_mode" AddrMode0 "addr_mode_0"
    AddrMode1 "addr_mode_1" AddrMode2 "addr_mode_2" MemoryLayout "memory_layout" Formatted "p" Trap "trap" Zero "zero"
    // video
    Shr7 "shr7" Shr15 "shr15" PlusOne "po"
    Load "load" Store "store" Mma "mma" MatrixA "a" MatrixB "b" MatrixC "c" MatrixD "d" Pack "pack"
    // control
    LaunchDependents "launch_dependents"
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// One dotted part behind a mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Modifier {
    /// A type: `.f32`.
    Type(Type),
    /// The extents of a matrix instruction: `.m64n256k16`.
    Shape {
        /// Rows of A and D.
        m: u16,
        /// Columns of B and D.
        n: u16,
        /// The contracted extent.
        k: u16,
    },
    /// Anything else.
    Word(Word),
}

impl Modifier {
    /// Reads a modifier without its dot.
    pub fn parse(text: &str) -> Option<Modifier> {
        Type::parse(text).map(Modifier::Type).or_else(|| Word::parse(text).map(Modifier::Word)).or_else(|| Modifier::shape(text))
    }

    /// The PTX version and target that the modifier needs, whatever instruction it belongs to.
    pub(crate) fn needs(self) -> (PtxVersion, Needs) {
        let (major, minor, sm) = match self {
            Modifier::Type(Type::B128) => (8, 3, 70),
            Modifier::Type(Type::U16x2 | Type::S16x2) => (8, 0, 90),
            Modifier::Word(word) => match word {
                Word::SharedCluster | Word::Cluster => (7, 8, 90),
                Word::SharedCta => (7, 8, 30),
                Word::ParamEntry | Word::ParamFunc => (8, 3, 20),
                Word::L2CacheHint => (7, 4, 80),
                Word::L2B64 | Word::L2B128 => (7, 4, 75),
                Word::L2B256 => (7, 4, 80),
                Word::L1EvictNormal | Word::L1EvictUnchanged | Word::L1EvictFirst | Word::L1EvictLast | Word::L1NoAllocate => {
                    (7, 4, 70)
                }
                _ => (1, 0, 20),
            },
            Modifier::Type(_) | Modifier::Shape { .. } => (1, 0, 20),
        };
        (PtxVersion::new(major, minor), Needs::Sm(sm))
    }

    fn shape(text: &str) -> Option<Modifier> {
        let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        let extent = |digits: &str| -> Option<u16> {
            let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
            if plain { digits.parse().ok() } else { None }
        };
        Some(Modifier::Shape { m: extent(m)?, n: extent(n)?, k: extent(k)? })
    }
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Modifier::Type(ty) => write!(f, "{ty}"),
            Modifier::Word(word) => write!(f, "{word}"),
            Modifier::Shape { m, n, k } => write!(f, "m{m}n{n}k{k}"),
        }
    }
}

macro_rules! specials {
    ($($variant:ident $text:literal $ty:ident;)*) => {
        /// A special register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Special {
            $(#[doc = concat!("`%", $text, "`")] $variant,)*
            /// `%envreg0` to `%envreg31`: what the driver hands over.
            Environment(u8),
            /// `%pm0` to `%pm7`: counters of performance events.
            Counter(u8),
            /// `%pm0_64` to `%pm7_64`
            WideCounter(u8),
        }

        impl Special {
            /// The special registers that stand alone.
            pub const NAMED: &'static [Special] = &[$(Special::$variant),*];

            /// The name without its `%`.
            pub fn name(self) -> Cow<'static, str> {
                match self {
                    $(Special::$variant => $text.into(),)*
                    Special::Environment(index) => format!("envreg{index}").into(),
                    Special::Counter(index) => format!("pm{index}").into(),
                    Special::WideCounter(index) => format!("pm{index}_64").into(),
                }
            }

            /// Its type.
            pub const fn ty(self) -> Type {
                match self {
                    $(Special::$variant => Type::$ty,)*
                    Special::Environment(_) | Special::Counter(_) => Type::U32,
                    Special::WideCounter(_) => Type::U64,
                }
            }

            fn named(name: &str) -> Option<Special> { match name { $($text => Some(Special::$variant),)* _ => None } }
        }
    };
}

specials! {
    TidX "tid.x" U32; TidY "tid.y" U32; TidZ "tid.z" U32;
    NtidX "ntid.x" U32; NtidY "ntid.y" U32; NtidZ "ntid.z" U32;
    CtaidX "ctaid.x" U32; CtaidY "ctaid.y" U32; CtaidZ "ctaid.z" U32;
    NctaidX "nctaid.x" U32; NctaidY "nctaid.y" U32; NctaidZ "nctaid.z" U32;
    ClusteridX "clusterid.x" U32; ClusteridY "clusterid.y" U32; ClusteridZ "clusterid.z" U32;
    NclusteridX "nclusterid.x" U32; NclusteridY "nclusterid.y" U32; NclusteridZ "nclusterid.z" U32;
    ClusterCtaidX "cluster_ctaid.x" U32; ClusterCtaidY "cluster_ctaid.y" U32; ClusterCtaidZ "cluster_ctaid.z" U32;
    ClusterNctaidX "cluster_nctaid.x" U32; ClusterNctaidY "cluster_nctaid.y" U32; ClusterNctaidZ "cluster_nctaid.z" U32;
    ClusterCtarank "cluster_ctarank" U32; ClusterNctarank "cluster_nctarank" U32;
    IsExplicitCluster "is_explicit_cluster" Pred;
    Laneid "laneid" U32; Warpid "warpid" U32; Nwarpid "nwarpid" U32; Smid "smid" U32; Nsmid "nsmid" U32; Gridid "gridid" U64;
    LanemaskEq "lanemask_eq" U32; LanemaskLe "lanemask_le" U32; LanemaskLt "lanemask_lt" U32;
    LanemaskGe "lanemask_ge" U32; LanemaskGt "lanemask_gt" U32;
    Clock "clock" U32; ClockHi "clock_hi" U32; Clock64 "clock64" U64;
    Globaltimer "globaltimer" U64; GlobaltimerLo "globaltimer_lo" U32; GlobaltimerHi "globaltimer_hi" U32;
    DynamicSmemSize "dynamic_smem_size" U32; TotalSmemSize "total_smem_size" U32; AggrSmemSize "aggr_smem_size" U32;
    ReservedBegin "reserved_smem_offset_begin" U32; ReservedEnd "reserved_smem_offset_end" U32;
    ReservedCap "reserved_smem_offset_cap" U32; Reserved0 "reserved_smem_offset_0" U32; Reserved1 "reserved_smem_offset_1" U32;
    CurrentGraphExec "current_graph_exec" U64;
}

impl Special {
    /// Finds one by its name without the `%`.
    pub fn parse(name: &str) -> Option<Special> {
        let numbered = |digits: &str, below: u8| {
            let plain = digits == "0" || !digits.starts_with('0');
            digits.parse::<u8>().ok().filter(|&number| plain && number < below)
        };
        if let Some(found) = Special::named(name) {
            return Some(found);
        }
        if let Some(digits) = name.strip_prefix("envreg") {
            return numbered(digits, 32).map(Special::Environment);
        }
        let digits = name.strip_prefix("pm")?;
        match digits.strip_suffix("_64") {
            Some(digits) => numbered(digits, 8).map(Special::WideCounter),
            None => numbered(digits, 8).map(Special::Counter),
        }
    }

    /// Whether it may stand where a type is asked for.
    pub(crate) fn serves(self, wanted: Type) -> bool {
        self.ty().serves(wanted, true)
    }

    /// The PTX version and target that it needs beyond the oldest.
    pub(crate) fn needs(self) -> (PtxVersion, Needs) {
        match self {
            Special::ClusteridX
            | Special::ClusteridY
            | Special::ClusteridZ
            | Special::NclusteridX
            | Special::NclusteridY
            | Special::NclusteridZ
            | Special::ClusterCtaidX
            | Special::ClusterCtaidY
            | Special::ClusterCtaidZ
            | Special::ClusterNctaidX
            | Special::ClusterNctaidY
            | Special::ClusterNctaidZ
            | Special::ClusterCtarank
            | Special::ClusterNctarank
            | Special::IsExplicitCluster => (PtxVersion::new(7, 8), Needs::Sm(90)),
            Special::AggrSmemSize => (PtxVersion::new(8, 1), Needs::Sm(90)),
            Special::ReservedBegin | Special::ReservedEnd | Special::ReservedCap | Special::Reserved0 | Special::Reserved1 => {
                (PtxVersion::new(7, 6), Needs::Sm(80))
            }
            Special::CurrentGraphExec => (PtxVersion::new(8, 0), Needs::Sm(50)),
            _ => (PtxVersion::new(1, 0), Needs::Sm(20)),
        }
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.name())
    }
}
