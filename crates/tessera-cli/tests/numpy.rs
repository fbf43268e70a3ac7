//! Kernels through the command line, compared with NumPy by scripts.

use std::process::Command;

/// Runs a script of `tests/python`, which ends by printing `verdict` when everything agrees.
fn agrees(script: &str, further: &[&str], verdict: &str) {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no interpreter with NumPy (`cargo xtask test` installs one)");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(python)
        .arg(format!("{}/../../tests/python/{script}", env!("CARGO_MANIFEST_DIR")))
        .arg(env!("CARGO_BIN_EXE_tessera"))
        .arg(folder.path())
        .args(further)
        .output()
        .expect("the interpreter starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains(verdict), "{out}\n{err}");
}

/// The example kernels and the seed GEMM.
#[test]
fn examples() {
    agrees("examples.py", &[], "runs agree with NumPy");
}

/// Every function of the language at `-O3`, at `-O0` and checked.
#[test]
fn language() {
    agrees("language.py", &[], "the language agrees with NumPy");
}

/// Rarer forms of PTX against their written-out meaning.
#[test]
fn forms_of_ptx() {
    agrees("ptx_forms.py", &[], "the forms of PTX agree with their meaning");
}

/// The same on the emulated device.
#[test]
fn language_on_the_emulator() {
    agrees("language.py", &["emu"], "the language agrees with NumPy");
}
