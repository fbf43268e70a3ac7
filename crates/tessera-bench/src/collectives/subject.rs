//! A collective of one team as the harness's subject: its outputs are what each rank gets.
//!
//! Large results are read in pieces here and there, and their digests are held against what they should be: so each element is looked
//! at where its bits are known, in sums of small integers and in everything that is only moved.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use tessera_ops::RowIdentity;
use tessera_types::{DType, FloatFormat};

use super::ask::{Answer, Ask, Side};
use super::data::Inputs;
use super::kind::Form;
use super::team::Team;
use crate::case::{Check, DeviceState, Expected, Fault, Lane, Output, Phase, Poison, Subject};
use crate::random::{Digest, Random};
use crate::stats::median;
use crate::status::Status;

/// Elements of a result that is read as a whole.
const WHOLE: usize = 1 << 20;
/// Pieces of a larger one, and their elements.
const PIECES: usize = 16;
const PIECE: usize = 1 << 13;
/// Launches of a sample at most.
const MOST_LAUNCHES: usize = 100;

/// One team's implementation of a case, prepared.
pub(super) struct Exchanged {
    team: Rc<RefCell<Box<dyn Team>>>,
    lost: Rc<Cell<bool>>,
    case: u64,
    form: Form,
    /// The size of a case of the suite may be a little more than what divides among the ranks.
    outputs: Vec<Output>,
    inputs: Inputs,
    graph: bool,
    state: Option<DeviceState>,
    config: String,
}

/// Who is asked, and which case of theirs it is.
pub(super) struct Asked {
    pub(super) team: Rc<RefCell<Box<dyn Team>>>,
    /// Set when the team is given up.
    pub(super) lost: Rc<Cell<bool>>,
    pub(super) case: u64,
    pub(super) implementation: String,
    /// Samples are graphs of launches.
    pub(super) graph: bool,
}

fn decode(dtype: DType) -> fn(u64) -> f64 {
    crate::library::decoder(dtype)
}

impl Exchanged {
    pub(super) fn prepare(asked: Asked, form: Form) -> Result<Exchanged, Fault> {
        let inputs = Inputs::new(0, false, form.ranks, form.dtype)
            .ok_or_else(|| Fault::new(Status::Unsupported, format!("no inputs of {}", form.dtype)))?;
        let output = |rank| Output {
            name: format!("rank{rank}"),
            rows: form.got(),
            row_len: 1,
            dtype: form.dtype,
            check: Check::Bounded,
            decode: decode(form.dtype),
        };
        let mut exchanged = Exchanged {
            team: asked.team,
            lost: asked.lost,
            case: asked.case,
            form,
            outputs: (0..form.ranks).map(output).collect(),
            inputs,
            graph: asked.graph,
            state: None,
            config: String::new(),
        };
        let answers = exchanged.ask(&Ask::Prepare {
            case: asked.case,
            collective: form.collective,
            bytes: form.bytes() as u64,
            ranks: form.ranks,
            dtype: form.dtype.name().to_string(),
            implementation: asked.implementation,
        })?;
        exchanged.config = answers[0].name.clone();
        Ok(exchanged)
    }

    /// What each rank answers, in their order.
    fn ask(&self, ask: &Ask) -> Result<Vec<Answer>, Fault> {
        let answers = self.team.borrow_mut().ask(ask).inspect_err(|_| self.lost.set(true))?;
        if answers.len() != self.form.ranks {
            self.lost.set(true);
            let text = format!("{} of {} ranks answered", answers.len(), self.form.ranks);
            return Err(Fault::new(Status::HarnessError, text));
        }
        let failed = |(rank, answer): (usize, &Answer)| Some((rank, answer.error.clone()?, answer.status));
        let failures: Vec<_> = answers.iter().enumerate().filter_map(failed).collect();
        let Some((rank, why, status)) = failures.first() else { return Ok(answers) };
        // Ranks that no longer agree exchange nothing any more.
        if failures.len() < answers.len() {
            self.lost.set(true);
        }
        Err(Fault::new(status.unwrap_or(Status::RuntimeError), format!("rank {rank}: {why}")))
    }

    /// A digest of all ranks' memory.
    fn digest(&self, of: Side) -> Result<Vec<u64>, Fault> {
        let answers = self.ask(&Ask::Digest { case: self.case, of })?;
        let number = |answer: &Answer| {
            u64::from_str_radix(&answer.digest, 16)
                .map_err(|_| Fault::new(Status::HarnessError, format!("`{}` is no digest", answer.digest)))
        };
        answers.iter().map(number).collect()
    }

    fn digest_of_all(&self, of: Side) -> Result<u64, Fault> {
        let mut whole = Digest::default();
        self.digest(of)?.into_iter().for_each(|word| whole.word(word));
        Ok(whole.finish())
    }

    fn is_sampled(&self) -> bool {
        self.form.got() > WHOLE
    }
}

impl Subject for Exchanged {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }

    fn config(&self) -> String {
        self.config.clone()
    }

    fn has_exact_lane(&self) -> bool {
        true
    }

    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        let exact = match lane {
            Lane::Exact => true,
            Lane::Case => false,
            Lane::Special => return Err(Fault::new(Status::Unsupported, "sums of not-a-numbers are not compared")),
        };
        let Form { ranks, dtype, .. } = self.form;
        self.inputs = Inputs::new(seed, exact, ranks, dtype)
            .ok_or_else(|| Fault::new(Status::Unsupported, format!("no inputs of {dtype}")))?;
        self.ask(&Ask::Fill { case: self.case, seed, exact })?;
        // The inputs are those that are expected, too: a rank that fills others would have the right digest of wrong data.
        for (rank, found) in self.digest(Side::Source)?.into_iter().enumerate() {
            if found != self.inputs.given_digest(&self.form, rank) {
                return Err(Fault::new(Status::HarnessError, format!("rank {rank} filled its input with something else")));
            }
        }
        Ok(())
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        self.ask(&Ask::Poison { case: self.case, byte: poison.byte() }).map(drop)
    }

    fn launch(&mut self) -> Result<(), Fault> {
        self.ask(&Ask::Run { case: self.case }).map(drop)
    }

    fn most_launches(&self) -> usize {
        MOST_LAUNCHES
    }

    fn time(&mut self, samples: usize, launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        let ask = Ask::Time { case: self.case, samples, launches, graph: self.graph };
        Some(self.ask(&ask).and_then(|answers| {
            if let Some(rank) = answers.iter().position(|answer| answer.ns.len() != samples) {
                return Err(Fault::new(Status::HarnessError, format!("rank {rank} has other than {samples} samples")));
            }
            let medians: Vec<f64> = answers.iter().map(|answer| median(&answer.ns)).collect();
            let slowest = (0..medians.len()).max_by(|&a, &b| medians[a].total_cmp(&medians[b]));
            let fastest = medians.iter().copied().fold(f64::INFINITY, f64::min);
            self.state = Some(DeviceState {
                slowest_rank: slowest.map(|rank| rank as u32),
                fastest_rank_ns: Some(fastest),
                ..DeviceState::default()
            });
            // Nobody has a result before the last one has.
            Ok((0..samples).map(|at| answers.iter().map(|answer| answer.ns[at]).fold(0.0, f64::max)).collect())
        }))
    }

    fn device_state(&self) -> Option<DeviceState> {
        self.state
    }

    fn read(&self, output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        let answers = self.ask(&Ask::Read { case: self.case, rank: output, start: rows.start, len: rows.len() })?;
        let digits = 2 * self.form.dtype.unpacked_bytes();
        let text = &answers[output].codes;
        let wrong = || Fault::new(Status::HarnessError, format!("rank {output} did not give {} elements", rows.len()));
        if text.len() != digits * rows.len() || !text.is_ascii() {
            return Err(wrong());
        }
        for (place, at) in codes.iter_mut().zip((0..text.len()).step_by(digits)) {
            let value = u64::from_str_radix(&text[at..at + digits], 16).map_err(|_| wrong())?;
            // Bytes come as they lie in memory, the least first.
            *place = value.swap_bytes() >> (64 - 4 * digits);
        }
        Ok(())
    }

    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        match expected {
            Expected::Values { want, bound } => {
                let values = want.iter_mut().zip(bound);
                for ((want, bound), index) in values.zip(rows) {
                    (*want, *bound) = self.inputs.expected(&self.form, output, index);
                }
            }
            Expected::Codes(codes) => {
                let format = FloatFormat::of(self.form.dtype)
                    .ok_or_else(|| Fault::new(Status::HarnessError, format!("no codes of {}", self.form.dtype)))?;
                for (code, index) in codes.iter_mut().zip(rows) {
                    *code = format.encode_nearest(self.inputs.expected(&self.form, output, index).0);
                }
            }
        }
        Ok(())
    }

    fn sampled_rows(&self, output: usize) -> Option<Vec<Range<usize>>> {
        let rows = self.form.got();
        self.is_sampled().then(|| {
            let mut random = Random::new(output as u64);
            let each = rows / PIECES;
            let start = |piece: usize| match piece {
                0 => 0,
                piece if piece + 1 == PIECES => rows - PIECE,
                piece => piece * each + random.below(each - PIECE),
            };
            (0..PIECES).map(start).map(|first| first..first + PIECE).collect()
        })
    }

    fn output_digest(&self) -> Result<Option<u64>, Fault> {
        if self.is_sampled() { self.digest_of_all(Side::Result).map(Some) } else { Ok(None) }
    }

    fn identity(&self, output: usize) -> Result<Option<Vec<RowIdentity>>, Fault> {
        let Some(want) = self.inputs.result_digest(&self.form, output).filter(|_| self.is_sampled()) else { return Ok(None) };
        let got = self.digest(Side::Result)?[output];
        // Bits that an f64 holds exactly.
        let low = |digest: u64| (digest & ((1 << 53) - 1)) as f64;
        Ok(Some(vec![RowIdentity { got: low(got), want: low(want), bound: 0.0 }]))
    }

    fn input_digest(&self) -> Result<u64, Fault> {
        self.digest_of_all(Side::Source)
    }

    fn damaged_guard(&self) -> Option<String> {
        match self.ask(&Ask::Guards { case: self.case }) {
            Ok(answers) => {
                let mut found = answers.iter().enumerate();
                found.find_map(|(rank, answer)| answer.guards.as_ref().map(|damage| format!("rank {rank}, {damage}")))
            }
            Err(fault) => Some(format!("it could not be looked at: {fault}")),
        }
    }
}

impl Drop for Exchanged {
    fn drop(&mut self) {
        if !self.lost.get() {
            let _ = self.ask(&Ask::Release { case: self.case });
        }
    }
}
