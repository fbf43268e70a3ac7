//! The example in C, built and run on the emulator.

use std::process::Command;

use crate::packed::{bundle, compiler, library, root, run};

#[test]
fn the_example_multiplies_on_the_emulator() {
    let Some(compiler) = compiler() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (program, packed) = (folder.path().join("product"), folder.path().join("product.tbundle"));
    std::fs::write(&packed, bundle()).expect("written");
    run(Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"])
        .arg(&program)
        .arg(root().join("examples/bundle/product.c"))
        .arg("-I")
        .arg(root().join("crates/tessera-c/include"))
        .arg("-L")
        .arg(library())
        .arg("-ltessera_c")
        .arg(format!("-Wl,-rpath,{}", library().display())));
    // Nothing that assembles or compiles can be found, nor a library but the one beside this program.
    let start = || {
        let mut command = Command::new(&program);
        command.env_clear();
        command
    };
    for device in ["emu", "emu:a100"] {
        let said = run(start().arg(&packed).arg(device));
        assert_eq!(said, format!("96 x 80 x 64 on {device}: 0 of 15360 elements are wrong\n"));
    }
    let said = run(start().args([packed.as_os_str(), "emu".as_ref(), "2".as_ref()]));
    assert!(said.lines().last().is_some_and(|last| last.starts_with("a launch: ")), "{said}");
    // Without a device or a file it says why, and fails.
    let output = start().arg(folder.path().join("missing")).arg("emu").output().expect("it starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).starts_with("can't read `"));
    let output = start().arg(&packed).arg("emu:v0").output().expect("it starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("v0"));
}
