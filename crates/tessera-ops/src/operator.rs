//! What an operator states about itself.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType, Policy, policy_name};

use crate::draw::Draw;
use crate::matrix::Matrices;
use crate::pattern::Pattern;
use crate::problem::Problem;
use crate::set;
use crate::signature::Calls;
use crate::work::Work;

/// The library's operators, in the order in which they are listed.
pub const OPERATORS: &[&Operator] = &[
    &set::gemm::GEMM,
    &set::linear::LINEAR,
    &set::linear_w4::LINEAR_W4,
    &set::gemm_scaled::GEMM_SCALED,
    &set::gemm_grouped::GEMM_GROUPED,
    &set::attention::ATTENTION,
    &set::conv2d::CONV2D,
    &set::conv2d_backward::CONV2D_BACKWARD,
    &set::attention_lse::ATTENTION_LSE,
    &set::attention_backward::ATTENTION_BACKWARD,
    &set::attention_decode::ATTENTION_DECODE,
    &set::attention_window::ATTENTION_WINDOW,
    &set::attention_varlen::ATTENTION_VARLEN,
    &set::embedding::EMBEDDING,
    &set::embedding::EMBEDDING_BACKWARD,
    &set::embedding::KV_APPEND,
    &set::moe_gate::MOE_GATE,
    &set::moe_gate::MOE_GATE_BACKWARD,
    &set::moe::MOE_SORT,
    &set::moe_rows::MOE_PERMUTE,
    &set::moe_rows::MOE_PERMUTE_BACKWARD,
    &set::moe_rows::MOE_COMBINE,
    &set::moe_rows::MOE_COMBINE_BACKWARD,
    &set::channel_norm::GROUP_NORM,
    &set::channel_norm::GROUP_NORM_BACKWARD,
    &set::channel_norm::BATCH_NORM,
    &set::channel_norm::BATCH_NORM_BACKWARD,
    &set::channel_norm::BATCH_NORM_INFERENCE,
    &set::running_statistics::RUNNING_STATISTICS,
    &set::vector::VECTOR,
    &set::reduce::REDUCE_ROWS,
    &set::reduce::REDUCE_ROWS_BACKWARD,
    &set::reduce::ARG_ROWS,
    &set::reduce_columns::REDUCE_COLUMNS,
    &set::cumsum::CUMSUM,
    &set::cumsum::CUMSUM_BACKWARD,
    &set::order::TOP_K,
    &set::order::TOP_K_BACKWARD,
    &set::order::SORT_ROWS,
    &set::order::SORT_ROWS_BACKWARD,
    &set::layer_norm::LAYER_NORM,
    &set::rms_norm::RMS_NORM,
    &set::norm_backward::LAYER_NORM_BACKWARD,
    &set::norm_backward::RMS_NORM_BACKWARD,
    &set::softmax::SOFTMAX,
    &set::log_softmax::SOFTMAX_BACKWARD,
    &set::log_softmax::LOG_SOFTMAX,
    &set::log_softmax::LOG_SOFTMAX_BACKWARD,
    &set::cross_entropy::LOG_SUM_EXP,
    &set::cross_entropy::LOG_SUM_EXP_BACKWARD,
    &set::cross_entropy::CROSS_ENTROPY,
    &set::cross_entropy::CROSS_ENTROPY_BACKWARD,
    &set::linear_cross_entropy::LINEAR_CROSS_ENTROPY,
    &set::linear_cross_entropy::LINEAR_CROSS_ENTROPY_BACKWARD,
    &set::permute::PERMUTE,
    &set::histogram::HISTOGRAM,
    &set::scan::PREFIX_SUM,
    &set::scan::MASKED_SELECT,
    &set::sort::SORT,
    &set::spmv::SPMV,
    &set::spmm::SPMM,
    &set::sddmm::SDDMM,
    &set::formats::CSR_TO_COO,
    &set::formats::COO_TO_CSR,
    &set::formats::CSR_TO_CSC,
    &set::formats::DENSE_TO_CSR,
    &set::formats::CSR_TO_DENSE,
    &set::sparse24::COMPRESS,
    &set::sparse24::EXPAND,
    &set::sparse24::GEMM,
    &set::bandwidth::BANDWIDTH,
    &set::activations::RELU,
    &set::activations::RELU_BACKWARD,
    &set::activations::LEAKY_RELU,
    &set::activations::LEAKY_RELU_BACKWARD,
    &set::activations::ELU,
    &set::activations::ELU_BACKWARD,
    &set::activations::SIGMOID,
    &set::activations::SIGMOID_BACKWARD,
    &set::activations::TANH,
    &set::activations::TANH_BACKWARD,
    &set::activations::SILU,
    &set::activations::SILU_BACKWARD,
    &set::activations::GELU,
    &set::activations::GELU_BACKWARD,
    &set::activations::GELU_TANH,
    &set::activations::GELU_TANH_BACKWARD,
    &set::activations::SWIGLU,
    &set::activations::SWIGLU_BACKWARD,
    &set::activations::GEGLU,
    &set::activations::GEGLU_BACKWARD,
    &set::activations::GEGLU_TANH,
    &set::activations::GEGLU_TANH_BACKWARD,
    &set::bias::BIAS_RELU,
    &set::bias::BIAS_RELU_BACKWARD,
    &set::bias::BIAS_SILU,
    &set::bias::BIAS_SILU_BACKWARD,
    &set::bias::BIAS_GELU,
    &set::bias::BIAS_GELU_BACKWARD,
    &set::add_norm::ADD_RMS_NORM,
    &set::add_norm::ADD_LAYER_NORM,
    &set::norm_backward::ADD_RMS_NORM_BACKWARD,
    &set::norm_backward::ADD_LAYER_NORM_BACKWARD,
    &set::cast::CAST,
    &set::quantise::QUANTISE,
    &set::quantise::DEQUANTISE,
    &set::random::DROPOUT,
    &set::random::DROPOUT_BACKWARD,
    &set::random::RANDOM_UNIFORM,
    &set::random::RANDOM_NORMAL,
    &set::rope::ROPE,
    &set::rope::ROPE_BACKWARD,
    &set::rope::ROPE_INPLACE,
    &set::rope::QK_NORM_ROPE,
];

/// The operator of a name.
pub fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().copied().find(|operator| operator.name == name)
}

/// One operator.
pub struct Operator {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// The kernel file's name.
    pub file: &'static str,
    /// The kernel file's text.
    pub source: &'static str,
    /// Precision policies of the suite, in the policy grammar.
    pub precisions: &'static [&'static str],
    /// Further policies that a plan accepts.
    pub further_precisions: &'static [&'static str],
    /// The seed suite's problems, before precisions.
    pub suite: fn() -> Vec<Problem>,
    /// Problems beyond the seed suite's, which `--sizes all` adds.
    pub further_suite: fn() -> Vec<Problem>,
    /// The quick subset: problems and the policy of each.
    pub quick: fn() -> Vec<(Problem, &'static str)>,
    /// Small problems at the edges of the kernels' tiles, for checking.
    pub edges: fn() -> Vec<Problem>,
    /// A problem of random sizes; a plan of it can be made in every precision.
    pub draw: fn(&mut Draw<'_>) -> Problem,
    /// How it is called on arrays that there are.
    pub calls: Calls,
    /// Numbers that a problem's variant may give, as `alpha=0.5`, each with its value in one that does not.
    pub numbers: &'static [(&'static str, f64)],
    /// What [`Operator::plan`] gives, for a result that has elements.
    pub(crate) plan: fn(&Problem, Policy, Machine) -> Result<Plan, Unsupported>,
    /// The ways that it has to cut a problem into blocks, where it has several.
    pub(crate) ways: Option<Ways>,
    /// The operator of the same problems that gives the gradient: its inputs are those of this one that it needs, by their names, perhaps results,
    /// and a cotangent `dy` of each result `y`; its results are the gradients `dx` of inputs `x`.
    pub gradient: Option<&'static Operator>,
    /// Why results of inputs that hold NaN and infinities are not held to the reference; `None` where they are: what is NaN, and what is each
    /// infinity, is then what the reference says, and the rest is within its bounds.
    pub no_specials: Option<&'static str>,
    /// Other kernels that give the same, from the simplest on: what was gained on the way to the operator's own, and what other algorithms would.
    pub ladder: &'static [Rung],
}

/// Simpler kernels of an operator, or another algorithm's, kept to be read and measured against.
pub struct Rung {
    /// Its name, the implementation's in results.
    pub name: &'static str,
    /// One line: what it does, and what it lacks.
    pub about: &'static str,
    /// Everything needed to run one problem, with the inputs and outputs of the operator's own plan, and its reference, whose bounds are others where
    /// the algorithm rounds otherwise.
    pub(crate) plan: fn(&Problem, Policy, Machine) -> Result<Plan, Unsupported>,
}

impl fmt::Debug for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Its name, in messages.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// How a problem is cut into blocks, by the names of choices: `TM`, `sharing`.
pub type Way = BTreeMap<String, i64>;

/// A way to cut a problem, and what all launches of it should take.
#[derive(Clone, Debug, PartialEq)]
pub struct PossibleWay {
    /// The way.
    pub way: Way,
    /// Clocks of the machine.
    pub clocks: f64,
}

/// The ways that an operator has to cut problems into blocks.
pub(crate) struct Ways {
    /// The names of every way's choices.
    pub(crate) names: &'static [&'static str],
    /// Those of a problem, the one of the plan first, the others by what they should take.
    pub(crate) of: fn(&Problem, Policy, Machine) -> Result<Vec<PossibleWay>, Unsupported>,
    /// The plan for one of them.
    pub(crate) plan: fn(&Problem, Policy, Machine, &Way) -> Result<Plan, Unsupported>,
}

impl Operator {
    /// Why results are not held to the reference where inputs have NaN and infinities; none where they are.
    pub fn unchecked_specials(&self, policy: Policy) -> Option<&'static str> {
        let parts = policy.parts().map(|_| "the lower part of an infinity that is taken apart is NaN");
        self.no_specials.or(parts)
    }

    /// The problem with a number that it may have; one with its usual value is the problem as it was.
    pub fn with_number(&self, problem: Problem, name: &str, value: f64) -> Option<Problem> {
        let own = self.numbers.iter().find(|(own, _)| *own == name)?;
        Some(problem.with_number(*own, value))
    }

    /// The number that has the output read, too, where it is not 0, and multiplies what it reads there.
    pub fn rereads(&self) -> Option<&'static str> {
        (self.calls.signature)(self.calls.default?).rereads
    }

    /// Everything needed to run one problem in one precision on a kind of machine. Where the result has no elements nothing is
    /// launched: a tile of no elements is no tile.
    ///
    /// # Errors
    /// Where the operator does not do that problem in that precision, or gives its results in another type.
    pub fn plan(&self, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
        let taken = || self.precisions.iter().chain(self.further_precisions).filter_map(|text| text.parse::<Policy>().ok());
        if policy.parts().is_some() && !taken().any(|own| own.parts() == policy.parts()) {
            return Err(Unsupported(format!("{} takes no factors apart, as `{policy}` says", self.name)));
        }
        self.refuse_kind(problem)?;
        self.whole((self.plan)(problem, policy, machine)?, policy, machine)
    }

    /// The ways to cut a problem into blocks, the one of [`Operator::plan`] first, the others by what they should take; none where there is but
    /// one.
    ///
    /// # Errors
    /// As for [`Operator::plan`].
    pub fn ways(&self, problem: &Problem, policy: Policy, machine: Machine) -> Result<Vec<PossibleWay>, Unsupported> {
        self.refuse_kind(problem)?;
        self.ways.as_ref().map_or(Ok(Vec::new()), |ways| (ways.of)(problem, policy, machine))
    }

    /// The plan for one of the ways to cut a problem into blocks.
    ///
    /// # Errors
    /// As for [`Operator::plan`], and where that is no way of this operator's.
    pub fn plan_in(&self, problem: &Problem, policy: Policy, machine: Machine, way: &Way) -> Result<Plan, Unsupported> {
        let Some(ways) = &self.ways else { return Err(Unsupported(format!("{} is cut in one way alone", self.name))) };
        self.refuse_kind(problem)?;
        self.whole((ways.plan)(problem, policy, machine, way)?, policy, machine)
    }

    /// Refuses a problem of a variant that there is not. Words behind a variant are for the plan, as are all of an operator that has but one.
    fn refuse_kind(&self, problem: &Problem) -> Result<(), Unsupported> {
        let (kind, variants) = (problem.kind(), self.calls.variants);
        let is_it = |variant: &str| kind.strip_prefix(variant).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        if variants == [""] || variants.iter().any(|variant| is_it(variant)) {
            return Ok(());
        }
        let known: Vec<String> = variants.iter().map(|variant| format!("`{variant}`")).collect();
        Err(Unsupported(format!("{} has no variant `{kind}`: it is one of {}", self.name, known.join(", "))))
    }

    /// Refuses a policy whose storage and result are not those of one that is listed: a conversion's kernel takes any pair of types, and of those
    /// that nobody has listed nobody has said how values are rounded.
    pub(crate) fn refuse_unlisted(&self, policy: Policy) -> Result<(), Unsupported> {
        let mut listed = self.precisions.iter().chain(self.further_precisions).filter_map(|text| text.parse::<Policy>().ok());
        match listed.any(|own| (own.storage(), own.result()) == (policy.storage(), policy.result())) {
            true => Ok(()),
            false => Err(Unsupported(format!("{} takes no `{policy}`", self.name))),
        }
    }

    /// The operator whose gradient this one is.
    pub fn gradient_of(&self) -> Option<&'static Operator> {
        let is_it = |own: &&&Operator| own.gradient.is_some_and(|gradient| gradient.name == self.name);
        OPERATORS.iter().find(is_it).copied()
    }

    /// The rung of a name.
    pub fn rung(&self, name: &str) -> Option<&'static Rung> {
        self.ladder.iter().find(|rung| rung.name == name)
    }

    /// The plan on a rung of the ladder.
    ///
    /// # Errors
    /// As for [`Operator::plan`], and what the rung's kernels do not do.
    pub fn plan_on(&self, rung: &Rung, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
        self.refuse_kind(problem)?;
        self.whole((rung.plan)(problem, policy, machine)?, policy, machine)
    }

    /// The plan, where its results are of the type that is asked for, and the machine has room for its blocks.
    fn whole(&self, mut plan: Plan, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
        /// Of a GPU, along the second and the third axis of a grid.
        const MOST_BLOCKS: u32 = 65535;
        if let Some(result) = policy.result() {
            let other = plan.outputs.iter().map(|output| plan.tensors[output.tensor].dtype).find(|dtype| *dtype != result);
            if let Some(other) = other {
                let (wanted, given) = (policy_name(result), policy_name(other));
                return Err(Unsupported(format!("{} gives `{given}` and not `{wanted}`", self.name)));
            }
        }
        // What has no blocks, of an array without elements on the way, is no launch.
        plan.launches.retain(|launch| launch.grid.iter().all(|&blocks| blocks > 0));
        if plan.tensors.iter().all(|tensor| tensor.role == Role::Input || tensor.is_empty()) {
            plan.launches.clear();
        }
        let too_many = plan.launches.iter().find(|launch| launch.grid[1].max(launch.grid[2]) > MOST_BLOCKS);
        if let (Machine::Gpu(_), Some(LaunchSpec { kernel, grid, .. })) = (machine, too_many) {
            let blocks = grid[1].max(grid[2]);
            return Err(Unsupported(format!("`{kernel}` would have {blocks} blocks along an axis, and a GPU has {MOST_BLOCKS}")));
        }
        Ok(plan)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a plan's tiles are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Few cores with large caches: a block is a core's work for microseconds.
    Cpu,
    /// Many multiprocessors: a block's tiles live in registers and shared memory, of which architectures have more or less.
    Gpu(Arch),
}

/// Why an operator does not do a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read only.
    Input,
    /// Written and judged.
    Output,
    /// Read and written; judged. A reference reads what it held before the launch.
    InOut,
    /// Written and read by the operator itself.
    Workspace,
    /// The same, but zero before the first launch, and again after each: how many blocks have come so far.
    Counter,
}

/// How a tensor's values are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal with a mean and a standard deviation.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        sd: f64,
    },
    /// Integers between bounds, inclusive.
    Integers {
        /// Least value.
        least: i64,
        /// Greatest value.
        greatest: i64,
    },
    /// Integers that rise from 0 to a number: where groups of rows begin, and where the last one ends. A group has none to twice as many rows
    /// as one has at the mean, and about one in ten has none.
    Bounds {
        /// Rows of all groups.
        rows: u64,
    },
    /// Where the rows of a sparse matrix begin, and where the last one ends.
    RowOffsets(Pattern),
    /// The columns of a sparse matrix's elements, row by row.
    Columns(Pattern),
    /// The rows of a sparse matrix's elements, row by row.
    Rows(Pattern),
    /// Words that say where two of each four neighbours stand, as [`places_of_fours`](crate::places_of_fours) gives them.
    Places,
    /// Different integers from 0 up to a number, in random order: places of rows that change theirs. Where there are more elements than such
    /// numbers, they begin anew.
    Distinct {
        /// The first number that is none of them.
        below: u64,
    },
}

impl Fill {
    /// Mean 0 and standard deviation 1.
    pub const NORMAL: Fill = Fill::Normal { mean: 0.0, sd: 1.0 };

    /// Whether elements follow from each other, so that parts that are made one by one are no whole.
    pub fn is_of_one_piece(self) -> bool {
        match self {
            Fill::Normal { .. } | Fill::Integers { .. } => false,
            Fill::Bounds { .. }
            | Fill::RowOffsets(_)
            | Fill::Columns(_)
            | Fill::Rows(_)
            | Fill::Places
            | Fill::Distinct { .. } => true,
        }
    }

    /// The same with small integers for numbers, whose sums of products are exact in any order.
    #[must_use]
    pub fn exact(self) -> Fill {
        match self {
            Fill::Normal { .. } | Fill::Integers { .. } => Fill::Integers { least: -2, greatest: 2 },
            Fill::Bounds { .. }
            | Fill::RowOffsets(_)
            | Fill::Columns(_)
            | Fill::Rows(_)
            | Fill::Places
            | Fill::Distinct { .. } => self,
        }
    }
}

/// A tensor of a plan.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    /// Its name: the kernel's parameter name.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape that the kernel sees.
    pub shape: Vec<usize>,
    /// Distance between elements of a rank-1 tensor, in elements; 1 for contiguous ones.
    pub step: usize,
    /// What it is for.
    pub role: Role,
    /// How inputs are generated.
    pub fill: Fill,
}

impl TensorSpec {
    /// A contiguous tensor.
    pub(crate) fn new(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>, role: Role) -> TensorSpec {
        TensorSpec { name, dtype, shape: shape.into(), step: 1, role, fill: Fill::NORMAL }
    }

    /// Elements that the kernel sees.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes it takes in memory, the gaps between elements included.
    pub fn allocated_bytes(&self) -> u64 {
        crate::work::packed_bytes(self.dtype, self.len() as u64 * self.step as u64)
    }
}

/// A kernel argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The tensor at this position of the plan.
    Tensor(usize),
    /// An integer: a constant where the kernel says so, else a run-time scalar.
    Int(i64),
    /// A float, likewise.
    Float(f64),
    /// A truth value, likewise.
    Bool(bool),
    /// An element type.
    Type(DType),
    /// A word that chooses between parts of a kernel.
    Word(&'static str),
}

/// One kernel launch of a plan.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// The kernel's name in its file.
    pub kernel: &'static str,
    /// The file, where it is not the operator's own.
    pub file: Option<KernelFile>,
    /// Arguments by name.
    pub arguments: Vec<(&'static str, Argument)>,
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// What blocks of its product share on a GPU.
    pub sharing: Sharing,
    /// Blocks of a cluster that load together on a GPU, or share the work of one; 0 where each works for itself.
    pub cluster: u32,
    /// Clusters that share the rounds of each block, where their blocks split rounds; 0 where one has all of them.
    pub clusters: u32,
    /// Warps of a block on a GPU; 0 leaves them to the compiler.
    pub warps: u32,
    /// Blocks that a multiprocessor shall hold at once; 0 leaves that to the kernel and the compiler.
    pub resident: u32,
    /// Threads of a block of a per-thread kernel; none leaves them to the kernel.
    pub threads: Option<u32>,
}

impl LaunchSpec {
    /// A launch whose blocks keep to themselves.
    pub fn new(kernel: &'static str, arguments: Vec<(&'static str, Argument)>, grid: [u32; 3]) -> LaunchSpec {
        LaunchSpec {
            kernel,
            file: None,
            arguments,
            grid,
            sharing: Sharing::Nothing,
            cluster: 0,
            clusters: 0,
            warps: 0,
            resident: 0,
            threads: None,
        }
    }

    /// The same of a kernel of another file than the operator's.
    #[must_use]
    pub(crate) fn of_file(self, file: KernelFile) -> LaunchSpec {
        LaunchSpec { file: Some(file), ..self }
    }
}

/// One judged tensor as a matrix: rows are what the reference computes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRows {
    /// Position of the tensor in the plan.
    pub tensor: usize,
    /// Rows.
    pub rows: usize,
    /// Elements in a row.
    pub row_len: usize,
    /// True when every bit must be right; else the reference states a bound.
    pub exact: bool,
}

/// Everything needed to run, judge and rate one problem in one precision.
pub struct Plan {
    /// Tensors; launches and references name them by position.
    pub tensors: Vec<TensorSpec>,
    /// Launches in order.
    pub launches: Vec<LaunchSpec>,
    /// What is judged.
    pub outputs: Vec<OutputRows>,
    /// Useful work.
    pub work: Work,
    /// True when small integers as inputs make every partial result exact in any order.
    pub exact_lane: bool,
    /// The right answer.
    pub reference: Box<dyn Reference>,
}

impl Plan {
    /// Whether another launch leaves what the first one did: none reads what the last one wrote.
    pub fn repeatable(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.role != Role::InOut)
    }

    /// What the last launch is given for a float.
    pub fn float(&self, name: &str) -> Option<f64> {
        let argument = self.launches.last()?.arguments.iter().find(|(own, _)| *own == name)?.1;
        if let Argument::Float(value) = argument { Some(value) } else { None }
    }

    /// Bytes that all tensors take.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(TensorSpec::allocated_bytes).sum()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("tensors", &self.tensors)
            .field("launches", &self.launches)
            .field("work", &self.work)
            .finish()
    }
}

/// The contents of a plan's tensors before a launch, elements in row-major order of the shape.
pub trait Inputs: Sync {
    /// Elements from `start` on as numbers.
    fn numbers(&self, tensor: usize, start: usize, out: &mut [f64]);
    /// Elements from `start` on as bits.
    fn codes(&self, tensor: usize, start: usize, out: &mut [u64]);

    /// Elements here and there as numbers.
    fn numbers_at(&self, tensor: usize, places: &[usize], out: &mut [f64]) {
        for (&place, out) in places.iter().zip(out) {
            self.numbers(tensor, place, std::slice::from_mut(out));
        }
    }

    /// Elements here and there as bits.
    fn codes_at(&self, tensor: usize, places: &[usize], out: &mut [u64]) {
        for (&place, out) in places.iter().zip(out) {
            self.codes(tensor, place, std::slice::from_mut(out));
        }
    }

    /// Who makes sums over matrices faster than by reading them through this.
    fn matrices(&self) -> Option<&dyn Matrices> {
        None
    }
}

/// Where a reference puts its answer for whole rows.
pub enum Expected<'a> {
    /// The bits of each element.
    Codes(&'a mut [u64]),
    /// The f64 result, and the largest error that a correct implementation can make.
    Bounded {
        /// Results.
        want: &'a mut [f64],
        /// Largest errors.
        bound: &'a mut [f64],
    },
}

/// One row's two sides of an identity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowIdentity {
    /// From the output.
    pub got: f64,
    /// From the inputs.
    pub want: f64,
    /// How far apart they may be.
    pub bound: f64,
}

/// The right answer in f64, from the inputs as they are stored.
pub trait Reference: Sync + Send {
    /// Computes whole rows of one output.
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>);

    /// Checks all rows of one output at once, where the operator is linear and knows how: both sides of an identity that holds
    /// for the right answer, with how far apart they may be, for each row. `v` holds a random sign for each element of
    /// a row; `read` gives whole rows of the output as numbers.
    fn identity(
        &self,
        _inputs: &dyn Inputs,
        _output: usize,
        _v: &[f64],
        _read: &(dyn Fn(Range<usize>, &mut [f64]) -> bool + Sync),
    ) -> Option<Vec<RowIdentity>> {
        None
    }

    /// Computes several ranges of rows, one after another in the answer: for problems too large to look at every row.
    fn scattered(&self, inputs: &dyn Inputs, output: usize, row_len: usize, rows: &[Range<usize>], mut expected: Expected<'_>) {
        let mut start = 0;
        for range in rows {
            let part = start..start + range.len() * row_len;
            start = part.end;
            let answer = match &mut expected {
                Expected::Codes(codes) => Expected::Codes(&mut codes[part]),
                Expected::Bounded { want, bound } => Expected::Bounded { want: &mut want[part.clone()], bound: &mut bound[part] },
            };
            self.rows(inputs, output, range.clone(), answer);
        }
    }
}
