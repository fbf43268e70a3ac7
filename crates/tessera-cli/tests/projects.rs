//! The package in `examples/feedforward`: kernels in several files with dataclasses, named tuples and enumerations are run, compiled and
//! checked against another kernel, as a user does.

use std::path::Path;
use std::process::Command;

const KERNEL: &str = "feedforward/kernels.py::bias_gelu";
const ARGUMENTS: [&str; 3] = ["x=randn:bf16[64,1000]", "bias=randn:bf16[1000]", "y=empty:bf16[64,1000]"];

fn tessera(words: &[&str]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let output = Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(examples).args(words).output().expect("tessera starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn a_package_runs_wherever_its_kernel_is_named() {
    for subject in [KERNEL, "feedforward/__init__.py::bias_gelu"] {
        for device in ["cpu", "emu"] {
            let words =
                [&["run", subject][..], &ARGUMENTS, &["--grid", "16,4", "--device", device, "--sanitize", "all"]].concat();
            assert!(tessera(&words).contains("checked: nothing found"), "{subject} on {device}");
        }
    }
}

#[test]
fn a_package_is_checked_against_its_own_plain_kernel() {
    let plain = ["--against", "feedforward/kernels.py::bias_gelu_plain", "N=1024", "--against-grid", "64"];
    let words = [&["check", KERNEL][..], &ARGUMENTS, &["--grid", "16,4", "--device", "emu", "--against", "cpu"], &plain].concat();
    assert!(tessera(&words).contains("y as in an unoptimised run and as by cpu, feedforward/kernels.py::bias_gelu_plain"));
}

#[test]
fn a_package_is_compiled_for_a_product_by_its_name() {
    let words = ["compile", KERNEL, "x=bf16[?,?]", "bias=bf16[?]", "y=bf16[?,?]", "--target", "h100", "--emit", "ptx"];
    let ptx = tessera(&words);
    assert!(
        ptx.contains("//   bias: the address of element 0 of an array of bf16 (a multiple of 16), its size and its stride"),
        "{ptx}"
    );
    assert!(ptx.contains(".target sm_90a") && ptx.contains("\"feedforward/activations.py\""), "{ptx}");
}
