//! Every refusal is reached by a test.
//!
//! Why the passes of `src/tile` leave a function as it is, or refuse a plan, is a text in their source. Each stands in full in what a file test
//! announces (`// note: [left-as-it-is] ...`, `// error: [plan] ...`), or among [`STRIPS`]. One that nothing reaches fails here by its name, unless it
//! is among those that no function can bring about, with a reason. A text that stands in several places is asked for once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tessera_compile::tile::strips::Strips;
use tessera_ir::text::parse_module;
use tessera_ir::verify;

/// Texts that no function and no plan can bring about, and why not.
const NEVER: &[(&str, &str)] = &[
    ("factors hold no numbers", "the verifier: products are of numbers"),
    ("a factor is no tile", "the verifier: products are of tiles"),
    ("a factor holds no numbers", "the verifier: products are of numbers"),
    ("an operand is no tile", "the verifier: products are of tiles"),
    ("an operand holds no numbers", "the verifier: products are of numbers"),
    ("a factor is loaded from no view", "the verifier: what is loaded is a tile of a view"),
    ("what is loaded is no block of an array", "the verifier: what is loaded is a tile of a view"),
    ("a plan without roles has one partition", "plans of one partition alone come there"),
    ("nothing is copied", "a loop is left without a word only where no plan asks for its loads"),
    ("the product's loop loads nothing", "a product of what was not loaded is refused before, and a plan's rings hold something"),
    ("nothing has that axis", "the axes that are cut are those of values, which operations yield and take"),
    ("what the strips compute is written once", "what is written uses it, and is refused for that before"),
];

/// Texts of three words and more that refuse nothing.
const OTHERS: &[&str] = &["plan by hand"];

/// Why a function is cut into no more strips: the reason, into how many it is cut before, and what the function does with `%xv`, a view of tiles of
/// 64 x 64 numbers, and `%yv`, one of single numbers.
const STRIPS: &[(&str, u64, &str)] = &[
    (
        "more strips are no use",
        32,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %s = store_view_tko %v, %xv, [%zero, %zero], token=%t : token
",
    ),
    (
        "no axis of a tile can be cut",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %rows = reduce [%v] {dim=0, identities=[f32(0.0)]} : tile<64xf32> (%a: tile<f32>, %b: tile<f32>) {
    %c = addf %a, %b : tile<f32>
    yield [%c]
  }
  %columns = reduce [%v] {dim=1, identities=[f32(0.0)]} : tile<64xf32> (%d: tile<f32>, %e: tile<f32>) {
    %f = addf %d, %e : tile<f32>
    yield [%f]
  }
",
    ),
    (
        "the tile's work is left from within",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %stop = cmpi %n, %zero {predicate=eq} : tile<i1>
  if %stop () {
    return
  } () {
    yield []
  }
  %s = store_view_tko %v, %xv, [%zero, %zero], token=%t : token
",
    ),
    (
        "a strip would write what belongs to all of them",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %one.1 = constant {value=f32(1.0)} : tile<1x1xf32>
  %r = for %zero, %n, %one, [%v] : tile<64x64xf32> (%i: tile<i32>, %acc: tile<64x64xf32>) {
    %w = store_view_tko %one.1, %yv, [%i, %zero] : token
    %next = addf %acc, %acc : tile<64x64xf32>
    continue [%next]
  }
  %s = store_view_tko %r, %xv, [%zero, %zero], token=%t : token
",
    ),
    (
        "`print_tko` happens once",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %p = print_tko [%n] {format=\"%d\"} : token
  %s = store_view_tko %v, %xv, [%zero, %zero], token=%t : token
",
    ),
    (
        "what one strip writes another may read or write",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %u = permute %v {permutation=[1, 0]} : tile<64x64xf32>
  %s = store_view_tko %u, %xv, [%zero, %zero], token=%t : token
",
    ),
    (
        "what the strips compute is wanted behind them",
        1,
        "  %v, %t = load_view_tko %xv, [%zero, %zero] : tile<64x64xf32>, token
  %r, %last = for %zero, %n, %one, [%v, %zero] : tile<64x64xf32>, tile<i32> (%i: tile<i32>, %acc: tile<64x64xf32>, %at: tile<i32>) {
    %next = addf %acc, %acc : tile<64x64xf32>
    %further = addi %at, %one : tile<i32>
    continue [%next, %further]
  }
  %s = store_view_tko %r, %xv, [%zero, %zero], token=%t : token
  %one.1 = constant {value=f32(1.0)} : tile<1x1xf32>
  %w = store_view_tko %one.1, %yv, [%last, %zero] : token
",
    ),
];

/// Words that a text has at least, and a name has not.
const WORDS: usize = 3;

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// The texts of a source with their lines, without those of comments and tests, what documents a pass, and mistakes of ours.
fn texts(source: &str) -> Vec<(usize, String)> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    let mut letters = code.char_indices().peekable();
    while let Some((start, letter)) = letters.next() {
        if letter != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some((_, letter)) = letters.next().filter(|(_, letter)| *letter != '"') {
            match (letter, letters.peek()) {
                // The text goes on in the next line.
                ('\\', Some((_, '\n'))) => while letters.next_if(|(_, letter)| letter.is_whitespace()).is_some() {},
                ('\\', _) => text.extend(letters.next().map(|(_, letter)| letter)),
                _ => text.push(letter),
            }
        }
        let before = code[..start].trim_end();
        let documents = before.ends_with("doc:") || before.ends_with("bug!(");
        if !documents && text.split_whitespace().count() >= WORDS {
            found.push((code[..start].matches('\n').count() + 1, text));
        }
    }
    found
}

/// A text says what another one does, with whatever stands for the places in braces of that one.
fn says(text: &str, other: &str) -> bool {
    let parts = other
        .split('{')
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once('}').map_or(part, |part| part.1) });
    let mut rest = Some(text);
    for (at, part) in parts.enumerate() {
        // Something stands for a place.
        let behind = rest.and_then(|rest| rest.get(rest.chars().next().map_or(0, char::len_utf8) * usize::from(at > 0)..));
        rest = behind.and_then(|behind| Some(&behind[behind.find(part)? + part.len()..]));
    }
    rest.is_some()
}

/// What file tests announce.
fn announced(folder: &Path) -> Vec<String> {
    let mut tests = Vec::new();
    files(folder, "tir", &mut tests);
    let mut found = Vec::new();
    for path in tests {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for line in text.lines() {
            let rest = line.split_once("// error: [").or_else(|| line.split_once("// note: ["));
            found.extend(rest.and_then(|(_, rest)| Some(rest.split_once(']')?.1.trim().to_string())));
        }
    }
    found
}

#[test]
fn every_refusal_is_reached() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    files(&root.join("src/tile"), "rs", &mut sources);
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for path in &sources {
        let source = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(root).unwrap_or(path).display();
        for (line, text) in texts(&source).into_iter().filter(|(_, text)| !OTHERS.contains(&text.as_str())) {
            all.entry(text).or_insert_with(|| format!("{name}:{line}"));
        }
    }
    assert!(all.len() > 80, "the sources have texts, of which {} were found", all.len());
    let mut told = announced(&root.join("../../tests/filetests"));
    told.extend(STRIPS.iter().map(|(text, ..)| (*text).to_string()));
    let mut reached: Vec<&str> = Vec::new();
    for told in &told {
        let said: Vec<&str> = all.keys().map(String::as_str).filter(|text| says(told, text)).collect();
        // What says more is what was said.
        let less = |text: &str| said.iter().any(|more| says(more, text) && !says(text, more));
        reached.extend(said.iter().filter(|text| !less(text)));
    }
    let never = |text: &str| NEVER.iter().any(|(never, _)| *never == text);
    let mut wrong: Vec<String> = Vec::new();
    for (text, place) in &all {
        match (reached.contains(&text.as_str()), never(text)) {
            (false, false) => wrong.push(format!("{place}: no test reaches `{text}`")),
            (true, true) => wrong.push(format!("{place}: a test reaches `{text}`, which nothing can bring about")),
            _ => {}
        }
    }
    let gone = NEVER.iter().filter(|(text, _)| !all.contains_key(*text));
    wrong.extend(gone.map(|(text, _)| format!("no source says `{text}`")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn why_there_are_no_more_strips() {
    let view = |name: char, tile: &str, tensor: &str| {
        format!(
            "  %{name}t = make_tensor_view %{name}, [%{name}0, %{name}1], [%{name}s0] : {tensor}\n  \
             %{name}v = make_partition_view %{name}t : partition_view<tile=({tile}), {tensor}>\n"
        )
    };
    let args = |name: char| {
        let numbers = ["0", "1", "s0", "s1"].map(|number| format!("%{name}{number}: tile<i32>")).join(", ");
        format!("%{name}: tile<ptr<f32>>, {numbers}")
    };
    let array = |name: char| format!("{name}: array<f32, [?, ?], [?, 1], i32, align=16, disjoint>");
    let tensor = "tensor_view<?x?xf32, strides=[?,1]>";
    for (wanted, parts, body) in STRIPS {
        let text = format!(
            "schedule @k({}, {}, %n: tile<i32>) abi({}, {}, n: scalar<i32>) {{\n{}{}  \
             %zero = constant {{value=i32(0)}} : tile<i32>\n  %one = constant {{value=i32(1)}} : tile<i32>\n{body}  return\n}}\n",
            args('x'),
            args('y'),
            array('x'),
            array('y'),
            view('x', "64x64", tensor),
            view('y', "1x1", tensor),
        );
        let module = parse_module("strips.tir", &text).unwrap_or_else(|(_, error)| panic!("{}\n{text}", error.message));
        let wrong: Vec<String> = verify(&module).into_iter().map(|error| error.message).collect();
        assert!(wrong.is_empty(), "{}\n{text}", wrong.join("\n"));
        let (ways, reason) = Strips::ways(&module.funcs[0]);
        let most = ways.last().map_or(1, Strips::count);
        assert_eq!((reason.text.as_ref(), most), (*wanted, *parts), "{text}");
    }
}
