//! What `bench` and the sides of `compare --run` measure: operators of the library, or kernels with their arguments.

use tessera::bench::{Against, KernelCase, KernelSuite, KernelSuiteError, Library, OtherKernel, Sizes, Suite, one_way_alone};
use tessera::runtime::{Device, Kernel, LaunchGrid};
use tessera::types::TimeLimit;

use crate::arguments::Bench;
use crate::command::bench::asked;
use crate::command::check_kernel::{Against as Named, named};
use crate::command::extents::Extents;
use crate::command::launch::{compile_options, grid, kernel, kernel_failure, parse};
use crate::command::locking;
use crate::command::sizes::{given, refuse_nought};
use crate::command::tolerance;
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
    let given = [
        ("--against", !arguments.reference.against.is_empty()),
        ("--against-grid", arguments.reference.against_grid.is_some()),
        ("--rtol", arguments.reference.rtol.is_some()),
        ("--atol", arguments.reference.atol.is_some()),
        ("--baseline-grid", arguments.baseline_grid.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        let help = "operators are judged by their f64 references; `tessera check` takes other bounds";
        return Err(Failure::usage(format!("`{name}` is for a kernel, `FILE::KERNEL`\nhelp: {help}")));
    }
    let (options, selection) = asked(arguments)?;
    let lock = locking::read(&arguments.optimise.locking, None)?;
    let mut library = Library::select(&selection, options, device).map_err(Failure::usage)?.with_lock(lock);
    let without = library.add_ways(arguments.ways);
    if arguments.rungs {
        library.add_rungs();
    }
    // On a chip it is told where it is measured.
    if !library.has_time() {
        one_way_alone(&without).iter().for_each(|line| eprintln!("note: {line}"));
    }
    Ok(Box::new(library))
}

/// The kernels of `FILE::KERNEL` or `FILE::KERNEL,KERNEL`, all on arguments of the same texts, for each combination of sizes.
pub(crate) fn kernels(arguments: &Bench, device: Device) -> Result<KernelSuite, Failure> {
    let given = [
        ("--precision", !arguments.precision.is_empty()),
        ("--cublaslt", arguments.cublaslt.is_some()),
        ("--ways", arguments.ways > 0),
        ("--rungs", arguments.rungs),
        ("--timed", arguments.timed.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("`{name}` is for operators; a kernel's arguments say what it works on")));
    }
    let [subject, texts @ ..] = arguments.subjects.as_slice() else { return Err(Failure::usage("no kernel is named")) };
    let (file, names) = subject.rsplit_once("::").unwrap_or((subject, ""));
    let mut own: Vec<Kernel> = Vec::new();
    for name in names.split(',') {
        if own.iter().any(|kernel| kernel.name() == name) {
            return Err(Failure::usage(format!("the kernel `{name}` is named twice")));
        }
        own.push(locking::locked(kernel(&format!("{file}::{name}"))?, &arguments.optimise.locking)?);
    }
    let tolerance = tolerance::asked([arguments.reference.rtol, arguments.reference.atol])?;
    let others = Others::read(arguments, own.len())?;
    let grids = [&arguments.grid, &arguments.reference.against_grid, &arguments.baseline_grid];
    let rows = combinations(arguments.sizes.as_deref(), texts, &grids)?;
    let mut cases: Vec<KernelCase> = Vec::new();
    for ((at, own), row) in own.iter().enumerate().flat_map(|own| rows.iter().map(move |row| (own, row))) {
        let filled = texts.iter().map(|text| row.argument(text)).collect::<Result<Vec<_>, _>>()?;
        let blocks = |text: &Option<String>| -> Result<LaunchGrid, Failure> {
            grid(text.as_deref().map(|text| row.grid(text)).transpose()?.as_deref())
        };
        let grid = blocks(&arguments.grid)?;
        let other_grid = |text: &Option<String>| if text.is_some() { blocks(text) } else { Ok(grid) };
        let (against, baselines) =
            others.of(at, other_grid(&arguments.reference.against_grid)?, other_grid(&arguments.baseline_grid)?);
        cases.push(KernelCase {
            kernel: own.clone(),
            arguments: parse(&filled)?,
            texts: filled,
            sizes: row.named().to_vec(),
            grid,
            options: compile_options(&arguments.optimise, arguments.block)?,
            against,
            tolerance,
            baselines,
            // Whoever watches the process that measures ends it.
            limit: TimeLimit::NONE,
        });
    }
    KernelSuite::new(cases, device).map_err(|error| match error {
        KernelSuiteError::Kernel(error) => kernel_failure(error),
        error @ KernelSuiteError::Argument(..) => Failure::environment(error),
        error @ KernelSuiteError::Unrelated { .. } => {
            Failure::usage(format!("{error}\nhelp: arguments go to every kernel by name, and results are compared by name"))
        }
    })
}

/// The sizes of each row: one without names where `--sizes` is absent.
pub(crate) fn combinations(sizes: Option<&str>, texts: &[String], grids: &[&Option<String>]) -> Result<Vec<Extents>, Failure> {
    let Some(text) = sizes else { return Ok(vec![Extents::default()]) };
    let given = given(text, &[])?;
    let mut rows = Vec::new();
    for shapes in &given {
        if shapes.variant.is_some() {
            let help = "name sizes that the arguments are written with: `x=randn:f32[m] --sizes m=1024`";
            return Err(Failure::usage(format!("`--sizes {text}`: a kernel has no variants\nhelp: {help}")));
        }
        rows.extend(Extents::combinations(&shapes.extents)?);
    }
    refuse_nought(&Sizes::Given(given))?;
    let all: Vec<&str> = texts.iter().chain(grids.iter().copied().flatten()).map(String::as_str).collect();
    match rows.iter().find_map(|row| row.unused(&all)) {
        Some(name) => Err(Failure::usage(format!(
            "no argument is written with `{name}` of `--sizes {text}`\nhelp: name it in an array's sizes, such as `x=randn:f32[{name}]`"
        ))),
        None => Ok(rows),
    }
}

/// References and baselines of the command line, which are the same in every row but for their grids.
struct Others {
    /// Those of all kernels, or of the one at a position.
    against: Vec<(Option<usize>, Against)>,
    baselines: Vec<OtherKernel>,
}

impl Others {
    fn read(arguments: &Bench, kernels: usize) -> Result<Others, Failure> {
        let other = |name: &String, kernel| OtherKernel { name: name.clone(), kernel, grid: LaunchGrid::Auto };
        let against = |text: &String| match named(text)? {
            Named::Kernel(name, kernel) => Ok(Against::Kernel(name, other(text, kernel))),
            Named::File(name, tensor) => Ok(Against::Array(name, tensor)),
            Named::Device(_) => {
                let help = "`tessera check --against` compares devices; here, name a file or a kernel";
                Err(Failure::usage(format!("`--against {text}`: times are of one device\nhelp: {help}")))
            }
        };
        // `FILE::K,K` has a kernel for each of those that are measured; an empty name has none.
        let each = |text: &String| -> Result<Vec<(Option<usize>, Against)>, Failure> {
            let (file, names) = match text.rsplit_once("::") {
                Some((file, names)) if names.contains(',') => (file, names.split(',').collect::<Vec<_>>()),
                _ => return Ok(vec![(None, against(text)?)]),
            };
            if names.len() != kernels {
                let help = "name one for all, or one for each";
                return Err(Failure::usage(format!(
                    "`--against {text}` has {} kernels for {kernels}\nhelp: {help}",
                    names.len()
                )));
            }
            let named = names.iter().enumerate().filter(|(_, name)| !name.is_empty());
            named.map(|(at, name)| Ok((Some(at), against(&format!("{file}::{name}"))?))).collect()
        };
        let against = arguments.reference.against.iter().map(each).collect::<Result<Vec<_>, _>>()?.concat();
        let mut baselines: Vec<OtherKernel> = Vec::new();
        for text in &arguments.baseline {
            if !text.contains("::") {
                let help = "beside a kernel stands another one, `FILE::KERNEL`";
                return Err(Failure::usage(format!("`--baseline {text}` is no kernel\nhelp: {help}")));
            }
            if baselines.iter().any(|known| known.name == *text) {
                return Err(Failure::usage(format!("the baseline `{text}` is named twice")));
            }
            baselines.push(other(text, kernel(text)?));
        }
        let has_kernel = against.iter().any(|(_, against)| matches!(against, Against::Kernel(..)));
        let idle = [
            ("--against-grid", arguments.reference.against_grid.is_some() && !has_kernel, "--against"),
            ("--baseline-grid", arguments.baseline_grid.is_some() && baselines.is_empty(), "--baseline"),
        ];
        match idle.into_iter().find(|(_, idle, _)| *idle) {
            Some((option, _, of)) => {
                Err(Failure::usage(format!("`{option}` is for another kernel\nhelp: add `{of} FILE::KERNEL`")))
            }
            None => Ok(Others { against, baselines }),
        }
    }

    fn of(&self, at: usize, against_grid: LaunchGrid, baseline_grid: LaunchGrid) -> (Vec<Against>, Vec<OtherKernel>) {
        let with = |other: &OtherKernel, grid| OtherKernel { grid, ..other.clone() };
        let own = self.against.iter().filter(|(only, _)| only.is_none_or(|only| only == at));
        let against = own.map(|(_, against)| match against {
            Against::Kernel(name, other) => Against::Kernel(name.clone(), with(other, against_grid)),
            array @ Against::Array(..) => array.clone(),
        });
        (against.collect(), self.baselines.iter().map(|other| with(other, baseline_grid)).collect())
    }
}
