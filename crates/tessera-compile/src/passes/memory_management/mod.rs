//! `memory-management`: where buffers lie in shared memory.
//!
//! 1. [`registers`], [`pressure`], [`spilling`]: what does not fit into registers is made again or gets a buffer, is loaded again, and at last is left to local memory.
//! 2. [`arrange`]: how each buffer lies, so that its accesses meet in no bank.
//! 3. [`lifetimes`]: when each buffer holds something that is needed, through loops, branches, roles and work that goes on after its
//!    operation.
//! 4. [`packing`](tessera_analysis::packing): places, so that buffers that are never needed together share bytes.
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
mod patterns;
mod places;
mod pressure;
mod registers;
pub(crate) mod resident;
mod spilling;

use self::live_values::LiveValues;
pub(super) use self::pressure::rounds;
use self::registers::Peak;
pub(super) use self::registers::Places;
use tessera_ir::{Changed, Diagnostic, Fallback, Func, Level, Pass, PassCx};
use tessera_types::Arch;

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
    match fit(func, arch, &mut cx.fallbacks) {
        Ok(changed) => Changed(changed),
        Err(error) => {
            cx.diagnostics.push(*error);
            Changed(false)
        }
    }
}

/// Gives buffers their places, and values that do not fit into registers buffers.
fn fit(func: &mut Func, arch: Arch, fallbacks: &mut Vec<Fallback>) -> Result<bool, Box<Diagnostic>> {
    // What goes from registers to shared memory must not cost a resident block.
    let mut relieved = func.clone();
    let eased = pressure::relieve(&mut relieved, arch, Peak::tight);
    let lighter = (!eased.is_empty()).then(|| settle(&mut relieved, arch).ok()).flatten();
    let mut settled = settle(func, arch);
    if let Some(lighter) = lighter
        && settled.as_ref().is_ok_and(|settled| lighter.blocks >= settled.blocks)
    {
        fallbacks.extend(eased.iter().map(|eased| eased.fallback(&relieved, arch)));
        *func = relieved;
        settled = Ok(lighter);
    }
    let settled = settled?;
    let beyond = |func: &Func| Peak::beyond(func, arch, &LiveValues::of(func), &[]);
    if beyond(func).is_none() {
        return Ok(settled.changed);
    }
    // Unless it has to go.
    let mut relieved = func.clone();
    let eased = pressure::relieve(&mut relieved, arch, Peak::beyond);
    if settle(&mut relieved, arch).is_ok() && beyond(&relieved).is_none() {
        fallbacks.extend(eased.iter().map(|eased| eased.fallback(&relieved, arch)));
        *func = relieved;
        return Ok(true);
    }
    spilling::spill(func, arch, fallbacks)?;
    Ok(true)
}

/// What has become of a function's buffers.
struct Settled {
    changed: bool,
    /// Blocks that a multiprocessor holds by their shared memory.
    blocks: u64,
}

/// Arranges all buffers and gives them places.
fn settle(func: &mut Func, arch: Arch) -> Result<Settled, Box<Diagnostic>> {
    let arranged = arrange::arrange(func, arch);
    let placed = places::place(func, arch)?;
    Ok(Settled { changed: arranged || placed.changed, blocks: resident::blocks(func, arch, placed.bytes) })
}
