//! Results through the command line: bench, compare, report; the report is looked at in a browser.

use std::path::Path;
use std::process::{Command, Output};

fn tessera(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(folder).args(arguments).output().expect("tessera starts")
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = tessera(folder, arguments);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}\n{text}");
    text
}

#[test]
fn bench_compare_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let text = succeeds(folder, &["bench", "softmax", "gemm", "--precision", "fp32", "--out", "a.jsonl"]);
    assert!(text.contains("gemm") && text.contains("GFLOP/s") && text.contains("wrote a.jsonl"), "{text}");
    assert!(!text.contains("incorrect"), "{text}");
    let same = succeeds(folder, &["compare", "a.jsonl", "a.jsonl"]);
    assert!(!same.contains("| SLOWER"), "{same}");
    succeeds(folder, &["bench", "softmax", "gemm", "--precision", "fp32", "--resume", "a.jsonl"]);
    succeeds(folder, &["report", "a.jsonl", "-o", "a.html"]);
    succeeds(folder, &["report", "a.jsonl", "-o", "a.csv"]);
    succeeds(folder, &["report", "a.jsonl", "-o", "a.md"]);
    let points = succeeds(folder, &["checklist", "a.jsonl"]);
    assert!(points.lines().count() == 10 && points.contains("met      iterations are many: "), "{points}");
    let truncated = std::fs::read(folder.join("a.jsonl")).expect("results");
    // Of a run that did not come to its end.
    let text = String::from_utf8_lossy(&truncated);
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("\"kind\":\"end\"")).collect();
    std::fs::write(folder.join("open.jsonl"), kept.join("\n") + "\n").expect("written");
    let open = tessera(folder, &["checklist", "open.jsonl"]);
    let said = String::from_utf8_lossy(&open.stdout);
    assert!(open.status.code() == Some(3) && said.contains("NOT MET  the run's length is known beforehand"), "{said}");
    let compared = tessera(folder, &["compare", "open.jsonl", "a.jsonl", "--json"]);
    let said = String::from_utf8_lossy(&compared.stderr);
    assert!(said.contains("note: the base file is incomplete"), "{said}");
    std::fs::write(folder.join("b.jsonl"), &truncated[..40]).expect("written");
    let broken = tessera(folder, &["report", "b.jsonl", "-o", "b.html"]);
    assert_eq!(broken.status.code(), Some(4), "{broken:?}");

    std::fs::write(folder.join("e.jsonl"), "").expect("written");
    succeeds(folder, &["report", "e.jsonl", "a.jsonl", "-o", "e.html"]);
    let nothing = tessera(folder, &["report", "e.jsonl", "-o", "nothing.html"]);
    assert!(nothing.status.code() == Some(4) && !folder.join("nothing.html").exists(), "{nothing:?}");

    let (Some(python), Some(chromium)) = (std::env::var_os("TESSERA_PYTHON"), std::env::var_os("TESSERA_CHROMIUM")) else {
        println!(
            "skipped: looking at the page needs TESSERA_PYTHON and TESSERA_CHROMIUM (`cargo xtask tools` says what is missing)"
        );
        return;
    };
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/report_page.py"))
        .arg(chromium)
        .args([folder.join("a.html"), folder.join("e.html")])
        .output()
        .expect("the interpreter starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.matches("looks right").count() == 2, "{text}");
}
