//! What is known of a kernel for a GPU without running it: its recipe, what it converts, how it uses shared memory, its
//! instructions, and which of a device's limits its inner loop meets first.
//!
//! Everything here is read off the levels of a [`DeviceCompiled`]; what the assembler adds (registers, spills) is its own report.

use std::collections::BTreeMap;

use tessera_ir::{Block, DistributedType, Func, Op, OpKind, Reason, ScheduleOp, Span, TileOp, Type, Value};
use tessera_layout::Conversion as Way;
use tessera_types::{Arch, DType, Device};

use crate::device::DeviceCompiled;
use crate::driver::Compiled;
use crate::ladder::Attempt;
use crate::tile::{Forecast, Remark};
use tessera_target::{Access, BankCost, SectorCost, global_accesses, shared_accesses};

/// A kernel's facts.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The recipes in the order in which they were asked; the one that was taken may have left out what hints ask for; the generic road where all
    /// refused.
    pub recipes: Vec<Remark>,
    /// The partitions that were tried, and which of them was taken.
    pub attempts: Vec<Attempt>,
    /// The position of the one that was taken.
    pub taken: usize,
    /// Why tiles were not cut further, where that was asked.
    pub whole: Option<Reason>,
    /// The plan that was carried out, as text.
    pub plan: Option<String>,
    /// What the rounds of its loops should take.
    pub forecasts: Vec<Forecast>,
    /// Slots of the deepest queue between threads that load and threads that compute; 0 without one.
    pub stages: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Tiles that change their layout.
    pub conversions: Vec<Conversion>,
    /// Instructions on shared memory, with their bank conflicts.
    pub accesses: Vec<Access<BankCost>>,
    /// Instructions on the device's memory, with the sectors that they move.
    pub global: Vec<Access<SectorCost>>,
    /// PTX instructions by mnemonic.
    pub mix: BTreeMap<&'static str, usize>,
    /// Work and traffic of the innermost loop that touches memory, or of the whole kernel where no loop does.
    pub round: Round,
    /// What bounds that on a device of the architecture; `None` where none is known.
    pub bound: Option<Bound>,
}

/// A tile that changes its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Where the tile comes from.
    pub span: Span,
    /// The tile, such as `128x64xbf16`.
    pub tile: String,
    /// Its bytes.
    pub bytes: u64,
    /// How: `free`, `shuffle` or `shared`.
    pub way: &'static str,
    /// It is made again in every round of a loop.
    pub in_loop: bool,
}

/// What a block does in one round of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// It is a loop's.
    pub is_loop: bool,
    /// Arithmetic operations; a multiply-add counts two.
    pub operations: u64,
    /// Those of them that matrix products do, and the types of their factors and sums.
    pub product: Option<(u64, DType, DType)>,
    /// Bytes read and written in memory.
    pub bytes: u64,
}

/// Which limit is met first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The device.
    pub device: &'static str,
    /// Operations a byte.
    pub intensity: f64,
    /// Operations a byte at which both limits meet.
    pub ridge: f64,
}

impl Bound {
    /// `arithmetic` or `memory`.
    pub fn limit(&self) -> &'static str {
        if self.intensity >= self.ridge { "arithmetic" } else { "memory" }
    }
}

impl DeviceReport {
    /// Reads a compiled kernel's facts off it.
    pub fn new(compiled: &Compiled, device: &DeviceCompiled) -> DeviceReport {
        let (tile, kernel) = (&device.tile.funcs[0], &device.kernel);
        let round = round(compiled.func());
        DeviceReport {
            recipes: device.remarks.asked.clone(),
            attempts: device.attempts.clone(),
            taken: device.taken,
            whole: device.whole.clone(),
            plan: device.plan.clone(),
            forecasts: device.forecasts.clone(),
            stages: stages(tile),
            threads: kernel.image.launch.threads[0],
            shared_bytes: kernel.image.launch.shared_bytes,
            conversions: conversions(tile),
            accesses: shared_accesses(&kernel.kernel),
            global: global_accesses(&kernel.kernel),
            mix: kernel.instruction_mix(),
            round,
            bound: bound(&round, kernel.arch),
        }
    }

    /// The recipe that was taken.
    pub fn recipe(&self) -> &'static str {
        self.recipes.iter().find(|remark| remark.taken).map_or("generic", |remark| remark.recipe)
    }

    /// The worst bank conflict of all instructions within at least so many loops; 0 where there is none.
    pub fn worst_degree(&self, loops: u32) -> u32 {
        self.accesses.iter().filter(|access| access.loops >= loops).filter_map(|access| access.cost.degree).max().unwrap_or(0)
    }
}

fn stages(tile: &Func) -> u32 {
    let slots = |op: Op| match &tile.ops[op].kind {
        OpKind::Tile(TileOp::Ring { stages, .. }) => Some(*stages),
        _ => None,
    };
    tile.linked_ops().into_iter().filter_map(slots).max().unwrap_or(0)
}

fn distributed(func: &Func, value: Value) -> Option<&DistributedType> {
    match func.ty(value) {
        Type::Distributed(ty) => Some(ty),
        _ => None,
    }
}

fn conversions(tile: &Func) -> Vec<Conversion> {
    let mut found = Vec::new();
    visit(tile, tile.body, 0, &mut |op, depth| {
        let data = &tile.ops[op];
        if !matches!(data.kind, OpKind::Tile(TileOp::ConvertLayout {})) {
            return;
        }
        let (Some(from), Some(to)) = (distributed(tile, data.one(0)), distributed(tile, data.result())) else { return };
        let element = from.tile.elem.bytes();
        let way = match tessera_layout::conversion(&from.layout, &to.layout, element) {
            Ok(Way::Same | Way::Registers(_)) => "free",
            Ok(Way::Shuffle(_)) => "shuffle",
            Ok(Way::Shared(_)) | Err(_) => "shared",
        };
        let shape: Vec<String> = from.tile.shape.iter().map(u32::to_string).collect();
        let text = format!("{}x{}", shape.join("x"), from.tile.elem);
        let bytes = from.tile.len() as u64 * element;
        found.push(Conversion { span: data.span, tile: text, bytes, way, in_loop: depth > 0 });
    });
    found
}

/// Every operation with the number of loops around it.
fn visit(func: &Func, block: Block, depth: u32, see: &mut impl FnMut(Op, u32)) {
    for &op in &func.blocks[block].ops {
        see(op, depth);
        let data = &func.ops[op];
        let deeper = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
        data.regions.iter().for_each(|&region| visit(func, region, depth + u32::from(deeper), see));
    }
}

/// The work of the deepest loop that touches memory.
fn round(func: &Func) -> Round {
    let mut by_depth: BTreeMap<u32, Round> = BTreeMap::new();
    visit(func, func.body, 0, &mut |op, depth| {
        let round = by_depth.entry(depth).or_default();
        round.is_loop = depth > 0;
        add(func, op, round);
    });
    by_depth.into_values().rev().find(|round| round.bytes > 0).unwrap_or_default()
}

fn add(func: &Func, op: Op, round: &mut Round) {
    let data = &func.ops[op];
    let OpKind::Schedule(kind) = &data.kind else { return };
    let tile = |value: Value| func.ty(value).the_tile();
    let elements = |value: Value| tile(value).len() as u64;
    let bytes = |value: Value| elements(value) * tile(value).elem.bits() / 8;
    match kind {
        ScheduleOp::LoadViewTko { .. } | ScheduleOp::LoadPtrTko { .. } => round.bytes += bytes(data.results[0]),
        ScheduleOp::StoreViewTko { .. } => round.bytes += bytes(data.one(0)),
        ScheduleOp::StorePtrTko { .. } => round.bytes += bytes(data.one(1)),
        ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } => {
            let (lhs, acc) = (tile(data.one(0)), tile(data.one(2)));
            let operations = 2 * acc.len() as u64 * u64::from(lhs.shape[lhs.shape.len() - 1]);
            round.operations += operations;
            if let (Some(factor), Some(sum)) = (lhs.elem.num(), acc.elem.num()) {
                round.product = Some((round.product.map_or(0, |(known, ..)| known) + operations, factor, sum));
            }
        }
        ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. } => round.operations += elements(data.operands[0]),
        ScheduleOp::Fma { .. } => round.operations += 2 * elements(data.result()),
        _ if data.row().has(tessera_ir::Trait::Elementwise) => {
            let floats = data.results.iter().filter(|&&value| !func.ty(value).is_scalar());
            round.operations += floats.map(|&value| elements(value)).sum::<u64>();
        }
        _ => {}
    }
}

/// The limit of the architecture's fastest product.
fn bound(round: &Round, arch: Arch) -> Option<Bound> {
    if round.bytes == 0 {
        return None;
    }
    let devices = Device::ALL.iter().filter(|device| device.arch == arch);
    let device = devices.max_by(|a, b| a.dram_gbps.total_cmp(&b.dram_gbps))?;
    let (factor, sum) = match round.product {
        Some((_, factor, sum)) => (factor, sum),
        None => (DType::F32, DType::F32),
    };
    let peak = device.peak(factor, sum)?;
    let intensity = round.operations as f64 / round.bytes as f64;
    Some(Bound { device: device.name, intensity, ridge: device.ridge(peak) })
}
