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

@ct.kernel(occupancy=2, num_worker_warps=8, opt_level=2)
def add(a, b, c, N: ct.Constant[int]):
    i = ct.bid(0)
    total = ct.load(a, (i,), (N,)) + ct.load(b, (i,), (N,))
    ct.store(c, (i,), total)
",
        &[("a", array.clone()), ("b", array.clone()), ("c", array), ("N", ArgType::Const(ConstValue::Int(64)))],
        expect![[r#"
            schedule @add(%a: tile<ptr<f32>>, %a_n0: tile<i32>, %a_s0: tile<i32>, %b: tile<ptr<f32>>, %b_n0: tile<i32>, %b_s0: tile<i32>, %c: tile<ptr<f32>>, %c_n0: tile<i32>, %c_s0: tile<i32>) abi(a: array<f32, [?], [1], i32, align=16, disjoint>, b: array<f32, [?], [1], i32, align=16, disjoint>, c: array<f32, [?], [1], i32, align=16, disjoint>) hints(occupancy=2, num_worker_warps=8, opt_level=2) {
              %0 = assume %a {predicate=div_by(16)} : tile<ptr<f32>>
              %1 = make_tensor_view %0, [%a_n0], [] : tensor_view<?xf32, strides=[1]>
              %2 = assume %b {predicate=div_by(16)} : tile<ptr<f32>>
              %3 = make_tensor_view %2, [%b_n0], [] : tensor_view<?xf32, strides=[1]>
              %4 = assume %c {predicate=div_by(16)} : tile<ptr<f32>>
              %5 = make_tensor_view %4, [%c_n0], [] : tensor_view<?xf32, strides=[1]>
              %i = get_tile_block_id {axis=x} : tile<i32>
              %6 = make_partition_view %1 : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
              %7, %8 = load_view_tko %6, [%i] : tile<64xf32>, token
              %9 = make_partition_view %3 : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
              %10, %11 = load_view_tko %9, [%i] : tile<64xf32>, token
              %total = addf %7, %10 : tile<64xf32>
              %12 = make_partition_view %5 : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
              %13 = store_view_tko %total, %12, [%i] : token
              return
            }
        "#]],
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
        expect![[r#"
            schedule @first(%x: tile<ptr<i32>>, %x_n0: tile<i32>, %x_s0: tile<i32>, %n: tile<i32>) abi(x: array<i32, [?], [1], i32, align=16, disjoint>, n: scalar<i32>) {
              %0 = assume %x {predicate=div_by(16)} : tile<ptr<i32>>
              %1 = make_tensor_view %0, [%x_n0], [] : tensor_view<?xi32, strides=[1]>
              %2 = constant {value=i32(0)} : tile<i32>
              %i = loop [%2] : tile<i32> (%i.1: tile<i32>) {
                %3 = cmpi %i.1, %n {predicate=lt} : tile<i1>
                if %3 () {
                  yield []
                } () {
                  break [%i.1]
                }
                %4 = make_partition_view %1 : partition_view<tile=(1), tensor_view<?xi32, strides=[1]>>
                %5, %6 = load_view_tko %4, [%i.1] : tile<1xi32>, token
                %7 = reshape %5 : tile<i32>
                %8 = constant {value=i32(0)} : tile<i32>
                %9 = cmpi %7, %8 {predicate=gt} : tile<i1>
                if %9 () {
                  break [%i.1]
                } () {
                  yield []
                }
                %10 = constant {value=i32(1)} : tile<i32>
                %i.2 = addi %i.1, %10 : tile<i32>
                continue [%i.2]
              }
              %11 = constant {value=i32(0)} : tile<i32>
              %12 = reshape %i : tile<1xi32>
              %13 = make_partition_view %1 : partition_view<tile=(1), tensor_view<?xi32, strides=[1]>>
              %14 = store_view_tko %12, %13, [%11] : token
              return
            }
        "#]],
    );
}
