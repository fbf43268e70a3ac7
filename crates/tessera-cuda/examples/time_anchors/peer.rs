//! The baseline process: one JSON request a line, one JSON answer a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::measure::Mode;

pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said when it was ready.
    pub(crate) hello: String,
}

impl Peer {
    /// Starts `command`, whose words are separated by blanks.
    pub(crate) fn start(command: &str) -> Outcome<Peer> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or("an empty peer command")?;
        let mut child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut peer = Peer { child, input, output, hello: String::new() };
        peer.hello = peer.line()?;
        Ok(peer)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the peer ended".into());
        }
        Ok(line.trim().to_owned())
    }

    /// Times a case: milliseconds of each repetition.
    pub(crate) fn run(&mut self, case: &Value, mode: Mode, reps: u32) -> Outcome<Vec<f64>> {
        let mut request = case.clone();
        request["mode"] = mode.name().into();
        request["reps"] = reps.into();
        writeln!(self.input, "{request}")?;
        self.input.flush()?;
        let answer: Value = serde_json::from_str(&self.line()?)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(error.to_owned().into());
        }
        Ok(answer["ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
