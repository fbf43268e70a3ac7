//! What kernels become, as text: the form that later stages start from.

use expect_test::{Expect, expect};
use tessera_lang::{ArgType, ConstValue, LowerOptions, lower, parse_file};
use tessera_types::DType;

fn check(text: &str, args: &[(&str, ArgType)], expected: Expect) {
    let file = parse_file("kernel.py", text);
    let name = file.kernels.keys().next().expect("the text has a kernel").clone();
    let args: Vec<_> = args.iter().map(|(name, arg)| (name.to_string(), arg.clone())).collect();
    let module = lower(&file, &name, &args, &LowerOptions::default()).expect("the kernel is right");
    assert!(tessera_ir::verify(&module).is_empty());
    let printed = tessera_ir::text::print_module(&module);
    let again = lower(&file, &name, &args, &LowerOptions::default()).expect("the kernel is right");
    assert_eq!(printed, tessera_ir::text::print_module(&again), "lowering twice gives the same text");
    expected.assert_eq(&printed);
}

#[test]
fn vector_addition() {
    let array = ArgType::array(DType::F32, 1);
    check(
        "
import cuda.tile as ct

@ct.kernel(occupancy=2)
def add(a, b, c, N: ct.Constant[int]):
    i = ct.bid(0)
    total = ct.load(a, (i,), (N,)) + ct.load(b, (i,), (N,))
    ct.store(c, (i,), total)
",
        &[("a", array.clone()), ("b", array.clone()), ("c", array), ("N", ArgType::Const(ConstValue::Int(64)))],
        expect![[""]],
    );
}

#[test]
fn loop_with_break() {
    check(
        "
import cuda.tile as ct

@ct.kernel
def first(x, n):
    i = 0
    while i < n:
        if ct.load(x, (i,), ()) > 0:
            break
        i += 1
    ct.store(x, (0,), i)
",
        &[("x", ArgType::array(DType::I32, 1)), ("n", ArgType::Scalar(DType::I32))],
        expect![[""]],
    );
}
