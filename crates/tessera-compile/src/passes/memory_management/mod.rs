//! `memory-management`: where buffers lie in shared memory.
//!
//! 1. [`pressure`]: what does not fit into registers is made again or gets a buffer.
//! 2. [`arrange`]: how each buffer lies, so that its accesses meet in no bank.
//! 3. [`lifetimes`]: when each buffer holds something that is needed, through loops, branches, roles and work that goes on after its
//!    operation.
//! 4. [`packing`]: places, so that buffers that are never needed together share bytes.
//!
//! Sharing costs a barrier where threads have not met since the former owner's last use; [`resident`] says when that is worth it.
//!
//! ```text
//! %a = tile.alloc_shared {align=16} : shared<64x64xf32>               %a = tile.alloc_shared {align=16, offset=0} ..
//! tile.store_shared %x, %a                                            ..
//! tile.barrier
//! %y = tile.load_shared %a : tile<64x64xf32, #1>
//! tile.barrier
//! %b = tile.alloc_shared {align=16} : shared<64x64xf32>               %b = tile.alloc_shared {align=16, offset=0} ..
//! ```
//!
//! Invariant: two buffers share bytes only where [`lifetimes::Lifetimes::are_apart`] is false.

mod arrange;
mod lanes;
pub(crate) mod lifetimes;
mod live_values;
pub(crate) mod packing;
mod patterns;
mod places;
mod pressure;
mod resident;

pub(crate) use self::places::{buffer_align, buffer_bytes};
use tessera_ir::{Changed, Func, Level, Pass, PassCx};

/// The pass.
pub(crate) const PASS: Pass = Pass {
    name: "memory-management",
    doc: "Arranges buffers in shared memory without bank conflicts and gives them their places; those never needed together share bytes.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PASS.name, func) else { return Changed(false) };
    let relieved = pressure::relieve(func, arch);
    let arranged = arrange::arrange(func, arch) || relieved;
    match places::place(func, arch) {
        Ok(placed) => Changed(arranged || placed.0),
        Err(error) => {
            cx.diagnostics.push(*error);
            Changed(arranged)
        }
    }
}
