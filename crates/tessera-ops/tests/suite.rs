//! The suite has the seed's shapes, and every plan that it promises can be made.

use std::collections::BTreeSet;

use tessera_ops::{Machine, OPERATORS, Problem, Role, TensorSpec};
use tessera_types::{Arch, Policy};

#[test]
fn operators_have_names_of_their_own() {
    let mut names: Vec<&str> = OPERATORS.iter().map(|operator| operator.name).collect();
    names.sort_unstable();
    let doubled: Vec<&str> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    // A gradient is called by what it is the gradient of.
    for operator in OPERATORS {
        let Some(gradient) = operator.gradient else { continue };
        assert!(tessera_ops::find(gradient.name).is_some(), "{} is not listed", gradient.name);
        // Attention's needs what attention with its sums gives, and is the gradient of that.
        let own = if operator.name == "attention_lse" { "attention" } else { operator.name };
        assert_eq!(gradient.name, format!("{own}_backward"));
    }
}

#[test]
fn the_seed_suite_has_its_862_shapes() {
    let counts = OPERATORS.iter().map(|op| (op.name, (op.suite)().len()));
    let counts: Vec<(&str, usize)> = counts.filter(|(_, count)| *count > 0).collect();
    assert_eq!(counts, [("gemm", 40), ("vector", 75), ("layer_norm", 322), ("softmax", 245), ("bandwidth", 180)]);
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 862);
    let points: usize = OPERATORS.iter().map(|op| (op.suite)().len() * op.precisions.len()).sum();
    assert_eq!(points, 4145);
}

#[test]
fn the_quick_subset_has_each_operator() {
    for op in OPERATORS {
        let quick = (op.quick)();
        // In which precisions, the selection says.
        assert!(!quick.is_empty(), "{} has no quick case", op.name);
        let distinct: BTreeSet<(String, &str)> =
            quick.iter().map(|(problem, precision)| (problem.to_string(), *precision)).collect();
        assert_eq!(distinct.len(), quick.len(), "{} repeats a case", op.name);
    }
}

#[test]
fn every_case_has_a_plan_with_work() {
    let machines = [Machine::Cpu, Machine::Gpu(Arch::Sm80), Machine::Gpu(Arch::Sm90a)];
    for op in OPERATORS {
        let policies: Vec<Policy> = op.precisions.iter().map(|text| text.parse().expect("a policy of the grammar")).collect();
        let cases =
            (op.suite)().into_iter().chain((op.further_suite)()).chain((op.edges)()).chain((op.quick)().into_iter().map(|q| q.0));
        for problem in cases {
            for (policy, machine) in policies.iter().flat_map(|policy| machines.map(|machine| (policy, machine))) {
                let plan = op
                    .plan(&problem, *policy, machine)
                    .unwrap_or_else(|why| panic!("{} {problem} {policy} {machine:?}: {why}", op.name));
                let is_read = |tensor: &TensorSpec| matches!(tensor.role, Role::Input | Role::InOut) && !tensor.is_empty();
                let reads = plan.tensors.iter().any(is_read);
                // Of no elements there may be no work.
                let is_empty = plan.outputs.iter().all(|output| plan.tensors[output.tensor].is_empty())
                    || plan.tensors.iter().any(|tensor| tensor.role == Role::Input && tensor.is_empty());
                let has_work = plan.work.write_bytes > 0 && (plan.work.read_bytes > 0) == reads;
                assert!(is_empty || has_work, "{} {problem}", op.name);
                // What is read of little or nothing is not more than there is.
                let bytes = |is_it: fn(Role) -> bool| -> u64 {
                    let own = plan.tensors.iter().filter(|tensor| is_it(tensor.role));
                    own.map(|tensor| tensor.len() as u64 * u64::from(tensor.dtype.bits())).sum::<u64>().div_ceil(8)
                };
                let most = bytes(|role| matches!(role, Role::Input | Role::InOut));
                assert!(
                    !is_empty || plan.work.read_bytes <= most,
                    "{} {problem} {policy}: {} of {most} bytes",
                    op.name,
                    plan.work.read_bytes
                );
                for launch in &plan.launches {
                    let file = op.file_of(launch);
                    assert!(file.text.contains(&format!("def {}(", launch.kernel)), "{} has no {}", file.name, launch.kernel);
                    assert!(launch.grid.iter().all(|&blocks| blocks > 0), "{} {problem} has no blocks", op.name);
                }
            }
        }
    }
}

#[test]
fn work_is_counted_from_the_problem() {
    let gemm = tessera_ops::find("gemm").expect("gemm");
    let problem = Problem::new(&[("batch", 1), ("m", 100), ("n", 200), ("k", 300)], "nt");
    let plan = gemm.plan(&problem, "fp4@accum(fp32)".parse().expect("policy"), Machine::Cpu).expect("plan");
    assert_eq!(plan.work.flops, 2 * 100 * 200 * 300);
    assert_eq!(plan.work.read_bytes, (100 * 300 + 200 * 300) / 2);
    assert_eq!(plan.work.write_bytes, 4 * 100 * 200);
    assert_eq!(plan.tensors[1].shape, [200, 300]);
}
