//! Per-thread kernels: what is checked, what types come out, what is refused.

use tessera_ir::Diagnostic;
use tessera_lang::simt::{SimtKernel, Space, check};
use tessera_lang::{ArgType, ConstValue, LowerOptions, lower, parse_file};
use tessera_types::DType;

type Args = Vec<(String, ArgType)>;

fn array(name: &str, dtype: DType, rank: usize) -> (String, ArgType) {
    (name.to_string(), ArgType::array(dtype, rank))
}

fn text(name: &str, value: &str) -> (String, ArgType) {
    (name.to_string(), ArgType::Const(ConstValue::Str(value.to_string())))
}

fn scalar(name: &str, dtype: DType) -> (String, ArgType) {
    (name.to_string(), ArgType::Scalar(dtype))
}

fn checked(source: &str, args: &[(String, ArgType)], options: &LowerOptions) -> Result<SimtKernel, Vec<Diagnostic>> {
    let file = parse_file("kernel.py", source);
    let kernel = file.kernels.keys().next().cloned().unwrap_or_default();
    check(&file, &kernel, args, options)
}

/// Checks a kernel that must be right.
fn right(source: &str, args: &[(String, ArgType)], options: &LowerOptions) -> SimtKernel {
    let file = parse_file("kernel.py", source);
    let rendered =
        |diagnostics: Vec<Diagnostic>| -> String { diagnostics.iter().map(|d| d.render(&file.sources, false)).collect() };
    checked(source, args, options).unwrap_or_else(|diagnostics| panic!("{args:?}\n{}", rendered(diagnostics)))
}

const VECTOR: &str = include_str!("seeds/vector_operations.py");
const LAYER_NORM: &str = include_str!("seeds/layernorm_safe.py");
const SOFTMAX: &str = include_str!("seeds/softmax_safe.py");
const BANDWIDTH: &str = include_str!("seeds/memory_bandwidth_kernel.py");

fn vector_args(dtype: DType, operation: &str) -> Args {
    let mut args =
        vec![array("x", dtype, 1), array("result", dtype, 1), scalar("alpha", DType::F32), text("operation", operation)];
    if matches!(operation, "axpy" | "dot" | "add" | "mul") {
        args.push(array("y", dtype, 1));
    }
    args
}

#[test]
fn seed_kernels_check_in_all_their_precisions() {
    let default = LowerOptions::default();
    let mut count = 0;
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        for operation in ["axpy", "dot", "norm", "add", "mul", "reduce_sum", "reduce_max"] {
            let kernel = right(VECTOR, &vector_args(dtype, operation), &default);
            assert!(!kernel.body.is_empty(), "{operation}");
            count += 1;
        }
        let args = [array("x", dtype, 3), array("weight", dtype, 1), array("bias", dtype, 1), array("output", dtype, 3)];
        let kernel = right(LAYER_NORM, &args, &default);
        assert_eq!(kernel.shared_bytes(), 2 * dtype.unpacked_bytes() as u64);
        count += 1;
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
        for causal in [false, true] {
            let mut args = vec![array("x", dtype, 4), array("output", dtype, 4)];
            args.push(("causal_mask".to_string(), ArgType::Const(ConstValue::Bool(causal))));
            right(SOFTMAX, &args, &default);
            count += 1;
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I8] {
        for operation in ["copy", "add", "scale", "triad"] {
            for pattern in ["sequential", "strided_2", "strided_4", "strided_8", "random"] {
                let mut args: Args = ["a", "b", "c"].iter().map(|name| array(name, dtype, 1)).collect();
                args.extend([scalar("scalar", dtype), text("operation", operation), text("access_pattern", pattern)]);
                right(BANDWIDTH, &args, &default);
                count += 1;
            }
        }
    }
    assert_eq!(count, 5 * 7 + 5 + 8 + 100);
}

#[test]
fn variables_have_the_common_type_of_what_is_assigned() {
    let local = |dtype, name: &str| {
        let kernel = right(VECTOR, &vector_args(dtype, "dot"), &LowerOptions::default());
        kernel.locals.iter().find(|local| local.name == name).map(|local| local.dtype)
    };
    assert_eq!(local(DType::BF16, "local_sum"), Some(DType::F32));
    assert_eq!(local(DType::F64, "local_sum"), Some(DType::F64));
    assert_eq!(local(DType::F8E4M3, "warp_sum"), Some(DType::F32));
    let kernel = right(SOFTMAX, &[array("x", DType::F16, 4), array("output", DType::F16, 4)], &LowerOptions::default());
    let shared: Vec<&str> =
        kernel.allocations.iter().filter(|own| own.space == Space::Shared).map(|own| own.name.as_str()).collect();
    assert_eq!(shared, ["smem_max", "smem_sum"]);
    // Every thread reads the same maximum behind the barrier; its own exponentials differ.
    let uniform = |name: &str| kernel.locals.iter().find(|local| local.name == name).map(|local| local.uniform);
    assert_eq!((uniform("global_max"), uniform("local_sum"), uniform("batch_idx")), (Some(true), Some(false), Some(true)));
}

#[test]
fn threads_a_block_follow_the_rule() {
    let args = vector_args(DType::F32, "add");
    let threads = |block: Option<u32>, config: &[(&str, i64)]| {
        let config = config.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        let options = LowerOptions { block, config, ..LowerOptions::default() };
        checked(VECTOR, &args, &options).map(|kernel| (kernel.threads, kernel.config["num_warps"])).map_err(|d| d[0].id)
    };
    assert_eq!(threads(None, &[]), Ok((128, 4)));
    assert_eq!(threads(Some(512), &[]), Ok((512, 16)));
    assert_eq!(threads(None, &[("BLOCK_SIZE", 256)]), Ok((256, 8)));
    assert_eq!(threads(None, &[("num_warps", 16)]), Ok((512, 16)));
    assert_eq!(threads(Some(96), &[]), Err("block-size-clash"));
    assert_eq!(threads(Some(128), &[("BLOCK_SIZE", 256)]), Err("block-size-clash"));
    assert_eq!(threads(None, &[("BLOCK_SIZE", 128), ("num_warps", 8)]), Err("tuning-space"));
    // Without a space, the caller's number stands, else four warps.
    let plain = "@tessera.kernel\ndef k(x: Tensor[\"N\", dtype]):\n    x[tile.thread_id()] = tile.block_size()\n";
    let own = |block| {
        let options = LowerOptions { block, ..LowerOptions::default() };
        checked(plain, &[array("x", DType::F32, 1)], &options).map(|kernel| kernel.threads).map_err(|d| d[0].id)
    };
    assert_eq!((own(None), own(Some(96)), own(Some(2048))), (Ok(128), Ok(96), Err("block-size-clash")));
    // The decorator's number stands where nobody else has one; what threads do by themselves is not asked of the compiler.
    let decorated = |option: &str, block| {
        let source = plain.replacen("kernel", &format!("kernel({option})"), 1);
        let options = LowerOptions { block, ..LowerOptions::default() };
        checked(&source, &[array("x", DType::F32, 1)], &options)
            .map(|kernel| (kernel.threads, kernel.occupancy))
            .map_err(|d| d[0].id)
    };
    assert_eq!(decorated("num_warps=8", None), Ok((256, None)));
    assert_eq!(decorated("num_warps=8, occupancy=2", Some(64)), Ok((64, Some(2))));
    assert_eq!(decorated("num_stages=3", None), Err("kernel-option"));
}

#[test]
fn a_kernel_becomes_a_tile_function_whose_text_reads_back() {
    let source = r#"
@tessera.kernel
def k(x: Tensor["N", dtype], y: Tensor["M", dtype], most: int = 4):
    s = tile.alloc_shared[fp32](4)
    i = tile.linear_id()
    if i < x.shape[0]:
        total = 0.0
        for h in range(most):
            if x[i] < 0.0:
                break
            total += x[i] * h
        s[i % 4] = total
    tile.barrier()
    tile.atomic_max(y[0], s[0])
"#;
    let file = parse_file("kernel.py", source);
    let args = [array("x", DType::F32, 1), array("y", DType::F32, 1)];
    let options = LowerOptions { block: Some(96), ..LowerOptions::default() };
    let module = lower(&file, "k", &args, &options).unwrap();
    let wrong: Vec<String> = tessera_ir::verify(&module).iter().map(|found| found.render(&file.sources, false)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let text = tessera_ir::text::print_module(&module);
    assert!(text.contains("hints(num_warps=3, num_threads=96)"), "{text}");
    let again = tessera_ir::text::parse_module("k.tir", &text).unwrap_or_else(|(_, wrong)| panic!("{}\n{text}", wrong.message));
    assert_eq!(tessera_ir::text::print_module(&again), text);
}

#[test]
fn parameters_and_helpers_may_be_assigned_to() {
    let source = r#"
def half(v, n=3):
    if v > 1.0:
        n = 5
    v = v * 0.5
    return v + n

@tessera.kernel
def k(x: Tensor["N", dtype], limit: int = 4):
    i = tile.linear_id()
    if i < 100:
        limit = 7
    for h in range(0, limit):
        x[i + h] = half(x[i])
"#;
    let kernel = right(source, &[array("x", DType::BF16, 1)], &LowerOptions::default());
    let local = |name: &str| kernel.locals.iter().find(|local| local.name == name).map(|local| (local.dtype, local.uniform));
    assert_eq!(local("limit"), Some((DType::I32, false)));
    assert_eq!(local("v"), Some((DType::BF16, false)));
    assert_eq!(local("n"), Some((DType::I32, false)));
}

#[test]
fn deep_and_explosive_sources_end_in_a_diagnostic() {
    let sum = vec!["v"; 200].join(" + ");
    let mut deep = format!("def f0(v):\n    return {sum}\n");
    for level in 1..40 {
        deep.push_str(&format!("def f{level}(v):\n    return f{}(v) + {sum}\n", level - 1));
    }
    let mut wide = "def g0(v):\n    return v + 1\n".to_string();
    for level in 1..40 {
        wide.push_str(&format!("def g{level}(v):\n    return g{0}(v) + g{0}(v)\n", level - 1));
    }
    let kernel = |call: &str| {
        format!("@tessera.kernel\ndef k(x: Tensor[\"N\", dtype]):\n    i = tile.linear_id()\n    x[i] = {call}(x[i])\n")
    };
    let whole =
        |call: &str| format!("@tessera.kernel\ndef k(x: Tensor[\"N\", dtype]):\n    tile.store(x, {call}(tile.load(x)))\n");
    let args = [array("x", DType::F32, 1)];
    let options = LowerOptions::default();
    right(&format!("{deep}{}", kernel("f39")), &args, &options);
    let found = checked(&format!("{wide}{}", kernel("g39")), &args, &options).map(|_| ()).map_err(|d| d[0].id);
    assert_eq!(found, Err("kernel-too-large"));
    let file = parse_file("kernel.py", &format!("{wide}{}", whole("g39")));
    assert_eq!(lower(&file, "k", &args, &options).map(|_| ()).map_err(|d| d[0].id), Err("kernel-too-large"));
    let file = parse_file("kernel.py", &format!("{deep}{}", whole("f39")));
    assert!(lower(&file, "k", &args, &options).is_ok());
}

#[test]
fn integers_to_a_known_power_are_multiplied() {
    let threads = "@tessera.kernel\ndef k(x: Tensor[\"N\", int32], y: Tensor[\"N\", int32]):\n    i = tile.thread_id()\n    y[i] = x[i] ** 5\n";
    let whole =
        "@tessera.kernel\ndef k(x: Tensor[\"N\", int32], y: Tensor[\"N\", int32]):\n    tile.store(y, tile.load(x) ** 5)\n";
    for source in [threads, whole] {
        let file = parse_file("kernel.py", source);
        let args = [array("x", DType::I32, 1), array("y", DType::I32, 1)];
        let text = tessera_ir::text::print_module(&lower(&file, "k", &args, &LowerOptions::default()).unwrap());
        // Two squares and one product.
        assert_eq!(text.matches("= muli ").count(), 3, "{text}");
        assert!(!text.contains("itof") && !text.contains("pow"), "{text}");
    }
}
