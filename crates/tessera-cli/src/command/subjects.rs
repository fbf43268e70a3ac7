//! What `bench` and the sides of `compare --run` measure: operators of the library, or kernels with their arguments.

use tessera::bench::{KernelCase, KernelSuite, Library, Suite};
use tessera::runtime::Device;

use crate::arguments::Bench;
use crate::command::bench::asked;
use crate::command::launch::{Subject, compile_options, grid, kernel_failure};
use crate::failure::Failure;

/// Whether the subjects are a kernel and its arguments.
pub(crate) fn is_kernel(subjects: &[String]) -> bool {
    subjects.first().is_some_and(|subject| subject.contains("::"))
}

/// The suite that a command line names, on the CPU or, without baselines, on a device.
pub(crate) fn suite(arguments: &Bench, device: Device) -> Result<Box<dyn Suite>, Failure> {
    if is_kernel(&arguments.subjects) {
        return Ok(Box::new(kernels(arguments, device)?));
    }
    if arguments.grid.is_some() || arguments.block.is_some() {
        return Err(Failure::usage("`--grid` and `--block` are for a kernel, `FILE::KERNEL`; operators have their own"));
    }
    let (options, selection) = asked(arguments)?;
    Ok(Box::new(Library::select(&selection, options, device).map_err(Failure::usage)?))
}

/// The kernels of `FILE::KERNEL` or `FILE::KERNEL,KERNEL`, all on arguments of the same texts.
pub(crate) fn kernels(arguments: &Bench, device: Device) -> Result<KernelSuite, Failure> {
    let given = [
        ("--precision", !arguments.precision.is_empty()),
        ("--sizes", arguments.sizes.is_some()),
        ("--baseline", !arguments.baseline.is_empty()),
        ("--cublaslt", arguments.cublaslt.is_some()),
        ("--timed", arguments.timed.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("`{name}` is for operators; a kernel's arguments say what it works on")));
    }
    let [subject, texts @ ..] = arguments.subjects.as_slice() else { return Err(Failure::usage("no kernel is named")) };
    let (file, names) = subject.rsplit_once("::").unwrap_or((subject, ""));
    let mut kernels: Vec<KernelCase> = Vec::new();
    for name in names.split(',') {
        if kernels.iter().any(|case| case.kernel.name() == name) {
            return Err(Failure::usage(format!("the kernel `{name}` is named twice")));
        }
        let subject = Subject::read(&format!("{file}::{name}"), texts)?;
        kernels.push(KernelCase {
            options: compile_options(&arguments.optimise, arguments.block)?,
            grid: grid(arguments.grid.as_deref())?,
            kernel: subject.kernel,
            arguments: subject.arguments,
            texts: texts.to_vec(),
        });
    }
    KernelSuite::new(kernels, device).map_err(kernel_failure)
}
