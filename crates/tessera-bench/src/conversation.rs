//! A child process that is talked to: one JSON object a line in each direction.
//!
//! A thread reads what the child says, so that waiting for an answer can end; another keeps the last lines of its error
//! output for the message when it has ended.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Lines of a child's error output that are kept.
const KEPT_LINES: usize = 12;

/// A child whose pipes are closed has so many of these moments left to end by itself.
const BREATH: Duration = Duration::from_millis(10);
const LAST_BREATHS: usize = 500;

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It said nothing for too long and was ended.
    Patience(Duration),
    /// It ended: how, with the exit code where it has one, and what it said last on its error output.
    Ended {
        /// The system's words: `exit status: 5`.
        how: String,
        /// The exit code, where it ended by itself.
        code: Option<i32>,
        /// The last lines of its error output.
        said: String,
    },
}

/// A running child.
pub(crate) struct Conversation {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    errors: Arc<Mutex<VecDeque<String>>>,
    listener: Option<JoinHandle<()>>,
}

impl Conversation {
    /// Starts a command. Its error output goes where this program's goes, too, when `echo` is set.
    pub(crate) fn start(command: &mut Command, echo: bool) -> io::Result<Conversation> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (Some(input), Some(output), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the child has no input or output"));
        };
        let (send, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let errors: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let kept = Arc::clone(&errors);
        let listener = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if echo {
                    // Where nobody reads it, the conversation goes on.
                    let _ = writeln!(io::stderr(), "{line}");
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Ok(Conversation { child, input, answers, errors, listener: Some(listener) })
    }

    /// Says one line.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Silence> {
        let said = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        said.map_err(|_| self.ended())
    }

    /// The next line that the child says.
    pub(crate) fn hear(&mut self, patience: Duration) -> Result<String, Silence> {
        self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let _ = self.child.kill();
                Silence::Patience(patience)
            }
            RecvTimeoutError::Disconnected => self.ended(),
        })
    }

    /// How the child ended, now that its pipes are closed; one that goes on without them is ended.
    fn ended(&mut self) -> Silence {
        for _ in 0..LAST_BREATHS {
            if matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(BREATH);
            }
        }
        let _ = self.child.kill();
        let status = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let said = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        match status {
            Ok(status) => Silence::Ended { how: status.to_string(), code: status.code(), said },
            Err(error) => Silence::Ended { how: error.to_string(), code: None, said },
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
