//! Properties of every pass: on random programs it keeps the verifier happy, and hostile text panics nothing.

use std::path::Path;

use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;
use tessera_compile::{OptLevel, generate};
use tessera_ir::text::{parse_module, print_module};
use tessera_ir::{Module, PassManager, verify};

fn optimise(module: &Module, level: OptLevel) -> Result<Module, String> {
    let mut module = module.clone();
    let mut manager = PassManager { verify_each: true, ..PassManager::default() };
    match manager.run(&mut module, &level.passes()) {
        Ok(_) => Ok(module),
        Err(failure) if !failure.broke_module => Ok(module),
        Err(failure) => {
            let found: Vec<String> = failure.diagnostics.iter().map(|d| d.render_line(&module.sources)).collect();
            Err(format!("`{}` broke the module: {found:?}\n{}", failure.pass, print_module(&module)))
        }
    }
}

#[test]
fn passes_keep_random_programs_well_formed() {
    arbtest(|u| {
        let size = u.int_in_range(5..=120usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let found = verify(&module);
        assert!(found.is_empty(), "{}\n{}", found[0].render_line(&module.sources), print_module(&module));
        let text = print_module(&module);
        let again = parse_module("again.tir", &text).unwrap_or_else(|(_, error)| panic!("{}\n{text}", error.message));
        assert_eq!(text, print_module(&again));
        for level in OptLevel::ALL {
            let optimised = optimise(&module, level).unwrap_or_else(|error| panic!("{level}: {error}\nfrom\n{text}"));
            let twice = optimise(&module, level).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(print_module(&optimised), print_module(&twice), "{level} is not deterministic");
        }
        Ok(())
    })
    .budget_ms(1_500);
}

/// Every file test's text.
fn corpus(folder: &Path, texts: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            corpus(&path, texts);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push(text.split("// output").next().unwrap_or_default().to_string());
        }
    }
}

/// Cuts, doubles and swaps pieces, and replaces words by words of the same text.
fn mutate(text: &str, u: &mut Unstructured<'_>) -> arbtest::arbitrary::Result<String> {
    let mut pieces: Vec<String> = text.split_inclusive([' ', '\n', ',', '(', ')', 'x', '=']).map(str::to_string).collect();
    for _ in 0..u.int_in_range(1..=6)? {
        if pieces.is_empty() {
            break;
        }
        let (a, b) = (u.choose_index(pieces.len())?, u.choose_index(pieces.len())?);
        match u.int_in_range(0..=6)? {
            0 => drop(pieces.remove(a)),
            1 => pieces.swap(a, b),
            2 => pieces[a] = pieces[b].clone(),
            3 => pieces.insert(a, pieces[b].clone()),
            4 => {
                pieces[a] = ["0", "-1", "4294967295", "9223372036854775807", "nan", "i1", "u8", "f4e2m1", "?", "é"]
                    [u.int_in_range(0..=9)?]
                .to_string()
            }
            5 => {
                let digits: String = u.int_in_range(0..=70)?.to_string();
                pieces[a] = pieces[a].replace(|c: char| c.is_ascii_digit(), &digits);
            }
            _ => pieces.truncate(a),
        }
    }
    Ok(pieces.concat())
}

#[test]
fn hostile_text_panics_nothing() {
    let mut texts = Vec::new();
    corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests"), &mut texts);
    assert!(texts.len() > 20, "the corpus is missing");
    arbtest(|u| {
        let text = mutate(u.choose(&texts)?, u)?;
        match parse_module("hostile.tir", &text) {
            Err((module, diagnostic)) => drop(diagnostic.render(&module.sources, false)),
            Ok(module) => {
                let found = verify(&module);
                found.iter().for_each(|diagnostic| drop(diagnostic.render(&module.sources, false)));
                if found.is_empty() {
                    for level in [OptLevel::O0, OptLevel::O3] {
                        optimise(&module, level).unwrap_or_else(|error| panic!("{error}\nfrom\n{text}"));
                    }
                }
            }
        }
        Ok(())
    })
    .budget_ms(2_000);
}
