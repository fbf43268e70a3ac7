//! GPU architectures: what a block may use, and what the instruction set has.
//!
//! Passes ask an [`Arch`] for a limit, a feature, an instruction or a cost by name and never compare its number: `sm_90a` has `wgmma` and
//! `sm_100a` has not (`cargo xtask tidy` sees to it). An architecture is one row of `architectures!`; a feature one row of `features!`,
//! from which its query method follows; matrix instructions are rows of [`crate::MatrixInstruction`]'s table, costs of [`crate::Cost`]'s.
//!
//! ```
//! use tessera_types::Arch;
//! assert!(Arch::Sm90a.has_wgmma() && !Arch::Sm100a.has_wgmma());
//! assert_eq!(Arch::Sm90a.limits().shared_per_block, 227 * 1024);
//! assert_eq!("sm_80".parse(), Ok(Arch::Sm80));
//! ```

use std::fmt;
use std::str::FromStr;

use crate::cost::{self, Cost};
use crate::device::Device;
use crate::matrix::{self, Products};
use crate::target::UnknownTarget;

/// What one multiprocessor and one block have. Bytes, registers of 32 bits, threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Shared memory of a multiprocessor.
    pub shared_per_sm: u32,
    /// Shared memory that a block may ask for by opting in.
    pub shared_per_block: u32,
    /// Shared memory that a block may have without opting in.
    pub shared_per_block_default: u32,
    /// Shared memory of a multiprocessor, the system's included, that leaves the first-level cache more than its least: the second largest of
    /// the sizes that it can have (CUDA programming guide, "Compute capabilities").
    pub shared_beside_cache: u32,
    /// Shared memory that the system takes from each resident block.
    pub shared_reserved_per_block: u32,
    /// Registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Registers that a block may have.
    pub registers_per_block: u32,
    /// Registers that a thread can name.
    pub registers_per_thread: u32,
    /// What registers of a thread are handed out in multiples of.
    pub register_step: u32,
    /// The least and the most registers that a warpgroup may change to (`setmaxnreg`, in multiples of `register_step`), where the instruction
    /// set has that.
    pub registers_moved: (u32, u32),
    /// Named barriers of a block; the first is the one that all its threads meet at.
    pub barriers_per_block: u32,
    /// Resident threads of a multiprocessor.
    pub threads_per_sm: u32,
    /// Resident warps of a multiprocessor.
    pub warps_per_sm: u32,
    /// Resident blocks of a multiprocessor.
    pub blocks_per_sm: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// The most blocks of a cluster; one where there are no clusters. Beyond eight a launch has to ask, and a device may lack room (driver API,
    /// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`).
    pub blocks_per_cluster: u32,
}

impl Limits {
    /// Registers of a multiprocessor and of a block, the same on every architecture so far (CUDA programming guide, "Technical specifications").
    pub const REGISTERS: u32 = 65536;

    /// Registers that a thread can name, the same on every architecture so far.
    pub const THREAD_REGISTERS: u32 = 255;
}

const fn limits([cache_kib, shared_kib]: [u32; 2], block_kib: u32, warps_per_sm: u32, blocks_per_sm: u32) -> Limits {
    Limits {
        shared_per_sm: shared_kib * 1024,
        shared_per_block: block_kib * 1024,
        shared_per_block_default: 48 * 1024,
        shared_beside_cache: cache_kib * 1024,
        shared_reserved_per_block: (shared_kib - block_kib) * 1024,
        registers_per_sm: Limits::REGISTERS,
        registers_per_block: Limits::REGISTERS,
        registers_per_thread: Limits::THREAD_REGISTERS,
        register_step: 8,
        // PTX ISA, "setmaxnreg": 24 to 256 in steps of 8, of which 240 is the most that CUTLASS asks for.
        registers_moved: (24, 240),
        // PTX ISA, "barrier".
        barriers_per_block: 16,
        threads_per_sm: warps_per_sm * 32,
        warps_per_sm,
        blocks_per_sm,
        threads_per_block: 1024,
        blocks_per_cluster: 1,
    }
}

/// Those of Hopper and of Blackwell's data centre parts: eight blocks to a cluster everywhere, and sixteen where that is asked for (CUDA programming
/// guide, "Thread block clusters").
const fn clustered() -> Limits {
    Limits { blocks_per_cluster: 16, ..limits([196, 228], 227, 64, 32) }
}

macro_rules! architectures {
    ($($(#[$doc:meta])* $variant:ident { $name:literal, $major:literal.$minor:literal, ptx $ptx_major:literal.$ptx_minor:literal, $limits:expr, $products:expr, $costs:expr })*) => {
        /// A GPU architecture, as `.target` of PTX names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Arch { $($(#[$doc])* $variant,)* }

        impl Arch {
            /// Every architecture, oldest first.
            pub const ALL: &'static [Arch] = &[$(Arch::$variant),*];

            /// The name that `.target` of PTX and the command line use.
            pub const fn name(self) -> &'static str { match self { $(Arch::$variant => $name,)* } }

            /// Major and minor number of the compute capability.
            pub const fn compute_capability(self) -> (u32, u32) { match self { $(Arch::$variant => ($major, $minor),)* } }

            /// The first PTX version that knows the architecture.
            pub const fn first_ptx_version(self) -> (u32, u32) { match self { $(Arch::$variant => ($ptx_major, $ptx_minor),)* } }

            /// What one multiprocessor and one block have.
            pub const fn limits(self) -> Limits { match self { $(Arch::$variant => $limits,)* } }

            /// The matrix instructions, in groups.
            pub(crate) const fn products(self) -> Products { match self { $(Arch::$variant => $products,)* } }

            /// What its parts take, as far as that is known.
            pub const fn costs(self) -> &'static [Cost] { match self { $(Arch::$variant => $costs,)* } }
        }
    };
}

architectures! {
    /// Volta.
    Sm70 { "sm_70", 7 . 0, ptx 6 . 0, limits([64, 96], 96, 64, 32), matrix::VOLTA, cost::UNKNOWN }
    /// Turing.
    Sm75 { "sm_75", 7 . 5, ptx 6 . 3, limits([32, 64], 64, 32, 16), matrix::TURING, cost::UNKNOWN }
    /// Ampere, data centre.
    Sm80 { "sm_80", 8 . 0, ptx 7 . 0, limits([132, 164], 163, 64, 32), matrix::AMPERE, cost::AMPERE }
    /// Ampere, graphics.
    Sm86 { "sm_86", 8 . 6, ptx 7 . 1, limits([64, 100], 99, 48, 16), matrix::AMPERE, cost::UNKNOWN }
    /// Ada.
    Sm89 { "sm_89", 8 . 9, ptx 7 . 8, limits([64, 100], 99, 48, 24), matrix::ADA, cost::UNKNOWN }
    /// Hopper without its architecture-specific instructions: later architectures run the same code.
    Sm90 { "sm_90", 9 . 0, ptx 7 . 8, clustered(), matrix::HOPPER, cost::HOPPER }
    /// Hopper with its architecture-specific instructions.
    Sm90a { "sm_90a", 9 . 0, ptx 8 . 0, clustered(), matrix::HOPPER_A, cost::HOPPER }
    /// Blackwell, data centre, with its architecture-specific instructions.
    Sm100a { "sm_100a", 10 . 0, ptx 8 . 6, clustered(), matrix::HOPPER, cost::BLACKWELL }
}

macro_rules! features {
    ($($(#[$doc:meta])* $method:ident $variant:ident $name:literal: $first:ident $(| $other:ident)*;)*) => {
        /// Something that the instruction set of some architectures has, or that is worth doing on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature { $($(#[$doc])* $variant,)* }

        impl Feature {
            /// Every feature.
            pub const ALL: &'static [Feature] = &[$(Feature::$variant),*];

            /// A short name, for reports.
            pub const fn name(self) -> &'static str { match self { $(Feature::$variant => $name,)* } }
        }

        impl Arch {
            /// Whether the instruction set has `feature`.
            pub const fn has(self, feature: Feature) -> bool {
                match feature { $(Feature::$variant => matches!(self, Arch::$first $(| Arch::$other)*),)* }
            }

            $($(#[$doc])* pub const fn $method(self) -> bool { self.has(Feature::$variant) })*
        }
    };
}

features! {
    /// Matrix products of `f16`: `mma.sync`.
    has_f16_mma F16Mma "f16 mma": Sm70 | Sm75 | Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of `bf16`.
    has_bf16_mma Bf16Mma "bf16 mma": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of `tf32`.
    has_tf32_mma Tf32Mma "tf32 mma": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products whose left factor is stored by half, two of each four neighbours: `mma.sp`.
    has_sparse_mma SparseMma "sparse mma": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of `f64`; at a rate worth having only where a device lists a tensor peak for it.
    has_f64_mma F64Mma "f64 mma": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of 8-bit integers.
    has_i8_mma I8Mma "i8 mma": Sm75 | Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of 4-bit integers.
    has_i4_mma I4Mma "i4 mma": Sm75 | Sm80 | Sm86 | Sm89 | Sm90 | Sm90a;
    /// Matrix products of 8-bit floats.
    has_fp8_mma Fp8Mma "fp8 mma": Sm89 | Sm90 | Sm90a | Sm100a;
    /// Matrix products of 6- and 4-bit floats, block-scaled ones included; elsewhere these are storage formats.
    has_fp6_fp4_mma Fp6Fp4Mma "fp6 and fp4 mma": Sm100a;
    /// Matrix products of a warp that take 8-bit floats as they are: elsewhere they are converted to `f16` on the way, at that one's rate.
    has_native_fp8_mma NativeFp8Mma "native fp8 mma": Sm89;
    /// Conversions to and from 8-bit floats: `cvt` with `.e4m3x2` and `.e5m2x2`.
    has_fp8_cvt Fp8Cvt "fp8 cvt": Sm89 | Sm90 | Sm90a | Sm100a;
    /// Conversions to and from 6- and 4-bit floats and `e8m0` scales.
    has_fp6_fp4_cvt Fp6Fp4Cvt "fp6 and fp4 cvt": Sm100a;
    /// `fma` of `bf16`.
    has_bf16_fma Bf16Fma "bf16 fma": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// `add`, `sub` and `mul` of `bf16`.
    has_bf16_add Bf16Add "bf16 add": Sm90 | Sm90a | Sm100a;
    /// `add`, `mul` and `fma` of two `f32` at once.
    has_f32x2 F32x2 "f32x2": Sm100a;
    /// Warp matrix loads from shared memory.
    has_ldmatrix Ldmatrix "ldmatrix": Sm75 | Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Warp matrix stores to shared memory.
    has_stmatrix Stmatrix "stmatrix": Sm90 | Sm90a | Sm100a;
    /// Asynchronous copies from global to shared memory by threads.
    has_cp_async CpAsync "cp.async": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Barrier objects in shared memory.
    has_mbarrier Mbarrier "mbarrier": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Bulk and tensor copies by the copy engine.
    has_tma Tma "TMA": Sm90 | Sm90a | Sm100a;
    /// Clusters of blocks with distributed shared memory.
    has_clusters Clusters "clusters": Sm90 | Sm90a | Sm100a;
    /// Asynchronous matrix products by a warpgroup.
    has_wgmma Wgmma "wgmma": Sm90a;
    /// Matrix products with accumulators in tensor memory.
    has_tcgen05 Tcgen05 "tcgen05": Sm100a;
    /// Moving registers between the warps of a block.
    has_setmaxnreg Setmaxnreg "setmaxnreg": Sm90a | Sm100a;
    /// Election of one thread of a warp.
    has_elect_sync ElectSync "elect.sync": Sm90 | Sm90a | Sm100a;
    /// Integer reductions over a warp in one instruction.
    has_redux Redux "redux.sync": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
    /// Vector reductions to global memory.
    has_vector_red VectorRed "red.global.v4": Sm90 | Sm90a | Sm100a;
    /// Launches that overlap the end of the kernel before.
    has_grid_dependency_control GridDependencyControl "griddepcontrol": Sm90 | Sm90a | Sm100a;
    /// Loads and stores of 32 bytes a thread.
    has_wide_loads WideLoads "256-bit loads": Sm100a;
    /// Keeping near what is read again gains something: blocks on one multiprocessor find it there.
    gains_by_keeping GainsByKeeping "kept lines": Sm80 | Sm86 | Sm89 | Sm90 | Sm90a;
    /// Marking what is touched once gains something; on an H200 it costs up to 7 % (`docs/performance-history.md`).
    gains_by_streaming GainsByStreaming "streamed lines": Sm80 | Sm86 | Sm89;
    /// The assembler does elementwise work in pieces of few registers; for other targets it takes half as many more.
    has_small_pieces SmallPieces "small pieces": Sm90 | Sm90a | Sm100a;
    /// `tanh.approx` and `ex2.approx` of `f16`.
    has_fast_tanh FastTanh "tanh.approx": Sm75 | Sm80 | Sm86 | Sm89 | Sm90 | Sm90a | Sm100a;
}

impl Arch {
    /// Threads of a warp.
    pub const WARP: u32 = 32;

    /// Threads that move registers and multiply together: four warps.
    pub const WARPGROUP: u32 = 4 * Arch::WARP;

    /// The largest grid along x, y and z.
    pub const GRID: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];

    /// Registers that each thread of a block starts with where the assembler may give it all: those of the block divided, in steps.
    pub const fn registers_at_launch(self, threads: u32) -> u32 {
        let limits = self.limits();
        let given = limits.registers_per_block / threads / limits.register_step * limits.register_step;
        if given < limits.registers_per_thread { given } else { limits.registers_per_thread }
    }

    /// The name of the target that uses everything a device of this compute capability has, whether or not it is known: from 9.0 on, matrix
    /// instructions belong to the target with its suffix.
    pub fn target_of((major, minor): (u32, u32)) -> String {
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }

    /// Multiprocessors of the largest product that has this chip.
    pub fn multiprocessors(self) -> u32 {
        let chip = self.compute_capability();
        let products = Device::ALL.iter().filter(|device| device.arch.compute_capability() == chip);
        products.map(|device| device.sms).max().unwrap_or(1)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Arch, UnknownTarget> {
        Arch::ALL.iter().copied().find(|arch| arch.name() == text).ok_or_else(|| UnknownTarget(text.to_string()))
    }
}
