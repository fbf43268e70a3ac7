//! Shapes, views, products, reductions, scans and control flow against plain references.

use crate::harness::{self, Data, launch, parse};

fn noise(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97_531)) >> 12) as f32 / 524_288.0 - 1.0)
        .collect()
}

/// Views of a `rows x columns` array cut into tiles.
fn view(name: &str, elem: &str, shape: [usize; 2], tile: [usize; 2], extra: &str) -> String {
    let tensor = format!("tensor_view<{}x{}x{elem}, strides=[{},1]>", shape[0], shape[1], shape[1]);
    let (padding, map) = extra.split_once(';').unwrap_or((extra, ""));
    format!(
        "  %{name}v = make_tensor_view %{name}, [], [] : {tensor}\n  %{name}p = make_partition_view %{name}v : partition_view<tile=({}x{}){padding}, {tensor}{map}>\n",
        tile[0], tile[1]
    )
}

fn matmul(m: usize, n: usize, k: usize, t: [usize; 3], transposed: bool) -> String {
    let mut s = "schedule @mm(%a: tile<ptr<f32>>, %b: tile<ptr<f32>>, %c: tile<ptr<f32>>) {\n".to_string();
    s += "  %i = get_tile_block_id {axis=x} : tile<i32>\n  %j = get_tile_block_id {axis=y} : tile<i32>\n";
    s += &view("a", "f32", [m, k], [t[0], t[2]], ", padding=zero");
    s += &if transposed {
        view("b", "f32", [n, k], [t[2], t[1]], ", padding=zero;, dim_map=[1,0]")
    } else {
        view("b", "f32", [k, n], [t[2], t[1]], ", padding=zero")
    };
    s += &view("c", "f32", [m, n], [t[0], t[1]], "");
    s += &format!(
        "  %zero = constant {{value=f32(0.0)}} : tile<{0}x{1}xf32>\n  %lo = constant {{value=i32(0)}} : tile<i32>\n  %hi = constant {{value=i32({2})}} : tile<i32>\n  %one = constant {{value=i32(1)}} : tile<i32>\n  %acc = for %lo, %hi, %one, [%zero] : tile<{0}x{1}xf32> (%q: tile<i32>, %s: tile<{0}x{1}xf32>) {{\n    %x, %xt = load_view_tko %ap, [%i, %q] : tile<{0}x{3}xf32>, token\n    %y, %yt = load_view_tko %bp, [%q, %j] : tile<{3}x{1}xf32>, token\n    %d = mmaf %x, %y, %s : tile<{0}x{1}xf32>\n    continue [%d]\n  }}\n  %done = store_view_tko %acc, %cp, [%i, %j] : token\n  return\n}}\n",
        t[0],
        t[1],
        k.div_ceil(t[2]),
        t[2]
    );
    s
}

#[test]
fn matmul_with_ragged_edges() {
    for (m, n, k, t, transposed) in [
        (64, 64, 64, [16, 32, 16], false),
        (50, 70, 33, [16, 32, 16], false),
        (50, 70, 33, [16, 32, 16], true),
        (300, 130, 90, [64, 64, 32], false),
    ] {
        let (a, b) = (noise(m * k, 1), noise(n * k, 2));
        let mut data = [Data::of(&a), Data::of(&b), Data::of(&vec![f32::NAN; m * n])];
        let text = matmul(m, n, k, t, transposed);
        let module = parse(&text);
        let program = tessera_cpu::Program::prepare(&module, &module.funcs[0]).unwrap();
        assert!(program.notes().iter().any(|note| note.contains("packed product")), "{:?}", program.notes());
        launch(&text, [m.div_ceil(t[0]) as u32, n.div_ceil(t[1]) as u32, 1], &mut data);
        let c: Vec<f32> = data[2].read();
        for i in 0..m {
            for j in 0..n {
                let want: f64 = (0..k)
                    .map(|q| f64::from(a[i * k + q]) * f64::from(if transposed { b[j * k + q] } else { b[q * n + j] }))
                    .sum();
                assert!((f64::from(c[i * n + j]) - want).abs() < 1e-4, "{i} {j}: {} {want}", c[i * n + j]);
            }
        }
    }
}

#[test]
fn softmax_rows() {
    let (rows, n) = (6, 300);
    let x = noise(rows * n, 3);
    let mut s = "schedule @softmax(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>) {\n  %i = get_tile_block_id {axis=x} : tile<i32>\n  %z = constant {value=i32(0)} : tile<i32>\n".to_string();
    s += &view("x", "f32", [rows, n], [2, 512], ", padding=neg_inf");
    s += &view("y", "f32", [rows, n], [2, 512], "");
    s += "  %t, %tt = load_view_tko %xp, [%i, %z] : tile<2x512xf32>, token
  %m = reduce [%t] {dim=1, identities=[f32(-inf)]} : tile<2xf32> (%e: tile<f32>, %a: tile<f32>) {
    %h = maxf %e, %a : tile<f32>
    yield [%h]
  }
  %m1 = reshape %m : tile<2x1xf32>
  %mb = broadcast %m1 : tile<2x512xf32>
  %d = subf %t, %mb : tile<2x512xf32>
  %p = exp %d : tile<2x512xf32>
  %l = reduce [%p] {dim=1, identities=[f32(0.0)]} : tile<2xf32> (%e2: tile<f32>, %a2: tile<f32>) {
    %h2 = addf %e2, %a2 : tile<f32>
    yield [%h2]
  }
  %l1 = reshape %l : tile<2x1xf32>
  %lb = broadcast %l1 : tile<2x512xf32>
  %r = divf %p, %lb : tile<2x512xf32>
  %w = store_view_tko %r, %yp, [%i, %z] : token
  return
}
";
    let mut data = [Data::of(&x), Data::of(&vec![0.0_f32; rows * n])];
    launch(&s, [3, 1, 1], &mut data);
    let y: Vec<f32> = data[1].read();
    for row in 0..rows {
        let x = &x[row * n..][..n];
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = x.iter().map(|&v| f64::from(v - max).exp()).sum();
        for j in 0..n {
            let want = f64::from(x[j] - max).exp() / sum;
            assert!((f64::from(y[row * n + j]) - want).abs() < 1e-6 * want + 1e-9);
        }
    }
}

#[test]
fn shapes() {
    let x: Vec<i32> = (0..4 * 6).collect();
    let tail = |name: &str, shape: [usize; 2]| {
        view("o", "i32", shape, shape, "") + &format!("  %w = store_view_tko %{name}, %op, [%z, %z] : token\n  return\n}}\n")
    };
    let head = || {
        "schedule @k(%x: tile<ptr<i32>>, %o: tile<ptr<i32>>) {\n  %z = constant {value=i32(0)} : tile<i32>\n  %u = constant {value=i32(1)} : tile<i32>\n".to_string()
            + &view("x", "i32", [4, 6], [4, 6], "")
            + "  %t, %tt = load_view_tko %xp, [%z, %z] : tile<4x6xi32>, token\n"
    };
    let run = |body: &str, name: &str, shape: [usize; 2]| -> Vec<i32> {
        let mut data = [Data::of(&x), Data::of(&vec![-1_i32; shape[0] * shape[1]])];
        launch(&(head() + body + &tail(name, shape)), [1, 1, 1], &mut data);
        data[1].read()
    };
    let transposed: Vec<i32> = (0..24).map(|i| i % 4 * 6 + i / 4).collect();
    assert_eq!(run("  %r = permute %t {permutation=[1, 0]} : tile<6x4xi32>\n", "r", [6, 4]), transposed);
    let doubled = "  %d = addi %t, %t : tile<4x6xi32>\n  %r = permute %d {permutation=[1, 0]} : tile<6x4xi32>\n";
    assert_eq!(run(doubled, "r", [6, 4]), transposed.iter().map(|v| v * 2).collect::<Vec<_>>());
    assert_eq!(run("  %r = reshape %t : tile<8x3xi32>\n", "r", [8, 3]), x);
    let wanted: Vec<i32> = (0..48).map(|i| i / 12 * 6 + i % 12 % 6).collect();
    assert_eq!(run("  %r = cat %t, %t {dim=1} : tile<4x12xi32>\n", "r", [4, 12]), wanted);
    assert_eq!(run("  %r = extract %t, [%u, %u] : tile<2x3xi32>\n", "r", [2, 3]), [15, 16, 17, 21, 22, 23]);
    let insert = "  %s = extract %t, [%z, %z] : tile<2x3xi32>\n  %r = insert %s, %t, [%u, %u] : tile<4x6xi32>\n";
    let mut wanted = x.clone();
    for (to, from) in [(15, 0), (16, 1), (17, 2), (21, 6), (22, 7), (23, 8)] {
        wanted[to] = from;
    }
    assert_eq!(run(insert, "r", [4, 6]), wanted);
    let counting = "  %c = iota : tile<6xi32>\n  %c1 = reshape %c : tile<1x6xi32>\n  %cb = broadcast %c1 : tile<4x6xi32>\n  %q = iota : tile<4xi32>\n  %q1 = reshape %q : tile<4x1xi32>\n  %qb = broadcast %q1 : tile<4x6xi32>\n  %k = constant {value=i32[10, 20, 30, 40]} : tile<4x1xi32>\n  %kb = broadcast %k : tile<4x6xi32>\n  %s = muli %qb, %kb : tile<4x6xi32>\n  %r = addi %s, %cb : tile<4x6xi32>\n";
    assert_eq!(run(counting, "r", [4, 6]), (0..24).map(|i| i / 6 * (i / 6 + 1) * 10 + i % 6).collect::<Vec<_>>());
    let packed = "  %f = reshape %t : tile<24xi32>\n  %p = pack %f : tile<96xi8>\n  %q = unpack %p : tile<24xi32>\n  %r = reshape %q : tile<4x6xi32>\n";
    assert_eq!(run(packed, "r", [4, 6]), x);
}

#[test]
fn reductions_of_every_axis() {
    let (a, b, c) = (3, 5, 7);
    let x = noise(a * b * c, 9);
    for (dim, order) in [(0, "free"), (1, "free"), (2, "free"), (0, "tree"), (1, "tree"), (2, "tree")] {
        let mut shape = vec![a, b, c];
        shape.remove(dim);
        let dims = |s: &[usize]| s.iter().map(|d| format!("{d}x")).collect::<String>();
        let tensor = format!("tensor_view<{}f32, strides=[35,7,1]>", dims(&[a, b, c]));
        let out = format!("tensor_view<{}f32, strides=[{},1]>", dims(&shape), shape[1]);
        let text = format!(
            "schedule @k(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>) {{
  %z = constant {{value=i32(0)}} : tile<i32>
  %v = make_tensor_view %x, [], [] : {tensor}
  %p = make_partition_view %v : partition_view<tile=(3x5x7), {tensor}>
  %t, %tt = load_view_tko %p, [%z, %z, %z] : tile<3x5x7xf32>, token
  %r = reduce [%t] {{dim={dim}, identities=[f32(0.0)], order={order}}} : tile<{}f32> (%e: tile<f32>, %s: tile<f32>) {{
    %h = addf %e, %s : tile<f32>
    yield [%h]
  }}
  %ov = make_tensor_view %o, [], [] : {out}
  %op = make_partition_view %ov : partition_view<tile=({}x{}), {out}>
  %w = store_view_tko %r, %op, [%z, %z] : token
  return
}}
",
            dims(&shape),
            shape[0],
            shape[1]
        );
        let mut data = [Data::of(&x), Data::of(&vec![0.0_f32; shape[0] * shape[1]])];
        launch(&text, [1, 1, 1], &mut data);
        let got: Vec<f32> = data[1].read();
        let extents = [a, b, c];
        let inner: usize = extents[dim + 1..].iter().product();
        for (at, &got) in got.iter().enumerate() {
            let (o, i) = (at / inner, at % inner);
            let column: Vec<f32> = (0..extents[dim]).map(|k| x[(o * extents[dim] + k) * inner + i]).collect();
            let want: f64 = column.iter().map(|&v| f64::from(v)).sum();
            assert!((f64::from(got) - want).abs() < 1e-5);
            if order == "tree" {
                let mut level = column;
                while level.len() > 1 {
                    level = level.chunks(2).map(|pair| pair.iter().copied().reduce(|a, b| b + a).unwrap()).collect();
                }
                assert_eq!(got, level[0]);
            }
        }
    }
}

#[test]
fn argmax_and_scans() {
    let x = noise(4 * 37, 21);
    let text = "schedule @k(%x: tile<ptr<f32>>, %o: tile<ptr<i32>>, %s: tile<ptr<f32>>, %rs: tile<ptr<f32>>) {
  %z = constant {value=i32(0)} : tile<i32>
".to_string()
        + &view("x", "f32", [4, 37], [4, 37], "")
        + &view("s", "f32", [4, 37], [4, 37], "")
        + &view("rs", "f32", [4, 37], [4, 37], "")
        + "  %t, %tt = load_view_tko %xp, [%z, %z] : tile<4x37xf32>, token
  %n = iota : tile<37xi32>
  %n1 = reshape %n : tile<1x37xi32>
  %nb = broadcast %n1 : tile<4x37xi32>
  %m, %at = reduce [%t, %nb] {dim=1, identities=[f32(-inf), i32(0)]} : tile<4xf32>, tile<4xi32> (%e: tile<f32>, %b: tile<f32>, %f: tile<i32>, %g: tile<i32>) {
    %gt = cmpf %e, %b {predicate=gt} : tile<i1>
    %eq = cmpf %e, %b {predicate=eq} : tile<i1>
    %lt = cmpi %f, %g {predicate=lt} : tile<i1>
    %tie = andi %eq, %lt : tile<i1>
    %take = ori %gt, %tie : tile<i1>
    %v = select %take, %e, %b : tile<f32>
    %w = select %take, %f, %g : tile<i32>
    yield [%v, %w]
  }
  %ov = make_tensor_view %o, [], [] : tensor_view<4xi32, strides=[1]>
  %op = make_partition_view %ov : partition_view<tile=(4), tensor_view<4xi32, strides=[1]>>
  %d0 = store_view_tko %at, %op, [%z] : token
  %c = scan [%t] {dim=1, identities=[f32(0.0)], reverse=false} : tile<4x37xf32> (%e1: tile<f32>, %a1: tile<f32>) {
    %h1 = addf %e1, %a1 : tile<f32>
    yield [%h1]
  }
  %d1 = store_view_tko %c, %sp, [%z, %z] : token
  %r = scan [%t] {dim=0, identities=[f32(0.0)], reverse=true} : tile<4x37xf32> (%e2: tile<f32>, %a2: tile<f32>) {
    %h2 = addf %e2, %a2 : tile<f32>
    yield [%h2]
  }
  %d2 = store_view_tko %r, %rsp, [%z, %z] : token
  return
}
";
    let mut data = [Data::of(&x), Data::of(&[0_i32; 4]), Data::of(&vec![0.0_f32; 148]), Data::of(&vec![0.0_f32; 148])];
    launch(&text, [1, 1, 1], &mut data);
    let (at, sums, reverse): (Vec<i32>, Vec<f32>, Vec<f32>) = (data[1].read(), data[2].read(), data[3].read());
    for row in 0..4 {
        let values = &x[row * 37..][..37];
        let best = (0..37).max_by(|&a, &b| values[a].total_cmp(&values[b]).then(b.cmp(&a))).unwrap();
        assert_eq!(at[row] as usize, best);
        let mut sum = 0.0;
        for j in 0..37 {
            sum += f64::from(values[j]);
            assert!((f64::from(sums[row * 37 + j]) - sum).abs() < 1e-4);
            let below: f64 = (row..4).map(|r| f64::from(x[r * 37 + j])).sum();
            assert!((f64::from(reverse[row * 37 + j]) - below).abs() < 1e-5);
        }
    }
}

#[test]
fn control_flow_carries_values_at_once() {
    // Fibonacci numbers by swapping, a loop left early, and a condition with values.
    let text = "schedule @k(%o: tile<ptr<i32>>, %n: tile<i32>) {
  %z = constant {value=i32(0)} : tile<i32>
  %u = constant {value=i32(1)} : tile<i32>
  %t0 = constant {value=i32(0)} : tile<4xi32>
  %t1 = iota : tile<4xi32>
  %a, %b, %x, %y = for %z, %n, %u, [%z, %u, %t0, %t1] : tile<i32>, tile<i32>, tile<4xi32>, tile<4xi32> (%i: tile<i32>, %p: tile<i32>, %q: tile<i32>, %s: tile<4xi32>, %t: tile<4xi32>) {
    %r = addi %p, %q : tile<i32>
    %w = addi %s, %t : tile<4xi32>
    continue [%q, %r, %t, %w]
  }
  %h = loop [%z] : tile<i32> (%k: tile<i32>) {
    %c = muli %k, %k : tile<i32>
    %big = cmpi %c, %n {predicate=ge} : tile<i1>
    if %big () {
      break [%k]
    } () {
      yield []
    }
    %m = addi %k, %u : tile<i32>
    continue [%m]
  }
  %odd = andi %h, %u : tile<i32>
  %is = cmpi %odd, %z {predicate=ne} : tile<i1>
  %f = if %is : tile<4xi32> () {
    yield [%x]
  } () {
    %neg = negi %y : tile<4xi32>
    yield [%neg]
  }
  %ab = broadcast %a : tile<4xi32>
  %ab0 = reshape %a : tile<1xi32>
  %ab1 = broadcast %ab0 : tile<4xi32>
  %g = addi %f, %ab1 : tile<4xi32>
  %v = make_tensor_view %o, [], [] : tensor_view<4xi32, strides=[1]>
  %p2 = make_partition_view %v : partition_view<tile=(4), tensor_view<4xi32, strides=[1]>>
  %d = store_view_tko %g, %p2, [%z] : token
  return
}
".replace("  %ab = broadcast %a : tile<4xi32>\n", "");
    for n in [1_i64, 5, 10, 17] {
        let mut data = [Data::of(&[0_i32; 4]), Data::int(n)];
        launch(&text, [1, 1, 1], &mut data);
        let got: Vec<i32> = data[0].read();
        let fib = |start: [i32; 2]| (0..n).fold(start, |[a, b], _| [b, a + b]);
        let root = (0..).find(|k| k * k >= n as i32).unwrap();
        for (i, got) in got.into_iter().enumerate() {
            let [x, y] = fib([0, i as i32]);
            let want = if root % 2 == 1 { x } else { -y } + fib([0, 1])[0];
            assert_eq!(got, want, "n={n} i={i}");
        }
    }
}

#[test]
fn pointers_masks_and_atomics() {
    let text = "schedule @k(%x: tile<ptr<f32>>, %h: tile<ptr<i32>>, %o: tile<ptr<f32>>, %n: tile<i32>) {
  %i = get_tile_block_id {axis=x} : tile<i32>
  %w = constant {value=i32(64)} : tile<i32>
  %s = muli %i, %w : tile<i32>
  %s1 = reshape %s : tile<1xi32>
  %sb = broadcast %s1 : tile<64xi32>
  %l = iota : tile<64xi32>
  %at = addi %sb, %l : tile<64xi32>
  %n1 = reshape %n : tile<1xi32>
  %nb = broadcast %n1 : tile<64xi32>
  %in = cmpi %at, %nb {predicate=lt} : tile<i1>
  %x1 = reshape %x : tile<1xptr<f32>>
  %xb = broadcast %x1 : tile<64xptr<f32>>
  %xp = offset %xb, %at : tile<64xptr<f32>>
  %pad = constant {value=f32(-7.0)} : tile<64xf32>
  %v, %vt = load_ptr_tko %xp, mask=%in, padding=%pad : tile<64xf32>, token
  %k = ftoi %v {rounding=nearest_int_to_zero} : tile<64xi32>
  %seven = constant {value=i32(7)} : tile<64xi32>
  %bin = andi %k, %seven : tile<64xi32>
  %h1 = reshape %h : tile<1xptr<i32>>
  %hb = broadcast %h1 : tile<64xptr<i32>>
  %hp = offset %hb, %bin : tile<64xptr<i32>>
  %one = constant {value=i32(1)} : tile<64xi32>
  %old, %ot = atomic_rmw_tko %hp, %one, mask=%in {order=relaxed, scope=device, mode=add} : tile<64xi32>, token
  %d = addf %v, %v : tile<64xf32>
  %o1 = reshape %o : tile<1xptr<f32>>
  %ob = broadcast %o1 : tile<64xptr<f32>>
  %op = offset %ob, %at : tile<64xptr<f32>>
  %st = store_ptr_tko %op, %d, mask=%in : token
  return
}
"
    .replace("tile<i1>\n  %x1", "tile<64xi1>\n  %x1");
    let n = 1000;
    let x: Vec<f32> = noise(n, 4).iter().map(|v| (v + 1.0) * 50.0).collect();
    let mut data = [Data::of(&x), Data::of(&[0_i32; 8]), Data::of(&vec![0.0_f32; n]), Data::int(n as i64)];
    launch(&text, [17, 1, 1], &mut data);
    let mut bins = [0_i32; 8];
    x.iter().for_each(|&v| bins[v as usize & 7] += 1);
    assert_eq!(data[1].read::<i32>(), bins);
    assert_eq!(data[2].read::<f32>(), x.iter().map(|v| v + v).collect::<Vec<_>>());
}

#[test]
fn packed_and_gathered_views() {
    // Rows of a packed int4 array, chosen by an index tile, widened and written densely.
    let text = "schedule @k(%x: tile<ptr<i4>>, %at: tile<ptr<i32>>, %o: tile<ptr<i32>>, %q: tile<ptr<i4>>) {
  %z = constant {value=i32(0)} : tile<i32>
  %v = make_tensor_view %x, [], [] : tensor_view<6x5xi4, strides=[5,1]>
  %g = make_gather_scatter_view %v : gather_scatter_view<tile=(4x5), axis=0, padding=zero, tensor_view<6x5xi4, strides=[5,1]>>
  %av = make_tensor_view %at, [], [] : tensor_view<4xi32, strides=[1]>
  %ap = make_partition_view %av : partition_view<tile=(4), tensor_view<4xi32, strides=[1]>>
  %rows, %rt = load_view_tko %ap, [%z] : tile<4xi32>, token
  %t, %tt = load_view_tko %g, [%rows, %z] : tile<4x5xi4>, token
  %w = exti %t : tile<4x5xi32>
  %ov = make_tensor_view %o, [], [] : tensor_view<4x5xi32, strides=[5,1]>
  %op = make_partition_view %ov : partition_view<tile=(4x5), tensor_view<4x5xi32, strides=[5,1]>>
  %d = store_view_tko %w, %op, [%z, %z] : token
  %n = negi %t : tile<4x5xi4>
  %qv = make_tensor_view %q, [], [] : tensor_view<4x5xi4, strides=[5,1]>
  %qp = make_partition_view %qv : partition_view<tile=(4x5), tensor_view<4x5xi4, strides=[5,1]>>
  %e = store_view_tko %n, %qp, [%z, %z] : token
  return
}
";
    use tessera_types::packed::Packing;
    let codes: Vec<u8> = (0..30).map(|i| (i * 7 % 16) as u8).collect();
    let mut packed = vec![0_u8; 15];
    Packing::FourBits.pack(&codes, &mut packed);
    let rows = [5_i32, -1, 0, 3];
    let mut data = [Data::of(&packed), Data::of(&rows), Data::of(&[9_i32; 20]), Data::of(&[0_u8; 10])];
    launch(text, [1, 1, 1], &mut data);
    let signed = |code: u8| i32::from((code << 4) as i8 >> 4);
    let want: Vec<i32> = rows
        .iter()
        .flat_map(|&r| (0..5).map(move |c| (r, c)))
        .map(|(r, c)| if r < 0 { 0 } else { signed(codes[r as usize * 5 + c]) })
        .collect();
    assert_eq!(data[2].read::<i32>(), want);
    let back: Vec<u8> = data[3].read();
    for (i, want) in want.iter().enumerate() {
        assert_eq!(signed(Packing::FourBits.get(&back, i)), signed((-want) as u8 & 15));
    }
}

#[test]
fn products_of_every_type() {
    use tessera_types::FloatFormat;
    let (m, n, k) = (8, 16, 12);
    for (elem, acc) in [
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f8e4m3", "f32"),
        ("f8e5m2", "f32"),
        ("tf32", "f32"),
        ("f64", "f64"),
        ("f16", "f16"),
        ("i8", "i32"),
    ] {
        let op = if elem == "i8" { "mmai" } else { "mmaf" };
        let attrs = if elem == "i8" { " {lhs_signedness=unsigned}" } else { "" };
        let mut s = format!(
            "schedule @k(%a: tile<ptr<{elem}>>, %b: tile<ptr<{elem}>>, %c: tile<ptr<{acc}>>) {{\n  %z = constant {{value=i32(0)}} : tile<i32>\n"
        );
        s += &view("a", elem, [m, k], [m, k], "");
        s += &view("b", elem, [k, n], [k, n], "");
        s += &view("c", acc, [m, n], [m, n], "");
        s += &format!(
            "  %x, %xt = load_view_tko %ap, [%z, %z] : tile<{m}x{k}x{elem}>, token\n  %y, %yt = load_view_tko %bp, [%z, %z] : tile<{k}x{n}x{elem}>, token\n  %q, %qt = load_view_tko %cp, [%z, %z] : tile<{m}x{n}x{acc}>, token\n  %r = {op} %x, %y, %q{attrs} : tile<{m}x{n}x{acc}>\n  %d = store_view_tko %r, %cp, [%z, %z] : token\n  return\n}}\n"
        );
        let dtype = tessera_types::DType::parse(elem).unwrap();
        let format = FloatFormat::of(dtype);
        let encode = |value: f64| match format {
            Some(format) => format.encode_nearest(value),
            None => (value * 100.0) as i64 as u64 & 0xff,
        };
        let decode = |bits: u64, signed: bool| match format {
            Some(format) => format.decode(bits),
            None if signed => f64::from(bits as u8 as i8),
            None => f64::from(bits as u8),
        };
        let bytes = dtype.unpacked_bytes();
        let raw = |len: usize, seed: u32| noise(len, seed).iter().map(|&v| encode(f64::from(v))).collect::<Vec<u64>>();
        let store = |codes: &[u64]| codes.iter().flat_map(|c| c.to_le_bytes()[..bytes].to_vec()).collect::<Vec<u8>>();
        let (a, b) = (raw(m * k, 1), raw(k * n, 2));
        let acc_bytes = tessera_types::DType::parse(acc).unwrap().unpacked_bytes();
        let mut data = [Data::of(&store(&a)), Data::of(&store(&b)), Data::of(&vec![0_u8; m * n * acc_bytes])];
        launch(&s, [1, 1, 1], &mut data);
        for i in 0..m {
            for j in 0..n {
                let want: f64 = (0..k).map(|q| decode(a[i * k + q], false) * decode(b[q * n + j], true)).sum();
                let (got, eps) = match acc {
                    "f32" => (f64::from(data[2].read::<f32>()[i * n + j]), 1e-5),
                    "f64" => (data[2].read::<f64>()[i * n + j], 1e-12),
                    "f16" => (FloatFormat::F16.decode(u64::from(data[2].read::<u16>()[i * n + j])), 4e-3),
                    _ => (f64::from(data[2].read::<i32>()[i * n + j]), 0.0),
                };
                assert!((got - want).abs() <= eps * want.abs().max(1.0), "{elem} {acc} {i} {j}: {got} {want}");
            }
        }
    }
}

#[test]
fn printing_and_globals() {
    use tessera_cpu::RunOptions;
    let text = "global @table [4] = i32[10, 20, 30, 40]

schedule @k(%o: tile<ptr<i32>>) {
  %i = get_tile_block_id {axis=x} : tile<i32>
  %g = get_global {name=\"table\"} : tile<ptr<i32>>
  %p = offset %g, %i : tile<ptr<i32>>
  %v, %t = load_ptr_tko %p : tile<i32>, token
  %n = iota : tile<3xi32>
  %f = itof %v : tile<f32>
  %w = print_tko [%i, %v, %f, %n] {format=\"block %d: %5i %.2f %d%%\\n\"} : token
  %q = offset %o, %i : tile<ptr<i32>>
  %s = store_ptr_tko %q, %v : token
  return
}
";
    let module = parse(text);
    let output = std::sync::Mutex::new(String::new());
    let mut data = [Data::of(&[0_i32; 4])];
    let options = RunOptions { output: Some(&output), threads: Some(2), ..RunOptions::default() };
    harness::try_launch(&module, [4, 1, 1], &mut data, &options).unwrap();
    assert_eq!(data[0].read::<i32>(), [10, 20, 30, 40]);
    let want: String = (0..4).map(|i| format!("block {i}:    {}0 {}0.00 [0, 1, 2]%\n", i + 1, i + 1)).collect();
    assert_eq!(*output.lock().unwrap(), want);
}

#[test]
fn long_chains_are_prepared_in_time() {
    // Each product uses the one before twice: whatever walks the graph must not walk every path.
    let mut s =
        "schedule @k(%o: tile<ptr<i32>>) {\n  %z = constant {value=i32(0)} : tile<i32>\n  %t0 = iota : tile<8xi32>\n".to_string();
    for i in 0..200 {
        s += &format!("  %t{} = addi %t{i}, %t{i} : tile<8xi32>\n", i + 1);
    }
    s += "  %v = make_tensor_view %o, [], [] : tensor_view<8xi32, strides=[1]>\n  %p = make_partition_view %v : partition_view<tile=(8), tensor_view<8xi32, strides=[1]>>\n  %a = store_view_tko %t10, %p, [%z] : token\n  %b = store_view_tko %t200, %p, [%z] : token\n  %c = store_view_tko %t20, %p, [%z] : token\n  return\n}\n";
    let mut data = [Data::of(&[0_i32; 8])];
    launch(&s, [1, 1, 1], &mut data);
    assert_eq!(data[0].read::<i32>(), (0..8).map(|i| i << 20).collect::<Vec<_>>());
}
