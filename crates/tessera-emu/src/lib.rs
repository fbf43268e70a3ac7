//! The PTX emulator: runs kernels for NVIDIA GPUs on the host, Hopper's asynchronous machinery included, and finds mistakes.
//!
//! ```
//! use tessera_driver::{Dim3, Params};
//! use tessera_emu::{EmuOptions, Emulator, LaunchOptions};
//! let emulator = Emulator::new(&EmuOptions::default()).unwrap();
//! let module = emulator.load("
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry double(.param .u64 data)
//! {
//!     .reg .b32 %x, %i;
//!     .reg .b64 %at, %offset;
//!     ld.param.u64 %at, [data];
//!     mov.u32 %i, %tid.x;
//!     mul.wide.u32 %offset, %i, 4;
//!     add.u64 %at, %at, %offset;
//!     ld.global.u32 %x, [%at];
//!     shl.b32 %x, %x, 1;
//!     st.global.u32 [%at], %x;
//!     ret;
//! }").unwrap();
//! let data = emulator.alloc(256).unwrap();
//! emulator.write(data, &[3; 256]).unwrap();
//! let args = Params::new().pointer(data);
//! let report = emulator.launch(&module, "double", Dim3::ONE, Dim3::from(64), &args, &LaunchOptions::default()).unwrap();
//! let mut bytes = [0; 4];
//! emulator.read(data, &mut bytes).unwrap();
//! assert_eq!((bytes, report.instructions), ([6; 4], 64 * 8));
//! ```
//!
//! # Design
//! **Translation** (`decode`). A kernel becomes one array of operations whose operands are slots of a warp's register file.
//! Labels are positions, device functions are inlined (but for recursion and pointers to functions), immediates and special registers are slots that are filled when a
//! warp starts. An arithmetic operation is a function over all 32 lanes, chosen once by mnemonic, modifiers and type, so the
//! interpreter's cost is paid once for 32 threads and the lanes' loop is vector code.
//!
//! **Warps** (`exec`). A warp is a set of fragments: lanes with a common program counter. A branch on which lanes disagree
//! makes two, which wait for each other at the branch's immediate post-dominator. Fragments run on their own until then, so
//! lanes may wait for lanes of their own warp, as they may since Volta.
//!
//! **Memory.** Device memory is checked ranges with room between them; every access to it is an atomic access of its width,
//! because blocks run on several host threads. Shared memory belongs to the host thread that runs its cluster. Generic
//! addresses tell the spaces apart by their upper half.
//!
//! **Asynchrony.** `cp.async`, bulk copies and `wgmma` are jobs. When they run, the [`Schedule`] decides: at once, as late as
//! the waits allow, or at times that a seed picks. A job reads its operands and registers when it runs, not when it is
//! issued; a kernel that does not wait for it, or overwrites what it reads, shows wrong results under some schedule.
//!
//! **Scheduling.** A cluster runs on one host thread; several run in parallel, unless the kernel has atomics or strong accesses
//! to global memory: then one thread runs them all, so that their order is the same each time. A cluster that runs long without an end is put
//! aside for the next one, up to as many blocks as the device holds, so blocks may wait for each other as they may on the
//! chip. When nothing can go on, the report says who waits for what.
//!
//! What is executed and what is not, and how near it comes to the chip, is listed in `docs/ptx-coverage.md`; `tests/corpus/` runs
//! what nvcc and Triton make.
//!
//! **Sanitizers** (`sanitize`) follow happens-before by vector clocks, with a second clock for what the asynchronous proxy
//! may see. Their head comments name the PTX sections of the rules.

mod advice;
mod console;
mod decode;
mod driver;
mod emulator;
mod exec;
mod explore;
mod finding;
mod findings;
mod lanes;
mod launch;
mod memory;
mod module;
mod node;
mod ops;
mod options;
mod program;
mod report;
mod sanitize;
mod suppress;
mod tensor_map;
mod texture;
mod together;

pub use console::{Console, Launched};
pub use driver::{driver, watched};
pub use emulator::Emulator;
pub use finding::{Class, Finding, FindingKind, Place, Traffic};
pub use module::{Module, Parameter};
pub use options::{EmuOptions, LaunchOptions, Sanitize, Schedule};
pub use report::{EmuError, Explored, Report, Suppressed};
pub use suppress::{Rule, SuppressError, Suppressions, Where};
pub use tensor_map::{Im2col, Walk};
pub use texture::{Image, Outside, Sampler};
pub use together::{Queued, run_together};
