//! What a kernel prints, memory of its block and constants of its module: on the emulator as on the CPU executor.

use std::sync::Mutex;

use tessera_compile::{CompileOptions, Compiled, compile, compile_module};
use tessera_cpu::RunOptions;
use tessera_emu::{LaunchOptions, Sanitize};
use tessera_ir::text::parse_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{ARCHS, Data, Launch, assembled, in_lockstep, lowered, on_cpu_with, printed_with, same};

/// Runs a kernel on the CPU and on the emulator; what it prints, and its arrays, are equal.
fn agrees(compiled: &Compiled, grid: [u32; 3], data: &[Data]) -> String {
    let launch = Launch { compiled, grid };
    let output = Mutex::new(String::new());
    let options = RunOptions { output: Some(&output), threads: Some(1), ..RunOptions::default() };
    let mut cpu = data.to_vec();
    on_cpu_with(&options, &launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    let printed = output.into_inner().unwrap();
    for arch in [Arch::Sm80, Arch::Sm90a, Arch::Sm100a] {
        let kernel = lowered(compiled, arch).unwrap_or_else(|error| panic!("{arch}: {error}"));
        let mut emulated = data.to_vec();
        let options = LaunchOptions { sanitize: Sanitize::ALL, ..LaunchOptions::default() };
        let text = printed_with(options, &kernel, grid, &mut emulated).unwrap_or_else(|error| panic!("{arch}: {error}"));
        assert_eq!(text, printed, "{arch}");
        for (cpu, emulated) in cpu.iter().zip(&emulated) {
            same(cpu, emulated, 0.0).unwrap_or_else(|difference| panic!("{arch}: {difference}\n{}", kernel.ptx()));
        }
        assembled(&kernel);
    }
    printed
}

#[test]
fn a_kernel_prints_what_it_prints_on_the_cpu() {
    let source = r#"
import cuda.tile as ct

@ct.kernel
def kernel(x, h, y, n: int):
    i = ct.bid(0)
    t = ct.load(x, (0, 0), (2, 4))
    u = ct.load(y, (0,), (64,))
    e = ct.load(h, (0,), (16,))
    ct.printf("block %d of %5d%%: %8.3f|%-9.1e|%g\n", i, n, t, t, e)
    print(f"u={u} {u.astype(ct.int8):x} {u.astype(ct.uint16)}", t > 0.0, t / 0.0, i + 1, sep="; ", end="!\n")
    if i == 1:
        print("one", u.reshape((2, 4, 8)), e.astype(ct.float64))
"#;
    let array = |dtype, rank| ArgType::array(dtype, rank);
    let args = [("x", array(DType::F32, 2)), ("h", array(DType::F16, 1)), ("y", array(DType::I64, 1))];
    let mut args: Vec<(String, ArgType)> = args.into_iter().map(|(name, ty)| (name.to_string(), ty)).collect();
    args.push(("n".to_string(), ArgType::Scalar(DType::I32)));
    let compiled = compile(&parse_file("kernel.py", source), "kernel", &args, &CompileOptions::default()).unwrap();
    let data = [
        Data::floats(DType::F32, &[2, 4], 1),
        Data::floats(DType::F16, &[16], 2),
        Data::ints(DType::I64, &[64], 3),
        Data::Scalar(3_i32.to_le_bytes().to_vec()),
    ];
    let printed = agrees(&compiled, [3, 1, 1], &data);
    assert!(printed.starts_with("block 0 of     3%: [["), "{printed}");
    assert_eq!(printed.matches("one [[[").count(), 1);
}

#[test]
fn a_block_has_memory_and_its_module_constants() {
    let text = "global @table [8] = i32[7, 6, 5, 4, 3, 2, 1, 0]

schedule @kernel(%x: tile<ptr<i32>>, %x0: tile<i32>, %x1: tile<i32>) abi(x: array<i32, [?], [?], i32, align=4, disjoint>) {
  %block = get_tile_block_id {axis=x} : tile<i32>
  %own = alloca {count=128, align=16} : tile<ptr<i32>>
  %own1 = reshape %own : tile<1xptr<i32>>
  %owns = broadcast %own1 : tile<128xptr<i32>>
  %i = iota : tile<128xi32>
  %at = offset %owns, %i : tile<128xptr<i32>>
  %g = get_global {name=\"table\"} : tile<ptr<i32>>
  %g1 = reshape %g : tile<1xptr<i32>>
  %gs = broadcast %g1 : tile<128xptr<i32>>
  %seven = constant {value=i32(7)} : tile<128xi32>
  %low = andi %i, %seven : tile<128xi32>
  %ga = offset %gs, %low : tile<128xptr<i32>>
  %v, %tv = load_ptr_tko %ga : tile<128xi32>, token
  %t1 = store_ptr_tko %at, %v : token
  %last = constant {value=i32(127)} : tile<128xi32>
  %turned = xori %i, %last : tile<128xi32>
  %ta = offset %owns, %turned : tile<128xptr<i32>>
  %old, %t2 = atomic_rmw_tko %ta, %i, token=%t1 {order=relaxed, scope=device, mode=add} : tile<128xi32>, token
  %w, %t3 = load_ptr_tko %at, token=%t2 : tile<128xi32>, token
  %x10 = reshape %x : tile<1xptr<i32>>
  %xs = broadcast %x10 : tile<128xptr<i32>>
  %size = constant {value=i32(128)} : tile<i32>
  %first = muli %block, %size : tile<i32>
  %first1 = reshape %first : tile<1xi32>
  %firsts = broadcast %first1 : tile<128xi32>
  %n = addi %firsts, %i : tile<128xi32>
  %xa = offset %xs, %n : tile<128xptr<i32>>
  %sum = addi %w, %firsts : tile<128xi32>
  %t4 = store_ptr_tko %xa, %sum : token
  return
}
";
    let module = parse_module("memory.tir", text).unwrap_or_else(|found| panic!("{:?}", found.1));
    let compiled = compile_module(module, &[], &CompileOptions::default()).unwrap_or_else(|found| panic!("{found:?}"));
    let data = [Data::zeros(DType::I32, &[256])];
    agrees(&compiled, [2, 1, 1], &data);
    let mut threads = data.to_vec();
    in_lockstep(&Launch { compiled: &compiled, grid: [2, 1, 1] }, ARCHS[0], &mut threads).unwrap();
    let Data::Array { bytes, .. } = &threads[0] else { panic!() };
    let want = (0..256).map(|i: i32| 7 - i % 8 + 127 - i % 128 + i / 128 * 128);
    assert!(bytes.chunks(4).zip(want).all(|(bytes, want)| bytes == want.to_le_bytes()));
}
