//! Elements reached by pointers: neighbours move in vectors of 16 bytes where pointers and masks allow it, and only there.
//!
//! Each kernel states how many vector accesses its text has for `sm_90a`, and gives in lock-step and on the emulator (which reports addresses
//! that are not aligned, and accesses outside of an array) what the CPU executor gives.

use tessera_compile::{CompileOptions, Compiled, compile};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{ARCHS, Data, Launch, assembled, in_lockstep, lowered, on_cpu, run, same};

fn compiled(body: &str, dtype: DType, rank: usize) -> Compiled {
    let source = format!("import cuda.tile as ct\nimport math\n\n@ct.kernel\ndef kernel(x, out):\n{body}");
    let file = parse_file("kernel.py", &source);
    let args = ["x", "out"].map(|name| (name.to_string(), ArgType::array(dtype, rank)));
    compile(&file, "kernel", &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}\n{source}", found[0].render(&file.sources, false)))
}

/// Vector loads and stores of global memory in a kernel's text.
fn vectors(text: &str) -> (usize, usize) {
    let count = |start: &str| text.lines().filter(|line| line.contains(start) && line.contains(".v4.b32")).count();
    (count("ld.global"), count("st.global"))
}

/// A body of a kernel, its arrays' type and sizes, its grid, and the vector accesses it shall have.
fn agrees(body: &str, dtype: DType, sizes: &[i64], blocks: u32, expected: (usize, usize)) {
    let compiled = compiled(body, dtype, sizes.len());
    let launch = Launch { compiled: &compiled, grid: [blocks, 1, 1] };
    let data = || [Data::floats(dtype, sizes, 3), Data::zeros(dtype, sizes)];
    let mut cpu = data();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}\n{body}"));
    for arch in ARCHS {
        let mut stepped = data();
        in_lockstep(&launch, arch, &mut stepped).unwrap_or_else(|error| panic!("{error}\n{body}"));
        same(&cpu[1], &stepped[1], 1e-5).unwrap_or_else(|error| panic!("lock-step: {error}\n{body}"));
    }
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{body}"));
    assert_eq!(vectors(&kernel.ptx()), expected, "{body}\n{}", kernel.ptx());
    let mut emulated = data();
    run(&kernel, launch.grid, &mut emulated).unwrap_or_else(|error| panic!("{error}\n{body}"));
    same(&cpu[1], &emulated[1], 1e-5).unwrap_or_else(|error| panic!("{error}\n{body}"));
    assembled(&kernel);
}

#[test]
fn rows_move_in_vectors() {
    // The line length divides into vectors, so that its end does not lie within one.
    let row = "    o = ct.arange(512, dtype=ct.int32)\n    for row in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):\n        a = ct.gather(x, (row, o), check_bounds=True, padding_value=-math.inf)\n        ct.scatter(out, (row, o), a - ct.max(a, 0, keepdims=True), check_bounds=True)\n";
    agrees(row, DType::F32, &[5, 492], 2, (1, 1));
    agrees(row, DType::F16, &[5, 488], 2, (1, 1));
    let pieces = "    o = ct.arange(1024, dtype=ct.int32)\n    for j in range(ct.cdiv(x.shape[1], 1024)):\n        at = j * 1024 + o\n        a = ct.gather(x, (ct.bid(0), at))\n        ct.scatter(out, (ct.bid(0), at), a * 2)\n";
    agrees(pieces, DType::BF16, &[3, 2200], 4, (1, 1));
}

#[test]
fn tiles_move_along_their_contiguous_axis() {
    let rows = "    i = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)[:, None]\n    j = ct.arange(64, dtype=ct.int32)[None, :]\n    ct.scatter(out, (i, j), ct.gather(x, (i, j)) + 1)\n";
    agrees(rows, DType::F32, &[40, 60], 3, (2, 2));
    let columns = "    i = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)[None, :]\n    j = ct.arange(64, dtype=ct.int32)[:, None]\n    ct.scatter(out, (i, j), ct.gather(x, (i, j)) + 1)\n";
    agrees(columns, DType::F32, &[40, 60], 3, (2, 2));
}

#[test]
fn what_is_carried_keeps_its_neighbours() {
    let carried = "    at = ct.bid(0) * 2304 + ct.arange(512, dtype=ct.int32)\n    for _ in range(4):\n        ct.scatter(out, at, ct.gather(x, at) * 3)\n        at = at + 512\n";
    agrees(carried, DType::F32, &[4400], 2, (1, 1));
    // By 514 elements a vector would start between two.
    let odd = carried.replace("at + 512", "at + 514");
    agrees(&odd, DType::F32, &[4400], 2, (0, 0));
}

#[test]
fn what_is_not_known_moves_one_by_one() {
    let shifted =
        "    at = ct.bid(0) * 256 + ct.arange(256, dtype=ct.int32) + 1\n    ct.scatter(out, at, ct.gather(x, at) + 1)\n";
    agrees(shifted, DType::F32, &[500], 2, (0, 0));
    let backwards = "    at = 255 - ct.arange(256, dtype=ct.int32)\n    ct.scatter(out, at, ct.gather(x, at) + 1)\n";
    agrees(backwards, DType::F32, &[256], 1, (0, 0));
    let stepped = "    at = ct.arange(128, dtype=ct.int32) * 2\n    ct.scatter(out, at, ct.gather(x, at) + 1)\n";
    agrees(stepped, DType::F32, &[256], 1, (0, 0));
    // The mask ends within a vector of what is loaded, and is loaded itself.
    let masked = "    at = ct.arange(256, dtype=ct.int32)\n    a = ct.gather(x, at, mask=at < 130)\n    ct.scatter(out, at, a + 1, mask=a > 0)\n";
    agrees(masked, DType::F32, &[256], 1, (0, 0));
}
