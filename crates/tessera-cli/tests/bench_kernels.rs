//! `tessera bench FILE::KERNEL`: sizes by name, references of one's own, and kernels that are timed in turns.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const KERNELS: &str = "import math
import cuda.tile as ct
import tessera
from tessera import Tensor, tile

@ct.kernel
def double(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) * 2)

@ct.kernel
def sums(x, y, STEP: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (STEP,))
    ct.store(y, (i,), v + v)

@ct.kernel
def nearly(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) * 2.01)

@ct.kernel
def same(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (N,))
    ct.store(y, (i,), v + v)

@ct.kernel
def same2(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (N,))
    ct.store(y, (i,), v + v)

@ct.kernel
def half(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    if i % 2 == 0:
        ct.store(y, (i,), ct.load(x, (i,), (N,)) * 2)

@ct.kernel
def no_number(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) * math.nan)

@ct.kernel
def no_numbers(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (N,))
    ct.store(y, (i,), (v - v) / (v - v))

@tessera.kernel
def beyond(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    t = tile.block_id() * tile.block_size() + tile.thread_id()
    if t <= x.shape[0]:
        y[t] = x[t]

@ct.kernel
def elsewhere(x, z, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(z, (i,), ct.load(x, (i,), (N,)))
";

/// Exit code, standard output and standard error of a line in a folder with `k.py`; on the CPU, unless it names another device.
fn tessera(folder: &Path, line: &str) -> (i32, String, String) {
    std::fs::write(folder.join("k.py"), KERNELS).expect("written");
    let words = line.split(' ').filter(|word| !word.is_empty());
    let device: &[&str] = if line.contains("--device") { &[] } else { &["--device", "cpu"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    let output = command.current_dir(folder).args(words).args(device).output().expect("tessera starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("an exit code"), text(&output.stdout), text(&output.stderr))
}

/// The exit code, and of each row its size `m`, implementation, status (`timed` where it has a time) and reason.
fn rows(folder: &Path, line: &str) -> (i32, Vec<(u64, String, String, String)>) {
    let (code, out, err) = tessera(folder, &format!("bench {line} --json"));
    let records: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{err}"))).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let of = |kind: &'static str| records.iter().filter(move |record| record["kind"] == kind);
    let mut rows = Vec::new();
    for row in of("summary") {
        let case = of("case").find(|case| case["case"] == row["case"]).expect("a case");
        let size = case["key"]["size"]["m"].as_u64().unwrap_or(0);
        // Times that are uncertain are times.
        let status = if row["median_ns"].is_number() { "timed".to_string() } else { text(&row["status"]) };
        rows.push((size, text(&row["impl"]), status, text(&row["reason"])));
    }
    rows.sort();
    (code, rows)
}

const LAUNCH: &str = "x=randn:f32[m] y=empty:f32[m] N=256 --grid cdiv(m,256)";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn each_combination_of_sizes_is_a_row() {
    let folder = folder();
    let (code, found) = rows(folder.path(), &format!("k.py::double {LAUNCH} --sizes m=1024..4096*2,8192"));
    assert_eq!(code, 0, "{found:?}");
    assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), [1024, 2048, 4096, 8192]);
    assert!(found.iter().all(|(_, name, status, _)| name == "tessera" && status == "timed"), "{found:?}");
    let (code, found) =
        rows(folder.path(), "k.py::double x=ones:f32[2*m] y=empty:f32[m+m] N=n --grid 2*m//n --sizes m=512,n=64,128");
    assert_eq!((code, found.len()), (0, 2), "{found:?}");
}

#[test]
fn sizes_stand_in_a_file() {
    let folder = folder();
    std::fs::write(folder.path().join("shapes.txt"), "# model\nm=512  # first\n\nm=1024..2048*2\n").expect("a file");
    let (code, found) = rows(folder.path(), &format!("k.py::double {LAUNCH} --sizes @shapes.txt"));
    assert_eq!((code, found.iter().map(|row| row.0).collect::<Vec<_>>()), (0, vec![512, 1024, 2048]), "{found:?}");
    std::fs::write(folder.path().join("layers.txt"), "n=100,variant=mul\nn=7,variant=dot\nn=100,variant=mul\n").expect("a file");
    let (code, out, err) = tessera(folder.path(), "check vector --sizes @layers.txt --precision fp32 --device cpu --json");
    assert_eq!(code, 0, "{err}");
    let cases = out.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()).expect("a report");
    assert_eq!(cases["cases"].as_array().map(Vec::len), Some(2), "what stands twice is checked once: {out}");
    std::fs::write(folder.path().join("wrong.txt"), "m=4\n\nm=x\n").expect("a file");
    std::fs::write(folder.path().join("empty.txt"), "# nothing\n").expect("a file");
    for (file, why) in [("wrong.txt", "wrong.txt:3: `m=x`: an extent is a number"), ("empty.txt", "`empty.txt` names no sizes")] {
        let (code, _, err) = tessera(folder.path(), &format!("bench gemm --sizes @{file} --device cpu"));
        assert!(code == 5 && err.contains(why), "{code}: {err}");
    }
    let (code, _, err) = tessera(folder.path(), "bench gemm --sizes @absent.txt --device cpu");
    assert!(code == 4 && err.contains("can't read `absent.txt`"), "{code}: {err}");
}

#[test]
fn baselines_are_checked_and_timed_in_turns() {
    let folder = folder();
    let line = format!("bench k.py::double {LAUNCH} STEP=64 --sizes m=4096 --baseline k.py::sums --baseline-grid m//64");
    let (code, out, err) = tessera(folder.path(), &line);
    assert_eq!(code, 0, "{out}{err}");
    let row = out.lines().find(|line| line.contains(" tessera ")).expect("a row");
    assert!(row.contains("x k.py::sums"), "the ratio is missing:\n{out}");
    // A wrong baseline has no time, and the row beside it no ratio.
    let (code, found) = rows(folder.path(), &format!("k.py::double {LAUNCH} --sizes m=4096 --baseline k.py::nearly"));
    let [(_, wrong, status, why), (_, _, other, _)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((code, wrong.as_str(), status.as_str(), other.as_str()), (2, "k.py::nearly", "incorrect", "timed"));
    assert!(why.contains("outside the bound, the worst is `y`"), "{why}");
}

#[test]
fn results_are_judged_by_one_s_own_reference() {
    let folder = folder();
    let path = folder.path();
    let kernel = format!("k.py::nearly {LAUNCH} --sizes m=1024");
    let judged = |line: String| {
        let (code, found) = rows(path, &line);
        let [(_, _, status, _)] = &found[..] else { panic!("{found:?}") };
        (code, status.clone())
    };
    let (right, wrong) = ((0, "timed".to_string()), (2, "incorrect".to_string()));
    assert_eq!(judged(kernel.clone()), right);
    assert_eq!(judged(format!("{kernel} --against k.py::double")), wrong);
    assert_eq!(judged(format!("{kernel} --against k.py::double --rtol 0.02")), right);
    assert_eq!(judged(format!("{kernel} --against k.py::double --rtol 0 --atol 1")), right);
    assert_eq!(judged(format!("{kernel} --against k.py::double --rtol 0 --atol 1e-9")), wrong);
    assert_eq!(judged(format!("{kernel} STEP=64 --against k.py::sums --against-grid m//64")), wrong);
    let (code, out, err) = tessera(path, "run k.py::double x=randn:f32[1024] y=empty:f32[1024] N=256 --grid 4 --save y=want.npy");
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(judged(format!("{kernel} --against want.npy")), wrong);
    assert_eq!(judged(format!("k.py::double {LAUNCH} --sizes m=1024 --against y=want.npy")), right);
}

/// What reads outside of its arrays is a wrong kernel, and no matter of the machine.
#[test]
fn a_kernel_that_stops_with_a_fault_is_wrong() {
    let folder = folder();
    let launch = "k.py::beyond x=randn:f32[1000] y=empty:f32[1000] --grid 8 --block 128";
    for device in ["cpu", "emu"] {
        let (code, found) = rows(folder.path(), &format!("{launch} --device {device}"));
        let [(_, _, status, reason)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((code, status.as_str()), (2, "incorrect"), "{device}: {reason}");
    }
}

/// Results that are no numbers are as good as any other ones: none are taken for right where they are made of nothing, or by the kernel itself.
#[test]
fn results_that_say_nothing_are_refused() {
    let folder = folder();
    let path = folder.path();
    let launch = "N=256 --grid 4 --sizes m=1024";
    let one = |line: &str| {
        let (code, found) = rows(path, line);
        let [(_, _, status, why)] = &found[..] else { panic!("{found:?}") };
        (code, status.clone(), why.clone())
    };
    for rest in ["", "--against k.py::nearly"] {
        let (code, status, why) = one(&format!("k.py::double x=empty:f32[m] y=empty:f32[m] {launch} {rest}"));
        assert_eq!((code, status.as_str()), (2, "not_written"), "{why}");
        assert!(why.contains("`x` was given as `empty`, and `double` has no store to `x`"), "{why}");
    }
    // The bits of the one are those of a poison.
    for kernel in ["no_number", "no_numbers"] {
        let (code, status, why) = one(&format!("k.py::{kernel} x=ones:f32[m] y=empty:f32[m] {launch}"));
        assert_eq!((code, status.as_str()), (2, "incorrect"), "{why}");
        assert!(why.contains("1024 of 1024 elements of `y` are infinite or no numbers, and not because of the inputs"), "{why}");
    }
    // They are right where the inputs have them, and where a file says so.
    assert_eq!(one(&format!("k.py::double x=const(inf):f32[m] y=empty:f32[m] {launch}")).1, "timed");
    let save = "run k.py::no_numbers x=ones:f32[1024] y=empty:f32[1024] N=256 --grid 4 --save y=want.npy";
    assert_eq!(tessera(path, save).0, 0);
    assert_eq!(one(&format!("k.py::no_numbers x=ones:f32[m] y=empty:f32[m] {launch} --against want.npy")).1, "timed");
    let (code, status, why) = one("k.py::half x=ones:f32[m] y=empty:f32[m] N=256 --grid 4 --sizes m=1024");
    assert_eq!((code, status.as_str()), (2, "not_written"), "{why}");
    // A reference that leaves elements unwritten is not the kernel's mistake.
    let (code, status, why) = one(&format!("k.py::double {LAUNCH} --sizes m=1024 --against k.py::half"));
    assert_eq!((code, status.as_str()), (3, "harness_error"), "{why}");
    assert!(why.contains("`half` is no reference: it leaves 512 of 1024 elements of `y` unwritten"), "{why}");
}

/// Bytes are those of the arrays that the kernel reads and writes, however the arguments are written.
#[test]
fn work_is_what_the_kernel_touches() {
    let folder = folder();
    for (x, y) in [("randn", "empty"), ("randn", "zeros"), ("zeros", "zeros")] {
        let line = format!("bench k.py::double x={x}:f32[1024] y={y}:f32[1024] N=256 --grid 4 --device emu --json");
        let (code, out, err) = tessera(folder.path(), &line);
        assert_eq!(code, 0, "{err}");
        let records = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("a record"));
        let case = records.into_iter().find(|record| record["kind"] == "case").expect("a case");
        assert_eq!((&case["work"]["read_bytes"], &case["work"]["write_bytes"]), (&4096.into(), &4096.into()), "{x} {y}");
    }
}

/// Before the times of two kernels are compared, their results are.
#[test]
fn kernels_that_do_not_agree_have_no_ratio() {
    let folder = folder();
    let launch = "x=randn:f32[1024] y=empty:f32[1024] N=256 --grid 4 --time-limit 20 --least 50%";
    let (code, out, err) = tessera(folder.path(), &format!("compare --run k.py::double k.py::nearly {launch}"));
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("1 BROKEN") && out.contains("outside the bound"), "{out}");
    // Rows stand beside those of the same name, or in the same place.
    for (a, b, broken) in [("double,nearly", "nearly,double", 0), ("double,nearly", "same,same2", 1)] {
        let (code, out, err) = tessera(folder.path(), &format!("compare --run k.py::{a} k.py::{b} {launch} --json"));
        assert_eq!((out.matches("\"BROKEN\"").count(), code == 2), (broken, broken > 0), "{a} {b}: {out}{err}");
    }
}

#[test]
fn what_has_no_effect_or_no_sense_is_refused() {
    let folder = folder();
    let kernel = format!("k.py::double {LAUNCH}");
    let (code, ..) = tessera(folder.path(), "run k.py::double x=ones:f32[4] y=empty:f32[4] N=4 --grid 1 --save y=want.npy");
    assert_eq!(code, 0);
    let wrong = [
        (format!("{kernel} --sizes n=4"), "no argument is written with `n`"),
        (format!("{kernel} --sizes m=4,variant=nt"), "a kernel has no variants"),
        (format!("{kernel} --sizes m=0"), "an extent of 0 takes no time"),
        (format!("{kernel} --sizes quick"), "`quick` is not a size"),
        (format!("{kernel} --sizes m=1..2000"), "more than 1000 values"),
        ("k.py::double x=ones:f32[q] y=empty:f32[m] N=4 --grid 1 --sizes m=4".to_string(), "there is no size `q`"),
        (format!("{kernel} --sizes m=512 --baseline a=b"), "`--baseline a=b` is no kernel"),
        (format!("{kernel} --sizes m=512 --against cpu"), "times are of one device"),
        (format!("{kernel} --sizes m=512 --baseline-grid 4"), "add `--baseline FILE::KERNEL`"),
        (format!("{kernel} --sizes m=512 --against-grid 4"), "add `--against FILE::KERNEL`"),
        (format!("{kernel} --sizes m=512 --rtol=-1"), "a tolerance is a number from 0 on"),
        (
            format!("{kernel} z=empty:f32[m] --sizes m=512 --against k.py::elsewhere"),
            "`k.py::elsewhere` writes nothing of that: `double` writes y",
        ),
        (format!("{kernel} --sizes m=512 --against k.py::sums"), "STEP"),
        (format!("{kernel} --sizes m=512 --against want.npy"), "`y` has shape [4] in the file and [512] here"),
        (format!("{kernel} --sizes m=512 --against x=want.npy"), "`x` names none of the arrays"),
        ("gemm --against k.py::sums".to_string(), "`--against` is for a kernel"),
        ("gemm --rtol 0.1".to_string(), "`--rtol` is for a kernel"),
    ];
    for (line, wanted) in wrong {
        let (code, out, err) = tessera(folder.path(), &format!("bench {line}"));
        assert!(code == 5 && err.contains(wanted), "{line}: {code}\n{out}{err}");
    }
    let line = format!("bench {kernel} --sizes m=512 --baseline k.py::nearly --device emu");
    let (code, out, err) = tessera(folder.path(), &line);
    assert!(code == 5 && err.contains("the emulator checks and times nothing"), "{out}{err}");
    let line = format!("bench {kernel} --sizes m=512 --against k.py::missing");
    assert_eq!(tessera(folder.path(), &line).0, 5);
}
