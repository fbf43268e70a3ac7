//! A whole run on a toy suite: what is written, what is refused, how it is resumed, what a broken file gives.

use std::time::Duration;

use tessera_bench::{Clock, Exit, Mode, Monotonic, Record, Results, RunOptions, Status, StoreError, Suite, Writer, run};

use crate::toy::Toys;

fn options() -> RunOptions {
    RunOptions {
        mode: Mode::Quick,
        seed: 9,
        order: 9,
        process: 0,
        timed: None,
        time_limit: None,
        memory_limit: None,
        device: "cpu".into(),
        argv: vec!["bench".into()],
        knobs: [("threads".to_string(), "2".to_string())].into(),
        now: 1_795_226_400,
    }
}

fn run_lines(suite: &dyn Suite, options: &RunOptions, previous: Option<&Results>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut sink = |record: Record| {
        lines.push(serde_json::to_string(&record).unwrap());
        Ok(())
    };
    run(suite, options, &Monotonic::default(), previous, &mut sink, &mut |_| {}).unwrap();
    lines
}

fn parse(lines: &[String]) -> Results {
    Results::parse((lines.join("\n") + "\n").as_bytes()).unwrap()
}

#[test]
fn a_run_checks_times_and_judges_every_row() {
    let suite = Toys::new(&[("matmul", 32), ("other", 48)], &["tessera", "slow", "noop", "tires", "absent"]);
    let results = parse(&run_lines(&suite, &options(), None));
    assert!(results.complete());
    assert_eq!(results.rows.len(), 10);
    for row in &results.rows {
        let summary = row.summary.as_ref().unwrap();
        let expected = match row.case.implementation.as_str() {
            "noop" => Status::NotWritten,
            "tires" => Status::Incorrect,
            "absent" => Status::Unsupported,
            // A busy machine may keep the interval wide.
            _ if summary.status == Status::NotConverged => Status::NotConverged,
            _ => Status::Ok,
        };
        assert_eq!(summary.status, expected, "{}: {:?}", row.case.implementation, summary.reason);
        assert_eq!(summary.times.is_some(), summary.status.has_time());
        assert_eq!(summary.reason.is_none(), summary.status == Status::Ok);
        if let Some(times) = &summary.times {
            // A busy machine may be late before there are blocks enough for an interval.
            assert!(times.ci95_ns.map_or(row.blocks.len() < 6, |ci| ci.contains(times.median_ns)));
            assert!(row.blocks.len() >= 8 || summary.status == Status::NotConverged);
            assert!(summary.efficiency.unwrap() > 0.0);
        }
        // Blocks took turns, so the ratio stands where times themselves drift.
        match (&summary.versus, row.case.implementation.as_str()) {
            (Some(versus), "tessera") => {
                assert_eq!(versus.ratio.ci95.is_some(), versus.ratio.pairs >= 6);
                assert!(versus.baseline == "slow" && versus.ratio.ratio < 0.9, "{versus:?}");
            }
            (versus, implementation) => assert!(versus.is_none() && implementation != "tessera"),
        }
    }
    let end = results.end.as_ref().unwrap();
    assert_eq!(Exit::of_run(end, Mode::Quick), Exit::Incorrect);
}

#[test]
fn a_run_cut_short_goes_on_where_it_stopped() {
    let suite = Toys::new(&[("a", 24), ("b", 24), ("c", 24)], &["tessera"]);
    let lines = run_lines(&suite, &options(), None);
    let path = std::env::temp_dir().join(format!("tessera-bench-resume-{}.jsonl", std::process::id()));
    // Killed in the middle of writing the second summary.
    let second = lines.iter().enumerate().filter(|(_, l)| l.contains("\"summary\"")).nth(1).unwrap().0;
    let cut = lines[..second].join("\n") + "\n" + &lines[second][..40];
    std::fs::write(&path, &cut).unwrap();

    let partial = Results::load(&path).unwrap();
    assert!(partial.truncated && !partial.complete() && partial.finished().len() == 1);
    let mut writer = Writer::resume(&path, &partial).unwrap();
    let mut sink = |record: Record| writer.write(&record);
    let end = run(&suite, &options(), &Monotonic::default(), Some(&partial), &mut sink, &mut |_| {}).unwrap();
    assert_eq!((end.run, end.planned), (3, 3));
    let whole = Results::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(whole.complete() && whole.sessions.len() == 2 && whole.finished().len() == 3);

    let mut other = options();
    other.seed = 10;
    let refused = run(&suite, &other, &Monotonic::default(), Some(&partial), &mut |_| Ok(()), &mut |_| {});
    assert!(matches!(refused, Err(StoreError::NotResumable(_))));
}

#[test]
fn limits_of_time_and_memory_leave_their_reason() {
    let suite = Toys::new(&[("a", 24), ("b", 24)], &["tessera"]);
    let mut limited = options();
    limited.memory_limit = Some(1 << 20);
    let results = parse(&run_lines(&suite, &limited, None));
    let skipped = results.rows[0].summary.as_ref().unwrap();
    assert_eq!(skipped.status, Status::Skipped);
    assert!(skipped.reason.as_ref().unwrap().starts_with("needs 0.1 GiB"), "{skipped:?}");
    assert!(results.complete(), "a skipped row is a row");

    let mut brief = options();
    brief.time_limit = Some(Duration::ZERO);
    let results = parse(&run_lines(&suite, &brief, None));
    let end = results.end.as_ref().unwrap();
    assert!(!results.complete() && end.run == 0 && end.reason.as_ref().unwrap().contains("time limit"));
    assert_eq!(Exit::of_run(end, Mode::Ci), Exit::Invalid);
}

#[test]
fn cases_beyond_the_timed_ones_are_checked_alone() {
    let suite = Toys::new(&[("a", 24), ("b", 24), ("c", 24)], &["tessera", "slow", "wrong"]);
    let mut some = options();
    some.timed = Some(1);
    let results = parse(&run_lines(&suite, &some, None));
    let of = |status| results.rows.iter().filter(move |row| row.summary.as_ref().is_some_and(|s| s.status == status));
    assert!(results.complete());
    assert_eq!(results.rows.len(), 3 + 2);
    assert_eq!(of(Status::Checked).count(), 2);
    assert!(of(Status::Checked).all(|row| row.case.implementation == "tessera" && row.blocks.is_empty()));
    assert!(of(Status::Checked).all(|row| row.gate.as_ref().is_some_and(|gate| gate.passed() && !gate.phases.is_empty())));
}

/// Every prefix, every changed byte: an error with a line, or a file; never a panic.
#[test]
fn hostile_files_give_errors() {
    let suite = Toys::new(&[("a", 16)], &["tessera"]);
    let lines = run_lines(&suite, &options(), None);
    let text = lines.join("\n") + "\n";
    let bytes = text.as_bytes();
    let whole = Results::parse(bytes).unwrap();
    assert!(whole.complete());
    for cut in (0..bytes.len()).step_by(7) {
        match Results::parse(&bytes[..cut]) {
            Ok(results) => assert!(!results.complete() || cut + 1 == bytes.len()),
            Err(StoreError::Malformed { line, .. }) => assert_eq!(line, 1, "only the first line is needed"),
            Err(other) => panic!("{other}"),
        }
    }
    let mut changed = bytes.to_vec();
    for at in (0..bytes.len()).step_by(5) {
        changed[at] = changed[at].wrapping_add(13);
        let _ = Results::parse(&changed);
        changed[at] = bytes[at];
    }
    let message = |bytes: &[u8]| Results::parse(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "line 1: the file is empty: no `session` record");
    assert_eq!(
        message(b"{\"kind\":\"end\",\"planned\":1,\"run\":1,\"by_status\":{},\"reason\":null}\n"),
        "line 1: the first record must be a `session`"
    );
    assert!(message(b"\xff\xfe\n").contains("line 1: not UTF-8"));
    assert!(message(b"[[[[[[[[\n").starts_with("line 1: not a record"));
    assert!(message("[".repeat(100_000).as_bytes()).starts_with("line 1"));
    let newer = lines[0].replace("\"schema\":\"1.1\"", "\"schema\":\"2.0\"") + "\n";
    assert!(message(newer.as_bytes()).contains("schema 2.0 is not readable"));
    let garbage_inside = format!("{}\nnonsense\n{}\n", lines[0], lines[1]);
    assert!(message(garbage_inside.as_bytes()).starts_with("line 2: not a record"));
    let orphan = format!("{}\n{}\n", lines[0], lines.iter().find(|l| l.contains("\"summary\"")).unwrap());
    assert!(message(orphan.as_bytes()).contains("no `case` record"));
    let negative = text.replace("\"median_ns\":", "\"median_ns\":-");
    assert!(message(negative.as_bytes()).contains("median_ns must be a positive number"), "{}", message(negative.as_bytes()));
    let future = format!("{}\n{{\"kind\":\"weather\",\"rain\":true}}\n", lines[0]);
    assert!(Results::parse(future.as_bytes()).is_ok());
}

/// Records survive the way through text, bit for bit.
#[test]
fn records_round_trip() {
    let suite = Toys::new(&[("a", 16)], &["tessera", "scaled"]);
    for line in run_lines(&suite, &options(), None) {
        let record: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
    }
}

#[test]
fn the_clock_moves_on() {
    let clock = Monotonic::default();
    let start = clock.now_ns();
    clock.pause(1e6);
    assert!(clock.now_ns() - start >= 1e6);
}
