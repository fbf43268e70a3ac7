//! Hostile sources: whatever a text says, the crate answers with diagnostics.

use arbtest::arbtest;
use tessera_lang::{LowerOptions, lower, parse_file};

use crate::support;

/// Parses and lowers every kernel, whatever comes of it; what lowers is valid.
fn survive(text: &str) {
    let file = parse_file("hostile.py", text);
    let args = support::arguments("x: f32[?], y: f32[?], m: f32[?,?], q: i32[?], h: f16[?,?], n: i32, f: f32, N = 16");
    for (name, kernel) in &file.kernels {
        let args: Vec<_> =
            args.iter().filter(|(name, _)| kernel.params.iter().any(|param| param.name == *name)).cloned().collect();
        match lower(&file, name, &args, &LowerOptions::default()) {
            Ok(module) => {
                let problems = tessera_ir::verify(&module);
                assert!(problems.is_empty(), "invalid IR from\n{text}\n{}", problems[0].message);
            }
            Err(diagnostics) => {
                assert_eq!(diagnostics.len(), 1, "one mistake, one diagnostic:\n{text}");
                diagnostics.iter().for_each(|diagnostic| {
                    diagnostic.render(&file.sources, false);
                });
            }
        }
    }
}

/// Functions that call themselves under a run-time condition nest the kernel's branches.
#[test]
fn branches_nest_so_deep_and_no_deeper() {
    let kernel = |levels: u32| {
        format!(
            "import cuda.tile as ct

def under(n, i):
    r = 0
    if i > n:
        r = under(n - 1, i) + 1 if n > 0 else 1
    return r

@ct.kernel
def k(x):
    ct.store(x, (0,), ct.full((1,), under({levels}, ct.bid(0)), ct.float32))
"
        )
    };
    let ask = |levels: u32| {
        let file = parse_file("nested.py", &kernel(levels));
        lower(&file, "k", &support::arguments("x: f32[?]"), &LowerOptions::default())
    };
    assert!(tessera_ir::verify(&ask(149).expect("it nests 150 deep")).is_empty());
    assert_eq!(ask(150).expect_err("it nests 151 deep")[0].id, "nested-too-deeply");
    assert_eq!(ask(5000).expect_err("it calls itself too often")[0].id, "recursion-limit");
}

#[test]
fn mutated_kernels_give_diagnostics() {
    let blocks = support::blocks("language");
    let sources: Vec<String> = blocks.iter().map(|block| block.source()).collect();
    let words: Vec<&str> = sources.iter().flat_map(|text| text.split_inclusive([' ', '(', ')', ',', '\n'])).collect();
    arbtest(|u| {
        let mut text: Vec<char> = u.choose(&sources)?.chars().collect();
        for _ in 0..u.int_in_range(1..=4)? {
            let at = u.choose_index(text.len().max(1))?.min(text.len());
            match u.int_in_range(0..=3)? {
                0 => {
                    let count = u.int_in_range(1..=12)?;
                    text.drain(at..(at + count).min(text.len()));
                }
                1 => {
                    let word: Vec<char> = u.choose(&words)?.chars().collect();
                    text.splice(at..at, word);
                }
                2 => {
                    let c = *u.choose(&['(', ')', '-', '0', '9', '*', ':', '"', '\n', ' ', '[', '\u{e9}', '.', '@'])?;
                    text.splice(at..at, [c]);
                }
                _ => {
                    let end = (at + u.int_in_range(1..=40)?).min(text.len());
                    let part: Vec<char> = text[at..end].to_vec();
                    text.splice(at..at, part);
                }
            }
        }
        survive(&text.into_iter().collect::<String>());
        Ok(())
    })
    .budget_ms(3_000);
}

#[test]
fn texts_that_nest_or_grow_without_bound_are_refused() {
    let kernel = |body: &str| format!("import cuda.tile as ct\n\n@ct.kernel\ndef kernel(x, n):\n{body}\n");
    let nested: String = (0..120).map(|i| format!("{}if n > {i}:\n", "  ".repeat(i + 1))).collect();
    for text in [
        kernel(&format!("    t = {}1{}", "(".repeat(3000), ")".repeat(3000))),
        kernel(&format!("    t = {}1", "-".repeat(3000))),
        kernel(&format!("    t = n{}", " + n".repeat(3000))),
        kernel(&format!("{nested}{}pass", "  ".repeat(121))),
        kernel(
            "    for i in ct.static_iter(range(1000)):\n        for j in ct.static_iter(range(1000)):\n            n = n + i * j",
        ),
        kernel("    t = 1 << 100 << 100\n    t = 2 ** 10000000"),
        kernel("    t = (1,)\n    for i in ct.static_iter(range(900)):\n        t = t + t"),
        "f = lambda: f()\n".to_string() + &kernel("    f()"),
        "a = b\nb = a\n".to_string() + &kernel("    t = a"),
        "a = a.b\n\n@a\ndef kernel(x: a): pass\n".to_string(),
        "a = b.c\nb = a.c\n".to_string() + &kernel("    t = a(n)"),
        "\u{feff}import cuda.tile as ct\r\n@ct.kernel\r\ndef kernel(): pass\r\n".to_string(),
        "@".repeat(100_000),
        "\0\0\0".to_string(),
        "def".to_string(),
        "f'{".repeat(1000),
    ] {
        survive(&text);
    }
}
