//! Programs in the document's form mean what they say: lock-step, before and after the target's instructions are chosen, and the
//! emulator give what plain loops over numbers give.

use tessera_compile::{CompileOptions, compile_ir, passes};
use tessera_document::parse_module;
use tessera_ir::text::print_module;
use tessera_ir::{Module, PassManager, verify};
use tessera_types::{Arch, DType};

use crate::devices::{Data, Launch, in_lockstep_as_it_is, on_emulator};

fn parsed(text: &str) -> Module {
    let module =
        parse_module("document.tir", text).unwrap_or_else(|(module, error)| panic!("{}", error.render(&module.sources, false)));
    let wrong = verify(&module);
    assert!(wrong.is_empty(), "{}", wrong[0].render(&module.sources, false));
    module
}

/// The module with the target's instructions.
fn lowered(module: &Module, arch: Arch) -> Module {
    let mut module = module.clone();
    let pass = passes::find("intrinsic-lowering").expect("the pass");
    let mut manager = PassManager { verify_each: true, target: Some(arch), ..PassManager::default() };
    manager.run(&mut module, &[pass]).unwrap_or_else(|failure| {
        panic!("{}\n{}", failure.diagnostics[0].render(&module.sources, false), print_module(&module));
    });
    module
}

/// Runs a program everywhere; every execution must pass the check. The text for each target.
fn everywhere(module: &Module, grid: [u32; 3], data: &[Data], check: impl Fn(&[Data]) -> Result<(), String>) -> Vec<String> {
    let mut plain = data.to_vec();
    let text = in_lockstep_as_it_is(module.clone(), grid, &mut plain).unwrap_or_else(|error| panic!("{error}"));
    check(&plain).unwrap_or_else(|error| panic!("lock-step: {error}\n{text}"));
    let compiled =
        compile_ir(module.clone(), &[], &CompileOptions::default()).unwrap_or_else(|found| panic!("{}", found[0].message));
    [Arch::Sm80, Arch::Sm90a, Arch::Sm100a]
        .into_iter()
        .map(|arch| {
            let mut threads = data.to_vec();
            let text =
                in_lockstep_as_it_is(lowered(module, arch), grid, &mut threads).unwrap_or_else(|error| panic!("{arch}: {error}"));
            check(&threads).unwrap_or_else(|error| panic!("lock-step for {arch}: {error}\n{text}"));
            let mut emulated = data.to_vec();
            let launch = Launch { compiled: &compiled, grid };
            on_emulator(&launch, arch, &mut emulated).unwrap_or_else(|error| panic!("{arch}: {error}\n{text}"));
            check(&emulated).unwrap_or_else(|error| panic!("emulator for {arch}: {error}\n{text}"));
            text
        })
        .collect()
}

fn example(name: &str) -> Module {
    let path = format!("{}/../../tests/filetests/document/{name}", env!("CARGO_MANIFEST_DIR"));
    parsed(&std::fs::read_to_string(path).expect("the example"))
}

fn near(found: f64, wanted: f64, tolerance: f64) -> bool {
    (found - wanted).abs() <= tolerance * wanted.abs().max(1.0)
}

/// Causal attention over sequences whose blocks are whole, ragged, and less than one.
#[test]
fn the_corrected_attention_is_right() {
    let module = example("flash-attention.tir");
    for (batches, heads, length, depth) in [(1, 2, 200, 64), (2, 1, 128, 128), (1, 1, 37, 16)] {
        let sizes = [batches, heads, length, depth];
        let data = [1, 2, 3].map(|seed| Data::floats(DType::BF16, &sizes, seed));
        let data: Vec<Data> = data.into_iter().chain([Data::zeros(DType::BF16, &sizes)]).collect();
        let grid = [(batches * heads * ((length + 127) / 128)) as u32, 1, 1];
        let check = |found: &[Data]| {
            let at = |array: &Data, group: i64, row: i64, column: i64| {
                array.number(((group * length + row) * depth + column) as usize)
            };
            for group in 0..batches * heads {
                for row in 0..length {
                    let score = |key: i64| -> f64 {
                        let sum: f64 = (0..depth).map(|d| at(&found[0], group, row, d) * at(&found[1], group, key, d)).sum();
                        sum / (depth as f64).sqrt()
                    };
                    let scores: Vec<f64> = (0..=row).map(score).collect();
                    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    for column in 0..depth {
                        let sum: f64 =
                            weights.iter().zip(0..).map(|(weight, key)| weight * at(&found[2], group, key, column)).sum();
                        let (wanted, found) = (sum / total, at(&found[3], group, row, column));
                        if !near(found, wanted, 2e-2) {
                            return Err(format!("{length} x {depth}, row {row}, column {column}: {found}, not {wanted}"));
                        }
                    }
                }
            }
            Ok(())
        };
        let texts = everywhere(&module, grid, &data, check);
        assert!(texts[0].contains("tile.mma_sync") && texts[1].contains("tile.wgmma "), "{}\n{}", texts[0], texts[1]);
    }
}

/// The product of `a` and `b` (`N x K`), both `bf16`, with `f32` sums.
fn product(found: &[Data], [m, n, k]: [i64; 3]) -> Result<(), String> {
    for row in 0..m {
        for column in 0..n {
            let wanted: f64 =
                (0..k).map(|i| found[0].number((row * k + i) as usize) * found[1].number((column * k + i) as usize)).sum();
            let found = found[2].number((row * n + column) as usize);
            if !near(found, wanted, 2e-3) {
                return Err(format!("row {row}, column {column}: {found}, not {wanted}"));
            }
        }
    }
    Ok(())
}

/// A loop that waits for what it has just asked for: the copy engine brings it where there is one.
#[test]
fn a_product_in_a_loop_is_right() {
    let text = r#"
func @product(%A: memref<?x?xbf16> {align = 16}, %B: memref<?x?xbf16> {align = 16}, %C: memref<?x?xf32>) attributes {num_warps = 4} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %depth = memref.dim %A, %c1 : memref<?x?xbf16>
  %i = tile.block_id : index
  %j = tile.block_id {axis = "y"} : index
  %row = arith.muli %i, %c64 : index
  %column = arith.muli %j, %c64 : index
  %a = tile.alloc_shared {swizzle = "xor"} : memref<64x64xbf16, 3>
  %b = tile.alloc_shared {swizzle = "xor"} : memref<64x64xbf16, 3>
  %sum = tile.alloc_register : memref<64x64xf32, 5>
  scf.for %k = %c0 to %depth step %c64 {
    %av = memref.subview %A[%row, %k] [64, 64] [1, 1] : memref<?x?xbf16> to memref<64x64xbf16>
    %bv = memref.subview %B[%column, %k] [64, 64] [1, 1] : memref<?x?xbf16> to memref<64x64xbf16>
    tile.cp_async %av, %a {bypass_l1 = true} : memref<64x64xbf16>, memref<64x64xbf16, 3>
    tile.cp_async %bv, %b {bypass_l1 = true} : memref<64x64xbf16>, memref<64x64xbf16, 3>
    tile.cp_commit_group
    tile.wait_group 0
    tile.barrier
    %next = tile.mma %a, %b, %sum {transpose_b = true} : memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, memref<64x64xf32, 5> -> memref<64x64xf32, 5>
    tile.copy %next, %sum : memref<64x64xf32, 5>, memref<64x64xf32, 5>
    tile.barrier
  }
  %cv = memref.subview %C[%row, %column] [64, 64] [1, 1] : memref<?x?xf32> to memref<64x64xf32>
  tile.store_global %sum, %cv : memref<64x64xf32, 5>, memref<64x64xf32>
  return
}
"#;
    let module = parsed(text);
    let (m, n, k) = (100, 72, 200);
    let data = [Data::floats(DType::BF16, &[m, k], 1), Data::floats(DType::BF16, &[n, k], 2), Data::zeros(DType::F32, &[m, n])];
    let texts = everywhere(&module, [2, 2, 1], &data, |found| product(found, [m, n, k]));
    let [ampere, hopper, blackwell] = [&texts[0], &texts[1], &texts[2]];
    assert!(ampere.contains("tile.copy_async") && ampere.contains("tile.mma_sync"), "{ampere}");
    assert!(hopper.contains("tile.tma_load") && hopper.contains("tile.wgmma "), "{hopper}");
    assert!(blackwell.contains("tile.tma_load") && blackwell.contains("tile.mma_sync"), "{blackwell}");
}

/// The document's program of one 16 x 16 product: `mma.sync` on every target, also with more warps than there are parts.
#[test]
fn a_small_product_is_one_of_a_warp() {
    let text = std::fs::read_to_string(format!("{}/../../tests/filetests/document/mma.tir", env!("CARGO_MANIFEST_DIR")))
        .expect("the example");
    let wide = text.replace("-> memref<16x16xf32, 5> {", "-> memref<16x16xf32, 5> attributes {num_warps = 4} {");
    for text in [&text, &wide] {
        let data = [
            Data::floats(DType::BF16, &[16, 16], 1),
            Data::floats(DType::BF16, &[16, 16], 2),
            Data::zeros(DType::F32, &[16, 16]),
        ];
        let check = |found: &[Data]| {
            for (row, column) in (0..16).flat_map(|row| (0..16).map(move |column| (row, column))) {
                let wanted: f64 = (0..16).map(|i| found[0].number(row * 16 + i) * found[1].number(i * 16 + column)).sum();
                if !near(found[2].number(row * 16 + column), wanted, 1e-4) {
                    return Err(format!("row {row}, column {column}"));
                }
            }
            Ok(())
        };
        for text in everywhere(&parsed(text), [1, 1, 1], &data, check) {
            assert!(text.contains("tile.mma_sync") && text.contains("shape=[16, 8, 16]"), "{text}");
        }
    }
}

/// Register memrefs are values through loops, conditions and calls in operands; elements are loaded and stored by each thread.
#[test]
fn cells_are_values_through_control_flow() {
    let text = r#"
func @cells(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) attributes {num_warps = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %xs = memref.subview %x[%c0] [32] [1] : memref<?xf32> to memref<32xf32>
  %sum = tile.alloc_register : memref<32xf32, 5>
  %v = tile.load_global %xs : memref<32xf32> -> memref<32xf32, 5>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%count = %c0) -> (index) {
    %odd = arith.remsi %i, %c2 : index
    %is_odd = arith.cmpi ne, %odd, %c0 : index
    scf.if %is_odd {
      tile.accumulate %sum, %v : memref<32xf32, 5>, memref<32xf32, 5>
    } else {
      tile.broadcast_scale %sum, %half : memref<32xf32, 5>, f32
    }
    %next = arith.addi %count, %c2 : index
    scf.yield %next : index
  }
  %ones = tile.broadcast %one : f32 -> memref<32xf32, 5>
  %f = arith.sitofp %last : index to f32
  %fs = tile.broadcast %f : f32 -> memref<32xf32, 5>
  %r = tile.fma %sum, %ones, tile.mul(%fs, %ones) : memref<32xf32, 5>, memref<32xf32, 5>, memref<32xf32, 5> -> memref<32xf32, 5>
  %ys = memref.subview %y[%c0] [32] [1] : memref<?xf32> to memref<32xf32>
  tile.store_global %r, %ys : memref<32xf32, 5>, memref<32xf32>
  return
}
"#;
    let data = [Data::floats(DType::F32, &[32], 1), Data::zeros(DType::F32, &[32]), Data::Scalar(5_i32.to_le_bytes().to_vec())];
    let check = |found: &[Data]| {
        for i in 0..32 {
            let v = found[0].number(i);
            // Rounds 0 to 4: halved, added, halved, added, halved.
            let wanted = (v * 0.5 + v) * 0.5 + 10.0;
            if !near(found[1].number(i), wanted, 1e-6) {
                return Err(format!("element {i}: {}, not {wanted}", found[1].number(i)));
            }
        }
        Ok(())
    };
    everywhere(&parsed(text), [1, 1, 1], &data, check);
}

/// Sums of integers over a warp are one instruction where there is one.
#[test]
fn integers_are_reduced_by_one_instruction() {
    let text = "tile @sums(%x: tile<ptr<i32>>, %n: tile<i32>, %s: tile<i32>) abi(x: array<i32, [?], [1], i32, align=4>) hints(num_warps=2) {
  %t = tile.thread_id : tile<i32>
  %p = offset %x, %t : tile<ptr<i32>>
  %v, %read = load_ptr_tko %p : tile<i32>, token
  %sum = tile.warp_reduce %v {combine=sum, signedness=signed} : tile<i32>
  %least = tile.warp_reduce %v {combine=min, signedness=unsigned} : tile<i32>
  %r = addi %sum, %least : tile<i32>
  %done = store_ptr_tko %p, %r : token
  return
}
";
    let data = [Data::ints(DType::I32, &[64], 3)];
    let before = data[0].clone();
    let check = |found: &[Data]| {
        for thread in 0..64 {
            let warp = || (thread / 32 * 32..thread / 32 * 32 + 32).map(|lane| before.number(lane) as i32);
            let least = warp().map(|value| value as u32).min().unwrap_or(0) as i32;
            let wanted = warp().fold(0i32, i32::wrapping_add).wrapping_add(least);
            if found[0].number(thread) as i32 != wanted {
                return Err(format!("thread {thread}: {}, not {wanted}", found[0].number(thread)));
            }
        }
        Ok(())
    };
    for text in everywhere(&parsed(text), [1, 1, 1], &data, check) {
        assert!(text.contains("redux=true"), "{text}");
    }
}
