//! Reports and comparisons of imagined results.

mod synthetic;

use synthetic::{PLAIN, Variation, results, text};
use tessera_bench::{CompareError, CompareOptions, Exit, Results, Verdict, compare, footer, report, table};

fn compared(base: Variation, new: Variation) -> tessera_bench::Comparison {
    compare(&results(base), &results(new), CompareOptions::default()).unwrap()
}

#[test]
fn a_second_run_of_the_same_code_shows_no_change() {
    let same = compared(PLAIN, Variation { seed: 2, ..PLAIN });
    assert_eq!(same.exit(), Exit::Ok);
    assert!(!same.counts.contains_key(&Verdict::Slower) && !same.counts.contains_key(&Verdict::Faster), "{:?}", same.counts);
    assert!(same.counts[&Verdict::Same] > 50, "{:?}", same.counts);
    let (ratio, ci) = same.geomean.unwrap();
    assert!((ratio - 1.0).abs() < 0.01 && ci.contains(ratio));
}

#[test]
fn slower_and_faster_rows_are_found_in_the_right_direction() {
    let slow = compared(PLAIN, Variation { seed: 3, slower: Some(("softmax", 1.05)), ..PLAIN });
    assert_eq!((slow.counts[&Verdict::Slower], slow.exit()), (18, Exit::Regression));
    for change in slow.changes.iter().filter(|c| c.verdict == Verdict::Slower) {
        assert!(change.title.starts_with("softmax"), "{change:?}");
        assert!((change.estimate_pct.unwrap() - 5.0).abs() < 1.0);
        assert!(change.ci95_pct.unwrap().contains(change.estimate_pct.unwrap()));
    }
    let fast = compared(Variation { seed: 3, slower: Some(("softmax", 1.05)), ..PLAIN }, PLAIN);
    assert_eq!((fast.counts[&Verdict::Faster], fast.exit()), (18, Exit::Ok));
    // One per cent is below the margin of two.
    let slight = compared(PLAIN, Variation { seed: 4, slower: Some(("softmax", 1.01)), ..PLAIN });
    assert_eq!(slight.exit(), Exit::Ok);
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

#[test]
fn a_machine_that_moved_widens_the_margin_or_ends_the_comparison() {
    let slower_clock = compared(PLAIN, Variation { seed: 6, machine: 1.04, ..PLAIN });
    assert!(slower_clock.anchor_pct > 3.9 && slower_clock.margin_pct > 11.0);
    assert_eq!(slower_clock.exit(), Exit::Ok, "{:?}", slower_clock.counts);
    assert_eq!(compared(PLAIN, Variation { seed: 6, machine: 1.2, ..PLAIN }).exit(), Exit::Invalid);

    let other = text(PLAIN).replace("\"fingerprint\":\"", "\"fingerprint\":\"x");
    let other = Results::parse(other.as_bytes()).unwrap();
    assert!(matches!(compare(&results(PLAIN), &other, CompareOptions::default()), Err(CompareError::Machines { .. })));
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
    let missing = compare(&results(PLAIN), &fewer, CompareOptions::default()).unwrap();
    assert_eq!((missing.counts[&Verdict::Missing], missing.exit()), (1, Exit::Invalid));
    assert!(missing.notes.iter().any(|n| n.contains("the new file is incomplete")));
    let added = compare(&fewer, &results(PLAIN), CompareOptions::default()).unwrap();
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
    assert!(gemm.cells[9].ends_with("x numpy") && gemm.cells[10].starts_with("1.9 ms (parse 0.21"), "{gemm:?}");
    let dot = rows.iter().find(|r| r.cells[0] == "dot").unwrap();
    assert!(dot.cells[5].is_empty() && dot.cells[7].is_empty() && dot.reason.as_ref().unwrap().contains("outside the bound"));
    let footer = footer(&results);
    assert_eq!(footer.reasons.len(), 4);
    assert!(footer.counts.contains("3 incorrect") && footer.counts.contains("1 not_converged"));
}

#[test]
fn the_page_is_whole_and_loads_nothing() {
    let page = report::html(&[results(Variation { wrong: Some("dot"), ..PLAIN })], 1_795_226_400).unwrap();
    for chart in ["roofline", "intervals", "speed-up", "sweeps", "gate"] {
        let at = page.find(&format!("data-chart=\"{chart}\"")).unwrap_or_else(|| panic!("no {chart}"));
        assert!(page[at..].find("<svg").is_some_and(|d| d < 800), "{chart} has no drawing");
    }
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("url("));
    assert!(!page.contains(">NaN") && !page.contains("\"NaN") && !page.contains(">inf"), "no number is broken");
    assert!(page.contains("Example 9000 &lt;64-core&gt;") && !page.contains("<64-core>"), "text is escaped");
    let json = page.split("class=\"records\">").nth(1).unwrap().split("</script>").next().unwrap();
    let records: Vec<tessera_bench::Record> = serde_json::from_str(json).unwrap();
    assert!(records.len() > 1000);
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), page).unwrap();
}

#[test]
fn csv_and_markdown_have_every_row() {
    let results = [results(PLAIN)];
    let csv = report::csv(&results);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), results[0].rows.len() + 1);
    assert!(lines.iter().all(|l| l.split(',').count() == 27), "{csv}");
    let markdown = report::markdown(&results);
    assert_eq!(markdown.lines().filter(|l| l.starts_with("| ")).count(), results[0].rows.len() + 1);
    let text = report::comparison_markdown(&compared(PLAIN, Variation { seed: 3, slower: Some(("softmax", 1.05)), ..PLAIN }));
    assert!(text.starts_with("**18 SLOWER"), "{text}");
}

/// An empty or hardly begun file gives a page, not an error.
#[test]
fn little_data_is_no_obstacle() {
    let whole = text(PLAIN);
    for lines in [1, 2, 3, 4, 10] {
        let part: String = whole.lines().take(lines).map(|l| format!("{l}\n")).collect();
        let results = [Results::parse(part.as_bytes()).unwrap()];
        let page = report::html(&results, 0).unwrap();
        assert!(page.contains("Incomplete"));
        let _ = (report::csv(&results), report::markdown(&results), table(&results[0]), footer(&results[0]));
    }
}
