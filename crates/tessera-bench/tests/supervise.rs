//! The watchdog: children that die or fall silent cost one row each, and the file stays readable.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tessera_bench::device::{Supervised, Supervisor, supervise};
use tessera_bench::{Record, Results, Status};

use crate::synthetic;

/// A child that appends a file to the results and then does as told.
fn child(path: &Path, lines: &Path, then: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("cat '{}' >> '{}'; {then}", lines.display(), path.display()));
    command
}

fn write(path: &Path, records: &[Record]) {
    let lines: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    std::fs::write(path, lines.concat()).unwrap();
}

#[test]
fn a_dead_and_a_silent_child_cost_a_row_each() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let all = synthetic::records(synthetic::PLAIN);
    let cases: Vec<Record> = all.iter().filter(|record| matches!(record, Record::Case(_))).take(3).cloned().collect();
    let summaries: Vec<Record> = all.iter().filter(|record| matches!(record, Record::Summary(_))).take(3).cloned().collect();
    let head: Vec<Record> = all.iter().take_while(|record| !matches!(record, Record::Case(_))).cloned().collect();
    let session = head[..1].to_vec();
    let end = all.last().unwrap().clone();
    // 1: finishes a row, begins two and dies. 2: begins the first of them alone and dies again. 3: the other, silent. 4: ends.
    write(&place("1"), &[head, vec![cases[0].clone(), summaries[0].clone(), cases[1].clone(), cases[2].clone()]].concat());
    write(&place("2"), &[session.clone(), vec![cases[1].clone()]].concat());
    write(&place("3"), &[session.clone(), vec![cases[2].clone()]].concat());
    write(&place("4"), &[session, vec![end]].concat());
    let results = place("results.jsonl");
    let mut started = Vec::new();
    let mut next = |resume: bool| {
        started.push(resume);
        let then = ["exit 3", "kill -9 $$", "exec sleep 60", "exit 0"][started.len() - 1];
        child(&results, &place(&started.len().to_string()), then)
    };
    let supervisor = Supervisor { silence: Duration::from_millis(600), most_losses: 9, interval: Duration::from_millis(5) };
    assert!(matches!(supervise(supervisor, &results, &mut next).unwrap(), Supervised::Ended(_)));
    assert_eq!(started, [false, true, true, true]);
    let file = Results::load(&results).unwrap();
    assert!(file.unfinished().is_empty() && file.end.is_some());
    let outcome = |case: &Record| {
        let Record::Case(case) = case else { unreachable!() };
        let row = file.rows.iter().find(|row| row.case.case == case.case && row.case.implementation == case.implementation);
        row.unwrap().summary.as_ref().unwrap().status
    };
    assert_eq!((outcome(&cases[1]), outcome(&cases[2])), (Status::RuntimeError, Status::Timeout));
}

#[test]
fn children_that_get_nowhere_are_not_started_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.jsonl");
    write(&folder.path().join("1"), &synthetic::records(synthetic::PLAIN)[..2]);
    write(&folder.path().join("2"), &[]);
    let mut count = 0;
    let mut next = |_: bool| {
        count += 1;
        child(&results, &folder.path().join(count.to_string()), "exit 1")
    };
    assert_eq!(supervise(Supervisor::default(), &results, &mut next).unwrap(), Supervised::GivenUp(2));
}

#[test]
fn the_end_of_an_earlier_run_is_not_that_of_a_child_that_wrote_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.jsonl");
    write(&results, &synthetic::records(synthetic::PLAIN));
    write(&folder.path().join("none"), &[]);
    assert!(Results::load(&results).unwrap().end.is_some());
    for then in ["exit 5", "exit 0"] {
        let mut refuse = |_: bool| child(&results, &folder.path().join("none"), then);
        let Supervised::NotBegun(Some(how)) = supervise(Supervisor::default(), &results, &mut refuse).unwrap() else {
            panic!("{then}: nothing was measured");
        };
        assert_eq!(how.code(), then[5..].parse().ok());
    }
}
