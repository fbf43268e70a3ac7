//! Target IR in SSA form: what a compiler builds a kernel in, and how it becomes PTX.
//!
//! ```
//! use tessera_ptx::ssa::{Builder, module};
//! use tessera_ptx::{Limit, Special, Target, Type, Word, check, print};
//!
//! // y[i] = 2 * x[i] for i < n, four elements a thread, in a grid-wide loop
//! let mut b = Builder::new("twice");
//! let x = b.pointer_param("x", 16);
//! let y = b.pointer_param("y", 16);
//! let n = b.scalar_param("n", Type::S32);
//! b.limit(Limit::RequiredThreads([128, 1, 1]));
//! let (thread, block, blocks) = (b.special(Special::TidX), b.special(Special::CtaidX), b.special(Special::NctaidX));
//! let (threads, four) = (b.u32(128), b.u32(4));
//! let first = b.mad(Type::U32, block, threads, thread);
//! let first = b.mul(Type::U32, first, four);
//! let step = b.u32(512);
//! let step = b.mul(Type::U32, blocks, step);
//! let two = b.f32(2.0);
//! b.for_(Type::S32, (first, n, step), &[], |b, i, _| {
//!     let offset = b.mul_wide(Type::U32, i, four);
//!     let from = b.add(Type::S64, x, offset);
//!     let to = b.add(Type::S64, y, offset);
//!     let loaded = b.ld_vector("global.nc", Type::F32, 4, from);
//!     let doubled: Vec<_> = loaded.into_iter().map(|value| b.mul(Type::F32, value, two)).collect();
//!     b.st_vector("global", Type::F32, to, &doubled);
//!     Vec::new()
//! });
//! b.ret();
//! let kernel = b.finish().unwrap();
//!
//! let (module, reports) = module(&[kernel], Target::SM_90A, &[]);
//! assert!(check(&module).is_empty());
//! assert_eq!(reports[0].moves_in_loops, 0);
//! assert!(print(&module).contains("ld.global.nc.v4.f32"));
//! ```
//!
//! A value is so many bits ([`Class`]); instructions say what they mean. What the [`Builder`] has no method for is built by
//! its text: `b.value("bfe.u32", &[x.into(), start.into(), length.into()])`. Mistakes are kept and come out of
//! [`Builder::finish`].

mod build_arithmetic;
mod build_control;
mod build_copies;
mod build_matrices;
mod build_memory;
mod build_threads;
mod builder;
pub(crate) mod cfg;
mod code;
mod copies;
mod effects;
mod emit;
mod evaluate;
mod fold;
mod inst;
mod kernel;
mod lanes;
mod liveness;
mod names;
mod op;
mod passes;
mod registers;
mod text;
mod verify;

pub use build_copies::{CacheOptions, CopyOptions};
pub use build_matrices::{WgmmaA, WgmmaOptions};
pub use builder::{BuildError, Builder, Results};
pub use code::{Code, Half};
pub use effects::Effects;
pub use emit::{EmitReport, emit, module};
pub use inst::{Address, Arg, Guard, InstData, Target, Terminator};
pub use kernel::{Block, BlockData, Class, Inst, Kernel, Origin, Param, ParamKind, Shared, Value};
pub use lanes::{Space, Touch, touches};
pub use op::{Op, OpData};
pub use passes::{Level, PassReport, optimize};
pub use verify::verify;
