//! Cases of the operator library and what is broken in each.

mod attention;
mod attn;
mod bandwidth;
mod channels;
mod elem;
mod gemm;
mod grouped;
mod histogram;
mod linear;
mod linear_loss;
pub(crate) mod mat;
mod permute;
mod quantised;
mod row_gradients;
mod row_order;
mod rows;
mod sparse;
mod vector;
mod windows;

use tessera_ops::{Argument, Fill, Machine, Plan, Problem, Role};
use tessera_types::Arch;

/// Every case, by operator.
pub(crate) const CASES: &[&[Case]] = &[
    gemm::CASES,
    linear::CASES,
    linear_loss::CASES,
    mat::CASES,
    permute::CASES,
    quantised::CASES,
    grouped::CASES,
    attention::CASES,
    attn::CASES,
    windows::CASES,
    vector::CASES,
    histogram::CASES,
    rows::CASES,
    channels::CASES,
    row_gradients::CASES,
    row_order::CASES,
    bandwidth::CASES,
    sparse::CASES,
    elem::CASES,
];

/// One case that passes as it is.
pub(crate) struct Case {
    /// Name of the operator.
    pub(crate) operator: &'static str,
    /// Extents of its problem.
    pub(crate) extents: &'static [(&'static str, u64)],
    /// Variant of its problem.
    pub(crate) variant: &'static str,
    /// Precision.
    pub(crate) policy: &'static str,
    /// Gives the plan the data on which the mutants show.
    pub(crate) data: fn(Plan) -> Plan,
    /// Replacements that belong to the case itself.
    pub(crate) text: &'static [(&'static str, &'static str)],
    /// What is broken in it.
    pub(crate) mutants: &'static [Mutant],
}

/// One broken kernel.
pub(crate) struct Mutant {
    /// What is wrong with it.
    pub(crate) what: &'static str,
    /// Replacements in the kernels' text.
    pub(crate) text: &'static [(&'static str, &'static str)],
    /// Changes of the launches.
    pub(crate) launch: fn(&mut Plan),
}

/// A mutant of the text.
const fn edit(what: &'static str, text: &'static [(&'static str, &'static str)]) -> Mutant {
    Mutant { what, text, launch: |_| {} }
}

/// A mutant of the launch.
const fn relaunch(what: &'static str, launch: fn(&mut Plan)) -> Mutant {
    Mutant { what, text: &[], launch }
}

/// One block fewer along the first axis of the first launch.
fn one_block_short(plan: &mut Plan) {
    plan.launches[0].grid[0] -= 1;
}

/// The inputs drawn with a mean and a standard deviation.
fn normal(mut plan: Plan, mean: f64, sd: f64) -> Plan {
    plan.tensors.iter_mut().filter(|t| t.role == Role::Input).for_each(|t| t.fill = Fill::Normal { mean, sd });
    plan
}

/// What masks are: little above the lowest number of 32 bits.
const LOW: f64 = -3.3e38;

/// Replaces an argument of the first launch.
fn set(plan: &mut Plan, name: &str, value: Argument) {
    let slot = plan.launches[0].arguments.iter_mut().find(|(n, _)| *n == name);
    slot.unwrap_or_else(|| panic!("no argument `{name}`")).1 = value;
}

/// What a GPU does with rows in bf16 that are no whole vectors: blocks take several of them that begin alike.
fn alike(operator: &str, extents: &[(&'static str, u64)]) -> Plan {
    let operator = tessera_ops::find(operator).expect("an operator of the library");
    let policy = "bf16".parse().expect("a policy of the grammar");
    let mut plan = operator.plan(&Problem::new(extents, ""), policy, Machine::Gpu(Arch::Sm90a)).expect("a plan");
    set(&mut plan, "STEP", Argument::Int(8));
    plan.launches[0].grid[0] = 8;
    plan
}

/// What a GPU without clusters does with rows that no block holds, its results no further behind than a row: blocks find one piece and write another.
fn in_pieces(operator: &str, extents: &[(&'static str, u64)], variant: &str) -> Plan {
    let operator = tessera_ops::find(operator).expect("an operator of the library");
    let policy = "fp32".parse().expect("a policy of the grammar");
    let mut plan = operator.plan(&Problem::new(extents, variant), policy, Machine::Gpu(Arch::Sm80)).expect("a plan");
    let pieces = plan.launches[0].arguments.iter().find(|(name, _)| *name == "PIECES").expect("rows in pieces").1;
    let Argument::Int(count) = pieces else { panic!("pieces are counted") };
    set(&mut plan, "BEHIND", pieces);
    plan.launches[0].grid[0] = (plan.tensors[0].shape[0] as u32 + 1) * count as u32;
    plan
}
