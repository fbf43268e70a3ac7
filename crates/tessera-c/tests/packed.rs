//! Bundles to launch from, and the C compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use tessera_runtime::argspec::parse_type;
use tessera_runtime::{Bundle, CompileOptions, Kernel};

/// The folder of a file of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The kernel of the example, for arguments of these types.
pub(crate) fn product(target: &str, types: &[&str]) -> tessera_runtime::Variant {
    let source = std::fs::read_to_string(root().join("examples/bundle/product.py")).expect("the example");
    variant(&source, "product", target, types)
}

/// A kernel of a text, for arguments of these types.
pub(crate) fn variant(source: &str, kernel: &str, target: &str, types: &[&str]) -> tessera_runtime::Variant {
    let kernel = Kernel::from_source("kernels.py", source, kernel).unwrap_or_else(|error| panic!("{error}"));
    let mut sources = Default::default();
    let types: Vec<_> = types
        .iter()
        .map(|text| parse_type(&mut sources, text).unwrap_or_else(|error| panic!("{}", error.message)))
        .map(|argument| (argument.name, argument.ty))
        .collect();
    let target = target.parse().expect("a target");
    kernel.ahead(&types, &CompileOptions::default(), target).unwrap_or_else(|error| panic!("{error}")).variant
}

/// A bundle with the example's product of `f32`, for two targets.
pub(crate) fn bundle() -> Vec<u8> {
    let types = ["A=f32[?,?]", "B=f32[?,?]", "C=f32[?,?]"];
    let variants = vec![product("sm_80", &types), product("sm_90a", &types)];
    Bundle::new(variants).expect("whole variants").to_bytes()
}

/// A C compiler; tests that need one say so where there is none.
pub(crate) fn compiler() -> Option<PathBuf> {
    let name = std::env::var_os("CC").map_or_else(|| PathBuf::from("cc"), PathBuf::from);
    match Command::new(&name).arg("--version").output() {
        Ok(output) if output.status.success() => Some(name),
        _ => {
            println!("skipped: there is no C compiler `{}`", name.display());
            None
        }
    }
}

/// Runs a command that must succeed, and gives what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{errors}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("text")
}

/// The folder that the shared library was built into: this program stands beside it, or in a folder beside it.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folders = program.ancestors().skip(1).take(2).map(Path::to_path_buf);
    let name = format!("{}tessera_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folders.into_iter().find(|folder| folder.join(&name).is_file()).unwrap_or_else(|| panic!("`{name}` was not built"))
}
