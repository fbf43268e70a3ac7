//! Text form: what is printed parses, and prints again to the same bytes.

use tessera_ir::text::{parse_module, print_module};

fn check(text: &str) {
    let module = parse_module("test.tir", text).unwrap_or_else(|(module, d)| panic!("{}", d.render(&module.sources, false)));
    let printed = print_module(&module);
    let again = parse_module("again.tir", &printed).unwrap_or_else(|(m, d)| panic!("{}\n{printed}", d.render(&m.sources, false)));
    assert_eq!(printed, print_module(&again));
    assert_eq!(printed, text.trim_start());
}

#[test]
fn schedule() {
    check(
        r#"
global @table [4] = i32[1, -2, 3, 4]

schedule @k(%x: tile<ptr<f32>>, %n: tile<i32>, %s: tile<i32>) abi(x: array<f32, [?], [1], i32, align=16>) hints(occupancy=2) config(BLOCK_M=64) {
  %i = get_tile_block_id {axis=x} : tile<i32>
  %0 = make_tensor_view %x, [%n], [] : tensor_view<?xf32, strides=[1]>
  %1 = make_partition_view %0 : partition_view<tile=(64), padding=zero, tensor_view<?xf32, strides=[1]>>
  %2, %3 = load_view_tko %1, [%i] {latency=2} : tile<64xf32>, token
  %4 = constant {value=f32(1.5)} : tile<64xf32>
  %5 = mulf %2, %4 {rounding=zero, flush_to_zero=true} : tile<64xf32>
  %6 = reduce [%5] {dim=0, identities=[f32(0.0)]} : tile<f32> (%7: tile<f32>, %8: tile<f32>) {
    %9 = addf %7, %8 : tile<f32>
    yield [%9]
  }
  %10 = store_view_tko %5, %1, [%i], token=%3 : token
  print_tko_free
}
"#
        .replace("  print_tko_free\n", "  return\n")
        .as_str(),
    );
}

#[test]
fn graph() {
    check(
        r#"
graph @gemm(%A: operand<@Mx@Kxbf16>, %C: operand<@Mx@"xs"xf32>) abi(A: operand<bf16, ["M", "K"]>, C: operand<f32, ["M", "xs"]>) {
  %a = graph.load %A {transpose=true} : tensor<@Mx@Kxbf16>
  graph.store %a, %C
  return
}
"#,
    );
}

#[test]
fn tile() {
    check(
        r#"
tile @k(%x: tile<ptr<bf16>>, %n: tile<i32>, %s: tile<i32>) abi(x: array<bf16, [?], [1], i32, align=16>) hints(num_warps=4) layouts(#0 = <reg=[1..4@0], lane=[8..128@0], warp=[256..512@0]>, #1 = <lane=[1..16@0], warp=[32..64@0]>) {
  %t = tile.thread_id : tile<i32>
  %0 = make_tensor_view %x, [%n], [] : tensor_view<?xbf16, strides=[1]>
  %1 = make_partition_view %0 : partition_view<tile=(1024), padding=zero, tensor_view<?xbf16, strides=[1]>>
  %2, %3 = load_view_tko %1, [%t] : tile<1024xbf16, #0>, token
  %4 = tile.convert_layout %2 : tile<1024xbf16, #0>
  %5 = iota : tile<128xi32, #1>
  %6 = tile.alloc_shared {align=128} : shared<4x64x16xbf16, swizzle=<3,4,3>, order=[0,2,1], pad=8>
  %7 = tile.ring [%6] {stages=4, producer=tma, consumers=2, bytes=2048} : ring<4, [shared<64x16xbf16, swizzle=<3,4,3>, order=[1,0], pad=8>]>
  %8 = tile.ring_start %7 : cursor
  %9 = tile.alloc_register : registers<8xf32>
  %10 = tile.load_element %9, [%t] : tile<f32>
  tile.role {first_warp=0, warps=1, registers=40} () {
    tile.acquire %7, %8
    %11 = tile.slot %7, %8 {buffer=0} : shared<64x16xbf16, swizzle=<3,4,3>, order=[1,0], pad=8>
    yield []
  }
  tile.mark {name="end"}
  return
}
"#,
    );
}

#[test]
fn hostile_text_gives_an_error_with_its_place() {
    for (text, id, line) in [
        ("schedule @k() {\n  %a = addf %b, %c : tile<f32>\n}", "ir-unknown-value", 2),
        ("schedule @k() {\n  %a = addq : tile<f32>\n}", "ir-unknown-op", 2),
        ("schedule @k() {\n  return {x=1}\n}", "ir-attribute", 2),
        ("schedule @k() {\n  %a = constant {value=f32(abc)} : tile<f32>\n}", "ir-constant", 2),
        ("schedule @k() {\n  %a = constant {value=f32(1.0) : tile<f32>\n}", "ir-syntax", 2),
        ("schedule @k(", "ir-syntax", 1),
        ("schedule @k() {\n  %a, %b = iota : tile<4xi32>\n}", "ir-results", 2),
        ("tile @k() {\n  %a = iota : tile<4xi32, #0>\n}", "ir-layout", 2),
        ("tile @k() layouts(#0 = <lane=[1@0]>) {\n  %a = iota : tile<4xi32, #0>\n}", "ir-layout", 2),
        ("tile @k() layouts(#0 = <lane=[1@0]) {\n  return\n}", "ir-syntax", 1),
        ("tile @k() layouts(#1 = <lane=[1@0]>) {\n  return\n}", "ir-syntax", 1),
        ("tile @k() {\n  %a = tile.alloc_shared {align=1} : shared<4xf32, swizzle=<1,2>>\n}", "ir-syntax", 2),
        ("wat", "ir-syntax", 1),
    ] {
        let Err((module, diagnostic)) = parse_module("bad.tir", text) else { panic!("accepted: {text}") };
        assert_eq!(diagnostic.id, id, "{}", diagnostic.render(&module.sources, false));
        let span = diagnostic.primary.expect("a place").span;
        assert_eq!(module.sources.get(span.source).line_column(span.start).0, line, "{text}");
    }
}
