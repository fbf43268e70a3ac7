//! Activations and gates, with their gradients: what they compute stands at the head of their kernels.
//!
//! Bounds count what a kernel loses in units of the roundoff of its arithmetic. A power of two is off by 4 of itself (`ex2.approx`: 2 units in the last
//! place) and by what its argument is off, a reciprocal by 4 (`div.approx`), each other operation by 1.

use std::f64::consts::PI;

use crate::operator::{Fill, Operator};
use crate::set::normal;
use crate::set::pointwise::{self, Pointwise};
use crate::signature::{Calls, Operand, Signature};

/// Operators of one line each: statics, name, gradient, description, arrays, numbers, operations of an element, the reference.
macro_rules! activations {
    ($($id:ident $row:ident $(gradient $gradient:ident)? = $name:literal, $about:literal, [$($input:literal)*] [$output:literal $($more:literal)*], $numbers:expr, $flops:literal, $value:expr;)*) => {
        $(
            static $row: Pointwise = Pointwise {
                name: $name,
                inputs: &[$($input),*],
                outputs: &[$output $(, $more)*],
                numbers: $numbers,
                flops: $flops,
                fill: WIDE,
                value: $value,
            };
            pub(crate) static $id: Operator = Operator {
                name: $name,
                about: $about,
                file: "activations.py",
                source: include_str!("../../kernels/activations.py"),
                precisions: &["fp32", "fp16", "bf16"],
                further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
                suite: Vec::new,
                further_suite: pointwise::further_suite,
                quick: || pointwise::quick($id.precisions),
                edges: pointwise::edges,
                draw: pointwise::draw,
                calls: Calls {
                    variants: &[""],
                    default: Some(""),
                    signature: |_| Signature::new(&[$(Operand($input, "..n")),*], &[Operand($output, "..n") $(, Operand($more, "..n"))*]).scalars(names($numbers)),
                    problem: |sizes| Ok(pointwise::problem(sizes.get("n"))),
                },
                numbers: $numbers,
                plan: |problem, policy, machine| pointwise::plan(&$row, problem, policy, machine),
                ways: None,
                gradient: match [$(&$gradient as &'static Operator)?].as_slice() {
                    [gradient] => Some(gradient),
                    _ => None,
                },
                no_specials: None,
                ladder: &[],
            };
        )*
    };
}

/// Numbers that reach where activations bend, and where they end.
pub(crate) const WIDE: Fill = Fill::Normal { mean: 0.0, sd: 2.0 };

const SLOPE: &[(&str, f64)] = &[("slope", 0.01)];
const ALPHA: &[(&str, f64)] = &[("alpha", 1.0)];

/// The names of an operator's numbers.
fn names(numbers: &[(&'static str, f64)]) -> &'static [&'static str] {
    match numbers.first() {
        Some(("slope", _)) => &["slope"],
        Some(("alpha", _)) => &["alpha"],
        Some((name, _)) => panic!("no list of `{name}`"),
        None => &[],
    }
}

activations! {
    RELU RELU_ROW gradient RELU_BACKWARD = "relu", "max(x, 0)", ["x"] ["y"], &[], 1, |_, x, _| (relu(x[0]), 0.0);
    RELU_BACKWARD RELU_BACKWARD_ROW = "relu_backward", "gradient of relu", ["x" "dy"] ["dx"], &[], 1,
        |_, x, _| (if x[0] > 0.0 { x[1] } else { 0.0 }, 0.0);
    LEAKY_RELU LEAKY_RELU_ROW gradient LEAKY_RELU_BACKWARD = "leaky_relu", "x, or slope x below 0", ["x"] ["y"], SLOPE, 2, |_, x, with| times(slope(x[0], with[0]), x[0]);
    LEAKY_RELU_BACKWARD LEAKY_RELU_BACKWARD_ROW = "leaky_relu_backward", "gradient of leaky_relu", ["x" "dy"] ["dx"], SLOPE, 2,
        |_, x, with| times(slope(x[0], with[0]), x[1]);
    ELU ELU_ROW gradient ELU_BACKWARD = "elu", "x, or alpha (e^x - 1) below 0", ["x"] ["y"], ALPHA, 8, |_, x, with| elu(x[0], with[0]);
    ELU_BACKWARD ELU_BACKWARD_ROW = "elu_backward", "gradient of elu", ["x" "dy"] ["dx"], ALPHA, 4, |_, x, with| times(elu_slope(x[0], with[0]), x[1]);
    SIGMOID SIGMOID_ROW gradient SIGMOID_BACKWARD = "sigmoid", "1 / (1 + e^-x)", ["x"] ["y"], &[], 4, |_, x, _| logistic(x[0]);
    SIGMOID_BACKWARD SIGMOID_BACKWARD_ROW = "sigmoid_backward", "gradient of sigmoid, from its result", ["y" "dy"] ["dx"], &[], 3,
        |_, x, _| times((x[0] * (1.0 - x[0]), 2.0 * (x[0] * (1.0 - x[0])).abs()), x[1]);
    TANH TANH_ROW gradient TANH_BACKWARD = "tanh", "hyperbolic tangent", ["x"] ["y"], &[], 8, |_, x, _| (x[0].tanh(), 8.0 * x[0].tanh().abs());
    TANH_BACKWARD TANH_BACKWARD_ROW = "tanh_backward", "gradient of tanh, from its result", ["y" "dy"] ["dx"], &[], 4,
        |_, x, _| times(((1.0 - x[0]) * (1.0 + x[0]), 3.0 * ((1.0 - x[0]) * (1.0 + x[0])).abs()), x[1]);
    SILU SILU_ROW gradient SILU_BACKWARD = "silu", "x sigmoid(x), or swish", ["x"] ["y"], &[], 5, |_, x, _| silu(x[0]);
    SILU_BACKWARD SILU_BACKWARD_ROW = "silu_backward", "gradient of silu", ["x" "dy"] ["dx"], &[], 9, |_, x, _| times(silu_slope(x[0]), x[1]);
    GELU GELU_ROW gradient GELU_BACKWARD = "gelu", "x times the normal distribution of x", ["x"] ["y"], &[], 27, |_, x, _| gelu(x[0]);
    GELU_BACKWARD GELU_BACKWARD_ROW = "gelu_backward", "gradient of gelu", ["x" "dy"] ["dx"], &[], 30, |_, x, _| times(gelu_slope(x[0]), x[1]);
    GELU_TANH GELU_TANH_ROW gradient GELU_TANH_BACKWARD = "gelu_tanh", "gelu by tanh", ["x"] ["y"], &[], 8, |_, x, _| times(gate_tanh(x[0]), x[0]);
    GELU_TANH_BACKWARD GELU_TANH_BACKWARD_ROW = "gelu_tanh_backward", "gradient of gelu_tanh", ["x" "dy"] ["dx"], &[], 15,
        |_, x, _| times(gelu_tanh_slope(x[0]), x[1]);
    SWIGLU SWIGLU_ROW gradient SWIGLU_BACKWARD = "swiglu", "silu(gate) up", ["gate" "up"] ["y"], &[], 6, |_, x, _| times(silu(x[0]), x[1]);
    SWIGLU_BACKWARD SWIGLU_BACKWARD_ROW = "swiglu_backward", "gradient of swiglu", ["gate" "up" "dy"] ["dgate" "dup"], &[], 13, |output, x, _| match output {
        0 => times(times(silu_slope(x[0]), x[1]), x[2]),
        _ => times(silu(x[0]), x[2]),
    };
    GEGLU GEGLU_ROW gradient GEGLU_BACKWARD = "geglu", "gelu(gate) up", ["gate" "up"] ["y"], &[], 28, |_, x, _| times(gelu(x[0]), x[1]);
    GEGLU_BACKWARD GEGLU_BACKWARD_ROW = "geglu_backward", "gradient of geglu", ["gate" "up" "dy"] ["dgate" "dup"], &[], 34, |output, x, _| match output {
        0 => times(times(gelu_slope(x[0]), x[1]), x[2]),
        _ => times(gelu(x[0]), x[2]),
    };
    GEGLU_TANH GEGLU_TANH_ROW gradient GEGLU_TANH_BACKWARD = "geglu_tanh", "gelu_tanh(gate) up", ["gate" "up"] ["y"], &[], 9, |_, x, _| times(times(gate_tanh(x[0]), x[0]), x[1]);
    GEGLU_TANH_BACKWARD GEGLU_TANH_BACKWARD_ROW = "geglu_tanh_backward", "gradient of geglu_tanh", ["gate" "up" "dy"] ["dgate" "dup"], &[], 18,
        |output, x, _| match output {
            0 => times(times(gelu_tanh_slope(x[0]), x[1]), x[2]),
            _ => times(times(gate_tanh(x[0]), x[0]), x[2]),
        };
}

/// The product with an exact factor: what was lost is multiplied, and the product rounded.
pub(crate) fn times((value, lost): (f64, f64), factor: f64) -> (f64, f64) {
    (value * factor, lost * factor.abs() + (value * factor).abs())
}

/// NaN stays.
pub(crate) fn relu(t: f64) -> f64 {
    if t <= 0.0 { 0.0 } else { t }
}

fn slope(t: f64, below: f64) -> (f64, f64) {
    (if t > 0.0 { 1.0 } else { below }, 0.0)
}

fn elu(t: f64, alpha: f64) -> (f64, f64) {
    // The tangent is off by 8, h in both places by as much; a reciprocal, a difference and three products follow.
    if t > 0.0 { (t, 0.0) } else { (alpha * t.exp_m1(), 24.0 * (alpha * t.exp_m1()).abs()) }
}

fn elu_slope(t: f64, alpha: f64) -> (f64, f64) {
    if t > 0.0 { (1.0, 0.0) } else { (alpha * t.exp(), (alpha * t.exp()).abs() * (5.0 + 2.0 * t.abs())) }
}

/// `1 / (1 + e^-t)` of an argument that is off by so many units of itself.
fn logistic_of(t: f64, off: f64) -> (f64, f64) {
    let (s, rest) = (1.0 / (1.0 + (-t).exp()), 1.0 / (1.0 + t.exp()));
    (s, s * (5.0 + rest * (4.0 + off * t.abs())))
}

fn logistic(t: f64) -> (f64, f64) {
    logistic_of(t, 2.0)
}

pub(crate) fn silu(t: f64) -> (f64, f64) {
    times(logistic(t), t)
}

pub(crate) fn gelu(t: f64) -> (f64, f64) {
    times(normal_below(t), t)
}

/// `s + t s (1 - s) w` of a sigmoid `s` that is off, and `t w` that is off by so many units.
fn slope_of((s, lost): (f64, f64), rest: f64, tw: f64, off: f64) -> (f64, f64) {
    let value = s + tw * s * rest;
    let roundings = s + (off + 4.0) * (tw * s * rest).abs();
    // 1 - s is off by what s is, and by a rounding.
    (value, lost * (1.0 + (tw * rest).abs()) + (tw * s).abs() * (lost + rest) + roundings)
}

pub(crate) fn silu_slope(t: f64) -> (f64, f64) {
    slope_of(logistic(t), 1.0 / (1.0 + t.exp()), t, 0.0)
}

/// The sigmoid by which gelu_tanh multiplies, whose argument is off by 6 units: three constants, a square, a sum, a product.
pub(crate) fn gate_tanh(t: f64) -> (f64, f64) {
    logistic_of(inner(t).0, 6.0)
}

/// `2 z` where gelu_tanh has `tanh z`, and `t` times its derivative.
fn inner(t: f64) -> (f64, f64) {
    let scale = (8.0 / PI).sqrt();
    (scale * (t + 0.044715 * t * t * t), scale * (t + 3.0 * 0.044715 * t * t * t))
}

pub(crate) fn gelu_tanh_slope(t: f64) -> (f64, f64) {
    // Beyond, the sigmoid is 0 or 1 and has no slope, and cubes overflow before that is multiplied.
    let t = t.clamp(-30.0, 30.0);
    slope_of(gate_tanh(t), 1.0 / (1.0 + inner(t).0.exp()), inner(t).1, 6.0)
}

/// The tail is off by 28 units (26 were seen on a chip, in f64), and by what its exponent is: the square, a constant and their product, 3 units of t^2 / 2.
pub(crate) fn normal_below(t: f64) -> (f64, f64) {
    let (value, tail) = normal::below(t);
    (value, tail * (28.0 + 1.5 * t * t) + value)
}

pub(crate) fn gelu_slope(t: f64) -> (f64, f64) {
    let ((below, lost), bell) = (normal_below(t), t * normal::density(t));
    (below + bell, lost + bell.abs() * (8.0 + 1.5 * t * t) + below)
}
