//! Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019), with weight.

use crate::operator::Operator;
use crate::set::norm::{self, Centre};

pub(crate) static RMS_NORM: Operator = Operator {
    name: "rms_norm",
    about: "root-mean-square normalisation over the last axis, with weight",
    file: "rms_norm.py",
    source: include_str!("../../kernels/rms_norm.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: norm::suite,
    quick: || norm::quick(RMS_NORM.precisions),
    edges: norm::edges,
    draw: norm::draw,
    calls: norm::calls(Centre::Zero),
    numbers: &[],
    plan: |problem, policy, machine| norm::plan("rms_norm", Centre::Zero, problem, policy, machine),
    ways: None,
    gradient: Some(&crate::set::norm_backward::RMS_NORM_BACKWARD),
    no_specials: None,
    ladder: &[],
};
