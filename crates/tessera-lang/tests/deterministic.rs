//! One source gives one text: every block of the language tests is lowered in three processes, in other orders and on other
//! threads, and prints the same bytes. Hashed containers of the standard library are seeded anew in each process.

use std::path::Path;
use std::process::Command;

use tessera_ir::text::print_module;
use tessera_lang::{LowerOptions, lower};

use crate::support;

const WHERE: &str = "TESSERA_TEST_LISTING";
const REVERSED: &str = "TESSERA_TEST_REVERSED";

/// What a block becomes: the text of each kernel, or what is wrong with it.
fn text(block: &support::Block) -> String {
    let file = block.parsed();
    let args = support::arguments(&block.args_text());
    let options = LowerOptions { reveal: true, ..LowerOptions::default() };
    let mut text = String::new();
    for (name, kernel) in &file.kernels {
        let args: Vec<_> =
            args.iter().filter(|(name, _)| kernel.params.iter().any(|param| param.name == *name)).cloned().collect();
        match lower(&file, name, &args, &options) {
            Ok(module) => {
                let printed = print_module(&module);
                assert_eq!(printed, print_module(&module), "printing twice");
                text.push_str(&printed);
            }
            Err(wrong) => wrong.iter().for_each(|diagnostic| text.push_str(&diagnostic.render(&file.sources, false))),
        }
    }
    text
}

/// Every block's text, worked out forwards or backwards by two threads.
fn listing(reversed: bool) -> String {
    let mut blocks: Vec<(usize, support::Block)> = support::blocks("language").into_iter().enumerate().collect();
    if reversed {
        blocks.reverse();
    }
    let (even, odd): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(at, _)| at % 2 == 0);
    let work = |part: Vec<(usize, support::Block)>| part.iter().map(|(at, block)| (*at, text(block))).collect::<Vec<_>>();
    let mut texts = std::thread::scope(|scope| {
        let other = scope.spawn(move || work(odd));
        let mut texts = work(even);
        texts.extend(other.join().expect("no block panics"));
        texts
    });
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_process_gives_the_same_text() {
    if let Some(path) = std::env::var_os(WHERE) {
        std::fs::write(Path::new(&path), listing(std::env::var_os(REVERSED).is_some())).expect("written");
        return;
    }
    let here = listing(false);
    let kernels = here.matches("schedule @").count();
    assert!(kernels > 30, "only {kernels} kernels: the blocks are missing");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for reversed in [false, true] {
        let path = folder.path().join(format!("{reversed}.txt"));
        let mut other = Command::new(std::env::current_exe().expect("this test"));
        other.args(["--exact", "deterministic::every_process_gives_the_same_text"]).env(WHERE, &path);
        if reversed {
            other.env(REVERSED, "1");
        }
        let output = other.output().expect("this test starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let there = std::fs::read_to_string(&path).expect("a listing");
        let differing = here.lines().zip(there.lines()).find(|(here, there)| here != there);
        assert!(here == there, "another process gives another text (reversed: {reversed}): {differing:?}");
    }
}
