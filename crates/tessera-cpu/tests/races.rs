//! Races of per-thread programs: what checked launches in lock-step report, and what they let pass.

use tessera_cpu::lockstep;

use crate::harness::Data;
use crate::lockstep::{arrays, function, launch, parse, run_program};

/// A program of 4 warps whose threads do this with `%x` of 128 elements. `%t` is the thread, `%b` the block, `%first` true in thread 0, and `%own` a number
/// of each thread that `%x` does not hold.
fn program(body: &str) -> String {
    let head = "
  %t = tile.thread_id : tile<i32>
  %b = get_tile_block_id {axis=x} : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %last = constant {value=i32(127)} : tile<i32>
  %first = cmpi %t, %zero {predicate=eq} : tile<i1>
  %from = subi %last, %t : tile<i32>
  %mine = offset %x, %t : tile<ptr<i32>>
  %theirs = offset %x, %from : tile<ptr<i32>>
  %own = addi %t, %one : tile<i32>
";
    function("i32", "i32", 4, "", &format!("{head}{body}  return"))
}

fn data() -> Vec<Data> {
    arrays(&[0_i32; 128], &[0_i32; 1], 0)
}

/// What comes of the program in so many blocks. It has all its barriers.
fn ran(body: &str, blocks: u32, data: &mut [Data]) -> Result<(), (&'static str, String)> {
    let module = parse(&program(body));
    let prepared = lockstep::Program::prepare(&module, &module.funcs[0]).unwrap_or_else(|found| panic!("{}", found.message));
    let outcome = run_program(&prepared.with_all_barriers(), [blocks, 1, 1], data, true);
    outcome.map_err(|fault| (fault.diagnostic.id, fault.diagnostic.render(&module.sources, false)))
}

/// Not reported in so many blocks; what is left in `x`.
fn clean(body: &str, blocks: u32) -> Vec<i32> {
    let mut data = data();
    ran(body, blocks, &mut data).unwrap_or_else(|(_, text)| panic!("{text}"));
    data[0].read()
}

/// What is reported in so many blocks.
fn race(body: &str, blocks: u32) -> String {
    let Err((id, text)) = ran(body, blocks, &mut data()) else { panic!("nothing was reported\n{body}") };
    assert_eq!(id, "cpu-conflict", "{text}");
    text
}

/// Thread 0 alone does this.
fn in_first(body: &str) -> String {
    format!("  if %first () {{\n{body}    yield []\n  }} () {{\n    yield []\n  }}\n")
}

#[test]
fn threads_of_several_blocks() {
    let number = in_first("    %w = store_ptr_tko %x, %b : token\n");
    assert_eq!(clean(&number, 1)[0], 0);
    let text = race(&number, 2);
    assert!(text.contains("block (1, 0, 0) writes memory that another block touches"), "{text}");
    let same = in_first("    %w = store_ptr_tko %x, %last : token\n");
    assert_eq!(clean(&same, 4)[0], 127);
    let update = "    %old, %w = atomic_rmw_tko %x, %one {order=relaxed, scope=device, mode=add} : tile<i32>, token\n";
    assert_eq!(clean(&in_first(update), 4)[0], 4);
    // What reaches no other block is in order among the threads of one.
    let near = "  %old, %w = atomic_rmw_tko %x, %one {order=relaxed, scope=block, mode=add} : tile<i32>, token\n";
    assert_eq!(clean(near, 1)[0], 128);
    assert!(race(near, 2).contains("block (1, 0, 0)"));
    let read = "    %v, %k = load_ptr_tko %x : tile<i32>, token\n";
    assert!(race(&in_first(&format!("{update}{read}")), 2).contains("without atomics"));
}

/// Thread 0 takes what the block before left, behind its flag, and leaves it for the next.
fn handed(how: &str, scope: &str) -> String {
    let order = |release: &str| format!("{{order={}, scope={scope}}}", if how == "relaxed" { how } else { release });
    in_first(&format!(
        "    %next = addi %b, %one : tile<i32>
    %two = constant {{value=i32(2)}} : tile<i32>
    %at = muli %b, %two : tile<i32>
    %flag = offset %x, %at : tile<ptr<i32>>
    %value = offset %flag, %one : tile<ptr<i32>>
    %flagged = offset %flag, %two : tile<ptr<i32>>
    %valued = offset %value, %two : tile<ptr<i32>>
    %f, %k0 = load_ptr_tko %flag {} : tile<i32>, token
    %v, %k1 = load_ptr_tko %value : tile<i32>, token
    %u = addi %v, %next : tile<i32>
    %w0 = store_ptr_tko %valued, %u : token
    %w1 = store_ptr_tko %flagged, %one {} : token
",
        order("acquire"),
        order("release")
    ))
}

#[test]
fn what_is_released_and_acquired_is_ordered() {
    let left = clean(&handed("fence", "device"), 4);
    assert_eq!(left[..10], [0, 0, 1, 1, 1, 3, 1, 6, 1, 10]);
    assert!(race(&handed("relaxed", "device"), 2).contains("reads memory that another block writes"));
    assert!(race(&handed("fence", "block"), 2).contains("block"));
    // A barrier hands on what one thread has acquired: others may read what it waited for.
    let read = |between: &str| {
        // The first block waits for nobody: what it does is in no order yet.
        let take = "  %later = cmpi %b, %zero {predicate=gt} : tile<i1>
  %waits = andi %first, %later : tile<i1>
  if %waits () {
    %f, %k = load_ptr_tko %theirs {order=acquire, scope=device} : tile<i32>, token
    yield []
  } () {
    yield []
  }
";
        let give = in_first(
            "    %w0 = store_ptr_tko %x, %one : token
    %w1 = store_ptr_tko %theirs, %one {order=release, scope=device} : token
",
        );
        format!("{take}{between}  %v, %l = load_ptr_tko %x : tile<i32>, token\n  tile.barrier\n{give}")
    };
    clean(&read("  tile.barrier\n"), 3);
    assert!(race(&read(""), 3).contains("reads memory that another block writes"));
}

#[test]
fn threads_of_one_block() {
    let turn = |between: &str| {
        format!("  %v, %k = load_ptr_tko %theirs : tile<i32>, token\n{between}  %w = store_ptr_tko %mine, %own : token\n")
    };
    clean(&turn("  tile.barrier\n"), 1);
    let text = race(&turn(""), 1);
    assert!(text.contains("thread 0 writes memory that another thread touches"), "{text}");
    assert!(text.contains("it is read here by thread 127") && text.contains("tile.barrier()"), "{text}");
    // Threads that write one number, and threads that write numbers of their own.
    let store = |value: &str| format!("  %w = store_ptr_tko %x, {value} : token\n");
    assert_eq!(clean(&store("%last"), 1)[0], 127);
    assert!(race(&store("%t"), 1).contains("thread 63 writes memory that another thread touches"));
    // Every second round starts behind a barrier.
    let rounds = |between: &str| {
        format!(
            "  %end = constant {{value=i32(4)}} : tile<i32>
  for %zero, %end, %one, [] (%r: tile<i32>) {{
    %v, %k = load_ptr_tko %theirs : tile<i32>, token
    tile.barrier
    %s = addi %v, %one : tile<i32>
    %w = store_ptr_tko %mine, %s : token
{between}    continue []
  }}
"
        )
    };
    assert_eq!(clean(&rounds("    tile.barrier\n"), 1), [4; 128]);
    race(&rounds(""), 1);
    let update = "  %old, %w = atomic_rmw_tko %x, %t {order=relaxed, scope=device, mode=max} : tile<i32>, token\n";
    assert_eq!(clean(update, 1)[0], 127);
}

#[test]
fn lanes_of_a_warp() {
    // Each lane reads its neighbour's element, then writes its own.
    let turn = |between: &str| {
        format!(
            "  %near = xori %t, %one : tile<i32>
  %p = offset %x, %near : tile<ptr<i32>>
  %v, %k = load_ptr_tko %p : tile<i32>, token
{between}  %w = store_ptr_tko %mine, %own : token
"
        )
    };
    assert!(race(&turn(""), 1).contains("it is read here by thread 1"));
    clean(&turn("  %s = tile.shuffle %v, %one {mode=xor} : tile<i32>\n"), 1);
    // One of the lanes stays.
    let warp = "  %one_warp = constant {value=i32(32)} : tile<i32>
  %early = cmpi %t, %one_warp {predicate=lt} : tile<i1>
  %w = store_ptr_tko %x, %t, mask=%early : token
";
    assert_eq!(clean(warp, 1)[0], 31);
}

#[test]
fn shared_memory() {
    let with = |body: &str| format!("  %s = tile.alloc_shared {{align=16}} : shared<128xi32>\n{body}");
    let turn = |between: &str| {
        with(&format!(
            "  tile.store_element %t, %s, [%t]\n{between}  %v = tile.load_element %s, [%from] : tile<i32>\n  %w = store_ptr_tko %mine, %v : token\n"
        ))
    };
    assert_eq!(clean(&turn("  tile.barrier\n"), 2)[..2], [127, 126]);
    let text = race(&turn(""), 1);
    assert!(text.contains("thread 0 reads memory that another thread writes") && text.contains("by thread 127"), "{text}");
    // One element, with numbers of their own and with the same.
    let text = race(&with("  tile.store_element %t, %s, [%zero]\n"), 1);
    assert!(text.contains("writes memory that another thread touches"), "{text}");
    clean(&with("  tile.store_element %last, %s, [%zero]\n"), 1);
    clean(&with("  tile.store_element %t, %s, [%zero] {relaxed=true}\n"), 1);
    // Counts that are read, added to and written, and counts that are added to at once.
    let cleared = "  tile.store_element %zero, %s, [%t]\n  tile.barrier\n";
    let count = "  %v = tile.load_element %s, [%zero] : tile<i32>\n  %u = addi %v, %one : tile<i32>\n  tile.store_element %u, %s, [%zero]\n";
    assert!(race(&with(&format!("{cleared}{count}")), 1).contains("it is read here by thread"));
    let update = "  %old = tile.atomic_element %one, %s, [%zero] {mode=add} : tile<i32>\n";
    clean(&with(&format!("{cleared}{update}")), 1);
    let read = "  %v = tile.load_element %s, [%zero] : tile<i32>\n";
    clean(&with(&format!("{cleared}{update}  tile.barrier\n{read}")), 1);
    race(&with(&format!("{cleared}{update}{read}")), 1);
    // What the block before did to its own. A program that the compiler still puts barriers into is not looked at.
    clean(&turn("  tile.barrier\n"), 4);
    launch(&program(&turn("")), [1, 1, 1], &mut data());
}
