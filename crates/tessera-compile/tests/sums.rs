//! The class of the order of a kernel's sums: what it depends on, and what it does not.

use tessera_compile::{CompileOptions, compile, is_fixed_order, order_of_sums};
use tessera_lang::{ArgType, parse_file};
use tessera_types::DType;

fn class(body: &str, threads: Option<u32>) -> String {
    let text = format!("import cuda.tile as ct\n\n@ct.kernel\ndef k(x, y):\n    t = ct.load(x, (0, 0), (16, 64))\n    {body}\n");
    let args = ["x", "y"].map(|name| (name.to_string(), ArgType::array(DType::F32, 2)));
    let compiled = compile(&parse_file("k.py", &text), "k", &args, &CompileOptions::default()).expect("a kernel");
    order_of_sums(compiled.func(), threads)
}

#[test]
fn sums_depend_on_the_tile_and_the_threads_and_maxima_on_nothing() {
    let sum = "ct.store(y, (0, 0), ct.sum(t, axis=1, keepdims=True))";
    assert_eq!(class(sum, None), "sum 16x64 along 1");
    assert_eq!(class(sum, Some(128)), "sum 16x64 along 1, 128 threads");
    assert_eq!(class("ct.store(y, (0, 0), ct.max(t, axis=1, keepdims=True))", Some(128)), "none");
    assert_eq!(class("ct.store(y, (0, 0), t + t)", Some(128)), "none");
}

#[test]
fn products_depend_on_how_much_of_the_contraction_an_instruction_takes() {
    let mma = "acc = ct.mma(t, ct.load(x, (0, 0), (64, 32)), ct.zeros((16, 32), ct.float32))\n    ct.store(y, (0, 0), acc)";
    assert_eq!(class(mma, Some(256)), "mma 64");
}

#[test]
fn atomics_come_in_any_order() {
    assert!(is_fixed_order("sum 16x64 along 1, 128 threads") && is_fixed_order("none"));
    assert!(!is_fixed_order("mma 64, atomics"));
}
