//! Calls of the functions: what they refuse, and results for numbers that no random array has.

use tessera_ops::{
    Call, Channels, Machine, Normalised, OPERATORS, Operator, Pages, Problem, Scores, Window, attention_decode, conv2d, find,
    moe_gate, sparse24_compress, sparse24_expand, sparse24_gemm,
};
use tessera_runtime::{Tensor, Value};
use tessera_types::{Arch, DType};

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
fn a_gate_takes_nan_for_the_largest() {
    let nan = f32::NAN;
    for (logits, wanted) in [([1.0, nan, 3.0], [1.0, 2.0]), ([nan, 1.0, -nan], [0.0, 2.0]), ([nan, nan, nan], [0.0, 1.0])] {
        for normalised in [Normalised::OverAll, Normalised::OverChosen] {
            let logits = Tensor::from_vec(&[1, 3], logits.to_vec()).expect("memory");
            let [weights, ids] = moe_gate(&logits, 2, normalised).expect("a gate");
            assert_eq!(ids.to_f64().expect("numbers"), wanted, "{logits:?} {normalised:?}");
            assert!(weights.to_f64().expect("numbers").iter().all(|weight| weight.is_nan()));
        }
    }
}

#[test]
fn a_layer_passes_nan_on() {
    let operator = find("linear").expect("an operator");
    let tensor = |shape: &[usize], values: &[f32]| Tensor::from_vec(shape, values.to_vec()).expect("memory");
    let tensors = vec![
        ("x", tensor(&[1, 1], &[1.0])),
        ("weight", tensor(&[3, 1], &[f32::NAN, -2.0, 2.0])),
        ("bias", tensor(&[3], &[0.0, 1.0, 1.0])),
    ];
    let call = Call { variant: Some("relu"), tensors, ..Call::default() };
    let y = operator.resolve(&call).expect("a plan").run().expect("a result")[0].to_f64().expect("numbers");
    assert!(y[0].is_nan() && y[1..] == [0.0, 3.0], "{y:?}");
}

#[test]
fn scores_are_scaled_by_more_than_nothing() {
    let q = Tensor::ones(DType::F32, &[1, 1, 2, 64]).expect("memory");
    for name in ["attention", "attention_lse"] {
        let said = |scale: f64| {
            let tensors = ["Q", "K", "V"].map(|name| (name, q.clone())).to_vec();
            let call = Call { tensors, scalars: vec![("scale", scale)], ..Call::default() };
            find(name).expect("an operator").resolve(&call).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(said(0.5), Ok(()));
        for scale in [0.0, -0.5, f64::NAN, f64::INFINITY, 1e-60] {
            let why = said(scale).expect_err("a scale that is none");
            assert!(why.starts_with(&format!("`scale` is {scale}: it is a finite number of more than 0")), "{why}");
        }
    }
}

#[test]
fn a_variant_that_there_is_not_is_refused() {
    for operator in OPERATORS.iter().filter(|operator| operator.calls.variants != [""]) {
        let (problem, policy) = (operator.quick)().remove(0);
        let policy = policy.parse().expect("a policy");
        let wrong = Problem { variant: "nonsense".to_string(), ..problem };
        let why = operator.plan(&wrong, policy, Machine::Cpu).map(drop).expect_err(operator.name).to_string();
        assert!(why.starts_with(&format!("{} has no variant `nonsense`: it is one of ", operator.name)), "{why}");
        for rung in operator.ladder {
            assert_eq!(operator.plan_on(rung, &wrong, policy, Machine::Cpu).map(drop).expect_err(rung.name).to_string(), why);
        }
        assert_eq!(operator.ways(&wrong, policy, Machine::Cpu).map(drop).expect_err(operator.name).to_string(), why);
    }
}

#[test]
fn convolutions_that_no_grid_holds_are_refused() {
    for operator in ["conv2d", "conv2d_backward"] {
        for variant in ["nchw", "nhwc", "nchw bias", "nhwc bias"] {
            let extents = |n, c, h, o, r, groups| {
                vec![("n", n), ("c", c), ("h", h), ("w", h), ("o", o), ("r", r), ("s", r), ("groups", groups)]
            };
            // Groups of many tiles, images of many, extents beyond any memory, and beyond 64 bits together.
            for sizes in [
                extents(1, 1 << 30, 1, 1 << 30, 1, 1 << 29),
                extents(1 << 20, 4, 1 << 12, 4, 3, 1),
                extents(1 << 40, 4, 4, 4, 1, 1),
                extents(1 << 31, 1 << 31, 1 << 31, 4, 1, 1),
                extents(u64::MAX, 4, u64::MAX, 4, 3, 2),
            ] {
                let why = refusal(operator, &sizes, variant, "fp16->fp16");
                assert!(why.contains("too many blocks") || why.contains("more than"), "{operator} {sizes:?}: {why}");
            }
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

#[test]
fn kernels_that_number_elements_by_32_bits_take_no_more() {
    let large = 1 << 31;
    for (operator, extents, variant, policy) in [
        ("prefix_sum", vec![("n", large)], "inclusive", "fp32"),
        ("masked_select", vec![("n", large)], "", "fp32"),
        ("sort", vec![("n", large)], "keys", "int32"),
        ("csr_to_dense", vec![("m", 1 << 20), ("n", 1 << 12), ("elements", 9)], "", "fp32"),
        ("dense_to_csr", vec![("m", 1 << 20), ("n", 1 << 12), ("elements", 9)], "", "fp32"),
        // 2^64 elements, whose number is 0 in 64 bits.
        ("csr_to_dense", vec![("m", 1 << 30), ("n", 1 << 34), ("elements", 9)], "", "fp32"),
        ("dense_to_csr", vec![("m", 1 << 32), ("n", 1 << 32), ("elements", 9)], "", "fp32"),
        ("csr_to_csc", vec![("m", 1 << 20), ("n", 1 << 20), ("elements", large - 1)], "", "fp32"),
        ("spmv", vec![("m", u64::MAX), ("n", 9), ("elements", 9)], "", "fp32"),
    ] {
        let why = refusal(operator, &extents, variant, policy);
        assert!(why.starts_with("elements are numbered by 32 bits"), "{operator} {extents:?}: {why}");
    }
}

#[test]
fn what_no_sparse_matrix_has_is_no_uniform_one() {
    let why = refusal("spmv", &[("m", 5), ("n", 5), ("elements", 5)], "power-law", "fp32");
    assert_eq!(why, "`power-law` is no spread of elements");
}

#[test]
fn blocks_have_a_place_along_each_axis_of_a_gpu() {
    let gemm = find("gemm").expect("an operator");
    for sizes in [[70_000, 64, 64], [1, 1 << 23, 64]] {
        let [batch, m, n] = sizes;
        let problem = Problem::new(&[("batch", batch), ("m", m), ("n", n), ("k", 64)], "nn");
        for rung in gemm.ladder {
            let policy = if rung.name == "tensor_cores" { "fp16" } else { "fp32" };
            let policy = policy.parse().expect("a policy");
            let why = gemm.plan_on(rung, &problem, policy, Machine::Gpu(Arch::Sm90a)).expect_err(rung.name);
            assert!(why.to_string().contains("blocks along an axis, and a GPU has 65535"), "{}: {why}", rung.name);
            assert!(gemm.plan_on(rung, &problem, policy, Machine::Cpu).is_ok(), "{}", rung.name);
        }
    }
    let batched = Problem::new(&[("batch", 70_000), ("m", 64), ("n", 64), ("k", 64)], "nn");
    let why = gemm.plan(&batched, "fp16".parse().expect("a policy"), Machine::Gpu(Arch::Sm90a)).expect_err("70000 products");
    assert_eq!(why.to_string(), "`gemm_batched` would have 70000 blocks along an axis, and a GPU has 65535");
}

#[test]
fn a_window_without_a_place_is_named() {
    let [x, weight] = [[1, 1, 2, 2], [1, 1, 5, 5]].map(|shape| Tensor::ones(DType::F32, &shape).expect("memory"));
    let why = conv2d(&x, &weight, None, Channels::First, Window::default()).expect_err("a window larger than its image");
    assert_eq!(why.to_string(), "a window of 5 x 5 is larger than 2 x 2 with 0 around");
}

#[test]
fn nothing_to_see_and_no_cap_are_told_from_all_and_none() {
    let q = Tensor::ones(DType::F32, &[1, 2, 64]).expect("memory");
    let cache = Tensor::ones(DType::F32, &[1, 16, 2, 64]).expect("memory");
    let (table, lengths) =
        (Tensor::from_vec(&[1, 1], vec![0]).expect("memory"), Tensor::from_vec(&[1], vec![5]).expect("memory"));
    let pages = Pages { keys: &cache, values: &cache, table: &table, lengths: &lengths };
    let said = |scores: Scores<'_>| attention_decode(&q, &pages, &scores).map(drop).map_err(|error| error.to_string());
    let [window, cap] = [
        said(Scores { window: Some(0), ..Scores::default() }).expect_err("no keys"),
        said(Scores { cap: Some(0.0), ..Scores::default() }).expect_err("a cap of 0"),
    ];
    assert!(window.starts_with("`window` is 0: ") && cap.starts_with("`cap` is 0: "), "{window}; {cap}");
    // No number of 32 bits, but for 0.
    let small = said(Scores { cap: Some(1e-60), ..Scores::default() }).expect_err("a cap of no more than 0");
    assert!(small.contains("capped at"), "{small}");
    assert_eq!(said(Scores { window: Some(1), cap: Some(0.3), ..Scores::default() }), Ok(()));
}

#[test]
fn elements_of_a_dense_matrix_have_no_spread() {
    let operator = find("dense_to_csr").expect("an operator");
    let quick = (operator.quick)().into_iter().map(|(problem, _)| problem);
    let all: Vec<Problem> = (operator.edges)().into_iter().chain((operator.further_suite)()).chain(quick).collect();
    assert!(all.len() > 3 && all.iter().all(|problem| problem.variant.is_empty()), "{all:?}");
}

#[test]
fn what_is_stored_by_half_says_where_it_does_not_fit() {
    for operator in ["sparse24_compress", "sparse24_expand"] {
        let why = refusal(operator, &[("m", 3), ("k", 6)], "", "bf16");
        assert!(why.contains("6 columns are no multiple of 4"), "{operator}: {why}");
    }
    let gemm = find("sparse24_gemm").expect("an operator");
    let problem = Problem::new(&[("m", 8), ("n", 8), ("k", 32)], "");
    let plan = |policy: &str, arch| gemm.plan(&problem, policy.parse().expect("a policy"), Machine::Gpu(arch));
    let why = plan("fp16", Arch::Sm75).expect_err("no such instruction").to_string();
    assert!(why.starts_with("sm_75 has no products of factors that are stored by half"), "{why}");
    assert!(plan("fp32", Arch::Sm90a).expect_err("no fp32").to_string().contains("`fp16` and `bf16`"));
    for arch in [Arch::Sm80, Arch::Sm90a] {
        assert!(plan("bf16", arch).is_ok());
    }
    let ones = |dtype, shape: &[usize]| Tensor::ones(dtype, shape).expect("memory");
    let said = |half: usize, words: usize, k: usize| {
        let (values, places, b) = (ones(DType::F16, &[2, half]), ones(DType::I32, &[2, words]), ones(DType::F16, &[k, 8]));
        sparse24_gemm(&values, &places, &b).expect_err("arrays that do not fit").to_string()
    };
    assert!(said(15, 1, 30).contains("`values` has 15 columns"), "{}", said(15, 1, 30));
    assert!(said(18, 1, 36).contains("`places` has 1 columns, and 2 are wanted"), "{}", said(18, 1, 36));
    assert!(said(16, 1, 36).contains("`values` are of 32 columns, and `B` has 36 rows"), "{}", said(16, 1, 36));
}

#[test]
fn two_of_four_neighbours_stand_in_two_places() {
    let values = Tensor::from_vec(&[2, 4], vec![1.0f32; 8]).expect("memory");
    let b = Tensor::ones(DType::F16, &[8, 8]).expect("memory");
    let said = |words: [i32; 2]| {
        let places = Tensor::from_vec(&[2, 1], words.to_vec()).expect("memory");
        let halves = Tensor::ones(DType::F16, &[2, 4]).expect("memory");
        let multiplied = sparse24_gemm(&halves, &places, &b).map(drop).map_err(|error| error.to_string());
        let expanded = sparse24_expand(&values, &places).map(drop).map_err(|error| error.to_string());
        assert_eq!(multiplied, expanded);
        expanded
    };
    assert_eq!(said([0x4444_44ed, 0x4444_444e]), Ok(()));
    let equal = said([0x4444_4444, 0x4444_44a4]).expect_err("one place for two");
    assert!(equal.starts_with("`places`: four neighbours number 1 of row 1 have the places 2 and 2: "), "{equal}");
    let falls = said([0x4444_4441, 0x4444_4444]).expect_err("places that fall");
    assert!(falls.starts_with("`places`: four neighbours number 0 of row 0 have the places 1 and 0: "), "{falls}");
    assert!(said([0x44, 0x4444_4444]).expect_err("nothing behind a row").contains("number 2 of row 0"));
}

#[test]
fn infinities_and_nan_are_the_largest_and_zeros_keep_their_places() {
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let x = vec![9.0, infinite, -9.0, nan, 0.0, 0.0, -0.0, 0.0, 1.0, -1.0, 1.0, 1.0, 0.0, 3.0, 0.0, 0.0];
    let [values, places] = sparse24_compress(&Tensor::from_vec(&[1, 16], x).expect("memory")).expect("stored");
    let found = values.to_f64().expect("numbers");
    assert!(found[0] == f64::INFINITY && found[1].is_nan(), "{found:?}");
    assert_eq!(found[2..], [0.0, 0.0, 1.0, -1.0, 0.0, 3.0]);
    // The places 1 and 3, then 0 and 1 three times; words go on with these.
    assert_eq!(places.to_f64().expect("numbers"), [f64::from(0x4444_444d)]);
    let back = sparse24_expand(&values, &places).expect("expanded").to_f64().expect("numbers");
    assert!(back[1] == f64::INFINITY && back[3].is_nan() && back[13] == 3.0, "{back:?}");
}

/// What is computed in 64 bits has numbers of as many: those of a call, and those that it leaves out.
#[test]
fn numbers_have_the_bits_of_sums() {
    let x = Tensor::from_vec(&[1, 2], vec![-3.0, 4.0]).expect("memory");
    let one = |name, values: Vec<f64>| (name, Tensor::from_vec(&[values.len()], values).expect("memory"));
    let run = |operator: &str, more: Vec<(&'static str, Tensor)>, scalars: &[(&'static str, f64)]| {
        let tensors = std::iter::once(("x", x.clone())).chain(more).collect();
        let call = Call { tensors, scalars: scalars.to_vec(), ..Call::default() };
        find(operator).expect("an operator").resolve(&call).expect("a plan").run().expect("a result")[0]
            .to_f64()
            .expect("numbers")
    };
    assert_eq!(run("leaky_relu", Vec::new(), &[]), [-0.03, 4.0]);
    assert_eq!(run("leaky_relu", Vec::new(), &[("slope", 0.1)]), [-0.3 - 5.6e-17, 4.0]);
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-15, "{found} for {wanted}");
    for eps in [None, Some(0.1)] {
        let scalars: Vec<_> = eps.map(|eps| ("eps", eps)).into_iter().collect();
        let found = run("rms_norm", vec![one("weight", vec![1.0, 1.0])], &scalars);
        near(found[1], 4.0 / (12.5 + eps.unwrap_or(1e-5)).sqrt());
    }
}

/// No launch of an operator in 64 bits takes a float in fewer.
#[test]
fn launches_in_64_bits_take_floats_in_64() {
    let policy = "fp64".parse().expect("a policy");
    let mut seen = 0;
    let computes = |operator: &&&Operator| [operator.precisions, operator.further_precisions].concat().contains(&"fp64");
    for operator in OPERATORS.iter().filter(computes) {
        for problem in (operator.edges)() {
            let Ok(plan) = operator.plan(&problem, policy, Machine::Gpu(Arch::Sm90a)) else { continue };
            for launch in &plan.launches {
                let values = launch.values(|at| Tensor::zeros(plan.tensors[at].dtype, &[1]).expect("memory"));
                let single = values.iter().find(|(_, value)| matches!(value, Value::Float(_)));
                assert!(single.is_none(), "{}: `{}` gives {single:?} in 32 bits", operator.name, launch.kernel);
                seen += usize::from(values.iter().any(|(_, value)| matches!(value, Value::Double(_))));
            }
        }
    }
    assert!(seen > 50, "{seen} launches take floats");
}
