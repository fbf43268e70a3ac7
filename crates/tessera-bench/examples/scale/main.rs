//! The tables of `docs/scale.md`, fitted to the points in the source and to those of results files.
//!
//! ```text
//! cargo run -p tessera-bench --example scale
//! cargo run -p tessera-bench --example scale -- results.jsonl            # of `tessera bench all_reduce --out results.jsonl`
//! ```

use std::path::Path;
use std::process::ExitCode;

use tessera_bench::Results;
use tessera_bench::scale::{MEASURED, document, recorded};

fn main() -> ExitCode {
    let mut points = MEASURED.to_vec();
    for path in std::env::args().skip(1) {
        match Results::load(Path::new(&path)) {
            Ok(results) => points.extend(recorded(&results)),
            Err(error) => {
                eprintln!("{error}\nhelp: give results files of `tessera bench all_reduce --out FILE`");
                return ExitCode::FAILURE;
            }
        }
    }
    match document(&points) {
        Some(tables) => {
            print!("{tables}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("the points contradict the model: more bytes take less time");
            ExitCode::FAILURE
        }
    }
}
