//! Every gradient is that of its operator, and one that is not is found.

use std::ops::Range;

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
    assert!(held >= 100, "{held} gradients were held");
}

/// A reference whose results are wrong in one way.
struct Wrong {
    own: Box<dyn Reference>,
    how: fn(usize, f64) -> f64,
}

impl Reference for Wrong {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, mut expected: Expected<'_>) {
        if let Expected::Bounded { want, bound } = &mut expected {
            self.own.rows(inputs, output, rows, Expected::Bounded { want, bound });
            want.iter_mut().enumerate().for_each(|(at, value)| *value = (self.how)(at, *value));
        }
    }
}

#[test]
fn wrong_gradients_are_found() {
    let operator = tessera_ops::find("rms_norm").expect("an operator");
    let backward = operator.gradient.expect("a gradient");
    let policy = widest(operator).expect("a precision");
    let problem = &(operator.edges)()[5];
    let planned = |operator: &Operator| operator.plan(problem, policy, Machine::Cpu).expect("a plan");
    let with = |how: fn(usize, f64) -> f64| {
        let plan = planned(backward);
        let plan = Plan { reference: Box::new(Wrong { own: plan.reference, how }), ..plan };
        hold("rms_norm", &planned(operator), &plan, 1).expect("both are computed").passed()
    };
    assert!(with(|_, value| value));
    assert!(!with(|_, value| value * 1.0001));
    assert!(!with(|at, value| if at == 3 { 0.0 } else { value }));
    assert!(!with(|_, value| value + 1e-4));
    assert!(!with(|_, value| -value));
}
