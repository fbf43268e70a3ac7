//! Reports and comparisons of imagined results.

use std::path::Path;
use std::process::Command;

use tessera_bench::report::Source;
use tessera_bench::{CompareError, CompareOptions, Exit, Record, Results, Status, Verdict, compare, footer, report, table};

use crate::synthetic::{PLAIN, Variation, records, results, text};

fn compared(base: Variation, new: Variation) -> tessera_bench::Comparison {
    compare(&[results(base)], &[results(new)], CompareOptions::default()).unwrap()
}

/// Files of `n` sessions of a side.
fn sessions(variation: Variation, n: u64) -> Vec<Results> {
    (0..n).map(|i| results(Variation { seed: 10 * variation.seed + i, ..variation })).collect()
}

#[test]
fn a_second_run_of_the_same_code_shows_no_change() {
    let same = compared(PLAIN, Variation { seed: 2, ..PLAIN });
    assert_eq!(same.exit(), Exit::Ok);
    assert!(!same.counts.contains_key(&Verdict::Slower) && !same.counts.contains_key(&Verdict::Faster), "{:?}", same.counts);
    assert_eq!(same.counts[&Verdict::Undecided], same.changes.len(), "one session a side cannot say that nothing changed");
    let (ratio, ci) = same.geomean.unwrap();
    assert!((ratio - 1.0).abs() < 0.01 && ci.contains(ratio));
}

#[test]
fn slower_and_faster_rows_are_found_in_the_right_direction() {
    let slow = compared(PLAIN, Variation { seed: 3, slower: Some(("softmax", 3.0)), ..PLAIN });
    assert_eq!((slow.counts[&Verdict::Slower], slow.exit()), (18, Exit::Regression));
    for change in slow.changes.iter().filter(|c| c.verdict == Verdict::Slower) {
        assert!(change.title.starts_with("softmax"), "{change:?}");
        assert!((change.estimate_pct.unwrap() - 200.0).abs() < 3.0);
        assert!(change.ci95_pct.unwrap().contains(change.estimate_pct.unwrap()));
    }
    let fast = compared(Variation { seed: 3, slower: Some(("softmax", 3.0)), ..PLAIN }, PLAIN);
    assert_eq!((fast.counts[&Verdict::Faster], fast.exit()), (18, Exit::Ok));
}

/// What two sessions show is no more than what two processes of one program may differ by; on a GPU that is little, and more
/// sessions outvote what is known beforehand.
#[test]
fn verdicts_are_as_sure_as_the_sessions_allow() {
    let slower = |on_gpu, factor| Variation { seed: 3, on_gpu, slower: Some(("softmax", factor)), ..PLAIN };
    let gpu = Variation { on_gpu: true, ..PLAIN };
    let single = compared(gpu, slower(true, 1.03));
    assert_eq!((single.exit(), single.processes), (Exit::Ok, (1, 1)), "{:?}", single.counts);
    assert!(single.visible_pct.unwrap() > 4.0, "{:?}", single.visible_pct);
    let several = compare(&sessions(gpu, 8), &sessions(slower(true, 1.06), 8), CompareOptions::default()).unwrap();
    assert_eq!((several.counts[&Verdict::Slower], several.processes), (18, (8, 8)), "{:?}", several.counts);
    assert!(several.visible_pct.unwrap() < 3.0, "{:?}", several.visible_pct);
    // One per cent is below the margin of two.
    let slight = compare(&sessions(gpu, 8), &sessions(slower(true, 1.01), 8), CompareOptions::default()).unwrap();
    assert_eq!(slight.exit(), Exit::Ok);
    let same = compare(&sessions(gpu, 8), &sessions(Variation { seed: 2, ..gpu }, 8), CompareOptions::default()).unwrap();
    assert!(same.counts[&Verdict::Same] > 20 && same.exit() == Exit::Ok, "{:?}", same.counts);
}

#[test]
fn a_wrong_row_outranks_everything() {
    let broken = compared(PLAIN, Variation { seed: 5, wrong: Some("dot"), slower: Some(("gemm", 2.0)), ..PLAIN });
    assert_eq!((broken.counts[&Verdict::Broken], broken.exit()), (3, Exit::Incorrect));
    assert_eq!(broken.changes[0].verdict, Verdict::Broken);
    assert!(broken.changes[0].estimate_pct.is_none(), "a wrong row has no speed-up");
    let fixed = compared(Variation { wrong: Some("dot"), ..PLAIN }, PLAIN);
    assert_eq!((fixed.counts[&Verdict::Fixed], fixed.exit()), (3, Exit::Ok));
}

/// Nothing was found where nothing was compared, and what is wrong on both sides is wrong.
#[test]
fn a_comparison_of_nothing_is_invalid() {
    let all = text(PLAIN);
    // Cut off behind the first row that was begun.
    let begun = all.lines().position(|line| line.contains("\"kind\":\"case\"")).unwrap();
    let cut: String = all.lines().take(begun + 1).map(|line| format!("{line}\n")).collect();
    let nothing = compare(&[Results::parse(cut.as_bytes()).unwrap()], &[results(PLAIN)], CompareOptions::default()).unwrap();
    assert_eq!((nothing.counts.keys().collect::<Vec<_>>(), nothing.exit()), (vec![&Verdict::New], Exit::Invalid));
    assert!(nothing.notes.iter().any(|note| note.contains("no row has an outcome on both sides")), "{:?}", nothing.notes);
    let wrong = Variation { wrong: Some("dot"), ..PLAIN };
    let still = compared(wrong, Variation { seed: 2, ..wrong });
    assert_eq!((still.counts[&Verdict::Invalid], still.exit()), (3, Exit::Incorrect));
}

/// A row's median is that of its blocks.
#[test]
fn a_median_that_its_blocks_do_not_have_is_refused() {
    let halved = |record| match record {
        Record::Summary(mut summary) => {
            summary.times.iter_mut().for_each(|times| times.median_ns /= 2.0);
            Record::Summary(summary)
        }
        other => other,
    };
    let lines = records(PLAIN).into_iter().map(|record| serde_json::to_string(&halved(record)).unwrap() + "\n");
    let changed: String = lines.collect();
    let refused = Results::parse(changed.as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("median_ns is ") && refused.contains("the row's blocks say"), "{refused}");
}

#[test]
fn a_machine_that_moved_widens_the_margin_or_ends_the_comparison() {
    let slower_clock = compared(PLAIN, Variation { seed: 6, machine: 1.04, ..PLAIN });
    assert!(slower_clock.anchor_pct > 3.9 && slower_clock.margin_pct > 11.0);
    assert_eq!(slower_clock.exit(), Exit::Ok, "{:?}", slower_clock.counts);
    assert_eq!(compared(PLAIN, Variation { seed: 6, machine: 1.2, ..PLAIN }).exit(), Exit::Invalid);

    let other = text(PLAIN).replace("\"fingerprint\":\"", "\"fingerprint\":\"x");
    let other = Results::parse(other.as_bytes()).unwrap();
    assert!(matches!(compare(&[results(PLAIN)], &[other], CompareOptions::default()), Err(CompareError::Machines { .. })));
}

#[test]
fn rows_of_one_file_only_are_listed() {
    let all = text(PLAIN);
    let first_case = all.lines().position(|l| l.contains("\"kind\":\"case\"")).unwrap();
    let second_case = all.lines().enumerate().filter(|(_, l)| l.contains("\"kind\":\"case\"")).nth(1).unwrap().0;
    let lines: Vec<&str> =
        all.lines().enumerate().filter(|(i, _)| *i < first_case || *i >= second_case).map(|(_, l)| l).collect();
    let fewer = Results::parse((lines.join("\n") + "\n").as_bytes()).unwrap();
    assert!(!fewer.complete());
    let missing = compare(&[results(PLAIN)], std::slice::from_ref(&fewer), CompareOptions::default()).unwrap();
    assert_eq!((missing.counts[&Verdict::Missing], missing.exit()), (1, Exit::Invalid));
    assert!(missing.notes.iter().any(|n| n.contains("the new file is incomplete")));
    let added = compare(&[fewer], &[results(PLAIN)], CompareOptions::default()).unwrap();
    assert_eq!((added.counts[&Verdict::New], added.exit()), (1, Exit::Ok));
}

#[test]
fn the_table_has_every_row_and_says_why() {
    let results = results(Variation { wrong: Some("dot"), ..PLAIN });
    let rows = table(&results);
    assert_eq!(rows.len(), results.rows.len());
    let gemm = rows.iter().find(|r| r.cells[0] == "gemm" && r.cells[1] == "512x512x512" && r.cells[2] == "f32").unwrap();
    assert_eq!(gemm.cells[4], "ok");
    assert!(gemm.cells[7].ends_with("GFLOP/s") && gemm.cells[8].ends_with("% compute"), "{gemm:?}");
    assert!(gemm.cells[9].contains("x numpy (") && gemm.cells[10].starts_with("1.9 ms (parse 0.21"), "{gemm:?}");
    let dot = rows.iter().find(|r| r.cells[0] == "dot").unwrap();
    assert!(dot.cells[5].is_empty() && dot.cells[7].is_empty() && dot.reason.as_ref().unwrap().contains("outside the bound"));
    let footer = footer(&results);
    assert_eq!(footer.reasons.len(), 4);
    assert!(footer.counts.contains("3 incorrect") && footer.counts.contains("1 not_converged"));
}

fn sources(variations: &[Variation]) -> Vec<Source> {
    variations.iter().map(|&v| Source { name: "imagined.jsonl".into(), results: results(v) }).collect()
}

fn page(sources: &[Source]) -> String {
    report::html(sources, 1_795_226_400).unwrap()
}

/// The committed measurements.
fn committed() -> Vec<Source> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Some hold the lines of other programs.
    let is_of_bench = |path: &Path| std::fs::read(path).unwrap().starts_with(b"{\"kind\":\"session\"");
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl") && is_of_bench(path));
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    let source = |path: std::path::PathBuf| Source {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        results: Results::load(&path).unwrap(),
    };
    paths.into_iter().map(source).collect()
}

/// The table called `list` of a page: text cells by row, head left out.
fn listed(page: &str, list: &str) -> Vec<Vec<String>> {
    let Some((_, rest)) = page.split_once(&format!("data-list=\"{list}\"")) else { return Vec::new() };
    let body = rest.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let text = |cell: &str| {
        let inner = cell.split_once('>').map_or("", |(_, inner)| inner);
        let tags = inner.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        tags.collect::<String>().trim().to_string()
    };
    let cells = |row: &str| row.split("<t").filter(|c| c.starts_with(['d', 'h'])).map(text).collect();
    body.split("<tr").skip(1).map(cells).collect()
}

fn number(cell: &str) -> usize {
    cell.parse().unwrap_or_else(|_| panic!("`{cell}` is no number"))
}

/// Holds every count of a page against the others and against the file.
fn counts_add_up(source: &Source) {
    let (page, results, name) = (page(std::slice::from_ref(source)), &source.results, &source.name);
    let account = listed(&page, "account");
    let row = |label: &str| account.iter().find(|row| row[0] == label);
    let implementations = account[0].len() - 3;
    let at = account.iter().position(|row| row[0] == "in the file").unwrap();
    let (classes, total) = (&account[..at], &account[at]);
    for column in 1..=implementations + 1 {
        let sum: usize = classes.iter().map(|row| number(&row[column])).sum();
        assert_eq!(sum, number(&total[column]), "{name}: column {column} of {account:?}");
    }
    for row in account[..=at].iter() {
        let sum: usize = row[1..=implementations].iter().map(|cell| number(cell)).sum();
        assert_eq!(sum, number(&row[implementations + 1]), "{name}: {row:?}");
    }
    let sum = |label: &str| row(label).map_or(0, |row| number(&row[implementations + 1]));
    assert_eq!(sum("in the file"), results.rows.len(), "{name}");
    assert_eq!(sum("in the file") + sum("never begun"), sum("planned") + sum("beyond the plan"), "{name}");
    assert_eq!(sum("planned"), results.planned(), "{name}");
    let plain = page.split("<noscript").nth(1).and_then(|rest| rest.split("</noscript>").next()).unwrap_or_default();
    assert_eq!(plain.matches("<tr><td>").count(), results.rows.len(), "{name}");
    // The answer to "how right", and the table by operator and precision.
    let own = |label: &str| row(label).map_or(0, |row| number(&row[1]));
    let passed: usize = ["timed", "timed, not precise", "timed, disturbed", "time refused", "checked only"].map(own).iter().sum();
    assert!(page.contains(&format!("<b>{passed}</b> of {} results are right", own("in the file"))), "{name}");
    let coverage = listed(&page, "coverage");
    let parts = |cell: &String| match cell.split_once(" of ") {
        Some((passed, of)) => (number(passed), number(of)),
        None if cell.is_empty() => (0, 0),
        None => (number(cell), number(cell)),
    };
    let add = |cells: Vec<(usize, usize)>| cells.into_iter().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    let (last, operators) = coverage.split_last().unwrap();
    for column in 1..last.len() - 1 {
        assert_eq!(add(operators.iter().map(|row| parts(&row[column])).collect()), parts(&last[column]), "{name}: {coverage:?}");
    }
    for row in &coverage {
        let (cells, all) = (&row[1..row.len() - 2], &row[row.len() - 2]);
        assert_eq!(add(cells.iter().map(parts).collect()), parts(all), "{name}: {row:?}");
    }
    assert_eq!(parts(&last[last.len() - 2]), (passed, own("in the file")), "{name}");
    // Every row that is not simply right has its reason.
    let reasons: usize = listed(&page, "reasons").iter().map(|row| number(&row[2])).sum();
    assert_eq!(reasons, sum("in the file") - sum("timed") - sum("checked only"), "{name}");
}

#[test]
fn every_count_adds_up() {
    committed().iter().for_each(counts_add_up);
    let cut: String = text(PLAIN).lines().take(400).map(|line| format!("{line}\n")).collect();
    counts_add_up(&Source { name: "cut".into(), results: Results::parse(cut.as_bytes()).unwrap() });
    let statuses = Status::ALL.iter().filter(|status| !status.has_time());
    let variations: Vec<Variation> = statuses.map(|&status| Variation { all: Some(status), ..PLAIN }).collect();
    sources(&variations).iter().for_each(counts_add_up);
    sources(&[Variation { wrong: Some("dot"), ..PLAIN }, Variation { kernels: 60, ..PLAIN }]).iter().for_each(counts_add_up);
}

#[test]
fn the_page_is_whole_and_loads_nothing() {
    let page = page(&sources(&[Variation { wrong: Some("dot"), ..PLAIN }]));
    for part in [
        "data-answer=\"fast\"",
        "data-answer=\"against\"",
        "data-chart=\"operators\"",
        "data-chart=\"panel\"",
        "data-chart=\"roofline\"",
    ] {
        let at = page.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(page[at..].find("<svg").is_some_and(|d| d < 2000), "{part} has no drawing");
    }
    assert!(!page.contains("src=") && !page.contains("url(") && !page.contains("@import"));
    assert_eq!(page.matches("href=").count(), page.matches("href=\"#").count(), "links stay in the page");
    assert!(!page.contains(">NaN") && !page.contains("\"NaN") && !page.contains(">inf"), "no number is broken");
    assert!(page.contains("Example 9000 &lt;64-core&gt;") && !page.contains("<64-core>"), "text is escaped");
    assert!(page.contains("3 results are wrong.") && listed(&page, "wrong").len() == 3);
    assert!(page.contains("the speed of numpy"));
}

#[test]
fn what_users_wrote_cannot_break_the_table() {
    let sources = sources(&[Variation { all: Some(Status::Skipped), ..PLAIN }]);
    let page = page(&sources);
    let table = page.split("<noscript").nth(1).unwrap().split("</noscript>").next().unwrap();
    for row in table.split("<tr><td>").skip(1) {
        assert_eq!(row.matches("<td>").count(), 13, "{row}");
    }
    assert!(page.contains("&lt;/noscript&gt;&lt;td&gt;"));
    assert!(report::markdown(&sources).contains("&lt;/noscript>&lt;td>, `a\\|b`"));
}

/// The seed suite with a part of its rows timed, a suite of as many rows all of which are timed, and a thousand operators.
#[test]
fn a_page_has_its_size() {
    const MOST: usize = 2_000_000;
    let seed = committed().into_iter().find(|source| source.name == "seed-h200.jsonl").unwrap();
    let seed = page(&[seed]);
    assert!(seed.len() < MOST / 2, "{} bytes", seed.len());
    assert!(seed.contains("4101</b> of 4131 results are right") && !seed.contains("4171 of 4170"));
    for kernels in [345, 1000] {
        let page = page(&sources(&[Variation { kernels, ..PLAIN }]));
        assert!(page.len() < MOST, "{kernels} operators: {} bytes", page.len());
        assert!(page.contains(&format!("{} operators are not shown here", kernels + 7 - 24)));
    }
}

#[test]
fn csv_and_markdown_have_every_row() {
    let sources = sources(&[PLAIN]);
    let rows = sources[0].results.rows.len();
    let csv = report::csv(&sources);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), rows + 1);
    assert!(lines.iter().all(|l| l.split(',').count() == 29), "{csv}");
    let markdown = report::markdown(&sources);
    assert_eq!(markdown.split("| operator | size |").nth(1).unwrap().lines().filter(|l| l.starts_with("| ")).count(), rows);
    let text = report::comparison_markdown(&compared(PLAIN, Variation { seed: 3, slower: Some(("softmax", 3.0)), ..PLAIN }));
    assert!(text.starts_with("**18 SLOWER"), "{text}");
}

/// What the page answers, the Markdown answers in the same words.
#[test]
fn page_and_markdown_agree() {
    for source in committed() {
        let (page, markdown) = (page(std::slice::from_ref(&source)), report::markdown(std::slice::from_ref(&source)));
        let figures: Vec<String> = page
            .split("<p class=\"figure\">")
            .skip(1)
            .map(|part| part.split("</p>").next().unwrap().replace("<b>", "").replace("</b>", ""))
            .map(|text| text.replace("of what the machine allows", "of the ceiling"))
            .collect();
        assert!(
            !figures.is_empty() && figures.iter().all(|text| markdown.contains(text.as_str())),
            "{}: {figures:?}\n{markdown}",
            source.name
        );
    }
}

/// An empty or hardly begun file gives a page, not an error.
#[test]
fn little_data_is_no_obstacle() {
    let whole = text(PLAIN);
    for lines in [1, 2, 3, 4, 10] {
        let part: String = whole.lines().take(lines).map(|l| format!("{l}\n")).collect();
        let sources = [Source { name: "part".into(), results: Results::parse(part.as_bytes()).unwrap() }];
        let page = page(&sources);
        assert!(page.contains(if lines < 3 { "Nothing was measured" } else { "The run is incomplete" }), "{lines} lines");
        let results = &sources[0].results;
        let _ = (report::csv(&sources), report::markdown(&sources), table(results), footer(results));
    }
    let nothing = [Source { name: "empty.jsonl".into(), results: Results::default() }];
    assert!(page(&nothing).contains("Nothing was measured") && report::markdown(&nothing).contains("Nothing was measured"));
    assert_eq!(report::csv(&nothing).lines().count(), 1);
}

#[test]
fn several_files_stand_side_by_side() {
    let mut sources = sources(&[PLAIN, Variation { seed: 3, slower: Some(("softmax", 3.0)), ..PLAIN }]);
    let same = page(&sources);
    assert!(same.contains("have one fingerprint") && same.contains("18 SLOWER"));
    assert_eq!(same.matches("<tr><td>A<td>").count(), sources[0].results.rows.len());
    assert_eq!(same.matches("<tr><td>B<td>").count(), sources[1].results.rows.len());
    sources[1].results.sessions[0].fingerprint = "another".into();
    sources.push(Source { name: "empty.jsonl".into(), results: Results::default() });
    let other = page(&sources);
    assert!(other.contains("The machines differ") && other.contains("cannot be compared: the files are of different machines"));
    assert!(other.contains("cannot be compared: one of the files is empty"));
}

/// Every kind of page, looked at in a browser.
#[test]
fn pages_look_right() {
    let (Some(python), Some(chromium)) = (std::env::var_os("TESSERA_PYTHON"), std::env::var_os("TESSERA_CHROMIUM")) else {
        println!(
            "skipped: looking at pages needs TESSERA_PYTHON and TESSERA_CHROMIUM (`cargo xtask tools` says what is missing)"
        );
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    let mut committed = committed();
    committed
        .retain(|source| ["seed-h200.jsonl", "harness-quick-h200.jsonl", "quick-h200.jsonl"].contains(&source.name.as_str()));
    let seed = committed.split_off(2);
    let pages = [
        ("seed", seed),
        ("two", committed),
        ("operators", sources(&[Variation { kernels: 345, ..PLAIN }])),
        ("wrong", sources(&[Variation { wrong: Some("dot"), ..PLAIN }])),
        ("failed", sources(&[Variation { all: Some(Status::CompileError), ..PLAIN }])),
        ("empty", vec![Source { name: "empty.jsonl".into(), results: Results::default() }]),
    ];
    let paths = pages.map(|(name, sources)| {
        let path = folder.join(format!("{name}.html"));
        std::fs::write(&path, page(&sources)).unwrap();
        path
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/report_page.py");
    let output = Command::new(python).arg(script).arg(chromium).args(&paths).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.matches("looks right").count() == paths.len(), "{text}");
}
