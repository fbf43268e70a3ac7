//! A rank that does what it is asked, with a [`Communicator`] of any kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write};

use tessera_runtime::Tensor;
use tessera_runtime::ranks::{Call, Communicator, ExchangeError, Group, Operation, Reduction};
use tessera_types::DType;

use super::ask::{Answer, Ask, Offer, Side};
use super::data::{Inputs, digest_of};
use super::kind::{Collective, Form};
use super::stopwatch::{Stopwatch, Take};
use crate::case::Fault;
use crate::status::Status;

/// Elements of the guards before and behind each tensor.
const GUARD: usize = 4096;
/// What guards hold.
const GUARD_BYTE: u8 = 0xc3;
/// Elements that are made, read or digested at a time.
const PIECE: usize = 1 << 24;

/// A tensor between two guards.
struct Guarded {
    memory: Tensor,
    view: Tensor,
}

/// A case that was prepared.
struct Held {
    form: Form,
    source: Guarded,
    result: Guarded,
}

/// One rank of a team.
pub struct Member {
    communicator: Box<dyn Communicator>,
    name: String,
    cases: BTreeMap<u64, Held>,
    stopwatch: Option<Stopwatch>,
}

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(Status::RuntimeError, error.to_string())
}

/// A rank that waits for another for too long says so by its status.
fn exchange_fault(error: ExchangeError) -> Fault {
    let status = if matches!(error, ExchangeError::Late { .. }) { Status::Timeout } else { Status::RuntimeError };
    Fault::new(status, error.to_string())
}

impl Guarded {
    fn new(dtype: DType, count: usize, communicator: &dyn Communicator) -> Result<Guarded, Fault> {
        let oom = |error: tessera_runtime::TensorError| Fault::new(Status::Oom, error.to_string());
        let memory = Tensor::zeros_on(dtype, &[count + 2 * GUARD], communicator.device()).map_err(oom)?;
        memory.fill_bytes(GUARD_BYTE).map_err(fault)?;
        let view = memory.slice(0, GUARD..GUARD + count, 1).map_err(fault)?;
        Ok(Guarded { memory, view })
    }

    fn damage(&self, what: &str) -> Result<Option<String>, Fault> {
        let end = self.memory.len();
        for (side, range) in [("before", 0..GUARD), ("behind", end - GUARD..end)] {
            let guard = self.memory.slice(0, range, 1).map_err(fault)?;
            if let Some(at) = guard.first_other_byte(GUARD_BYTE).map_err(fault)? {
                return Ok(Some(format!("{at} bytes into the guard {side} the {what}")));
            }
        }
        Ok(None)
    }

    fn pieces(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let count = self.view.len();
        (0..count).step_by(PIECE).map(move |first| first..(first + PIECE).min(count))
    }

    fn digest(&self) -> Result<u64, Fault> {
        let size = self.view.dtype().unpacked_bytes();
        let mut sum = 0u64;
        for range in self.pieces() {
            let first = range.start;
            let bytes = self.view.slice(0, range, 1).and_then(|piece| piece.to_bytes()).map_err(fault)?;
            sum = sum.wrapping_add(digest_of(&bytes, size, first));
        }
        Ok(sum)
    }
}

impl Member {
    /// A rank with its communicator, called `name`.
    pub fn new(communicator: Box<dyn Communicator>, name: impl Into<String>) -> Member {
        Member { communicator, name: name.into(), cases: BTreeMap::new(), stopwatch: None }
    }

    /// Does what it is asked. What cannot be done is an answer.
    pub fn answer(&mut self, ask: &Ask) -> Answer {
        self.done(ask).unwrap_or_else(|fault| Answer::failure(fault.status, fault.message))
    }

    fn done(&mut self, ask: &Ask) -> Result<Answer, Fault> {
        match *ask {
            Ask::Describe => {
                let offers = vec![Offer { name: String::new(), collectives: Collective::ALL.to_vec() }];
                return Ok(Answer { name: self.name.clone(), offers, ..Answer::default() });
            }
            Ask::Prepare { case, collective, bytes, ranks, ref dtype, .. } => {
                self.prepare(case, collective, bytes, ranks, dtype)?;
            }
            Ask::Fill { case, seed, exact } => self.fill(case, seed, exact)?,
            Ask::Poison { case, byte } => self.poison(case, byte)?,
            Ask::Run { case } => {
                let calls = self.calls(case)?;
                self.communicator.start(&calls, None).and_then(tessera_runtime::ranks::Pending::wait).map_err(exchange_fault)?;
            }
            Ask::Time { case, samples, launches, graph } => {
                return Ok(Answer { ns: self.time(case, Take { samples, launches, graph })?, ..Answer::default() });
            }
            Ask::Read { case, rank, start, len } if rank == self.communicator.rank() => {
                let view = &self.held(case)?.result.view;
                if start.checked_add(len).is_none_or(|end| end > view.len()) {
                    return Err(fault(format!("there are {} elements, not {start} and {len} more", view.len())));
                }
                let bytes = view.slice(0, start..start + len, 1).and_then(|piece| piece.to_bytes()).map_err(fault)?;
                let mut codes = String::with_capacity(2 * bytes.len());
                bytes.iter().try_for_each(|byte| write!(codes, "{byte:02x}")).map_err(fault)?;
                return Ok(Answer { codes, ..Answer::default() });
            }
            Ask::Read { .. } => {}
            Ask::Digest { case, of } => {
                let held = self.held(case)?;
                let side = if of == Side::Source { &held.source } else { &held.result };
                return Ok(Answer { digest: format!("{:016x}", side.digest()?), ..Answer::default() });
            }
            Ask::Guards { case } => {
                let held = self.held(case)?;
                let guards = match held.source.damage("source")? {
                    Some(damage) => Some(damage),
                    None => held.result.damage("result")?,
                };
                return Ok(Answer { guards, ..Answer::default() });
            }
            Ask::Release { case } => {
                self.cases.remove(&case);
            }
        }
        Ok(Answer::default())
    }

    fn held(&self, case: u64) -> Result<&Held, Fault> {
        self.cases.get(&case).ok_or_else(|| fault(format!("there is no case {case}")))
    }

    fn prepare(&mut self, case: u64, collective: Collective, bytes: u64, ranks: usize, dtype: &str) -> Result<(), Fault> {
        let own = self.communicator.ranks();
        if ranks != own {
            return Err(fault(format!("there are {own} ranks, not {ranks}")));
        }
        let dtype = DType::parse(dtype).ok_or_else(|| fault(format!("`{dtype}` is no type")))?;
        let form = Form::of_bytes(collective, ranks, bytes, dtype)
            .ok_or_else(|| fault(format!("{bytes} bytes do not divide among {ranks} ranks")))?;
        let communicator = self.communicator.as_ref();
        let source = Guarded::new(dtype, form.given(), communicator)?;
        let result = Guarded::new(dtype, form.got(), communicator)?;
        self.cases.insert(case, Held { form, source, result });
        Ok(())
    }

    fn fill(&mut self, case: u64, seed: u64, exact: bool) -> Result<(), Fault> {
        let rank = self.communicator.rank();
        let Held { form, source, .. } = self.held(case)?;
        let inputs =
            Inputs::new(seed, exact, form.ranks, form.dtype).ok_or_else(|| fault(format!("no inputs of {}", form.dtype)))?;
        for range in source.pieces() {
            let bytes = inputs.bytes(rank, range.clone());
            let piece = Tensor::from_bytes(form.dtype, &[range.len()], &bytes).map_err(fault)?;
            source.view.slice(0, range, 1).and_then(|place| place.copy_from(&piece)).map_err(fault)?;
        }
        Ok(())
    }

    fn poison(&mut self, case: u64, byte: u8) -> Result<(), Fault> {
        let rank = self.communicator.rank();
        let Held { form, source, result } = self.held(case)?;
        if form.collective == Collective::Broadcast && rank == 0 {
            return result.view.copy_from(&source.view).map_err(fault);
        }
        result.view.fill_bytes(byte).map_err(fault)
    }

    /// The calls of a case.
    fn calls(&self, case: u64) -> Result<Vec<Call>, Fault> {
        let Held { form, source, result } = self.held(case)?;
        let (rank, ranks) = (self.communicator.rank(), form.ranks);
        let group = Group::world(rank, ranks);
        let (give, get) = (Some(&source.view), Some(&result.view));
        let both = |operation| vec![Call::new(operation, &group, give, get)];
        Ok(match form.collective {
            Collective::AllReduce => both(Operation::AllReduce(Reduction::Sum)),
            Collective::ReduceScatter => both(Operation::ReduceScatter(Reduction::Sum)),
            Collective::AllGather => both(Operation::AllGather),
            Collective::AllToAll => both(Operation::AllToAll),
            Collective::Broadcast => vec![Call::new(Operation::Broadcast { root: 0 }, &group, None, get)],
            Collective::SendRecv => vec![
                Call::new(Operation::Send { to: (rank + 1) % ranks }, &group, give, None),
                Call::new(Operation::Recv { from: (rank + ranks - 1) % ranks }, &group, None, get),
            ],
        })
    }

    fn time(&mut self, case: u64, take: Take) -> Result<Vec<f64>, Fault> {
        let calls = self.calls(case)?;
        let stopwatch = match &mut self.stopwatch {
            Some(own) => own,
            none => none.insert(Stopwatch::new(self.communicator.device()).map_err(fault)?),
        };
        stopwatch.time(self.communicator.as_mut(), &calls, take).map_err(exchange_fault)
    }
}

/// Answers what is asked, a line each, until the input ends.
pub fn serve_member(member: &mut Member, input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    for line in input.lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(ask) => member.answer(&ask),
            Err(error) => Answer::failure(Status::HarnessError, format!("not a request: {error}")),
        };
        writeln!(output, "{}", serde_json::to_string(&answer)?)?;
        output.flush()?;
    }
    Ok(())
}
