//! What a clean verdict means: kernels that write nothing, a part, NaN or what nothing was written to are told, on the CPU and on the
//! emulator, checked and not; and a program reads all of it as data.

use std::process::Command;

use serde_json::Value;

const KERNELS: &str = "import cuda.tile as ct
import tessera
from tessera import Tensor, tile

@ct.kernel
def copy(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)))

@ct.kernel
def nothing(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.load(x, (i,), (N,))

@ct.kernel
def even(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    if i % 2 == 0:
        ct.store(y, (i,), ct.load(x, (i,), (N,)))

@ct.kernel
def one(x, y, N: ct.Constant[int], FROM: ct.Constant[int]):
    i = ct.bid(0)
    at = ct.arange(N, dtype=ct.int32) + i * N
    ct.scatter(y, at, ct.load(x, (i,), (N,)), mask=at != FROM)

@ct.kernel
def no_numbers(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (N,))
    ct.store(y, (i,), (v - v) / (v - v))

@ct.kernel
def inverse(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), 1.0 / ct.load(x, (i,), (N,)))

@ct.kernel
def double(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) * 2)

@ct.kernel
def farther(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (N,)) + 199)

@ct.kernel
def twice(x, y, STEP: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (STEP,))
    ct.store(y, (i,), v + v)

@ct.kernel
def both(xs, ys, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(ys[0], (i,), ct.load(xs[0], (i,), (N,)))

@tessera.kernel
def sum_and_double(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype], z: Tensor[\"N\", dtype]):
    tile.store(y, tile.load(x) + tile.load(x))
    tile.store(z, tile.load(x) * 3.0)

@tessera.kernel
def sum_alone(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype], z: Tensor[\"N\", dtype]):
    tile.store(y, tile.load(x) + tile.load(x))

@tessera.kernel
def scale(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    tile.store(y, 2.0 * tile.load(x))

@tessera.kernel.autotune(space=dict(BLOCK_SIZE=[64, 128], UNUSED=[1, 2]))
def tuned(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    tile.store(y, 2.0 * tile.load(x))

@ct.kernel
def neighbour(x, y, N: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0) + 1,), (N,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(x, (ct.bid(0),), v)
    ct.store(y, (ct.bid(0),), v)

@ct.kernel
def onto(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(y, (i,), (N,)) + ct.load(x, (i,), (N,)))

@tessera.kernel
def quotient(x: Tensor[\"N\", int32], z: Tensor[\"N\", int32], y: Tensor[\"N\", int32]):
    tile.store(y, tile.load(x) // tile.load(z))

@tessera.kernel
def rest(x: Tensor[\"N\", int32], z: Tensor[\"N\", int32], y: Tensor[\"N\", int32]):
    tile.store(y, tile.load(x) % tile.load(z))

@ct.kernel
def told(x, y, N: ct.Constant[int]):
    i = ct.bid(0)
    ct.printf('block %d\\n', i)
    ct.store(y, (i,), ct.load(x, (i,), (N,)))
";

/// Exit code, standard output and standard error of a command in a folder with `k.py`.
fn tessera(line: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("k.py"), KERNELS).expect("written");
    let arguments: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let output =
        Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(&folder).args(&arguments).output().expect("tessera starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("an exit code"), text(&output.stdout), text(&output.stderr))
}

/// The one object that a command with `--json` prints, and its exit code.
fn data(line: &str) -> (i32, Value) {
    let (code, out, err) = tessera(&format!("{line} --json"));
    let object: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}\n{out}\n{err}"));
    assert_eq!(object["exit"], code, "{line}");
    assert_eq!(object["passed"], code == 0, "{line}");
    (code, object)
}

fn ids(object: &Value) -> Vec<&str> {
    object["findings"].as_array().expect("findings").iter().map(|finding| finding["id"].as_str().expect("an id")).collect()
}

const DEVICES: [&str; 2] = ["cpu", "emu"];

/// Arguments, grid and what is said of them.
const UNWRITTEN: [(&str, &str); 6] = [
    ("k.py::copy x=randn:f32[64] y=empty:f32[64] N=16 --grid 3", "16 of 64 elements of `y` were not written, the first is y[48]"),
    (
        "k.py::nothing x=randn:f32[64] y=empty:f32[64] N=16 --grid 4",
        "`y` was given as `empty`, and the kernel has no store to `y`",
    ),
    ("k.py::even x=randn:f16[64] y=empty:f16[64] N=16 --grid 4", "32 of 64 elements of `y` were not written, the first is y[16]"),
    // Among the values are those of the poisons: 0xa5 and 0x5a.
    (
        "k.py::one x=arange:u8[256] y=empty:u8[256] N=16 FROM=77 --grid 16",
        "1 of 256 elements of `y` were not written, the first is y[77]",
    ),
    (
        "k.py::even x=arange:f4e2m1[64] y=empty:f4e2m1[64] N=16 --grid 4",
        "32 of 64 elements of `y` were not written, the first is y[16]",
    ),
    (
        "k.py::both xs=[ones:f32[64],ones:f32[64]] ys=[empty:f32[64],empty:f32[64]] N=16 --grid 4",
        "no element of `ys[1]` was written, of 64",
    ),
];

#[test]
fn elements_that_no_block_wrote_are_told_on_every_device() {
    for device in DEVICES {
        for (kernel, wanted) in UNWRITTEN {
            let (code, _, err) = tessera(&format!("run {kernel} --device {device}"));
            assert!(code == 0 && err.contains(wanted) && err.contains("warning[unwritten]"), "{device} {kernel}\n{err}");
            let (code, object) = data(&format!("run {kernel} --device {device} --sanitize all"));
            let finding = &object["findings"][0];
            assert_eq!((code, finding["message"].as_str(), finding["class"].as_str()), (2, Some(wanted), Some("wrong")));
            assert!(finding["file"] == "k.py" && finding["line"].is_u64() && finding["column"].is_u64(), "{finding}");
            let (code, object) = data(&format!("check {kernel} --device {device}"));
            assert_eq!((code, ids(&object)), (2, vec!["unwritten"]), "{device} {kernel}\n{object}");
            assert_eq!(object["findings"][0]["message"], wanted);
        }
    }
}

#[test]
fn what_was_written_whole_or_had_contents_is_not_told() {
    for device in DEVICES {
        for kernel in [
            "k.py::copy x=arange:u8[256] y=empty:u8[256] N=16 --grid 16",
            "k.py::copy x=arange:i8[256] y=empty:i8[256] N=16 --grid 16",
            "k.py::copy x=ones:b1[64] y=empty:b1[64] N=16 --grid 4",
            "k.py::copy x=arange:f8e4m3[256] y=empty:f8e4m3[256] N=16 --grid 16",
            "k.py::copy x=arange:f4e2m1[64] y=empty:f4e2m1[64] N=16 --grid 4",
            "k.py::even x=randn:f32[64] y=zeros:f32[64] N=16 --grid 4",
            "k.py::copy x=randn:f32[64] y=zeros:f32[64] N=16 --grid 1",
        ] {
            for how in ["", "--sanitize all"] {
                let (code, _, err) = tessera(&format!("run {kernel} --device {device} {how}"));
                assert_eq!((code, err.as_str()), (0, ""), "{device} {kernel} {how}");
            }
            let (code, _, err) = tessera(&format!("check {kernel} --device {device} --sanitize all"));
            assert_eq!((code, err.as_str()), (0, ""), "{device} {kernel}");
        }
    }
}

#[test]
fn reads_of_arrays_that_hold_nothing_are_told() {
    // Unchecked, or where elements share bytes: by what becomes of results when the arrays hold something else.
    for device in DEVICES {
        let launch = format!("run k.py::copy x=empty:f32[64] y=empty:f32[64] N=16 --grid 4 --device {device}");
        let (code, object) = data(&launch);
        assert_eq!((code, ids(&object)), (0, vec!["unwritten", "depends-on-nothing"]), "{object}");
        let finding = &object["findings"][1];
        assert_eq!(finding["message"], "64 of 64 elements of `y` depend on what was in memory before, the first is y[0]");
        assert_eq!((finding["class"].as_str(), finding["line"].as_u64()), (Some("advice"), Some(6)));
    }
    let (code, object) = data("run k.py::copy x=empty:f4e2m1[64] y=empty:f4e2m1[64] N=16 --grid 4 --sanitize all --device emu");
    assert_eq!((code, ids(&object)), (2, vec!["unwritten", "depends-on-nothing"]), "{object}");
    let kernel = "k.py::copy x=empty:f32[64] y=empty:f32[64] N=16 --grid 4 --sanitize all";
    for (device, id) in [("cpu", "cpu-undetermined"), ("emu", "uninitialized")] {
        for command in ["run", "check"] {
            let (code, object) = data(&format!("{command} {kernel} --device {device}"));
            assert_eq!((code, ids(&object)[0]), (2, id), "{command} {device}\n{object}");
            let finding = &object["findings"][0];
            assert!(finding["file"].as_str().is_some_and(|file| file.ends_with("k.py")), "{finding}");
            assert!(finding["line"] == 7 || finding["line"] == 8, "{finding}");
        }
        // Unchecked, results that depend on the poison differ between the two runs of a check.
        let (code, object) = data(&format!("check {} --device {device}", kernel.replace(" --sanitize all", "")));
        assert!(code == 2 && ids(&object).contains(&"difference"), "{object}");
    }
}

/// Poison that was added to is poison all the same: nobody says of such elements that they were not written.
#[test]
fn what_is_made_of_itself_is_not_called_unwritten() {
    for command in ["run", "check"] {
        let (_, _, err) = tessera(&format!("{command} k.py::onto x=ones:f32[64] y=empty:f32[64] N=16 --grid 4 --device cpu"));
        assert!(
            err.contains(
                "64 of 64 elements of `y` show what was in memory before, the first is y[0]: they were not written, or made of it"
            ),
            "{err}"
        );
    }
}

#[test]
fn what_lies_behind_the_end_of_an_array_divides_nothing() {
    for kernel in ["quotient", "rest"] {
        for device in DEVICES {
            for sanitize in ["", "--sanitize all"] {
                let launch = format!(
                    "run k.py::{kernel} x=arange:i32[100] z=const(3):i32[100] y=empty:i32[100] --device {device} {sanitize}"
                );
                let (code, object) = data(&launch);
                assert_eq!((code, ids(&object)), (0, vec![]), "{launch}: {object}");
            }
            // Unchecked, a division by zero gives the same value everywhere.
            let launch = format!("run k.py::{kernel} x=arange:i32[100] z=zeros:i32[100] y=empty:i32[100] --device {device}");
            let (code, out, err) = tessera(&launch);
            assert_eq!(code, 0, "{err}");
            assert!(out.contains("[-1, -1, -1, -1, -1, -1"), "{out}");
        }
        let launch =
            format!("run k.py::{kernel} x=arange:i32[100] z=zeros:i32[100] y=empty:i32[100] --device cpu --sanitize all");
        let (code, object) = data(&launch);
        assert_eq!((code, ids(&object)), (2, vec!["cpu-division"]), "{object}");
    }
}

#[test]
fn what_is_no_number_is_right_only_where_the_inputs_make_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        let numbers: Vec<u8> = text.split(' ').flat_map(|word| word.parse::<f32>().expect("a number").to_le_bytes()).collect();
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", numbers.len() / 4);
        let header = format!("{header:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00v\x00".to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(numbers);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let (odd, inverse) = (file("odd.npy", "1 nan inf 2"), file("inverse.npy", "1 nan 0 0.5"));
    let (zero, infinite) = (file("zero.npy", "1 0 4 2"), file("infinite.npy", "1 inf 0.25 0.5"));
    for (arguments, wanted) in [
        ("k.py::no_numbers x=randn:f32[4] y=empty:f32[4] N=4".to_string(), vec!["not-finite"]),
        (format!("k.py::no_numbers x=@{odd} y=empty:f32[4] N=4"), vec!["not-finite"]),
        (format!("k.py::inverse x=@{odd} y=empty:f32[4] N=4"), vec![]),
        (format!("k.py::inverse x=@{odd} y=empty:f32[4] N=4 --against {inverse}"), vec![]),
        (format!("k.py::inverse x=@{zero} y=empty:f32[4] N=4"), vec!["not-finite"]),
        (format!("k.py::inverse x=@{zero} y=empty:f32[4] N=4 --against {infinite}"), vec![]),
        (format!("k.py::inverse x=@{zero} y=empty:f32[4] N=4 --against {inverse}"), vec!["difference"]),
        (format!("k.py::inverse x=@{zero} y=empty:f32[4] N=4 --against emu"), vec!["not-finite"]),
    ] {
        let (code, object) = data(&format!("check {arguments} --grid 1 --device cpu"));
        assert_eq!((code, ids(&object)), (if wanted.is_empty() { 0 } else { 2 }, wanted), "{arguments}\n{object}");
    }
    let (code, object) =
        data(&format!("check k.py::inverse x=@{odd} y=empty:f32[4] N=4 --grid 1 --device cpu --against x={odd}"));
    assert!(
        code == 5 && object["error"].as_str().is_some_and(|why| why.contains("the kernel writes y, and not `x`")),
        "{object}"
    );
    let (_, object) = data(&format!("check k.py::no_numbers x=@{odd} y=empty:f32[4] N=4 --grid 1 --device cpu"));
    let message = object["findings"][0]["message"].as_str().expect("a message");
    assert!(message.starts_with("4 of 4 elements of `y` are infinite or no numbers"), "{message}");
}

/// What was not compared is never called equal: a kernel is a reference for what it writes, and of an array by name.
#[test]
fn arrays_that_one_kernel_writes_alone_are_not_called_equal() {
    let launch = "x=ones:f32[100] y=empty:f32[100] z=zeros:f32[100] --device cpu --against";
    for (kernel, other, writer, idle) in [
        ("sum_and_double", "sum_alone", "sum_and_double", "k.py::sum_alone"),
        ("sum_alone", "sum_and_double", "k.py::sum_and_double", "sum_alone"),
    ] {
        let (code, _, err) = tessera(&format!("check k.py::{kernel} {launch} k.py::{other}"));
        let said = format!("`--against k.py::{other}` is no reference for `z`: `{writer}` writes it, and `{idle}` does not");
        assert!(code == 5 && err.contains(&said) && err.contains(&format!("`--against y=k.py::{other}`")), "{err}");
        let (code, out, err) = tessera(&format!("check k.py::{kernel} {launch} y=k.py::{other}"));
        assert!(code == 0 && !out.contains("z as by"), "{out}{err}");
        let (code, _, err) = tessera(&format!("check k.py::{kernel} {launch} z=k.py::{other}"));
        assert!(code == 5 && err.contains(&format!("`{idle}` writes y, and not `z`")), "{err}");
    }
    let (_, out, _) = tessera(&format!("check k.py::sum_and_double {launch} y=k.py::sum_alone"));
    assert!(out.contains("sum_and_double: y, z as in an unoptimised run; y as by y=k.py::sum_alone\n"), "{out}");
    let (_, out, _) = tessera(&format!("check k.py::sum_and_double {launch} cpu --against k.py::sum_and_double"));
    assert!(out.contains("y, z as in an unoptimised run and as by cpu, k.py::sum_and_double\n"), "{out}");
    let (code, _, err) = tessera(&format!("bench k.py::sum_and_double {launch} k.py::sum_alone"));
    assert!(code == 5 && err.contains("`k.py::sum_alone` does not write `z`; `--against NAME=k.py::sum_alone`"), "{err}");
    let (code, out, err) = tessera(&format!("bench k.py::sum_and_double {launch} y=k.py::sum_alone"));
    assert!(code == 0 || code == 3, "{out}{err}");
}

/// Integers of 64 bits, of which an `f64` holds the first 53: what differs by less than it can tell differs all the same.
#[test]
fn integers_are_compared_and_shown_with_all_their_digits() {
    let launch = "x=const(4611686018427387904):i64[64] y=empty:i64[64] N=16 --grid 4 --device cpu";
    let (code, object) = data(&format!("check k.py::farther {launch} --against k.py::copy"));
    assert_eq!((code, ids(&object)), (2, vec!["difference"]), "{object}");
    let worst = &object["compared"][1]["worst"];
    assert_eq!((&worst["got"], &worst["want"]), (&"4611686018427388103".into(), &"4611686018427387904".into()), "{object}");
    let (code, _) = data(&format!("check k.py::farther {launch} --against k.py::copy --atol 199"));
    assert_eq!(code, 0);
    let (code, out, err) = tessera(&format!("run k.py::farther {launch}"));
    assert!(code == 0 && out.contains("= [4611686018427388103, "), "{out}{err}");
    let (_, out, err) = tessera(&format!("bench k.py::farther {launch} --against k.py::copy"));
    assert!(format!("{out}{err}").contains("got 4611686018427388103, want 4611686018427387904"), "{out}{err}");
}

#[test]
fn a_kernel_is_compared_with_another_and_within_what_is_allowed() {
    let launch = "x=randn:f32[64] y=empty:f32[64] N=16 --grid 4 --device cpu";
    let check = |rest: &str| data(&format!("check k.py::double {launch} {rest}"));
    assert_eq!(check("--against cpu --against emu").0, 0);
    assert_eq!(check("--against k.py::twice STEP=32 --against-grid 2").0, 0);
    let (code, object) = check("--against k.py::copy");
    assert_eq!((code, ids(&object)), (2, vec!["difference"]), "{object}");
    assert_eq!(object["compared"][1]["failed"], 64);
    assert_eq!(check("--against k.py::copy --rtol 1.01").0, 0);
    assert_eq!(check("--against k.py::copy --atol 100").0, 0);
    assert_eq!(check("--against k.py::copy --rtol 0.5").0, 2);
    // Small numbers are no excuse: what is allowed follows the array.
    let tiny = "check k.py::copy x=const(1e-6):f32[64] y=empty:f32[64] N=16 --grid 4 --device cpu --against k.py::double";
    assert_eq!(data(tiny).0, 2);
}

/// The headline of a checked run counts what is told below it, whether that fails or not.
#[test]
fn a_headline_counts_every_finding() {
    let run = "run k.py::neighbour x=ones:f32[64] y=empty:f32[64] N=16 --grid 4 --device emu --sanitize all";
    for (rest, expected) in [("--keep-going", 2), ("--fail-on none", 0)] {
        let (code, out, err) = tessera(&format!("{run} {rest}"));
        assert_eq!(code, expected, "{out}{err}");
        assert!(out.contains(", checked: ") && !out.contains("nothing found"), "{out}{err}");
    }
}

#[test]
fn a_file_is_named_once() {
    let (code, _, err) = tessera("check k.py::copy x=ones:f32[64] y=empty:f32[64] N=16 --grid 4 --against nofile.npy");
    assert!(code == 4 && err.matches("nofile.npy").count() == 1, "{err}");
    let (code, _, err) = tessera("run k.py::copy x=ones:f32[64] y=empty:f32[64] N=16 --grid 4 --path nowhere");
    assert!(code == 4 && err.contains("`--path nowhere`: there is no such folder"), "{err}");
}

#[test]
fn operators_take_extents_of_nought() {
    for sizes in
        ["gemm --sizes m=0", "gemm --sizes k=0", "softmax --sizes keys=0", "rms_norm --sizes hidden=0", "attention --sizes dim=0"]
    {
        for device in DEVICES {
            let (code, object) = data(&format!("check {sizes} --precision bf16 --device {device}"));
            assert_eq!((code, object["wrong"].as_u64()), (0, Some(0)), "{sizes} on {device}: {object}");
            assert!(object["right"].as_u64() > Some(0), "{sizes} on {device}: {object}");
        }
    }
}

#[test]
fn options_and_arguments_without_effect_are_refused() {
    let launch = "x=randn:f32[64] y=empty:f32[64] N=16 --grid 4";
    let whole = "x=randn:f32[64] y=empty:f32[64] --device cpu";
    for (line, wanted) in [
        (format!("check k.py::copy {launch} --precision fp32"), "`--precision` is for operators"),
        (format!("check k.py::copy {launch} --sizes m=4"), "`--sizes` is for operators"),
        (format!("check k.py::copy {launch} --cases 4"), "`--cases` is for operators"),
        (format!("check k.py::copy {launch} --rungs"), "`--rungs` is for operators"),
        (format!("check k.py::copy {launch} --table"), "`--table` is for operators"),
        (format!("check k.py::copy {launch} --against k.py::even"), "it leaves 32 of 64 elements of `y` unwritten"),
        (format!("run k.py::scale {whole} --config BLOCK_M=16,BLOCK_M=32"), "that choice is made twice"),
        ("run k.py::scale x=randn:f32[64];seed=1;seed=2 y=empty:f32[64]".to_string(), "the seed is given twice"),
        ("compile k.py::copy x=f32[?];align=16;align=8 y=f32[?] N=16".to_string(), "`align` is given twice"),
        ("check gemm --sizes m=4,variant=nt,variant=tn".to_string(), "`variant` is given twice"),
        ("check gemm --sizes m=1..8000".to_string(), "take larger steps: `1..8000*2` or `1..8000+499`"),
        (format!("check k.py::copy {launch} --against-grid 4"), "`--against-grid` is for a kernel"),
        (format!("check k.py::copy {launch} --against nothing"), "names nothing to compare with"),
        (format!("check k.py::copy {launch} --rtol=-1"), "a tolerance is a number from 0 on"),
        (format!("check k.py::copy {launch} M=4"), "has no parameter `M`"),
        ("check gemm --grid 4".to_string(), "operators have a grid of their own"),
        ("check gemm --against cpu".to_string(), "operators are compared with their f64 references"),
        ("check gemm --sizes m=4 --cases 3".to_string(), "`--cases` draws sizes at random"),
        ("check softmax --sizes queries=9,keys=5,variant=causal".to_string(), "its variants are the plain one"),
        ("bench softmax --sizes queries=9,keys=5,variant=causal".to_string(), "its variants are the plain one"),
        ("check gemm --sizes m=0..8*2".to_string(), "0 times a factor stays 0"),
        ("check gemm --sizes m=1..8+0".to_string(), "the step of a range is 1 at least"),
        ("check gemm --sizes m=1..8*1".to_string(), "the factor of a range is 2 at least"),
        ("bench gemm --sizes m=0".to_string(), "an extent of 0 takes no time"),
        ("bench gemm --sizes beta=1.5".to_string(), "each would multiply what the last one left"),
        ("check softmax --sizes alpha=0.5".to_string(), "`alpha` is no number of softmax"),
        ("check gemm --sizes alpha=much".to_string(), "`alpha` is a number, such as 0.5"),
        ("check gemm --sizes alpha=1,m=4,alpha=2".to_string(), "`alpha` is given twice"),
        ("check gemm --sizes m=4,alpha=0.5 --precision int8".to_string(), "the arrays hold integers, so it is one"),
        ("bench gemm --sizes variant=xy".to_string(), "its variants are `nn`, `nt`, `tn`, `tt`"),
        ("bench softmax --precision int8".to_string(), "none of the chosen operators takes `int8`"),
        ("bench gemm --sizes m=4,m=5".to_string(), "`m` is given twice"),
        (format!("run k.py::copy {launch} --save x=a.npy --save y=a.npy"), "the file is written twice"),
        ("compare a.jsonl b.jsonl --sure 0.9".to_string(), "--run"),
        ("compare a.jsonl b.jsonl --least 5%".to_string(), "--run"),
        ("compare a.jsonl b.jsonl -O 1".to_string(), "--run"),
        ("bench gemm softmax gemm".to_string(), "`gemm` is given twice"),
        ("check softmax --precision fp32,fp16,fp32".to_string(), "`fp32` is given twice"),
        ("check quick --cases 3".to_string(), "a suite says which cases it has"),
        ("check softmax seed --cases 3".to_string(), "a suite says which cases it has"),
        ("bench quick seed".to_string(), "the suite `seed` and another suite are both given"),
        ("bench quick --sizes seed".to_string(), "the suite `quick` and `--sizes seed` are both given"),
        ("bench gemm --device cpu --timing warm".to_string(), "launches are timed in several ways on a CUDA device alone"),
        ("bench gemm --device cpu --baseline a=b".to_string(), "baseline processes work on a CUDA device alone"),
        ("bench gemm --device emu --baseline a=b".to_string(), "baseline processes work on a CUDA device alone"),
        ("bench gemm --device cpu --cublaslt a.so".to_string(), "cublasLt works on a CUDA device alone"),
        ("bench gemm --device cpu --sanitize all".to_string(), "times of checked runs say nothing"),
        ("bench gemm --device emu --timed 3".to_string(), "the emulator checks and times nothing"),
        ("bench gemm --device cpu --ways 3".to_string(), "on the CPU a problem is cut into blocks in one way alone"),
        ("bench gemm --device cpu --config BLOCK_M=4".to_string(), "operators of the library choose their own tiles"),
        ("check gemm --config BLOCK_M=4".to_string(), "operators of the library choose their own tiles"),
        ("check gemm --device emu --trace 0,0".to_string(), "a case launches its kernels several times"),
        (format!("run k.py::copy {launch} --device cpu --config BLOCK_M=64"), "it has no choice `BLOCK_M`"),
        (format!("run k.py::copy {launch} --device cpu --block 64"), "it has no threads to count"),
        (format!("check k.py::copy {launch} --device cpu --config FOO=64"), "it has no choice `FOO`"),
        ("compile k.py::copy x=f32[?] y=f32[?] N=16 --config FOO=64".to_string(), "it has no choice `FOO`"),
        ("compile k.py::copy x=f32[?] y=f32[?] N=16 --config sharing=9".to_string(), "`sharing` must be an integer from 0 to 4"),
        ("compile k.py::copy x=f32[?] y=f32[?] N=16 --config num_ctas=3".to_string(), "`num_ctas` must be a power of two, not 3"),
        (format!("run k.py::scale {whole} --config FOO=64"), "there is no choice `FOO`"),
        (format!("run k.py::scale {whole} --config BLOCK_K=64"), "`BLOCK_K` changes nothing in `scale`"),
        (format!("run k.py::scale {whole} --block 64"), "it has no threads to count"),
        (format!("run k.py::tuned {whole} --config UNUSED=2"), "`UNUSED` changes nothing in `tuned`"),
        (format!("run k.py::copy {launch} --device cpu --seed 4"), "`--seed` fixes the emulator's random schedule"),
        (format!("check k.py::copy {launch} --device emu --seed 4"), "`--seed` fixes the emulator's random schedule"),
        (format!("run k.py::copy {launch} --device emu --trace 9,0"), "there is no such warp"),
        (format!("check k.py::copy {launch} --device emu --trace 0,9"), "there is no such warp"),
        (format!("run k.py::copy {launch} --device emu --sms 0"), "invalid value '0'"),
        (format!("run k.py::copy {launch} --device cpu --sanitize barrier"), "`barrier` is not a check of the CPU"),
        (format!("run k.py::copy {launch} --device cpu --sms 4"), "`--sms` is for the emulator"),
        ("run k.py::copy x=arange:f32[64];seed=4 y=empty:f32[64] N=16 --grid 4".to_string(), "a seed is for random elements"),
        (
            "check k.py::nothing x=randn:f32[64] y=zeros:f32[64] N=16 --grid 4".to_string(),
            "writes no array, so there is nothing to check",
        ),
    ] {
        let (code, object) = data(&line);
        let message = object["findings"][0].to_string();
        assert!(code == 5 && message.contains(wanted), "{line}\n{object}");
        let (code, out, err) = tessera(&line);
        assert!(code == 5 && !out.contains("error") && err.contains(wanted), "{line}\n{err}");
    }
}

/// Numbers of a problem are part of its case: on the CPU, on the emulator, and where launches are timed one after another.
#[test]
fn products_are_added_to_what_there_was() {
    let sizes = "batch=1,m=65,n=70,k=40,variant=nt,beta=0.25,0,alpha=0.5";
    for (line, wanted) in [
        (format!("check gemm --sizes {sizes} --precision fp32,bf16->bf16,fp8_e4m3@accum(fp32) --device cpu"), "6 cases right"),
        (format!("check gemm --sizes {sizes} --precision bf16 --device emu"), "2 cases right"),
        ("check gemm --sizes batch=3,m=65,n=70,k=40,alpha=3,beta=-2 --precision int8,fp64 --device cpu".into(), "8 cases right"),
        ("check gemm --sizes batch=1,m=65,n=70,k=40,alpha=1,beta=0 --precision fp32 --device cpu".into(), "4 cases right"),
        (format!("bench gemm --sizes {sizes} --precision fp32 --device cpu --time-limit 20"), "gemm nt alpha=0.5 beta=0.25"),
    ] {
        let (code, out, err) = tessera(&line);
        assert!(code == 0 && out.contains(wanted), "{line}\n{out}{err}");
    }
}

/// Where a command fails, a program still reads data, and people read the rest elsewhere.
#[test]
fn other_ways_are_checked_on_the_emulator_and_who_has_none_is_told() {
    let sizes = "batch=1,m=64,n=64,k=64,variant=nt";
    let (code, table, notes) = tessera(&format!("bench gemm --sizes {sizes} --precision bf16,fp32@3xbf16 --device emu --ways 2"));
    assert_eq!(code, 0, "{notes}");
    assert!(table.contains("4 checked") && table.matches("ACROSS=").count() == 2, "{table}");
    assert!(notes.starts_with("note: `gemm` in fp32@3xbf16 is cut into blocks in one way alone\n"), "{notes}");
}

#[test]
fn data_is_all_that_stands_on_standard_output() {
    let launch = "x=randn:f32[64] y=empty:f32[64] N=16 --grid 4";
    for (line, wanted, id) in [
        (format!("run k.py::told {launch} --device cpu"), 0, ""),
        (format!("run k.py::told {launch} --device emu"), 0, ""),
        (format!("check k.py::told {launch} --device emu"), 0, ""),
        (format!("run k.py::none {launch}"), 5, "no-such-kernel"),
        (format!("run k.py::copy {launch} N=3"), 5, "usage"),
        ("run k.py::copy x=randn:f99[64]".to_string(), 5, "argument"),
        ("run missing.py::copy".to_string(), 4, "environment"),
        ("run k.py::copy --nothing".to_string(), 5, "usage"),
        ("check k.py::copy x=randn:f32[64] N=16 --grid 4".to_string(), 5, "missing-argument"),
        ("check nothing".to_string(), 5, "usage"),
        ("bench nothing".to_string(), 5, "usage"),
        ("compare a.jsonl b.jsonl".to_string(), 4, "environment"),
        ("compile k.py::none".to_string(), 5, "no-such-kernel"),
        ("emu missing.ptx --grid 1 --block 1".to_string(), 4, "environment"),
        ("list nothing".to_string(), 5, "usage"),
    ] {
        let (code, object) = data(&line);
        assert_eq!((code, ids(&object).first().copied().unwrap_or_default()), (wanted, id), "{line}\n{object}");
        if line.contains("told") {
            let printed = object["printed"].as_str().expect("what the kernel printed");
            assert!(printed.contains("block 0\n") && printed.contains("block 3\n"), "{line}\n{object}");
            let (_, out, err) = tessera(&format!("{line} --json"));
            assert!(!out.starts_with("block") && err.contains("block 0\n"), "{line}\n{err}");
        }
    }
    let (code, object) = data("emu k.py --grid 1 --block 1");
    let place = (object["findings"][0]["line"].as_u64(), object["findings"][0]["column"].as_u64());
    assert_eq!((code, place), (5, (Some(1), Some(1))), "{object}");
    let (_, object) = data("bench --mode fast");
    assert_eq!(
        object["error"],
        "invalid value 'fast' for '--mode <MODE>' [possible values: quick, ci, publish, inference, training]"
    );
    let (code, object) = data("compile k.py::copy x=f32[?] y=f32[?] N=16 --emit ptx --target sm_90a");
    assert!(code == 0 && object["text"].as_str().is_some_and(|text| text.contains(".visible .entry copy")), "{object}");
    let (code, object) = data("compile k.py::copy x=f32[?] y=f32[?] N=15");
    assert_eq!((code, ids(&object), &object["findings"][0]["line"]), (5, vec!["not-power-of-two"], &8.into()), "{object}");
    let (code, object) = data("run k.py::copy x=randn:f32[64] y=empty:f32[64] N=15 --grid 4 --device cpu");
    let finding = &object["findings"][0];
    assert_eq!((code, finding["id"].as_str(), finding["class"].as_str()), (5, Some("not-power-of-two"), Some("error")));
    assert_eq!((finding["file"].as_str(), finding["line"].as_u64()), (Some("k.py"), Some(8)));
}

#[test]
fn random_sizes_of_operators_are_checked_and_counted() {
    let (code, object) = data("check softmax vector bandwidth rms_norm --cases 12 --seed 5 --device cpu");
    let cases = object["cases"].as_array().expect("cases");
    assert_eq!((code, cases.len(), &object["wrong"]), (0, 48, &0.into()), "{object}");
    assert!(cases.iter().all(|case| case["right"] == true), "{object}");
    // Gradients are counted, too: of softmax and rms_norm, in one trial each, or left out since their problems are large.
    let count = |name: &str| object[name].as_u64().expect("a count");
    assert!(count("right") > 48 && count("right") + count("left_out") == 48 + 24, "{object}");
    let (_, text, notes) = tessera("check layer_norm --precision fp32 --sizes batch=1,sequence=64,hidden=4096 --device cpu");
    assert!(text.contains("layer_norm (gradient) f64: 0 right, 0 wrong, 1 left out"), "{text}");
    assert!(notes.contains("532480 elements, of which 262144 at most are looked at"), "{notes}");
    let cases = |seed: u32| {
        let (_, object) = data(&format!("check vector --cases 6 --seed {seed} --device cpu"));
        object["cases"].as_array().expect("cases").iter().map(|case| case["case"].to_string()).collect::<Vec<_>>()
    };
    assert!(cases(1) == cases(1) && cases(1) != cases(2));
}
