//! From optimised Schedule IR to code for a GPU: layouts, Target IR, its optimiser, PTX.

use std::time::Instant;

use tessera_ir::{Diagnostic, Level, Module, verify};
use tessera_ptx::ssa;
use tessera_types::Arch;

use crate::driver::{Compiled, Stage};
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
    let mut stage = |name: &'static str, start: Instant| {
        stages.push(Stage { name, time: start.elapsed(), changed: true, text: None });
    };
    let start = Instant::now();
    let mut tile = compiled.module.clone();
    let mut remarks = Remarks::default();
    if compiled.func().level != Level::Tile {
        let (major, minor) = arch.compute_capability();
        let shared = arch.limits().shared_per_block;
        let units = Units { capability: 10 * major + minor, warpgroups: arch.has_wgmma(), shared };
        let (func, said) = to_tile(compiled.func(), &units).map_err(|error| vec![error])?;
        (tile.funcs, remarks) = (vec![func], said);
        let wrong = verify(&tile);
        if !wrong.is_empty() {
            return Err(wrong);
        }
    }
    stage("layouts", start);
    let start = Instant::now();
    let mut kernel = lower(&tile, &tile.funcs[0], arch).map_err(|error| vec![error])?;
    stage("target", start);
    let start = Instant::now();
    let level = match level {
        OptLevel::O0 => ssa::Level::O0,
        OptLevel::O1 => ssa::Level::O1,
        OptLevel::O2 | OptLevel::O3 => ssa::Level::O2,
    };
    ssa::optimize(&mut kernel.kernel, level);
    stage("optimise-target", start);
    Ok(DeviceCompiled { tile, kernel, remarks, stages })
}
