//! As many ranks as there are, asked together.

use std::io;
use std::time::Duration;

use tessera_runtime::Tensor;
use tessera_runtime::ranks::{Communicator, ExchangeError};
use tessera_types::DType;

use super::ask::{Answer, Ask};
use super::member::Member;
use crate::case::Fault;
use crate::status::Status;

/// All ranks of one way of exchanging.
pub trait Team {
    /// Asks all ranks the same; one answer a rank, in their order. A fault means that the team is lost: a rank is gone, or did not answer.
    fn ask(&mut self, ask: &Ask) -> Result<Vec<Answer>, Fault>;
}

/// Ranks of processes that somebody else started, on any number of hosts: rank 0 asks by a communicator that they all have.
///
/// What is asked and answered goes over that communicator as bytes; the member of this process answers by itself.
pub struct Wired {
    words: Box<dyn Communicator>,
    member: Member,
}

/// An answer is at most so long.
const MOST_BYTES: usize = 64 << 20;

impl Wired {
    /// Rank 0 of ranks that talk by `words`, with the member that it is itself.
    pub fn new(words: Box<dyn Communicator>, member: Member) -> Wired {
        Wired { words, member }
    }
}

impl Team for Wired {
    fn ask(&mut self, ask: &Ask) -> Result<Vec<Answer>, Fault> {
        let lost = |error: io::Error| Fault::new(Status::RuntimeError, error.to_string());
        let text = serde_json::to_vec(ask).map_err(|error| Fault::new(Status::HarnessError, error.to_string()))?;
        spread(self.words.as_mut(), &text).map_err(lost)?;
        let own = self.member.answer(ask);
        answered(self.words.as_mut(), &own).map_err(lost)
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        // Nothing more is asked: the others end.
        let _ = spread(self.words.as_mut(), &[]);
    }
}

/// A rank other than 0 of such a team, until nothing more is asked.
pub fn serve_wired(words: &mut dyn Communicator, member: &mut Member) -> io::Result<()> {
    loop {
        let text = spread(words, &[])?;
        if text.is_empty() {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&text) {
            Ok(ask) => member.answer(&ask),
            Err(error) => Answer::failure(Status::HarnessError, format!("not a request: {error}")),
        };
        answered(words, &answer)?;
    }
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn of_bytes(bytes: &[u8]) -> Result<Tensor, ExchangeError> {
    Ok(Tensor::from_bytes(DType::U8, &[bytes.len()], bytes)?)
}

fn length(own: usize) -> io::Result<Tensor> {
    of_bytes(&(own as u64).to_le_bytes()).map_err(failed)
}

fn number(bytes: &[u8]) -> io::Result<usize> {
    let word: [u8; 8] = bytes.try_into().map_err(failed)?;
    let number = u64::from_le_bytes(word) as usize;
    if number > MOST_BYTES { Err(failed(format!("{number} bytes are no answer"))) } else { Ok(number) }
}

/// Rank 0's bytes, on every rank.
fn spread(words: &mut dyn Communicator, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let world = words.world();
    let size = length(bytes.len())?;
    words.broadcast_into(&world, 0, &size).and_then(tessera_runtime::ranks::Pending::wait).map_err(failed)?;
    let size = number(&size.to_bytes().map_err(failed)?)?;
    if size == 0 {
        return Ok(Vec::new());
    }
    let own = if words.rank() == 0 { bytes.to_vec() } else { vec![0; size] };
    let text = of_bytes(&own).map_err(failed)?;
    words.broadcast_into(&world, 0, &text).and_then(tessera_runtime::ranks::Pending::wait).map_err(failed)?;
    text.to_bytes().map_err(failed)
}

/// Every rank's answer.
fn answered(words: &mut dyn Communicator, own: &Answer) -> io::Result<Vec<Answer>> {
    let world = words.world();
    let text = serde_json::to_vec(own)?;
    let sizes = words.all_gather(&world, 0, &[length(text.len())?]).map_err(failed)?;
    let sizes = sizes[0].to_bytes().map_err(failed)?;
    let sizes = sizes.chunks_exact(8).map(number).collect::<io::Result<Vec<usize>>>()?;
    let longest = sizes.iter().copied().max().filter(|&longest| longest > 0);
    let longest = longest.ok_or_else(|| io::Error::other("a rank's answer has no text"))?;
    let mut padded = text;
    padded.resize(longest, b' ');
    let all = words.all_gather(&world, 0, &[of_bytes(&padded).map_err(failed)?]).map_err(failed)?;
    let all = all[0].to_bytes().map_err(failed)?;
    all.chunks_exact(longest).map(|text| Ok(serde_json::from_slice(text)?)).collect()
}

/// A rank that does not answer for so long is lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
