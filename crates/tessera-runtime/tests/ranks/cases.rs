//! The cases that the pass is for, on meshes of 2, 3, 4 and 8 ranks.

use tessera_compile::RankStep;
use tessera_ir::GraphOp;
use tessera_types::DType;

use super::{Outcome, both, close, equal, integers, normal, same_bits};

/// The exchanges of a program in order, by mnemonic, without slices.
fn exchanges(outcome: &Outcome) -> Vec<&'static str> {
    let exchange = |step: &RankStep| match step {
        RankStep::Exchange { kind: GraphOp::Shard { .. }, .. } | RankStep::Kernel(_) => None,
        RankStep::Exchange { kind, .. } => kind.row().mnemonic.strip_prefix("graph."),
    };
    outcome.ranked.program().steps.iter().filter_map(exchange).collect()
}

/// `out = A B` with shardings and a mesh; 48 x 24 x 96.
fn product(elem: &str, result: &str, shardings: [&str; 3], mesh: &str) -> String {
    product_of([48, 24, 96], elem, result, shardings, mesh)
}

/// The same of any rows, terms and columns.
pub(super) fn product_of([m, k, n]: [usize; 3], elem: &str, result: &str, shardings: [&str; 3], mesh: &str) -> String {
    let state = |sharding: &str| if sharding.is_empty() { String::new() } else { format!(" {{sharding = \"{sharding}\"}}") };
    let [a, b, c] = shardings.map(state);
    format!(
        "graph @f(%A: operand<{m}x{k}x{elem}>{a}, %B: operand<{k}x{n}x{elem}>{b}, %out: operand<{m}x{n}x{result}>{c}) \
         abi(A: operand<{elem}, [\"{m}\", \"{k}\"]>, B: operand<{elem}, [\"{k}\", \"{n}\"]>, out: operand<{result}, [\"{m}\", \"{n}\"]>) \
         mesh({mesh}) {{
  %a = graph.load %A : tensor<{m}x{k}x{elem}>
  %b = graph.load %B : tensor<{k}x{n}x{elem}>
  %c = graph.contract %a, %b : tensor<{m}x{n}x{result}>
  graph.store %c, %out
  return
}}"
    )
}

#[test]
fn products_divided_along_one_mesh_axis() {
    let cases: &[([&str; 3], &[&str])] = &[
        (["[_, tp]", "[tp, _]", ""], &["all_reduce"]),
        (["[_, tp]", "", ""], &["all_reduce"]),
        (["", "[tp, _]", ""], &["all_reduce"]),
        (["[_, tp]", "[tp, _]", "[_, _]"], &["all_reduce"]),
        (["[_, tp]", "[tp, _]", "[tp, _]"], &["reduce_scatter"]),
        (["[_, tp]", "", "[_, tp]"], &["reduce_scatter"]),
        (["[tp, _]", "", ""], &[]),
        (["", "[_, tp]", ""], &[]),
        (["[tp, _]", "", "[tp, _]"], &[]),
        (["", "[_, tp]", "[_, _]"], &["all_gather"]),
        (["[tp, _]", "", "[_, tp]"], &["all_to_all"]),
        (["[tp, _]", "[_, tp]", ""], &["all_gather"]),
        (["", "", "[tp, _]"], &[]),
    ];
    for (shardings, wanted) in cases {
        for size in [2, 3, 4, 8] {
            for (elem, result) in [("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("i8", "i32")] {
                let text = product(elem, result, *shardings, &format!("tp={size}"));
                let outcome = both(&text, &[], integers(7));
                equal(&outcome, &text);
                assert_eq!(exchanges(&outcome), *wanted, "{text}");
            }
        }
    }
}

#[test]
fn products_divided_along_two_mesh_axes() {
    let cases: &[([&str; 3], &[&str])] = &[
        (["[dp, _]", "[_, tp]", ""], &[]),
        (["[dp, tp]", "[tp, _]", ""], &["all_reduce"]),
        (["[dp, tp]", "[tp, _]", "[dp, tp]"], &["reduce_scatter"]),
        (["[dp, tp]", "", "[tp, dp]"], &["reduce_scatter", "all_to_all"]),
        (["[dp, _]", "[tp, _]", "[dp, _]"], &["all_reduce"]),
    ];
    for (shardings, wanted) in cases {
        for mesh in ["dp=2, tp=2", "dp=2, tp=4", "dp=4, tp=2", "dp=3, tp=2"] {
            let text = product("bf16", "f32", *shardings, mesh);
            let outcome = both(&text, &[], integers(11));
            equal(&outcome, &text);
            if shardings[2] != "[tp, dp]" {
                assert_eq!(exchanges(&outcome), *wanted, "{text}");
            }
        }
    }
}

#[test]
fn split_sums_of_real_numbers_stay_within_their_bound() {
    for (elem, result, relative) in [("f32", "f32", 1e-5), ("f16", "f32", 1e-5), ("bf16", "bf16", 1e-2), ("f16", "f16", 4e-3)] {
        for size in [2, 3, 4, 8] {
            let text = product(elem, result, ["[_, tp]", "[tp, _]", ""], &format!("tp={size}"));
            close(&both(&text, &[], normal(3)), relative, relative * 5.0, &text);
        }
    }
}

/// Two products with an activation between, the first by columns and the second by rows.
#[test]
fn a_pair_of_products_exchanges_once() {
    for size in [2, 3, 4] {
        let text = format!(
            "graph @f(%X: operand<@Mx@Kxbf16>, %W: operand<@Kx@Hxbf16> {{sharding = \"[_, tp]\"}}, \
             %V: operand<@Hx@Nxbf16> {{sharding = \"[tp, _]\"}}, %out: operand<@Mx@Nxf32>, %s: tile<f32>) \
             abi(X: operand<bf16, [\"M\", \"K\"]>, W: operand<bf16, [\"K\", \"H\"]>, V: operand<bf16, [\"H\", \"N\"]>, \
             out: operand<f32, [\"M\", \"N\"]>, s: scalar<f32>) mesh(tp={size}) {{
  %x = graph.load %X : tensor<@Mx@Kxbf16>
  %w = graph.load %W : tensor<@Kx@Hxbf16>
  %h = graph.contract %x, %w : tensor<@Mx@Hxf32>
  %zero = constant {{value=f32(0.0)}} : tile<f32>
  %z = graph.broadcast %zero : tensor<@Mx@Hxf32>
  %r = maxf %h, %z : tensor<@Mx@Hxf32>
  %n = ftof %r : tensor<@Mx@Hxbf16>
  %v = graph.load %V : tensor<@Hx@Nxbf16>
  %p = graph.contract %n, %v : tensor<@Mx@Nxf32>
  %t = graph.broadcast %s : tensor<@Mx@Nxf32>
  %y = mulf %p, %t : tensor<@Mx@Nxf32>
  graph.store %y, %out
  return
}}"
        );
        let sizes = [("M", 10), ("K", 7), ("H", 36), ("N", 17)];
        let outcome = both(&text, &sizes, integers(5));
        equal(&outcome, &text);
        assert_eq!(exchanges(&outcome), ["all_reduce"]);
        close(&both(&text, &sizes, normal(5)), 1e-4, 1e-3, &text);
    }
}

/// Lines of products with keys, exponentials of differences from their maxima, products with values.
fn lines(elem: &str, query: &str, keys: &str, mesh: &str, bias: bool) -> String {
    lines_of([2, 4, 48], elem, query, keys, mesh, bias)
}

/// The same of any batches, heads and keys.
pub(super) fn lines_of([n, h, t]: [usize; 3], elem: &str, query: &str, keys: &str, mesh: &str, bias: bool) -> String {
    let (load, add, score) = if bias {
        (
            format!("  %bias = graph.load %B : tensor<{n}x{h}x24x{t}xf32>\n"),
            format!("  %s = addf %s0, %bias : tensor<{n}x{h}x24x{t}xf32>\n"),
            "s0",
        )
    } else {
        (String::new(), String::new(), "s")
    };
    format!(
        "graph @f(%Q: operand<{n}x{h}x24x16x{elem}> {{sharding = \"{query}\"}}, %K: operand<{n}x{h}x{t}x16x{elem}> {{sharding = \"{keys}\"}}, \
         %V: operand<{n}x{h}x{t}x16x{elem}> {{sharding = \"{keys}\"}}, %B: operand<{n}x{h}x24x{t}xf32>, %out: operand<{n}x{h}x24x16x{elem}>) \
         abi(Q: operand<{elem}, [\"{n}\", \"{h}\", \"24\", \"16\"]>, K: operand<{elem}, [\"{n}\", \"{h}\", \"{t}\", \"16\"]>, \
         V: operand<{elem}, [\"{n}\", \"{h}\", \"{t}\", \"16\"]>, B: operand<f32, [\"{n}\", \"{h}\", \"24\", \"{t}\"]>, \
         out: operand<{elem}, [\"{n}\", \"{h}\", \"24\", \"16\"]>) mesh({mesh}) {{
  %q = graph.load %Q : tensor<{n}x{h}x24x16x{elem}>
  %k = graph.load %K {{transpose=true}} : tensor<{n}x{h}x16x{t}x{elem}>
  %{score} = graph.contract %q, %k : tensor<{n}x{h}x24x{t}xf32>
{load}{add}  %m = graph.reduce %s {{axis=3, combine=max}} : tensor<{n}x{h}x24x1xf32>
  %mb = graph.broadcast %m : tensor<{n}x{h}x24x{t}xf32>
  %d = subf %s, %mb : tensor<{n}x{h}x24x{t}xf32>
  %e = exp %d : tensor<{n}x{h}x24x{t}xf32>
  %l = graph.reduce %e {{axis=3, combine=sum}} : tensor<{n}x{h}x24x1xf32>
  %p = {cast}
  %v = graph.load %V : tensor<{n}x{h}x{t}x16x{elem}>
  %acc = graph.contract %p, %v : tensor<{n}x{h}x24x16xf32>
  %lb = graph.broadcast %l : tensor<{n}x{h}x24x16xf32>
  %o = divf %acc, %lb : tensor<{n}x{h}x24x16xf32>
  %h = {last}
  graph.store %h, %out
  return
}}",
        cast = if elem == "f32" { format!("negf %e : tensor<{n}x{h}x24x{t}xf32>") } else { format!("ftof %e : tensor<{n}x{h}x24x{t}x{elem}>") },
        last = if elem == "f32" { format!("negf %o : tensor<{n}x{h}x24x16xf32>") } else { format!("ftof %o : tensor<{n}x{h}x24x16x{elem}>") },
    )
}

#[test]
fn lines_over_heads_and_batches_exchange_nothing() {
    for (sharding, mesh) in
        [("[_, tp, _, _]", "tp=2"), ("[_, tp, _, _]", "tp=4"), ("[dp, tp, _, _]", "dp=2, tp=4"), ("[dp, _, _, _]", "dp=2")]
    {
        let text = lines("f16", sharding, sharding, mesh, false);
        let outcome = both(&text, &[], normal(1));
        assert_eq!(exchanges(&outcome), [""; 0], "{text}");
        same_bits(&outcome, &text);
    }
}

#[test]
fn lines_over_divided_keys_meet_once() {
    for (elem, relative, absolute) in [("f32", 1e-5, 1e-5), ("f16", 4e-3, 2e-3), ("bf16", 3e-2, 2e-2)] {
        for (keys, mesh) in
            [("[_, _, tp, _]", "tp=2"), ("[_, _, tp, _]", "tp=3"), ("[_, _, tp, _]", "tp=8"), ("[dp, _, tp, _]", "dp=2, tp=4")]
        {
            let query = keys.replace("tp", "_");
            let text = lines(elem, &query, keys, mesh, false);
            let outcome = both(&text, &[], normal(2));
            // The maximum, then sums and products together.
            assert_eq!(exchanges(&outcome), ["all_reduce", "all_reduce"], "{text}");
            close(&outcome, relative, absolute, &text);
        }
    }
}

#[test]
fn a_rank_with_nothing_but_masked_keys_adds_nothing() {
    let fill = |name: &str, dtype: DType, shape: &[usize]| match name {
        // Causal, and one line that sees nothing at all.
        "B" => {
            let seen = |row: usize, column: usize| row != 5 && column <= row;
            let value = |i: usize| if seen(i / 48 % 24, i % 48) { 0.0 } else { f64::NEG_INFINITY };
            let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
            tessera_runtime::Tensor::from_f64(dtype, shape, &values).unwrap()
        }
        _ => normal(4)(name, dtype, shape),
    };
    let text = lines("f32", "[_, _, _, _]", "[_, _, tp, _]", "tp=4", true);
    let outcome = both(&text, &[], fill);
    for ((_, alone), (_, together)) in outcome.alone.iter().zip(&outcome.together) {
        for (i, (a, b)) in alone.to_f64().unwrap().iter().zip(together.to_f64().unwrap()).enumerate() {
            assert_eq!(a.is_nan(), i / 16 % 24 == 5);
            assert!((a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1e-5 * a.abs(), "{i}: {a} {b}");
        }
    }
}

/// Under a condition, with the result read as well as written, and a size that is asked for.
#[test]
fn conditions_sizes_and_operands_that_are_overwritten() {
    for (a, c) in [("[_, tp]", ""), ("[tp, _]", "[_, tp]"), ("[_, tp]", "[tp, _]")] {
        let state = if c.is_empty() { String::new() } else { format!(" {{sharding = \"{c}\"}}") };
        let text = format!(
            "graph @f(%A: operand<@Mx@Kxf32> {{sharding = \"{a}\"}}, %B: operand<@Kx@Nxf32>, %C: operand<@Mx@Nxf32>{state}, %beta: tile<f32>) \
             abi(A: operand<f32, [\"M\", \"K\"]>, B: operand<f32, [\"K\", \"N\"]>, C: operand<f32, [\"M\", \"N\"]>, beta: scalar<f32>) mesh(tp=2) {{
  %a = graph.load %A : tensor<@Mx@Kxf32>
  %b = graph.load %B : tensor<@Kx@Nxf32>
  %p = graph.contract %a, %b : tensor<@Mx@Nxf32>
  %m, %k = get_tensor_shape %A : tile<i32>, tile<i32>
  %sum = addi %m, %k : tile<i32>
  %f = itof %sum : tile<f32>
  %fb = graph.broadcast %f : tensor<@Mx@Nxf32>
  %s = mulf %p, %fb : tensor<@Mx@Nxf32>
  %zero = constant {{value=f32(0.0)}} : tile<f32>
  %reads = cmpf %beta, %zero {{predicate=ne, nan=unordered}} : tile<i1>
  %r = if %reads : tensor<@Mx@Nxf32> () {{
    %c = graph.load %C : tensor<@Mx@Nxf32>
    %be = graph.broadcast %beta : tensor<@Mx@Nxf32>
    %t = mulf %c, %be : tensor<@Mx@Nxf32>
    %u = addf %s, %t : tensor<@Mx@Nxf32>
    yield [%u]
  }} () {{
    yield [%s]
  }}
  graph.store %r, %C
  return
}}"
        );
        let outcome = both(&text, &[("M", 12), ("K", 6), ("N", 14)], integers(9));
        equal(&outcome, &text);
    }
}
