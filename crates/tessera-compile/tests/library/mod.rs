//! The library's kernels as compilations: each kernel with the argument types that the operators' plans for a GPU give it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tessera_compile::{CompileOptions, Compiled, compile};
use tessera_ir::{Extent, IndexType, Sharing};
use tessera_lang::{ArgType, ConstValue, ParsedFile, parse_file, parse_project, state_odd_lines};
use tessera_ops::{Argument, Fill, KernelFile, LaunchSpec, Machine, OPERATORS, Plan, Problem, Role, SharedFiles, TensorSpec};
use tessera_types::{Arch, DType, Policy};

/// The operators whose rows clusters share.
const OF_ROWS: [&str; 6] = ["softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "layer_norm", "rms_norm"];

/// Named argument types.
pub(crate) type Args = Vec<(String, ArgType)>;

/// A kernel of the library for one set of argument types.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// `gemm bf16 batch=1,...`.
    pub(crate) name: String,
    pub(crate) operator: &'static str,
    pub(crate) policy: &'static str,
    /// The kernel's file: `gemm.py`.
    pub(crate) file: &'static str,
    pub(crate) kernel: &'static str,
    /// The problem's, without its numbers.
    pub(crate) variant: String,
    pub(crate) args: Args,
    /// Blocks of the launch, and what it is given by name, as far as it is no type.
    pub(crate) grid: [u32; 3],
    pub(crate) given: Vec<(String, Given)>,
    source: &'static str,
    /// Blocks of a cluster that share a row, and warps of each. Products are looked at unshared: what blocks share changes the loops of none.
    row: Option<(u32, u32)>,
    /// Warps of a block, and blocks that a multiprocessor shall hold; 0 where the launch does not say.
    pub(crate) resident: (u32, u32),
    /// Threads of a block of a per-thread kernel, where the launch says them.
    pub(crate) threads: Option<u32>,
}

/// A launch argument.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// An array's elements and sizes.
    Array(DType, Vec<i64>),
    /// The same of one that begins as zeros.
    Zeros(DType, Vec<i64>),
    /// The same of one whose integers rise evenly from 0 to this number.
    Bounds(DType, Vec<i64>, u64),
    /// The same of one that counts or numbers something: integers between these.
    Counts(DType, Vec<i64>, [i64; 2]),
    /// Indices of a sparse matrix, or different ones, of `i32`.
    Pattern(Vec<i64>, Fill),
    /// A number; whole ones are exact.
    Number(f64),
}

impl Case {
    /// Source to optimised Schedule IR.
    pub(crate) fn compiled(&self) -> Compiled {
        let options = match self.row {
            Some((cluster, warps)) => {
                CompileOptions { sharing: Some(Sharing::Cluster), cluster, warps, ..CompileOptions::default() }
            }
            None => {
                let (warps, resident) = self.resident;
                let sharing = Some(Sharing::Nothing);
                CompileOptions { block: self.threads, warps, resident, sharing, ..CompileOptions::default() }
            }
        };
        compiled_with(&parse_project(self.operator, self.source, &SharedFiles), self.kernel, &self.args, &options)
    }
}

/// Every compilation that the suites ask for on a target, each once, the largest problem of equal ones' kinds last.
pub(crate) fn cases(arch: Arch) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    let mut cases = Vec::new();
    for operator in OPERATORS {
        let quick = (operator.quick)().into_iter().map(|(problem, _)| problem);
        let problems: Vec<Problem> =
            (operator.edges)().into_iter().chain(quick).chain((operator.suite)()).chain((operator.further_suite)()).collect();
        let own = KernelFile { name: operator.file, text: operator.source };
        let mut files = BTreeMap::new();
        for policy in operator.precisions.iter().chain(operator.further_precisions) {
            for problem in &problems {
                let parsed: Policy = policy.parse().expect("a policy of the grammar");
                let Ok(plan) = operator.plan(problem, parsed, Machine::Gpu(arch)) else { continue };
                for launch in &plan.launches {
                    let from = launch.file.unwrap_or(own);
                    let file = files.entry(from.name).or_insert_with(|| parse_project(from.name, from.text, &SharedFiles));
                    let case = Case {
                        name: format!("{} {} {policy} {problem}", operator.name, launch.kernel),
                        operator: operator.name,
                        policy,
                        file: from.name,
                        kernel: launch.kernel,
                        variant: problem.kind(),
                        args: arguments(file, from.name, &plan, launch),
                        grid: launch.grid,
                        given: launch.arguments.iter().filter_map(|argument| given(argument, &plan)).collect(),
                        source: from.text,
                        row: (launch.sharing == Sharing::Cluster && OF_ROWS.contains(&operator.name))
                            .then_some((launch.cluster, launch.warps)),
                        resident: (launch.warps, launch.resident),
                        threads: launch.threads,
                    };
                    if seen.insert(format!("{} {:?} {:?} {:?}", case.kernel, case.args, case.row, case.resident)) {
                        cases.push(case);
                    }
                }
            }
        }
    }
    cases
}

fn given((name, argument): &(&'static str, Argument), plan: &Plan) -> Option<(String, Given)> {
    let given = match *argument {
        Argument::Tensor(position) => {
            let spec = &plan.tensors[position];
            let sizes = spec.shape.iter().map(|&extent| extent as i64).collect();
            match spec.fill {
                _ if spec.role == Role::Counter => Given::Zeros(spec.dtype, sizes),
                Fill::Bounds { rows } => Given::Bounds(spec.dtype, sizes, rows),
                Fill::Places => Given::Pattern(sizes, spec.fill),
                // Places that an earlier launch has left: others would lead out of arrays.
                _ if spec.role == Role::Workspace && spec.dtype == DType::I32 => return None,
                Fill::RowOffsets(_) | Fill::Columns(_) | Fill::Rows(_) | Fill::Distinct { .. } => {
                    Given::Pattern(sizes, spec.fill)
                }
                Fill::Integers { least: least @ 0.., greatest } if spec.dtype.is_integer() => {
                    Given::Counts(spec.dtype, sizes, [least, greatest])
                }
                Fill::Normal { .. } | Fill::Integers { .. } => Given::Array(spec.dtype, sizes),
            }
        }
        Argument::Int(value) => Given::Number(value as f64),
        Argument::Float(value) => Given::Number(value),
        Argument::Bool(value) => Given::Number(f64::from(u8::from(value))),
        Argument::Type(_) | Argument::Word(_) => return None,
    };
    Some((name.to_string(), given))
}

fn arguments(file: &ParsedFile, name: &str, plan: &Plan, launch: &LaunchSpec) -> Args {
    let params = &file.kernels.get(launch.kernel).unwrap_or_else(|| panic!("{name} has no {}", launch.kernel)).params;
    let constant = |name: &str| params.iter().any(|param| param.name == name && param.is_constant());
    let typed = |(name, argument): &(&'static str, Argument)| {
        let value = match *argument {
            Argument::Tensor(position) => return (name.to_string(), array(&plan.tensors[position])),
            Argument::Type(dtype) => ConstValue::DType(dtype),
            Argument::Word(word) => ConstValue::Str(word.to_string()),
            Argument::Int(value) => ConstValue::Int(value),
            Argument::Float(value) => ConstValue::Float(value),
            Argument::Bool(value) => ConstValue::Bool(value),
        };
        let ty = match value {
            ConstValue::Int(_) if !constant(name) => ArgType::Scalar(DType::I32),
            ConstValue::Float(_) if !constant(name) => ArgType::Scalar(DType::F32),
            ConstValue::Bool(_) if !constant(name) => ArgType::Scalar(DType::B1),
            value => ArgType::Const(value),
        };
        (name.to_string(), ty)
    };
    let mut args: Args = launch.arguments.iter().map(typed).collect();
    let numbers = |of: &[usize]| of.iter().map(|&number| number as i64).collect();
    let lies = |place: usize| match launch.arguments[place].1 {
        Argument::Tensor(position) => Some([&plan.tensors[position].shape[..], &strides(&plan.tensors[position])].map(numbers)),
        _ => None,
    };
    state_odd_lines(&mut args, lies);
    args
}

/// Strides of an array whose elements lie so far apart, in elements.
fn strides(spec: &TensorSpec) -> Vec<usize> {
    let rank = spec.shape.len();
    let mut strides = vec![spec.step; rank];
    for axis in (1..rank).rev() {
        strides[axis - 1] = strides[axis] * spec.shape[axis];
    }
    strides
}

/// An array as a launch sees it: run-time sizes, a unit stride where there is one, what divides all lines.
fn array(spec: &TensorSpec) -> ArgType {
    let (rank, strides) = (spec.shape.len(), strides(spec));
    let bits = |elements: usize| elements as u64 * u64::from(spec.dtype.bits());
    let steps = spec.shape.iter().zip(&strides).filter(|&(&size, &stride)| size > 1 || stride == 1);
    let zeros = steps.map(|(&size, &stride)| bits(if stride == 1 { size } else { stride }).trailing_zeros()).min();
    let wide = spec.len() as u64 * spec.step as u64 > i32::MAX as u64;
    let unit = (0..rank).rev().find(|&axis| strides[axis] == 1);
    ArgType::Array {
        dtype: spec.dtype,
        shape: vec![Extent::Dynamic; rank].into_iter().collect(),
        strides: (0..rank).map(|axis| if unit == Some(axis) { Extent::Static(1) } else { Extent::Dynamic }).collect(),
        align: 16,
        lines: ((1u64 << zeros.unwrap_or(7).min(7)) / 8).clamp(1, 16) as u32,
        index: if wide { IndexType::I64 } else { IndexType::I32 },
        disjoint: true,
    }
}

/// Compiles a kernel of a parsed file.
pub(crate) fn compiled(file: &ParsedFile, kernel: &str, args: &Args) -> Compiled {
    compiled_with(file, kernel, args, &CompileOptions::default())
}

fn compiled_with(file: &ParsedFile, kernel: &str, args: &Args, options: &CompileOptions) -> Compiled {
    compile(file, kernel, args, options).unwrap_or_else(|found| panic!("{kernel}: {}", found[0].render(&file.sources, false)))
}

/// A kernel file of the library.
pub(crate) fn file(name: &str) -> ParsedFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tessera-ops/kernels").join(name);
    parse_file(name, &std::fs::read_to_string(path).expect("the kernel's file"))
}

/// Arguments of the library's product of two bf16 matrices, the second transposed, in tiles of this size.
pub(crate) fn product_args([m, n, k]: [i64; 3]) -> Args {
    let array = || ArgType::array(DType::BF16, 2);
    let constant = |value| ArgType::Const(ConstValue::Int(value));
    let flag = |value| ArgType::Const(ConstValue::Bool(value));
    let dtype = |dtype| ArgType::Const(ConstValue::DType(dtype));
    named([
        ("A", array()),
        ("B", array()),
        ("C", array()),
        ("alpha", ArgType::Scalar(DType::F32)),
        ("beta", ArgType::Scalar(DType::F32)),
        ("K", ArgType::Scalar(DType::I32)),
        ("COMPUTE", dtype(DType::BF16)),
        ("ACC", dtype(DType::F32)),
        ("TM", constant(m)),
        ("TN", constant(n)),
        ("TK", constant(k)),
        ("TRANSPOSE_A", flag(false)),
        ("TRANSPOSE_B", flag(true)),
    ])
}

/// Arguments of the library's causal softmax of f16 rows.
pub(crate) fn softmax_args([rows, n, queries]: [i64; 3]) -> Args {
    let array = || ArgType::array(DType::F16, 2);
    let constant = |value| ArgType::Const(ConstValue::Int(value));
    let acc = ArgType::Const(ConstValue::DType(DType::F32));
    named([
        ("x", array()),
        ("y", array()),
        ("ACC", acc),
        ("ROWS", constant(rows)),
        ("N", constant(n)),
        ("QUERIES", constant(queries)),
    ])
}

fn named<const N: usize>(args: [(&str, ArgType); N]) -> Args {
    args.into_iter().map(|(name, ty)| (name.to_string(), ty)).collect()
}
