//! Mistakes in declarative and per-thread kernels: every block of `tests/styles/*.md` reports what its lines say.

use crate::support;

#[test]
fn every_block_does_what_its_lines_say() {
    let mut failures = Vec::new();
    let mut mistakes = 0;
    for block in support::blocks("styles") {
        let (expected, found) = (block.expectations(), block.outcome());
        mistakes += usize::from(block.expects_error());
        if !support::matches(&expected, &found) {
            failures.push(format!("{}:{}\n{}  expected {expected:?}\n  found    {found:?}", block.file, block.line, block.code));
        }
        assert!(found.len() <= 1, "one mistake, one diagnostic: {}:{}", block.file, block.line);
    }
    assert!(failures.is_empty(), "{} blocks differ\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(mistakes >= 60, "the corpus has {mistakes} blocks");
}

#[test]
fn every_diagnostic_of_these_styles_has_a_block() {
    let expected: Vec<String> = support::blocks("styles").iter().flat_map(|block| block.expectations()).map(|e| e.what).collect();
    // What a caller's options provoke is tested with them.
    let elsewhere = ["config-value", "block-size-clash"];
    let missing: Vec<&str> = tessera_lang::DIAGNOSTICS
        .iter()
        .map(|row| row.id)
        .skip_while(|id| *id != "tensor-annotation")
        .take_while(|id| *id != "refused-name")
        .filter(|id| !elsewhere.contains(id) && !expected.contains(&format!("error[{id}]")))
        .collect();
    assert!(missing.is_empty(), "no block provokes {missing:?}");
}
