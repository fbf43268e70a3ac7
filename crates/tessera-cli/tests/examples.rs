//! The example kernels through the command line, compared with NumPy by a script.

use std::process::Command;

#[test]
fn examples_agree_with_numpy() {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no interpreter with NumPy (`cargo xtask test` installs one)");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/examples.py");
    let output = Command::new(python)
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_tessera"))
        .arg(folder.path())
        .output()
        .expect("the interpreter starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("runs agree with NumPy"), "{out}\n{err}");
}
