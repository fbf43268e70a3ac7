//! A sitting in a process of its own, and what its two ends say to each other: one JSON object a line.
//!
//! ```text
//! -> {"ask":"about"}                  <- {"tool":{...},"device":"cpu","memory":8123456789,"rows":[{"case":"81b3...",...},...]}
//! -> {"ask":"prepare","rows":[0,1]}   <- [{"Ok":{"estimate_ns":3.1e5,...}},{"Err":{"status":"oom","message":"..."}}]
//! -> {"ask":"check","row":0}          <- {"Ok":{"report":{...},"digest":1234}}
//! -> {"ask":"relocate","fresh":true,"key":7}   <- null
//! -> {"ask":"block","row":0,"pace":"isolated","samples":10,"launches":1,"warm_ns":3e5}   <- {"Ok":{"samples_ns":[...]}}
//! -> {"ask":"digest","row":0}         <- {"Ok":1234}
//! ```
//! The child ends with its input. An answer of `{"lost":"..."}` is its last.

use std::io::{BufRead, Write};
use std::process::Command;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::side::{About, Ask, Checked, Lost, Readiness, Reading, Side, Sitting};
use crate::case::{Fault, Place};
use crate::conversation::{Conversation, Silence};

/// A sitting that does not answer for so long is ended.
const PATIENCE: Duration = Duration::from_secs(180);
/// The exit code of a command line that is not understood.
const USAGE: i32 = 5;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
enum Request {
    About,
    Prepare { rows: Vec<usize> },
    Check { row: usize },
    Relocate(Place),
    Block(Ask),
    Digest { row: usize },
}

#[derive(Debug, Serialize, Deserialize)]
struct LastWords {
    lost: String,
}

/// Answers requests until the input ends. Gives what the sitting was lost to, if it was.
pub fn serve(sitting: &mut dyn Sitting, input: impl BufRead, mut output: impl Write) -> Result<(), Lost> {
    for line in input.lines() {
        let Ok(line) = line else { return Ok(()) };
        let request = serde_json::from_str(&line).map_err(|error| Lost::for_good(format!("`{line}` is not a request: {error}")));
        let answer = match request.and_then(|request| answer(sitting, request)) {
            Ok(answer) => answer,
            Err(lost) => {
                let _ = writeln!(output, "{}", text(&LastWords { lost: lost.message.clone() })?);
                return Err(lost);
            }
        };
        // Who does not listen any more has ended.
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn text(value: &impl Serialize) -> Result<String, Lost> {
    serde_json::to_string(value).map_err(|error| Lost::for_good(error.to_string()))
}

fn answer(sitting: &mut dyn Sitting, request: Request) -> Result<String, Lost> {
    match request {
        Request::About => text(&sitting.about()?),
        Request::Prepare { rows } => {
            sitting.prepare(&rows)?;
            text(&sitting.ready()?)
        }
        Request::Check { row } => text(&sitting.check(row)?),
        Request::Relocate(place) => text(&sitting.relocate(place)?),
        Request::Block(ask) => text(&sitting.block(ask)?),
        Request::Digest { row } => text(&sitting.digest(row)?),
    }
}

/// A side whose sittings are processes.
pub struct ProcessSide {
    name: String,
    command: Box<dyn Fn() -> Command>,
}

impl ProcessSide {
    /// A side of a name; `command` makes the command of a process that [`serve`]s on its standard input and output.
    pub fn new(name: impl Into<String>, command: impl Fn() -> Command + 'static) -> ProcessSide {
        ProcessSide { name: name.into(), command: Box::new(command) }
    }
}

impl Side for ProcessSide {
    fn name(&self) -> &str {
        &self.name
    }

    fn sit(&mut self) -> Result<Box<dyn Sitting + '_>, Lost> {
        let mut command = (self.command)();
        let program = command.get_program().to_string_lossy().into_owned();
        let talk = Conversation::start(&mut command, false)
            .map_err(|error| Lost::for_good(format!("`{program}` cannot be started: {error}")))?;
        Ok(Box::new(Seated { name: self.name.clone(), talk, pending: false }))
    }
}

struct Seated {
    name: String,
    talk: Conversation,
    /// Whether rows are being prepared, which is answered when that is done.
    pending: bool,
}

impl Seated {
    fn say(&mut self, request: &Request) -> Result<(), Lost> {
        let line = text(request)?;
        self.talk.say(&line).map_err(|silence| self.lost(silence))
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Lost> {
        let line = self.talk.hear(PATIENCE).map_err(|silence| self.lost(silence))?;
        serde_json::from_str(&line).map_err(|error| match serde_json::from_str::<LastWords>(&line) {
            Ok(last) => Lost::once(format!("{}: {}", self.name, last.lost)),
            Err(_) => Lost::for_good(format!("{}: `{}` is not an answer: {error}", self.name, shortened(&line))),
        })
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Lost> {
        self.say(request)?;
        self.hear()
    }

    fn lost(&self, silence: Silence) -> Lost {
        match silence {
            Silence::Patience(patience) => {
                Lost::once(format!("{} did not answer within {} s and was ended", self.name, patience.as_secs()))
            }
            // Its command line says so, whatever else it says.
            Silence::Ended { code: Some(USAGE), said, .. } if said.contains("--serve") => {
                let why = "its `bench` has no `--serve`";
                Lost::for_good(format!("{} is no program of this kind, or one before `compare --run`: {why}", self.name))
            }
            Silence::Ended { how, code, said } => {
                let said = if said.is_empty() { String::new() } else { format!("\n{said}") };
                Lost { message: format!("{} ended ({how}){said}", self.name), for_good: code == Some(USAGE) }
            }
        }
    }
}

/// The beginning of a line that may be long.
fn shortened(line: &str) -> String {
    if line.chars().count() <= 120 { line.to_string() } else { format!("{}...", line.chars().take(120).collect::<String>()) }
}

impl Sitting for Seated {
    fn about(&mut self) -> Result<About, Lost> {
        self.ask(&Request::About)
    }

    fn prepare(&mut self, rows: &[usize]) -> Result<(), Lost> {
        self.say(&Request::Prepare { rows: rows.to_vec() })?;
        self.pending = true;
        Ok(())
    }

    fn ready(&mut self) -> Result<Vec<Result<Readiness, Fault>>, Lost> {
        if std::mem::take(&mut self.pending) { self.hear() } else { Ok(Vec::new()) }
    }

    fn check(&mut self, row: usize) -> Result<Result<Checked, Fault>, Lost> {
        self.ask(&Request::Check { row })
    }

    fn relocate(&mut self, place: Place) -> Result<(), Lost> {
        self.ask(&Request::Relocate(place))
    }

    fn block(&mut self, ask: Ask) -> Result<Result<Reading, Fault>, Lost> {
        self.ask(&Request::Block(ask))
    }

    fn digest(&mut self, row: usize) -> Result<Result<Option<u64>, Fault>, Lost> {
        self.ask(&Request::Digest { row })
    }
}
