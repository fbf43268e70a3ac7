//! Every defence of the gate has a subject here on which it must trip.

use std::ops::Range;

use tessera_bench::{Check, Expected, Fault, GateOptions, Lane, Output, Phase, Poison, Status, Subject, check, check_timed};
use tessera_types::DType;

use crate::toy::{Flaw, Toy};

const OPTIONS: GateOptions = GateOptions { seeds: 2, suite_seed: 42, tolerance: None, specials: false };

fn status(flaw: Flaw) -> (Status, String) {
    let report = check(&mut Toy::new(33, 17, 64, flaw), OPTIONS).unwrap();
    (report.status, report.reason.unwrap_or_default())
}

#[test]
fn a_correct_subject_passes_and_says_how_closely() {
    let report = check(&mut Toy::new(33, 17, 64, Flaw::None), OPTIONS).unwrap();
    assert!(report.passed(), "{report:?}");
    assert_eq!(report.elements, 3 * 33 * 17, "the exact lane and two seeds");
    let worst = report.worst.unwrap();
    assert!(worst.ratio.0 < 1.0 && worst.bound.0 > 0.0, "{worst:?}");
    let names: Vec<&str> = report.checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["exact_lane", "inputs", "guards", "tolerance", "dual_poison", "repeat"]);
}

#[test]
fn every_mutant_is_caught() {
    use Flaw::*;
    for flaw in [Zeros, DroppedTile, Scaled, SwappedRows, Nan, Infinite, ChangesInput, Overruns] {
        let (status, reason) = status(flaw);
        assert!(status == Status::Incorrect && !reason.is_empty(), "{flaw:?}: {status} {reason}");
    }
    // A huge poison swallows what is added to it: reading old content may look like not writing.
    assert!(matches!(status(ReadsOutput).0, Status::Incorrect | Status::NotWritten));
    assert_eq!(status(Random).0, Status::Nondeterministic);
    assert_eq!(check(&mut Toy::new(33, 17, 64, Fails), OPTIONS).unwrap_err().status, Status::RuntimeError);
}

#[test]
fn the_reason_names_the_element() {
    let reason = status(Flaw::Nan).1;
    assert!(reason.contains("`c`[0, 5]: got NaN"), "{reason}");
}

/// A toy without its exact lane, so that the first seed reaches the second poison.
struct Plain(Toy);

impl Subject for Plain {
    fn outputs(&self) -> &[Output] {
        self.0.outputs()
    }
    fn phases(&self) -> Vec<Phase> {
        self.0.phases()
    }
    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        self.0.refresh(seed, lane)
    }
    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        self.0.poison(poison)
    }
    fn launch(&mut self) -> Result<(), Fault> {
        self.0.launch()
    }
    fn read(&self, output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        self.0.read(output, rows, codes)
    }
    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        self.0.expect(output, rows, expected)
    }
    fn input_digest(&self) -> Result<u64, Fault> {
        self.0.input_digest()
    }
    fn damaged_guard(&self) -> Option<String> {
        self.0.damaged_guard()
    }
}

#[test]
fn unwritten_elements_are_named() {
    for subject in [
        &mut Toy::new(33, 17, 64, Flaw::UnwrittenTail) as &mut dyn Subject,
        &mut Plain(Toy::new(33, 17, 64, Flaw::UnwrittenTail)),
    ] {
        let report = check(subject, OPTIONS).unwrap();
        assert_eq!(report.status, Status::NotWritten);
        let reason = report.reason.unwrap();
        assert!(reason.starts_with("17 elements were not written, the first is `c`[32, 0]"), "{reason}");
    }
    assert_eq!(status(Flaw::NoOp).0, Status::NotWritten);
}

#[test]
fn work_skipped_after_the_gate_is_caught_on_timed_outputs() {
    let mut toy = Toy::new(33, 17, 64, Flaw::Lazy);
    let report = check(&mut toy, OPTIONS).unwrap();
    assert!(report.passed());
    (0..2).for_each(|_| toy.launch().unwrap());
    toy.poison(Poison::Ones).unwrap();
    toy.launch().unwrap();
    assert!(!check_timed(&toy, &report).unwrap().ok);
}

/// Bytes that must be copied bit for bit; `0xff` and `0x55` are legal results.
struct Bytes {
    source: Vec<u8>,
    copy: Vec<u8>,
    outputs: Vec<Output>,
    wrong_at: Option<usize>,
}

impl Bytes {
    fn new(n: usize, wrong_at: Option<usize>) -> Bytes {
        let output =
            Output { name: "y".into(), rows: n, row_len: 1, dtype: DType::U8, check: Check::Exact, decode: |code| code as f64 };
        Bytes { source: vec![0; n], copy: vec![0; n], outputs: vec![output], wrong_at }
    }
}

impl Subject for Bytes {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }
    fn refresh(&mut self, seed: u64, _lane: Lane) -> Result<(), Fault> {
        self.source.iter_mut().enumerate().for_each(|(i, x)| *x = (i as u64 * 31 + seed) as u8);
        Ok(())
    }
    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        self.copy.fill(poison.byte());
        Ok(())
    }
    fn launch(&mut self) -> Result<(), Fault> {
        self.copy.copy_from_slice(&self.source);
        if let Some(at) = self.wrong_at {
            self.copy[at] ^= 1;
        }
        Ok(())
    }
    fn read(&self, _output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        codes.iter_mut().zip(&self.copy[rows]).for_each(|(code, &x)| *code = u64::from(x));
        Ok(())
    }
    fn expect(&self, _output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        if let Expected::Codes(codes) = expected {
            codes.iter_mut().zip(&self.source[rows]).for_each(|(code, &x)| *code = u64::from(x));
        }
        Ok(())
    }
    fn input_digest(&self) -> Result<u64, Fault> {
        Ok(self.source.iter().map(|&x| u64::from(x)).sum())
    }
    fn damaged_guard(&self) -> Option<String> {
        None
    }
}

#[test]
fn bytes_equal_to_a_poison_are_no_false_alarm_and_one_wrong_bit_is_caught() {
    // More than one block of 65536 elements, so that positions in later blocks are tested too.
    let report = check(&mut Bytes::new(200_000, None), OPTIONS).unwrap();
    assert!(report.passed(), "{report:?}");
    let report = check(&mut Bytes::new(200_000, Some(150_001)), OPTIONS).unwrap();
    assert_eq!((report.status, report.failed), (Status::Incorrect, 1));
    let worst = report.worst.unwrap();
    assert_eq!((worst.row, worst.column), (150_001, 0));
    assert!(check(&mut Bytes::new(0, None), OPTIONS).unwrap().passed(), "an empty output is no failure");
}

#[test]
fn a_lost_nan_is_found_where_inputs_hold_one() {
    let with = GateOptions { specials: true, ..OPTIONS };
    let report = check(&mut Toy::new(9, 7, 40, Flaw::None), with).unwrap();
    assert!(report.passed() && report.checks.iter().any(|check| check.name == "specials" && check.ok), "{report:?}");
    assert!(check(&mut Toy::new(9, 7, 40, Flaw::LosesNan), OPTIONS).unwrap().passed(), "without them nothing is seen");
    let report = check(&mut Toy::new(9, 7, 40, Flaw::LosesNan), with).unwrap();
    assert_eq!(report.status, Status::Incorrect, "{report:?}");
}
