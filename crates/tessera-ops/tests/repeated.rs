//! Calls that are packed once and queued again with other arrays do what a call of its own does.

use tessera_ops::{Call, Repeated, Resolved, Source, find};
use tessera_runtime::{CompileOptions, Device, Placed, Tensor};
use tessera_types::DType;

/// Numbers that differ from place to place and from call to call.
fn array(shape: &[usize], turn: usize, device: &Device) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|at| ((at * 13 + turn * 7) % 31) as f64 / 8.0 - 2.0).collect();
    Tensor::from_f64(DType::F32, shape, &values).and_then(|tensor| tensor.to_device(device)).expect("an array")
}

fn resolved(operator: &str, variant: &'static str, tensors: &[(&'static str, Tensor)]) -> Resolved {
    let call = Call { variant: Some(variant), tensors: tensors.to_vec(), ..Call::default() };
    find(operator).expect("an operator").resolve(&call).expect("a plan")
}

fn results(resolved: &Resolved, device: &Device) -> Vec<Tensor> {
    let make = |output: &tessera_ops::OutputArray| Tensor::zeros_on(output.dtype, &output.shape, device).expect("a result");
    resolved.outputs().iter().map(make).collect()
}

/// Queues a packed call for other arrays.
fn again(repeated: &Repeated, given: &[(&str, Tensor)], outputs: &[Tensor], device: &Device) {
    let driver = device.driver().expect("a driver's device");
    let address = |source| match source {
        Source::Given(name, _) => given.iter().find(|(own, _)| *own == name).expect("an array").1.start(),
        Source::Result(number) => outputs[number].start(),
    };
    repeated.enqueue(driver.stream().handle(), address).expect("a launch");
    driver.synchronize().expect("an end");
}

#[test]
fn a_packed_call_takes_other_arrays() {
    let device = Device::emulator().expect("the emulator");
    for (operator, variant, shapes) in [
        ("rms_norm", "", &[("x", vec![5, 64]), ("weight", vec![64])][..]),
        ("softmax", "", &[("x", vec![3, 100])]),
        ("gemm", "nn", &[("A", vec![32, 48]), ("B", vec![48, 40])]),
        ("permute", "10", &[("x", vec![24, 40])]),
    ] {
        let given = |turn| -> Vec<(&'static str, Tensor)> {
            shapes.iter().map(|(name, shape)| (*name, array(shape, turn, &device))).collect()
        };
        let first = given(0);
        let call = resolved(operator, variant, &first);
        let repeated = call.prepare_often(&results(&call, &device), &CompileOptions::default());
        let repeated = repeated.expect("launches").unwrap_or_else(|| panic!("{operator} has no memory of its own"));
        for turn in 1..4 {
            let arrays = given(turn);
            let found = results(&call, &device);
            again(&repeated, &arrays, &found, &device);
            let wanted = resolved(operator, variant, &arrays).run().expect("results");
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found.to_bytes().expect("bytes"), wanted.to_bytes().expect("bytes"), "{operator}, call {turn}");
            }
        }
    }
}

/// Words that a launch leaves for the next belong to one call at a time; and ranks on the CPU pack nothing.
#[test]
fn calls_with_memory_of_their_own_are_not_packed() {
    let (device, options) = (Device::emulator().expect("the emulator"), CompileOptions::default());
    let packs = |operator, variant, shape: &[usize], device: &Device| {
        let call = resolved(operator, variant, &[("x", array(shape, 0, device))]);
        call.prepare_often(&results(&call, device), &options).expect("an answer").is_some()
    };
    assert!(!packs("prefix_sum", "inclusive", &[5000], &device));
    assert!(!packs("softmax", "", &[3, 100], &Device::Cpu));
    assert!(packs("softmax", "", &[3, 100], &device));
}
