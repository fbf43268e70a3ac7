//! The correctness gate: nothing is timed before it has passed here.
//!
//! For the first seed the subject is launched twice on equal inputs with differently poisoned outputs. An element that shows
//! the poison under *both* patterns was not written; outputs that differ otherwise depend on old memory or on luck. Every
//! seed's outputs are compared with the reference element by element, in blocks of rows so that memory stays flat; inputs
//! must be unchanged and guard zones intact afterwards.
//!
//! Element rules, with `want` from the reference and `ratio = |got - want| / bound`:
//!
//! | want | passes when |
//! |---|---|
//! | NaN | got is NaN |
//! | +-Inf | got is the same infinity |
//! | finite | got is finite and `ratio <= 1` (a bound of 0 asks for equality) |
//!
//! Where that is asked for, inputs with NaN and both infinities in a few places come first: so what is NaN and what is infinite of a result is what
//! the reference says. What is exact must have equal bits, but for NaN, of which there are many.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tessera_ops::RowIdentity;
use tessera_runtime::Number;
use tessera_types::DType;

use crate::case::{Check, Expected, Fault, Lane, Output, Phase, Poison, Subject};
use crate::random::Digest;
use crate::real::Real;
use crate::status::Status;
use crate::tolerance::{Allowance, beyond};

/// The name of the check with NaN and infinities among inputs.
const SPECIALS: &str = "specials";

/// Elements compared at a time (or one row, if a row is longer).
const BLOCK_ELEMENTS: usize = 1 << 16;

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub struct GateOptions {
    /// Seeds of the case's own distribution.
    pub seeds: usize,
    /// From which the seeds are derived.
    pub suite_seed: u64,
    /// What takes the place of the reference's bounds, where somebody wants others.
    pub tolerance: Option<Allowance>,
    /// Whether inputs with NaN and infinities are tried, too.
    pub specials: bool,
}

/// The element that is furthest from its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// The output's name.
    pub output: String,
    /// Row of the element.
    pub row: u64,
    /// Column of the element.
    pub column: u64,
    /// What the subject wrote.
    pub got: Real,
    /// What the reference says.
    pub want: Real,
    /// The allowed absolute error.
    pub bound: Real,
    /// `|got - want| / bound`.
    pub ratio: Real,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// `tolerance`, `exact_lane`, `specials`, `identity`, `dual_poison`, `repeat`, `inputs`, `guards`, `timed_output`.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// Why it does not, or what was seen.
    pub detail: Option<String>,
}

/// What the gate found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// `ok`, or what is wrong.
    pub status: Status,
    /// Why, in one sentence; absent when it passed.
    pub reason: Option<String>,
    /// Each check that was made.
    pub checks: Vec<CheckResult>,
    /// The element closest to its bound, or furthest beyond it.
    pub worst: Option<Worst>,
    /// Mean of `(got - want) / bound`, signed by `want`: 0 for unbiased rounding.
    pub bias: Option<f64>,
    /// Elements compared, over all seeds.
    pub elements: u64,
    /// Elements outside their bound.
    pub failed: u64,
    /// The seeds used.
    pub seeds: Vec<u64>,
    /// Digest of the outputs for the inputs that are left in place for timing.
    pub output_digest: u64,
    /// What the gate itself took: `inputs` (made and placed), `launches` (with poison and digests), `reference` (with the comparison).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

impl GateReport {
    /// True when the subject may be timed.
    pub fn passed(&self) -> bool {
        self.status == Status::Ok
    }
}

/// Runs the gate. On success the inputs of the last seed are in place, ready for timing.
///
/// A [`Fault`] means that the subject could not be judged; a wrong result is a report.
pub fn check(subject: &mut dyn Subject, options: GateOptions) -> Result<GateReport, Fault> {
    let mut gate = Gate::new(options.tolerance);
    let seeds: Vec<u64> = (0..options.seeds.max(1) as u64).map(|i| options.suite_seed.wrapping_add(i)).collect();
    if subject.outputs().is_empty() {
        return Err(Fault::new(Status::HarnessError, "the subject declares no output, so nothing can be checked"));
    }
    if subject.has_exact_lane() {
        gate.during("inputs", |_| subject.refresh(seeds[0], Lane::Exact))?;
        gate.trial(subject, "exact_lane")?;
    }
    if options.specials {
        gate.during("inputs", |_| subject.refresh(seeds[0], Lane::Special))?;
        gate.trial(subject, SPECIALS)?;
    }
    for (i, &seed) in seeds.iter().enumerate() {
        gate.during("inputs", |_| subject.refresh(seed, Lane::Case))?;
        let unwritten = gate.trial(subject, "tolerance")?;
        if i == 0 {
            gate.during("launches", |gate| gate.second_poison(subject, unwritten))?;
        }
        if gate.status != Status::Ok {
            break;
        }
    }
    Ok(gate.finish(seeds))
}

/// Checks that the outputs in memory now are those that passed the gate: the work of the timed launches was done.
pub fn check_timed(subject: &dyn Subject, report: &GateReport) -> Result<CheckResult, Fault> {
    let ok = if subject.deterministic() {
        scan_outputs(subject, Rows::LookedAt, &mut |_, _, _| {})? == report.output_digest
    } else {
        let mut tally = Tally::default();
        compare(subject, &mut tally, (None, Nans::ByBits))?;
        tally.failed == 0
    };
    let detail = (!ok).then(|| "the outputs left by a timed launch are not those that passed the gate".to_string());
    Ok(CheckResult { name: "timed_output".into(), ok, detail })
}

/// A digest of all outputs in memory now: by the subject's own means, or element by element.
pub fn result_digest(subject: &dyn Subject) -> Result<u64, Fault> {
    match subject.result_digest()? {
        Some(digest) => Ok(digest),
        None => scan_outputs(subject, Rows::LookedAt, &mut |_, _, _| {}),
    }
}

struct Gate {
    tolerance: Option<Allowance>,
    status: Status,
    reason: Option<String>,
    checks: Vec<CheckResult>,
    tally: Tally,
    digest: u64,
    phases: Vec<Phase>,
}

impl Gate {
    fn new(tolerance: Option<Allowance>) -> Gate {
        Gate {
            tolerance,
            status: Status::Ok,
            reason: None,
            checks: Vec::new(),
            tally: Tally::default(),
            digest: 0,
            phases: Vec::new(),
        }
    }

    /// Does a part of the work and adds its time to a phase.
    fn during<T>(&mut self, phase: &str, work: impl FnOnce(&mut Gate) -> T) -> T {
        let begin = Instant::now();
        let done = work(self);
        let ns = begin.elapsed().as_nanos() as f64;
        match self.phases.iter_mut().find(|own| own.name == phase) {
            Some(own) => own.ns += ns,
            None => self.phases.push(Phase { name: phase.into(), ns }),
        }
        done
    }

    fn record(&mut self, name: &str, failure: Option<(Status, String)>) {
        let (ok, detail) = (failure.is_none(), failure.as_ref().map(|(_, why)| why.clone()));
        if let Some((status, why)) = failure {
            // Unwritten elements are also outside their bound: the more telling name wins.
            if self.status == Status::Ok || status == Status::NotWritten {
                self.status = status;
                self.reason = Some(why);
            }
        }
        match self.checks.iter_mut().find(|c| c.name == name) {
            Some(check) if check.ok => *check = CheckResult { name: name.into(), ok, detail },
            Some(_) => {}
            None => self.checks.push(CheckResult { name: name.into(), ok, detail }),
        }
    }

    /// One launch on poisoned outputs, judged. Returns where the poison was still seen.
    fn trial(&mut self, subject: &mut dyn Subject, name: &str) -> Result<Vec<Marks>, Fault> {
        let (inputs, marks) = self.during("launches", |gate| gate.poisoned_launch(subject))?;
        let before = self.tally.failed;
        // What is exact is exact whatever else is allowed.
        let tolerance = self.tolerance.filter(|_| name != "exact_lane");
        let nans = if name == SPECIALS { Nans::Alike } else { Nans::ByBits };
        self.during("reference", |gate| compare(subject, &mut gate.tally, (tolerance, nans)))?;
        let failed = self.tally.failed - before;
        self.record(name, (failed > 0).then(|| (Status::Incorrect, self.tally.sentence(failed))));
        // An identity of a row with infinities says nothing.
        if tolerance.is_none() && nans == Nans::ByBits {
            self.during("reference", |gate| gate.identities(subject))?;
        }
        let changed = subject.input_digest()? != inputs;
        self.record("inputs", changed.then(|| (Status::Incorrect, "the launch changed an input".to_string())));
        let damage = subject.damaged_guard();
        self.record("guards", damage.map(|d| (Status::Incorrect, format!("the launch wrote outside its tensors: {d}"))));
        Ok(marks)
    }

    /// One launch on poisoned outputs: the digest of the inputs before it, and where the poison was still seen.
    fn poisoned_launch(&mut self, subject: &mut dyn Subject) -> Result<(u64, Vec<Marks>), Fault> {
        let inputs = subject.input_digest()?;
        subject.poison(Poison::Ones)?;
        subject.launch()?;
        let outputs = subject.outputs();
        let codes: Vec<u64> = outputs.iter().map(|o| Poison::Ones.code(o.dtype)).collect();
        let mut marks: Vec<Marks> = outputs.iter().map(|o| Marks::new(o.len())).collect();
        self.digest = scan_outputs(subject, Rows::LookedAt, &mut |output, at, code| {
            if code == codes[output] {
                marks[output].set(at);
            }
        })?;
        Ok((inputs, marks))
    }

    /// Identities that hold of every row, where rows are sampled.
    fn identities(&mut self, subject: &dyn Subject) -> Result<(), Fault> {
        for (index, output) in subject.outputs().iter().enumerate() {
            let Some(rows) = subject.identity(index)? else { continue };
            let wrong: Vec<usize> = (0..rows.len())
                .filter(|&row| !((rows[row].got - rows[row].want).abs() <= rows[row].bound || rows[row].want.is_nan()))
                .collect();
            self.record(
                "identity",
                wrong.first().map(|&row| {
                    let RowIdentity { got, want, bound } = rows[row];
                    let text = format!(
                        "{} rows of `{}` break the identity, the first is {row}: {got:.6e} for {want:.6e}, allowed {bound:.3e}",
                        wrong.len(),
                        output.name
                    );
                    (Status::Incorrect, text)
                }),
            );
        }
        Ok(())
    }

    /// The same inputs under the other poison: finds what was not written and what depends on old memory.
    fn second_poison(&mut self, subject: &mut dyn Subject, marks: Vec<Marks>) -> Result<(), Fault> {
        subject.poison(Poison::Alternating)?;
        subject.launch()?;
        let (digest, mut failure) = unwritten(subject, Poison::Alternating, Rows::LookedAt, &marks)?;
        let differs = digest != self.digest;
        let is_sampled = (0..subject.outputs().len()).any(|output| subject.sampled_rows(output).is_some());
        if failure.is_none() && differs && is_sampled {
            // The rows that nobody looked at may say why.
            let codes: Vec<u64> = subject.outputs().iter().map(|o| Poison::Alternating.code(o.dtype)).collect();
            let mut marks: Vec<Marks> = subject.outputs().iter().map(|o| Marks::new(o.len())).collect();
            scan_outputs(subject, Rows::All, &mut |output, at, code| {
                if code == codes[output] {
                    marks[output].set(at);
                }
            })?;
            subject.poison(Poison::Ones)?;
            subject.launch()?;
            failure = unwritten(subject, Poison::Ones, Rows::All, &marks)?.1;
        }
        let written = failure.is_none();
        self.record("dual_poison", failure);
        if subject.deterministic() {
            let why = "two launches on equal inputs differ: the result depends on old memory or on order";
            self.record("repeat", (written && differs).then(|| (Status::Nondeterministic, why.to_string())));
        }
        Ok(())
    }

    fn finish(self, seeds: Vec<u64>) -> GateReport {
        GateReport {
            status: self.status,
            reason: self.reason,
            checks: self.checks,
            bias: (self.tally.biased > 0).then(|| self.tally.bias / self.tally.biased as f64),
            elements: self.tally.elements,
            failed: self.tally.failed,
            worst: self.tally.worst,
            seeds,
            output_digest: self.digest,
            phases: self.phases,
        }
    }
}

/// A set of element positions that takes no memory while empty.
struct Marks {
    len: usize,
    words: Vec<u64>,
}

impl Marks {
    fn new(len: usize) -> Marks {
        Marks { len, words: Vec::new() }
    }

    fn set(&mut self, at: usize) {
        if self.words.is_empty() {
            self.words = vec![0; self.len.div_ceil(64)];
        }
        self.words[at / 64] |= 1 << (at % 64);
    }

    fn get(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// The digest of outputs after a launch on poison, and whether elements show it where marks say that they showed the other one after
/// the launch before.
fn unwritten(
    subject: &dyn Subject,
    poison: Poison,
    rows: Rows,
    marks: &[Marks],
) -> Result<(u64, Option<(Status, String)>), Fault> {
    let codes: Vec<u64> = subject.outputs().iter().map(|o| poison.code(o.dtype)).collect();
    let mut unwritten = 0u64;
    let mut first = None;
    let digest = scan_outputs(subject, rows, &mut |output, at, code| {
        if code == codes[output] && marks[output].get(at) {
            unwritten += 1;
            first.get_or_insert((output, at));
        }
    })?;
    let failure = first.map(|(output, at)| {
        let o = &subject.outputs()[output];
        let (row, column) = (at / o.row_len, at % o.row_len);
        (Status::NotWritten, format!("{unwritten} elements were not written, the first is `{}`[{row}, {column}]", o.name))
    });
    Ok((digest, failure))
}

/// Row ranges of at most [`BLOCK_ELEMENTS`] elements, each with its first element's position.
fn row_blocks(output: &Output) -> impl Iterator<Item = std::ops::Range<usize>> {
    let rows = output.rows;
    let step = (BLOCK_ELEMENTS / output.row_len.max(1)).max(1);
    let empty = output.is_empty();
    (0..rows).step_by(step).filter(move |_| !empty).map(move |first| first..(first + step).min(rows))
}

/// The row ranges of an output that are read: all of it in blocks, or what the subject samples.
fn looked_at(subject: &dyn Subject, index: usize, output: &Output) -> Vec<std::ops::Range<usize>> {
    subject.sampled_rows(index).unwrap_or_else(|| row_blocks(output).collect())
}

/// Which rows of outputs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// What the subject samples, where it does.
    LookedAt,
    All,
}

/// Visits every element that is read of every output and returns the digest of all.
fn scan_outputs(subject: &dyn Subject, rows: Rows, visit: &mut dyn FnMut(usize, usize, u64)) -> Result<u64, Fault> {
    let mut digest = Digest::default();
    let mut codes = Vec::new();
    if let Some(whole) = subject.output_digest()? {
        digest.word(whole);
    }
    for (index, output) in subject.outputs().iter().enumerate() {
        let ranges = match rows {
            Rows::LookedAt => looked_at(subject, index, output),
            Rows::All => row_blocks(output).collect(),
        };
        for rows in ranges {
            let first = rows.start * output.row_len;
            codes.resize(rows.len() * output.row_len, 0);
            subject.read(index, rows, &mut codes)?;
            for (i, &code) in codes.iter().enumerate() {
                digest.word(code);
                visit(index, first + i, code);
            }
        }
    }
    Ok(digest.finish())
}

#[derive(Default)]
struct Tally {
    elements: u64,
    failed: u64,
    worst: Option<Worst>,
    /// What was written there and what is wanted, where they are integers: a record's numbers have 53 bits.
    digits: Option<[Number; 2]>,
    worst_ratio: f64,
    bias: f64,
    biased: u64,
}

impl Tally {
    fn sentence(&self, failed: u64) -> String {
        match &self.worst {
            Some(w) => {
                let [got, want] = self.digits.unwrap_or([w.got, w.want].map(|number| Number::Float(number.0)));
                format!(
                    "{failed} elements are outside the bound, the worst is `{}`[{}, {}]: got {got}, want {want}, allowed {:.3e} ({:.3} times the bound)",
                    w.output, w.row, w.column, w.bound.0, w.ratio.0
                )
            }
            None => format!("{failed} elements are outside the bound"),
        }
    }

    fn element(&mut self, output: &Output, at: usize, got: f64, want: f64, bound: f64) {
        let ratio = error_ratio(output.dtype, got, want, bound);
        self.elements += 1;
        self.failed += u64::from(ratio > 1.0);
        if bound > 0.0 && ratio.is_finite() && want.is_finite() {
            self.bias += (got - want) / bound * want.signum();
            self.biased += 1;
        }
        if self.worst.is_none() || ratio > self.worst_ratio {
            self.worst_ratio = ratio;
            self.digits = None;
            self.worst = Some(Worst {
                output: output.name.clone(),
                row: (at / output.row_len) as u64,
                column: (at % output.row_len) as u64,
                got: Real(got),
                want: Real(want),
                bound: Real(bound),
                ratio: Real(ratio),
            });
        }
    }
}

/// How many times its bound an error is, of an element of a type; infinite where no bound applies, never NaN.
fn error_ratio(dtype: DType, got: f64, want: f64, bound: f64) -> f64 {
    if want.is_nan() {
        return if got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == want {
        return 0.0;
    }
    // Stored as an infinity is all that is beyond the type: the least of it may be what was to be stored.
    let got = match beyond(dtype) {
        Some(beyond) if got.is_infinite() && want.is_finite() => match want.abs() >= beyond && want.signum() == got.signum() {
            true => return 0.0,
            false => beyond.copysign(got),
        },
        _ => got,
    };
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let ratio = (got - want).abs() / bound;
    // A bound that is zero, negative or no number allows no error.
    if bound > 0.0 && bound.is_finite() { ratio } else { f64::INFINITY }
}

/// Whether two NaN are the same in what is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nans {
    /// Where their bits are: elements that are moved.
    ByBits,
    /// Always: a sum's NaN has the bits that the machine gives it.
    Alike,
}

fn compare(subject: &dyn Subject, tally: &mut Tally, (tolerance, nans): (Option<Allowance>, Nans)) -> Result<(), Fault> {
    let (mut codes, mut want, mut bound, mut exact) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, output) in subject.outputs().iter().enumerate() {
        // What is sampled is asked for at once: a reference may share work between rows.
        let groups: Vec<Vec<std::ops::Range<usize>>> = match subject.sampled_rows(index) {
            Some(rows) => vec![rows],
            None => row_blocks(output).map(|rows| vec![rows]).collect(),
        };
        for rows in groups {
            let n = rows.iter().map(|range| range.len() * output.row_len).sum();
            codes.resize(n, 0);
            let mut places = Vec::with_capacity(n);
            for range in &rows {
                let part = places.len()..places.len() + range.len() * output.row_len;
                subject.read(index, range.clone(), &mut codes[part])?;
                places.extend(range.start * output.row_len..range.end * output.row_len);
            }
            match output.check {
                Check::Exact => {
                    exact.resize(n, 0);
                    subject.expect_sampled(index, &rows, Expected::Codes(&mut exact))?;
                    for i in 0..n {
                        // Equal bits are right even for NaN; different bits are wrong even for equal numbers (-0 and 0).
                        let (got, want) = ((output.decode)(codes[i]), (output.decode)(exact[i]));
                        let alike = nans == Nans::Alike && got.is_nan() && want.is_nan();
                        if codes[i] == exact[i] || alike {
                            tally.element(output, places[i], want, want, 0.0);
                        } else {
                            tally.mismatch(output, places[i], [codes[i], exact[i]]);
                        }
                    }
                }
                Check::Bounded => {
                    want.resize(n, 0.0);
                    bound.resize(n, 0.0);
                    subject.expect_sampled(index, &rows, Expected::Values { want: &mut want, bound: &mut bound })?;
                    for i in 0..n {
                        if let Some(allowed) = tolerance.and_then(|allowance| allowance.of(output.dtype, want[i])) {
                            bound[i] = allowed;
                        }
                        tally.element(output, places[i], (output.decode)(codes[i]), want[i], bound[i]);
                    }
                }
            }
        }
    }
    Ok(())
}

impl Tally {
    fn mismatch(&mut self, output: &Output, at: usize, codes: [u64; 2]) {
        let [got, want] = codes.map(|code| Real((output.decode)(code)));
        self.elements += 1;
        self.failed += 1;
        if self.worst.is_none() || self.worst_ratio < f64::INFINITY {
            self.worst_ratio = f64::INFINITY;
            self.digits = (!output.dtype.is_float()).then(|| codes.map(|code| Number::of(output.dtype, code)));
            self.worst = Some(Worst {
                output: output.name.clone(),
                row: (at / output.row_len) as u64,
                column: (at % output.row_len) as u64,
                got,
                want,
                bound: Real(0.0),
                ratio: Real(f64::INFINITY),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_are_right_where_the_exact_result_is_beyond_the_type() {
        let ratio = |got, want, bound| error_ratio(DType::F16, got, want, bound);
        assert_eq!(ratio(f64::INFINITY, 119_768.0, 2000.0), 0.0);
        assert_eq!(ratio(f64::INFINITY, 65_420.0, 200.0), 0.5);
        assert_eq!(ratio(65_504.0, 65_604.0, 200.0), 0.5);
        assert!(ratio(f64::INFINITY, 60_000.0, 200.0) > 1.0);
        assert_eq!(ratio(f64::NEG_INFINITY, 119_768.0, 2000.0), (65_520.0 + 119_768.0) / 2000.0);
        assert_eq!(ratio(f64::NAN, 119_768.0, 2000.0), f64::INFINITY);
        assert_eq!(ratio(65_504.0, f64::INFINITY, 200.0), f64::INFINITY);
        assert_eq!(error_ratio(DType::F64, f64::INFINITY, 1e308, 1e307), f64::INFINITY);
    }
}
