//! The Python interpreter, asked what a function returns.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Reads `LENGTH CALLS`, a source of so many bytes, and one line of arguments a call; answers one line a call.
const DRIVER: &str = r#"
import signal, sys
def late(*_):
    raise TimeoutError("too slow")
signal.signal(signal.SIGALRM, late)
stdin = sys.stdin.buffer
def show(value):
    if isinstance(value, tuple):
        return " ".join(show(item) for item in value)
    return f"{type(value).__name__}:{value!r}"
while head := stdin.readline().split():
    source = stdin.read(int(head[0])).decode()
    calls = [stdin.readline().decode() for _ in range(int(head[1]))]
    try:
        names = {}
        exec(compile(source, "<case>", "exec"), names)
        broken = None
    except Exception as error:
        broken = error
    for call in calls:
        try:
            if broken:
                raise broken
            signal.setitimer(signal.ITIMER_REAL, 2)
            print("ok", show(eval("case" + call, names)))
        except BaseException as error:
            print("error", type(error).__name__, str(error).replace("\n", " "))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.flush()
"#;

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Numbers; truth values are 0 and 1.
    Values(Vec<f64>),
    /// The name of an exception, and its message.
    Raised(String, String),
}

pub(crate) struct Python {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Python {
    /// The tests' interpreter; says so where there is none.
    pub(crate) fn start() -> Option<Python> {
        let Some(path) = std::env::var_os("TESSERA_PYTHON") else {
            println!("skipped: TESSERA_PYTHON names no interpreter");
            return None;
        };
        let mut child = Command::new(path)
            .args(["-W", "ignore", "-c", DRIVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let stdin = child.stdin.take().expect("its input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Some(Python { child, stdin, stdout })
    }

    /// Runs `case(...)` of a source with each line of arguments.
    pub(crate) fn run(&mut self, source: &str, calls: &[String]) -> Vec<Outcome> {
        let mut request = format!("{} {}\n{source}", source.len(), calls.len());
        calls.iter().for_each(|call| request.extend([call, "\n"]));
        self.stdin.write_all(request.as_bytes()).and_then(|()| self.stdin.flush()).expect("the interpreter reads");
        calls.iter().map(|_| self.answer()).collect()
    }

    fn answer(&mut self) -> Outcome {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).unwrap_or(0) == 0 {
            let mut rest = String::new();
            let _ = self.stdout.read_to_string(&mut rest);
            panic!("the interpreter ended: {:?} {rest}", self.child.wait());
        }
        let (kind, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        if kind == "error" {
            let (name, message) = rest.split_once(' ').unwrap_or((rest, ""));
            return Outcome::Raised(name.to_string(), message.to_string());
        }
        let number = |item: &str| match item.split_once(':') {
            Some(("bool", "True")) => 1.0,
            Some(("bool", _)) => 0.0,
            Some((_, number)) => number.parse().unwrap_or(f64::NAN),
            None => f64::NAN,
        };
        Outcome::Values(rest.split_whitespace().map(number).collect())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
