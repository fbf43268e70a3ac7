//! Every gradient is that of its operator, and one that is not is found.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tessera_bench::{check_gradient, hold, widest};
use tessera_ops::{Expected, Inputs, Machine, OPERATORS, Operator, Plan, Problem, Reference};

/// Random trials of each operator.
const TRIALS: u64 = 100;
/// Operations and elements of a problem that is drawn.
const EFFORT: (u64, u64) = (1 << 18, 1 << 12);

/// Problems of random sizes.
fn drawn(operator: &Operator, seed: u64) -> Problem {
    let stream = tessera_runtime::RandomStream::named(seed, operator.name);
    let mut index = 0;
    let mut below = |limit: u64| {
        index += 1;
        stream.word(index) % limit.max(1)
    };
    (operator.draw)(&mut tessera_ops::Draw::new(&mut below, EFFORT.0, EFFORT.1))
}

#[test]
fn gradients_are_those_of_their_operators() {
    let mut held = 0;
    for operator in OPERATORS.iter().filter(|operator| operator.gradient.is_some()) {
        let policy = widest(operator).expect("a precision");
        for seed in 0..TRIALS {
            let problem = drawn(operator, seed);
            let found =
                check_gradient(operator, &problem, policy, seed).unwrap_or_else(|why| panic!("{operator:?} {problem}: {why:?}"));
            assert!(found.passed(), "{operator:?} {problem} {policy}, seed {seed}: {found:?}");
            held += 1;
        }
    }
    let gradients = OPERATORS.iter().filter(|operator| operator.gradient.is_some()).count() as u64;
    assert!(gradients >= 32 && held == TRIALS * gradients, "{held} trials of {gradients} gradients");
}

/// A reference of which one result is wrong in one way.
struct Wrong<F> {
    own: Box<dyn Reference>,
    result: usize,
    how: F,
}

impl<F: Fn(&mut [f64]) + Send + Sync> Reference for Wrong<F> {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, mut expected: Expected<'_>) {
        if let Expected::Bounded { want, bound } = &mut expected {
            self.own.rows(inputs, output, rows, Expected::Bounded { want, bound });
            if output == self.result {
                (self.how)(want);
            }
        }
    }
}

fn planned(operator: &Operator, problem: &Problem) -> Plan {
    let policy = widest(operator).expect("a precision");
    operator.plan(problem, policy, Machine::Cpu).expect("a plan")
}

/// Whether the gradient passes with a result that is wrong so.
fn passes(
    operator: &Operator,
    problem: &Problem,
    (result, seed): (usize, u64),
    how: impl Fn(&mut [f64]) + Send + Sync + 'static,
) -> bool {
    let plan = planned(operator.gradient.expect("a gradient"), problem);
    let plan = Plan { reference: Box::new(Wrong { own: plan.reference, result, how }), ..plan };
    hold(operator.name, &planned(operator, problem), &plan, seed).expect("both are computed").passed()
}

#[test]
fn wrong_gradients_are_found() {
    let operator = tessera_ops::find("rms_norm").expect("an operator");
    let problem = &(operator.edges)()[5];
    let with = |how: fn(usize, f64) -> f64| {
        let each = move |values: &mut [f64]| values.iter_mut().enumerate().for_each(|(at, value)| *value = how(at, *value));
        passes(operator, problem, (0, 1), each)
    };
    assert!(with(|_, value| value));
    assert!(!with(|_, value| value * 1.0001));
    assert!(!with(|at, value| if at == 3 { 0.0 } else { value }));
    assert!(!with(|_, value| value + 1e-4));
    assert!(!with(|_, value| -value));
}

/// One element that is twice what it should be is found in each result of each gradient, and the same problem passes as it is.
#[test]
fn one_wrong_element_of_any_gradient_is_found() {
    for operator in OPERATORS.iter().filter(|operator| operator.gradient.is_some()) {
        let backward = operator.gradient.expect("a gradient");
        let results = planned(backward, &drawn(operator, 0)).outputs.len();
        for result in 0..results {
            // A gradient of nothing but zeros has no such element: the next problem.
            let is_found = (0..TRIALS).any(|seed| {
                let problem = drawn(operator, seed);
                let doubled = Arc::new(AtomicBool::new(false));
                let told = Arc::clone(&doubled);
                let how = move |values: &mut [f64]| {
                    let largest = values.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs())).filter(|value| **value != 0.0);
                    if let Some(value) = largest {
                        *value *= 2.0;
                        told.store(true, Ordering::Relaxed);
                    }
                };
                let passed = passes(operator, &problem, (result, seed), how);
                let is_planted = doubled.load(Ordering::Relaxed);
                assert_eq!(passed, !is_planted, "{operator:?} {problem}, result {result}, seed {seed}");
                is_planted
            });
            assert!(is_found, "{operator:?}: result {result} of its gradient is zero everywhere");
        }
    }
}
