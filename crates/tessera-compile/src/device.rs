//! From optimised Schedule IR to code for a GPU: layouts, Target IR, its optimiser, PTX.

use std::time::Instant;

use tessera_ir::{Diagnostic, Level, Module, PassManager, verify};
use tessera_ptx::ssa;
use tessera_types::Arch;

use crate::driver::{Compiled, Stage, failure};
use crate::pipeline::OptLevel;
use crate::target::{TargetKernel, lower};
use crate::tile::{Remarks, Units, to_tile};

/// A kernel compiled for a GPU.
#[derive(Clone, Debug)]
pub struct DeviceCompiled {
    /// The kernel in Tile IR, with the texts that its places are in.
    pub tile: Module,
    /// The kernel in Target IR, optimised, with what a launch must know.
    pub kernel: TargetKernel,
    /// Which recipes were asked, and what they said.
    pub remarks: Remarks,
    /// What was done behind the stages of [`Compiled`], in order.
    pub stages: Vec<Stage>,
}

/// Compiles an optimised kernel for an architecture. A kernel of Tile IR is taken as it is.
///
/// # Errors
/// What the architecture does not have; more threads or shared memory than a block has there.
pub fn compile_for(compiled: &Compiled, arch: Arch, level: OptLevel) -> Result<DeviceCompiled, Vec<Diagnostic>> {
    let mut stages = Vec::new();
    let stage = |stages: &mut Vec<Stage>, name: &'static str, start: Instant| {
        stages.push(Stage { name, time: start.elapsed(), changed: true, text: None });
    };
    let start = Instant::now();
    let room = arch.limits().shared_per_block;
    let (mut tile, mut remarks) = laid_out(compiled, arch, room)?;
    stage(&mut stages, "layouts", start);
    let mut lowered = on_target(&mut tile, arch, level, &mut stages);
    // A recipe may leave too little for what the rest of the kernel exchanges: then it gets half.
    let too_large = |found: &Vec<Diagnostic>| found.iter().any(|error| error.id == "target-shared-memory");
    if lowered.as_ref().is_err_and(too_large) && compiled.func().level != Level::Tile {
        (tile, remarks) = laid_out(compiled, arch, room / 2)?;
        lowered = on_target(&mut tile, arch, level, &mut stages);
    }
    let mut kernel = lowered?;
    let start = Instant::now();
    let level = match level {
        OptLevel::O0 => ssa::Level::O0,
        OptLevel::O1 => ssa::Level::O1,
        OptLevel::O2 | OptLevel::O3 => ssa::Level::O2,
    };
    ssa::optimize(&mut kernel.kernel, level);
    stage(&mut stages, "optimise-target", start);
    Ok(DeviceCompiled { tile, kernel, remarks, stages })
}

/// Runs the passes over Tile IR, then lowers the kernel.
fn on_target(tile: &mut Module, arch: Arch, level: OptLevel, stages: &mut Vec<Stage>) -> Result<TargetKernel, Vec<Diagnostic>> {
    let mut manager = PassManager { target: Some(arch), ..PassManager::default() };
    let times = manager.run(tile, &level.tile_passes()).map_err(failure)?;
    stages.extend(times.into_iter().map(|run| Stage { name: run.pass, time: run.time, changed: run.changed, text: run.text }));
    let start = Instant::now();
    let kernel = lower(tile, &tile.funcs[0], arch).map_err(|error| vec![error])?;
    stages.push(Stage { name: "target", time: start.elapsed(), changed: true, text: None });
    Ok(kernel)
}

/// The kernel in Tile IR, with what the recipes said; they may use `shared` bytes of shared memory.
fn laid_out(compiled: &Compiled, arch: Arch, shared: u32) -> Result<(Module, Remarks), Vec<Diagnostic>> {
    let mut tile = compiled.module.clone();
    if compiled.func().level == Level::Tile {
        return Ok((tile, Remarks::default()));
    }
    let units = Units::of(arch, shared);
    let (func, remarks) = to_tile(compiled.func(), &units).map_err(|error| vec![error])?;
    tile.funcs = vec![func];
    let wrong = verify(&tile);
    if wrong.is_empty() { Ok((tile, remarks)) } else { Err(wrong) }
}
