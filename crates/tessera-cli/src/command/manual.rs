//! `tessera completions` and `tessera manual`: what shells and `man` know of the command line, made from its grammar.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, Completions, Manual};
use crate::failure::{Failure, Outcome};

pub(crate) fn completions(arguments: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "tessera", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(())
}

pub(crate) fn manual(arguments: &Manual) -> Outcome {
    let folder = Path::new(&arguments.output);
    let failed = |error: std::io::Error| Failure::environment(format!("`{}`: {error}", arguments.output));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(failed)
}
