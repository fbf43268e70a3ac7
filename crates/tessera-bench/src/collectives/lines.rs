//! Teams that this process starts: a thread or a process a rank, and a line to each.

use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tessera_runtime::ranks::Communicator;

use super::ask::{Answer, Ask};
use super::member::Member;
use super::team::{PATIENCE, Team};
use crate::case::Fault;
use crate::conversation::{Conversation, Silence};
use crate::status::Status;

/// Makes a rank's communicator, on the rank's own thread.
pub type Make = Box<dyn FnOnce() -> Result<Box<dyn Communicator>, String> + Send>;

/// A line to one rank.
enum Line {
    Thread { asks: Sender<Ask>, answers: Receiver<Answer> },
    Process(Box<Conversation>),
}

impl Line {
    fn say(&mut self, ask: &Ask) -> Result<(), Fault> {
        match self {
            Line::Thread { asks, .. } => asks.send(ask.clone()).map_err(|_| lost("its thread ended")),
            Line::Process(talk) => {
                let text = serde_json::to_string(ask).map_err(|error| Fault::new(Status::HarnessError, error.to_string()))?;
                talk.say(&text).map_err(silence)
            }
        }
    }

    fn hear(&mut self, patience: Duration) -> Result<Answer, Fault> {
        match self {
            Line::Thread { answers, .. } => answers.recv_timeout(patience).map_err(|error| match error {
                RecvTimeoutError::Timeout => late(patience),
                RecvTimeoutError::Disconnected => lost("its thread ended"),
            }),
            Line::Process(talk) => {
                let text = talk.hear(patience).map_err(silence)?;
                serde_json::from_str(&text).map_err(|error| lost(&format!("it says `{text}`: {error}")))
            }
        }
    }
}

fn lost(why: &str) -> Fault {
    Fault::new(Status::RuntimeError, why)
}

fn late(patience: Duration) -> Fault {
    Fault::new(Status::Timeout, format!("it did not answer within {} s", patience.as_secs()))
}

fn silence(silence: Silence) -> Fault {
    match silence {
        Silence::Patience(patience) => late(patience),
        Silence::Ended { how, said, .. } => {
            let ended = format!("its process ended ({how})");
            match said.lines().rev().find(|line| !line.trim().is_empty()) {
                Some(last) => lost(&format!("{ended}: {last}")),
                None => lost(&ended),
            }
        }
    }
}

/// A team with a line to each rank.
pub struct Lines {
    name: String,
    ranks: Vec<Line>,
    patience: Duration,
    /// Why nobody is asked any more.
    failed: Option<Fault>,
}

impl Lines {
    /// A rank that does not answer for so long is lost.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Lines {
        Lines { patience, ..self }
    }

    /// Threads of this process, each with a communicator that it makes.
    pub fn threads(name: &str, ranks: Vec<Make>) -> Lines {
        let own = name.to_string();
        let start = |make: Make| {
            let (asks, to_do) = channel::<Ask>();
            let (done, answers) = channel();
            let name = own.clone();
            thread::spawn(move || {
                let mut member = make().map(|communicator| Member::new(communicator, name));
                for ask in to_do {
                    let answer = match &mut member {
                        Ok(member) => member.answer(&ask),
                        Err(why) => Answer::failure(Status::Unsupported, why.clone()),
                    };
                    if done.send(answer).is_err() {
                        return;
                    }
                }
            });
            Line::Thread { asks, answers }
        };
        Lines { name: own.clone(), ranks: ranks.into_iter().map(start).collect(), patience: PATIENCE, failed: None }
    }

    /// Processes of these commands.
    pub fn processes(name: &str, commands: Vec<Command>) -> Result<Lines, String> {
        let start = |mut command: Command| {
            let program = command.get_program().to_string_lossy().into_owned();
            let talk = Conversation::start(&mut command, true).map_err(|error| format!("`{program}`: {error}"))?;
            Ok(Line::Process(Box::new(talk)))
        };
        let ranks = commands.into_iter().map(start).collect::<Result<_, String>>()?;
        Ok(Lines { name: name.to_string(), ranks, patience: PATIENCE, failed: None })
    }

    fn asked(&mut self, ask: &Ask) -> Result<Vec<Answer>, Fault> {
        let named =
            |rank: usize, fault: Fault| Fault::new(fault.status, format!("rank {rank} of `{}`: {}", self.name, fault.message));
        for (rank, line) in self.ranks.iter_mut().enumerate() {
            line.say(ask).map_err(|fault| named(rank, fault))?;
        }
        let until = Instant::now() + self.patience;
        let mut answers = Vec::with_capacity(self.ranks.len());
        let mut first = None;
        for (rank, line) in self.ranks.iter_mut().enumerate() {
            match line.hear(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))) {
                Ok(answer) => answers.push(answer),
                // The others may say why.
                Err(fault) => first = first.or(Some((rank, fault))),
            }
        }
        match first {
            None => Ok(answers),
            Some((rank, fault)) => {
                let told = answers.iter().find_map(|answer| answer.error.clone());
                let told = told.map_or(String::new(), |why| format!("; another rank says: {why}"));
                Err(named(rank, Fault::new(fault.status, format!("{}{told}", fault.message))))
            }
        }
    }
}

impl Team for Lines {
    fn ask(&mut self, ask: &Ask) -> Result<Vec<Answer>, Fault> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        let answers = self.asked(ask);
        self.failed = answers.as_ref().err().cloned();
        answers
    }
}
