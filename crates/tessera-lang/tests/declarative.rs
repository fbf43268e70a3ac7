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

#[test]
fn transposes_reverse_the_axes_in_memory() {
    for (a, b, text) in [
        (false, false, r#"A: operand<bf16, ["M", "K"]>, B: operand<bf16, ["K", "N"]>"#),
        (false, true, r#"A: operand<bf16, ["M", "K"]>, B: operand<bf16, ["N", "K"]>"#),
        (true, false, r#"A: operand<bf16, ["K", "M"]>, B: operand<bf16, ["K", "N"]>"#),
        (true, true, r#"A: operand<bf16, ["K", "M"]>, B: operand<bf16, ["N", "K"]>"#),
    ] {
        for beta in [false, true] {
            let mut args = gemm_args(DType::BF16, DType::F32);
            args.push(constant("transpose_a", ConstValue::Bool(a)));
            args.push(constant("transpose_b", ConstValue::Bool(b)));
            if beta {
                args.push(scalar("beta", DType::F32));
            }
            let found = compile(GEMM, &args, &LowerOptions::default());
            assert!(found.contains(text), "{a} {b}\n{found}");
            assert_eq!(found.matches("transpose=true").count(), usize::from(a) + usize::from(b), "{found}");
            // What the product sees is the same in all four.
            assert!(found.contains("graph.contract %A_tile, %B_tile : tensor<@Mx@Nxf32>"), "{found}");
            assert_eq!(found.contains("graph.load %C"), beta, "{found}");
        }
    }
}

#[test]
fn gemm_transposed() {
    let mut args = gemm_args(DType::F8E4M3, DType::F32);
    args.push(constant("transpose_a", ConstValue::Bool(true)));
    args.push(constant("beta", ConstValue::Float(1.0)));
    check(
        GEMM,
        &args,
        expect![[r#"
        graph @tessera_gemm(%A: operand<@Kx@Mxf8e4m3>, %B: operand<@Kx@Nxf8e4m3>, %C: operand<@Mx@Nxf32>) abi(A: operand<f8e4m3, ["K", "M"]>, B: operand<f8e4m3, ["K", "N"]>, C: operand<f32, ["M", "N"]>) config(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=2) {
          %A_tile = graph.load %A {transpose=true} : tensor<@Mx@Kxf8e4m3>
          %B_tile = graph.load %B : tensor<@Kx@Nxf8e4m3>
          %C_tile = graph.contract %A_tile, %B_tile : tensor<@Mx@Nxf32>
          %C_existing = graph.load %C : tensor<@Mx@Nxf32>
          %0 = constant {value=f32(1.0)} : tile<f32>
          %1 = graph.broadcast %0 : tensor<@Mx@Nxf32>
          %2 = mulf %1, %C_tile : tensor<@Mx@Nxf32>
          %3 = constant {value=f32(1.0)} : tile<f32>
          %4 = graph.broadcast %3 : tensor<@Mx@Nxf32>
          %5 = mulf %4, %C_existing : tensor<@Mx@Nxf32>
          %C_tile.1 = addf %2, %5 : tensor<@Mx@Nxf32>
          graph.store %C_tile.1, %C
          return
        }
    "#]],
    );
}

#[test]
fn gemm_in_every_precision_of_the_suite() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F6E2M3, DType::F4E2M1] {
        let found = compile(GEMM, &gemm_args(dtype, DType::F32), &LowerOptions::default());
        assert!(found.contains(": tensor<@Mx@Nxf32>") && !found.contains("error"), "{dtype}\n{found}");
    }
}

#[test]
fn a_dtype_variable_can_be_settled_by_the_caller() {
    // Accumulated in f32, scaled in f32, stored as bf16.
    let mut args = gemm_args(DType::BF16, DType::BF16);
    args.push(constant("accum_dtype", ConstValue::DType(DType::F32)));
    let found = compile(GEMM, &args, &LowerOptions::default());
    assert!(found.contains("graph.contract %A_tile, %B_tile : tensor<@Mx@Nxf32>"), "{found}");
    assert!(found.contains("ftof %C_tile.1 : tensor<@Mx@Nxbf16>"), "{found}");
    // Left alone, the variable is what C holds, and no product sums in that.
    let found = compile(GEMM, &gemm_args(DType::BF16, DType::BF16), &LowerOptions::default());
    assert!(found.contains("error[mma-type]"), "{found}");
}

#[test]
fn reductions_keep_their_axis_and_broadcast_back() {
    let source = r#"
@tessera.kernel(num_warps=8)
def layer_norm(x: Tensor["M", "N", dtype], w: Tensor["N", dtype], y: Tensor["M", "N", dtype], eps: float = 1e-5):
    v = tile.cast(tile.load(x), fp32)
    mean = tile.reduce_sum(v, axis=1) / x.shape[1]
    centred = v - mean
    var = tile.reduce_sum(centred * centred) / x.shape[-1]
    tile.store(y, centred * tile.rsqrt(var + eps) * tile.cast(tile.load(w), fp32))
"#;
    let args = [array("x", DType::F16, 2), array("w", DType::F16, 1), array("y", DType::F16, 2)];
    check(
        source,
        &args,
        expect![[r#"
        graph @layer_norm(%x: operand<@Mx@Nxf16>, %w: operand<@Nxf16>, %y: operand<@Mx@Nxf16>) abi(x: operand<f16, ["M", "N"]>, w: operand<f16, ["N"]>, y: operand<f16, ["M", "N"]>) hints(num_warps=8) {
          %0 = graph.load %x : tensor<@Mx@Nxf16>
          %v = ftof %0 : tensor<@Mx@Nxf32>
          %1 = graph.reduce %v {axis=1, combine=sum} : tensor<@Mx1xf32>
          %2, %3 = get_tensor_shape %x : tile<i32>, tile<i32>
          %4 = itof %3 : tile<f32>
          %5 = graph.broadcast %4 : tensor<@Mx1xf32>
          %mean = divf %1, %5 : tensor<@Mx1xf32>
          %6 = graph.broadcast %mean : tensor<@Mx@Nxf32>
          %centred = subf %v, %6 : tensor<@Mx@Nxf32>
          %7 = mulf %centred, %centred : tensor<@Mx@Nxf32>
          %8 = graph.reduce %7 {axis=1, combine=sum} : tensor<@Mx1xf32>
          %9, %10 = get_tensor_shape %x : tile<i32>, tile<i32>
          %11 = itof %10 : tile<f32>
          %12 = graph.broadcast %11 : tensor<@Mx1xf32>
          %var = divf %8, %12 : tensor<@Mx1xf32>
          %13 = constant {value=f32(1e-5)} : tile<f32>
          %14 = graph.broadcast %13 : tensor<@Mx1xf32>
          %15 = addf %var, %14 : tensor<@Mx1xf32>
          %16 = rsqrt %15 : tensor<@Mx1xf32>
          %17 = graph.broadcast %16 : tensor<@Mx@Nxf32>
          %18 = mulf %centred, %17 : tensor<@Mx@Nxf32>
          %19 = graph.load %w : tensor<@Nxf16>
          %20 = ftof %19 : tensor<@Nxf32>
          %21 = graph.broadcast %20 : tensor<@Mx@Nxf32>
          %22 = mulf %18, %21 : tensor<@Mx@Nxf32>
          %23 = ftof %22 : tensor<@Mx@Nxf16>
          graph.store %23, %y
          return
        }
    "#]],
    );
}

#[test]
fn scalars_helpers_and_branches() {
    let source = r#"
LIMIT = 2 * 3.0

def clamp(v, low, high=LIMIT):
    return tile.minimum(tile.maximum(v, low), high)

@tessera.kernel
def k(x: Tensor["M", 64, dtype], y: Tensor["M", 64, dtype], bias: Tensor["M", 1, dtype] = None, n: int = 0, mode: str = "clamp"):
    v = tile.load(x)
    if bias is not None:
        v = v + tile.load(bias)
    if mode == "clamp":
        v = clamp(v, -1)
    if n > 3 and n != 7:
        v = tile.where(v > 0.5, v, n)
        tile.store(x, v)
    tile.store(y, -v)
"#;
    let args = [array("x", DType::F32, 2), array("y", DType::F32, 2), array("bias", DType::F32, 2), scalar("n", DType::I32)];
    check(
        source,
        &args,
        expect![[r#"
        graph @k(%x: operand<@Mx64xf32>, %y: operand<@Mx64xf32>, %bias: operand<@Mx1xf32>, %n: tile<i32>) abi(x: operand<f32, ["M", "64"]>, y: operand<f32, ["M", "64"]>, bias: operand<f32, ["M", "1"]>, n: scalar<i32>) {
          %v = graph.load %x : tensor<@Mx64xf32>
          %0 = graph.load %bias : tensor<@Mx1xf32>
          %1 = graph.broadcast %0 : tensor<@Mx64xf32>
          %v.1 = addf %v, %1 : tensor<@Mx64xf32>
          %2 = constant {value=f32(-1.0)} : tile<f32>
          %3 = graph.broadcast %2 : tensor<@Mx64xf32>
          %4 = maxf %v.1, %3 : tensor<@Mx64xf32>
          %5 = constant {value=f32(6.0)} : tile<f32>
          %6 = graph.broadcast %5 : tensor<@Mx64xf32>
          %v.2 = minf %4, %6 : tensor<@Mx64xf32>
          %7 = constant {value=i32(3)} : tile<i32>
          %8 = cmpi %n, %7 {predicate=gt} : tile<i1>
          %9 = constant {value=i32(7)} : tile<i32>
          %10 = cmpi %n, %9 {predicate=ne} : tile<i1>
          %11 = andi %8, %10 : tile<i1>
          %v.3 = if %11 : tensor<@Mx64xf32> () {
            %12 = constant {value=f32(0.5)} : tile<f32>
            %13 = graph.broadcast %12 : tensor<@Mx64xf32>
            %14 = cmpf %v.2, %13 {predicate=gt} : tensor<@Mx64xi1>
            %15 = itof %n : tile<f32>
            %16 = graph.broadcast %15 : tensor<@Mx64xf32>
            %v.4 = select %14, %v.2, %16 : tensor<@Mx64xf32>
            graph.store %v.4, %x
            yield [%v.4]
          } () {
            yield [%v.2]
          }
          %17 = negf %v.3 : tensor<@Mx64xf32>
          graph.store %17, %y
          return
        }
    "#]],
    );
}

#[test]
fn batches_and_integers() {
    let source = r#"
@tessera.kernel
def k(A: Tensor["B", "M", "K", dtype], W: Tensor["B", "K", "N", dtype], C: Tensor["B", "M", "N", int32], t: bool = True):
    tile.store(C, tile.mma(tile.load(A), tile.load(W, transpose=t)) // 2)
"#;
    check(
        source,
        &[array("A", DType::I8, 3), array("W", DType::I8, 3), array("C", DType::I32, 3)],
        expect![[r#"
        graph @k(%A: operand<@Bx@Mx@Kxi8>, %W: operand<@Bx@Nx@Kxi8>, %C: operand<@Bx@Mx@Nxi32>) abi(A: operand<i8, ["B", "M", "K"]>, W: operand<i8, ["B", "N", "K"]>, C: operand<i32, ["B", "M", "N"]>) {
          %0 = graph.load %A : tensor<@Bx@Mx@Kxi8>
          %1 = graph.load %W {transpose=true} : tensor<@Bx@Kx@Nxi8>
          %2 = graph.contract %0, %1 : tensor<@Bx@Mx@Nxi32>
          %3 = constant {value=i32(2)} : tile<i32>
          %4 = graph.broadcast %3 : tensor<@Bx@Mx@Nxi32>
          %5 = divi %2, %4 {rounding=negative_inf} : tensor<@Bx@Mx@Nxi32>
          graph.store %5, %C
          return
        }
    "#]],
    );
}

#[test]
fn sizes_count_axes_as_annotated() {
    let source = r#"
@tessera.kernel
def k(A: Tensor["M", "K", dtype], C: Tensor["M", "K", dtype]):
    k = A.shape[1]
    tile.store(C, tile.load(A, transpose=True) * k)
"#;
    check(
        source,
        &[array("A", DType::F32, 2), array("C", DType::F32, 2)],
        expect![[r#"
        graph @k(%A: operand<@Kx@Mxf32>, %C: operand<@Mx@Kxf32>) abi(A: operand<f32, ["K", "M"]>, C: operand<f32, ["M", "K"]>) {
          %k, %0 = get_tensor_shape %A : tile<i32>, tile<i32>
          %1 = graph.load %A {transpose=true} : tensor<@Mx@Kxf32>
          %2 = itof %k : tile<f32>
          %3 = graph.broadcast %2 : tensor<@Mx@Kxf32>
          %4 = mulf %1, %3 : tensor<@Mx@Kxf32>
          graph.store %4, %C
          return
        }
    "#]],
    );
}

#[test]
fn constant_parameters_are_announced() {
    let file = parse_file("gemm.py", GEMM);
    let constant: Vec<&str> =
        file.kernels["tessera_gemm"].params.iter().filter(|param| param.is_constant()).map(|param| param.name.as_str()).collect();
    assert_eq!(constant, ["transpose_a", "transpose_b"]);
    let text = "\
import tessera
from tessera import Tensor, fp32

@tessera.kernel
def f(x: Tensor[\"N\", fp32], a: int, b: float, c: tessera.Constant[int], d: Constant, e: tessera.Constant[fp32]):
    pass
";
    let file = parse_file("f.py", text);
    let constant = file.kernels["f"].params.iter().filter(|param| param.is_constant()).map(|param| param.name.as_str());
    assert_eq!(constant.collect::<Vec<_>>(), ["c", "d", "e"]);
}

/// Texts near the seeds' kernels end in a module or in a diagnostic, never in a panic.
#[test]
fn mutated_sources_never_panic() {
    let seeds = [
        GEMM,
        include_str!("seeds/vector_operations.py"),
        include_str!("seeds/layernorm_safe.py"),
        include_str!("seeds/softmax_safe.py"),
        include_str!("seeds/memory_bandwidth_kernel.py"),
    ];
    let pieces: Vec<&str> = seeds.iter().flat_map(|text| text.split_inclusive(|c: char| !c.is_alphanumeric())).collect();
    arbtest::arbtest(|u| {
        let mut text = (*u.choose(&seeds)?).to_string();
        for _ in 0..u.int_in_range(1..=6)? {
            let mut at = u.choose_index(text.len() + 1)?;
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match u.int_in_range(0..=2)? {
                0 => text.insert_str(at, u.choose(&pieces)?),
                1 => {
                    let mut end = (at + u.int_in_range(1..=12)?).min(text.len());
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    text.replace_range(at..end, "");
                }
                _ => {
                    let mut end = (at + u.int_in_range(1..=12)?).min(text.len());
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    text.replace_range(at..end, u.choose(&pieces)?);
                }
            }
        }
        let file = parse_file("mutated.py", &text);
        for (name, kernel) in &file.kernels {
            let rank = |name: &str| match name {
                "weight" | "bias" | "a" | "b" | "c" | "y" | "result" => 1,
                "A" | "B" | "C" => 2,
                "x" if kernel.name.starts_with("soft") => 4,
                "x" | "output" if kernel.name.starts_with("layer") => 3,
                "output" => 4,
                _ => 1,
            };
            let args: Args = kernel
                .params
                .iter()
                .filter_map(|param| match param.name.as_str() {
                    "operation" | "access_pattern" => {
                        let word = if u.arbitrary().unwrap_or(false) { "dot" } else { "strided_4" };
                        Some(constant(&param.name, ConstValue::Str(word.to_string())))
                    }
                    "alpha" | "beta" | "eps" | "scalar" => Some(scalar(&param.name, DType::F32)),
                    name if name.starts_with("transpose") || name == "causal_mask" || name == "stride" => None,
                    name => Some(array(name, DType::F32, rank(name))),
                })
                .collect();
            match lower(&file, name, &args, &LowerOptions::default()) {
                Ok(module) => {
                    let faults = verify(&module);
                    assert!(faults.is_empty(), "{text}\n{}\n{}", faults[0].message, print_module(&module));
                }
                Err(diagnostics) => {
                    assert_eq!(diagnostics.len(), 1, "{text}");
                    assert!(!diagnostics[0].render(&file.sources, false).is_empty());
                }
            }
        }
        Ok(())
    })
    .budget_ms(3000);
}
