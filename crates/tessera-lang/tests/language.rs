//! The language tests: every block of `tests/language/*.md` does what its lines say.

use crate::support;

#[test]
fn every_block_does_what_its_lines_say() {
    let mut failures = Vec::new();
    let mut counts = (0, 0);
    for block in support::blocks("language") {
        let expected = block.expectations();
        let found = block.outcome();
        if block.expects_error() {
            counts.1 += 1;
        } else {
            counts.0 += 1;
        }
        if !support::matches(&expected, &found) {
            failures.push(format!("{}:{}\n{}  expected {expected:?}\n  found    {found:?}", block.file, block.line, block.code));
        }
    }
    println!("{} blocks are accepted, {} are refused", counts.0, counts.1);
    assert!(failures.is_empty(), "{} blocks differ\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(counts.1 >= 60, "the corpus of mistakes has {} blocks", counts.1);
}

#[test]
fn every_diagnostic_has_a_block_that_provokes_it() {
    let expected: Vec<String> =
        support::blocks("language").iter().flat_map(|block| block.expectations()).map(|e| e.what).collect();
    // Notes, other stages' and other styles' diagnostics have tests of their own.
    let elsewhere = ["ignored-code", "no-such-kernel", "nested-too-deeply", "kernel-too-large"];
    let missing: Vec<&str> = tessera_lang::DIAGNOSTICS
        .iter()
        .map(|row| row.id)
        .take_while(|id| *id != "tensor-annotation")
        .filter(|id| !elsewhere.contains(id) && !expected.contains(&format!("error[{id}]")))
        .collect();
    assert!(missing.is_empty(), "no block provokes {missing:?}");
}
