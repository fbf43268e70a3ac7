//! Elements of `empty` arrays that no block wrote: a mistake where a launch is checked, a warning elsewhere.
//!
//! Where nobody counted, poison tells: a launch whose results show the poison they were made with is done once more, on the same
//! arguments and another poison. An element that shows both was not written; one that a kernel gave the value of a poison shows one.

use tessera::ir::{Diagnostic, Severity, Span};
use tessera::runtime::{Device, Kernel, KernelError, LaunchGrid, LaunchOptions, PreparedLaunch, Ran, Unwritten, captured};

use crate::command::launch::{Made, other_poison};
use crate::failure::Failure;

/// Runs a launch; what it printed is in the result, on every device.
pub(crate) fn run(launch: &PreparedLaunch, options: &LaunchOptions) -> Result<Result<Ran, KernelError>, Failure> {
    if launch.on_device().is_none() {
        return Ok(launch.run_counted(options));
    }
    let mut file = tempfile::tempfile().map_err(Failure::environment)?;
    let (ran, printed) = captured(&mut file, || launch.run_counted(options)).map_err(Failure::environment)?;
    Ok(ran.map(|ran| Ran { printed: ran.printed + &printed, ..ran }))
}

/// What became of memory that held nothing.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Elements that no block wrote.
    pub(crate) unwritten: Vec<Unwritten>,
    /// Whether somebody counted them. Poison shows where an element was made of itself, too.
    is_counted: bool,
    /// Elements that were made of what was in memory before.
    dependent: Vec<Unwritten>,
}

/// What a launch whose results lie on the CPU left: as it was counted, else by poison. `again` does the launch once more on arguments
/// of the same kind and yields them: with another poison when it is told so, else with the same. Unless the launch is checked, that is
/// done only where a poison shows.
pub(crate) fn left(
    (counted, checked): (Option<Vec<Unwritten>>, bool),
    (empty, written): (&[String], &[String]),
    results: &Made,
    again: impl Fn(bool) -> Result<Made, Failure>,
) -> Result<Left, Failure> {
    if let Some(unwritten) = counted {
        return Ok(Left { unwritten, is_counted: true, dependent: Vec::new() });
    }
    let mut is_suspect = checked;
    for name in empty.iter().chain(written) {
        is_suspect |= results.tensor(name)?.shows_poison(0).map_err(Failure::environment)?;
    }
    if !is_suspect || empty.is_empty() {
        return Ok(Left::default());
    }
    let other = again(true)?.on(&Device::Cpu)?;
    let kinds = |name: &String| empty.iter().position(|own| own == name).map(|position| (0, other_poison(position)));
    let mut left = Left::default();
    for name in empty {
        let (one, two) = (results.tensor(name)?, other.tensor(name)?);
        let kinds = kinds(name).unwrap_or_default();
        left.unwritten.extend(Unwritten::by_poison(name, (one, kinds.0), (two, kinds.1)).map_err(Failure::environment)?);
    }
    for name in written {
        let found = Unwritten::dependent(name, results.tensor(name)?, other.tensor(name)?, kinds(name));
        left.dependent.extend(found.map_err(Failure::environment)?);
    }
    if !left.dependent.is_empty() {
        // A kernel whose results depend on the order of its blocks says nothing of memory.
        let same = again(false)?.on(&Device::Cpu)?;
        let mut is_repeatable = true;
        for Unwritten { name, .. } in &left.dependent {
            is_repeatable &= results.tensor(name)?.same_bits(same.tensor(name)?).map_err(Failure::environment)?;
        }
        if !is_repeatable {
            left.dependent.clear();
        }
    }
    Ok(left)
}

/// A launch, as far as it says something about what it left.
pub(crate) struct Launch<'a> {
    /// Where the kernel's text names its parameters; nothing is known of a kernel that was compiled beforehand.
    pub(crate) parameters: Vec<(&'a str, Span)>,
    /// Names of what the kernel has stores to, lists' items with their numbers or without.
    pub(crate) written: Vec<&'a str>,
    /// The same of what it may read.
    pub(crate) read: Vec<&'a str>,
    /// Blocks, where it is one launch.
    pub(crate) grid: Option<[u32; 3]>,
    /// The grid of the command line.
    pub(crate) asked: LaunchGrid,
}

impl<'a> Launch<'a> {
    pub(crate) fn of(kernel: &'a Kernel, launch: &'a PreparedLaunch, asked: LaunchGrid) -> Launch<'a> {
        let (written, read) = (launch.written().collect(), launch.read().collect());
        Launch { parameters: kernel.parameters(), written, read, grid: Some(launch.grid()), asked }
    }
}

/// What is said of it, at the parameter's place.
pub(crate) fn diagnostics(left: &Left, severity: Severity, launch: &Launch<'_>) -> Vec<Diagnostic> {
    let place = |name: &str, id: &'static str, message: String| {
        let own = name.split('[').next().unwrap_or(name);
        match launch.parameters.iter().find(|(parameter, _)| *parameter == own) {
            Some((_, span)) => Diagnostic::error(id, *span, message),
            None => Diagnostic::bare(id, message),
        }
    };
    let dependent = left.dependent.iter().map(|Unwritten { name, count, elements, index }| {
        let message = format!(
            "{count} of {elements} elements of `{name}` depend on what was in memory before, the first is {name}{index:?}"
        );
        let diagnostic = place(name, "depends-on-nothing", message);
        diagnostic.help("`--sanitize all --device cpu` shows where an array that was given as `empty` is read").severity(severity)
    });
    let told = left.unwritten.iter().map(|Unwritten { name, count, elements, index }| {
        let own = name.split('[').next().unwrap_or(name);
        let is_among = |names: &[&str]| names.iter().any(|other| *other == own || *other == name);
        let has_store = is_among(&launch.written);
        let may_be_itself = !left.is_counted && has_store && is_among(&launch.read);
        let message = match count == elements {
            _ if may_be_itself => format!(
                "{count} of {elements} elements of `{name}` show what was in memory before, the first is {name}{index:?}: they were not written, or \
                 made of it"
            ),
            true if !has_store => format!("`{name}` was given as `empty`, and the kernel has no store to `{own}`"),
            true => format!("no element of `{name}` was written, of {elements}"),
            false => format!("{count} of {elements} elements of `{name}` were not written, the first is {name}{index:?}"),
        };
        let mut diagnostic = place(name, "unwritten", message);
        if let Some([x, y, z]) = launch.grid {
            let blocks = u64::from(x) * u64::from(y) * u64::from(z);
            let ran = format!("{blocks} block{} ran: {x} x {y} x {z}", if blocks == 1 { "" } else { "s" });
            diagnostic = if diagnostic.primary.is_some() { diagnostic.label(ran) } else { diagnostic.note(ran) };
        }
        let contents = format!("`{own}=zeros:...` or `{own}=@FILE.npy`");
        if !has_store {
            return diagnostic.help(format!("give what is only read contents: {contents}")).severity(severity);
        }
        if let LaunchGrid::Blocks(_) = launch.asked {
            diagnostic = diagnostic.help("`--grid` may be too small for the array, or the tiles of a block");
        }
        diagnostic.help(format!("where only a part is to be written, give the array contents: {contents}")).severity(severity)
    });
    told.chain(dependent).collect()
}
