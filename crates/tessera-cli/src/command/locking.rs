//! The lockfile of tuned choices on the command line: which one it is, and what is said where it has no choice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tessera::ops::find;
use tessera::runtime::lock::Key;
use tessera::runtime::{Kernel, Lock, Tuned};

use crate::arguments::Locking;
use crate::command::launch::kernel_failure;
use crate::failure::Failure;
use crate::invocation::given;

/// The lockfile where nobody names one.
const DEFAULT: &str = "tessera.lock";

/// The lockfile that a command writes: the named one, the kernel's own, or `tessera.lock`.
pub(crate) fn path(named: Option<&str>, kernel: Option<&Kernel>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(PathBuf::from(named));
    }
    let own = kernel.map(Kernel::cache).transpose().map_err(kernel_failure)?.flatten();
    Ok(own.unwrap_or_else(|| PathBuf::from(DEFAULT)))
}

/// The lockfile that a command reads. One that nobody named may be missing, unless it is frozen.
pub(crate) fn read(locking: &Locking, kernel: Option<&Kernel>) -> Result<Option<Arc<Lock>>, Failure> {
    let path = path(locking.lock.as_deref(), kernel)?;
    if !path.exists() {
        match &locking.lock {
            Some(named) if !locking.frozen => {
                let help = "`tessera tune` writes one";
                return Err(Failure::environment(format!("there is no lockfile `{named}`\nhelp: {help}")));
            }
            None if !locking.frozen => return Ok(None),
            _ => {}
        }
    }
    let lock = Lock::read(&path).map_err(kernel_failure)?;
    Ok(Some(Arc::new(if locking.frozen { lock.frozen() } else { lock })))
}

/// The kernel, with the choices of the command line's lockfile.
pub(crate) fn locked(kernel: Kernel, locking: &Locking) -> Result<Kernel, Failure> {
    Ok(match read(locking, Some(&kernel))? {
        Some(lock) => kernel.with_lock(lock),
        None => kernel,
    })
}

/// What is said of a launch with a tuned choice: `BLOCK_M=64 from tessera.lock`.
pub(crate) fn told(tuned: &Tuned) -> String {
    format!("{} from {}", tuned.entry.summary(), tuned.path.display())
}

/// The same for a program.
pub(crate) fn tuned_json(tuned: &Tuned) -> Json {
    let Tuned { path, entry } = tuned;
    json!({ "lock": path, "config": entry.config, "plan": entry.plan, "order": entry.order })
}

/// What is said where a frozen lockfile has no choice.
pub(crate) fn untuned(lock: &str, key: &Key) -> Failure {
    let how = match given().texts().next().as_deref() {
        // These name types, and nothing that could be measured.
        Some("compile" | "bundle") => "`tessera tune` with arrays of these sizes, on a device of that target,".to_string(),
        // An operator is tuned for sizes and a precision, which its arrays say here.
        Some("run") if given().texts().nth(1).is_some_and(|subject| find(&subject).is_some()) => {
            "`tessera tune` of the operator with `--sizes` and `--precision` like these arrays, on this device,".to_string()
        }
        _ => format!("`{}`", tune_command(given().texts(), Path::new(lock))),
    };
    let help = format!("{how} makes one; without `--frozen` the compiler chooses");
    let looked = format!("looked for: ir {}, shape {}, device {}, toolchain {}", key.ir, key.shape, key.device, key.toolchain);
    Failure::usage(format!("`{lock}` has no choice for {key}\n{looked}\nhelp: {help}"))
}

/// Options that mean the same to `tune`, each with a value.
const KEPT: [&str; 8] = ["--grid", "--device", "--target", "--sizes", "--precision", "--path", "--rtol", "--atol"];
/// Options of commands that stand alone.
const ALONE: [&str; 6] = ["--frozen", "--json", "--keep-going", "--unwatched", "--tethered", "--serve"];

/// The `tune` that makes what another command line looks for.
fn tune_command(arguments: impl Iterator<Item = String>, lock: &Path) -> String {
    let mut words = vec!["tessera".to_string(), "tune".to_string()];
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        let (name, has_value) = match argument.split_once('=') {
            Some((name, _)) if name.starts_with("--") => (name, true),
            _ => (argument.as_str(), false),
        };
        let takes_more = name.starts_with('-') && !has_value && !ALONE.contains(&name) && !name.starts_with("-O");
        let more = if takes_more { arguments.next() } else { None };
        if !name.starts_with('-') || KEPT.contains(&name) {
            words.extend(std::iter::once(argument).chain(more));
        }
    }
    if lock != Path::new(DEFAULT) {
        words.extend(["--lock".to_string(), lock.display().to_string()]);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::tune_command;

    #[test]
    fn the_command_that_makes_an_entry_has_what_the_other_one_had() {
        let made = |line: &str, lock: &str| tune_command(line.split(' ').map(str::to_string), Path::new(lock));
        assert_eq!(
            made("run k.py::k x=f32[4] --frozen --device cpu --save x=x.npy -O2 --grid=4", "tessera.lock"),
            "tessera tune k.py::k x=f32[4] --device cpu --grid=4"
        );
        assert_eq!(
            made("bench gemm --sizes m=8 --frozen --mode ci --precision fp32", "a/b.lock"),
            "tessera tune gemm --sizes m=8 --precision fp32 --lock a/b.lock"
        );
    }
}
