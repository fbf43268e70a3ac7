//! The documents' command lines do what they say: every console block of README and `docs/` is run, and what it prints is compared.
//!
//! In a block, a line `$ tessera ...` is a command and the lines after it are what it prints, up to the next command or the end of the block.
//! A Python block whose first line names a file (`# softmax.py`) becomes that file. Numbers that depend on the machine are compared
//! as "some number" (times) or up to the last digits (floats). `...` alone in a line stands for any lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command and what the document says it prints.
struct Told {
    place: String,
    arguments: Vec<String>,
    printed: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and every page in `docs/` and its folders, by name.
fn documents() -> Vec<PathBuf> {
    let mut paths = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).expect("a folder of documents");
        for path in entries.map(|entry| entry.expect("an entry of a folder").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
}

/// Writes the document's files into a folder and gives its commands.
fn read(path: &Path, folder: &Path) -> Vec<Told> {
    let text = std::fs::read_to_string(path).expect("a document");
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut told = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        let first = block.first().map_or("", |(_, line)| line);
        if kind == "python"
            && let Some(file) = first.strip_prefix("# ").filter(|file| file.ends_with(".py"))
        {
            let source: String = block.iter().map(|(_, line)| format!("{line}\n")).collect();
            std::fs::write(folder.join(file), source).expect("written");
        }
        if !first.starts_with("$ tessera ") {
            continue;
        }
        for (number, line) in block {
            if let Some(command) = line.strip_prefix("$ tessera ") {
                let arguments = command.split_whitespace().map(str::to_string).collect();
                told.push(Told { place: format!("{name}:{}", number + 1), arguments, printed: Vec::new() });
            } else if let Some(last) = told.last_mut() {
                last.printed.push(line.trim_end().to_string());
            }
        }
    }
    told
}

/// A line with the numbers before a unit of time taken out.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &str| ["s", "ms", "us"].contains(&word.trim_end_matches([',', ')']));
    let mut kept = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let timed = words.get(at + 1).is_some_and(|next| is_unit(next)) && word.trim_start_matches('(').parse::<f64>().is_ok();
        kept.push(if timed { "#" } else { word });
    }
    kept.join(" ")
}

/// Whether lines match a pattern in which `...` stands for any number of lines.
fn matches(pattern: &[String], lines: &[String]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "..." => (0..=lines.len()).any(|at| matches(rest, &lines[at..])),
        Some((line, rest)) => lines.first().is_some_and(|found| same(line, found)) && matches(rest, &lines[1..]),
    }
}

/// Word for word, floats up to the digits in which vector widths may differ.
fn same(line: &str, found: &str) -> bool {
    let number = |word: &str| word.trim_matches(['[', ']', ',', '(', ')']).parse::<f64>().ok();
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs();
    let equal = |(a, b): (&str, &str)| a == b || matches!((number(a), number(b)), (Some(a), Some(b)) if close(a, b));
    line.split(' ').count() == found.split(' ').count() && line.split(' ').zip(found.split(' ')).all(equal)
}

#[test]
fn documents_show_what_commands_print() {
    let mut run = 0;
    for path in documents() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for told in read(&path, folder.path()) {
            let output = Command::new(env!("CARGO_BIN_EXE_tessera"))
                .current_dir(&folder)
                .args(&told.arguments)
                .output()
                .expect("tessera starts");
            let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let printed: Vec<String> = text.lines().map(|line| without_times(line.trim_end())).collect();
            let wanted: Vec<String> = told.printed.iter().map(|line| without_times(line)).collect();
            assert!(
                matches(&wanted, &printed),
                "{}: `tessera {}` prints\n{text}\nand the document says\n{}",
                told.place,
                told.arguments.join(" "),
                told.printed.join("\n")
            );
            run += 1;
        }
    }
    assert!(run >= 14, "only {run} command lines found: the reader misses them");
}

/// The page to which a link of another page leads, both from the book's root on.
fn led_to(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    if !link.is_empty() {
        parts.pop();
    }
    for part in link.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The values of an attribute in a page.
fn values<'p>(page: &'p str, attribute: &str) -> Vec<&'p str> {
    let start = format!(" {attribute}=\"");
    page.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn the_book_builds_and_its_links_lead_somewhere() {
    let Some(mdbook) = std::env::var_os("TESSERA_MDBOOK") else {
        println!("skipped: the book needs TESSERA_MDBOOK (`cargo xtask tools` says what is missing)");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output =
        Command::new(mdbook).arg("build").arg(root().join("docs")).arg("-d").arg(folder.path()).output().expect("mdbook starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let docs = root().join("docs");
    let pages: BTreeMap<String, String> = documents()
        .iter()
        .filter_map(|path| path.strip_prefix(&docs).ok())
        .filter(|path| *path != Path::new("SUMMARY.md"))
        .map(|path| {
            // The book calls a folder's first page so.
            let page = match path.file_stem().is_some_and(|stem| stem == "README") {
                true => path.with_file_name("index.html"),
                false => path.with_extension("html"),
            };
            let text = std::fs::read_to_string(folder.path().join(&page))
                .unwrap_or_else(|_| panic!("`{}` is not in SUMMARY.md", path.display()));
            (page.to_string_lossy().into_owned(), text)
        })
        .collect();
    let mut links = 0;
    for (name, text) in &pages {
        for link in values(text, "href")
            .into_iter()
            .filter(|link| !link.contains("://") && link.contains(".html") || link.starts_with('#'))
        {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let led = led_to(name, file);
            let target = pages.get(&led).or_else(|| ["index.html", "print.html", "toc.html"].contains(&&*led).then_some(text));
            let target = target.unwrap_or_else(|| panic!("{name} leads to `{link}`, which is no page"));
            let known = place.is_empty() || values(target, "id").contains(&place);
            assert!(known, "{name} leads to `{link}`, and that page has no such place");
            links += 1;
        }
    }
    assert!(links > 50, "only {links} links found");
}

#[test]
fn links_lead_from_the_folder_of_their_page() {
    assert_eq!(led_to("operators/gemm.html", "../language.html"), "language.html");
    assert_eq!(led_to("operators/gemm.html", "softmax.html"), "operators/softmax.html");
    assert_eq!(led_to("report.html", "operators/index.html"), "operators/index.html");
    assert_eq!(led_to("operators/gemm.html", ""), "operators/gemm.html");
}

#[test]
fn times_are_not_compared_and_everything_else_is() {
    assert_eq!(without_times("ran in 0.412 ms (2.0 s), 3 rows"), "ran in # ms # s), 3 rows");
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nd"), &lines("a\nb\nc\nd")));
    assert!(!matches(&lines("a\n...\nd"), &lines("a\nb\nc")));
    assert!(!matches(&lines("a"), &lines("b")));
    assert!(matches(&lines("y = [0.5, 1]"), &lines("y = [0.5000001, 1]")) && !matches(&lines("y = 0.5"), &lines("y = 0.51")));
}
