//! What passes and tiling produce, executed: every level of optimisation computes the same bits, and tiled Graph functions
//! compute what their definition says.

#![allow(unsafe_code, reason = "the executor takes raw memory; every call owns what it passes")]

use arbtest::arbtest;
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile_module, generate};
use tessera_cpu::{Arg, Program, RunOptions};
use tessera_ir::text::{parse_module, print_module};
use tessera_ir::{Module, ParamKind};

/// A launch argument of a test.
enum Data {
    /// Elements, sizes and strides.
    Array(Vec<u32>, Vec<u32>),
    Scalar(u64),
}

fn row_major(sizes: &[u32]) -> Vec<u32> {
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis];
    }
    strides
}

/// Runs a kernel over arrays of 32-bit elements.
fn run(compiled: &Compiled, grid: [u32; 3], data: &mut [Data]) -> Result<(), String> {
    let program = Program::prepare(&compiled.module, compiled.func()).map_err(|diagnostic| diagnostic.message)?;
    let mut args = Vec::new();
    for item in data {
        match item {
            Data::Array(elements, sizes) => {
                args.push(Arg::Pointer { base: elements.as_mut_ptr().cast(), bytes: 4 * elements.len() });
                args.extend(sizes.iter().chain(&row_major(sizes)).map(|&value| Arg::Scalar(u64::from(value))));
            }
            Data::Scalar(bits) => args.push(Arg::Scalar(*bits)),
        }
    }
    // SAFETY: the pointers are to vectors that live and are used by nothing else while the launch runs.
    unsafe { program.run(grid, &args, &RunOptions::default()) }.map_err(|fault| fault.to_string())
}

fn compiled(module: &Module, level: OptLevel) -> Compiled {
    let options = CompileOptions { level, verify_each: true, ..CompileOptions::default() };
    compile_module(module.clone(), &[], &options).unwrap_or_else(|found| panic!("{level}: {}", found[0].message))
}

/// NaNs are equal; everything else is compared by bits.
fn canonical(elements: &[u32]) -> Vec<u32> {
    elements.iter().map(|&bits| if f32::from_bits(bits).is_nan() { 0x7fc0_0000 } else { bits }).collect()
}

#[test]
fn every_level_computes_the_same_bits() {
    arbtest(|u| {
        let size = u.int_in_range(5..=80usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let length = 21u32;
        let fill = |seed: u32| -> Vec<u32> { (0..length).map(|i| ((i * 7 + seed) as f32 * 0.37 - 3.0).to_bits()).collect() };
        let ints = |seed: u32| -> Vec<u32> { (0..length).map(|i| (i * 37 + seed).wrapping_sub(200)).collect() };
        let mut expected: Option<[Vec<u32>; 2]> = None;
        for level in OptLevel::ALL {
            let compiled = compiled(&module, level);
            let array = |elements| Data::Array(elements, vec![length]);
            let mut data = [
                array(fill(1)),
                array(ints(2)),
                array(fill(3)),
                array(ints(4)),
                Data::Scalar(u64::from(1.5f32.to_bits())),
                Data::Scalar(3),
            ];
            run(&compiled, [1, 1, 1], &mut data).unwrap_or_else(|error| panic!("{level}: {error}\n{}", print_module(&module)));
            let result = [2, 3].map(|i| match &data[i] {
                Data::Array(elements, _) if i == 2 => canonical(elements),
                Data::Array(elements, _) => elements.clone(),
                Data::Scalar(_) => Vec::new(),
            });
            match &expected {
                None => expected = Some(result),
                Some(expected) => assert_eq!(
                    *expected,
                    result,
                    "{level} differs from O0\n{}\n{}",
                    print_module(&module),
                    print_module(&compiled.module)
                ),
            }
        }
        Ok(())
    })
    .budget_ms(3_000);
}

fn graph(text: &str) -> Module {
    parse_module("graph.tir", text).unwrap_or_else(|(module, error)| panic!("{}", error.render(&module.sources, false)))
}

/// Compiles at a level and runs with the grid that the compiler states.
fn launch(module: &Module, level: OptLevel, data: &mut [Data]) {
    let compiled = compiled(module, level);
    let sizes: Vec<Vec<u32>> = data
        .iter()
        .map(|item| match item {
            Data::Array(_, sizes) => sizes.clone(),
            Data::Scalar(_) => Vec::new(),
        })
        .collect();
    let arrays = compiled.func().abi.params.iter().filter(|param| matches!(param.kind, ParamKind::Array { .. })).count();
    assert_eq!(arrays, sizes.iter().filter(|sizes| !sizes.is_empty()).count());
    let grid = compiled.grid.as_ref().and_then(|grid| grid.blocks(|param, axis| i64::from(sizes[param][axis])));
    let blocks = grid.expect("a tiled kernel states its grid");
    run(&compiled, [blocks, 1, 1], data).unwrap_or_else(|error| panic!("{level}: {error}\n{}", print_module(&compiled.module)));
}

fn floats(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn close(found: &[u32], wanted: &[f64], tolerance: f64) {
    for (i, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let found = f64::from(f32::from_bits(found));
        assert!((found - wanted).abs() <= tolerance * wanted.abs().max(1.0), "element {i}: {found}, but {wanted} is right");
    }
}

#[test]
fn a_ragged_product_with_transposes_and_beta() {
    let (m, n, k) = (37usize, 29usize, 45usize);
    let module = graph(
        r#"
graph @gemm(%A: operand<@Kx@Mxf32>, %B: operand<@Kx@Nxf32>, %C: operand<@Mx@Nxf32>, %alpha: tile<f32>, %beta: tile<f32>) abi(A: operand<f32, ["K", "M"]>, B: operand<f32, ["K", "N"]>, C: operand<f32, ["M", "N"]>, alpha: scalar<f32>, beta: scalar<f32>) config(BLOCK_M=16, BLOCK_N=8, BLOCK_K=16) {
  %a = graph.load %A {transpose=true} : tensor<@Mx@Kxf32>
  %b = graph.load %B : tensor<@Kx@Nxf32>
  %p = graph.contract %a, %b : tensor<@Mx@Nxf32>
  %al = graph.broadcast %alpha : tensor<@Mx@Nxf32>
  %s = mulf %p, %al : tensor<@Mx@Nxf32>
  %zero = constant {value=f32(0.0)} : tile<f32>
  %reads = cmpf %beta, %zero {predicate=ne} : tile<i1>
  %r = if %reads : tensor<@Mx@Nxf32> () {
    %c = graph.load %C : tensor<@Mx@Nxf32>
    %be = graph.broadcast %beta : tensor<@Mx@Nxf32>
    %t = mulf %c, %be : tensor<@Mx@Nxf32>
    %u = addf %s, %t : tensor<@Mx@Nxf32>
    yield [%u]
  } () {
    yield [%s]
  }
  graph.store %r, %C
  return
}
"#,
    );
    let (a, b) = (floats(k * m, 1), floats(k * n, 2));
    for (beta, level) in [(0.0f32, OptLevel::O0), (0.0, OptLevel::O3), (0.5, OptLevel::O0), (0.5, OptLevel::O3)] {
        let c = if beta == 0.0 { vec![f32::NAN; m * n] } else { floats(m * n, 3) };
        let wanted: Vec<f64> = (0..m * n)
            .map(|i| {
                let product: f64 = (0..k).map(|p| f64::from(a[p * m + i / n]) * f64::from(b[p * n + i % n])).sum();
                2.0 * product + if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(c[i]) }
            })
            .collect();
        let size = |value: usize| value as u32;
        let mut data = [
            Data::Array(bits(&a), vec![size(k), size(m)]),
            Data::Array(bits(&b), vec![size(k), size(n)]),
            Data::Array(bits(&c), vec![size(m), size(n)]),
            Data::Scalar(u64::from(2.0f32.to_bits())),
            Data::Scalar(u64::from(beta.to_bits())),
        ];
        launch(&module, level, &mut data);
        let Data::Array(found, _) = &data[2] else { return };
        close(found, &wanted, 1e-5);
    }
}

#[test]
fn rows_that_do_not_fill_their_tiles() {
    let (m, n) = (5usize, 300usize);
    let module = graph(
        r#"
graph @softmax(%X: operand<@Mx@Nxf32>, %Y: operand<@Mx@Nxf32>) abi(X: operand<f32, ["M", "N"]>, Y: operand<f32, ["M", "N"]>) config(BLOCK_M=2, BLOCK_N=128) {
  %x = graph.load %X : tensor<@Mx@Nxf32>
  %m = graph.reduce %x {axis=1, combine=max} : tensor<@Mx1xf32>
  %mb = graph.broadcast %m : tensor<@Mx@Nxf32>
  %d = subf %x, %mb : tensor<@Mx@Nxf32>
  %e = exp %d : tensor<@Mx@Nxf32>
  %s = graph.reduce %e {axis=1, combine=sum} : tensor<@Mx1xf32>
  %sb = graph.broadcast %s : tensor<@Mx@Nxf32>
  %y = divf %e, %sb : tensor<@Mx@Nxf32>
  graph.store %y, %Y
  return
}
"#,
    );
    let x: Vec<f32> = floats(m * n, 5).iter().map(|value| value - 10.0).collect();
    let mut wanted = Vec::new();
    for row in x.chunks(n) {
        let sum: f64 = row.iter().map(|&value| f64::from(value).exp()).sum();
        wanted.extend(row.iter().map(|&value| f64::from(value).exp() / sum));
    }
    for level in [OptLevel::O0, OptLevel::O3] {
        let sizes = vec![m as u32, n as u32];
        let mut data = [Data::Array(bits(&x), sizes.clone()), Data::Array(vec![0; m * n], sizes)];
        launch(&module, level, &mut data);
        let Data::Array(found, _) = &data[1] else { return };
        close(found, &wanted, 1e-6);
    }
}

#[test]
fn padding_is_masked_where_it_would_count() {
    let (batch, m, k, n) = (3usize, 7usize, 21usize, 10usize);
    let module = graph(
        r#"
graph @masked(%A: operand<@Px@Mx@Kxf32>, %B: operand<@Px@Kx@Nxf32>, %C: operand<@Px@Mx@Nxf32>) abi(A: operand<f32, ["P", "M", "K"]>, B: operand<f32, ["P", "K", "N"]>, C: operand<f32, ["P", "M", "N"]>) config(BLOCK_M=4, BLOCK_N=4, BLOCK_K=8) {
  %a = graph.load %A : tensor<@Px@Mx@Kxf32>
  %e = exp %a : tensor<@Px@Mx@Kxf32>
  %b = graph.load %B : tensor<@Px@Kx@Nxf32>
  %f = exp %b : tensor<@Px@Kx@Nxf32>
  %c = graph.contract %e, %f : tensor<@Px@Mx@Nxf32>
  %s = graph.reduce %c {axis=2, combine=max} : tensor<@Px@Mx1xf32>
  %sb = graph.broadcast %s : tensor<@Px@Mx@Nxf32>
  %d = divf %c, %sb : tensor<@Px@Mx@Nxf32>
  graph.store %d, %C
  return
}
"#,
    );
    let (a, b) = (floats(batch * m * k, 7), floats(batch * k * n, 8));
    let mut wanted = Vec::new();
    for p in 0..batch {
        for i in 0..m {
            let row: Vec<f64> = (0..n)
                .map(|j| {
                    let term = |q: usize| f64::from(a[(p * m + i) * k + q]).exp() * f64::from(b[(p * k + q) * n + j]).exp();
                    (0..k).map(term).sum()
                })
                .collect();
            let max = row.iter().copied().fold(f64::MIN, f64::max);
            wanted.extend(row.iter().map(|value| value / max));
        }
    }
    for level in [OptLevel::O0, OptLevel::O3] {
        let size = |sizes: [usize; 3]| sizes.map(|value| value as u32).to_vec();
        let mut data = [
            Data::Array(bits(&a), size([batch, m, k])),
            Data::Array(bits(&b), size([batch, k, n])),
            Data::Array(vec![0; batch * m * n], size([batch, m, n])),
        ];
        launch(&module, level, &mut data);
        let Data::Array(found, _) = &data[2] else { return };
        close(found, &wanted, 1e-5);
    }
}
