//! Tile IR to Target IR and PTX.
//!
//! [`lower`] turns a Tile function into a kernel of Target IR: every value becomes the registers that stand for it in a thread,
//! every operation the instructions of one thread. A [`TargetKernel`] prints as PTX and says what a launcher must know.
//!
//! | subject | files |
//! |---|---|
//! | which subject lowers an operation | `operation` |
//! | values, registers, the kernel's frame | `bound`, `lowering`, `place`, `frame`, `scratch`, `parts`, `recording` |
//! | arithmetic of elements | `elementwise`, `integer`, `float`, `cast`, `narrow`, `math`, `math64` |
//! | tiles | `shape`, `remap`, `reduce`, `scan`, `scan_levels`, `product`, `spread`, `matrix`, `warpgroup` |
//! | memory | `view`, `memory`, `ends`, `vectors`, `atomic`, `shared`, `turn`, `access`, `conflicts`, `sectors`, `engine`, `send` |
//! | blocks of a cluster | `cluster`, `gather` |
//! | control flow and threads | `control`, `threads`, `rings`, `debug`, `print`, `timeline` |
//!
//! Invariants: operations on memory keep the function's order; threads meet where the function says so, and within operations whose
//! threads exchange elements;
//! elementwise IEEE arithmetic, conversions and reductions in tree order give the bits that the CPU executor gives.
//!
//! ```text
//! %sum = addf %a, %b : tile<256xf32, #0>        two registers a thread under 128 threads
//!     %9:b32 = add.rn.f32 %5, %7
//!     %10:b32 = add.rn.f32 %6, %8
//! ```

#![allow(clippy::result_large_err, reason = "a kernel is refused once, and what is reported is a plain value")]

mod access;
mod atomic;
mod between;
mod bound;
mod cast;
mod cluster;
mod conflicts;
mod control;
mod debug;
mod elementwise;
mod ends;
mod engine;
mod float;
mod fma;
mod frame;
mod gather;
mod halves;
mod integer;
mod lowering;
mod math;
mod math64;
mod matrix;
mod memory;
mod narrow;
mod operation;
mod packed;
mod pairs;
mod parts;
mod place;
mod print;
mod product;
mod quotients;
mod recording;
mod reduce;
mod remap;
mod rings;
mod roles;
mod scan;
mod scan_levels;
mod scratch;
mod sectors;
mod send;
mod shape;
mod shared;
mod sparse;
mod spread;
mod threads;
mod timeline;
mod turn;
mod vectors;
mod view;
mod warpgroup;

use std::collections::BTreeMap;

use tessera_ir::attrs::GridAxis;
use tessera_ir::{
    Diagnostic, Func, GridRule, ImageCode, KernelImage, LaunchFacts, Level, Module, OpKind, ScheduleOp, TileOp, bug, launch_notes,
};
use tessera_ptx::ssa;
use tessera_ptx::{Special, Statement, Target};
use tessera_types::Arch;

pub use self::access::Access;
pub use self::conflicts::{BankCost, shared_accesses};
use self::frame::identifier;
use self::lowering::{Lowered, Lowering};
use self::operation::astray;
pub use self::recording::exchanges;
pub use self::scratch::Exchange;
pub use self::sectors::{SECTOR, SectorCost, global_accesses};

/// A kernel in Target IR with what a launch of it must know.
#[derive(Clone, Debug)]
pub struct TargetKernel {
    /// The kernel.
    pub kernel: ssa::Kernel,
    /// The architecture that it was made for.
    pub arch: Arch,
    /// Source files that places refer to, from number 1 on.
    pub files: Vec<String>,
    /// Everything that a launch needs; its code is empty until it is printed.
    pub image: KernelImage,
}

impl TargetKernel {
    /// How many instructions of each mnemonic its PTX has, in order of their names.
    pub fn instruction_mix(&self) -> BTreeMap<&'static str, usize> {
        let (module, _) = ssa::module(std::slice::from_ref(&self.kernel), Target::SM_90A, &self.files);
        let mut mix = BTreeMap::new();
        for function in module.functions() {
            for statement in function.body.iter().flatten() {
                if let Statement::Instruction(instruction) = statement {
                    *mix.entry(instruction.row.mnemonic().text()).or_insert(0) += 1;
                }
            }
        }
        mix
    }

    /// The kernel as PTX, with what a launcher needs in comments at its head.
    pub fn ptx(&self) -> String {
        let target = Target::parse(self.arch.name()).unwrap_or_else(|| bug!("PTX does not know `{}`", self.arch));
        let (module, _) = ssa::module(std::slice::from_ref(&self.kernel), target, &self.files);
        let head: String = launch_notes(&self.image).lines().map(|line| format!("// {line}\n")).collect();
        head + &tessera_ptx::print(&module)
    }

    /// The image with PTX as its code.
    pub fn image(&self) -> KernelImage {
        KernelImage { code: ImageCode::Ptx(self.ptx()), ..self.image.clone() }
    }
}

/// Lowers a Tile function to a kernel of Target IR.
///
/// # Errors
/// What the target does not have, and more threads or shared memory than a block may have.
pub fn lower(module: &Module, func: &Func, arch: Arch) -> Result<TargetKernel, Diagnostic> {
    lower_boxed(module, func, arch).map_err(|diagnostic| *diagnostic)
}

fn lower_boxed(module: &Module, func: &Func, arch: Arch) -> Lowered<TargetKernel> {
    let mut lowering = Lowering::new(module, func, arch);
    if func.level != Level::Tile {
        return Err(lowering.broken("a function of another level"));
    }
    lowering.reserve_buffers()?;
    let threads = func.hints.threads();
    lowering.limits(threads)?;
    lowering.parameters()?;
    lowering.open_gathers()?;
    lowering.block(func.body)?;
    lowering.fetch_maps();
    let shared_bytes = lowering.check_shared(lowering.scratch.reserved)?;
    let files = lowering.files.names(module);
    let launch = LaunchFacts {
        threads: [threads, 1, 1],
        shared_bytes,
        cluster: func.hints.blocks_of_cluster().map(|blocks| [blocks, 1, 1]),
        overlaps_predecessor: lowering.waits_for_predecessor,
        grid: GridRule {
            blocks: [func.hints.shares_of_one(), 1, 1],
            per_multiprocessor: func.hints.persistent,
            fills: has_workspace(func),
            whole_clusters: func.hints.cluster.is_some(),
            programs: func.hints.programs.unwrap_or(1),
        },
        ..LaunchFacts::default()
    };
    let image = KernelImage {
        entry: identifier(&func.name),
        target: arch.name().to_string(),
        code: ImageCode::Ptx(String::new()),
        abi: func.abi.clone(),
        hidden: lowering.hidden,
        launch,
    };
    let finished = lowering.b.finish();
    let kernel = finished.map_err(|error| Box::new(Diagnostic::error("target-broken", func.span, error.to_string()).ours()))?;
    Ok(TargetKernel { kernel, arch, files, image })
}

/// Blocks share the work of those that are asked for.
fn has_workspace(func: &Func) -> bool {
    func.linked_ops().into_iter().any(|op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Workspace { .. })))
}

impl Lowering<'_> {
    /// Lowers an operation about the block's place in the grid.
    fn program(&mut self, data: &tessera_ir::OpData, kind: &ScheduleOp) -> Lowered<()> {
        let reg = match kind {
            ScheduleOp::GetTileBlockId { axis } => self.asked_block(*axis),
            ScheduleOp::GetNumTileBlocks { axis } if self.func.hints.is_launched_otherwise() => self.asked[*axis as usize],
            ScheduleOp::GetNumTileBlocks { axis } => self.b.special(match axis {
                GridAxis::X => Special::NctaidX,
                GridAxis::Y => Special::NctaidY,
                GridAxis::Z => Special::NctaidZ,
            }),
            _ => astray(kind),
        };
        self.bind_regs(data.result(), [reg]);
        Ok(())
    }

    /// The place along an axis of the block that was asked for: what is launched may take several, or be a part of one.
    fn asked_block(&mut self, axis: GridAxis) -> ssa::Value {
        let launched = self.b.special(match axis {
            GridAxis::X => Special::CtaidX,
            GridAxis::Y => Special::CtaidY,
            GridAxis::Z => Special::CtaidZ,
        });
        match (axis, self.func.hints.programs, self.func.hints.shares_of_one()) {
            (GridAxis::X, Some(_), _) => self.program_of(launched),
            (GridAxis::X, None, blocks @ 2..) => {
                let blocks = self.b.u32(blocks);
                self.b.div(tessera_ptx::Type::U32, launched, blocks)
            }
            _ => launched,
        }
    }
}
