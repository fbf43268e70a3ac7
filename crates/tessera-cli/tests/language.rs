//! Every function of the language through the command line, at -O3, at -O0 and checked, compared with NumPy by a script.

use std::process::Command;

#[test]
fn the_language_agrees_with_numpy() {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no interpreter with NumPy (`cargo xtask test` installs one)");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/language.py");
    let output = Command::new(python)
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_tessera"))
        .arg(folder.path())
        .output()
        .expect("the interpreter starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{}", out.lines().rev().nth(1).unwrap_or_default());
    assert!(output.status.success() && out.contains("the language agrees with NumPy"), "{out}\n{err}");
}
