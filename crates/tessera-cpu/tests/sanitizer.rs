//! What checked launches do not report: undetermined values that decide nothing, and writes that change nothing. Beside each, what they do.

use tessera_cpu::RunOptions;

use crate::checked::{LINES, program, report};
use crate::harness::{Data, fault, launch, parse, try_launch};

/// One block that loads 5 elements as a tile `%t` of 8, with `%in` true for those inside; `%n` counts.
fn ragged(body: &str) -> String {
    let head = "  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token
  %n = iota : tile<8xi32>
  %five = constant {value=i32(5)} : tile<8xi32>
  %in = cmpi %n, %five {predicate=lt} : tile<8xi1>
  %zeros = constant {value=f32(0.0)} : tile<8xf32>
  %large = cmpf %t, %zeros {predicate=gt} : tile<8xi1>
  %ti = ftoi %t {rounding=nearest_int_to_zero} : tile<8xi32>
";
    program(5, 8, "", &format!("{head}{body}"))
}

/// Fine in every mode, and then this is what it stores.
fn stores(body: &str, want: [f32; 8]) {
    let mut data = [Data::of(&[1.0_f32, 2.0, 0.0, 4.0, 5.0]), Data::of(&[0.0_f32; 8])];
    launch(&ragged(body), [1, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>(), want, "{body}");
}

/// Reported as an undetermined value that comes from the load.
fn reported(body: &str) {
    let mut data = [Data::of(&[1.0_f32, 2.0, 0.0, 4.0, 5.0]), Data::of(&[0.0_f32; 8])];
    let (id, lines) = fault(&ragged(body), [1, 1, 1], &mut data, &RunOptions::default());
    assert_eq!((id.as_str(), lines[1]), ("cpu-undetermined", LINES + 1), "{body}");
}

#[test]
fn what_one_operand_settles_depends_on_no_other() {
    let chosen = "  %v = select %c, %t, %zeros : tile<8xf32>\n  %w = store_view_tko %v, %op, [%z] : token\n";
    let want = [1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.0, 0.0];
    stores(&format!("  %c = andi %in, %large : tile<8xi1>\n{chosen}"), want);
    // Not (outside or not large).
    let not = "  %yes = constant {value=i1(true)} : tile<8xi1>
  %out = xori %in, %yes : tile<8xi1>
  %small = xori %large, %yes : tile<8xi1>
  %either = ori %out, %small : tile<8xi1>
  %c = xori %either, %yes : tile<8xi1>
";
    stores(&format!("{not}{chosen}"), want);
    let numbers = "  %v = itof %m : tile<8xf32>\n  %w = store_view_tko %v, %op, [%z] : token\n";
    let bits = "  %none = constant {value=i32(0)} : tile<8xi32>
  %all = constant {value=i32(-1)} : tile<8xi32>
  %one = constant {value=i32(1)} : tile<8xi32>
  %kept = select %in, %all, %none : tile<8xi32>
  %gone = select %in, %none, %all : tile<8xi32>
  %factor = select %in, %one, %none : tile<8xi32>
";
    stores(&format!("{bits}  %m = andi %ti, %kept : tile<8xi32>\n{numbers}"), want);
    stores(&format!("{bits}  %m = ori %gone, %ti : tile<8xi32>\n{numbers}"), [1.0, 2.0, 0.0, 4.0, 5.0, -1.0, -1.0, -1.0]);
    stores(&format!("{bits}  %m = muli %ti, %factor : tile<8xi32>\n{numbers}"), want);
    // What settles nothing, or is undetermined itself.
    reported(&format!("  %c = ori %in, %large : tile<8xi1>\n{chosen}"));
    reported(&format!("  %c = andi %large, %large : tile<8xi1>\n{chosen}"));
    reported(&format!("{bits}  %m = andi %ti, %one : tile<8xi32>\n{numbers}"));
    // One is all that a truth value has, and not all bits of a byte.
    let bytes =
        "  %tb = trunci %ti : tile<8xi8>\n  %ones = constant {value=i8(1)} : tile<8xi8>\n  %mb = ori %tb, %ones : tile<8xi8>\n";
    reported(&format!("{bytes}  %m = exti %mb {{signedness=signed}} : tile<8xi32>\n{numbers}"));
}

#[test]
fn a_quotient_by_zero_is_all_ones_and_is_reported_where_it_decides() {
    // -3 to 4 by zero.
    let head = "  %zeros = constant {value=i32(0)} : tile<8xi32>
  %three = constant {value=i32(3)} : tile<8xi32>
  %n = iota : tile<8xi32>
  %d = subi %n, %three : tile<8xi32>
";
    let put = |value: &str| format!("  %f = itof {value} : tile<8xf32>\n  %w = store_view_tko %f, %op, [%z] : token\n");
    for (op, want) in [
        ("divi %d, %zeros {rounding=zero}", [-1.0; 8]),
        ("divi %d, %zeros {signedness=unsigned, rounding=zero}", [-1.0; 8]),
        ("divi %d, %zeros {rounding=negative_inf}", [-2.0, -2.0, -2.0, -1.0, -1.0, -1.0, -1.0, -1.0]),
        ("divi %d, %zeros {rounding=positive_inf}", [-1.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0]),
        ("remi %d, %zeros", [-1.0; 8]),
    ] {
        let text = program(8, 8, "", &format!("{head}  %q = {op} : tile<8xi32>\n{}", put("%q")));
        let mut data = [Data::of(&[0.0_f32; 8]), Data::of(&[0.0_f32; 8])];
        try_launch(&parse(&text), [1, 1, 1], &mut data, &RunOptions::default()).unwrap_or_else(|_| panic!("{op}"));
        assert_eq!(data[1].read::<f32>(), want, "{op}");
        assert_eq!(report(&text, 1, 8, 8), ("cpu-division".into(), vec![LINES + 5, LINES + 7]), "{op}");
    }
    // Every second divisor is zero, and what comes of it is not taken; what lies outside the array is not stored.
    let mixed = "  %n = iota : tile<8xi32>
  %one = constant {value=i32(1)} : tile<8xi32>
  %by = andi %n, %one : tile<8xi32>
  %q = divi %n, %by {rounding=zero} : tile<8xi32>
";
    let fine = |size: usize, body: &str, want: &[f32]| {
        let mut data = [Data::of(&vec![1.0_f32; size]), Data::of(&vec![0.0_f32; size])];
        launch(&program(size, size, "", body), [1, 1, 1], &mut data);
        assert_eq!(data[1].read::<f32>(), want, "{body}");
    };
    let odd = "  %none = constant {value=i32(0)} : tile<8xi32>
  %odd = cmpi %by, %none {predicate=ne} : tile<8xi1>
  %s = select %odd, %q, %n : tile<8xi32>
";
    fine(8, &format!("{mixed}{odd}{}", put("%s")), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(report(&program(8, 8, "", &format!("{mixed}{}", put("%q"))), 1, 8, 8).0, "cpu-division");
    let padded = "  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token
  %ti = ftoi %t {rounding=nearest_int_to_zero} : tile<8xi32>
  %q = divi %ti, %ti {rounding=zero} : tile<8xi32>
";
    let text = program(5, 5, ", padding=zero", &format!("{padded}{}", put("%q")));
    let mut data = [Data::of(&[3.0_f32; 5]), Data::of(&[0.0_f32; 5])];
    launch(&text, [1, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>(), [1.0; 5]);
}

#[test]
fn scalars_are_settled_alike() {
    let condition = |op: &str| {
        format!(
            "  %l = constant {{value=i32(7)}} : tile<i32>
  %e = extract %t, [%l] : tile<1xf32>
  %s = reshape %e : tile<f32>
  %zero = constant {{value=f32(0.0)}} : tile<f32>
  %many = cmpi %l, %z {{predicate=lt}} : tile<i1>
  %big = cmpf %s, %zero {{predicate=gt}} : tile<i1>
  %c = {op} %many, %big : tile<i1>
  if %c () {{
    yield []
  }} () {{
    %w = store_view_tko %zeros, %op, [%z] : token
    yield []
  }}
"
        )
    };
    stores(&condition("andi"), [0.0; 8]);
    reported(&condition("ori"));
}

#[test]
fn regions_follow_each_operand_by_itself() {
    // The largest of what a mask lets through: the mask decides in every step, and is determined itself.
    let region = |chosen: &str| {
        format!(
            "  %r, %any = reduce [%t, %in] {{dim=0, identities=[f32(0.0), i1(false)]}} : tile<f32>, tile<i1> (%e: tile<f32>, %b: tile<f32>, %f: tile<i1>, %g: tile<i1>) {{
    %both = andi %f, %g : tile<i1>
    %most = maxf %e, %b : tile<f32>
    %one = select %f, %e, %b : tile<f32>
    %v = select %both, %most, %one : tile<f32>
    %h = ori %f, %g : tile<i1>
    yield [{chosen}, %h]
  }}
  %q = reshape %r : tile<1xf32>
  %v8 = broadcast %q : tile<8xf32>
  %w = store_view_tko %v8, %op, [%z] : token
"
        )
    };
    stores(&region("%v"), [5.0; 8]);
    reported(&region("%most"));
    let scan = |up_to: &str| {
        format!(
            "  %r = scan [%t] {{dim=0, identities=[f32(0.0)], reverse=false}} : tile<8xf32> (%e: tile<f32>, %b: tile<f32>) {{
    %h = addf %e, %b : tile<f32>
    yield [%h]
  }}
  %k = constant {{value=i32({up_to})}} : tile<8xi32>
  %few = cmpi %n, %k {{predicate=lt}} : tile<8xi1>
  %v = select %few, %r, %zeros : tile<8xf32>
  %w = store_view_tko %v, %op, [%z] : token
"
        )
    };
    stores(&scan("5"), [1.0, 3.0, 3.0, 7.0, 12.0, 0.0, 0.0, 0.0]);
    reported(&scan("6"));
}

/// Addresses `%p` of elements `%ti` of the second argument.
const ADDRESSES: &str = "  %o1 = reshape %o : tile<1xptr<f32>>
  %ob = broadcast %o1 : tile<8xptr<f32>>
  %p = offset %ob, %ti : tile<8xptr<f32>>
";

#[test]
fn a_mask_lets_no_undetermined_address_through() {
    // Bounds are tested with the mask, and by an index that is undetermined where the mask is false.
    let inside = "  %eight = constant {value=i32(8)} : tile<8xi32>
  %bound = cmpi %ti, %eight {predicate=lt} : tile<8xi1>
  %m = andi %bound, %in : tile<8xi1>
";
    let store = "  %w = store_ptr_tko %p, %t, mask=%m : token\n";
    stores(&format!("{ADDRESSES}{inside}{store}"), [0.0, 1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.0]);
    let load =
        "  %v, %k = load_ptr_tko %p, mask=%m, padding=%zeros : tile<8xf32>, token\n  %w = store_view_tko %v, %op, [%z] : token\n";
    stores(&format!("{ADDRESSES}{inside}{load}"), [0.0; 8]);
    let update = "  %v, %w = atomic_rmw_tko %p, %t, mask=%m {order=relaxed, scope=device, mode=addf} : tile<8xf32>, token\n";
    stores(&format!("{ADDRESSES}{inside}{update}"), [0.0, 1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.0]);
    for access in [store, load, update] {
        reported(&format!("{ADDRESSES}{}{access}", inside.replace("%bound, %in", "%bound, %bound")));
    }
}

#[test]
fn parts_outside_a_tile() {
    let part = |number: i32, axis: &str| {
        let body = format!(
            "  %k = constant {{value=i32({number})}} : tile<i32>
  %sum = addi %i, %k : tile<i32>
  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token
  %e = extract %t, [{axis}] : tile<4xf32>
  %whole = insert %e, %t, [{axis}] : tile<8xf32>
  %w = store_view_tko %whole, %op, [%z] : token
"
        );
        program(8, 8, "", &body)
    };
    for axis in ["%k", "%sum"] {
        let mut data = [Data::of(&[1.0_f32; 8]), Data::of(&[0.0_f32; 8])];
        launch(&part(1, axis), [1, 1, 1], &mut data);
        for number in [2, -1] {
            assert_eq!(report(&part(number, axis), 1, 8, 8), ("cpu-tile-part".into(), vec![LINES + 4]), "{number}");
        }
    }
    let insert = "  %k = constant {value=i32(2)} : tile<i32>
  %t, %a = load_view_tko %xp, [%z] : tile<8xf32>, token
  %four = constant {value=f32(0.0)} : tile<4xf32>
  %whole = insert %four, %t, [%k] : tile<8xf32>
  %w = store_view_tko %whole, %op, [%z] : token
";
    assert_eq!(report(&program(8, 8, "", insert), 1, 8, 8), ("cpu-tile-part".into(), vec![LINES + 4]));
}

#[test]
fn one_store_with_two_values_for_a_place() {
    // Elements 2 k and 2 k + 1 have one place.
    let halves = "  %two = constant {value=i32(2)} : tile<8xi32>
  %ti = divi %n, %two {rounding=zero} : tile<8xi32>
";
    let store = |value: &str| {
        let store = format!("  %v = itof {value} : tile<8xf32>\n  %w = store_ptr_tko %p, %v : token\n");
        program(8, 8, "", &format!("  %n = iota : tile<8xi32>\n{halves}{ADDRESSES}{store}"))
    };
    assert_eq!(report(&store("%n"), 1, 8, 8), ("cpu-conflict".into(), vec![LINES + 8]));
    let mut data = [Data::of(&[1.0_f32; 8]), Data::of(&[0.0_f32; 8])];
    launch(&store("%ti"), [1, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>(), [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
}

/// Each block does this with the first element of the second argument; `%i` is its number, `%f` that as a float, `%c` 3.
fn on_one_element(body: &str) -> String {
    program(16, 16, "", &format!("  %f = itof %i : tile<f32>\n  %c = constant {{value=f32(3.0)}} : tile<f32>\n{body}"))
}

#[test]
fn blocks_that_write_what_is_there() {
    let same = on_one_element("  %w = store_ptr_tko %o, %c : token\n");
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
    launch(&same, [4, 1, 1], &mut data);
    assert_eq!(data[1].read::<f32>()[0], 3.0);
    // Blocks that write different values, and one that reads what a block has changed, whatever else that block wrote.
    let different = on_one_element("  %w = store_ptr_tko %o, %f : token\n");
    assert_eq!(report(&different, 4, 16, 16), ("cpu-conflict".into(), vec![LINES + 3, LINES + 3]));
    let read = on_one_element("  %v, %k = load_ptr_tko %o : tile<f32>, token\n  %w = store_ptr_tko %o, %c : token\n");
    assert_eq!(report(&read, 4, 16, 16), ("cpu-conflict".into(), vec![LINES + 3, LINES + 4]));
    let back = "  %zero = constant {value=f32(0.0)} : tile<f32>
  %v, %k = load_ptr_tko %o : tile<f32>, token
  %w0 = store_ptr_tko %o, %c : token
  %w1 = store_ptr_tko %o, %zero : token
";
    assert_eq!(report(&on_one_element(back), 4, 16, 16), ("cpu-conflict".into(), vec![LINES + 4, LINES + 6]));
    // Memory that holds nothing is changed by whatever is written first.
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[3.0_f32; 16])];
    let options = RunOptions { uninitialised: &[1], ..RunOptions::default() };
    let late = on_one_element(
        "  %last = cmpi %i, %z {predicate=gt} : tile<i1>
  if %last () {
    %v, %k = load_ptr_tko %o : tile<f32>, token
    yield []
  } () {
    %w = store_ptr_tko %o, %c : token
    yield []
  }
",
    );
    assert_eq!(fault(&late, [2, 1, 1], &mut data, &options).0, "cpu-conflict");
}

#[test]
fn accesses_beside_atomics() {
    let update = "  %old, %w = atomic_rmw_tko %o, %c {order=relaxed, scope=device, mode=addf} : tile<f32>, token\n";
    let read = |how: &str| format!("  %v, %k = load_ptr_tko %o {how}: tile<f32>, token\n");
    // A weak read beside updates of other blocks, before or behind its own.
    let first = on_one_element(&format!("{}{update}", read("")));
    assert_eq!(report(&first, 2, 16, 16), ("cpu-conflict".into(), vec![LINES + 3, LINES + 4]));
    let behind = on_one_element(&format!("{update}{}", read("")));
    assert_eq!(report(&behind, 2, 16, 16), ("cpu-conflict".into(), vec![LINES + 3, LINES + 4]));
    for order in ["relaxed", "acquire"] {
        let body = format!("{}{update}", read(&format!("{{order={order}, scope=device}} ")));
        let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
        launch(&on_one_element(&body), [4, 1, 1], &mut data);
        assert_eq!(data[1].read::<f32>()[0], 12.0);
    }
}

#[test]
fn an_order_within_the_block_orders_no_others() {
    // Each block hands its number on behind a flag; who waits for the flag reads it.
    let handed = |scope: &str| {
        on_one_element(&format!(
            "  %one = constant {{value=i32(1)}} : tile<i32>
  %next = addi %i, %one : tile<i32>
  %mine = offset %x, %i : tile<ptr<f32>>
  %theirs = offset %x, %next : tile<ptr<f32>>
  %flag = offset %o, %i : tile<ptr<f32>>
  %raised = offset %o, %next : tile<ptr<f32>>
  %v, %k = load_ptr_tko %flag {{order=acquire, scope={scope}}} : tile<f32>, token
  %u, %l = load_ptr_tko %mine : tile<f32>, token
  %w0 = store_ptr_tko %theirs, %f : token
  %w1 = store_ptr_tko %raised, %c {{order=release, scope={scope}}} : token
"
        ))
    };
    let mut data = [Data::of(&[1.0_f32; 16]), Data::of(&[0.0_f32; 16])];
    launch(&handed("device"), [4, 1, 1], &mut data);
    assert_eq!(report(&handed("block"), 2, 16, 16), ("cpu-conflict".into(), vec![LINES + 9, LINES + 12]));
}
