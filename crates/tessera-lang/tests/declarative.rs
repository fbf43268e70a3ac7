//! Declarative kernels: the Graph IR they become, and what is refused.

use expect_test::{Expect, expect};
use tessera_ir::text::print_module;
use tessera_ir::verify;
use tessera_lang::{ArgType, ConstValue, LowerOptions, lower, parse_file};
use tessera_types::DType;

const GEMM: &str = include_str!("seeds/tessera_gemm.py");

type Args = Vec<(String, ArgType)>;

fn array(name: &str, dtype: DType, rank: usize) -> (String, ArgType) {
    (name.to_string(), ArgType::array(dtype, rank))
}

fn constant(name: &str, value: ConstValue) -> (String, ArgType) {
    (name.to_string(), ArgType::Const(value))
}

fn scalar(name: &str, dtype: DType) -> (String, ArgType) {
    (name.to_string(), ArgType::Scalar(dtype))
}

/// The only kernel of a text, lowered, verified and printed; or its diagnostics, a line each.
fn compile(source: &str, args: &[(String, ArgType)], options: &LowerOptions) -> String {
    let file = parse_file("kernel.py", source);
    let kernel = file.kernels.keys().next().cloned().unwrap_or_default();
    match lower(&file, &kernel, args, options) {
        Ok(module) => {
            let faults: Vec<String> = verify(&module).iter().map(|fault| fault.render(&module.sources, false)).collect();
            assert!(faults.is_empty(), "{}\n{}", faults.join("\n"), print_module(&module));
            let text = print_module(&module);
            let again = tessera_ir::text::parse_module("again.tir", &text)
                .unwrap_or_else(|(_, error)| panic!("{}\n{text}", error.message));
            assert_eq!(print_module(&again), text);
            text
        }
        Err(diagnostics) => diagnostics.iter().map(|diagnostic| diagnostic.render_line(&file.sources) + "\n").collect(),
    }
}

fn check(source: &str, args: &[(String, ArgType)], expected: Expect) {
    expected.assert_eq(&compile(source, args, &LowerOptions::default()));
}

fn gemm_args(storage: DType, accumulator: DType) -> Args {
    vec![array("A", storage, 2), array("B", storage, 2), array("C", accumulator, 2)]
}

#[test]
fn gemm_as_given() {
    check(
        GEMM,
        &gemm_args(DType::BF16, DType::F32),
        expect![[r#"
        graph @tessera_gemm(%A: operand<@Mx@Kxbf16>, %B: operand<@Kx@Nxbf16>, %C: operand<@Mx@Nxf32>) abi(A: operand<bf16, ["M", "K"]>, B: operand<bf16, ["K", "N"]>, C: operand<f32, ["M", "N"]>) config(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=2) {
          %A_tile = graph.load %A : tensor<@Mx@Kxbf16>
          %B_tile = graph.load %B : tensor<@Kx@Nxbf16>
          %C_tile = graph.contract %A_tile, %B_tile : tensor<@Mx@Nxf32>
          %0 = constant {value=f32(1.0)} : tile<f32>
          %1 = graph.broadcast %0 : tensor<@Mx@Nxf32>
          %C_tile.1 = mulf %1, %C_tile : tensor<@Mx@Nxf32>
          graph.store %C_tile.1, %C
          return
        }
    "#]],
    );
}

#[test]
fn gemm_with_run_time_scalars_reads_c_only_where_beta_is_not_zero() {
    let mut args = gemm_args(DType::BF16, DType::F32);
    args.extend([scalar("alpha", DType::F32), scalar("beta", DType::F32)]);
    check(
        GEMM,
        &args,
        expect![[r#"
        graph @tessera_gemm(%A: operand<@Mx@Kxbf16>, %B: operand<@Kx@Nxbf16>, %C: operand<@Mx@Nxf32>, %alpha: tile<f32>, %beta: tile<f32>) abi(A: operand<bf16, ["M", "K"]>, B: operand<bf16, ["K", "N"]>, C: operand<f32, ["M", "N"]>, alpha: scalar<f32>, beta: scalar<f32>) config(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=2) {
          %A_tile = graph.load %A : tensor<@Mx@Kxbf16>
          %B_tile = graph.load %B : tensor<@Kx@Nxbf16>
          %C_tile = graph.contract %A_tile, %B_tile : tensor<@Mx@Nxf32>
          %0 = constant {value=f32(0.0)} : tile<f32>
          %1 = cmpf %beta, %0 {predicate=ne, nan=unordered} : tile<i1>
          %C_tile.1 = if %1 : tensor<@Mx@Nxf32> () {
            %C_existing = graph.load %C : tensor<@Mx@Nxf32>
            %2 = graph.broadcast %alpha : tensor<@Mx@Nxf32>
            %3 = mulf %2, %C_tile : tensor<@Mx@Nxf32>
            %4 = graph.broadcast %beta : tensor<@Mx@Nxf32>
            %5 = mulf %4, %C_existing : tensor<@Mx@Nxf32>
            %C_tile.2 = addf %3, %5 : tensor<@Mx@Nxf32>
            yield [%C_tile.2]
          } () {
            %6 = graph.broadcast %alpha : tensor<@Mx@Nxf32>
            %C_tile.3 = mulf %6, %C_tile : tensor<@Mx@Nxf32>
            yield [%C_tile.3]
          }
          graph.store %C_tile.1, %C
          return
        }
    "#]],
    );
}
