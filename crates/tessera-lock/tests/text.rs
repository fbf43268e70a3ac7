//! The text of lockfiles: what is written is read, what is merged is the union, and what is wrong has a place.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tessera_lock::{Bits, Entry, Key, Lockfile, parse_config, size_class};

fn key(kernel: &str, shape: &str) -> Key {
    Key {
        kernel: kernel.into(),
        ir: "0123456789abcdef".into(),
        shape: shape.into(),
        device: "cpu avx2, 2 threads".into(),
        toolchain: "tessera 0.1.0".into(),
    }
}

fn entry(value: i64) -> Entry {
    Entry {
        config: BTreeMap::from([("BLOCK_M".into(), value), ("num_warps".into(), 4)]),
        plan: Some("plan @gemm {\n  persistent 1\n}\n".into()),
        order: "mma 64".into(),
        measured_us: Some(12.5),
        candidates: 3,
        ..Entry::default()
    }
}

fn lockfile(entries: impl IntoIterator<Item = (Key, Entry)>) -> Lockfile {
    let mut lockfile = Lockfile::default();
    entries.into_iter().for_each(|(key, entry)| lockfile.insert(key, entry));
    lockfile
}

#[test]
fn an_entry_is_a_table_that_people_can_read() {
    let text = lockfile([(key("gemm", "M 64/64"), entry(128))]).to_text();
    let table: Vec<&str> = text.lines().skip(2).collect();
    let id = key("gemm", "M 64/64").id();
    assert_eq!(
        table,
        [
            &format!("[gemm.{id}]"),
            "version = 1",
            "ir = \"0123456789abcdef\"",
            "shape = \"M 64/64\"",
            "device = \"cpu avx2, 2 threads\"",
            "toolchain = \"tessera 0.1.0\"",
            "bits = \"any\"",
            "config = \"BLOCK_M=128,num_warps=4\"",
            "plan = \"\"\"",
            "plan @gemm {",
            "  persistent 1",
            "}",
            "\"\"\"",
            "order = \"mma 64\"",
            "measured_us = 12.5",
            "candidates = 3",
        ]
    );
}

/// What git does with two sides that added tables: one behind the other, in any order.
#[test]
fn texts_of_two_sides_one_behind_the_other_are_the_union() {
    let (a, b) = (lockfile([(key("a", "x"), entry(1))]), lockfile([(key("b", "x"), entry(2)), (key("a", "y"), entry(3))]));
    let mut union = a.clone();
    union.merge(b.clone());
    assert_eq!(Lockfile::parse(&(a.to_text() + &b.to_text())), Ok(union.clone()));
    assert_eq!(Lockfile::parse(&(b.to_text() + &a.to_text())), Ok(union));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_column() {
    let text = lockfile([(key("gemm", "M 64/64"), entry(128))]).to_text();
    let wrong = |text: &str| {
        let error = Lockfile::parse(text).expect_err("wrong");
        assert!(!error.help.is_empty());
        (error.line, error.column, error.message)
    };
    let (line, column, message) = wrong(&text.replace("version = 1", "<<<<<<< HEAD\nversion = 1\n=======\n>>>>>>> theirs"));
    assert_eq!((line, column, message.as_str()), (4, 1, "a merge was left unfinished here"));
    let (line, column, message) = wrong(&text.replace("bits = \"any\"", "bits = any"));
    assert_eq!((line, column), (9, 8), "{message}");
    let (line, _, message) = wrong(&text.replace("version = 1", "version = 2"));
    assert_eq!(line, 3);
    assert!(message.contains("has version 2, and this program reads version 1"), "{message}");
    let (_, _, message) = wrong(&text.replace("M 64/64", "M 128/64"));
    assert!(message.contains("is not the name of what this entry was made for"), "{message}");
    let (_, _, message) = wrong(&text.replace("num_warps=4", "num_warps=four"));
    assert!(message.contains("`NAME=NUMBER,...`"), "{message}");
    for time in ["measured_us = nan", "measured_us = -12.5", "measured_us = 1.0\npredicted_us = inf"] {
        let (line, _, message) = wrong(&text.replace("measured_us = 12.5", time));
        let name = time.rsplit('\n').next().and_then(|line| line.split(' ').next()).expect("a name");
        assert!(line == 3 && message.ends_with(&format!("has a `{name}` that is no time")), "{line}: {message}");
    }
    let (_, _, message) = wrong(&text.replace("order", "ordre"));
    assert!(message.contains("is no entry: unknown field `ordre`"), "{message}");
    let (line, _, message) = wrong(&(text.clone() + &text));
    assert!(line > 17 && message.contains("duplicate key"), "{line}: {message}");
    assert_eq!(wrong("gemm = 3").0, 1);
}

#[test]
fn an_empty_text_has_no_entries() {
    assert_eq!(Lockfile::parse(""), Ok(Lockfile::default()));
    assert_eq!(Lockfile::parse(&Lockfile::default().to_text()), Ok(Lockfile::default()));
}

#[test]
fn choices_are_read_as_the_command_line_writes_them() {
    assert_eq!(parse_config(""), Some(BTreeMap::new()));
    assert_eq!(parse_config("a=-1"), Some(BTreeMap::from([("a".into(), -1)])));
    for wrong in ["a", "a=", "=1", "a=1,", "a=1,a=2", "a=1.5"] {
        assert_eq!(parse_config(wrong), None, "{wrong}");
    }
}

fn any_key() -> impl Strategy<Value = Key> {
    let name = prop_oneof!["[a-z_]{1,6}", "\\PC{0,6}"];
    (name, "[0-9a-f]{8}", "\\PC{0,12}", "\\PC{0,12}", any::<String>()).prop_map(|(kernel, ir, shape, device, toolchain)| Key {
        kernel,
        ir,
        shape,
        device,
        toolchain,
    })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let config = prop::collection::btree_map("[A-Za-z_]{1,8}", any::<i64>(), 0..4);
    let numbers = (prop::option::of(0.0..1e9), prop::option::of(1e-9..1e9), prop::option::of(0..1u64 << 62), 0..1u64 << 40);
    (config, prop::option::of(any::<String>()), any::<bool>(), "\\PC{0,12}", numbers).prop_map(
        |(config, plan, stable, order, (predicted_us, measured_us, counted, candidates))| Entry {
            config,
            plan,
            bits: if stable { Bits::Stable } else { Bits::Any },
            order,
            predicted_us,
            measured_us,
            counted,
            candidates,
        },
    )
}

fn any_lockfile() -> impl Strategy<Value = Lockfile> {
    prop::collection::vec((any_key(), any_entry()), 0..5).prop_map(lockfile)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(lockfile in any_lockfile()) {
        let text = lockfile.to_text();
        prop_assert_eq!(Lockfile::parse(&text), Ok(lockfile), "{}", text);
    }

    #[test]
    fn a_merge_is_the_union_and_the_other_sides_where_both_have_one(a in any_lockfile(), b in any_lockfile()) {
        let mut merged = a.clone();
        merged.merge(b.clone());
        let keys = |of: &Lockfile| of.iter().map(|(key, _)| key.clone()).collect::<BTreeSet<Key>>();
        prop_assert_eq!(keys(&merged), &keys(&a) | &keys(&b));
        for (key, entry) in merged.iter() {
            prop_assert_eq!(Some(entry), b.get(key).or_else(|| a.get(key)));
        }
        let mut again = merged.clone();
        again.merge(b);
        prop_assert_eq!(again.to_text(), merged.to_text());
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Lockfile::parse(&text);
    }

    /// A lockfile with something cut out, put in or written over.
    #[test]
    fn no_damage_panics(lockfile in any_lockfile(), at in any::<prop::sample::Index>(), cut in 0..40usize, put in "\\PC{0,3}") {
        let mut text: Vec<char> = lockfile.to_text().chars().collect();
        let start = at.index(text.len());
        let end = (start + cut).min(text.len());
        text.splice(start..end, put.chars());
        if let Err(error) = Lockfile::parse(&text.iter().collect::<String>()) {
            prop_assert!(error.line >= 1 && error.column >= 1);
        }
    }

    #[test]
    fn sizes_of_one_class_are_below_one_power_of_two_and_divisible_alike(size in 1..1u64 << 40, other in 1..1u64 << 40) {
        if size_class(size) == size_class(other) {
            prop_assert_eq!(size.next_power_of_two(), other.next_power_of_two());
            prop_assert_eq!(size % 128 == 0, other % 128 == 0);
        }
    }
}
