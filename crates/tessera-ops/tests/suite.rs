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
    // A gradient is called by what it is the gradient of, where it is of one alone.
    for operator in OPERATORS {
        let Some(gradient) = operator.gradient else { continue };
        assert!(tessera_ops::find(gradient.name).is_some(), "{} is not listed", gradient.name);
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
fn the_quick_subset_has_each_operator_and_precision() {
    let mut rows = 0;
    for op in OPERATORS {
        let quick = (op.quick)();
        rows += quick.len();
        let precisions: BTreeSet<&str> = quick.iter().map(|(_, precision)| *precision).collect();
        // Operators beside the benchmark suite are there in one precision at least: a look takes less than a minute.
        assert!(!precisions.is_empty(), "{} has no quick case", op.name);
        for precision in op.precisions.iter().filter(|_| !(op.suite)().is_empty()) {
            assert!(precisions.contains(precision), "{} lacks {precision}", op.name);
        }
        let distinct: BTreeSet<(String, &str)> =
            quick.iter().map(|(problem, precision)| (problem.to_string(), *precision)).collect();
        assert_eq!(distinct.len(), quick.len(), "{} repeats a case", op.name);
    }
    assert!((40..=400).contains(&rows), "{rows} rows");
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
