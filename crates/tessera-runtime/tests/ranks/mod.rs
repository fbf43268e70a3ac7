//! Programs on several simulated ranks give what they give on one device: the cases that the pass is for, and random programs.

mod calls;
mod cases;
mod nvlink;
mod nvlink_threads;
mod processes;
mod random;
mod sharded;
mod written;

use tessera_ir::{Type, text};
use tessera_runtime::ranks::RankedKernel;
use tessera_runtime::{CompileOptions, Device, Kernel, LaunchGrid, LaunchOptions, RandomStream, Tensor, Value};
use tessera_types::DType;

/// The results of a whole program on one device and on its ranks, by parameter.
struct Outcome {
    alone: Vec<(String, Tensor)>,
    together: Vec<(String, Tensor)>,
    ranked: RankedKernel,
}

/// Arguments of the first function of a text, filled by `fill`.
fn arguments(program: &str, sizes: &[(&str, usize)], fill: impl Fn(&str, DType, &[usize]) -> Tensor) -> Vec<(String, Value)> {
    let module = text::parse_module("program.tir", program)
        .unwrap_or_else(|(module, wrong)| panic!("{}", wrong.render(&module.sources, false)));
    let func = &module.funcs[0];
    let arg = |(position, param): (usize, &tessera_ir::AbiParam)| {
        let value = match func.ty(func.args()[position]) {
            Type::Operand(operand) => {
                let extent = |axis: &tessera_ir::Axis| match axis {
                    tessera_ir::Axis::Fixed(extent) => *extent as usize,
                    tessera_ir::Axis::Symbol(name) => sizes.iter().find(|(own, _)| own == name).expect("a size").1,
                };
                let shape: Vec<usize> = operand.axes.iter().map(extent).collect();
                Value::Tensor(fill(&param.name, operand.elem, &shape))
            }
            _ => Value::Float(1.5),
        };
        (param.name.clone(), value)
    };
    func.abi.params.iter().enumerate().map(arg).collect()
}

/// As launches take them.
fn named(args: &[(String, Value)]) -> Vec<(&str, Value)> {
    args.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

/// Runs the first function of a text both ways; `fill` makes the arguments, results are poisoned.
fn both(program: &str, sizes: &[(&str, usize)], fill: impl Fn(&str, DType, &[usize]) -> Tensor) -> Outcome {
    let kernel = Kernel::from_ir("program.tir", program, "f").unwrap_or_else(|error| panic!("{error}\n{program}"));
    let ranked = RankedKernel::new(&kernel).unwrap_or_else(|error| panic!("{error}\n{program}")).expect("a mesh");
    let written = &ranked.program().written;
    let results = |args: &[(String, Value)]| -> Vec<(String, Tensor)> {
        let result = |((name, value), &written): (&(String, Value), &bool)| match value {
            Value::Tensor(tensor) if written => Some((name.clone(), tensor.clone())),
            _ => None,
        };
        args.iter().zip(written).filter_map(result).collect()
    };
    let (options, launch) = (CompileOptions::default(), LaunchOptions::default());
    let (alone, together) = (arguments(program, sizes, &fill), arguments(program, sizes, &fill));
    kernel
        .prepare(&named(&alone), LaunchGrid::Auto, &options, &Device::Cpu)
        .and_then(|launch| launch.run())
        .unwrap_or_else(|error| panic!("alone: {error}\n{program}"));
    ranked
        .run(&named(&together), &Device::Cpu, (&options, &launch))
        .unwrap_or_else(|error| panic!("on ranks: {error}\n{program}"));
    Outcome { alone: results(&alone), together: results(&together), ranked }
}

/// Small integers: sums of them are exact, so results agree bit for bit however they are split.
fn integers(key: u64) -> impl Fn(&str, DType, &[usize]) -> Tensor {
    move |name, dtype, shape| {
        if name.starts_with("out") {
            return Tensor::empty(dtype, shape).unwrap();
        }
        RandomStream::named(key, name).integers(dtype, shape, -3, 3).unwrap()
    }
}

fn normal(key: u64) -> impl Fn(&str, DType, &[usize]) -> Tensor {
    move |name, dtype, shape| {
        if name.starts_with("out") {
            return Tensor::empty(dtype, shape).unwrap();
        }
        RandomStream::named(key, name).randn(dtype, shape).unwrap()
    }
}

/// Bit for bit: nothing was computed in another order.
fn same_bits(outcome: &Outcome, program: &str) {
    for ((name, alone), (_, together)) in outcome.alone.iter().zip(&outcome.together) {
        assert!(together.same_bits(alone).unwrap(), "`{name}`\n{program}");
    }
}

/// Equal numbers; zeros of either sign are equal.
fn equal(outcome: &Outcome, program: &str) {
    close(outcome, 0.0, 0.0, program);
}

fn close(outcome: &Outcome, relative: f64, absolute: f64, program: &str) {
    for ((name, alone), (_, together)) in outcome.alone.iter().zip(&outcome.together) {
        let difference = together.difference(alone, |_, alone| absolute + relative * alone.abs()).unwrap();
        assert_eq!(difference, None, "`{name}`\n{program}");
    }
}
