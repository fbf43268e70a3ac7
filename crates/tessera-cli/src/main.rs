//! The `tessera` binary.

use std::process::ExitCode;

use tessera_cli::Invocation;

fn main() -> ExitCode {
    ExitCode::from(tessera_cli::main(Invocation::of_process()))
}
