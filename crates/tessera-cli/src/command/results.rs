//! How a run ends, be it of a kernel of a file, of a bundle, or of an operator: what kernels printed, results shown and saved.

use serde_json::{Map, Value, json};
use tessera::emu::Launched;
use tessera::runtime::{KernelError, Number, Ran, Tensor, npy};

use crate::command::emulation::Opened;
use crate::command::findings::{findings, printed};
use crate::command::launch::kernel_failure;
use crate::failure::{Failure, Outcome};

/// What the emulator's launches were found to be. What is found, and whether that is all right, is the whole run's to say, of which they are a
/// part.
pub(crate) fn judged(opened: &Opened, launches: &[Launched]) -> Map<String, Value> {
    let mut data = opened.judge.json(launches);
    for key in ["findings", "passed"] {
        data.remove(key);
    }
    data
}

/// What a launch did, with what the emulator's launches printed; or how the command ends with it.
pub(crate) fn ended(
    outcome: Result<Ran, KernelError>,
    (opened, launches): (&Opened, &[Launched]),
    (data, is_json): (&Map<String, Value>, bool),
) -> Result<Ran, Outcome> {
    let printed = printed(launches);
    // What the emulator found says more than the driver's error for it.
    let found = opened.judge.explains(launches);
    match outcome {
        Err(KernelError::Device(_)) if found && is_json => {
            let verdict = opened.judge.verdict(launches);
            Err(verdict.map_err(|failure| Failure { printed, ..failure.with(&json!(data)) }))
        }
        Err(KernelError::Device(_)) if found => {
            Err(opened.judge.tell(launches).map_err(|failure| Failure { printed, ..failure }))
        }
        Err(error) => {
            let mut failure = kernel_failure(error);
            failure.printed.push_str(&printed);
            Err(Err(failure.and(findings(launches)).with(&json!(data))))
        }
        Ok(ran) => Ok(Ran { printed: ran.printed + &printed, ..ran }),
    }
}

/// A clause of how a run that was looked at went: `found` is everything that is told below it.
pub(crate) fn looked_at(checked: bool, found: usize, unlooked: &str) -> String {
    match (checked, found) {
        (false, _) => String::new(),
        (true, 0) => format!(", checked: nothing found{unlooked}"),
        (true, count) => format!(", checked: {count} found"),
    }
}

/// What kernels printed; what a program reads is data alone.
pub(crate) fn repeat(ran: &Ran, is_json: bool) {
    if is_json { eprint!("{}", ran.printed) } else { print!("{}", ran.printed) }
}

/// Arrays to be written to files, by name: what `--save` asks for.
pub(crate) struct Saves(Vec<(String, String)>);

impl Saves {
    /// Reads `NAME=FILE` of every `--save`; `known` refuses names.
    pub(crate) fn read(texts: &[String], known: impl Fn(&str) -> Outcome) -> Result<Saves, Failure> {
        let path = |text: &str| text.split_once('=').map(|(_, path)| path.to_string());
        if let Some(twice) =
            texts.iter().enumerate().find(|(at, text)| texts[..*at].iter().any(|other| path(other) == path(text)))
        {
            return Err(Failure::usage(format!("`--save {}`: the file is written twice", twice.1)));
        }
        let read = |text: &String| {
            let (name, path) = text
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("`--save {text}`\nhelp: write `--save NAME=FILE.npy`")))?;
            known(name)?;
            Ok((name.to_string(), path.to_string()))
        };
        Ok(Saves(texts.iter().map(read).collect::<Result<_, Failure>>()?))
    }

    /// Writes the files.
    pub(crate) fn write<'t>(&self, array: impl Fn(&str) -> Result<&'t Tensor, Failure>) -> Outcome {
        self.0.iter().try_for_each(|(name, path)| npy::write(path, array(name)?).map_err(Failure::environment))
    }

    /// Which files were written, for programs.
    pub(crate) fn json(&self) -> Value {
        self.0.iter().map(|(name, path)| json!({"name": name, "path": path})).collect()
    }

    /// The same for people.
    pub(crate) fn tell(&self) {
        self.0.iter().for_each(|(name, path)| println!("  wrote {name} to {path}"));
    }
}

/// Shows an array with its first few elements, as a user would want to see that something came out.
pub(crate) fn show(name: &str, tensor: &Tensor) -> Outcome {
    const SHOWN: usize = 6;
    // Floats as the shortest text of 32 bits, integers with all their digits.
    let text = |number: Number| match number {
        Number::Float(value) => format!("{}", value as f32),
        Number::Integer(value) => format!("{value}"),
    };
    let mut texts: Vec<String> = tensor.numbers(0, SHOWN).map_err(Failure::environment)?.into_iter().map(text).collect();
    if tensor.len() > SHOWN {
        texts.push("...".to_string());
    }
    println!("  {name}: {}{:?} = [{}]", tensor.dtype(), tensor.shape(), texts.join(", "));
    Ok(())
}
