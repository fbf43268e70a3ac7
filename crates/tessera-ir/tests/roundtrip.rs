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
fn hostile_text_gives_an_error_with_its_place() {
    for (text, id, line) in [
        ("schedule @k() {\n  %a = addf %b, %c : tile<f32>\n}", "ir-unknown-value", 2),
        ("schedule @k() {\n  %a = addq : tile<f32>\n}", "ir-unknown-op", 2),
        ("schedule @k() {\n  return {x=1}\n}", "ir-attribute", 2),
        ("schedule @k() {\n  %a = constant {value=f32(abc)} : tile<f32>\n}", "ir-constant", 2),
        ("schedule @k() {\n  %a = constant {value=f32(1.0) : tile<f32>\n}", "ir-syntax", 2),
        ("schedule @k(", "ir-syntax", 1),
        ("schedule @k() {\n  %a, %b = iota : tile<4xi32>\n}", "ir-results", 2),
        ("wat", "ir-syntax", 1),
    ] {
        let Err((module, diagnostic)) = parse_module("bad.tir", text) else { panic!("accepted: {text}") };
        assert_eq!(diagnostic.id, id, "{}", diagnostic.render(&module.sources, false));
        let span = diagnostic.primary.expect("a place").span;
        assert_eq!(module.sources.get(span.source).line_column(span.start).0, line, "{text}");
    }
}
