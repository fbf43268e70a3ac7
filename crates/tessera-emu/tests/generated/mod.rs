//! Protocol mutants of kernels that the compiler made: each is reported as it declares, by two places that bracket the mutated
//! one, or by its result; nothing is reported on the originals, nor on mutants that are proved to be equivalent.
//!
//! The kernels are `tessera compile`'s output, kept as text so that a mutant stays the mutant it was:
//!
//! | file | from | how |
//! |---|---|---|
//! | `product_sm90a.ptx` | `crates/tessera-ops/kernels/gemm.py::gemm` | bf16, tiles 128x128x64, B transposed: a ring of six stages, one producer, two consumers |
//! | `persistent_sm90a.ptx` | `examples/cutile.py::persistent_matmul` | bf16, tiles 128x128x64: blocks take several tiles |
//! | `split_sm90a.ptx` | the first product of `docs/scheduling.md` with `sharing=4, num_ctas=2` | bf16, tiles 64x64x64: two blocks push sums to each other |
//! | `attention_sm90a.ptx` | `crates/tessera-ops/kernels/attention.py::attention` | bf16, 128 queries, 64 keys, heads of 64: two rings, chained products |
//! | `product_sm80.ptx` | `crates/tessera-ops/kernels/gemm.py::gemm` | bf16, tiles 64x64x32: four stages of `cp.async`, `ldmatrix`, `mma.sync` |
//! | `rows_sm80.ptx` | `crates/tessera-ops/kernels/softmax.py::softmax` | fp32, rows of 1024 by one block |
//! | `sum_sm80.ptx` | `crates/tessera-ops/kernels/vector.py::sum_partials` as it was before a sum was one launch | fp32, tiles of 1024 |

mod attention;
mod kernels;
mod persistent;
mod ring;
mod rows;
mod split;
mod table;
mod warps;

use kernels::{Kernel, Run};
use table::{Caught, EQUIVALENT, Mutant, mutants};
use tessera_emu::{Finding, FindingKind, Schedule};

/// The interleavings that a mutant may show under.
const SCHEDULES: [(Schedule, u64); 5] =
    [(Schedule::Lazy, 0), (Schedule::Random, 1), (Schedule::Random, 2), (Schedule::Random, 3), (Schedule::Eager, 0)];

/// The mutated text, and the lines that were changed.
fn mutated(mutant: &Mutant) -> (String, Vec<u32>) {
    let mut text = mutant.kernel.text().to_owned();
    let mut lines = Vec::new();
    for &(from, nth, to) in mutant.edits {
        let (at, _) = text.match_indices(from).nth(nth).unwrap_or_else(|| panic!("{}: `{from}` is not there", mutant.what));
        lines.push(1 + text[..at].matches('\n').count() as u32);
        assert!(!from.contains('\n') && !to.contains('\n'), "edits keep lines");
        text.replace_range(at..at + from.len(), to);
    }
    (text, lines)
}

/// The lines of each loop: from the label to the branch that leads back to it.
fn loops(text: &str) -> Vec<(u32, u32)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (end, line) in lines.iter().enumerate() {
        let Some(label) = line.trim().trim_end_matches(';').rsplit_once("bra ").map(|(_, label)| label) else { continue };
        if let Some(start) = lines[..end].iter().position(|line| line.trim() == format!("{label}:")) {
            found.push((start as u32 + 1, end as u32 + 1));
        }
    }
    found
}

/// Whether a mutated line lies between the two accesses: in the text, or around a loop that it shares with one of them.
fn brackets(finding: &Finding, text: &str, lines: &[u32]) -> bool {
    let Some(earlier) = &finding.earlier else { return false };
    let (a, b) = (earlier.line.min(finding.place.line), earlier.line.max(finding.place.line));
    lines.iter().any(|&line| {
        let around = |&(start, end): &(u32, u32)| {
            let inside = |at: u32| (start..=end).contains(&at);
            inside(line) && (inside(a) || inside(b))
        };
        (a..=b).contains(&line) || loops(text).iter().any(around)
    })
}

/// Findings that are of one place alone: there is no second access to name.
fn is_single(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Deadlock
            | FindingKind::NeverEnds
            | FindingKind::DivergentBarrier
            | FindingKind::Barrier
            | FindingKind::Mbarrier
            | FindingKind::WarpMask
            | FindingKind::OutOfBounds
            | FindingKind::Misaligned
            | FindingKind::Uninitialized
    )
}

#[test]
fn originals_are_clean() {
    for kernel in Kernel::ALL {
        for (schedule, seed) in SCHEDULES {
            let run = kernel.run(kernel.text(), schedule, seed);
            assert!(run.findings.is_empty(), "{kernel:?} {schedule:?} {seed}: {}", run.findings[0]);
            assert!(run.result == kernel.right(), "{kernel:?} {schedule:?} {seed}: another result");
        }
    }
}

#[test]
fn every_mutant_is_caught() {
    let mut missed = Vec::new();
    let mut count = 0;
    for mutant in mutants() {
        count += 1;
        let (text, lines) = mutated(mutant);
        let mut seen = Vec::new();
        let caught = SCHEDULES.into_iter().any(|(schedule, seed)| {
            let Run { findings, result } = mutant.kernel.run(&text, schedule, seed);
            let caught = match mutant.caught {
                Caught::Gate => findings.is_empty() && result != mutant.kernel.right(),
                Caught::Report(kinds) => findings.iter().any(|finding| {
                    kinds.contains(&finding.kind) && (is_single(finding.kind) || brackets(finding, &text, &lines))
                }),
            };
            if !caught {
                let wrong = if result == mutant.kernel.right() { "right" } else { "wrong" };
                let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
                seen.push(format!("  {schedule:?} {seed}: result {wrong}; {}", told.join("\n    ")));
            }
            caught
        });
        if !caught {
            missed.push(format!("{}: {} (lines {lines:?})\n{}", mutant.kernel.name(), mutant.what, seen.join("\n")));
        }
    }
    println!("{count} mutants, {} missed", missed.len());
    assert!(count >= 100, "{count} mutants");
    assert!(missed.is_empty(), "{} of {count}:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn equivalent_mutants_are_left_alone() {
    for (mutant, proof) in EQUIVALENT {
        assert!(!proof.is_empty());
        let (text, _) = mutated(mutant);
        for (schedule, seed) in SCHEDULES {
            let run = mutant.kernel.run(&text, schedule, seed);
            assert!(run.findings.is_empty(), "{}, {schedule:?} {seed}: {}", mutant.what, run.findings[0]);
            assert!(run.result == mutant.kernel.right(), "{}, {schedule:?} {seed}: another result", mutant.what);
        }
    }
}
