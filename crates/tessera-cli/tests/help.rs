//! Every example under `--help` is run, in a folder with the files that it names; what a shell would do with it (quotes, `>`) is done here.
//!
//! Without a GPU an example for one runs on the CPU; programs that are compared are this one; long counts are cut.

use std::path::Path;
use std::process::Command;

const TESSERA: &str = env!("CARGO_BIN_EXE_tessera");

const KERNELS: &str = "import cuda.tile as ct

@ct.kernel
def softmax(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))

@ct.kernel
def add(a, b, c, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, (i,), ct.load(a, (i,), (TILE,)) + ct.load(b, (i,), (TILE,)))
";

const GEMM: &str = "import tessera
from tessera import Tensor, fp32, tile

@tessera.kernel.autotune(space=dict(BLOCK_M=[64, 128], BLOCK_N=[64], BLOCK_K=[32]), key=[\"M\"])
def gemm(a: Tensor[\"M\", \"K\", dtype], b: Tensor[\"K\", \"N\", dtype], c: Tensor[\"M\", \"N\", dtype]):
    tile.store(c, tile.mma(tile.load(a), tile.load(b), accum=fp32))
";

const PTX: &str = ".version 8.0
.target sm_90a
.address_size 64
.global .f32 scale = 0f3F800000;
.visible .entry add(.param .u64 out, .param .u64 x, .param .u32 n) { ret; }
.visible .entry fill(.param .u64 x)
{
    .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .f32 %f<2>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %d0, [x];
    mad.wide.u32 %d0, %r0, 4, %d0;
    ld.global.f32 %f0, [scale];
    st.global.f32 [%d0], %f0;
    ret;
}
.visible .entry sum(.param .u64 x, .param .u64 y) { ret; }
";

const PTX_OF_A_MAP: &str = ".version 8.0
.target sm_90a
.address_size 64
.visible .entry gemm(.param .align 64 .b8 map[128], .param .u32 n) { ret; }
";

/// The examples under a command's `--help`, with the command's name.
fn examples() -> Vec<(String, String)> {
    let help = |words: &[&str]| {
        let output = Command::new(TESSERA).args(words).arg("--help").output().expect("tessera starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let top = help(&[]);
    let commands = top.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<String> = commands.filter_map(|line| line.split_whitespace().next()).map(str::to_string).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| name != "help") {
        let text = help(&[&name]);
        let lines = text.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let own: Vec<_> =
            lines.map_while(|line| line.strip_prefix("  tessera ")).map(|line| (name.clone(), line.to_string())).collect();
        assert!(!own.is_empty(), "`tessera {name} --help` has no example");
        found.extend(own);
    }
    found
}

/// The words of a line as a shell reads them, and the file that the output goes to.
fn words(line: &str) -> (Vec<String>, Option<String>) {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("a word").push(c),
        }
    }
    let to = words.iter().position(|word| word == ">").map(|at| words.split_off(at).pop().expect("a file"));
    (words, to)
}

/// A folder with the files that the examples name.
fn prepare(folder: &Path) {
    for (name, text) in
        [("kernels.py", KERNELS), ("softmax.py", KERNELS), ("old.py", KERNELS), ("new.py", KERNELS), ("gemm.py", GEMM)]
    {
        std::fs::write(folder.join(name), text).expect("written");
    }
    std::fs::write(folder.join("gemm.ptx"), PTX_OF_A_MAP).expect("written");
    for name in ["kernel.ptx", "two.ptx"] {
        std::fs::write(folder.join(name), PTX).expect("written");
    }
    for name in ["tessera-before", "tessera-after"] {
        std::os::unix::fs::symlink(TESSERA, folder.join(name)).expect("a link");
    }
    let make = |line: &str| {
        let output = Command::new(TESSERA).current_dir(folder).args(line.split(' ')).output().expect("tessera starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let add = "run kernels.py::add a=randn:f32[1000] b=randn:f32[1000] c=empty:f32[1000] TILE=256 --grid 4 --device cpu";
    make(&format!("{add} --save c=c.npy"));
    make("run kernels.py::softmax x=randn:f32[128,1000] y=empty:f32[128,1000] N=1024 --grid 128 --device cpu --save x=x.npy");
    make("compile kernels.py::softmax x=f32[?,?] y=f32[?,?] N=1024 --emit schedule -o softmax.tir");
    make("compile kernels.py::softmax x=f32[?,?] y=f32[?,?] N=1024 --emit tile --target sm_90a -o kernel.tir");
    for name in ["base.jsonl", "new.jsonl", "results.jsonl"] {
        make(&format!("bench vector --precision fp32 --sizes n=1000 --device cpu --out {name}"));
    }
}

#[test]
fn every_example_of_the_help_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    prepare(folder.path());
    for (name, line) in examples() {
        let (mut arguments, to) = words(&line);
        for word in &mut arguments {
            // Paths of a system are not ours to write to; there is no GPU here, and time is short.
            *word = word.replace("/usr/share/", "share-").replace("cuda", "cpu");
            if word == "500" {
                *word = "5".to_string();
            }
            if name == "bench" {
                *word = word.replace("=1024", "=128");
            }
        }
        if name == "bench" && arguments.len() == 1 {
            // The quick suite has a test of its own.
            arguments.extend("vector --precision fp32 --sizes n=1000 --device cpu".split(' ').map(str::to_string));
        }
        if name == "tune" && !arguments.iter().any(|word| word == "--predict") {
            for word in &mut arguments {
                *word = word.replace("4096", "64").replace("1024", "64").replace("cpu", "emu");
            }
            arguments.extend(["--most", "2"].map(str::to_string));
            if !arguments.iter().any(|word| word == "--device") {
                arguments.extend(["--device", "emu"].map(str::to_string));
            }
        }
        if arguments.iter().any(|word| word == "--run") {
            arguments.extend(["--time-limit", "2"].map(str::to_string));
        }
        let output = Command::new(TESSERA).current_dir(folder.path()).args(&arguments).output().expect("tessera starts");
        // 1 is a difference that a comparison found, 3 that it was too short for one: verdicts, and not what is tested here.
        let verdicts: &[i32] = if name == "compare" { &[0, 1, 3] } else { &[0] };
        assert!(
            output.status.code().is_some_and(|code| verdicts.contains(&code)),
            "`tessera {}`: {:?}\n{}{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(to.is_none() || !output.stdout.is_empty(), "`tessera {line}` prints nothing");
    }
}
