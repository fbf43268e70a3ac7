//! The lockfile on the command line: `tune` writes a choice, `run`, `check`, `bench` and `compile` take it, and `--frozen` wants one.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tessera::runtime::lock::Lockfile;

const TESSERA: &str = env!("CARGO_BIN_EXE_tessera");

const KERNELS: &str = "import cuda.tile as ct
import tessera
from tessera import Tensor, fp32, tile

@tessera.kernel.autotune(space=dict(BLOCK_M=[16, 64], BLOCK_N=[32, 64], num_stages=[2, 3]), key=[\"M\", \"N\", \"K\"])
def gemm(A: Tensor[\"M\", \"K\", dtype], B: Tensor[\"K\", \"N\", dtype], C: Tensor[\"M\", \"N\", dtype]):
    tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))

@tessera.kernel.autotune(space=dict(BLOCK_SIZE=[64, 128], VECTOR_WIDTH=[1, 2]), key=[\"hidden_size\"], cache=\"cached/rows.lock\")
def rows(x: Tensor[\"M\", \"N\", dtype], y: Tensor[\"M\", dtype]):
    row = tile.block_id(0)
    sums = tile.alloc_shared[fp32](1)
    if tile.thread_id() == 0:
        sums[0] = 0.0
    tile.barrier()
    total = 0.0
    for j in range(tile.thread_id(), x.shape[1], tile.block_size()):
        total += x[row, j]
    total = tile.warp_reduce_sum(total)
    if tile.lane_id() == 0:
        tile.atomic_add(sums, total)
    tile.barrier()
    if tile.thread_id() == 0:
        y[row] = sums[0]

@ct.kernel
def sums(x, y):
    t = ct.load(x, (ct.bid(0), 0), (1, 256))
    ct.store(y, (ct.bid(0),), ct.sum(t, axis=1))
";

const GEMM: [&str; 6] = ["gemm", "A=randn:f32[64,64]", "B=randn:f32[64,64]", "C=empty:f32[64,64]", "--device", "cpu"];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("k.py"), KERNELS).expect("written");
    folder
}

fn tessera(folder: &Path, command: &str, arguments: &[&str], more: &[&str]) -> Output {
    let (kernel, rest) = arguments.split_first().expect("a kernel");
    let subject = kernel.strip_prefix('=').map_or_else(|| format!("k.py::{kernel}"), str::to_string);
    Command::new(TESSERA).current_dir(folder).args([command, &subject]).args(rest).args(more).output().expect("tessera starts")
}

fn right(output: Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn wrong(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn what_tune_writes_the_other_commands_take() {
    let folder = folder();
    let at = |command: &str, more: &[&str]| tessera(folder.path(), command, &GEMM, more);
    assert!(!right(at("run", &[])).contains("tessera.lock"), "nothing is tuned yet");
    let refused = wrong(&at("run", &["--frozen"]), 5);
    assert!(refused.contains("`tessera.lock` has no choice for `gemm` for M 64/64, N 64/64, K 64/64 on cpu"), "{refused}");
    let command = "`tessera tune k.py::gemm A=randn:f32[64,64] B=randn:f32[64,64] C=empty:f32[64,64] --device cpu` makes one";
    assert!(refused.contains(command), "{refused}");

    let tuned = right(at("tune", &[]));
    assert!(tuned.contains("<- chosen") && tuned.contains("wrote 1 choice to tessera.lock"), "{tuned}");
    // Stages are a GPU's: on the CPU their programs are the same.
    assert!(tuned.contains("4 more are the program of one of these"), "{tuned}");
    let lock = std::fs::read_to_string(folder.path().join("tessera.lock")).expect("a lockfile");
    assert!(
        lock.contains("config = \"BLOCK_M=") && lock.contains("measured_us = ") && lock.contains("order = \"mma 64\""),
        "{lock}"
    );

    for command in ["run", "check"] {
        let ran = right(at(command, &["--frozen"]));
        assert!(ran.contains("from tessera.lock") && ran.contains("BLOCK_M="), "{command}: {ran}");
    }
    let json: Value = serde_json::from_str(&right(at("run", &["--json"]))).expect("an object");
    assert!(json["tuned"]["config"]["BLOCK_M"].is_i64(), "{json}");
    let timed = right(at("bench", &["--frozen", "--json", "--mode", "quick"]));
    assert!(timed.contains("from tessera.lock"), "{timed}");
    let compile = ["gemm", "A=f32[64,64]", "B=f32[64,64]", "C=f32[64,64]"];
    let compiled = tessera(folder.path(), "compile", &compile, &["--frozen"]);
    assert!(text(&compiled.stderr).contains("from tessera.lock"), "{}", text(&compiled.stderr));
    right(compiled);

    // A choice of one's own goes before the lockfile's, and other sizes have no entry.
    let own = right(at("run", &["--config", "BLOCK_M=16"]));
    assert!(!own.contains("tessera.lock"), "{own}");
    let other = ["gemm", "A=randn:f32[64,200]", "B=randn:f32[200,64]", "C=empty:f32[64,64]", "--device", "cpu", "--frozen"];
    wrong(&tessera(folder.path(), "run", &other, &[]), 5);
    let near = ["gemm", "A=randn:f32[64,128]", "B=randn:f32[128,64]", "C=empty:f32[64,64]", "--device", "cpu", "--frozen"];
    wrong(&tessera(folder.path(), "run", &near, &[]), 5);
}

#[test]
#[cfg(target_os = "linux")]
fn a_lockfile_is_written_through_links_or_refused_before_the_search() {
    let folder = folder();
    let here = folder.path();
    std::fs::create_dir(here.join("there")).expect("made");
    for (link, file) in [("kept.lock", "there/kept.lock"), ("new.lock", "there/new.lock")] {
        std::os::unix::fs::symlink(file, here.join(link)).expect("linked");
    }
    right(tessera(here, "tune", &GEMM, &["--most", "2", "--lock", "there/kept.lock"]));
    std::fs::write(here.join("k.py"), KERNELS.replace("accum=fp32))", "accum=fp32) * 2.0)")).expect("written");
    for link in ["kept.lock", "new.lock"] {
        right(tessera(here, "tune", &GEMM, &["--most", "2", "--lock", link]));
        assert!(std::fs::symlink_metadata(here.join(link)).expect("there").is_symlink());
    }
    let entries = |file: &str| {
        Lockfile::parse(&std::fs::read_to_string(here.join(file)).expect("a lockfile")).expect("parsed").iter().count()
    };
    assert_eq!((entries("there/kept.lock"), entries("there/new.lock")), (2, 1));
    // Nobody makes files there, whoever he is.
    let refused = tessera(here, "tune", &GEMM, &["--lock", "/proc/tessera.lock"]);
    assert_eq!(text(&refused.stdout), "");
    assert!(wrong(&refused, 4).contains("/proc/tessera.lock"));
}

#[test]
fn a_comment_keeps_a_choice_and_another_kernel_loses_it() {
    let folder = folder();
    let run = || tessera(folder.path(), "run", &GEMM, &["--frozen"]);
    right(tessera(folder.path(), "tune", &GEMM, &["--most", "2"]));
    right(run());
    std::fs::write(folder.path().join("k.py"), KERNELS.replace("def gemm", "# A product.\ndef gemm")).expect("written");
    right(run());
    std::fs::write(folder.path().join("k.py"), KERNELS.replace("accum=fp32))", "accum=fp32) * 2.0)")).expect("written");
    wrong(&run(), 5);
    // So does another space: the question is another one.
    std::fs::write(folder.path().join("k.py"), KERNELS.replace("BLOCK_M=[16, 64]", "BLOCK_M=[16, 32, 64]")).expect("written");
    wrong(&run(), 5);
}

#[test]
fn the_emulator_counts_and_tells_no_times() {
    let folder = folder();
    let rows = ["rows", "x=randn:f32[3,200]", "y=empty:f32[3]", "--grid", "3", "--device", "emu"];
    let tuned = right(tessera(folder.path(), "tune", &rows, &[]));
    assert!(tuned.contains("no launch is timed here") && tuned.contains("instructions"), "{tuned}");
    assert!(tuned.contains("`VECTOR_WIDTH` changes nothing in `rows`, and was left out of the search"), "{tuned}");
    assert!(tuned.contains("`hidden_size` of `key` is no axis and no argument, so all sizes are the key"), "{tuned}");
    // Its `cache=` stands beside the kernel's file.
    assert!(tuned.contains("wrote 1 choice to cached/rows.lock"), "{tuned}");
    let lock = std::fs::read_to_string(folder.path().join("cached/rows.lock")).expect("a lockfile");
    assert!(lock.contains("counted = ") && !lock.contains("measured_us"), "{lock}");
    let ran = right(tessera(folder.path(), "run", &rows, &["--frozen"]));
    assert!(ran.contains("from cached/rows.lock"), "{ran}");
    // Twice the same: nothing of it is measured.
    right(tessera(folder.path(), "tune", &rows, &[]));
    assert_eq!(std::fs::read_to_string(folder.path().join("cached/rows.lock")).expect("a lockfile"), lock);
}

#[test]
fn plans_and_points_are_searched_together_where_there_is_a_model() {
    let folder = folder();
    let gemm =
        ["gemm", "A=randn:bf16[64,64]", "B=randn:bf16[64,64]", "C=empty:bf16[64,64]", "--device", "emu", "--most", "6", "--json"];
    let rows = right(tessera(folder.path(), "tune", &gemm, &[]));
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let times: Vec<f64> = rows.iter().skip(1).map(|row| row["predicted_us"].as_f64().expect("a time")).collect();
    assert!(rows.len() > 20 && times.is_sorted(), "{times:?}");
    assert!(rows.iter().any(|row| row["is_own_plan"] == true) && rows.iter().any(|row| row["is_own_plan"] == false));
    let chosen: Vec<&Value> = rows.iter().filter(|row| row["chosen"] == true).collect();
    assert_eq!(chosen.len(), 1);
    assert!(rows.iter().all(|row| row["predicted_us"].as_f64() >= chosen[0]["predicted_us"].as_f64()), "{}", chosen[0]);
    assert!(rows.iter().filter(|row| row["status"] == "left-out").count() > 10);
    let ran = right(tessera(folder.path(), "run", &gemm[..6], &["--frozen"]));
    assert!(ran.contains("from tessera.lock"), "{ran}");
}

#[test]
fn stable_bits_keep_the_order_of_sums() {
    let folder = folder();
    let sums = ["sums", "x=randn:f32[4,256]", "y=empty:f32[4]", "--grid", "4", "--device", "emu", "--json"];
    let orders = |bits: &str| {
        let rows = right(tessera(folder.path(), "tune", &sums, &["--bits", bits]));
        let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        rows.iter().filter(|row| row["status"] == "other-order").count()
    };
    assert_eq!(orders("any"), 0);
    assert!(orders("stable") > 0, "other numbers of warps add up in another order");
    let lock = std::fs::read_to_string(folder.path().join("tessera.lock")).expect("a lockfile");
    assert!(lock.contains("bits = \"stable\"") && lock.contains("order = \"sum 1x256 along 1, "), "{lock}");
    let atomic = "import tessera
from tessera import Tensor, tile

@tessera.kernel.autotune(space=dict(BLOCK_SIZE=[32, 64]))
def total(x: Tensor[\"N\", dtype], y: Tensor[\"M\", dtype]):
    i = tile.linear_id()
    if i < x.shape[0]:
        tile.atomic_add(y, x[i])
";
    std::fs::write(folder.path().join("k.py"), atomic).expect("written");
    let total = ["total", "x=randn:f32[64]", "y=zeros:f32[1]", "--grid", "2", "--device", "emu", "--bits", "stable"];
    let refused = wrong(&tessera(folder.path(), "tune", &total, &[]), 5);
    assert!(refused.contains("adds up floats in no fixed order (atomics, ") && refused.contains("--bits stable"), "{refused}");
}

/// A reduction over one warp is wrong for blocks of several: such a candidate is told, and another one chosen.
#[test]
fn a_candidate_that_is_wrong_is_told_and_not_chosen() {
    let folder = folder();
    let text = "import tessera
from tessera import Tensor, tile

@tessera.kernel.autotune(space=dict(BLOCK_SIZE=[32, 128]))
def rows(x: Tensor[\"M\", \"N\", dtype], y: Tensor[\"M\", dtype]):
    total = 0.0
    for j in range(tile.thread_id(), x.shape[1], tile.block_size()):
        total += x[tile.block_id(0), j]
    total = tile.warp_reduce_sum(total)
    if tile.thread_id() == 0:
        y[tile.block_id(0)] = total
";
    std::fs::write(folder.path().join("k.py"), text).expect("written");
    for device in ["cpu", "emu"] {
        let rows = ["rows", "x=randn:f32[3,200]", "y=empty:f32[3]", "--grid", "3", "--device", device];
        let told = wrong(&tessera(folder.path(), "tune", &rows, &[]), 2);
        assert!(told.contains("a candidate gives wrong results (BLOCK_SIZE=128)"), "{told}");
        let ran = right(tessera(folder.path(), "run", &rows, &["--frozen"]));
        assert!(ran.contains("BLOCK_SIZE=32 from tessera.lock"), "{ran}");
    }
}

/// Points that write outside of memory, or never end, are told; the others are tried all the same, on the emulator too, where a fault takes the context.
#[test]
fn candidates_that_stop_or_never_end_are_told_and_others_chosen() {
    let folder = folder();
    let text = "import tessera
from tessera import Tensor, fp32, tile

@tessera.kernel.autotune(space=dict(BLOCK_SIZE=[32, 64, 128]), key=[\"N\"])
def rev(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    s = tile.alloc_shared[fp32](32)
    t = tile.thread_id()
    s[t] = x[tile.block_id() * tile.block_size() + t]
    tile.barrier()
    y[tile.block_id() * tile.block_size() + t] = s[tile.block_size() - 1 - t]

@tessera.kernel.autotune(space=dict(HANG=[0, 1, 2], BLOCK_SIZE=[32]), key=[\"N\"])
def hang(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    t = tile.block_id() * tile.block_size() + tile.thread_id()
    i = 0
    while HANG == 1 and i >= 0:
        i = (i + 1) % 7
    if t < x.shape[0]:
        y[t] = x[t] + HANG * 0.0
";
    std::fs::write(folder.path().join("k.py"), text).expect("written");
    for device in ["cpu", "emu"] {
        let rows = ["rev", "x=randn:f32[1024]", "y=empty:f32[1024]", "--grid", "32", "--device", device];
        let told = wrong(&tessera(folder.path(), "tune", &rows, &[]), 2);
        for bad in ["BLOCK_SIZE=64", "BLOCK_SIZE=128"] {
            assert!(told.contains(&format!("a candidate does not run to its end ({bad}): ")), "{device}: {told}");
        }
        let ran = right(tessera(folder.path(), "run", &rows, &["--frozen"]));
        assert!(ran.contains("BLOCK_SIZE=32 from tessera.lock"), "{ran}");
        let rows = ["hang", "x=randn:f32[64]", "y=empty:f32[64]", "--grid", "2", "--device", device];
        let told = wrong(&tessera(folder.path(), "tune", &rows, &["--timeout", "1"]), 2);
        assert!(told.contains("a candidate does not run to its end (BLOCK_SIZE=32,HANG=1): "), "{device}: {told}");
        assert!(!told.contains("HANG=2"), "{device}: {told}");
        let ran = right(tessera(folder.path(), "run", &rows, &["--frozen"]));
        assert!(ran.contains("HANG=0 from tessera.lock") || ran.contains("HANG=2 from tessera.lock"), "{ran}");
    }
}

#[test]
fn operators_of_the_library_are_tuned_by_their_sizes() {
    let folder = folder();
    let gemm = ["=gemm", "--sizes", "m=64,n=64,k=64,variant=nn", "--precision", "bf16", "--device", "emu"];
    let frozen = |command: &str, arguments: &[&str]| tessera(folder.path(), command, arguments, &["--frozen"]);
    let refused = wrong(&frozen("check", &gemm), 4);
    assert!(refused.contains("`tessera.lock` has no choice for `gemm"), "{refused}");
    let tuned = right(tessera(folder.path(), "tune", &gemm, &["--most", "3"]));
    assert!(tuned.contains("copy 4 warps") && tuned.contains("wrote "), "{tuned}");
    right(frozen("check", &gemm));
    let own = ["=gemm", "A=randn:bf16[64,64]", "B=randn:bf16[64,64]", "--device", "emu"];
    assert!(right(frozen("run", &own)).contains("from tessera.lock"));
    let refused = wrong(&tessera(folder.path(), "tune", &["=softmax", "--device", "cpu"], &[]), 5);
    assert!(refused.contains("nothing of `softmax") && refused.contains("help:"), "{refused}");
    // Where nothing can be chosen nothing is missing.
    right(frozen("check", &["=softmax", "--sizes", "queries=4,keys=64", "--precision", "fp32", "--device", "cpu"]));
    let refused = wrong(&tessera(folder.path(), "tune", &["=gemm", "A=randn:f32[4,4]"], &[]), 5);
    assert!(refused.contains("--sizes"), "{refused}");
}

/// The lines of a command's JSON.
fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn how_an_operator_cuts_a_problem_is_tuned_first_and_taken_everywhere() {
    let folder = folder();
    let case = ["=gemm", "--sizes", "batch=1,m=64,n=200,k=128,variant=nn", "--precision", "bf16", "--device", "emu"];
    let arrays = ["=gemm", "A=randn:bf16[64,128]", "B=randn:bf16[128,200]", "--device", "emu"];
    let with = |command: &str, arguments: &[&str], more: &[&str]| tessera(folder.path(), command, arguments, more);
    let refused = wrong(&with("run", &arrays, &["--frozen"]), 5);
    let missing = "`tessera.lock` has no choice for `gemm` for batch 1/1, m 64/64, n 256/8, k 128/128 on emu sm_90a";
    assert!(refused.contains(missing) && refused.contains("`tessera tune` of the operator with `--sizes`"), "{refused}");

    let tried = rows(&right(with("tune", &case, &["--most", "3", "--json"])));
    let [ways, plans] = ["way", "plan"].map(|kind| tried.iter().filter(|row| row["kind"] == kind).collect::<Vec<_>>());
    assert!(ways.len() > 100 && !plans.is_empty(), "{} ways, {} plans", ways.len(), plans.len());
    assert_eq!(ways.iter().filter(|row| row["status"] == "ok").count(), 3);
    let times: Vec<f64> = ways.iter().skip(1).map(|row| row["predicted_us"].as_f64().expect("a time")).collect();
    // The best of each kind, then what is like them.
    let falls = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(falls <= 1 && times[0] > 1.0 && times[0] < 20.0, "{times:?}");
    let chosen: Vec<&&Value> = ways.iter().filter(|row| row["chosen"] == true).collect();
    assert!(chosen.len() == 1 && chosen[0]["config"]["TM"].is_i64(), "{chosen:?}");
    // Again the same: the earlier choice stands first, and nothing here is measured.
    let path = folder.path().join("tessera.lock");
    let lock = std::fs::read_to_string(&path).expect("a lockfile");
    assert!(right(with("tune", &case, &["--most", "3"])).contains("ways to cut gemm on "));
    assert_eq!(std::fs::read_to_string(&path).expect("a lockfile"), lock);

    let ran: Value = serde_json::from_str(&right(with("run", &arrays, &["--frozen", "--json"]))).expect("an object");
    assert_eq!(ran["way"]["config"], chosen[0]["config"]);
    right(with("check", &case, &["--frozen"]));
    assert!(right(with("bench", &case, &["--frozen", "--json"])).contains(" from tessera.lock"));
    let other = ["=gemm", "A=randn:bf16[64,256]", "B=randn:bf16[256,200]", "--device", "emu", "--frozen"];
    assert!(wrong(&with("run", &other, &[]), 5).contains("k 256/128"));

    // The way that the lockfile says is the one that is taken, whatever it is.
    let mut entries = Lockfile::parse(&lock).expect("entries");
    let (key, entry) = entries.iter().find(|(key, _)| key.shape.starts_with("batch")).expect("a way");
    let (key, mut entry) = (key.clone(), entry.clone());
    let mut say = |entry: &tessera::runtime::lock::Entry| {
        entries.insert(key.clone(), entry.clone());
        std::fs::write(&path, entries.to_text()).expect("written");
    };
    let grid = |more: &[&str]| {
        let ran: Value = serde_json::from_str(&right(with("run", &arrays, &[&["--json"], more].concat()))).expect("an object");
        ran["kernels"][0]["grid"].clone()
    };
    for (columns, blocks) in [(64, 4), (128, 2)] {
        let alone = [("EXCHANGED", 0), ("num_ctas", 0), ("num_clusters", 0), ("sharing", 0)];
        for (name, value) in [("TM", 64), ("TN", columns), ("TK", 64)].into_iter().chain(alone) {
            entry.config.insert(name.to_string(), value);
        }
        say(&entry);
        assert_eq!(grid(&[]), serde_json::json!([1, blocks, 1]));
        right(with("check", &case, &[]));
    }
    let unasked = grid(&["-O0"]);
    entry.config.insert("TN".to_string(), 5000);
    say(&entry);
    assert_eq!(grid(&["-O0"]), unasked, "who wants nothing chosen asks no lockfile");
    let told = "is no way to cut it: `TN=5000`: from 1 to 1024";
    assert!(wrong(&with("run", &arrays, &[]), 5).contains(told));
    assert!(wrong(&with("check", &case, &[]), 4).contains(told));
}

/// A lockfile as a GPU would have written it, from what was found on the emulator. What the emulator found stays too.
fn as_of_a_product(path: &Path) {
    let mut lock = Lockfile::parse(&std::fs::read_to_string(path).expect("a lockfile")).expect("entries");
    let found: Vec<_> = lock.iter().map(|(key, entry)| (key.clone(), entry.clone())).collect();
    assert!(!found.is_empty());
    for (mut key, entry) in found {
        assert_eq!(key.device, "emu sm_90a");
        key.device = "sm_90a NVIDIA H200".into();
        key.toolchain.push_str(", driver 12.8");
        lock.insert(key, entry);
    }
    std::fs::write(path, lock.to_text()).expect("written");
}

#[test]
fn bundles_hold_what_was_chosen_for_a_product_of_their_target() {
    let folder = folder();
    let arrays = |line: &str| ["A", "B", "C"].map(|name| format!("{name}={line}bf16[64,64]"));
    let [made, types, open] = [arrays("randn:"), arrays(""), arrays("").map(|text| text.replace("64,64", "?,?"))];
    let with = |arrays: &[String; 3], command: &str, subject: &str, more: &str| {
        let words = arrays.iter().map(String::as_str).chain(more.split_whitespace());
        tessera(folder.path(), command, &[subject], &words.collect::<Vec<_>>())
    };
    let bundle = |arrays: &[String; 3], more: &str| with(arrays, "bundle", "gemm", &format!("-o k.tbundle {more}"));
    let bytes = || std::fs::read(folder.path().join("k.tbundle")).expect("a bundle");
    right(bundle(&types, ""));
    let plain = bytes();
    right(with(&made, "tune", "gemm", "--device emu --most 4"));
    let refused = wrong(&bundle(&types, "--frozen"), 5);
    assert!(
        refused.contains("`tessera.lock` has no choice for `gemm` for M 64/64") && refused.contains("of that target"),
        "{refused}"
    );

    as_of_a_product(&folder.path().join("tessera.lock"));
    let packed = bundle(&types, "--frozen");
    let told = text(&packed.stderr);
    assert!(told.contains("note: gemm for sm_90a: ") && told.contains(" from tessera.lock"), "{told}");
    // A choice is for the kernel of launches, which take any size.
    assert!(right(packed).contains("A=bf16[?,?];align=16, "));
    assert!(bytes() != plain, "the choice is in the code");
    let compile = |more: &str| with(&types, "compile", "gemm", &format!("--target sm_90a --emit plan {more}"));
    let compiled = compile("--frozen");
    assert!(text(&compiled.stderr).contains(" from tessera.lock"), "{}", text(&compiled.stderr));
    right(compiled);
    let last = |text: String| text.lines().last().map(str::to_string);
    let ran = with(&made, "run", "gemm", "--device emu --frozen");
    assert_eq!(last(right(ran)), last(right(with(&made, "run", "=k.tbundle::gemm", "--device emu"))));
    right(bundle(&types, "--config BLOCK_M=16"));
    wrong(&bundle(&types, "--frozen --target sm_80"), 5);
    let refused = wrong(&bundle(&open, "--frozen"), 5);
    assert!(refused.contains("some of `gemm` are open") && refused.contains("name sizes"), "{refused}");
    right(bundle(&open, ""));
    assert!(wrong(&with(&made, "run", "=k.tbundle::gemm", "--device emu --frozen"), 5).contains("leave out `--frozen`"));
    wrong(&tessera(folder.path(), "bundle", &["=k.tbundle", "--list", "--frozen"], &[]), 5);
}

#[test]
fn operators_in_bundles_take_choices_by_their_sizes() {
    let folder = folder();
    let tuned = ["=gemm", "--sizes", "m=64,n=64,k=64,variant=nn", "--precision", "bf16", "--device", "emu", "--most", "3"];
    right(tessera(folder.path(), "tune", &tuned, &[]));
    as_of_a_product(&folder.path().join("tessera.lock"));
    let bundle = |size: &str| {
        let subject = ["=gemm", "m=64", "n=64", size, "variant=nn", "--precision", "bf16"];
        tessera(folder.path(), "bundle", &subject, &["--frozen", "-o", "ops.tbundle"])
    };
    let packed = bundle("k=64");
    let told = text(&packed.stderr);
    assert!(told.contains("note: gemm.nn for sm_90a: "), "{told}");
    assert!(told.contains("m=64,n=64,k=64 in bf16 for sm_90a: ACROSS=0,"), "{told}");
    right(packed);
    wrong(&bundle("k=256"), 5);
}

/// An entry says everything that was chosen, or is none: the compiler would choose the rest, and nobody measured that.
#[test]
fn an_entry_that_is_not_whole_is_refused_at_its_place() {
    let folder = folder();
    let path = folder.path().join("tessera.lock");
    right(tessera(folder.path(), "tune", &GEMM, &[]));
    let whole = std::fs::read_to_string(&path).expect("a lockfile");
    let config = whole.lines().find(|line| line.starts_with("config = ")).expect("choices");
    let (time, _) =
        whole.lines().find_map(|line| line.split_once(" = ").filter(|(name, _)| name.ends_with("_us"))).expect("a time");
    let without_n = config.split(',').filter(|part| !part.contains("BLOCK_N")).collect::<Vec<_>>().join(",");
    let at = whole.lines().position(|line| line.starts_with("[gemm.")).expect("a table") + 1;
    for (changed, said) in [
        (whole.replace(&format!("{config}\n"), ""), "has no `BLOCK_M` in its `config`".to_string()),
        (whole.replace(config, &without_n), "has no `BLOCK_N` in its `config`".to_string()),
        (
            whole.replace(&format!("{config}\n"), &format!("{config}\nplan = \"\"\"\nplan @gemm {{\n}}\n\"\"\"\n")),
            "the CPU follows none".to_string(),
        ),
        (whole.replace(&format!("{time} = "), &format!("{time} = -")), format!("has a `{time}` that is no time")),
    ] {
        assert_ne!(changed, whole);
        std::fs::write(&path, &changed).expect("written");
        for more in [&["--frozen"][..], &[]] {
            let refused = wrong(&tessera(folder.path(), "run", &GEMM, more), 5);
            assert!(refused.contains(&said) && refused.contains(&format!("tessera.lock:{at}:1")), "{refused}");
        }
    }
    std::fs::write(&path, &whole).expect("written");
    right(tessera(folder.path(), "run", &GEMM, &["--frozen"]));
}

#[test]
fn a_lockfile_that_is_none_is_told_with_its_line() {
    let folder = folder();
    std::fs::write(folder.path().join("tessera.lock"), "# ours\n<<<<<<< HEAD\n").expect("written");
    for command in ["run", "tune", "check", "bench"] {
        let refused = wrong(&tessera(folder.path(), command, &GEMM, &[]), 5);
        assert!(
            refused.contains("a merge was left unfinished here") && refused.contains("tessera.lock:2:1"),
            "{command}: {refused}"
        );
    }
    let missing = wrong(&tessera(folder.path(), "run", &GEMM, &["--lock", "other.lock"]), 4);
    assert!(missing.contains("there is no lockfile `other.lock`") && missing.contains("tessera tune"), "{missing}");
    let both = wrong(&tessera(folder.path(), "run", &GEMM, &["--frozen", "--config", "BLOCK_M=16"]), 5);
    assert!(both.contains("--frozen"), "{both}");
}
