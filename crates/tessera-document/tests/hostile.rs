//! Hostile texts in the document's form: whatever is done to a program, parsing and verifying end with a diagnostic or a module.

use tessera_document::parse_module;
use tessera_ir::text::print_module;
use tessera_ir::verify;

const PROGRAMS: [&str; 4] = [
    include_str!("../../../tests/filetests/document/flash-attention.tir"),
    include_str!("../../../tests/filetests/document/operands.tir"),
    include_str!("../../../tests/filetests/document/mma.tir"),
    include_str!("../../../tests/filetests/document/memory.tir"),
];

/// Words that are put where others stood.
const WORDS: [&str; 22] = [
    "%Q_global",
    "%smem_k",
    "%acc",
    "%c0",
    "%neg_inf",
    "%m_state",
    "memref<4294967295x4294967295xf32, 5>",
    "memref<?xf32>",
    "memref<0xf32>",
    "memref<8xi4, 3>",
    "memref<2x2x2x2x2x2x2x2x2x2x2x2x2xf32>",
    "index",
    "{",
    "}",
    "tile.mma",
    "tile.copy",
    "scf.if",
    "-9223372036854775808",
    "99999999999999999999",
    "[1, 1]",
    "->",
    "i1",
];

/// Numbers without end, the same every time.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    }
}

fn survives(text: &str) {
    match parse_module("hostile.tir", text) {
        Err((module, error)) => {
            assert!(error.primary.is_some(), "no place: {}", error.message);
            drop(error.render(&module.sources, false));
        }
        Ok(module) => {
            for problem in verify(&module) {
                drop(problem.render(&module.sources, false));
            }
            drop(print_module(&module));
        }
    }
}

#[test]
fn hostile_texts_do_not_panic() {
    let mut next = numbers(7);
    for program in PROGRAMS {
        survives(program);
        let words: Vec<&str> = program.split_inclusive([' ', '\n', '(', ')', '[', ']', ',', ':']).collect();
        for round in 0..800 {
            let mut mutated: Vec<&str> = words.clone();
            for _ in 0..=round % 3 {
                let at = next(mutated.len());
                match next(4) {
                    0 => drop(mutated.remove(at)),
                    1 => mutated[at] = WORDS[next(WORDS.len())],
                    2 => mutated.swap(at, next(words.len() - 3)),
                    _ => mutated.insert(at, WORDS[next(WORDS.len())]),
                }
            }
            survives(&mutated.join(" ").replace("  ", " "));
            let text = mutated.concat();
            survives(&text);
            let mut end = next(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            survives(&text[..end]);
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let calls = "tile.exp(".repeat(5_000);
    survives(&format!("func @k() {{\n  %a = tile.exp {calls}"));
    let loops = "scf.if %c {".repeat(5_000);
    survives(&format!("func @k(%c: i1) {{ {loops}"));
}
