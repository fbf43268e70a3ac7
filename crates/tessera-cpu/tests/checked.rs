//! Each kind of report of checked launches has a program that fails with it, at the right lines.

use std::time::Duration;

use tessera_cpu::RunOptions;
use tessera_types::TimeLimit;

use crate::harness::{Data, fault, launch, parse, try_launch};

/// Lines before `body`: views `%xp` and `%op` of 1-D arrays cut into tiles of 8.
pub(crate) fn program(x: usize, o: usize, padding: &str, body: &str) -> String {
    let mut s = "schedule @k(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>) {\n  %i = get_tile_block_id {axis=x} : tile<i32>\n  %z = constant {value=i32(0)} : tile<i32>\n".to_string();
    for (name, len, padding) in [("x", x, padding), ("o", o, "")] {
        let tensor = format!("tensor_view<{len}xf32, strides=[1]>");
        s += &format!(
            "  %{name}v = make_tensor_view %{name}, [], [] : {tensor}\n  %{name}p = make_partition_view %{name}v : partition_view<tile=(8){padding}, {tensor}>\n"
        );
    }
    s + body + "  return\n}\n"
}

pub(crate) const LINES: usize = 7;

pub(crate) fn report(text: &str, grid: u32, x: usize, o: usize) -> (String, Vec<usize>) {
    let mut data = [Data::of(&vec![1.0_f32; x]), Data::of(&vec![0.0_f32; o])];
    fault(text, [grid, 1, 1], &mut data, &RunOptions::default())
}

#[test]
fn undetermined_padding_that_is_stored() {
    let body = "  %t, %a = load_view_tko %xp, [%i] : tile<8xf32>, token\n  %d = addf %t, %t : tile<8xf32>\n  %w = store_view_tko %d, %op, [%i] : token\n";
    let text = program(12, 16, "", body);
    assert_eq!(report(&text, 2, 12, 16), ("cpu-undetermined".into(), vec![LINES + 3, LINES + 1]));
    // Dropped at the edge, or padded: nothing to report.
    let mut data = [Data::of(&[1.0_f32; 12]), Data::of(&[0.0_f32; 12])];
    launch(&program(12, 12, "", body), [2, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>(), [2.0; 12]);
    let mut data = [Data::of(&[1.0_f32; 12]), Data::of(&[0.0_f32; 16])];
    launch(&program(12, 16, ", padding=zero", body), [2, 1, 1], &mut data);
}

#[test]
fn undetermined_padding_that_is_reduced_or_branched_on() {
    let sum = "  %t, %a = load_view_tko %xp, [%i] : tile<8xf32>, token
  %s = reduce [%t] {dim=0, identities=[f32(0.0)]} : tile<f32> (%e: tile<f32>, %b: tile<f32>) {
    %h = addf %e, %b : tile<f32>
    yield [%h]
  }
  %q = offset %o, %i : tile<ptr<f32>>
";
    let stored = program(12, 16, "", &format!("{sum}  %w = store_ptr_tko %q, %s : token\n"));
    assert_eq!(report(&stored, 2, 12, 16), ("cpu-undetermined".into(), vec![LINES + 7, LINES + 1]));
    let branched = program(
        12,
        16,
        "",
        &format!(
            "{sum}  %f = constant {{value=f32(0.0)}} : tile<f32>\n  %c = cmpf %s, %f {{predicate=gt}} : tile<i1>\n  if %c () {{\n    yield []\n  }} () {{\n    yield []\n  }}\n"
        ),
    );
    assert_eq!(report(&branched, 2, 12, 16), ("cpu-undetermined".into(), vec![LINES + 9, LINES + 1]));
}

#[test]
fn uninitialised_memory() {
    let text = program(
        16,
        16,
        "",
        "  %t, %a = load_view_tko %xp, [%i] : tile<8xf32>, token\n  %w = store_view_tko %t, %op, [%i] : token\n",
    );
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
    let options = RunOptions { uninitialised: &[0], ..RunOptions::default() };
    assert_eq!(fault(&text, [2, 1, 1], &mut data, &options), ("cpu-undetermined".into(), vec![LINES + 2, LINES + 1]));
    let fine = RunOptions { checked: true, uninitialised: &[1], ..RunOptions::default() };
    try_launch(&parse(&text), [2, 1, 1], &mut data, &fine).unwrap();
}

#[test]
fn blocks_that_touch_the_same_bytes() {
    let both_write = program(
        16,
        16,
        "",
        "  %t, %a = load_view_tko %xp, [%i] : tile<8xf32>, token\n  %w = store_view_tko %t, %op, [%z] : token\n",
    );
    let x: Vec<f32> = (0_u8..16).map(f32::from).collect();
    let mut data = [Data::of(&x), Data::of(&[0.0_f32; 16])];
    let found = fault(&both_write, [2, 1, 1], &mut data, &RunOptions::default());
    assert_eq!(found, ("cpu-conflict".into(), vec![LINES + 2, LINES + 2]));
    let reads_others = "  %u = constant {value=i32(1)} : tile<i32>
  %j = subi %u, %i : tile<i32>
  %t, %a = load_view_tko %op, [%j] : tile<8xf32>, token
  %s, %b = load_view_tko %xp, [%j] : tile<8xf32>, token
  %d = addf %t, %s : tile<8xf32>
  %w = store_view_tko %d, %op, [%i] : token
";
    assert_eq!(report(&program(16, 16, "", reads_others), 2, 16, 16), ("cpu-conflict".into(), vec![LINES + 3, LINES + 6]));
    let atomics = "  %n = constant {value=f32(1.0)} : tile<f32>\n  %old, %w = atomic_rmw_tko %o, %n {order=relaxed, scope=device, mode=addf} : tile<f32>, token\n";
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
    launch(&program(16, 16, "", atomics), [5, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>()[0], 5.0);
}

#[test]
fn updates_whose_order_reaches_no_other_block() {
    let update = |scope: &str| {
        let body = format!(
            "  %one = constant {{value=f32(1.0)}} : tile<f32>\n  %old, %k = atomic_rmw_tko %o, %one {{order=relaxed, scope={scope}, mode=addf}} : tile<f32>, token\n"
        );
        program(8, 8, "", &body)
    };
    let mut data = [Data::of(&[0.0_f32; 8]), Data::of(&[0.0_f32; 8])];
    launch(&update("device"), [2, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>()[0], 2.0);
    launch(&update("block"), [1, 1, 1], &mut data);
    assert_eq!(report(&update("block"), 2, 8, 8), ("cpu-conflict".into(), vec![LINES + 2; 2]));
}

#[test]
fn tiles_and_pointers_outside() {
    let tile = program(
        16,
        16,
        "",
        "  %t, %a = load_view_tko %xp, [%i] : tile<8xf32>, token\n  %w = store_view_tko %t, %op, [%i] : token\n",
    );
    assert_eq!(report(&tile, 3, 16, 16), ("cpu-tile-outside".into(), vec![LINES + 1]));
    // The view promises more than the argument has.
    assert_eq!(
        report(
            &program(
                16,
                24,
                "",
                "  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token\n  %w = store_view_tko %t, %op, [%i] : token\n"
            ),
            3,
            16,
            16
        ),
        ("cpu-bounds".into(), vec![LINES + 2])
    );
    let pointer = program(
        16,
        16,
        "",
        "  %k = constant {value=i32(16)} : tile<i32>\n  %q = offset %x, %k : tile<ptr<f32>>\n  %t, %a = load_ptr_tko %q : tile<f32>, token\n  %w = store_ptr_tko %o, %t : token\n",
    );
    assert_eq!(report(&pointer, 1, 16, 16), ("cpu-bounds".into(), vec![LINES + 3]));
    // Unchecked launches report it too: no other memory is ever touched.
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
    let fault = try_launch(&parse(&pointer), [1, 1, 1], &mut data, &RunOptions::default()).unwrap_err();
    assert_eq!((fault.diagnostic.id, fault.block), ("cpu-bounds", Some([0, 0, 0])));
}

#[test]
fn zero_divisors_shifts_promises_and_steps() {
    let with = |body: &str| program(16, 16, "", body);
    let store = "  %f = itof %r : tile<f32>\n  %w = store_ptr_tko %o, %f : token\n";
    let cases = [
        (format!("  %r = divi %i, %z {{rounding=zero}} : tile<i32>\n{store}"), "cpu-division", &[1, 3][..]),
        (
            "  %n = iota : tile<8xi32>\n  %m = iota : tile<8xi32>\n  %d = remi %n, %m : tile<8xi32>\n  %f = itof %d : tile<8xf32>\n  %w = store_view_tko %f, %op, [%i] : token\n".to_string(),
            "cpu-division",
            &[3, 5],
        ),
        (format!("  %k = constant {{value=i32(32)}} : tile<i32>\n  %r = shli %i, %k : tile<i32>\n{store}"), "cpu-shift", &[2]),
        (format!("  %r = assume %i {{predicate=bounded(1, ?)}} : tile<i32>\n{store}"), "cpu-assumption", &[1]),
        (
            "  %q = assume %x {predicate=div_by(65536)} : tile<ptr<f32>>\n  %e = offset %q, %z : tile<ptr<f32>>\n".to_string(),
            "cpu-assumption",
            &[1],
        ),
        ("  %c = cmpi %i, %z {predicate=ne} : tile<i1>\n  assert %c {message=\"not block 0\"}\n".to_string(), "cpu-assert", &[2]),
        ("  for %z, %z, %z, [] (%q: tile<i32>) {\n    continue []\n  }\n".to_string(), "cpu-step", &[1]),
    ];
    for (body, id, lines) in cases {
        let lines = lines.iter().map(|line| LINES + line).collect();
        assert_eq!(report(&with(&body), 1, 16, 16), (id.into(), lines), "{body}");
    }
}

#[test]
fn the_first_block_that_fails_is_reported() {
    let text = program(
        16,
        16,
        "",
        "  %k = constant {value=i32(5)} : tile<i32>\n  %c = cmpi %i, %k {predicate=lt} : tile<i1>\n  assert %c {message=\"too far\"}\n",
    );
    let module = parse(&text);
    for threads in [1, 2, 3] {
        let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
        let options = RunOptions { threads: Some(threads), ..RunOptions::default() };
        let fault = try_launch(&module, [200, 1, 1], &mut data, &options).unwrap_err();
        assert_eq!(fault.block, Some([5, 0, 0]));
    }
}

#[test]
fn overlapping_arguments_keep_program_order() {
    // Reads x after writing o: one memory under two names.
    let text = program(
        16,
        16,
        "",
        "  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token\n  %d = addf %t, %t : tile<8xf32>\n  %w = store_view_tko %d, %op, [%z] : token\n  %e = addf %t, %d : tile<8xf32>\n  %u = constant {value=i32(1)} : tile<i32>\n  %v = store_view_tko %e, %op, [%u] : token\n",
    );
    let module = parse(&text);
    let program = tessera_cpu::Program::prepare(&module, &module.funcs[0]).unwrap();
    let mut memory: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let base = memory.as_mut_ptr();
    let shifted = base.wrapping_add(4).cast::<u8>();
    let args =
        [tessera_cpu::Arg::Pointer { base: base.cast(), bytes: 64 }, tessera_cpu::Arg::Pointer { base: shifted, bytes: 64 }];
    #[allow(unsafe_code, reason = "launches take raw memory")]
    // SAFETY: both arguments lie in `memory`, which outlives the launch.
    unsafe { program.run([1, 1, 1], &args, &RunOptions::default()) }.unwrap();
    let doubled = (0..8).map(|i| 2.0 * i as f32);
    let tripled = (0..8).map(|i| 3.0 * i as f32);
    let want: Vec<f32> = (0..4).map(|i| i as f32).chain(doubled).chain(tripled).chain((20..24).map(|i| i as f32)).collect();
    assert_eq!(memory, want);
}

#[test]
fn blocks_that_wait_for_later_ones() {
    let waits = |order: &str| {
        let body = format!(
            "  %one = constant {{value=i32(1)}} : tile<i32>
  %next = addi %i, %one : tile<i32>
  %flag = offset %o, %next : tile<ptr<f32>>
  %none = constant {{value=f32(0.0)}} : tile<f32>
  loop [] () {{
    %v, %k = load_ptr_tko %flag {order} : tile<f32>, token
    %up = cmpf %v, %none {{predicate=gt}} : tile<i1>
    if %up () {{
      break []
    }} () {{
      yield []
    }}
    continue []
  }}
"
        );
        program(16, 16, "", &body)
    };
    let stopped = |text: &str, grid: u32| {
        let limit = TimeLimit::within(Duration::from_millis(50));
        let options = RunOptions { threads: Some(2), limit, ..RunOptions::default() };
        let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
        let module = parse(text);
        let fault = try_launch(&module, [grid, 1, 1], &mut data, &options).unwrap_err();
        assert_eq!(fault.diagnostic.id, "never-ends");
        fault.diagnostic.render(&module.sources, false)
    };
    let looks = waits("{order=acquire, scope=device}");
    let told = stopped(&looks, 3);
    assert!(told.contains("2 of the launch's 3 blocks run at once here") && told.contains("--device emu"), "{told}");
    // All blocks run at once, or none looks at what others do.
    for told in [stopped(&looks, 2), stopped(&waits(""), 3)] {
        assert!(!told.contains("run at once"), "{told}");
    }
}
