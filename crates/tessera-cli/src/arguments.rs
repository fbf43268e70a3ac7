//! The command line's grammar. What a command does is in `command/`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Tile kernels: compile, run, check and measure them, with or without a GPU.
#[derive(Debug, Parser)]
#[command(name = "tessera", version = tessera::bench::VERSION, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one kernel, or an operator of the library, on arguments given on the command line.
    #[command(
        after_help = "Example:\n  tessera run kernels.py::softmax x=@x.npy y=empty:f32[128,1000] N=1024 --grid 128 --save y=y.npy\n  tessera run softmax.tir::softmax x=@x.npy y=empty:f32[128,1000] --grid 128\n  tessera run gemm A=@x.npy B=randn:f32[64,1000] variant=nt --save C=product.npy"
    )]
    Run(Run),
    /// Check a kernel, or the library's operators, for right results.
    #[command(
        after_help = "Examples:\n  tessera check softmax gemm --precision fp32,bf16\n  tessera check gemm --device cuda --cases 500 --seed 7\n  tessera check kernels.py::add a=randn:f32[1000] b=randn:f32[1000] c=empty:f32[1000] TILE=256 --grid 4 --against c.npy"
    )]
    Check(Check),
    /// Check, then time operators, and print a table.
    #[command(
        after_help = "Examples:\n  tessera bench\n  tessera bench gemm --precision fp32 --sizes m=1024,n=1024,k=1024 --out results.jsonl\n  tessera bench all_reduce --ranks 4 --sizes bytes=4096..1048576*16 --precision bf16\n  tessera bench kernels.py::add a=randn:f32[n] b=randn:f32[n] c=empty:f32[n] TILE=256 --grid 'cdiv(n,256)' --sizes n=1024..4096*2"
    )]
    Bench(Bench),
    /// Compile a kernel and print it at one level.
    #[command(after_help = "Example:\n  tessera compile kernels.py::softmax x=f32[?,?] y=f32[?,?] N=1024 --emit schedule")]
    Compile(Compile),
    /// Run passes over an IR file.
    #[command(
        after_help = "Example:\n  tessera opt kernel.tir --pipeline O3 --verify-each --time\n  tessera opt kernel.tir --pass intrinsic-lowering --target sm_90a --diff"
    )]
    Opt(Opt),
    /// Run kernels of PTX files on the emulator, with its sanitizers.
    #[command(
        after_help = "Examples:\n  tessera emu kernel.ptx --entry add --grid 4 --block 256 zeros:f32[1024] y=arange:f32[1024] 1024 --sanitize all\n  tessera emu gemm.ptx --grid 1 --block 384 'map(a=randn:bf16[128,64];tile=64,128;swizzle=128)' 1 --shared 65536 --schedule lazy\n  tessera emu two.ptx --entry fill --grid 1 --block 32 x=empty:f32[32] --set scale=2.0 --then --entry sum --grid 1 --block 32 x y=empty:f32[1]"
    )]
    Emu(Emu),
    /// Find the choices of a kernel, or of an operator's kernels, that take least, and write them to a lockfile.
    #[command(
        after_help = "Examples:\n  tessera tune gemm.py::gemm a=randn:f16[1024,1024] b=randn:f16[1024,1024] c=empty:f16[1024,1024]\n  tessera tune gemm --sizes m=4096,n=4096,k=4096 --precision bf16 --device cuda\n  tessera tune gemm.py::gemm a=empty:f16[4096,4096] b=empty:f16[4096,4096] c=empty:f16[4096,4096] --predict h200 --most 10"
    )]
    Tune(Tune),
    /// Compile kernels beforehand, into one file from which they are launched without a compiler.
    #[command(
        after_help = "Examples:\n  tessera bundle gemm.py::gemm a=f16[?,?] b=f16[?,?] c=f16[?,?] --target sm_80 --target sm_90a -o kernels.tbundle\n  tessera bundle kernels.py::softmax x=f32[?,?] y=f32[?,?] N=1024 kernels.py::softmax x=f32[?,?] y=f32[?,?] N=2048 -o kernels.tbundle\n  tessera bundle softmax batch=1 heads=1 queries=128 keys=1000 gemm m=64 n=64 k=64 variant=nt --precision fp32 -o kernels.tbundle\n  tessera bundle kernels.tbundle --list"
    )]
    Bundle(Bundle),
    /// Compare two results files, or measure two sides in turn; exit code 1 when something got slower.
    #[command(
        after_help = "Examples:\n  tessera compare base.jsonl new.jsonl\n  tessera compare --run ./tessera-before ./tessera-after gemm softmax --device cuda\n  tessera compare --run old.py::softmax new.py::softmax x=randn:f32[4096,1000] y=empty:f32[4096,1000] N=1024 --grid 4096\n  tessera compare --run gemm.py::gemm gemm.py::gemm a=randn:f16[512,512] b=randn:f16[512,512] c=empty:f16[512,512] --config BLOCK_M=64 --config BLOCK_M=128 --least 2%"
    )]
    Compare(Compare),
    /// Make an HTML report (or CSV or Markdown) of results files.
    #[command(after_help = "Example:\n  tessera report results.jsonl -o report.html")]
    Report(Report),
    /// Hold a results file to the ten points that a measurement has to meet.
    #[command(after_help = "Example:\n  tessera checklist results.jsonl")]
    Checklist(Checklist),
    /// List operators, suites, passes, targets, devices or precisions.
    #[command(after_help = "Example:\n  tessera list ops")]
    List(List),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  tessera completions bash > /usr/share/bash-completion/completions/tessera")]
    Completions(Completions),
    /// Write the manual's pages, one a command.
    #[command(after_help = "Example:\n  tessera manual -o /usr/share/man/man1")]
    Manual(Manual),
    /// Say what this machine has and what Tessera will use.
    #[command(after_help = "Example:\n  tessera doctor")]
    Doctor(Doctor),
}

impl Command {
    /// The folders that `--path` names.
    pub(crate) fn path(&self) -> &[PathBuf] {
        match self {
            Command::Run(run) => &run.launch.project.path,
            Command::Check(check) => &check.project.path,
            Command::Compile(compile) => &compile.project.path,
            Command::Bundle(bundle) => &bundle.project.path,
            Command::Compare(compare) => &compare.duel.project.path,
            Command::Tune(tune) => &tune.launch.project.path,
            _ => &[],
        }
    }
}

/// Where a kernel's file belongs.
#[derive(Debug, Args)]
pub(crate) struct Project {
    /// A folder in which the file's imports are looked for, behind its own; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Vec<PathBuf>,
}

/// A kernel and its launch.
#[derive(Debug, Args)]
pub(crate) struct Launch {
    /// `FILE::KERNEL`; the file is a `.py`, a `.tir` of any level, or, for `run`, a `.tbundle`. Or an operator of the library
    /// (`tessera list ops`).
    pub(crate) subject: String,
    /// `NAME=VALUE`, `NAME=DIST:DTYPE[D0,D1,...]` (zeros ones randn rand arange empty iota const(V); `;seed=N` may follow), or
    /// `NAME=@file.npy` (`;dtype=f8e4m3` where NumPy has no name for the type), `NAME=@file.safetensors#tensor`, or a list
    /// `NAME=[ARRAY,...]`. An operator takes its arrays by name, `variant=NAME`, and makes its output where that is not given.
    pub(crate) arguments: Vec<String>,
    /// Blocks along each axis, `X[,Y[,Z]]`; `auto` for declarative kernels.
    #[arg(long)]
    pub(crate) grid: Option<String>,
    #[command(flatten)]
    pub(crate) project: Project,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// Where to run: `cpu`, `emu`, `cuda` or `cuda:N`; the best that works when absent.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Threads a block of a SIMT kernel.
    #[arg(long)]
    pub(crate) block: Option<u32>,
    /// Write an argument's final contents to a .npy file.
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) save: Vec<String>,
    /// Write when the kernel's warps came to its marks: a trace for ui.perfetto.dev, or for `tessera report OUT -o OUT.svg`.
    #[arg(long, value_name = "OUT.json")]
    pub(crate) timeline: Option<String>,
    /// Fixes every choice of the emulator's random schedule; 0 when absent.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many ranks run a function with a mesh of one axis: on the CPU, with `--device cuda` on a GPU each, and where torchrun, MPI or Slurm
    /// started this process, one rank a process. As many as the mesh has when absent.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// Compare the ranks' calls before each exchange: calls that do not match are found before they hang.
    #[arg(long)]
    pub(crate) check_calls: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) emulation: Emulation,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) optimise: Optimise,
}

#[derive(Debug, Args)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// Of an operator, `quick`, `seed`, `all`, or extents such as `m=1024,n=1024,k=1024`; of a kernel, names that its arguments' sizes
    /// and its grid are written with: `x=randn:f32[m,n]`. Each combination is tuned. `@FILE` has one such text a line.
    #[arg(long)]
    pub(crate) sizes: Option<String>,
    /// Precision policies of an operator, such as `fp32,bf16`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) precision: Vec<String>,
    /// Where to run: `cpu`, `emu` (nothing is timed: the model decides, or the count of instructions), `cuda` or `cuda:N`; the best that
    /// works when absent.
    #[arg(long, conflicts_with = "predict")]
    pub(crate) device: Option<String>,
    /// Only say what each candidate should take on a product, such as `h200`: the plans of a kernel, or an operator's ways to cut a problem into
    /// blocks. That needs no device, and writes no lockfile.
    #[arg(long, value_name = "PRODUCT")]
    pub(crate) predict: Option<String>,
    /// Try N candidates at most, those that should take least [default: 32, with `--predict` all].
    #[arg(long, value_name = "N")]
    pub(crate) most: Option<NonZeroUsize>,
    /// Which results are allowed: `any` that are right, or `stable` ones, with the bits of the kernel that nobody tuned.
    #[arg(long, value_enum, default_value = "any")]
    pub(crate) bits: Bits,
    /// The lockfile to write; when absent the one of the kernel's `cache=`, else `tessera.lock`.
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<String>,
    /// Decides the order of measurements and an operator's inputs; 1 when absent.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) emulation: Emulation,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// The allowed difference of a kernel from its unoptimised results, as a part of those.
    #[arg(long)]
    pub(crate) rtol: Option<f64>,
    /// The allowed difference of everything.
    #[arg(long)]
    pub(crate) atol: Option<f64>,
    /// Write the plan that takes least here, for `--plan`.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// Print one JSON object a line for each candidate.
    #[arg(long)]
    pub(crate) json: bool,
    /// Optimisation level, 1 to 3.
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) level: u8,
}

/// Which results a tuned kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bits {
    /// Sums in any order.
    Any,
    /// Sums in the order of the kernel that nobody tuned.
    Stable,
}

/// Where tuned choices are.
#[derive(Debug, Args)]
pub(crate) struct Locking {
    /// The lockfile of tuned choices (`tessera tune` writes it); when absent the one of the kernel's `cache=`, else `tessera.lock` where
    /// there is one.
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<String>,
    /// A choice that the lockfile does not have is an error.
    #[arg(long, conflicts_with_all = ["config", "plan"])]
    pub(crate) frozen: bool,
}

/// What the emulator looks for and how it runs.
#[derive(Debug, Args)]
pub(crate) struct Emulation {
    /// Look for mistakes: `all`, or any of bounds, race, init, and on the CPU padding, on the emulator barrier, flight
    /// (operands of products under way) and advice (bank conflicts, scattered accesses).
    #[arg(long, value_name = "CHECKS")]
    pub(crate) sanitize: Option<String>,
    /// The emulator's interleaving: `eager`, `lazy`, `random` or `systematic` (every one that can differ, for small kernels).
    #[arg(long, value_name = "HOW")]
    pub(crate) schedule: Option<String>,
    /// The emulator's multiprocessors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sms: Option<u32>,
    /// What the emulator is: a target such as `sm_80`, or a product.
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<String>,
    /// Write down what one warp executes, with values: the block's number in the grid, the warp's in the block.
    #[arg(long, value_name = "BLOCK,WARP")]
    pub(crate) trace: Option<String>,
    /// The least class of the emulator's findings that ends the command with exit code 2: `wrong` (values can differ; the
    /// default), `formal` (against the rules, and no value differs in practice), `advice`, or `none`.
    #[arg(long, value_enum, value_name = "CLASS")]
    pub(crate) fail_on: Option<FailOn>,
    /// Go on behind the emulator's findings where that is meaningful, and tell all of them, each place once with a count.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Let pass the findings that a file lists, one `FINDING KERNEL PLACE -- REASON` a line (`docs/emulator.md`).
    #[arg(long, value_name = "FILE")]
    pub(crate) suppress: Option<String>,
}

/// What `--fail-on` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Values can differ.
    Wrong,
    /// Formal findings, too.
    Formal,
    /// Advice, too.
    Advice,
    /// No finding fails.
    None,
}

/// How long a launch may take.
#[derive(Debug, Args)]
pub(crate) struct Patience {
    /// Seconds that a launch may take before it counts as one that never ends; a minute for each of its blocks when absent, and on a
    /// GPU for all of them.
    #[arg(long, value_name = "S")]
    pub(crate) timeout: Option<f64>,
}

/// A launch of a kernel of a PTX file.
#[derive(Clone, Debug, Args)]
pub(crate) struct EmuLaunch {
    /// Arguments in the order of the parameters, each `[NAME=]VALUE`: a number, an array (`DIST:DTYPE[D0,...]`, `@FILE.npy`), a place in
    /// one that has a name (`x`, `x[2,3]`, `x+64`), `[VALUE,...]` (memory that holds these; its address), `{VALUE,...}` (a struct),
    /// `DTYPE(N,...)`, `bytes(HEX)`, `bytes(@FILE)`, `pad(N)`, `map(ARRAY;tile=INNER,...;...)`, `tex(ARRAY;...)`, `surf(ARRAY;...)`.
    #[arg(allow_negative_numbers = true)]
    pub(crate) arguments: Vec<String>,
    /// The kernel; needed where the file has several.
    #[arg(long)]
    pub(crate) entry: Option<String>,
    /// Blocks along each axis, `X[,Y[,Z]]`.
    #[arg(long)]
    pub(crate) grid: String,
    /// Threads of a block along each axis.
    #[arg(long)]
    pub(crate) block: String,
    /// Blocks of a cluster along each axis.
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    /// Bytes of dynamic shared memory.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) shared: u32,
    /// Write to a `.global` or `.const` variable in front of the launch: the elements of an array, or what a struct would hold. Also
    /// `NAME[INDEX]=VALUE` and `NAME+BYTES=VALUE`, and arrays.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What stands behind `--then`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct Then {
    /// Another `.ptx` file.
    #[arg(long)]
    pub(crate) file: Option<String>,
    #[command(flatten)]
    pub(crate) launch: EmuLaunch,
}

#[derive(Debug, Args)]
pub(crate) struct Emu {
    /// A `.ptx` file.
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) launch: EmuLaunch,
    /// An array that no parameter takes, for addresses and textures that name it.
    #[arg(long, value_name = "NAME=ARRAY")]
    pub(crate) array: Vec<String>,
    /// Fixes every choice of the random schedule; 0 when absent.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write an array's or a variable's final contents to a .npy file.
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) save: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) emulation: Emulation,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// A further launch on the same memory, with arguments and options of its own (`--file`, `--entry`, `--grid`, `--block`,
    /// `--cluster`, `--shared`, `--set`). It takes all that follows; several may stand one behind the other.
    #[arg(long, value_name = "ARGUMENTS", num_args = 1.., allow_hyphen_values = true)]
    pub(crate) then: Vec<String>,
}

/// How to compile.
#[derive(Debug, Args)]
pub(crate) struct Optimise {
    /// Optimisation level, 0 to 3; without it a block program's `opt_level`, else 3.
    #[arg(short = 'O', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) level: Option<u8>,
    /// Schedule choices: `BLOCK_M=64,num_stages=3`; of a block program its decorator's options, as `num_stages=4,sharing=3`.
    #[arg(long, value_name = "K=V,...", value_delimiter = ',')]
    pub(crate) config: Vec<String>,
    /// How a kernel of a file is spread over warps and rings, on a GPU or the emulator: a plan as `compile --emit plan` prints it.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<String>,
    #[command(flatten)]
    pub(crate) locking: Locking,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Operators, or one `FILE::KERNEL` and its arguments; every operator when nothing is named.
    pub(crate) subjects: Vec<String>,
    /// Blocks along each axis, for a kernel.
    #[arg(long)]
    pub(crate) grid: Option<String>,
    /// Threads a block of a SIMT kernel.
    #[arg(long)]
    pub(crate) block: Option<u32>,
    #[command(flatten)]
    pub(crate) reference: Reference,
    /// Where to run: `cpu`, `emu`, `cuda` or `cuda:N`; the best that works when absent.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Precision policies, such as `fp32,bf16`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) precision: Vec<String>,
    /// Sizes of operators: `quick`, `seed`, `all`, or extents such as `m=64..1024*2,n=100,variant=nt`, for `gemm` also `alpha=0.5`, or
    /// `@FILE` with such a text in each line; when absent, the edges of their tiles.
    #[arg(long)]
    pub(crate) sizes: Option<String>,
    /// Hold operators to one relative and absolute distance a type, as many tests do, in place of bounds that follow lengths and magnitudes: f32 1e-5 and
    /// 1e-8, f16 1e-3, bf16 5e-3, f64 1e-12 and 1e-15.
    #[arg(long)]
    pub(crate) table: bool,
    /// Check the simpler kernels of operators' ladders, too (`tessera list ops`).
    #[arg(long)]
    pub(crate) rungs: bool,
    /// Check so many problems of random sizes of each operator, its precisions and variants in turn.
    #[arg(long, value_name = "N")]
    pub(crate) cases: Option<NonZeroUsize>,
    /// Seed of the generated inputs and random sizes of operators (1 when absent), and of the emulator's random schedule.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) emulation: Emulation,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) optimise: Optimise,
    #[command(flatten)]
    pub(crate) project: Project,
}

/// What a kernel's results are compared with, and how far they may be from it.
#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// Compare a kernel's results with `[NAME=]FILE.npy`, with what another kernel writes, `[NAME=]FILE::KERNEL`, or, in `check`, with those
    /// of a device: `cpu`, `emu`, `cuda`. `check` compares with an unoptimised run too, `bench` where nothing is named.
    #[arg(long)]
    pub(crate) against: Vec<String>,
    /// Blocks of the kernel to compare with; those of `--grid` when absent.
    #[arg(long, value_name = "X[,Y[,Z]]")]
    pub(crate) against_grid: Option<String>,
    /// Allowed distance, as a part of what is expected; when absent 1e-10 of f64, 1e-4 of f32, 2e-3 of f16, 1.6e-2 of bf16, a unit in the last place of
    /// 8 bits and less, and 0 of integers.
    #[arg(long, value_name = "R")]
    pub(crate) rtol: Option<f64>,
    /// Allowed distance; when absent, as large a part of the median magnitude in an element's row or column. `check` of operators: with `--rtol` or
    /// `--atol`, both take the place of the reference's own bounds, and what is absent is 0.
    #[arg(long, value_name = "A")]
    pub(crate) atol: Option<f64>,
}

/// How much time a measurement may take.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// A first look.
    Quick,
    /// For regression checks: a case that does not converge is an error.
    Ci,
    /// For numbers that are quoted.
    Publish,
    /// For steps of models that answer: two samples a block, eight blocks.
    Inference,
    /// For steps of models that learn: a sample a block, eight blocks.
    Training,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Operators, or a suite: `quick`, `seed`, `all`, or kernels, `FILE::KERNEL,KERNEL`, and their arguments as `run` takes
    /// them, or collectives (see `--ranks`). The quick suite when nothing is named.
    pub(crate) subjects: Vec<String>,
    /// Blocks along each axis, `X[,Y[,Z]]`, for a kernel, also of names in `--sizes`: `cdiv(m,128),n`; `auto` for declarative ones.
    #[arg(long)]
    pub(crate) grid: Option<String>,
    #[command(flatten)]
    pub(crate) reference: Reference,
    /// Threads a block of a SIMT kernel.
    #[arg(long)]
    pub(crate) block: Option<u32>,
    /// Precision policies, such as `fp32,bf16`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) precision: Vec<String>,
    /// `quick`, `seed`, `all`, or extents such as `m=1024,n=64..1024*2,k=1,2,8`; for a kernel, names that its arguments' sizes, its integers
    /// and its grid are written with: `x=randn:f32[m,2*n]`. `@FILE` has such extents in each line.
    #[arg(long)]
    pub(crate) sizes: Option<String>,
    /// Ranks of collectives (`all_reduce`, `reduce_scatter`, `all_gather`, `all_to_all`, `broadcast`, `send_recv`, or all: `collectives`): 2 on
    /// the CPU, all GPUs on `cuda` when absent. Under a launcher (torchrun, MPI, Slurm) they are the processes that it started.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// How ranks of collectives exchange; all ways of the device in turns when absent. On the CPU `threads` (of one process, by its memory) and
    /// `tcp` (processes, by TCP). On `cuda` `nvlink` (our own kernels, which write to the other GPUs' memory, and NCCL where it is faster) and
    /// `nccl` (NCCL alone). Ranks of a launcher exchange in one way: `tcp` on the CPU, on `cuda` `nccl` unless `nvlink` is named.
    #[arg(long, value_name = "WAY,...", value_delimiter = ',')]
    pub(crate) over: Vec<String>,
    /// Be one rank that `bench` asks on the standard input.
    #[arg(long, hide = true)]
    pub(crate) member: bool,
    /// Where to run: `cpu`, `emu` (checks once, times nothing), `cuda` or `cuda:N`.
    #[arg(long)]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) emulation: Emulation,
    /// How launches on a device are timed: `cold` (singly, other data read through the cache before; the default), `warm` or `graph`.
    #[arg(long, value_name = "HOW")]
    pub(crate) timing: Option<String>,
    /// What is timed in turns beside the kernel: another one, `FILE::KERNEL`. Beside operators a process for a device, such as
    /// `torch=python3 baselines/torch_baseline.py`.
    #[arg(long, value_name = "FILE::KERNEL|NAME=COMMAND")]
    pub(crate) baseline: Vec<String>,
    /// Run so many other ways to cut each case of an operator into blocks beside it, those that should take least: timed on `cuda`, checked on
    /// `emu`.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) ways: usize,
    /// Run the simpler kernels of operators' ladders beside them, too (`tessera list ops`).
    #[arg(long)]
    pub(crate) rungs: bool,
    /// Blocks of baseline kernels; those of `--grid` when absent.
    #[arg(long, value_name = "X[,Y[,Z]]")]
    pub(crate) baseline_grid: Option<String>,
    /// The file of cublasLt, where the loader does not find it by itself.
    #[arg(long, value_name = "FILE")]
    pub(crate) cublaslt: Option<String>,
    /// Measure in this process, which a fault ends; without it, a watched one does.
    #[arg(long, hide = true)]
    pub(crate) unwatched: bool,
    /// End at once when the standard input does: who watches this process has gone.
    #[arg(long, hide = true)]
    pub(crate) tethered: bool,
    /// Measure everything in so many processes, one after the other: 3 in `publish`, else 1.
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<NonZeroUsize>,
    /// Be the process of this number, from 1 on, of those.
    #[arg(long, value_name = "P", hide = true)]
    pub(crate) process: Option<usize>,
    /// Be one process of a side of `compare --run`, which asks on the standard input.
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
    /// How much time to take.
    #[arg(long, value_enum, default_value = "quick")]
    pub(crate) mode: Mode,
    /// Time only the first N cases of the run's order, in which every prefix is a fair sample, and check the rest; the
    /// emulator checks only.
    #[arg(long, value_name = "N")]
    pub(crate) timed: Option<usize>,
    /// Stop starting new cases after this many seconds.
    #[arg(long, value_name = "S")]
    pub(crate) time_limit: Option<f64>,
    /// Skip the cases that this results file has, and append to it.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<String>,
    /// Write results here, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// Print results as JSON Lines instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) optimise: Optimise,
}

/// What `compile` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// Graph IR, of a declarative kernel.
    Graph,
    /// Schedule IR.
    Schedule,
    /// The plan: which warps do what, and what is brought ahead of its use, for the target. `--plan` takes it back.
    Plan,
    /// Tile IR: layouts over threads, for the target.
    Tile,
    /// Target IR: one thread's instructions, before registers are shared.
    Target,
    /// PTX.
    Ptx,
    /// Machine code (needs `ptxas`; with `-o`).
    Cubin,
    /// Machine code as text by the source lines that it came from, with what each line and each loop is made of (needs `ptxas` and
    /// `nvdisasm`).
    Sass,
    /// What was done and how long each stage took.
    Report,
}

#[derive(Debug, Args)]
pub(crate) struct Compile {
    /// `FILE::KERNEL`.
    pub(crate) subject: String,
    /// Argument types: `x=f32[?,?]`, `x=f32[4096,1024];align=16`, `xs=[f32[?],f32[?]]`, `xs=(f32[?],8)`, `eps=f32`, `TM=128`.
    pub(crate) arguments: Vec<String>,
    /// What to compile for.
    #[arg(long, default_value = "cpu")]
    pub(crate) target: String,
    /// Threads a block of a SIMT kernel.
    #[arg(long)]
    pub(crate) block: Option<u32>,
    /// What to print; without it, Schedule IR, and Tile IR of a SIMT kernel.
    #[arg(long, value_enum)]
    pub(crate) emit: Option<Emit>,
    /// Write here instead of to the terminal.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<String>,
    /// Print one JSON object: the report's fields, or the level's text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) optimise: Optimise,
    #[command(flatten)]
    pub(crate) project: Project,
}

#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// `FILE::KERNEL` with its arguments' types as `compile` takes them, or an operator of the library with sizes such as `m=64 n=100 k=32`
    /// and `variant=nt`; or several of both. A kernel that is named again is packed for other types; what a launch tries first stands
    /// first.
    #[arg(required = true)]
    pub(crate) subjects: Vec<String>,
    /// What to compile for; may be given several times.
    #[arg(long, default_value = "sm_90a")]
    pub(crate) target: Vec<String>,
    /// Put machine code beside the PTX (needs `ptxas`): the driver then assembles nothing.
    #[arg(long)]
    pub(crate) cubin: bool,
    /// Precision policies of operators, such as `fp32,bf16`; those of their suites when absent.
    #[arg(long, value_delimiter = ',')]
    pub(crate) precision: Vec<String>,
    /// Sizes of operators that have none of their own: `m=64,n=100,k=32,variant=nt`, or `quick`, `seed`, `all`.
    #[arg(long)]
    pub(crate) sizes: Option<String>,
    /// Threads a block of SIMT kernels.
    #[arg(long)]
    pub(crate) block: Option<u32>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<String>,
    /// List the variants of a bundle's file.
    #[arg(long, conflicts_with_all = ["output", "cubin", "target", "precision", "sizes", "block", "lock", "frozen"])]
    pub(crate) list: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) optimise: Optimise,
    #[command(flatten)]
    pub(crate) project: Project,
}

#[derive(Debug, Args)]
pub(crate) struct Opt {
    /// A `.tir` file.
    pub(crate) file: String,
    /// Passes in order.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) pass: Vec<String>,
    /// A named pipeline: `O0` to `O3` (block programs), `tile` (the passes of Tile IR), `default` (all the way to Tile IR).
    #[arg(long, conflicts_with = "pass")]
    pub(crate) pipeline: Option<String>,
    /// What passes compile for, such as `sm_90a`.
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// Verify after each pass.
    #[arg(long)]
    pub(crate) verify_each: bool,
    /// Print the module after each pass.
    #[arg(long)]
    pub(crate) print_after_all: bool,
    /// Print what each pass changed.
    #[arg(long)]
    pub(crate) diff: bool,
    /// Print how long each pass took.
    #[arg(long)]
    pub(crate) time: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The results to compare with, `FILE` or `FILE,FILE`: the more sessions, the smaller the changes that are found. With
    /// `--run` a side: a program (`self` is this one), or `FILE::KERNEL`.
    pub(crate) base: String,
    /// The results to judge, or the other side.
    pub(crate) new: String,
    /// With `--run`: operators or a suite as `bench` takes them, or the arguments of the kernels.
    #[arg(requires = "run")]
    pub(crate) subjects: Vec<String>,
    /// Measure both sides now, pair after pair of processes in turn, until the verdict is as sure as was asked.
    #[arg(long)]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) duel: Duel,
    /// Print one JSON object a case.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How `compare --run` measures.
#[derive(Debug, Args)]
pub(crate) struct Duel {
    /// Where to run: `cpu`, `cuda` or `cuda:N`; the best that works when absent.
    #[arg(long, requires = "run")]
    pub(crate) device: Option<String>,
    /// Precision policies, such as `fp32,bf16`.
    #[arg(long, value_delimiter = ',', requires = "run")]
    pub(crate) precision: Vec<String>,
    /// `quick`, `seed`, `all`, or extents such as `m=1024,n=1024,k=1024`.
    #[arg(long, requires = "run")]
    pub(crate) sizes: Option<String>,
    /// Blocks along each axis, for kernels.
    #[arg(long, requires = "run")]
    pub(crate) grid: Option<String>,
    /// Threads a block of SIMT kernels.
    #[arg(long, requires = "run")]
    pub(crate) block: Option<u32>,
    /// Schedule choices, `K=V,...`: once for both sides, or twice, for the one and the other.
    #[arg(long, value_name = "K=V,...", requires = "run")]
    pub(crate) config: Vec<String>,
    /// Optimisation level, 0 to 3; without it a block program's `opt_level`, else 3.
    #[arg(requires = "run", short = 'O', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) level: Option<u8>,
    /// How sure all verdicts together must be.
    #[arg(long, requires = "run", value_name = "P", default_value_t = 0.99)]
    pub(crate) sure: f64,
    /// The smallest change of a time that matters: `1%` or `0.01`. A row within it is the same.
    #[arg(long, requires = "run", value_name = "SHARE", default_value = "1%")]
    pub(crate) least: String,
    /// Begin no pair of processes that would end after this many seconds.
    #[arg(long, requires = "run", value_name = "S", default_value_t = 120.0)]
    pub(crate) time_limit: f64,
    /// Decides who begins, the order of rows and where memory lies; chosen by the time when absent, and told.
    #[arg(long, requires = "run")]
    pub(crate) seed: Option<u64>,
    /// Write what every pair measured here, one JSON object a line.
    #[arg(long, value_name = "FILE", requires = "run")]
    pub(crate) out: Option<String>,
    #[command(flatten)]
    pub(crate) project: Project,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Results files.
    #[arg(required = true)]
    pub(crate) results: Vec<String>,
    /// `.html`, `.csv` or `.md`.
    #[arg(short, long, default_value = "report.html")]
    pub(crate) output: String,
}

#[derive(Debug, Args)]
pub(crate) struct Checklist {
    /// The results file.
    pub(crate) results: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `list` shows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Topic {
    /// Operators.
    Ops,
    /// Suites and how many cases each has.
    Suites,
    /// Passes and pipelines.
    Passes,
    /// Targets with their limits and peaks.
    Targets,
    /// Devices of this machine.
    Devices,
    /// Element types and precision policies.
    Precisions,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// What to list.
    #[arg(value_enum)]
    pub(crate) topic: Topic,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// The folder to write to.
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: String,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
