//! Runs every `tests/filetests/**/*.tir` of the repository.
//!
//! The first line says what is tested: `// test parse`, `// test verify`, `// test O3`, or a list of passes such as `// test
//! constant-fold dce`, where those of Tile IR may want a target, `// test barrier-optimization @sm_90a`; `// test tile sm_80` is the way to Tile IR for a target. Errors are announced at the end of the line that they point at, `// error: [ir-shape]`, with a part
//! of the message after the bracket if it matters; a file that announces errors must have no others. What a pass gives up to make a function fit its target is announced by
//! `// note: [target-registers]`; why a pass that runs alone leaves a function as it is, by `// note: [left-as-it-is]`. What a file becomes is
//! checked by filecheck directives (`// check:`, `// nextln:`, `// not:`). After a line `// output` the directives stand for
//! the whole text: `UPDATE_EXPECT=1` writes them anew. A file of passes that expects nothing fails.
//!
//! Every file that parses is printed, parsed and printed again; both texts must be equal, and so must two printings.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use filecheck::{CheckerBuilder, NO_VARIABLES};
use libtest_mimic::{Arguments, Failed, Trial};
use tessera_compile::{OptLevel, passes};
use tessera_document::parse_module;
use tessera_ir::text::print_module;
use tessera_ir::{Diagnostic, Module, Pass, PassManager, Reason, verify};
use tessera_types::Arch;

fn main() {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        Trial::test(name, move || run(&path))
    });
    libtest_mimic::run(&args, trials.collect()).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "tir") {
            files.push(path);
        }
    }
}

enum Command {
    Parse,
    Verify,
    Passes(Vec<&'static Pass>, Option<Arch>),
}

fn command(text: &str) -> Result<Command, Failed> {
    let words = text.lines().next().and_then(|line| line.strip_prefix("// test ")).ok_or("the first line is `// test ...`")?;
    match words.trim() {
        "parse" => Ok(Command::Parse),
        "verify" => Ok(Command::Verify),
        words => {
            if let Ok(level) = words.parse::<OptLevel>() {
                return Ok(Command::Passes(level.passes(), None));
            }
            if let Some(target) = words.strip_prefix("tile ") {
                return Ok(Command::Passes(OptLevel::default().staging_passes(), Some(arch(target)?)));
            }
            let find = |name| passes::find(name).ok_or_else(|| Failed::from(format!("there is no pass `{name}`")));
            let (names, target) = words.split_once('@').map_or((words, None), |(names, target)| (names, Some(target)));
            let passes = names.split_whitespace().map(find).collect::<Result<_, _>>()?;
            Ok(Command::Passes(passes, target.map(arch).transpose()?))
        }
    }
}

fn arch(name: &str) -> Result<Arch, Failed> {
    name.trim().parse().map_err(|_| format!("there is no target `{name}`").into())
}

fn run(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let command = command(&text)?;
    let mut module = match parse_module("test.tir", &text) {
        Ok(module) => module,
        Err((module, diagnostic)) => return errors(&text, &module, &[*diagnostic]),
    };
    round_trip(&module)?;
    if matches!(command, Command::Parse) {
        errors(&text, &module, &[])?;
        return output(path, &text, &print_module(&module));
    }
    let found = verify(&module);
    if !found.is_empty() {
        return errors(&text, &module, &found);
    }
    // Ways out that cost something are announced like errors.
    let mut told: Vec<Diagnostic> = Vec::new();
    if let Command::Passes(pipeline, target) = &command {
        let mut manager = PassManager { verify_each: true, target: *target, ..PassManager::default() };
        match manager.run(&mut module, pipeline) {
            Ok(times) => {
                for run in times {
                    told.extend(run.fallbacks.into_iter().filter(|found| found.cost > 0).map(|found| found.note));
                    // A pass on its own says why it leaves a function as it is.
                    told.extend(run.refusals.into_iter().filter(|_| pipeline.len() == 1).map(refusal));
                }
            }
            Err(failure) if failure.broke_module => {
                let shown: Vec<String> = failure.diagnostics.iter().map(|d| d.render(&module.sources, false)).collect();
                let text = print_module(&module);
                return Err(format!("`{}` broke the module\n{}\n{text}", failure.pass, shown.join("\n")).into());
            }
            Err(failure) => return errors(&text, &module, &failure.diagnostics),
        }
        round_trip(&module)?;
    }
    errors(&text, &module, &told)?;
    let expects = EXPECTATIONS.iter().any(|word| text.contains(word));
    if matches!(command, Command::Passes(..)) && told.is_empty() && !expects {
        return Err("nothing is expected of what the passes make: the test cannot fail; end it with a line `// output`".into());
    }
    output(path, &text, &print_module(&module))
}

/// What a file says of its result.
const EXPECTATIONS: [&str; 3] = ["// check:", "// not:", OUTPUT];
/// Behind it stands the whole text.
const OUTPUT: &str = "// output\n";

fn refusal(reason: Reason) -> Diagnostic {
    match reason.span {
        Some(span) => Diagnostic::error("left-as-it-is", span, reason.text),
        None => Diagnostic::bare("left-as-it-is", reason.text.into_owned()),
    }
}

fn round_trip(module: &Module) -> Result<(), Failed> {
    let printed = print_module(module);
    if printed != print_module(module) {
        return Err("printing twice gives two texts".into());
    }
    let again = parse_module("again.tir", &printed)
        .map_err(|(module, diagnostic)| format!("{}\n{printed}", diagnostic.render(&module.sources, false)))?;
    if print_module(&again) != printed {
        return Err(format!("the text changes when it is read:\n{printed}\n{}", print_module(&again)).into());
    }
    Ok(())
}

/// Compares diagnostics with what the lines announce.
fn errors(text: &str, module: &Module, found: &[Diagnostic]) -> Result<(), Failed> {
    let mut left: Vec<(usize, &str, &str)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let announced = line.split_once("// error: [").or_else(|| line.split_once("// note: ["));
        if let Some((id, message)) = announced.and_then(|(_, rest)| rest.split_once(']')) {
            left.push((number + 1, id, message.trim()));
        }
    }
    let mut wrong = String::new();
    for diagnostic in found {
        let place = |span: tessera_ir::Span| module.sources.get(span.source).line_column(span.start).0;
        let line = diagnostic.primary.as_ref().map_or(1, |label| place(label.span));
        let announced =
            |&(at, id, message): &(usize, &str, &str)| at == line && id == diagnostic.id && diagnostic.message.contains(message);
        match left.iter().position(announced) {
            Some(position) => {
                left.remove(position);
            }
            None => {
                let _ = writeln!(wrong, "not announced: {}", diagnostic.render_line(&module.sources));
            }
        }
    }
    for (line, id, message) in left {
        let _ = writeln!(wrong, "line {line}: no error [{id}] {message}");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

fn output(path: &Path, text: &str, printed: &str) -> Result<(), Failed> {
    if std::env::var_os("UPDATE_EXPECT").is_some()
        && let Some((head, _)) = text.split_once(OUTPUT)
    {
        let mut blessed = format!("{head}{OUTPUT}");
        for (i, line) in printed.lines().filter(|line| !line.trim().is_empty()).enumerate() {
            let _ = writeln!(blessed, "// {}: {}", if i == 0 { "check" } else { "nextln" }, line.replace('$', "$$"));
        }
        std::fs::write(path, blessed)?;
        return Ok(());
    }
    let mut builder = CheckerBuilder::new();
    for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
        builder.directive(line).map_err(|error| Failed::from(error.to_string()))?;
    }
    let compact: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    if text.ends_with(OUTPUT) {
        return Err("nothing stands behind `// output`: write it with `UPDATE_EXPECT=1`".into());
    }
    let checked = builder.finish().explain(&compact.join("\n"), NO_VARIABLES);
    let (matches, explanation) = checked.map_err(|error| Failed::from(error.to_string()))?;
    if matches { Ok(()) } else { Err(format!("{explanation}\n{printed}").into()) }
}
