//! Layer normalisation over the last axis (Ba, Kiros and Hinton, 2016), with weight and bias.

use crate::operator::Operator;
use crate::set::norm::{self, Centre};

pub(crate) static LAYER_NORM: Operator = Operator {
    name: "layer_norm",
    about: "layer normalisation over the last axis, with weight and bias",
    file: "layer_norm.py",
    source: include_str!("../../kernels/layer_norm.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_precisions: &["fp64"],
    suite: norm::suite,
    further_suite: Vec::new,
    quick: || norm::quick(LAYER_NORM.precisions),
    edges: norm::edges,
    draw: norm::draw,
    calls: norm::calls(Centre::Mean),
    numbers: &[],
    plan: |problem, policy, machine| norm::plan("layer_norm", Centre::Mean, problem, policy, machine),
    ways: None,
    gradient: Some(&crate::set::norm_backward::LAYER_NORM_BACKWARD),
    no_specials: None,
    ladder: &[],
};
