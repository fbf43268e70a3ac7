//! The contract of the command line: exit codes, and messages with a place and a way out.

use std::path::Path;
use std::process::Command;

/// Runs `tessera` in a folder that holds `kernels.py`, and returns the exit code and everything that was printed.
fn tessera(arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernels = "import cuda.tile as ct

@ct.kernel
def double(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) * 2)

@ct.kernel
def typo(x):
    ct.store(x, (0,), ct.lod(x, (0,), (16,)))

@ct.kernel
def wild(x, y, N: ct.Constant[int]):
    ct.store(y, (7,), ct.load(x, (7,), (N,)))
";
    std::fs::write(folder.path().join("kernels.py"), kernels).expect("written");
    let output =
        Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(&folder).args(arguments).output().expect("tessera starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().expect("an exit code"), text)
}

const LAUNCH: [&str; 4] = ["x=arange:f32[64]", "y=empty:f32[64]", "N=16", "--grid"];

fn run(kernel: &str, rest: &[&str]) -> (i32, String) {
    let mut arguments = vec!["run", kernel];
    arguments.extend(LAUNCH);
    arguments.extend(rest);
    tessera(&arguments)
}

#[test]
fn a_kernel_runs() {
    let (code, text) = run("kernels.py::double", &["4"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("y: f32[64] = [0, 2, 4, 6, 8, 10, ...]"), "{text}");
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["run", "check", "bench", "compile", "opt", "emu", "compare", "report", "list", "doctor"] {
        let (code, text) = tessera(&[command, "--help"]);
        assert_eq!(code, 0);
        assert!(text.contains("Example"), "{command}: {text}");
    }
}

#[test]
fn usage_errors_end_with_5() {
    for arguments in [
        &["run"][..],
        &["run", "kernels.py"],
        &["run", "kernels.py::nothing", "--grid", "1"],
        &["run", "kernels.py::typo", "x=ones:f32[16]", "--grid", "1"],
        &["run", "kernels.py::double", "x=ones:f32[16]", "--grid", "1"],
        &["run", "kernels.py::double", "x=ones:f32[16]", "y=ones:f32[16]", "N=15", "--grid", "1"],
        &["run", "kernels.py::double", "x=ones:f32[16]", "y=ones:f32[16]", "N=16", "--grid", "none"],
        &["run", "kernels.py::double", "x=ones:f32[16]", "y=ones:f32[16]", "N=16", "--grid", "1,2,3,4"],
        &["run", "kernels.py::double", "x=ones:f99[16]", "y=ones:f32[16]", "N=16", "--grid", "1"],
        &["bench", "nothing"],
        &["bench", "gemm", "--precision", "fp99"],
        &["bench", "gemm", "--sizes", "q=4"],
        &["opt", "--pass", "nothing", "kernels.py"],
        &["list", "nothing"],
    ] {
        let (code, text) = tessera(arguments);
        assert_eq!(code, 5, "{arguments:?}\n{text}");
        assert!(text.contains("error"), "{arguments:?}\n{text}");
    }
}

#[test]
fn the_environment_ends_with_4() {
    for arguments in [
        &["run", "missing.py::k", "--grid", "1"][..],
        &["run", "kernels.py::double", "x=@missing.npy", "y=ones:f32[16]", "N=16", "--grid", "1"],
        &["run", "kernels.py::double", "x=ones:f32[16]", "y=ones:f32[16]", "N=16", "--grid", "1", "--device", "cuda"],
        &["report", "missing.jsonl"],
        &["compare", "missing.jsonl", "missing.jsonl"],
    ] {
        let (code, text) = tessera(arguments);
        assert_eq!(code, 4, "{arguments:?}\n{text}");
    }
}

#[test]
fn a_finding_of_a_checked_run_ends_with_2_and_names_the_line() {
    let (code, text) = run("kernels.py::wild", &["1", "--sanitize", "all"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("kernels.py:14:"), "{text}");
}

/// Sixty-four threads write one word of shared memory, and the last reads beyond an array.
const RACY: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry racy(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %t, %r, %n;
    .reg .b64 %x, %y, %o;
    .shared .b32 box;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x;
    setp.ge.u32 %p, %t, %n;
    @%p bra DONE;
    mul.wide.u32 %o, %t, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u32 %r, [%x];
    st.shared.u32 [box], %r;
    st.global.u32 [%y], %r;
DONE:
    ret;
}
";

#[test]
fn ptx_runs_on_the_emulator() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("racy.ptx");
    std::fs::write(&file, RACY).expect("written");
    let file = file.to_string_lossy().into_owned();
    let emu = |rest: &[&str]| {
        let mut arguments = vec!["emu", &file, "--grid", "1", "--block", "64"];
        arguments.extend(rest);
        tessera(&arguments)
    };
    let (code, text) = emu(&["arange:i32[32]", "y=empty:i32[32]", "32", "--sanitize", "all,advice"]);
    assert_eq!(code, 0, "one warp writes at one instruction\n{text}");
    assert!(text.contains("y: i32[32] = [0, 1, 2, 3, 4, 5, ...]") && text.contains("nothing found"), "{text}");
    let (code, text) = emu(&["arange:i32[64]", "empty:i32[64]", "64", "--sanitize", "race"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("race: a write of shared") && text.contains("PTX line 21") && text.contains("against racy"), "{text}");
    let (code, text) = emu(&["arange:i32[32]", "empty:i32[64]", "64", "--json"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("\"id\":\"out-of-bounds\"") && text.contains("\"thread\":[32,0,0]"), "{text}");
    let (code, text) = emu(&["arange:i32[64]", "empty:i32[64]", "64", "--trace", "0,1"]);
    assert!(code == 0 && text.contains("mov.u32  %t = 20 21 22"), "{text}");
    for wrong in
        [&["arange:i32[64]", "64"][..], &["1.5", "1", "x"], &["zeros:i32[1]", "zeros:i32[1]", "1", "--schedule", "never"]]
    {
        assert_eq!(emu(wrong).0, 5, "{wrong:?}");
    }
    let (code, text) =
        tessera(&["run", "kernels.py::double", "--schedule", "lazy", "x=ones:f32[16]", "--grid", "1", "--device", "cpu"]);
    assert!(code == 5 && text.contains("is for the emulator"), "{text}");
}

/// One warp leaves by itself, two threads write different words to one place, all threads write one word to another.
const FINDINGS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry found(.param .u64 x)
{
    .reg .pred %p;
    .reg .b32 %t, %u;
    .reg .b64 %x, %o;
    ld.param.u64 %x, [x];
    mov.u32 %t, %tid.x;
    and.b32 %u, %t, 31;
    setp.ne.u32 %p, %u, 0;
    @%p bra DONE;
    mov.u32 %u, 7;
    st.global.u32 [%x], %u;
    st.global.u32 [%x+4], %t;
DONE:
    ret;
}
";

#[test]
fn findings_fail_by_class_and_are_let_pass_by_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(place("k.ptx"), FINDINGS).expect("written");
    std::fs::write(place("rules"), "race fo* ptx:17 -- known\nmbarrier * * -- never\n").expect("written");
    std::fs::write(place("wrong"), "race found ptx:16\n").expect("written");
    let (file, rules, wrong) = (place("k.ptx"), place("rules"), place("wrong"));
    let emu = |rest: &[&str]| {
        let mut arguments = vec!["emu", &file, "--grid", "1", "--block", "64", "zeros:i32[4]", "--sanitize", "all"];
        arguments.extend(rest);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tessera")).args(&arguments).output().expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, told) = emu(&["--keep-going"]);
    assert_eq!(code, Some(2), "{out}{told}");
    assert!(out.contains("formal: race: ") && out.contains("PTX line 16"), "{out}");
    assert!(told.starts_with("error: race: ") && told.contains("PTX line 17"), "{told}");
    // The rule lets the wrong one pass; the formal one fails where that is asked for.
    let (code, out, told) = emu(&["--suppress", &rules]);
    assert_eq!(code, Some(0), "{out}{told}");
    assert!(out.contains("1 findings are let pass") && told.contains("rules:2: nothing was found"), "{out}{told}");
    let (code, _, told) = emu(&["--suppress", &rules, "--fail-on", "formal"]);
    assert!(code == Some(2) && told.contains("error: formal: race: "), "{told}");
    assert_eq!(emu(&["--fail-on", "none"]).0, Some(0));
    let (code, _, told) = emu(&["--suppress", &wrong]);
    assert!(code == Some(5) && told.contains("wrong:1:18: the reason is missing"), "{told}");
    // As data, and nothing else, whatever happens.
    let (code, out, told) = emu(&["--json", "--suppress", &rules]);
    let data: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!((code, data["passed"].as_bool(), told.as_str()), (Some(0), Some(true), ""));
    let (formal, passed) = (&data["findings"][0], &data["suppressed"][0]);
    assert_eq!(
        (formal["class"].as_str(), formal["id"].as_str(), formal["line"].as_u64()),
        (Some("formal"), Some("race"), Some(16))
    );
    assert!(formal["file"].as_str() == Some(&file) && formal["kernel"] == "found" && formal["count"] == 1, "{formal}");
    assert!(passed["class"] == "wrong" && passed["reason"] == "known" && passed["rule"].as_str().unwrap().ends_with("rules:1"));
    assert_eq!(data["unused_suppressions"].as_array().map(Vec::len), Some(1));
    for rest in [&["--json", "--suppress", &wrong][..], &["--json", "more"]] {
        let (code, out, _) = emu(rest);
        let data: serde_json::Value = serde_json::from_str(&out).expect("one object");
        assert!(code == Some(5) && data["exit"] == 5 && data["error"].is_string(), "{out}");
    }
}

#[test]
fn kernels_run_sanitized_on_the_emulator() {
    let options = ["4", "--device", "emu", "--sanitize", "all", "--schedule", "lazy", "--target", "sm_80", "--sms", "2"];
    let (code, text) = run("kernels.py::double", &options);
    assert!(code == 0 && text.contains("checked: nothing found") && text.contains("[0, 2, 4, 6, 8, 10, ...]"), "{text}");
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let (_, text) = tessera(&["run", "kernels.py::typo", "x=ones:f32[16]", "--grid", "1"]);
    assert!(text.contains("kernels.py:10:") && text.contains("lod") && text.contains("did you mean `load`"), "{text}");
}

#[test]
fn optimised_and_unoptimised_agree() {
    let mut arguments = vec!["check", "kernels.py::double"];
    arguments.extend(LAUNCH);
    arguments.extend(["4", "--sanitize", "all"]);
    let (code, text) = tessera(&arguments);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn operators_are_checked_against_their_references() {
    let (code, text) = tessera(&["check", "softmax", "gemm", "--precision", "fp32,bf16", "--cases", "4"]);
    assert_eq!(code, 0, "{text}");
    // Gradients are counted, too.
    let lines = [
        "softmax bf16: 2 right, 0 wrong",
        "softmax fp32: 2 right, 0 wrong",
        "gemm bf16: 2 right, 0 wrong",
        "gemm fp32: 2 right, 0 wrong",
    ];
    assert!(lines.iter().all(|line| text.contains(line)) && text.contains("cases right, 0 wrong"), "{text}");
}

/// The library turns scales of large products alone, which no emulator does: its two kernels are checked by themselves.
#[test]
fn scales_are_turned_first() {
    let kernel = |name: &str| format!("{}/../tessera-ops/kernels/gemm_scaled.py::{name}", env!("CARGO_MANIFEST_DIR"));
    let arrays =
        ["A=randn:f8e4m3[200,384]", "B=randn:f8e4m3[256,384]", "SA=rand:f32[3,200]", "SB=rand:f32[2,3]", "C=empty:bf16[200,256]"];
    let constants =
        ["K=384", "COMPUTE=f8e4m3", "TM=128", "TN=128", "TURNED=True", "--grid", "2,2", "--rtol", "0.02", "--atol", "0.02"];
    let product = [&arrays[..], &constants].concat();
    let turn = ["SA=randn:f32[200,3]", "T=empty:f32[3,200]", "ROWS=128", "COLUMNS=32", "--grid", "2,1"];
    for (name, arguments, result) in [("blocks", &product[..], "C"), ("turn", &turn[..], "T")] {
        let device = ["--device", "emu", "--target", "sm_90a", "--sanitize", "all", "--against", "cpu"];
        let (code, text) = tessera(&[&["check", &kernel(name)], arguments, &device].concat());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(&format!("{name}: {result} as in an unoptimised run and as by cpu")), "{text}");
    }
}

#[test]
fn ir_is_printed_and_read_back() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../tessera-ops/kernels/softmax.py");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("softmax.tir").display().to_string();
    let subject = format!("{kernel}::softmax");
    let types = ["x=f32[?,?]", "y=f32[?,?]", "ACC=f32", "ROWS=4", "N=1000"];
    let mut arguments = vec!["compile", &subject];
    arguments.extend(types);
    arguments.extend(["-O0", "-o", &file]);
    let (code, text) = tessera(&arguments);
    assert_eq!(code, 0, "{text}");
    let (code, optimised) = tessera(&["opt", &file, "--pipeline", "O3", "--verify-each"]);
    assert_eq!(code, 0, "{optimised}");
    assert!(optimised.starts_with("schedule @softmax(") && optimised.contains("reduce"), "{optimised}");
    let (code, changes) = tessera(&["opt", &file, "--pipeline", "O3", "--diff", "--time"]);
    assert!(code == 0 && changes.contains("--- before ") && changes.contains("@@ -") && changes.contains(" us "), "{changes}");
    std::fs::write(&file, "schedule @k() {\n  %a = addq : tile<f32>\n}").expect("written");
    let (code, wrong) = tessera(&["opt", &file]);
    assert!(code == 5 && wrong.contains(":2:8"), "{wrong}");
}

/// The document's form goes through one pass, a list and a pipeline; errors have their place.
#[test]
fn tile_passes_run_on_the_documents_form() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "func @product(%A: memref<64x64xbf16, 3>, %B: memref<64x64xbf16, 3>) -> memref<64x64xf32, 5> {
  %r = tile.mma %A, %B : memref<64x64xbf16, 3>, memref<64x64xbf16, 3> -> memref<64x64xf32, 5>
  return %r : memref<64x64xf32, 5>
}
";
    std::fs::write(folder.path().join("product.tir"), text).expect("written");
    let opt = |rest: &[&str]| tessera_in(folder.path(), &[&["opt", "product.tir"], rest].concat());
    let (code, plain) = opt(&[]);
    assert!(code == 0 && plain.starts_with("tile @product(") && plain.contains("tile.mma_shared"), "{plain}");
    let (code, lowered) = opt(&["--pass", "intrinsic-lowering", "--target", "sm_80", "--verify-each"]);
    assert!(code == 0 && lowered.contains("tile.mma_sync"), "{lowered}");
    let (code, changes) = opt(&["--pass", "intrinsic-lowering,dce", "--target", "sm_80", "--diff"]);
    assert!(code == 0 && changes.contains("+++ after intrinsic-lowering") && changes.contains("\n-  "), "{changes}");
    for pipeline in ["tile", "default"] {
        let (code, text) = opt(&["--pipeline", pipeline, "--target", "sm_90a", "--verify-each", "--print-after-all", "--time"]);
        assert!(code == 0 && text.contains("// after intrinsic-lowering") && text.contains("in all"), "{text}");
    }
    let (code, text) = opt(&["--pipeline", "tile", "--target", "sm_90a", "-o", "lowered.tir"]);
    assert!(code == 0 && text.is_empty(), "{text}");
    assert!(std::fs::read_to_string(folder.path().join("lowered.tir")).expect("written").contains("tile.mma_sync"));
    let (code, text) = opt(&["--pass", "intrinsic-lowering"]);
    assert!(code == 5 && text.contains("--target sm_90a"), "{text}");
    let (code, text) = opt(&["--pass", "intrinsic-lowering", "--target", "sm_42"]);
    assert!(code == 5 && text.contains("`sm_42` is not a target"), "{text}");
    let (code, text) = opt(&["--pipeline", "nothing"]);
    assert!(code == 5 && text.contains("the pipelines are"), "{text}");
    std::fs::write(folder.path().join("product.tir"), "func @k() {\n  tile.fill %x, %y\n  return\n}").expect("written");
    let (code, text) = opt(&[]);
    assert!(code == 5 && text.contains("product.tir:2:13") && text.contains("`%x` is not defined before"), "{text}");
    let (code, text) = tessera(&["list", "passes"]);
    assert!(code == 0 && text.contains("intrinsic-lowering") && text.contains("layouts"), "{text}");
}

/// Runs `tessera` in a folder of the caller's.
pub(crate) fn tessera_in(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(folder).args(arguments).output().expect("tessera starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().expect("an exit code"), text)
}

/// Compiles a kernel to text, runs source and text on the same arguments, and compares every bit of what they wrote.
fn text_runs_as_the_source(
    source: &str,
    kernel: &str,
    types: &[&str],
    constants: &[&str],
    arrays: &[&str],
    grid: &str,
    emit: &str,
) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("k.py"), source).expect("written");
    let (python, text) = (format!("k.py::{kernel}"), format!("k.tir::{kernel}"));
    let run = |arguments: &[&[&str]]| {
        let (code, printed) = tessera_in(folder.path(), &arguments.concat());
        assert_eq!(code, 0, "{arguments:?}\n{printed}");
    };
    run(&[&["compile", &python, "--emit", emit, "-o", "k.tir"], types, constants]);
    run(&[&["run", &python, "--grid", grid, "--save", "y=source.npy"], arrays, constants]);
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).expect("saved");
    for level in ["-O0", "-O3"] {
        run(&[&["run", &text, "--grid", grid, "--save", "y=text.npy", level], arrays]);
        assert_eq!(bytes("source.npy"), bytes("text.npy"), "{kernel} {emit} {level}");
    }
    run(&[&["check", &text, "--grid", grid, "--against", "y=source.npy", "--sanitize", "all"], arrays]);
    run(&[&["compile", &text, "--emit", "schedule"]]);
}

#[test]
fn schedule_text_runs_with_the_bits_of_its_source() {
    let source = "import cuda.tile as ct

@ct.kernel
def rows(x, y, eps, N: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    s = ct.sum(e, axis=1, keepdims=True)
    ct.store(y, (ct.bid(0), 0), e / (s * s + eps) + e * eps)
";
    let (types, arrays) = (["x=f32[?,?]", "y=f32[?,?]", "eps=f32"], ["x=randn:f32[37,100]", "y=empty:f32[37,100]", "eps=0.125"]);
    text_runs_as_the_source(source, "rows", &types, &["N=128"], &arrays, "37", "schedule");
}

#[test]
fn graph_text_is_tiled_for_its_arguments() {
    let source = "import tessera
from tessera import Tensor, tile, fp32

@tessera.kernel
def product(x: Tensor[\"M\", \"K\", fp32], w: Tensor[\"K\", \"N\", fp32], y: Tensor[\"M\", \"N\", fp32], beta: float):
    a = tile.load(x)
    b = tile.load(w)
    tile.store(y, tile.mma(a, b) * beta)
";
    let types = ["x=f32[?,?]", "w=f32[?,?]", "y=f32[?,?]", "beta=f32"];
    let arrays = ["x=randn:f32[150,70]", "w=randn:f32[70,33]", "y=empty:f32[150,33]", "beta=0.5"];
    text_runs_as_the_source(source, "product", &types, &[], &arrays, "auto", "graph");
}

#[test]
fn lists_and_files_without_a_type_name_are_arguments() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = "import cuda.tile as ct

@ct.kernel
def each(xs, ys, codes, T: ct.Constant[int]):
    for i in range(len(xs)):
        ct.store(ys[i], 0, ct.load(xs[i], 0, T, padding_mode=ct.PaddingMode.ZERO) + ct.load(codes, 0, T).astype(ct.float32))
";
    std::fs::write(folder.path().join("k.py"), source).expect("written");
    // 1.0 and 2.0 in f8e4m3, as NumPy saves a view of them as bytes.
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }");
    let file = [b"\x93NUMPY\x01\0\x76\0".as_slice(), header.as_bytes(), &[0x38, 0x40]].concat();
    std::fs::write(folder.path().join("codes.npy"), file).expect("written");
    let run = |arguments: &[&str]| tessera_in(folder.path(), &[&["run", "k.py::each", "T=2", "--grid", "1"], arguments].concat());
    let lists = ["xs=[arange:f32[2], ones:f32[1]]", "ys=[empty:f32[2],zeros:f32[2]]"];
    let fp8 = "codes=@codes.npy;dtype=f8e4m3";
    let (code, text) = run(&[lists[0], lists[1], fp8, "--save", "ys[1]=y.npy", "--sanitize", "all"]);
    assert!(code == 0 && text.contains("ys[0]: f32[2] = [1, 3]") && text.contains("ys[1]: f32[2] = [2, 2]"), "{text}");
    assert!(folder.path().join("y.npy").exists());
    for (arguments, wanted) in [
        ([lists[0], "ys=[]", fp8], "the list `ys` is empty"),
        ([lists[0], "ys=[ones:f32[2],ones:f16[2]]", fp8], "item 1 is `f16`"),
        ([lists[0], "ys=[1, 2]", fp8], "expected an array"),
        ([lists[0], "ys=empty:f32[2]", fp8], "ys"),
    ] {
        let (code, text) = run(&arguments);
        assert!(code == 5 && text.contains(wanted), "{arguments:?}\n{text}");
    }
    let (code, text) = run(&[lists[0], lists[1], fp8, "--save", "ys=y.npy"]);
    assert!(code == 5 && text.contains("name one, such as `ys[0]`"), "{text}");
    // The same kernel by types: arrays of a list may have strides of their own.
    let compile = |ys: &str| {
        let types = ["compile", "k.py::each", "xs=[f32[?],f32[2];strides=[3]]", ys, "codes=f8e4m3[?];strides=[?]", "T=2"];
        tessera_in(folder.path(), &types)
    };
    let (code, text) = compile("ys=[f32[?]]");
    assert!(code == 0 && text.contains("@each"), "{text}");
    let (code, text) = compile("xs=[f32[?],f32[?]]");
    assert!(code == 5 && text.contains("the argument `xs` is given twice"), "{code}: {text}");
    let (code, text) = compile("ys=[f32[?],f16[?]]");
    assert!(code == 5 && text.contains("the arrays of a list differ"), "{text}");
}

/// Tuples of arrays, lists, numbers and tuples: run, checked, compiled by types, and read again as IR text.
#[test]
fn tuples_hold_arrays_and_lists() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = "import cuda.tile as ct

@ct.kernel
def blend(pair, rest, out, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a, (b, scale) = pair
    pair_1 = ct.load(a, i, TILE) + ct.load(b, i, TILE).astype(ct.float32)
    pair_1 = pair_1 * scale
    for k in range(len(rest[0])):
        pair_1 = pair_1 + ct.load(rest[0][k], i, TILE)
    ct.store(out, i, pair_1)

@ct.kernel
def annotated(x: ct.Array, out, TILE: ct.Constant[int]):
    ct.store(out, ct.bid(0), ct.load(x, ct.bid(0), TILE))
";
    std::fs::write(folder.path().join("k.py"), source).expect("written");
    let ask = |arguments: &[&str]| tessera_in(folder.path(), arguments);
    let pair = "pair=(arange:f32[100],(ones:f16[100],2.5))";
    let rest = "rest=([ones:f32[100],ones:f32[100]],)";
    let out = "out=empty:f32[100]";
    for device in ["cpu", "emu"] {
        let (code, text) = ask(&["run", "k.py::blend", pair, rest, out, "TILE=64", "--grid", "2", "--device", device]);
        assert!(code == 0 && text.contains("out: f32[100] = [4.5, 7, 9.5"), "{device}: {text}");
    }
    let (code, text) = ask(&["check", "k.py::blend", pair, rest, out, "TILE=64", "--grid", "2"]);
    assert!(code == 0, "{text}");
    let types = ["pair=(f32[?],(f16[?];strides=[1];align=2,f32))", "rest=([f32[?],f32[?];strides=[3]],)", "out=f32[?];align=4"];
    let compile = [&["compile", "k.py::blend", "TILE=64", "--emit", "schedule", "-o", "k.tir"], &types[..]].concat();
    let (code, text) = ask(&compile);
    assert_eq!(code, 0, "{text}");
    let (code, text) = ask(&["run", "k.tir::blend", pair, rest, out, "--grid", "2"]);
    assert!(code == 0 && text.contains("out: f32[100] = [4.5, 7, 9.5"), "{text}");
    for (kernel, arguments, wanted) in [
        ("blend", &["pair=(arange:f32[100],2)", rest, out, "TILE=64"][..], "can't be unpacked"),
        (
            "blend",
            &[pair, rest, out, "TILE=(64,empty:f32[2])"],
            "`TILE` takes a value known when the kernel is compiled, not a tuple",
        ),
        ("annotated", &["x=(ones:f32[64],)", out, "TILE=64"], "`x` takes an array, not a tuple"),
        ("annotated", &["y=(ones:f32[64],)", out, "TILE=64"], "has no parameter `y`"),
    ] {
        let (code, text) = ask(&[&["run", &format!("k.py::{kernel}"), "--grid", "2"], arguments].concat());
        assert!(code == 5 && text.contains(wanted), "{wanted}: {code} {text}");
    }
}

#[test]
fn mistakes_with_ir_files_are_shown_with_their_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |text: &str| std::fs::write(folder.path().join("k.tir"), text).expect("written");
    let ask = |arguments: &[&str]| tessera_in(folder.path(), &[&["run", "k.tir::k", "--grid", "1"], arguments].concat());
    let header =
        "schedule @k(%x: tile<ptr<f32>>, %n: tile<i32>, %s: tile<i32>) abi(x: array<f32, [?], [1], i32, align=4, disjoint>)";
    let body = "
  %v = make_tensor_view %x, [%n], [] : tensor_view<?xf32, strides=[1]>
  %p = make_partition_view %v : partition_view<tile=(16), padding=zero, tensor_view<?xf32, strides=[1]>>
  %i = get_tile_block_id {axis=x} : tile<i32>
  %t, %k = load_view_tko %p, [%i] : tile<16xf32>, token
  %d = addf %t, %t : tile<16xf32>
  %e = store_view_tko %d, %p, [%i], token=%k : token
  return
}
";
    write(&format!("{header} {{{body}"));
    let (code, text) = ask(&["x=arange:f32[16]"]);
    assert!(code == 0 && text.contains("x: f32[16] = [0, 2, 4,"), "{text}");
    for (arguments, wanted) in [
        (&[][..], "argument `x` is missing"),
        (&["x=arange:f16[16]"][..], "`x` holds `f16`, the kernel was compiled for `f32`"),
        (&["x=arange:f32[4,4]"][..], "`x` has 2 axes, the kernel was compiled for 1"),
        (&["x=arange:f32[16]", "N=4"][..], "`k` has no parameter `N`"),
        (&["x=arange:f32[16]", "--config", "BLOCK_M=4"][..], "no choice `BLOCK_M`"),
    ] {
        let (code, text) = ask(arguments);
        assert!(
            code == 5 && text.contains(wanted) && (text.contains("k.tir:1:") || wanted.contains("choice")),
            "{arguments:?}\n{text}"
        );
    }
    let (code, text) = tessera_in(folder.path(), &["run", "k.tir::other", "--grid", "1"]);
    assert!(code == 5 && text.contains("it has `k`"), "{text}");
    for (wrong, place) in [("addf %t, %q", ":6:17"), ("addq %t, %t", ":6:8"), ("addi %t, %t {overflow=none}", ":6:")] {
        write(&format!("{header} {{{}", body.replace("addf %t, %t", wrong)));
        let (code, text) = ask(&["x=arange:f32[16]"]);
        assert!(code == 5 && text.contains(&format!("k.tir{place}")), "{wrong}\n{text}");
    }
    write("tile @k() abi() hints(num_warps=4) {\n  return\n}\n");
    let (code, text) = ask(&[]);
    assert!(code == 0 && text.contains("k on cpu"), "Tile IR runs in lock-step\n{text}");
    write("schedule @k(");
    assert_eq!(ask(&[]).0, 5);
}

#[test]
fn lists_are_not_empty() {
    for topic in ["ops", "suites", "passes", "targets", "devices", "precisions"] {
        let (code, text) = tessera(&["list", topic, "--json"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with('[') && text.len() > 20, "{topic}: {text}");
    }
    assert!(tessera(&["list", "suites"]).1.contains("862"));
}

#[test]
fn a_report_says_what_became_of_a_kernel() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = "import cuda.tile as ct

@ct.kernel
def product(A, B, C, TM: ct.Constant[int], FACTOR: ct.Constant[int]):
    acc = ct.zeros((TM, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (ct.bid(0), k), (TM, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, ct.bid(1)), (64, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (ct.bid(0), ct.bid(1)), (acc * FACTOR).astype(C.dtype))
";
    std::fs::write(folder.path().join("product.py"), kernel).expect("written");
    let report = |target: &str, more: &[&str]| {
        let types = ["A=f16[?,?];align=16", "B=f16[?,?];align=16", "C=f16[?,?];align=16", "TM=64", "FACTOR=2"];
        let mut arguments = vec!["compile", "product.py::product"];
        arguments.extend(types);
        arguments.extend(["--target", target, "--emit", "report"]);
        arguments.extend(more);
        tessera_in(folder.path(), &arguments)
    };
    let (code, text) = report("sm_90a", &[]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "recipe\n  warp-specialization\n",
        " stages\n",
        "conflicts of degree",
        " wgmma\n",
        "a round of the inner loop",
        "bound by",
    ] {
        assert!(text.contains(part), "no {part:?}\n{text}");
    }
    let (code, text) = report("sm_80", &["--json"]);
    assert_eq!(code, 0, "{text}");
    let facts: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    let refused = facts["refused"].as_array().expect("a list");
    assert!(
        refused
            .iter()
            .any(|one| one["recipe"] == "warp-specialization" && one["reason"].as_str().is_some_and(|text| !text.is_empty()))
    );
    assert!(facts["conversions"].is_array() && facts["instructions"]["mma"].as_u64().is_some_and(|count| count > 0), "{text}");
    assert_eq!(facts["round"]["operations"], 2 * 64 * 64 * 64, "{text}");
    assert_eq!(facts["round"]["bytes"], 2 * 2 * 64 * 64, "{text}");
    let spills = &facts["assembler"]["spilled_bytes"];
    assert!(spills.is_null() || *spills == 0, "{text}");
    let copies = facts["global_accesses"].as_array().expect("a list").iter().filter(|one| one["loops"] != 0);
    let whole = |one: &serde_json::Value| one["requested_bytes"] == 512 && one["sectors"] == 16 && one["scattered"] == false;
    assert!(copies.clone().count() > 0 && copies.into_iter().all(whole), "{text}");
}

#[test]
fn a_plan_is_printed_given_back_and_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = "import cuda.tile as ct

@ct.kernel
def product(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (ct.bid(0), k), (64, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, ct.bid(1)), (64, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (ct.bid(0), ct.bid(1)), acc)
";
    std::fs::write(folder.path().join("product.py"), kernel).expect("written");
    let compile = |emit: &str, more: &[&str]| {
        let mut arguments = vec!["compile", "product.py::product", "A=f16[?,?]", "B=f16[?,?]", "C=f32[?,?]"];
        arguments.extend(["--target", "sm_90a", "--emit", emit]);
        arguments.extend(more);
        tessera_in(folder.path(), &arguments)
    };
    let (code, plan) = compile("plan", &[]);
    assert_eq!(code, 0, "{plan}");
    assert!(plan.contains("ring copy -> compute {by=tma, slots=6} [%a, %b]"), "{plan}");
    let save = |text: &str| std::fs::write(folder.path().join("own.plan"), text).expect("written");
    let own = plan.replace("slots=6", "slots=2").replace("  ring", "  persistent 1\n  ring");
    save(&own);
    let (code, again) = compile("plan", &["--plan", "own.plan"]);
    assert_eq!((code, again.as_str()), (0, own.as_str()));
    let (code, text) = compile("report", &["--plan", "own.plan"]);
    for part in ["recipe\n  plan by hand\n", "clocks or more, bound by", "tensor cores"] {
        assert!(code == 0 && text.contains(part), "no {part:?}\n{text}");
    }
    let launch = ["A=randn:f16[150,104]", "B=randn:f16[104,136]", "C=empty:f32[150,136]", "--grid", "3,3", "--device", "emu"];
    let run = |more: &[&str]| {
        let arguments = [&["check", "product.py::product"][..], &launch, &["--target", "sm_90a"], more].concat();
        tessera_in(folder.path(), &arguments)
    };
    let (code, text) = run(&["--plan", "own.plan", "--sanitize", "all"]);
    assert_eq!(code, 0, "{text}");

    let wrong = [
        (own.replace("slots=2", "slots=99"), "own.plan:5", "a ring has 1 to 16 slots"),
        (own.replace("slots=2", "slots=16"), "own.plan:5", "the rings take 262144 bytes of shared memory"),
        (own.replace("%b]", "%x]"), "own.plan:5", "the function has no value `%x`"),
        (own.replace("@product", "@other"), "own.plan:1", "this is a plan for `other`"),
        (own.replace("warps=4", "warp=4"), "own.plan:2", "there is no setting `warp` here"),
        ("nonsense".to_string(), "own.plan:1", "plan @function"),
    ];
    for (text, place, message) in wrong {
        save(&text);
        let (code, told) = compile("ptx", &["--plan", "own.plan"]);
        assert!(code != 0 && told.contains(place) && told.contains(message), "{text}\n{told}");
        assert!(!told.contains("panicked"), "{told}");
    }
    save(&own);
    for (arguments, message) in [
        (vec!["run", "gemm", "--plan", "own.plan"], "operators of the library choose their own plans"),
        (
            vec![
                "compile",
                "product.py::product",
                "A=f16[?,?]",
                "B=f16[?,?]",
                "C=f32[?,?]",
                "--target",
                "sm_90a",
                "--emit",
                "ptx",
                "-O",
                "0",
                "--plan",
                "own.plan",
            ],
            "at `-O0` no plan is carried out",
        ),
        (
            vec![
                "compile",
                "product.py::product",
                "A=f16[?,?]",
                "B=f16[?,?]",
                "C=f32[?,?]",
                "--target",
                "sm_90a",
                "--plan",
                "none.plan",
            ],
            "`none.plan`",
        ),
    ] {
        let (code, told) = tessera_in(folder.path(), &arguments);
        assert!(code != 0 && told.contains(message), "{arguments:?}\n{told}");
    }
}

#[test]
fn a_tile_that_no_block_holds_is_done_in_strips_with_a_remark() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = "import cuda.tile as ct

@ct.kernel
def product(A, B, C, T: ct.Constant[int]):
    acc = ct.zeros((T, 256), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (ct.bid(0), k), (T, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, ct.bid(1)), (64, 256), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (ct.bid(0), ct.bid(1)), acc.astype(C.dtype))
";
    std::fs::write(folder.path().join("product.py"), kernel).expect("written");
    let compiled = |tile: &str, more: &[&str]| {
        let types = ["A=f16[?,?];align=16", "B=f16[?,?];align=16", "C=f16[?,?];align=16", tile, "--target", "sm_90a"];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tessera"));
        command.current_dir(folder.path()).args(["compile", "product.py::product"]).args(types).args(more);
        let output = command.output().expect("tessera runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let [ptx, said] = compiled("T=256", &["--emit", "ptx"]);
    assert!(ptx.contains(".visible .entry product("), "{ptx}");
    for part in
        ["note[target-registers]", "in 2 strips of 128x256 of the tiles of 256x256", "more than", "make the tiles half as large"]
    {
        assert!(said.contains(part), "no {part:?}\n{said}");
    }
    let [report, _] = compiled("T=256", &["--emit", "report"]);
    assert!(report.contains("\npartition\n  in 2 strips of 128x256") && report.contains("\n  not as it is: costs "), "{report}");
    let [report, _] = compiled("T=256", &["--emit", "report", "--json"]);
    let facts: serde_json::Value = serde_json::from_str(&report).expect("one JSON object");
    let costs: Vec<_> = facts["attempts"].as_array().expect("a list").iter().map(|attempt| attempt["cost"].as_u64()).collect();
    let [before @ .., Some(0)] = &costs[..] else { panic!("{report}") };
    assert!(!before.is_empty() && before.iter().all(|cost| matches!(cost, Some(1..))), "{report}");
    let spills = &facts["assembler"]["spilled_bytes"];
    assert!(spills.is_null() || *spills == 0, "{report}");
    // What fits is not talked about.
    let [_, said] = compiled("T=128", &["--emit", "ptx"]);
    assert_eq!(said, "");
}

#[test]
fn a_report_advises_about_accesses_that_lie_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = "import cuda.tile as ct

@ct.kernel
def column(x, y):
    ct.store(y, (ct.bid(0), 0), ct.load(x, (0, ct.bid(0)), (128, 1)).reshape((1, 128)))
";
    std::fs::write(folder.path().join("column.py"), kernel).expect("written");
    let types = ["x=f32[?,?];align=16", "y=f32[?,?];align=16"];
    let arguments = ["compile", "column.py::column", types[0], types[1], "--target", "sm_90a", "--emit", "report"];
    let (code, text) = tessera_in(folder.path(), &arguments);
    assert_eq!(code, 0, "{text}");
    for part in ["128 bytes in 32 sectors,  4 needed", "lanes are 16384 bytes apart", "scattered 4\n"] {
        assert!(text.contains(part), "no {part:?}\n{text}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_mistake() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tessera"));
    let output = command.args(["list", "passes"]).stdout(writer).output().expect("tessera runs");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
