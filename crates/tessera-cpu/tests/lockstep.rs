//! Tile programs in lock-step: what threads of a block do together, apart, and in turn.

#![allow(unsafe_code, reason = "launches take raw memory")]
#![allow(clippy::result_large_err, reason = "as in the crate")]

use tessera_cpu::{Arg, Fault, RunOptions, lockstep};
use tessera_ir::Module;

use crate::harness::{self, Data};

pub(crate) fn parse(text: &str) -> Module {
    let module = harness::parse(text);
    let found = tessera_ir::verify(&module);
    let shown: Vec<String> = found.iter().map(|diagnostic| diagnostic.render(&module.sources, false)).collect();
    assert!(found.is_empty(), "{}\n{text}", shown.join("\n"));
    module
}

pub(crate) fn run(module: &Module, grid: [u32; 3], data: &mut [Data], checked: bool) -> Result<(), Fault> {
    let program = match lockstep::Program::prepare(module, &module.funcs[0]) {
        Ok(program) => program,
        Err(diagnostic) => panic!("{}", diagnostic.render(&module.sources, false)),
    };
    run_program(&program, grid, data, checked)
}

pub(crate) fn run_program(program: &lockstep::Program, grid: [u32; 3], data: &mut [Data], checked: bool) -> Result<(), Fault> {
    let args: Vec<Arg> = data
        .iter_mut()
        .map(|data| match data {
            Data::Bytes(words, bytes) => Arg::Pointer { base: words.as_mut_ptr().cast(), bytes: *bytes },
            Data::Number(bits) => Arg::Scalar(*bits),
        })
        .collect();
    let options = RunOptions { checked, ..RunOptions::default() };
    // SAFETY: the data outlives the launch and nothing else uses it.
    unsafe { program.run(grid, &args, &options) }
}

pub(crate) fn launch(text: &str, grid: [u32; 3], data: &mut [Data]) {
    let module = parse(text);
    if let Err(fault) = run(&module, grid, data, true) {
        panic!("{}", fault.diagnostic.render(&module.sources, false));
    }
}

/// The id and text of what a launch ends in.
fn fails(text: &str, data: &mut [Data]) -> (&'static str, String) {
    let module = harness::parse(text);
    match run(&module, [1, 1, 1], data, true) {
        Ok(()) => panic!("it ran"),
        Err(fault) => (fault.diagnostic.id, fault.diagnostic.render(&module.sources, false)),
    }
}

/// A function of vectors of `f32` or `i32`: `x`, `y`, each with a size and a stride, and a count.
pub(crate) fn function(x: &str, y: &str, warps: u32, layouts: &str, body: &str) -> String {
    let layouts = if layouts.is_empty() { String::new() } else { format!(" layouts({layouts})") };
    format!(
        "tile @k(%x: tile<ptr<{x}>>, %xn: tile<i32>, %xs: tile<i32>, %y: tile<ptr<{y}>>, %yn: tile<i32>, %ys: tile<i32>, %n: tile<i32>) \
         abi(x: array<{x}, [?], [1], i32, align=16>, y: array<{y}, [?], [1], i32, align=16>, n: scalar<i32>) \
         hints(num_warps={warps}){layouts} {{\n{body}\n}}\n"
    )
}

pub(crate) fn arrays<X: Copy, Y: Copy>(x: &[X], y: &[Y], n: i64) -> Vec<Data> {
    let size = |len: usize| Data::int(len as i64);
    vec![Data::of(x), size(x.len()), Data::int(1), Data::of(y), size(y.len()), Data::int(1), Data::int(n)]
}

#[test]
fn a_sum_through_shared_memory() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %b = get_tile_block_id {axis=x} : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %two = constant {value=i32(2)} : tile<i32>
  %half = constant {value=i32(64)} : tile<i32>
  %all = constant {value=i32(128)} : tile<i32>
  %none = constant {value=f32(0.0)} : tile<f32>
  %first = muli %b, %all : tile<i32>
  %i = addi %first, %t : tile<i32>
  %in = cmpi %i, %n {predicate=lt} : tile<i1>
  %p = offset %x, %i : tile<ptr<f32>>
  %v, %k = load_ptr_tko %p, mask=%in, padding=%none : tile<f32>, token
  %s = tile.alloc_shared {align=16} : shared<128xf32>
  tile.store_element %v, %s, [%t]
  tile.barrier
  %end = loop [%half] : tile<i32> (%w: tile<i32>) {
    %mine = cmpi %t, %w {predicate=lt} : tile<i1>
    if %mine () {
      %o = addi %t, %w : tile<i32>
      %a = tile.load_element %s, [%t] : tile<f32>
      %c = tile.load_element %s, [%o] : tile<f32>
      %d = addf %a, %c : tile<f32>
      tile.store_element %d, %s, [%t]
      yield []
    } () {
      yield []
    }
    tile.barrier
    %next = divi %w, %two {rounding=zero} : tile<i32>
    %done = cmpi %next, %zero {predicate=eq} : tile<i1>
    if %done () {
      break [%next]
    } () {
      yield []
    }
    continue [%next]
  }
  %leads = cmpi %t, %zero {predicate=eq} : tile<i1>
  if %leads () {
    %sum = tile.load_element %s, [%t] : tile<f32>
    %q = offset %y, %b : tile<ptr<f32>>
    %stored = store_ptr_tko %q, %sum : token
    yield []
  } () {
    yield []
  }
  return";
    let x: Vec<f32> = (0..300).map(|i| i as f32).collect();
    let mut data = arrays(&x, &[0.0_f32; 3], 300);
    launch(&function("f32", "f32", 4, "", body), [3, 1, 1], &mut data);
    let sums: Vec<f32> = x.chunks(128).map(|part| part.iter().sum()).collect();
    assert_eq!(data[3].read::<f32>(), sums);
}

#[test]
fn loops_of_different_length_and_early_returns() {
    // Steps of the Collatz sequence; threads beyond the end return first.
    let body = "
  %t = tile.thread_id : tile<i32>
  %out = cmpi %t, %n {predicate=ge} : tile<i1>
  if %out () {
    return
  } () {
    yield []
  }
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %two = constant {value=i32(2)} : tile<i32>
  %three = constant {value=i32(3)} : tile<i32>
  %start = addi %t, %one : tile<i32>
  %steps = loop [%start, %zero] : tile<i32> (%v: tile<i32>, %c: tile<i32>) {
    %end = cmpi %v, %one {predicate=eq} : tile<i1>
    if %end () {
      break [%c]
    } () {
      yield []
    }
    %up = addi %c, %one : tile<i32>
    %low = andi %v, %one : tile<i32>
    %odd = cmpi %low, %one {predicate=eq} : tile<i1>
    if %odd () {
      %m = muli %v, %three : tile<i32>
      %o = addi %m, %one : tile<i32>
      continue [%o, %up]
    } () {
      yield []
    }
    %h = divi %v, %two {rounding=zero} : tile<i32>
    continue [%h, %up]
  }
  %sum = for %zero, %t, %one, [%zero] : tile<i32> (%i: tile<i32>, %a: tile<i32>) {
    %n1 = addi %a, %i : tile<i32>
    continue [%n1]
  }
  %total = muli %sum, %two : tile<i32>
  %r = addi %steps, %total : tile<i32>
  %q = offset %y, %t : tile<ptr<i32>>
  %w = store_ptr_tko %q, %r : token
  return";
    let mut data = arrays(&[0_i32; 1], &[-1_i32; 96], 90);
    launch(&function("i32", "i32", 3, "", body), [1, 1, 1], &mut data);
    let expected: Vec<i32> = (0..96)
        .map(|t| {
            let (mut v, mut c) = (t + 1, 0);
            while v != 1 {
                v = if v % 2 == 1 { 3 * v + 1 } else { v / 2 };
                c += 1;
            }
            if t < 90 { c + t * (t - 1) } else { -1 }
        })
        .collect();
    assert_eq!(data[3].read::<i32>(), expected);
}

#[test]
fn a_histogram_by_atomics() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %bins = constant {value=i32(8)} : tile<i32>
  %step = constant {value=i32(64)} : tile<i32>
  %s = tile.alloc_shared {align=16} : shared<8xi32>
  %few = cmpi %t, %bins {predicate=lt} : tile<i1>
  if %few () {
    tile.store_element %zero, %s, [%t]
    yield []
  } () {
    yield []
  }
  tile.barrier
  for %t, %n, %step, [] (%i: tile<i32>) {
    %p = offset %x, %i : tile<ptr<i32>>
    %v, %k = load_ptr_tko %p : tile<i32>, token
    %bin = remi %v, %bins : tile<i32>
    %old = tile.atomic_element %one, %s, [%bin] {mode=add} : tile<i32>
    continue []
  }
  tile.barrier
  if %few () {
    %c = tile.load_element %s, [%t] : tile<i32>
    %q = offset %y, %t : tile<ptr<i32>>
    %before, %order = atomic_rmw_tko %q, %c {order=relaxed, scope=device, mode=add} : tile<i32>, token
    yield []
  } () {
    yield []
  }
  return";
    let x: Vec<i32> = (0..1000).map(|i| i * i).collect();
    let mut data = arrays(&x, &[1_i32; 8], 1000);
    launch(&function("i32", "i32", 2, "", body), [1, 1, 1], &mut data);
    let mut expected = vec![1; 8];
    x.iter().for_each(|v| expected[*v as usize % 8] += 1);
    assert_eq!(data[3].read::<i32>(), expected);
}

#[test]
fn warps_reduce_and_shuffle() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %lane = tile.lane_id : tile<i32>
  %warp = tile.warp_id : tile<i32>
  %three = constant {value=i32(3)} : tile<i32>
  %five = constant {value=i32(5)} : tile<i32>
  %hundred = constant {value=i32(100)} : tile<i32>
  %p = offset %x, %t : tile<ptr<i32>>
  %v, %k = load_ptr_tko %p : tile<i32>, token
  %sum = tile.warp_reduce %v {combine=sum} : tile<i32>
  %max = tile.warp_reduce %v {combine=max} : tile<i32>
  %up = tile.shuffle %v, %three {mode=up} : tile<i32>
  %down = tile.shuffle %v, %three {mode=down} : tile<i32>
  %turned = tile.shuffle %v, %five {mode=xor} : tile<i32>
  %lead = tile.shuffle %v, %warp {mode=idx} : tile<i32>
  %a = subi %sum, %max : tile<i32>
  %b = subi %up, %down : tile<i32>
  %c = muli %turned, %hundred : tile<i32>
  %d = addi %a, %b : tile<i32>
  %e = addi %c, %lead : tile<i32>
  %f = xori %d, %e : tile<i32>
  %q = offset %y, %t : tile<ptr<i32>>
  %w = store_ptr_tko %q, %f : token
  return";
    let x: Vec<i32> = (0..64).map(|i| (i * 37 + 11) % 101 - 50).collect();
    let mut data = arrays(&x, &[0_i32; 64], 0);
    launch(&function("i32", "i32", 2, "", body), [1, 1, 1], &mut data);
    let expected: Vec<i32> = (0..64_usize)
        .map(|t| {
            let (first, lane) = (t / 32 * 32, t % 32);
            let warp = &x[first..first + 32];
            let up = warp[lane.checked_sub(3).unwrap_or(lane)];
            let down = *warp.get(lane + 3).unwrap_or(&warp[lane]);
            let reduced = warp.iter().sum::<i32>() - warp.iter().max().unwrap_or(&0);
            (reduced + up - down) ^ (warp[lane ^ 5] * 100 + warp[t / 32])
        })
        .collect();
    assert_eq!(data[3].read::<i32>(), expected);
}

#[test]
fn a_warp_sum_of_floats_has_the_stated_order() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %p = offset %x, %t : tile<ptr<f32>>
  %v, %k = load_ptr_tko %p : tile<f32>, token
  %sum = tile.warp_reduce %v {combine=sum} : tile<f32>
  %q = offset %y, %t : tile<ptr<f32>>
  %w = store_ptr_tko %q, %sum : token
  return";
    let x: Vec<f32> = (0..32).map(|i| 1.0e8 / (i as f32 + 0.3) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
    let mut data = arrays(&x, &[0.0_f32; 32], 0);
    launch(&function("f32", "f32", 1, "", body), [1, 1, 1], &mut data);
    let mut lanes = x;
    for bit in [16, 8, 4, 2, 1] {
        lanes = (0..32).map(|lane| lanes[lane] + lanes[lane ^ bit]).collect();
    }
    assert_eq!(data[3].read::<f32>(), lanes);
}

#[test]
fn arrays_of_registers_are_each_threads_own() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %four = constant {value=i32(4)} : tile<i32>
  %three = constant {value=i32(3)} : tile<i32>
  %r = tile.alloc_register : registers<4xi32>
  for %zero, %four, %one, [] (%i: tile<i32>) {
    %m = muli %i, %t : tile<i32>
    tile.store_element %m, %r, [%i]
    continue []
  }
  %at = andi %t, %three : tile<i32>
  %v = tile.load_element %r, [%at] : tile<i32>
  %q = offset %y, %t : tile<ptr<i32>>
  %w = store_ptr_tko %q, %v : token
  return";
    let mut data = arrays(&[0_i32; 1], &[0_i32; 32], 0);
    launch(&function("i32", "i32", 1, "", body), [1, 1, 1], &mut data);
    assert_eq!(data[3].read::<i32>(), (0..32).map(|t| t * (t & 3)).collect::<Vec<i32>>());
}

/// Copies 4 tiles of 64 through a ring of 2 slots; one role fills, one doubles and writes.
fn ring(producer: &str, consumer: &str) -> String {
    let body = format!(
        "
  %zero = constant {{value=i32(0)}} : tile<i32>
  %one = constant {{value=i32(1)}} : tile<i32>
  %four = constant {{value=i32(4)}} : tile<i32>
  %vx = make_tensor_view %x, [%xn], [] : tensor_view<?xf32, strides=[1]>
  %px = make_partition_view %vx : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
  %vy = make_tensor_view %y, [%yn], [] : tensor_view<?xf32, strides=[1]>
  %py = make_partition_view %vy : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
  %buffer = tile.alloc_shared {{align=128}} : shared<2x64xf32>
  %ring = tile.ring [%buffer] {{stages=2, producer=tma, consumers=1, bytes=256}} : ring<2, [shared<64xf32>]>
  %start = tile.ring_start %ring : cursor
  tile.role {{first_warp=0, warps=1}} () {{
    %end = for %zero, %four, %one, [%start] : cursor (%i: tile<i32>, %c: cursor) {{
      tile.acquire %ring, %c
      {producer}
      tile.commit %ring, %c
      %next = tile.advance %ring, %c : cursor
      continue [%next]
    }}
    yield []
  }}
  tile.role {{first_warp=1, warps=2, registers=40}} () {{
    %last = for %zero, %four, %one, [%start] : cursor (%j: tile<i32>, %d: cursor) {{
      tile.wait %ring, %d
      %full = tile.slot %ring, %d {{buffer=0}} : shared<64xf32>
      %v = tile.load_shared %full : tile<64xf32, #0>
      {consumer}
      %twice = addf %v, %v : tile<64xf32, #0>
      %w = store_view_tko %twice, %py, [%j] : token
      %after = tile.advance %ring, %d : cursor
      continue [%after]
    }}
    yield []
  }}
  return"
    );
    function("f32", "f32", 3, "#0 = <lane=[1..16@0], warp=[32@0]>", &body)
}

const LOAD: &str = "%slot = tile.slot %ring, %c {buffer=0} : shared<64xf32>
      tile.tma_load %px, [%i], %slot, %ring, %c";

#[test]
fn roles_share_a_ring() {
    let x: Vec<f32> = (0..250).map(|i| i as f32).collect();
    let mut data = arrays(&x, &[-1.0_f32; 256], 0);
    launch(&ring(LOAD, "tile.release %ring, %d"), [1, 1, 1], &mut data);
    let expected: Vec<f32> = (0..256).map(|i| if i < 250 { 2.0 * i as f32 } else { 0.0 }).collect();
    assert_eq!(data[3].read::<f32>(), expected);
}

/// Copies 4 tiles of 64; two roles take the slots in turn, each skipping the other's.
fn in_turn(step: i32) -> String {
    let team = |number: u32, slots: i32| {
        format!(
            "  tile.role {{first_warp={}, warps=2}} () {{
    %ahead{number} = constant {{value=i32({number})}} : tile<i32>
    %step{number} = constant {{value=i32({slots})}} : tile<i32>
    %first{number} = tile.skip %ring, %start, %ahead{number} : cursor
    %last{number} = for %ahead{number}, %four, %two, [%first{number}] : cursor (%j{number}: tile<i32>, %d{number}: cursor) {{
      tile.wait %ring, %d{number}
      %full{number} = tile.slot %ring, %d{number} {{buffer=0}} : shared<64xf32>
      %v{number} = tile.load_shared %full{number} : tile<64xf32, #0>
      tile.release %ring, %d{number}
      %w{number} = store_view_tko %v{number}, %py, [%j{number}] : token
      %on{number} = tile.advance %ring, %d{number} : cursor
      %after{number} = tile.skip %ring, %on{number}, %step{number} : cursor
      continue [%after{number}]
    }}
    yield []
  }}
",
            1 + 2 * number
        )
    };
    let text = ring(LOAD, "").replace("num_warps=3", "num_warps=5");
    let (before, rest) = text.split_once("  tile.role {first_warp=1").expect("a second role");
    let behind = rest.split_once("    yield []\n  }\n").expect("its end").1;
    let two = "  %two = constant {value=i32(2)} : tile<i32>\n";
    format!("{}{}{}{behind}", before.replacen("  %one", &format!("{two}  %one"), 1), team(0, step), team(1, step))
}

#[test]
fn roles_take_slots_in_turn() {
    let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let mut data = arrays(&x, &[-1.0_f32; 256], 0);
    launch(&in_turn(1), [1, 1, 1], &mut data);
    assert_eq!(data[3].read::<f32>(), x);
    let (id, text) = fails(&in_turn(-1), &mut arrays(&x, &[0.0_f32; 256], 0));
    assert_eq!(id, "cpu-ring");
    assert!(text.contains("a cursor moves backwards"), "{text}");
}

#[test]
fn who_waits_for_whom_is_reported() {
    let x = [1.0_f32; 256];
    let (id, text) = fails(&ring(LOAD, ""), &mut arrays(&x, &[0.0_f32; 256], 0));
    assert_eq!(id, "cpu-deadlock", "{text}");
    assert!(text.contains("warps 0 to 0 wait for slot 0 of `%ring` to be released"), "{text}");
    assert!(text.contains("warps 1 to 2 wait for slot 0 of `%ring` to be filled"), "{text}");

    let (id, text) = fails(&ring("", "tile.release %ring, %d"), &mut arrays(&x, &[0.0_f32; 256], 0));
    assert_eq!(id, "cpu-ring");
    assert!(text.contains("0 bytes are loaded into the slot, but the ring expects 256"), "{text}");

    let twice = "tile.release %ring, %d\n tile.release %ring, %d";
    let (id, text) = fails(&ring(LOAD, twice), &mut arrays(&x, &[0.0_f32; 256], 0));
    assert_eq!(id, "cpu-ring");
    assert!(text.contains("released more often than by its 1 consumers"), "{text}");
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    let program = |wait: &str| {
        let body = format!(
            "
  %t = tile.thread_id : tile<i32>
  %zero = constant {{value=i32(0)}} : tile<i32>
  %one = constant {{value=i32(1)}} : tile<i32>
  %four = constant {{value=i32(4)}} : tile<i32>
  %vx = make_tensor_view %x, [%xn], [] : tensor_view<?xi32, strides=[1]>
  %px = make_partition_view %vx : partition_view<tile=(128), tensor_view<?xi32, strides=[1]>>
  %a = tile.alloc_shared {{align=128}} : shared<128xi32>
  %b = tile.alloc_shared {{align=128}} : shared<128xi32>
  tile.copy_async %px, [%zero], %a
  tile.commit_group
  %i = muli %t, %four : tile<i32>
  %half = constant {{value=i32(128)}} : tile<i32>
  %j = addi %i, %half : tile<i32>
  %p = offset %x, %j : tile<ptr<i32>>
  tile.copy_async_element %p, %b, [%i] {{bytes=16}}
  tile.commit_group
  tile.wait_group {{pending={wait}}}
  tile.barrier
  %va = tile.load_shared %a : tile<128xi32, #0>
  %vb = tile.load_shared %b : tile<128xi32, #0>
  %s = addi %va, %vb : tile<128xi32, #0>
  %vy = make_tensor_view %y, [%yn], [] : tensor_view<?xi32, strides=[1]>
  %py = make_partition_view %vy : partition_view<tile=(128), tensor_view<?xi32, strides=[1]>>
  %w = store_view_tko %s, %py, [%zero] : token
  return"
        );
        function("i32", "i32", 1, "#0 = <reg=[1..2@0], lane=[4..64@0]>", &body)
    };
    let x: Vec<i32> = (0..256).collect();
    let mut data = arrays(&x, &[0_i32; 128], 0);
    launch(&program("0"), [1, 1, 1], &mut data);
    assert_eq!(data[3].read::<i32>(), (0..128).map(|i| 2 * i + 128).collect::<Vec<i32>>());

    let (id, text) = fails(&program("1"), &mut arrays(&x, &[0_i32; 128], 0));
    assert_eq!(id, "cpu-unwritten", "{text}");
    // Unchecked, what has not arrived is all ones.
    let mut data = arrays(&x, &[0_i32; 128], 0);
    let module = parse(&program("1"));
    assert!(run(&module, [1, 1, 1], &mut data, false).is_ok());
    assert_eq!(data[3].read::<i32>(), (0..128).map(|i| i - 1).collect::<Vec<i32>>());
}

/// `y = x * x'` for 64 x 64 `x`, through shared memory.
fn product(middle: &str) -> String {
    let layouts = "#0 = <reg=[1@1, 8@0, 8..32@1], lane=[2..4@1, 1..4@0], warp=[16..32@0]>";
    let body = format!(
        "
  %zero = constant {{value=i32(0)}} : tile<i32>
  %vx = make_tensor_view %x, [], [] : tensor_view<64x64xf16, strides=[64,1]>
  %px = make_partition_view %vx : partition_view<tile=(64x64), tensor_view<64x64xf16, strides=[64,1]>>
  %vy = make_tensor_view %y, [], [] : tensor_view<64x64xf32, strides=[64,1]>
  %py = make_partition_view %vy : partition_view<tile=(64x64), tensor_view<64x64xf32, strides=[64,1]>>
  %v, %k = load_view_tko %px, [%zero, %zero] : tile<64x64xf16, #0>, token
  %a = tile.alloc_shared {{align=1024}} : shared<64x64xf16, swizzle=<3,4,3>>
  tile.store_shared %v, %a
  tile.fence_async
  tile.barrier
  %b = tile.transpose_shared %a {{permutation=[1, 0]}} : shared<64x64xf16, swizzle=<3,4,3>, order=[1,0]>
  %acc = constant {{value=f32(1.0)}} : tile<64x64xf32, #0>
  {middle}
  %w = store_view_tko %r, %py, [%zero, %zero] : token
  return"
    );
    function("f16", "f32", 4, layouts, &body)
}

#[test]
fn axes_of_a_buffer_as_one() {
    // Thread t writes (t / 32, t / 8 % 4, t % 8) and reads (t % 8, t / 8) of the same buffer as a matrix.
    let body = "
  %t = tile.thread_id : tile<i32>
  %eight = constant {value=i32(8)} : tile<i32>
  %four = constant {value=i32(4)} : tile<i32>
  %p = offset %x, %t : tile<ptr<f32>>
  %v, %k = load_ptr_tko %p : tile<f32>, token
  %s = tile.alloc_shared {align=16} : shared<2x4x8xf32>
  %row = divi %t, %eight {rounding=zero} : tile<i32>
  %column = remi %t, %eight : tile<i32>
  %first = divi %row, %four {rounding=zero} : tile<i32>
  %second = remi %row, %four : tile<i32>
  tile.store_element %v, %s, [%first, %second, %column]
  tile.barrier
  %m = tile.collapse_shared %s : shared<8x8xf32>
  %w = tile.load_element %m, [%column, %row] : tile<f32>
  %q = offset %y, %t : tile<ptr<f32>>
  %stored = store_ptr_tko %q, %w : token
  return";
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut data = arrays(&x, &[0.0_f32; 64], 64);
    launch(&function("f32", "f32", 2, "", body), [1, 1, 1], &mut data);
    let turned: Vec<f32> = (0..64).map(|i| (i % 8 * 8 + i / 8) as f32).collect();
    assert_eq!(data[3].read::<f32>(), turned);
}

#[test]
fn products_from_shared_memory() {
    let x: Vec<u16> = (0..64 * 64).map(|i| half_of((i * 7 % 13) as f32 - 6.0)).collect();
    let value = |i: usize| (i * 7 % 13) as f32 - 6.0;
    let expected = |times: f32| -> Vec<f32> {
        let sum = |m: usize, n: usize| (0..64).map(|k| value(m * 64 + k) * value(n * 64 + k)).sum::<f32>();
        (0..64 * 64).map(|i| 1.0 + times * sum(i / 64, i % 64)).collect()
    };
    let flying = "%f = tile.wgmma %a, %b, %acc : inflight<64x64xf32, #0>
  %g = tile.wgmma %v, %b, %f : inflight<64x64xf32, #0>
  %h = convert []
  %r = tile.wgmma_wait [%g] {pending=0} : tile<64x64xf32, #0>";
    let flying = flying.replace("%h = convert []\n", "").replace("wgmma %v", "wgmma %a");
    for (middle, times) in [("%r = tile.mma_shared %a, %b, %acc : tile<64x64xf32, #0>", 1.0), (flying.as_str(), 2.0)] {
        let mut data = arrays(&x, &[0.0_f32; 64 * 64], 0);
        launch(&product(middle), [1, 1, 1], &mut data);
        assert_eq!(data[3].read::<f32>(), expected(times));
    }
    let early = "%f = tile.wgmma %a, %b, %acc : inflight<64x64xf32, #0>
  %r = tile.wgmma_wait [%f] {pending=1} : tile<64x64xf32, #0>";
    let (id, text) = fails(&product(early), &mut arrays(&x, &[0.0_f32; 64 * 64], 0));
    assert_eq!(id, "cpu-inflight", "{text}");
}

/// The bits of a small integer as `f16`.
fn half_of(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

#[test]
fn scalars_of_a_tile_operation_must_agree() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = reshape %t : tile<1xi32, #0>
  return";
    let text = function("i32", "i32", 1, "#0 = <lane=[_*5]>", body);
    let (id, text) = fails(&text, &mut arrays(&[0_i32; 1], &[0_i32; 1], 0));
    assert_eq!(id, "cpu-uniform", "{text}");
    assert!(text.contains("threads 0 and 1 disagree about `%t`"), "{text}");
}

#[test]
fn barriers_need_everybody() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %small = cmpi %t, %n {predicate=lt} : tile<i1>
  if %small () {
    tile.barrier
    yield []
  } () {
    yield []
  }
  return";
    let (id, text) = fails(&function("i32", "i32", 1, "", body), &mut arrays(&[0_i32; 1], &[0_i32; 1], 30));
    assert_eq!(id, "cpu-divergent", "{text}");
    assert!(text.contains("threads 30, 31 are elsewhere"), "{text}");
}

#[test]
fn indices_stay_inside() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %s = tile.alloc_shared {align=16} : shared<31xi32>
  tile.store_element %t, %s, [%t]
  return";
    let (id, text) = fails(&function("i32", "i32", 1, "", body), &mut arrays(&[0_i32; 1], &[0_i32; 1], 30));
    assert_eq!(id, "cpu-bounds", "{text}");
    assert!(text.contains("index 31 of axis 0 lies outside the buffer"), "{text}");
    let body = "
  %t = tile.thread_id : tile<i32>
  %p = offset %x, %t : tile<ptr<i32>>
  %v, %k = load_ptr_tko %p : tile<i32>, token
  return";
    let (id, text) = fails(&function("i32", "i32", 1, "", body), &mut arrays(&[0_i32; 31], &[0_i32; 1], 30));
    assert_eq!(id, "cpu-bounds", "{text}");
}

#[test]
fn thousands_of_steps() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %a = constant {value=i32(1664525)} : tile<i32>
  %c = constant {value=i32(1013904223)} : tile<i32>
  %last = for %zero, %n, %one, [%t] : tile<i32> (%i: tile<i32>, %v: tile<i32>) {
    %m = muli %v, %a : tile<i32>
    %s = addi %m, %c : tile<i32>
    %r = xori %s, %i : tile<i32>
    continue [%r]
  }
  %q = offset %y, %t : tile<ptr<i32>>
  %w = store_ptr_tko %q, %last : token
  return";
    let mut data = arrays(&[0_i32; 1], &[0_i32; 256], 3000);
    launch(&function("i32", "i32", 8, "", body), [1, 1, 1], &mut data);
    let last = |t: i32| (0..3000).fold(t, |v, i| v.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) ^ i);
    assert_eq!(data[3].read::<i32>(), (0..256).map(last).collect::<Vec<i32>>());
}

/// Two roles: the first stores its thread numbers, the second reads them behind `between`.
fn handed_over(between: [&str; 2]) -> String {
    let [first, second] = between;
    let body = format!(
        "
  %t = tile.thread_id : tile<i32>
  %half = constant {{value=i32(32)}} : tile<i32>
  %s = tile.alloc_shared {{align=16}} : shared<32xi32>
  tile.role {{first_warp=1, warps=1}} () {{
    {second}
    %i = subi %t, %half : tile<i32>
    %v = tile.load_element %s, [%i] : tile<i32>
    %q = offset %y, %i : tile<ptr<i32>>
    %w = store_ptr_tko %q, %v : token
    yield []
  }}
  tile.role {{first_warp=0, warps=1}} () {{
    tile.store_element %t, %s, [%t]
    {first}
    yield []
  }}
  return"
    );
    function("i32", "i32", 2, "", &body)
}

#[test]
fn roles_meet_at_named_barriers() {
    let arrives = ["tile.named_arrive {id=1, threads=64}", "tile.named_barrier {id=1, threads=64}"];
    let mut data = arrays(&[0_i32; 1], &[-1_i32; 32], 0);
    launch(&handed_over(arrives), [1, 1, 1], &mut data);
    assert_eq!(data[3].read::<i32>(), (0..32).collect::<Vec<i32>>());

    let (id, text) = fails(&handed_over(["", arrives[1]]), &mut arrays(&[0_i32; 1], &[-1_i32; 32], 0));
    assert_eq!(id, "cpu-deadlock", "{text}");
    assert!(text.contains("warps 1 to 1 wait at barrier 1, where 32 threads have arrived"), "{text}");
    let (id, text) = fails(&handed_over([arrives[1], ""]), &mut arrays(&[0_i32; 1], &[-1_i32; 32], 0));
    assert_eq!(id, "cpu-unwritten", "{text}");
}

#[test]
fn a_thread_prints_for_itself() {
    let body = "
  %t = tile.thread_id : tile<i32>
  %first = cmpi %t, %n {predicate=lt} : tile<i1>
  if %first () {
    %a = print_tko [%t] {format=\"t%d \"} : token
    yield []
  } () {
    yield []
  }
  %b = print_tko [%n] {format=\"n%d\"} : token
  return";
    let module = parse(&function("i32", "i32", 1, "", body));
    let program = lockstep::Program::prepare(&module, &module.funcs[0]).expect("a program");
    let output = std::sync::Mutex::new(String::new());
    let options = RunOptions { output: Some(&output), ..RunOptions::default() };
    let args = [0, 0, 0, 0, 0, 0, 3].map(Arg::Scalar);
    // SAFETY: no memory is passed.
    unsafe { program.run([1, 1, 1], &args, &options) }.expect("it runs");
    assert_eq!(output.into_inner().expect("the text"), "t0 t1 t2 n3");
}

#[test]
fn a_thread_acquires_what_another_block_released() {
    // Block 0 stores and releases, each later block acquires in one thread and reads; addresses are each thread's own.
    let body = "
  %t = tile.thread_id : tile<i32>
  %b = get_tile_block_id {axis=x} : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %first = cmpi %t, %zero {predicate=eq} : tile<i1>
  if %first () {
    %p = offset %x, %b : tile<ptr<i32>>
    %v, %k = load_ptr_tko %p {order=acquire, scope=device} : tile<i32>, token
    %next = addi %b, %one : tile<i32>
    %q = offset %x, %next : tile<ptr<i32>>
    %sum = addi %v, %one : tile<i32>
    %w = store_ptr_tko %q, %sum {order=release, scope=device} : token
    yield []
  } () {
    yield []
  }
  return";
    let mut data = arrays(&[7_i32, 0, 0, 0, 0, 0], &[0_i32; 1], 0);
    launch(&function("i32", "i32", 1, "", body), [5, 1, 1], &mut data);
    assert_eq!(data[0].read::<i32>(), [7, 8, 9, 10, 11, 12]);
}

#[test]
fn quotients_by_zero_in_threads() {
    // Threads divide by their number modulo 2.
    let head = "
  %t = tile.thread_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %by = andi %t, %one : tile<i32>
  %odd = cmpi %by, %zero {predicate=ne} : tile<i1>
  %q = divi %t, %by {rounding=zero} : tile<i32>
  %mine = offset %x, %t : tile<ptr<i32>>
";
    let text = |body: &str| function("i32", "i32", 1, "", &format!("{head}{body}  return"));
    let data = || arrays(&[7_i32; 32], &[0_i32; 1], 0);
    let stored = text("  %w = store_ptr_tko %mine, %q : token\n");
    let mut unchecked = data();
    run(&parse(&stored), [1, 1, 1], &mut unchecked, false).unwrap_or_else(|_| panic!("it gives a value"));
    assert_eq!(unchecked[0].read::<i32>()[..4], [-1, 1, -1, 3]);
    for (body, reached) in [
        ("  %w = store_ptr_tko %mine, %q : token\n", "this store"),
        ("  %s = tile.alloc_shared {align=16} : shared<32xi32>\n  tile.store_element %q, %s, [%t]\n", "this store"),
        ("  %s = tile.alloc_shared {align=16} : shared<32xi32>\n  tile.store_element %t, %s, [%q]\n", "an index"),
        ("  %p = offset %x, %q : tile<ptr<i32>>\n  %v, %k = load_ptr_tko %p : tile<i32>, token\n", "an address"),
        ("  %old, %k = atomic_rmw_tko %mine, %q {order=relaxed, scope=device, mode=add} : tile<i32>, token\n", "this update"),
        (
            "  %c = cmpi %q, %one {predicate=gt} : tile<i1>\n  if %c () {\n    yield []\n  } () {\n    yield []\n  }\n",
            "a branch or a loop's bounds",
        ),
        (
            "  %near = tile.shuffle %q, %one {mode=xor} : tile<i32>\n  %w = store_ptr_tko %mine, %near, mask=%odd : token\n",
            "this store",
        ),
        (
            "  %all = tile.warp_reduce %q {combine=max} : tile<i32>\n  %w = store_ptr_tko %mine, %all, mask=%odd : token\n",
            "this store",
        ),
    ] {
        let (id, shown) = fails(&text(body), &mut data());
        assert_eq!(id, "cpu-division", "{shown}");
        assert!(shown.contains(&format!("what comes of it reaches {reached}")), "{shown}");
    }
    // What decides nothing: a side that is not taken, a factor that is zero, threads that take no part.
    for body in [
        "  %s = select %odd, %q, %t : tile<i32>\n  %w = store_ptr_tko %mine, %s : token\n",
        "  %s = muli %by, %q : tile<i32>\n  %w = store_ptr_tko %mine, %s : token\n",
        "  %w = store_ptr_tko %mine, %q, mask=%odd : token\n",
        "  if %odd () {\n    %w = store_ptr_tko %mine, %q : token\n    yield []\n  } () {\n    yield []\n  }\n",
    ] {
        let mut data = data();
        launch(&text(body), [1, 1, 1], &mut data);
        assert_eq!(data[0].read::<i32>()[1], 1);
    }
}
