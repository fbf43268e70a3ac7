//! Whatever arrays look like: every operator gives the same bits for arrays with gaps, for arrays that begin at odd places, and a second time; results of no
//! elements are results; memory that is read and written at once is refused.

use std::collections::BTreeSet;

use tessera_ops::{Argument, Call, Machine, OPERATORS, Operand, Operator, Plan, Problem, Role, TensorSpec};
use tessera_runtime::{RandomStream, Tensor};
use tessera_types::{DType, Policy};

/// Elements of the problems that are taken.
const ELEMENTS: usize = 1 << 16;
/// Problems of each operator and variant.
const PROBLEMS: usize = 2;

/// How an array lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lies {
    /// In one piece, where allocations begin.
    Packed,
    /// Every second element along the last axis, of arrays that are read.
    Gaps,
    /// From the second element of an allocation on.
    Odd,
}

/// A copy of an array that lies so.
fn laid(tensor: &Tensor, lies: Lies) -> Tensor {
    let mut shape = tensor.shape().to_vec();
    let view = match (lies, shape.last_mut()) {
        // Elements of less than a byte lie where bytes begin.
        (Lies::Gaps, Some(last)) if tensor.dtype().bits() >= 8 => {
            *last *= 2;
            let wide = Tensor::zeros(tensor.dtype(), &shape).expect("memory");
            wide.slice(shape.len() - 1, 0..shape[shape.len() - 1], 2).expect("a view")
        }
        (Lies::Odd, Some(_)) if tensor.dtype().bits() >= 8 && !tensor.is_empty() => {
            let wide = Tensor::zeros(tensor.dtype(), &[tensor.len() + 1]).expect("memory");
            wide.strided(1, tensor.shape(), &strides(tensor.shape())).expect("a view")
        }
        _ => return tensor.clone(),
    };
    view.copy_from(tensor).expect("copied");
    view
}

/// Distances of elements that lie in one piece.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    (1..shape.len()).rev().for_each(|axis| strides[axis - 1] = strides[axis] * shape[axis]);
    strides
}

/// The contents that a plan asks for.
fn filled(spec: &TensorSpec, seed: u64) -> Tensor {
    let stream = RandomStream::named(seed, spec.name);
    let values = tessera_bench::filled(stream, spec.dtype, spec.len(), spec.fill).expect("contents");
    values.reshape(&spec.shape).expect("as many elements")
}

/// A small problem of an operator in a precision, as a call sees it.
struct Small {
    operator: &'static Operator,
    variant: &'static str,
    problem: Problem,
    policy: Policy,
    plan: Plan,
}

impl Small {
    /// Problems at the edges of tiles that are calls of a variant, in the operator's first precision.
    fn all() -> Vec<Small> {
        let mut all: Vec<Small> = Vec::new();
        for operator in OPERATORS.iter().copied() {
            let Ok(policy) = operator.precisions[0].parse::<Policy>() else { continue };
            for problem in (operator.edges)() {
                let kind = problem.kind();
                let named = operator.calls.variants.iter().copied().find(|own| *own == kind);
                // Where no word of the problem is a call's, it says how arrays are filled: the pattern of a sparse matrix.
                let is_fill = !kind.split(' ').any(|word| operator.calls.variants.contains(&word));
                let Some(variant) = named.or(operator.calls.default.filter(|_| is_fill)) else { continue };
                let taken = all.iter().filter(|own| own.operator.name == operator.name && own.variant == variant).count();
                let Ok(plan) = operator.plan(&problem, policy, Machine::Cpu) else { continue };
                let elements: usize = plan.tensors.iter().map(TensorSpec::len).sum();
                // Elements that stand apart are a plan's, not a call's.
                if taken < PROBLEMS && elements <= ELEMENTS && plan.tensors.iter().all(|spec| spec.step == 1) {
                    all.push(Small { operator, variant, problem, policy, plan });
                }
            }
        }
        all
    }

    fn spec(&self, name: &str) -> &TensorSpec {
        self.plan.tensors.iter().find(|spec| spec.name == name).expect("a signature names tensors of its plan")
    }

    /// The shape of an array as callers have it: where all but the open axes are extents of the problem, those, else the plan's.
    fn shape(&self, operand: Operand) -> Vec<usize> {
        let spec = self.spec(operand.name());
        let (_, signature) = self.operator.signature(Some(self.variant)).expect("a variant");
        let extent = |axis: &str| {
            let own = self.problem.extents.iter().find(|(name, _)| *name == axis).map(|(_, extent)| *extent as usize);
            own.or_else(|| signature.following(axis, &self.problem).expect("a problem that has a plan"))
                .or_else(|| axis.parse().ok())
        };
        let is_open = |axis: &&str| axis.starts_with("..");
        let Some(named) = operand.axes().filter(|axis| !is_open(axis)).map(extent).collect::<Option<Vec<usize>>>() else {
            return spec.shape.clone();
        };
        let product: usize = named.iter().product();
        match operand.axes().next().filter(is_open) {
            Some(_) if product > 0 => [&[spec.len() / product], &named[..]].concat(),
            None if product == spec.len() => named,
            _ => spec.shape.clone(),
        }
    }

    /// The call on arrays that lie so, with arrays for its results; and these.
    fn call(&self, lies: Lies) -> Call<'static> {
        let (_, signature) = self.operator.signature(Some(self.variant)).expect("a variant");
        let array = |operand: Operand| {
            let (name, spec) = (operand.name(), self.spec(operand.name()));
            let content = match spec.role {
                Role::Input | Role::InOut => filled(spec, 1),
                Role::Output | Role::Workspace | Role::Counter => Tensor::zeros(spec.dtype, &spec.shape).expect("memory"),
            };
            // A result whose axes are put together is written in one piece: others are refused.
            let lies = if spec.role != Role::Input && lies == Lies::Gaps { Lies::Packed } else { lies };
            (name, laid(&content.reshape(&self.shape(operand)).expect("as many elements"), lies))
        };
        let numbers = self.operator.numbers.iter().filter_map(|(name, _)| Some((*name, self.problem.number(name)?)));
        Call {
            variant: Some(self.variant),
            tensors: signature.arrays().map(array).collect(),
            scalars: numbers.collect(),
            lock: None,
        }
    }

    /// The results, or what is said against the call.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Tensor>, String> {
        let resolved = self.operator.resolve_in(call, Some(self.policy)).map_err(|error| error.to_string())?;
        resolved.run().map_err(|error| error.to_string())
    }

    fn results(&self, lies: Lies) -> Vec<Vec<u8>> {
        let results = self.run(&self.call(lies)).unwrap_or_else(|error| panic!("{self}, {lies:?}: {error}"));
        results.iter().map(|result| result.contiguous().and_then(|packed| packed.to_bytes()).expect("bytes")).collect()
    }
}

impl std::fmt::Display for Small {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} in {}", self.operator.name, self.problem, self.policy)
    }
}

#[test]
fn operators_take_arrays_as_they_lie() {
    let all = Small::all();
    for small in &all {
        let packed = small.results(Lies::Packed);
        assert_eq!(packed, small.results(Lies::Packed), "{small}: a second run gives other bits");
        for lies in [Lies::Gaps, Lies::Odd] {
            assert!(packed == small.results(lies), "{small}: {lies:?} gives other bits");
        }
    }
    let is_there = |operator: &&&Operator| all.iter().any(|small| small.operator.name == operator.name);
    let without: Vec<&str> = OPERATORS.iter().filter(|operator| !is_there(operator)).map(|operator| operator.name).collect();
    assert!(without.is_empty(), "operators without a small problem: {without:?}");
}

/// The library's other operators.
fn others(names: &BTreeSet<&str>) -> Vec<&'static str> {
    OPERATORS.iter().map(|operator| operator.name).filter(|name| !names.contains(name)).collect()
}

/// Operators that do no problem whose first extent is 0.
const NEVER_EMPTY: [&str; 9] =
    ["batch_norm", "batch_norm_backward", "spmv", "spmm", "sddmm", "csr_to_coo", "coo_to_csr", "csr_to_csc", "csr_to_dense"];

/// Operators of which no small problem has a result like the first input in shape and in one of three types of floats, or whose launches do not read
/// that input.
const UNLIKE: [&str; 43] = [
    "gemm",
    "linear",
    "linear_w4",
    "gemm_scaled",
    "gemm_grouped",
    "conv2d",
    "embedding",
    "embedding_backward",
    "kv_append",
    "moe_gate",
    "moe_sort",
    "moe_permute",
    "moe_permute_backward",
    "moe_combine",
    "running_statistics",
    "reduce_rows",
    "arg_rows",
    "reduce_columns",
    "top_k_backward",
    "sort_rows_backward",
    "log_sum_exp",
    "cross_entropy",
    "linear_cross_entropy",
    "permute",
    "histogram",
    "sort",
    "spmv",
    "spmm",
    "sddmm",
    "csr_to_coo",
    "coo_to_csr",
    "csr_to_csc",
    "dense_to_csr",
    "csr_to_dense",
    "sparse24_compress",
    "sparse24_expand",
    "sparse24_gemm",
    "cast",
    "quantise",
    "dequantise",
    "random_uniform",
    "random_normal",
    "rope_inplace",
];

#[test]
fn results_of_no_elements_are_results() {
    let mut empty = BTreeSet::new();
    for small in Small::all() {
        let (_, signature) = small.operator.signature(Some(small.variant)).expect("a variant");
        // The first axis of the first array: rows, a batch, or all elements.
        let first = small.problem.extents.iter().map(|(name, _)| *name).find(|name| small.problem.get(name) > 0);
        let Some(problem) = first.and_then(|name| small.problem.with(name, 0)) else { continue };
        let Ok(plan) = small.operator.plan(&problem, small.policy, Machine::Cpu) else { continue };
        let none = Small { plan, problem, ..small };
        let results = none.results(Lies::Packed);
        assert_eq!(results.len(), signature.outputs.len(), "{none}");
        empty.insert(none.operator.name);
    }
    assert_eq!(others(&empty), NEVER_EMPTY, "operators that were not asked for nothing");
}

#[test]
fn memory_that_is_read_and_written_is_refused() {
    let (mut refused, types) = (BTreeSet::new(), [DType::F32, DType::F16, DType::BF16]);
    for small in Small::all() {
        let (_, signature) = small.operator.signature(Some(small.variant)).expect("a variant");
        let Some(first) = signature.inputs.first() else { continue };
        let input = small.spec(first.name());
        let same = |spec: &&TensorSpec| spec.role == Role::Output && spec.dtype == input.dtype && spec.shape == input.shape;
        // An input that decides shapes alone may lie anywhere.
        let position = small.plan.tensors.iter().position(|spec| spec.name == input.name);
        let reads = |(_, argument): &(&str, Argument)| matches!(argument, Argument::Tensor(at) if Some(*at) == position);
        if !small.plan.launches.iter().flat_map(|launch| &launch.arguments).any(reads) {
            continue;
        }
        let Some(output) = small.plan.tensors.iter().find(same).filter(|spec| types.contains(&spec.dtype) && spec.len() > 1)
        else {
            continue;
        };
        let mut call = small.call(Lies::Packed);
        // The output begins an element behind the input, in the same memory.
        let both = Tensor::zeros(input.dtype, &[input.len() + 1]).expect("memory");
        for (name, tensor) in &mut call.tensors {
            let offset = usize::from(*name == output.name);
            if *name == input.name || *name == output.name {
                *tensor = both.strided(offset, tensor.shape(), &strides(tensor.shape())).expect("a view");
            }
        }
        let said = small.run(&call).err();
        assert!(said.as_ref().is_some_and(|said| said.contains("memory")), "{small}: {said:?}");
        refused.insert(small.operator.name);
    }
    assert_eq!(others(&refused), UNLIKE, "operators that were not given such memory");
}
