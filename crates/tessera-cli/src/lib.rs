//! The `tessera` command: reads the command line, calls the library, prints.
//!
//! Exit codes are a contract: 0 ok, 1 regression, 2 incorrect result or sanitizer report, 3 invalid measurement, 4 environment, 5 usage or a kernel
//! that does not compile, 6 our bug.

#[macro_use]
mod output;

mod arguments;
mod command;
mod difference;
mod failure;
mod finding;
mod invocation;

use std::io::IsTerminal;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::{Failure, Outcome};
use invocation::given;
use tessera::runtime::{Knobs, set_module_folders};

pub use invocation::Invocation;

/// A panic is our bug, whatever the input was.
const OUR_BUG: u8 = 6;

/// Does what a command line asks for, once in a process; the exit code.
pub fn main(invocation: Invocation) -> u8 {
    invocation.set();
    output::end(ended())
}

/// Does it; what the standard output does not take is not part of the code.
fn ended() -> u8 {
    let is_data = is_data();
    let arguments = match Arguments::try_parse_from(std::iter::once("tessera".into()).chain(given().arguments.iter().cloned())) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            output::note(error.print());
            return 0;
        }
        Err(error) => {
            let _ = error.print();
            let text = error.to_string();
            // Its first paragraph says what is wrong, and `tip:` what to do; the rest is the command's usage.
            let first: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!("\nhelp: {tip}"));
            let message = format!("{}{}", first.join(" ").trim_start_matches("error: "), tips.collect::<String>());
            return failed(Failure { text: String::new(), ..Failure::usage(message) }, is_data);
        }
    };
    match std::panic::catch_unwind(|| run(arguments.command)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failed(failure, is_data),
        Err(_) => failed(Failure { exit: OUR_BUG, ..Failure::usage(failure::REPORT) }, is_data),
    }
}

/// Whether the command line asks for data. That is known before anything can fail: what a program reads is data also where the rest of
/// the command line is wrong. A process that measures for another one tells it what it would tell a program.
fn is_data() -> bool {
    let mut options = given().arguments.iter().take_while(|argument| *argument != "--");
    options.any(|argument| argument == "--json" || argument == "--unwatched")
}

/// Says why a command failed: to people on stderr, to a program on stdout as well.
fn failed(failure: Failure, is_data: bool) -> u8 {
    if is_data && !failure.is_told() {
        println!("{}", failure.to_json());
        eprint!("{}", failure.printed);
    } else {
        print!("{}", failure.printed);
    }
    if !failure.text.is_empty() {
        eprintln!("{}", failure.text);
    }
    failure.exit
}

fn run(command: Command) -> Outcome {
    let knobs = Knobs::from_env().map_err(Failure::environment)?;
    knobs.apply();
    if let Some(path) = command.path().iter().find(|path| !path.is_dir()) {
        return Err(Failure::environment(format!("`--path {}`: there is no such folder", path.display())));
    }
    set_module_folders(command.path().iter().cloned().chain(knobs.path).collect());
    match command {
        Command::Run(arguments) => command::run::run(arguments),
        Command::Check(arguments) => command::check::check(arguments),
        Command::Bench(arguments) => command::bench::bench(arguments),
        Command::Compile(arguments) => command::compile::compile(arguments),
        Command::Opt(arguments) => command::opt::opt(arguments),
        Command::Emu(arguments) => command::emu::emu(arguments),
        Command::Tune(arguments) => command::tune::tune(&arguments),
        Command::Bundle(arguments) => command::bundle::bundle(arguments),
        Command::Compare(arguments) => command::compare::compare(arguments),
        Command::Checklist(arguments) => command::checklist::checklist(&arguments),
        Command::Report(arguments) => command::report::report(arguments),
        Command::Completions(arguments) => command::manual::completions(&arguments),
        Command::Manual(arguments) => command::manual::manual(&arguments),
        Command::List(arguments) => command::list::list(arguments),
        Command::Doctor(arguments) => command::doctor::doctor(arguments),
    }
}

/// Whether what goes to the terminal may have colours.
fn colours() -> bool {
    is_live() && std::env::var_os("NO_COLOR").is_none()
}

/// Whether somebody watches a terminal that can write a line again.
fn is_live() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
