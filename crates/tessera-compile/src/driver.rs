//! The driver: from a kernel in a source file to optimised Schedule IR, with the time of each stage.
//!
//! ```
//! use tessera_compile::{CompileOptions, compile};
//! use tessera_lang::{ArgType, parse_file};
//! use tessera_types::DType;
//!
//! let file = parse_file("double.py", "
//! import cuda.tile as ct
//!
//! @ct.kernel
//! def double(x):
//!     tile = ct.load(x, (ct.bid(0),), (64,))
//!     ct.store(x, (ct.bid(0),), tile + tile)
//! ");
//! let args = [("x".to_string(), ArgType::array(DType::F32, 1))];
//! let compiled = compile(&file, "double", &args, &CompileOptions::default()).unwrap();
//! assert_eq!(compiled.func().name, "double");
//! assert_eq!(compiled.stages[0].name, "lower");
//! ```

use std::time::{Duration, Instant};

use indexmap::IndexMap;
use tessera_ir::uniformity::is_per_thread;
use tessera_ir::{
    Diagnostic, Func, Level, Module, Pass, PassFailure, PassManager, PrintAfter, Sharing, SourceId, caught, verify,
};
use tessera_lang::{ArgType, LowerOptions, ParsedFile, kernel_options, lower_with_notes};

use crate::choices::refuse_without_effect;
use crate::passes::barrier_optimization;
use crate::pipeline::OptLevel;
use crate::tiling::{Grid, OperandFacts, tile_and_schedule};

/// What the caller chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// How much work to put in, unless the kernel says that (`opt_level`).
    pub level: OptLevel,
    /// The level holds, whatever the kernel says.
    pub fixed_level: bool,
    /// The target, such as `sm_90`.
    pub target: Option<String>,
    /// Choices of the schedule by name, such as `BLOCK_M`.
    pub config: IndexMap<String, i64>,
    /// The choices come from a search over the kernel's whole space: one that changes nothing is no mistake then.
    pub searched: bool,
    /// Threads a block of a per-thread kernel.
    pub block: Option<u32>,
    /// Marks are put in and recorded, in every block whose number is a multiple of this.
    pub timeline: Option<u32>,
    /// What blocks of a product share on a GPU, where its plan can have them share it; without it the compiler chooses.
    pub sharing: Option<Sharing>,
    /// Blocks of a cluster that load together on a GPU, where its plan can have them: a power of two; 0 asks for none.
    pub cluster: u32,
    /// Clusters that share the rounds of each block that is asked for, where their blocks split rounds; 0 asks for none.
    pub clusters: u32,
    /// Warps of a block that compute; 0 leaves that to the compiler.
    pub warps: u32,
    /// Blocks that a multiprocessor shall hold at once; 0 leaves that to the compiler.
    pub resident: u32,
    /// A plan for the kernel on a GPU, instead of the one that would be chosen: its file's name, and its text.
    pub plan: Option<(String, String)>,
    /// Verify after each pass.
    pub verify_each: bool,
    /// After which passes the text is kept.
    pub print_after: PrintAfter,
}

impl CompileOptions {
    /// The level for a kernel.
    fn level_of(&self, kernel: Option<&Func>) -> OptLevel {
        let own = kernel.and_then(|func| func.hints.opt_level).filter(|_| !self.fixed_level);
        own.and_then(|number| OptLevel::ALL.get(number as usize).copied()).unwrap_or(self.level)
    }
}

/// A stage of the compilation.
#[derive(Clone, Debug)]
pub struct Stage {
    /// `lower`, `verify` or a pass.
    pub name: &'static str,
    /// How long it took.
    pub time: Duration,
    /// Whether it changed anything.
    pub changed: bool,
    /// The text after it, where asked for.
    pub text: Option<String>,
}

/// An optimised kernel.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// A module of one function, of Schedule or (a per-thread kernel) Tile IR, and the constants that it uses.
    pub module: Module,
    /// How many blocks the kernel needs, where the compiler chose the tiles.
    pub grid: Option<Grid>,
    /// The level that it was optimised at.
    pub level: OptLevel,
    /// Options of a block program that the caller chose by name, each of which has to do something.
    pub asked: Vec<String>,
    /// What was done, in order.
    pub stages: Vec<Stage>,
    /// Warnings and notes.
    pub notes: Vec<Diagnostic>,
    /// The text of a plan by hand, among the module's sources.
    pub plan: Option<SourceId>,
}

impl Compiled {
    /// The kernel.
    pub fn func(&self) -> &Func {
        &self.module.funcs[0]
    }

    /// The kernel as lock-step runs it: where its threads have programs of their own, with the barriers that a device gets where they share memory without one.
    pub fn in_lockstep(&self) -> Func {
        let mut func = self.func().clone();
        if is_per_thread(&func) {
            barrier_optimization::complete(&mut func);
        }
        func
    }
}

/// Compiles one kernel of a file for given arguments. A choice of the caller's that changes nothing is an error.
pub fn compile(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    caught(|| {
        let mut compiled = compile_as_asked(file, kernel, args, options)?;
        if !options.searched {
            refuse_without_effect(file, kernel, args, options, &compiled)?;
            compiled.asked =
                options.config.keys().filter(|name| kernel_options().any(|option| option == *name)).cloned().collect();
        }
        Ok(compiled)
    })
}

pub(crate) fn compile_as_asked(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    let start = Instant::now();
    let lower_options = LowerOptions {
        target: options.target.clone(),
        config: options.config.clone(),
        block: options.block,
        ..LowerOptions::default()
    };
    let lowered = lower_with_notes(file, kernel, args, &lower_options)?;
    let stage = Stage { name: "lower", time: start.elapsed(), changed: true, text: None };
    let facts: Vec<Option<OperandFacts>> = match lowered.module.funcs.first() {
        Some(func) => func.abi.params.iter().map(|param| operand_facts(&param.name, args)).collect(),
        None => return Err(vec![Diagnostic::bare("no-kernel", format!("`{kernel}` gives no function"))]),
    };
    let mut compiled = compile_module(lowered.module, &facts, options)?;
    compiled.stages.insert(0, stage);
    compiled.notes = lowered.notes;
    Ok(compiled)
}

/// Compiles a module of IR text whose first function is the kernel, for arguments of these types (which Graph IR is tiled for).
///
/// Schedule and Tile IR mean what they say: their products and sums were contracted when it was made, and are not a second time, so that
/// what `compile` gives keeps its bits when it is compiled again.
pub fn compile_ir(mut module: Module, args: &[(String, ArgType)], options: &CompileOptions) -> Result<Compiled, Vec<Diagnostic>> {
    let mut facts = Vec::new();
    let level = options.level_of(module.funcs.first());
    let mut pipeline = level.passes();
    if let Some(func) = module.funcs.first_mut() {
        let own = (func.level == Level::Tile).then(|| func.hints.threads());
        if let Some(asked) = options.block.filter(|&asked| own != Some(asked)) {
            let message = match own {
                Some(own) => format!("`{}` was made for {own} threads a block, {asked} are asked for", func.name),
                None => format!("`{}` is a block program: it has no threads to count", func.name),
            };
            return Err(vec![Diagnostic::error("block-size", func.span, message).help("leave out `--block`")]);
        }
        for (name, value) in &options.config {
            match func.config.get_mut(name) {
                Some(choice) if func.level == Level::Graph => *choice = *value,
                _ => {
                    let message = format!("`{}` has no choice `{name}` left", func.name);
                    let help = match (func.level, func.config.is_empty()) {
                        (Level::Schedule | Level::Staged | Level::Tile, _) => "choose when compiling the source".to_string(),
                        (Level::Graph, true) => "it has no `config(...)`".to_string(),
                        (Level::Graph, false) => {
                            format!("choices: {}", func.config.keys().cloned().collect::<Vec<_>>().join(", "))
                        }
                    };
                    return Err(vec![Diagnostic::error("config", func.span, message).help(help)]);
                }
            }
        }
        facts.extend(func.abi.params.iter().map(|param| operand_facts(&param.name, args)));
        match func.level {
            Level::Graph => {}
            Level::Schedule => pipeline.retain(|pass| pass.name != "fma-contract"),
            // What was spread over threads is taken as it is.
            Level::Staged => pipeline.clear(),
            Level::Tile if func.hints.num_threads.is_none() => pipeline.clear(),
            Level::Tile => pipeline.retain(|pass| pass.name != "fma-contract"),
        }
    }
    caught(|| run_pipeline(module, &facts, options, (level, pipeline)))
}

/// Optimises a module whose first function is the kernel. `facts` has an entry for each of its parameters, or none at all.
pub fn compile_module(
    module: Module,
    facts: &[Option<OperandFacts>],
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    let level = options.level_of(module.funcs.first());
    caught(|| run_pipeline(module, facts, options, (level, level.passes())))
}

fn run_pipeline(
    mut module: Module,
    facts: &[Option<OperandFacts>],
    options: &CompileOptions,
    (level, mut pipeline): (OptLevel, Vec<&'static Pass>),
) -> Result<Compiled, Vec<Diagnostic>> {
    let mut stages = Vec::new();
    let start = Instant::now();
    let wrong = verify(&module);
    stages.push(Stage { name: "verify", time: start.elapsed(), changed: false, text: None });
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut grid = None;
    if let Some(func) = module.funcs.first().filter(|func| func.level == Level::Graph) {
        let start = Instant::now();
        let (tiled, chosen) = tile_and_schedule(func, facts)?;
        module.funcs[0] = tiled;
        grid = Some(chosen);
        let wanted = match &options.print_after {
            PrintAfter::Never => false,
            PrintAfter::All => true,
            PrintAfter::Named(names) => names.iter().any(|name| name == "tile-and-schedule"),
        };
        let text = wanted.then(|| tessera_ir::text::print_module(&module));
        stages.push(Stage { name: "tile-and-schedule", time: start.elapsed(), changed: true, text });
    }
    let mut manager =
        PassManager { verify_each: options.verify_each, print_after: options.print_after.clone(), ..PassManager::default() };
    pipeline.retain(|pass| pass.name != "tile-and-schedule");
    if module.funcs.first().is_some_and(|func| func.level == Level::Tile) {
        // The order of a Tile function's operations on memory is that of its text.
        pipeline.retain(|pass| pass.name != "token-order");
    }
    let times = manager.run(&mut module, &pipeline).map_err(PassFailure::told)?;
    if let Some(func) = module.funcs.first_mut() {
        func.hints.timeline = options.timeline.or(func.hints.timeline);
        if let Some(sharing) = options.sharing {
            func.hints.sharing = Some(sharing.number());
        }
        if options.cluster > 0 {
            func.hints.num_ctas = Some(options.cluster);
        }
        if options.clusters > 0 {
            func.hints.num_clusters = Some(options.clusters);
        }
        if options.warps > 0 {
            func.hints.num_warps = Some(options.warps);
        }
        if options.resident > 0 {
            func.hints.occupancy = Some(options.resident);
        }
    }
    stages.extend(times.into_iter().map(|run| Stage { name: run.pass, time: run.time, changed: run.changed, text: run.text }));
    let plan = options.plan.as_ref().map(|(name, text)| module.sources.add(name, text.as_str()));
    Ok(Compiled { module, grid, level, asked: Vec::new(), stages, notes: Vec::new(), plan })
}

fn operand_facts(name: &str, args: &[(String, ArgType)]) -> Option<OperandFacts> {
    match &args.iter().find(|(arg, _)| arg == name)?.1 {
        ArgType::Array { shape, strides, align, lines, index, disjoint, .. } => Some(OperandFacts {
            shape: shape.clone(),
            strides: strides.clone(),
            index: *index,
            align: *align,
            lines: *lines,
            disjoint: *disjoint,
        }),
        ArgType::List { .. } | ArgType::Tuple(_) | ArgType::Scalar(_) | ArgType::Const(_) | ArgType::Stated { .. } => None,
    }
}
