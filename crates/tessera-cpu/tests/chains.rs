//! Random chains of `f32` arithmetic with broadcasts, reductions and ragged edges: a fused launch gives the bits of a checked one,
//! which runs one operation at a time.

use crate::harness::{Data, launch};

/// Small random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.below(4001) as f32 / 1000.0 - 2.0).collect()
    }
}

fn view(name: &str, shape: [usize; 2], tile: [usize; 2], padding: &str) -> String {
    let tensor = format!("tensor_view<{}x{}xf32, strides=[{},1]>", shape[0], shape[1], shape[1]);
    format!(
        "  %{name}v = make_tensor_view %{name}, [], [] : {tensor}\n  %{name}p = make_partition_view %{name}v : partition_view<tile=({}x{}){padding}, {tensor}>\n",
        tile[0], tile[1]
    )
}

/// A program over tiles of `rows x n`, and what it says of itself.
fn program(random: &mut Random, shape: [usize; 2], [rows, n]: [usize; 2]) -> String {
    let ty = format!("tile<{rows}x{n}xf32>");
    let args = ["x", "y", "w", "o", "q"].map(|name| format!("%{name}: tile<ptr<f32>>")).join(", ");
    let mut s = format!(
        "schedule @k({args}) {{\n  %i = get_tile_block_id {{axis=x}} : tile<i32>\n  %z = constant {{value=i32(0)}} : tile<i32>\n"
    );
    for name in ["x", "y", "o", "q"] {
        s += &view(name, shape, [rows, n], if matches!(name, "x" | "y") { ", padding=zero" } else { "" });
    }
    s += &view("w", [1, n], [1, n], "");
    s += &format!(
        "  %v0, %t0 = load_view_tko %xp, [%i, %z] : {ty}, token\n  %v1, %t1 = load_view_tko %yp, [%i, %z] : {ty}, token\n"
    );
    s += &format!("  %w0, %t2 = load_view_tko %wp, [%z, %z] : tile<1x{n}xf32>, token\n  %v2 = broadcast %w0 : {ty}\n");
    s += &format!("  %v3 = constant {{value=f32(1.25)}} : {ty}\n");
    let mut values = 4;
    for step in 0..3 + random.below(8) {
        // Late values more often, so that chains become long.
        let pick = |random: &mut Random| if random.below(3) > 0 { values - 1 - random.below(2) } else { random.below(values) };
        let (a, b, c) = (pick(random), pick(random), pick(random));
        let v = values;
        s += &match random.below(10) {
            0 | 1 => format!("  %v{v} = addf %v{a}, %v{b} : {ty}\n"),
            2 | 3 => format!("  %v{v} = subf %v{a}, %v{b} : {ty}\n"),
            4 => format!("  %g{step} = tanh %v{a} : {ty}\n  %v{v} = mulf %g{step}, %v{b} : {ty}\n"),
            5 => format!("  %g{step} = tanh %v{a} : {ty}\n  %v{v} = fma %v{b}, %g{step}, %v{c} : {ty}\n"),
            6 => format!("  %g{step} = tanh %v{a} : {ty}\n  %v{v} = mulf %g{step}, %g{step} : {ty}\n"),
            7 => format!("  %g{step} = exp %v3 : {ty}\n  %v{v} = divf %v{a}, %g{step} : {ty}\n"),
            8 => format!("  %v{v} = maxf %v{a}, %v{b} : {ty}\n"),
            _ => {
                let (op, identity) = [("addf", "0.0"), ("maxf", "-inf"), ("minf", "inf")][random.below(3)];
                format!(
                    "  %r{step} = reduce [%v{a}] {{dim=1, identities=[f32({identity})]}} : tile<{rows}xf32> (%e{step}: tile<f32>, %a{step}: tile<f32>) {{
    %h{step} = {op} %e{step}, %a{step} : tile<f32>
    yield [%h{step}]
  }}
  %s{step} = reshape %r{step} : tile<{rows}x1xf32>
  %b{step} = broadcast %s{step} : {ty}
  %v{v} = tanh %b{step} : {ty}\n"
                )
            }
        };
        values += 1;
    }
    let (last, other) = (values - 1, random.below(values));
    s += &format!(
        "  %d0 = store_view_tko %v{last}, %op, [%i, %z] : token\n  %d1 = store_view_tko %v{other}, %qp, [%i, %z] : token\n"
    );
    s + "  return\n}\n"
}

#[test]
fn fused_chains_give_the_bits_of_single_operations() {
    let mut random = Random(7);
    for case in 0..60 {
        let rows = 1 + random.below(3);
        let n = [64, 100, 256, 300, 512, 1030][random.below(6)];
        // The last tile and the rows' ends may lie outside.
        let ragged = case % 3 == 0;
        let shape = [2 * rows + usize::from(ragged), if ragged { n - 1 - random.below(20) } else { n }];
        let text = program(&mut random, shape, [rows, n]);
        let len = shape[0] * shape[1];
        let zeros = vec![0.0_f32; len];
        let inputs = [random.numbers(len), random.numbers(len), random.numbers(n)];
        let mut data = [&inputs[0], &inputs[1], &inputs[2], &zeros, &zeros].map(|items| Data::of(items));
        launch(&text, [shape[0].div_ceil(rows) as u32, 1, 1], &mut data);
    }
}
