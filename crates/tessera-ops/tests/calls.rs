//! Calls of the functions: what they refuse, and results for numbers that no random array has.

use tessera_ops::{Machine, Normalised, Problem, find, moe_gate};
use tessera_runtime::Tensor;

/// Why an operator does not plan a problem.
fn refusal(operator: &str, extents: &[(&'static str, u64)], variant: &str, policy: &str) -> String {
    let operator = find(operator).expect("an operator");
    let policy = policy.parse().expect("a policy");
    match operator.plan(&Problem::new(extents, variant), policy, Machine::Cpu) {
        Ok(_) => panic!("{} plans {extents:?}", operator.name),
        Err(why) => why.to_string(),
    }
}

#[test]
fn a_gate_takes_no_expert_twice() {
    let nothing = f32::NEG_INFINITY;
    for (logits, wanted) in [
        ([0.0, nothing, nothing], ([1.0, 0.0], [0.0, 1.0])),
        ([nothing, 3.0, nothing], ([1.0, 0.0], [1.0, 0.0])),
        ([nothing, nothing, 3.0], ([1.0, 0.0], [2.0, 0.0])),
    ] {
        let logits = Tensor::from_vec(&[1, 3], logits.to_vec()).expect("memory");
        for normalised in [Normalised::OverAll, Normalised::OverChosen] {
            let [weights, ids] = moe_gate(&logits, 2, normalised).expect("a gate");
            let found = (weights.to_f64().expect("numbers"), ids.to_f64().expect("numbers"));
            assert_eq!(found, (wanted.0.to_vec(), wanted.1.to_vec()), "{logits:?} {normalised:?}");
        }
    }
}

#[test]
fn a_gate_and_its_gradient_choose_as_many_experts_as_there_are() {
    for operator in ["moe_gate", "moe_gate_backward"] {
        for variant in ["", "renormalised"] {
            for k in [0, 5] {
                let why = refusal(operator, &[("tokens", 3), ("experts", 4), ("k", k)], variant, "fp32");
                assert_eq!(why, format!("a token has 1 to 4 of 4 experts, and not {k}"), "{operator} {variant}");
            }
        }
    }
}
