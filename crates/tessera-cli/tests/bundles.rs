//! `tessera bundle`, and `tessera run` of what it packed.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const KERNELS: &str = "import cuda.tile as ct
import tessera
from tessera import Tensor, fp32, tile

@ct.kernel
def softmax(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))

@tessera.kernel
def product(A: Tensor[\"M\", \"K\", dtype], B: Tensor[\"K\", \"N\", dtype], C: Tensor[\"M\", \"N\", dtype]):
    tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))

@ct.kernel
def total(xs, y, TILE: ct.Constant[int]):
    out = ct.full((TILE,), 0, dtype=ct.float32)
    for i in range(len(xs)):
        out = out + ct.load(xs[i], (0,), (TILE,))
    ct.store(y, (0,), out)

@ct.kernel
def positive(x, TILE: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0),), (TILE,))
    ct.assert_(v >= 0, 'no debts')
    ct.store(x, (ct.bid(0),), v + 1)
";

fn tessera(folder: &Path, line: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    let output = command.current_dir(folder).args(line.split_whitespace()).output().expect("tessera starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().expect("an exit code"), text)
}

fn right(folder: &Path, line: &str) -> String {
    let (code, text) = tessera(folder, line);
    assert_eq!(code, 0, "{line}\n{text}");
    text
}

fn refused(folder: &Path, line: &str, exit: i32, says: &str) {
    let (code, text) = tessera(folder, line);
    assert_eq!(code, exit, "{line}\n{text}");
    assert!(text.contains(says), "{line}\n{text}\nand not\n{says}");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("k.py"), KERNELS).expect("written");
    folder
}

/// The lines of a run behind its first, which has times.
fn results(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("  ")).collect()
}

#[test]
fn what_is_packed_gives_what_the_kernel_gives() {
    let folder = folder();
    let here = folder.path();
    let packed = right(
        here,
        "bundle k.py::softmax x=f32[?,?] y=f32[?,?] N=1024 k.py::softmax x=f32[?,?] y=f32[?,?] N=64 k.py::product A=bf16[?,?] B=bf16[?,?] \
         C=bf16[?,?] k.py::total xs=[f32[?],f32[?]] y=f32[?] TILE=16 --target sm_80 --target sm_90a -o k.tbundle",
    );
    assert!(packed.ends_with("wrote 8 variants to k.tbundle\n"), "{packed}");
    assert_eq!(right(here, "bundle k.tbundle --list"), packed.replace("wrote 8 variants to k.tbundle\n", ""));
    let calls = [
        ("softmax", "x=randn:f32[8,1000] y=empty:f32[8,1000] N=1024 --grid 8"),
        ("softmax", "x=randn:f32[8,60] y=empty:f32[8,60] N=64 --grid 8"),
        ("product", "A=randn:bf16[72,64] B=randn:bf16[64,40] C=empty:bf16[72,40]"),
        ("total", "xs=[ones:f32[16],arange:f32[16]] y=empty:f32[16] TILE=16 --grid 1"),
    ];
    for target in ["sm_80", "sm_90a"] {
        for (kernel, call) in calls {
            let run =
                |file: &str| right(here, &format!("run {file}::{kernel} {call} --device emu --target {target} --sanitize all"));
            let (compiled, launched) = (run("k.py"), run("k.tbundle"));
            assert_eq!(results(&compiled), results(&launched), "{compiled}\n{launched}");
            assert!(launched.contains(" of k.tbundle on ") && launched.contains(", loaded in "), "{launched}");
        }
    }
    let text = right(
        here,
        "run k.tbundle::total xs=[ones:f32[16],arange:f32[16]] y=empty:f32[16] --grid 1 --device emu --save y=y.npy --json",
    );
    let told: Value = serde_json::from_str(text.trim()).expect("JSON");
    assert_eq!((&told["kernel"], &told["saved"][0]["path"]), (&"total".into(), &"y.npy".into()), "{text}");
    assert!(here.join("y.npy").is_file());
    let list: Value = serde_json::from_str(right(here, "bundle k.tbundle --list --json").trim()).expect("JSON");
    assert_eq!(list["variants"].as_array().map(Vec::len), Some(8));
    assert!(list["variants"][7]["ptx_bytes"].as_u64() > Some(100) && list["variants"][7]["cubin_bytes"].is_null());
}

/// What nobody wrote is told of kernels that were compiled beforehand, too: without their text, and as a warning where the run is not checked.
#[test]
fn what_is_left_unwritten_is_told_without_the_source() {
    let folder = folder();
    let here = folder.path();
    right(here, "bundle k.py::softmax x=f32[?,?] y=f32[?,?] N=64 -o k.tbundle");
    std::fs::remove_file(here.join("k.py")).expect("removed");
    let run = "run k.tbundle::softmax x=randn:f32[8,60] y=empty:f32[8,60] --device emu";
    let left = "[unwritten]: 240 of 480 elements of `y` were not written, the first is y[4, 0]";
    refused(here, &format!("{run} --grid 4 --sanitize all"), 2, &format!("error{left}"));
    let warned = right(here, &format!("{run} --grid 4"));
    assert!(warned.contains("warning[unwritten]: 240 of 480 elements of `y` show what was in memory before"), "{warned}");
    let told = right(here, &format!("{run} --grid 8 --sanitize all"));
    assert!(told.contains(", checked: nothing found") && !told.contains("unwritten"), "{told}");
    let (code, text) = tessera(here, &format!("{run} --grid 4 --sanitize all --json"));
    let object = text.lines().next().expect("a line");
    let told: Value = serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((code, &told["findings"][0]["id"], &told["checked"]), (2, &"unwritten".into(), &true.into()), "{text}");
}

#[test]
fn operators_are_packed_for_sizes() {
    let folder = folder();
    let here = folder.path();
    let packed = right(
        here,
        "bundle softmax batch=1 heads=1 queries=16 keys=100 gemm m=64 n=48 k=32 vector --sizes n=5000 --precision fp32 -o ops.tbundle",
    );
    for name in ["softmax for sm_90a: ", "softmax.causal for", "gemm.nt for", "gemm.tn for", "vector.add for", "vector.dot for"] {
        assert!(packed.contains(name), "{name}: {packed}");
    }
    let nt = right(here, "run ops.tbundle::gemm.nt A=ones:f32[64,32] B=ones:f32[48,32] C=empty:f32[64,48] --device emu");
    assert!(nt.contains("C: f32[64, 48] = [32, 32, 32,"), "{nt}");
    let half =
        right(here, "run ops.tbundle::gemm.nn A=ones:f32[64,32] B=ones:f32[32,48] C=empty:f32[64,48] alpha=0.5 --device emu");
    assert!(half.contains("C: f32[64, 48] = [16, 16, 16,"), "{half}");
    for option in ["--ranks 2", "--check-calls"] {
        let line = "run ops.tbundle::gemm.nt A=ones:f32[64,32] B=ones:f32[48,32] C=empty:f32[64,48] --device emu";
        refused(here, &format!("{line} {option}"), 5, "the kernels of a bundle are for one device");
    }
    refused(
        here,
        "run ops.tbundle::gemm.nt A=ones:f32[32,32] B=ones:f32[48,32] C=empty:f32[32,48] --device emu",
        5,
        "`A` has shape [32, 32], the kernel was packed for [64, 32]",
    );
}

#[test]
fn what_cannot_be_packed_or_run_says_why() {
    let folder = folder();
    let here = folder.path();
    let pack = "bundle k.py::softmax x=f32[?,?] y=f32[?,?] N=64";
    refused(here, pack, 5, "the bundle has no name\nhelp: name a file: `-o kernels.tbundle`");
    refused(here, "bundle x=f32[?] -o k.tbundle", 5, "`x=f32[?]` names nothing to pack");
    refused(here, "bundle k.py::nothing -o k.tbundle", 5, "nothing");
    refused(here, "bundle gemm A=f32[?,?] -o k.tbundle", 5, "`A=f32[?`");
    refused(here, "bundle gemm m=4 --sizes m=4 -o k.tbundle", 5, "`--sizes` is for operators without sizes of their own");
    refused(here, "bundle gemm -o k.tbundle", 5, "`gemm` is packed for sizes, and none are given");
    refused(here, "bundle gemm --sizes rows=4 -o k.tbundle", 5, "`rows` is not an extent of gemm");
    refused(here, &format!("{pack} --sizes m=4 -o k.tbundle"), 5, "`--sizes` is for operators without");
    refused(here, &format!("{pack} --target sm_9 -o k.tbundle"), 5, "`sm_9` is not a target");
    refused(here, &format!("{pack} --target sm_80 --target sm_80 -o k.tbundle"), 5, "the target `sm_80` is given twice");
    refused(here, "bundle k.py::softmax x=f32[?,?] y=f32[?,?] -o k.tbundle", 5, "`N`");
    refused(here, &format!("{pack} -o nowhere/k.tbundle"), 4, "can't write `nowhere/k.tbundle`");
    refused(here, "bundle k.tbundle --list", 4, "can't read `k.tbundle`");
    refused(here, "bundle k.py --list", 4, "`k.py`: the file is no bundle");
    refused(here, "bundle --list", 5, "required");
    right(here, &format!("{pack} --target sm_90a -o k.tbundle"));
    refused(here, "bundle k.tbundle k.tbundle --list", 5, "`--list` shows one bundle");
    let run = "run k.tbundle::softmax x=randn:f32[8,64] y=empty:f32[8,64]";
    refused(here, &format!("{run} --grid 8 --device cpu"), 5, "a bundle holds kernels for GPUs");
    refused(here, &format!("{run} --device emu"), 5, "the grid of `softmax` cannot be chosen for it");
    refused(here, &format!("{run} --grid 8 --device emu --target sm_80"), 5, "there are variants for sm_90a");
    refused(here, &format!("{run} N=32 --grid 8 --device emu"), 5, "`N` is the integer 32, the kernel was compiled for 64");
    refused(here, &format!("{run} --grid 8 --device emu --config A=1"), 5, "leave out `--config`");
    refused(here, "run k.tbundle::sum --device emu", 5, "the bundle has no kernel `sum`; it has softmax");
    let path = here.join("k.tbundle");
    let mut bytes = std::fs::read(&path).expect("a bundle");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    refused(
        here,
        &format!("{run} --grid 8 --device emu"),
        4,
        "`k.tbundle`: the bundle is damaged: the checksum of variant 0 (`softmax` for sm_90a)",
    );
}

#[test]
fn a_failed_assertion_says_where_it_stands_without_the_source() {
    let folder = folder();
    let here = folder.path();
    right(here, "bundle k.py::positive x=f32[?] TILE=16 -o k.tbundle");
    std::fs::remove_file(here.join("k.py")).expect("removed");
    assert!(right(here, "run k.tbundle::positive x=ones:f32[64] --grid 4 --device emu").contains("x: f32[64] = [2, 2,"));
    let run = "run k.tbundle::positive x=const(-1):f32[64] --grid 4 --device emu";
    refused(here, run, 2, "assertion failed: k.py:26:5: no debts (in block ");
}

#[test]
fn machine_code_is_packed_where_there_is_an_assembler() {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !has("TESSERA_PTXAS") && !has("TESSERA_PYTHON") {
        println!("skipped: no assembler (TESSERA_PTXAS, TESSERA_PYTHON)");
        return;
    }
    let folder = folder();
    let here = folder.path();
    right(here, "bundle k.py::softmax x=f32[?,?] y=f32[?,?] N=64 --target sm_80 --target sm_90a --cubin -o k.tbundle");
    let list: Value = serde_json::from_str(right(here, "bundle k.tbundle --list --json").trim()).expect("JSON");
    for variant in list["variants"].as_array().expect("variants") {
        assert!(variant["cubin_bytes"].as_u64() > Some(1000), "{variant}");
    }
    // The emulator takes the text that stands beside it.
    right(here, "run k.tbundle::softmax x=randn:f32[8,64] y=empty:f32[8,64] --grid 8 --device emu --sanitize all");
}
