//! The mutation lane: library kernels broken on purpose are rejected by the gate; the same cases unbroken pass.
//!
//! A mutant is a replacement in the kernel's text, or a changed launch, of one case of an operator. It has to compile and run: a mutant
//! that stops earlier says nothing of the gate.

use std::collections::BTreeSet;

use tessera_bench::{GateOptions, GateReport, PlanSubject, check};
use tessera_ops::{KernelFile, Machine, OPERATORS, Plan, Problem, SharedFiles};
use tessera_runtime::{CompileOptions, Device, Modules, Wanted};

use crate::broken::{CASES, Case, Mutant, mat::RUNGS};

const OPTIONS: GateOptions = GateOptions { seeds: 1, suite_seed: 7, tolerance: None, specials: false };

/// A file's text, with those of the library's shared files in the places where it imports them: a mutant may be one of theirs. So no two
/// functions of them may have one name.
fn whole(file: KernelFile) -> String {
    let line = |line: &str| match line.strip_prefix("from .").and_then(|rest| rest.split(' ').next()) {
        Some(path) => SharedFiles.find(Wanted { from: file.name, level: 1, path }).expect("a shared file").text,
        None => line.to_string(),
    };
    file.text.lines().map(|own| line(own) + "\n").collect()
}

/// The text with every occurrence of each pattern replaced; a pattern that is not there is a mistake of the table.
fn replaced(text: &str, replacements: &[(&str, &str)], what: &str) -> Result<String, String> {
    replacements.iter().try_fold(text.to_string(), |text, (from, to)| {
        if text.contains(from) { Ok(text.replace(from, to)) } else { Err(format!("{what}: the kernels have no `{from}`")) }
    })
}

/// What the gate says of a case of an operator, or of a rung of its ladder; or why the case does not run.
fn gate(case: &Case, rung: Option<&str>, mutant: Option<&Mutant>) -> Result<GateReport, String> {
    let what = format!("{} {} {}: {}", case.operator, case.variant, case.policy, mutant.map_or("as it is", |m| m.what));
    let operator = tessera_ops::find(case.operator).expect("an operator of the library");
    let problem = Problem::new(case.extents, case.variant);
    let policy = case.policy.parse().expect("a policy of the grammar");
    let own = match rung {
        Some(name) => operator.plan_on(operator.rung(name).expect("a rung of the ladder"), &problem, policy, Machine::Cpu),
        None => operator.plan(&problem, policy, Machine::Cpu),
    };
    let mut plan: Plan = (case.data)(own.expect("a plan"));
    let own = KernelFile { name: operator.file, text: operator.source };
    let file = rung.and(plan.launches[0].file).unwrap_or(own);
    let mut text = replaced(&whole(file), case.text, &what)?;
    if let Some(mutant) = mutant {
        text = replaced(&text, mutant.text, &what)?;
        (mutant.launch)(&mut plan);
    }
    let subject = PlanSubject::build(plan, (file.name, &text), &CompileOptions::default(), &Device::Cpu);
    let fault = |fault| format!("{what}: {fault:?}");
    check(&mut subject.map_err(fault)?, OPTIONS).map_err(fault)
}

/// Operators without a mutant. One that gets some leaves the list.
const WITHOUT: [&str; 2] = ["cumsum_backward", "log_sum_exp_backward"];

#[test]
fn every_operator_has_a_mutant() {
    let cases = CASES.iter().flat_map(|group| group.iter()).filter(|case| !case.mutants.is_empty());
    let broken: BTreeSet<&str> = cases.map(|case| case.operator).collect();
    let without: Vec<&str> = OPERATORS.iter().map(|operator| operator.name).filter(|name| !broken.contains(name)).collect();
    assert_eq!(without, WITHOUT);
}

#[test]
fn broken_kernels_are_rejected_and_right_ones_pass() {
    let (mut caught, mut wrong) = (0, Vec::new());
    let rungs = RUNGS.iter().map(|(rung, case)| (Some(*rung), case));
    for (rung, case) in CASES.iter().flat_map(|group| group.iter()).map(|case| (None, case)).chain(rungs) {
        match gate(case, rung, None) {
            Ok(report) if report.passed() => {}
            Ok(report) => {
                wrong.push(format!("{} {} {}: rejected as it is: {:?}", case.operator, case.variant, case.policy, report.reason));
            }
            Err(fault) => wrong.push(fault),
        }
        for mutant in case.mutants {
            let report = match gate(case, rung, Some(mutant)) {
                Ok(report) => report,
                Err(fault) => {
                    wrong.push(fault);
                    continue;
                }
            };
            if report.passed() {
                wrong.push(format!("{} {} {}: `{}` passes", case.operator, case.variant, case.policy, mutant.what));
                continue;
            }
            let reason = report.reason.unwrap_or_default();
            println!("{} {} {}: {}: {reason}", case.operator, case.variant, case.policy, mutant.what);
            caught += 1;
        }
    }
    let cases = CASES.iter().map(|group| group.len()).sum::<usize>();
    println!("{cases} cases as they are, {caught} mutants caught, {} mistakes", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(caught >= 20, "{caught} mutants");
}
