//! `tessera compile --emit sass`: machine code by the lines of the kernel, and what is said where a tool is missing or says nothing.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const KERNEL: &str = "import cuda.tile as ct

@ct.kernel
def product(x, y, out, TILE: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    sum = ct.zeros((128, 128), ct.float32)
    for k in range(ct.cdiv(x.shape[1], TILE)):
        a = ct.load(x, (i, k), (128, TILE))
        b = ct.load(y, (k, j), (TILE, 128))
        sum = ct.mma(a, b, sum)
    ct.store(out, (i, j), sum)
";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("k.py"), KERNEL).expect("written");
    folder
}

fn sass(folder: &Path, more: &[&str], environment: &[(&str, &str)]) -> Output {
    emitted("sass", folder, more, environment)
}

fn emitted(what: &str, folder: &Path, more: &[&str], environment: &[(&str, &str)]) -> Output {
    let subject = ["compile", "k.py::product", "x=bf16[?,?]", "y=bf16[?,?]", "out=f32[?,?]", "TILE=64", "--emit", what];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    command.current_dir(folder).args(subject).args(more);
    command.envs(environment.iter().copied()).output().expect("tessera starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn code_stands_under_the_lines_of_the_kernel() {
    if std::env::var_os("TESSERA_PYTHON").is_none() {
        println!("skipped: no assembler and disassembler (TESSERA_PYTHON)");
        return;
    }
    let folder = folder();
    let output = sass(folder.path(), &["--target", "sm_90a"], &[]);
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("product for sm_90a: ") && lines[0].ends_with(" 0 bytes spilled"), "{}", lines[0]);
    // The lines with what they are made of, then the loops.
    let product = "  k.py:10: sum = ct.mma(a, b, sum)";
    let at = lines.iter().position(|line| *line == product).expect("the product's line");
    assert!(lines[at + 1].contains(" tensor, ") && lines[at + 1].contains(" barrier"), "{}", lines[at + 1]);
    let of_product = |line: &&&str| line.starts_with("  loop ") && line.contains("k.py:10");
    assert!(lines.iter().any(|line| of_product(&line)), "{shown}");
    // Each product of the code stands under its line.
    let is_head = |line: &&&str| line.starts_with("  k.py:");
    let code = &lines[lines.iter().position(|line| *line == "code").expect("code")..];
    let products: Vec<usize> = (0..code.len()).filter(|&at| code[at].contains("  HGMMA.")).collect();
    assert!(!products.is_empty());
    for at in products {
        assert_eq!(code[..at].iter().rev().find(is_head), Some(&product), "{}", code[at]);
    }

    let output = sass(folder.path(), &["--target", "sm_80", "--json"], &[]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    let loops = told["loops"].as_array().expect("loops");
    let inner = loops.iter().find(|one| one["instructions"]["tensor"].as_u64() > Some(0)).expect("a loop with products");
    for line in ["k.py:7", "k.py:8", "k.py:9", "k.py:10"] {
        assert!(inner["lines"].as_array().is_some_and(|lines| lines.contains(&line.into())), "{line}: {inner}");
    }
    assert!(inner["instructions"]["async copy of 16 B"].as_u64() > Some(0), "{inner}");
    let code = told["code"].as_array().expect("code");
    assert!(code.iter().all(|one| one["place"].is_string() && one["text"].is_string()), "{told}");
    let lines = told["lines"].as_array().expect("lines");
    let counted = lines.iter().filter_map(|line| line["instructions"].as_object()).flat_map(|counts| counts.values());
    assert_eq!(counted.filter_map(Value::as_u64).sum::<u64>(), code.len() as u64, "each instruction is counted once");
}

#[test]
fn a_missing_tool_says_how_to_get_it() {
    let folder = folder();
    let nowhere = [("TESSERA_NVDISASM", ""), ("TESSERA_PTXAS", ""), ("TESSERA_PYTHON", ""), ("CUDA_HOME", ""), ("PATH", "")];
    let output = sass(folder.path(), &["--target", "sm_90a"], &nowhere);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let said = text(&output);
    assert!(said.starts_with("error: there is no `nvdisasm`\nhelp: `pip install nvidia-cuda-nvdisasm`"), "{said}");
    assert!(said.contains("`TESSERA_NVDISASM`") && said.contains("`CUDA_HOME`"), "{said}");
    // One that is named and is none.
    let output = sass(folder.path(), &["--target", "sm_90a"], &[("TESSERA_NVDISASM", "k.py")]);
    assert!(text(&output).contains("no answer from `k.py`"), "{}", text(&output));
    // There is no machine code for the CPU.
    let output = sass(folder.path(), &[], &[]);
    assert!(output.status.code() == Some(5) && text(&output).contains("there is no GPU code for `cpu`"), "{}", text(&output));
}

/// An assembler that says nothing of the kernel has not said that it takes nothing.
#[cfg(unix)]
#[test]
fn an_assembler_that_reports_no_kernel_is_told() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let silent = folder.path().join("ptxas");
    let script = "#!/bin/sh
[ \"$1\" = --version ] && echo 'release 13.0, V13.0.0'
while [ $# -gt 0 ]; do [ \"$1\" = --output-file ] && : > \"$2\"; shift; done
exit 0
";
    std::fs::write(&silent, script).expect("written");
    std::fs::set_permissions(&silent, std::fs::Permissions::from_mode(0o755)).expect("may be run");
    let environment = [("TESSERA_PTXAS", silent.to_str().expect("a name of text"))];
    let output = emitted("report", folder.path(), &["--target", "sm_90a"], &environment);
    let shown = text(&output);
    assert!(shown.contains("not assembled: error: the assembler reports no registers of the kernel"), "{shown}");
    let output = emitted("report", folder.path(), &["--target", "sm_90a", "--json"], &environment);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    let assembler = &told["assembler"];
    assert!(assembler["error"].as_str().is_some_and(|error| error.contains("reports no registers")), "{assembler}");
    assert!(assembler["registers"].is_null(), "{assembler}");
}
