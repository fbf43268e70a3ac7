//! What forty processes of one program measured on an H200 (`results/causes-h200.jsonl`), judged as `compare --run` judges: pairs
//! of neighbouring processes, as they are and with a change planted in the second of each.

use tessera_bench::Random;
use tessera_bench::duel::{RowEvidence, bounds, level_at};
use tessera_bench::stats::median;

/// `ln(b / a)` of every pair, by row, with the row's time in nanoseconds.
fn recorded() -> Vec<(f64, Vec<f64>)> {
    let text = include_str!("../../../results/causes-h200.jsonl");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let processes: Vec<Vec<f64>> = lines
        .filter(|line| line["cause"] == "process")
        .map(|line| serde_json::from_value::<Vec<Vec<f64>>>(line["figures_ns"].clone()).unwrap())
        .map(|rows| rows.iter().map(|blocks| median(blocks)).collect())
        .collect();
    assert_eq!(processes.len(), 40);
    let row = |at: usize| {
        let pairs = processes.chunks(2).map(|pair| (pair[1][at] / pair[0][at]).ln()).collect();
        (median(&processes.iter().map(|process| process[at]).collect::<Vec<_>>()), pairs)
    };
    (0..processes[0].len()).map(row).collect()
}

/// In how many of `trials` draws of sixteen pairs each row is called slower, and how many have any other row changed.
fn judged(planted: &dyn Fn(f64) -> f64, trials: u64) -> (Vec<usize>, usize) {
    let rows = recorded();
    let mut found = vec![0; rows.len()];
    let mut alarms = 0;
    for trial in 0..trials {
        let mut random = Random::new(trial + 1);
        let drawn: Vec<(usize, f64)> =
            (0..16).map(|_| (random.below(20), if random.below(2) == 0 { 1.0 } else { -1.0 })).collect();
        let evidence: Vec<RowEvidence> = rows
            .iter()
            .map(|(ns, logs)| {
                // A coin says which process is which side.
                let logs = drawn.iter().enumerate().map(|(at, (pair, sign))| (at, sign * logs[*pair] + planted(*ns))).collect();
                RowEvidence { logs, resolution: 0.0 }
            })
            .collect();
        let told = bounds(&evidence, level_at(1, 0.05), trial);
        let changed: Vec<bool> = told.iter().map(|bound| bound.is_some_and(|bound| bound.log.abs() > bound.half)).collect();
        changed.iter().zip(&mut found).for_each(|(changed, found)| *found += usize::from(*changed));
        alarms += usize::from(changed.iter().zip(&rows).any(|(changed, (ns, _))| *changed && planted(*ns) == 0.0));
    }
    (found, alarms)
}

#[test]
fn equal_processes_raise_no_alarm_and_planted_changes_are_found() {
    let (_, alarms) = judged(&|_| 0.0, 200);
    assert!(alarms <= 10, "{alarms} of 200 comparisons of equal programs had an alarm");

    let rows = recorded();
    let (found, alarms) = judged(&|ns| if ns > 19e3 { 1.03f64.ln() } else { 0.0 }, 200);
    for ((ns, _), found) in rows.iter().zip(&found).filter(|((ns, _), _)| *ns > 19e3) {
        assert!(*found >= 190, "3 % in a row of {ns} ns was found {found} times of 200");
    }
    assert!(alarms <= 10, "{alarms}");

    let (found, _) = judged(&|ns| if ns > 180e3 { 1.01f64.ln() } else { 0.0 }, 200);
    for ((ns, _), found) in rows.iter().zip(&found).filter(|((ns, _), _)| *ns > 180e3) {
        assert!(*found >= 160, "1 % in a row of {ns} ns was found {found} times of 200");
    }
}
