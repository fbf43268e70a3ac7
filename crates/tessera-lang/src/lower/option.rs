//! Options of a block program: those of its decorator, and over them those that the caller chooses by name.

use tessera_ir::{Diagnostic, FuncHints};
use tessera_types::DType;
use tessera_types::room::MOST_CLUSTERS;

use super::{Lowerer, Res};
use crate::diagnostics::id;
use crate::file::Kernel;
use crate::number::Num;
use crate::style::{decorator_args, decorator_path};
use crate::tuning::{Point, choose};
use crate::value::Val;

/// An option: its name, and the least and the greatest value.
const OPTIONS: [(&str, u32, u32); 8] = [
    ("num_ctas", 1, 16),
    ("num_clusters", 1, MOST_CLUSTERS),
    ("occupancy", 1, 32),
    ("opt_level", 0, 3),
    ("num_worker_warps", 1, 32),
    ("num_warps", 1, 32),
    ("num_stages", 1, 16),
    ("sharing", 0, 4),
];

/// Options that are powers of two.
const POWERS: [&str; 2] = ["num_ctas", "num_worker_warps"];

/// The names of the options of block programs, which a decorator or a caller gives.
pub fn kernel_options() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|&(name, ..)| name)
}

/// Whether an option of block programs may have a value.
pub fn kernel_option_takes(name: &str, value: u32) -> bool {
    in_range(name, Some(value.into())).and_then(|value| as_power(name, value)).is_ok()
}

/// The value of an option within its range, or what it must be.
fn in_range(name: &str, value: Option<i128>) -> Result<u32, String> {
    let range = OPTIONS.iter().find(|option| option.0 == name).map(|&(_, least, greatest)| least..=greatest);
    let Some(range) = range else { return Err(format!("there is no kernel option `{name}`")) };
    let value = value.and_then(|value| u32::try_from(value).ok()).filter(|value| range.contains(value));
    value.ok_or_else(|| format!("`{name}` must be an integer from {} to {}", range.start(), range.end()))
}

/// The value, or that it must be a power of two.
fn as_power(name: &str, value: u32) -> Result<u32, String> {
    if POWERS.contains(&name) && !value.is_power_of_two() {
        return Err(format!("`{name}` must be a power of two, not {value}"));
    }
    Ok(value)
}

impl Lowerer<'_> {
    /// What the caller chooses, and the rest of a point of the kernel's space where it has one.
    fn chosen_options(&self, kernel: &Kernel) -> Res<Point> {
        let Some(space) = kernel.space(self.file)? else { return Ok(self.options.config.clone()) };
        if let Some(name) = space.choices.keys().find(|name| kernel_options().all(|option| option != name.as_str())) {
            let names: Vec<String> = kernel_options().map(|option| format!("`{option}`")).collect();
            let message = format!("`{name}` is no choice of a block program");
            return Err(Box::new(
                Diagnostic::error(id::TUNING, kernel.function.name.span, message)
                    .note("its tiles are what its source says")
                    .help(format!("choices: {}", names.join(", "))),
            ));
        }
        choose(self.file, kernel, DType::F32, self.options)
    }

    /// Reads the decorator's options, then the caller's.
    pub(super) fn hints(&mut self, kernel: &Kernel) -> Res<()> {
        let mut hints = FuncHints::default();
        for decorator in &kernel.function.decorators {
            if !decorator_path(self.file, decorator, kernel.at).is_some_and(|path| path.ends_with(".kernel")) {
                continue;
            }
            for arg in decorator_args(decorator) {
                let Some(name) = &arg.keyword else {
                    return Err(Box::new(
                        Diagnostic::error(id::KERNEL_OPTION, arg.value.span, "kernel options are given by keyword")
                            .help("write `@ct.kernel(occupancy=2)`"),
                    ));
                };
                if kernel_options().all(|option| option != name.name) {
                    let names: Vec<String> = kernel_options().map(|option| format!("`{option}`")).collect();
                    return Err(Box::new(
                        Diagnostic::error(id::KERNEL_OPTION, name.span, format!("there is no kernel option `{}`", name.name))
                            .help(format!("options: {}", names.join(", "))),
                    ));
                }
                let given = self.at_module(kernel.at, |lowerer| lowerer.option_value(&arg.value))?;
                let value = match given {
                    Val::None => continue,
                    Val::Num(Num::Int(value)) => Some(value),
                    _ => None,
                };
                let error = |message| Diagnostic::error(id::KERNEL_OPTION, arg.value.span, message);
                let value = in_range(&name.name, value)
                    .map_err(|message| Box::new(error(message).label(format!("this is {}", given.describe()))))?;
                hints.set(&name.name, as_power(&name.name, value).map_err(|message| Box::new(error(message)))?);
            }
        }
        let chosen = self.chosen_options(kernel)?;
        for (name, &value) in &chosen {
            // What is no option the driver refuses, with all that there are.
            if kernel_options().any(|option| option == name) {
                let wrong = |message| Box::new(Diagnostic::error(id::CONFIG, kernel.function.name.span, message));
                let value = in_range(name, Some(value.into())).and_then(|value| as_power(name, value));
                hints.set(name, value.map_err(wrong)?);
            }
        }
        self.func.hints = hints;
        Ok(())
    }
}
