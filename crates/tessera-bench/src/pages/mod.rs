//! The book's pages on operators, made from what the operators declare and from what was measured: `docs/operators/`.

mod exact;
mod measured;

use std::fmt::Write;

use tessera_ops::{Machine, OPERATORS, Operator, Plan};
use tessera_types::{Arch, Policy};

pub use measured::Measured;

/// The page of an operator, as Markdown.
pub fn page(operator: &Operator, measured: &Measured) -> String {
    let mut page = format!("# {}\n\n{}.\n", operator.name, capitalised(operator.about));
    section(&mut page, "What it computes", &mathematics(operator));
    section(&mut page, "How it is called", &calls(operator));
    section(&mut page, "What it takes", &taken(operator));
    section(&mut page, "The work", &work(operator));
    section(&mut page, "How exact it is", &exact::table(operator));
    section(&mut page, "How fast it is", &measured.speeds(operator));
    section(&mut page, "The ladder", &ladder(operator, measured));
    page
}

/// The page that lists all of them.
pub fn index() -> String {
    let mut page =
        "# The operators\n\nMade from the operators' declarations: `cargo xtask bless pages` writes these pages anew.\n\n"
            .to_string();
    page.push_str("| operator | what | directions | precisions |\n|---|---|---|---|\n");
    for operator in OPERATORS {
        let precisions = operator.precisions.iter().chain(operator.further_precisions).copied().collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            page,
            "| [`{0}`]({0}.md) | {1} | {2} | {3} |",
            operator.name,
            cell(operator.about),
            directions(operator),
            precisions
        );
    }
    page
}

/// `forward`, `backward`, or both where another operator gives the gradient.
pub fn directions(operator: &Operator) -> &'static str {
    match (operator.gradient_of().is_some(), operator.gradient) {
        (true, _) => "backward",
        (false, Some(_)) => "forward, backward",
        (false, None) => "forward",
    }
}

fn section(page: &mut String, title: &str, text: &str) {
    if !text.is_empty() {
        let _ = write!(page, "\n## {title}\n{}\n", text.trim_end());
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The head of the kernels' file.
fn mathematics(operator: &Operator) -> String {
    let text = operator.source.split("\"\"\"").nth(1).expect("a file of kernels begins with what it computes");
    format!("From the head of `{}`:\n\n```text\n{}\n```\n", operator.file, text.trim())
}

fn calls(operator: &Operator) -> String {
    let mut text = "| variant | reads | gives | numbers |\n|---|---|---|---|\n".to_string();
    for variant in operator.calls.variants {
        let (_, signature) = operator.signature(Some(variant)).expect("a variant of its own");
        let list = |operands: &[tessera_ops::Operand]| operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let numbers = signature.scalars.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let name = if variant.is_empty() { String::new() } else { format!("`{variant}`") };
        let _ = writeln!(text, "| {name} | {} | {} | {numbers} |", list(signature.inputs), list(signature.outputs));
    }
    text.push_str("\n`..rows` stands for any number of axes. On the command line: ");
    let (variant, signature) = operator.signature(operator.calls.variants.first().copied()).expect("a variant of its own");
    let inputs = signature.inputs.iter().map(|operand| format!(" {0}=@{0}.npy", operand.name())).collect::<String>();
    let goes_without_saying = variant.is_empty() || operator.calls.default == Some(variant);
    let variant = if goes_without_saying { String::new() } else { format!(" variant={variant}") };
    let _ = writeln!(text, "`tessera run {}{variant}{inputs}`.", operator.name);
    text
}

fn taken(operator: &Operator) -> String {
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = format!("Precisions: {}", list(operator.precisions));
    if !operator.further_precisions.is_empty() {
        let _ = write!(text, "; beyond the suite {}", list(operator.further_precisions));
    }
    let _ = writeln!(text, ". Directions: {}.", directions(operator));
    let _ = match operator.no_specials {
        None => {
            writeln!(text, "\nNaN and infinities among its inputs: `tessera check` holds what becomes of them to the reference.")
        }
        Some(why) => writeln!(text, "\nNaN and infinities among its inputs are not checked: {why}."),
    };
    if let Some(gradient) = operator.gradient {
        let _ = writeln!(text, "\nIts gradient is [`{0}`]({0}.md).", gradient.name);
    }
    if let Some(own) = operator.gradient_of() {
        let _ = writeln!(text, "\nIt is the gradient of [`{0}`]({0}.md).", own.name);
    }
    text
}

/// The first quick problem's plan on a GPU, with what it is called.
fn example(operator: &Operator) -> Option<(String, Plan)> {
    let (problem, precision) = (operator.quick)().into_iter().next()?;
    let policy: Policy = precision.parse().ok()?;
    let plan = operator.plan(&problem, policy, Machine::Gpu(Arch::Sm90a)).ok()?;
    Some((format!("`{problem}` in `{policy}`"), plan))
}

fn work(operator: &Operator) -> String {
    let Some((name, plan)) = example(operator) else { return String::new() };
    let work = &plan.work;
    let shapes: Vec<String> = (plan.tensors.iter())
        .filter(|tensor| !matches!(tensor.role, tessera_ops::Role::Workspace | tessera_ops::Role::Counter))
        .map(|tensor| format!("`{}: {}{:?}`", tensor.name, tensor.dtype, tensor.shape))
        .collect();
    let launches: Vec<String> = plan.launches.iter().map(|launch| format!("`{}`", launch.kernel)).collect();
    format!(
        "Of {name}: {} bytes read, {} written, {} operations ({}). Arrays: {}. On an H200 {}: {}.\n",
        work.read_bytes,
        work.write_bytes,
        work.flops,
        work.formula,
        shapes.join(", "),
        if launches.len() == 1 { "one launch" } else { "launches in this order" },
        launches.join(", ")
    )
}

fn ladder(operator: &Operator, measured: &Measured) -> String {
    if operator.ladder.is_empty() {
        return String::new();
    }
    let mut text = "| rung | what |\n|---|---|\n".to_string();
    for rung in operator.ladder {
        let _ = writeln!(text, "| `{}` | {} |", rung.name, cell(rung.about));
    }
    let _ = writeln!(text, "| `tessera` | the operator's own kernels |");
    let _ = writeln!(
        text,
        "\nAll give the same, each within the bounds of its roundings: `tessera check {} --rungs`.",
        operator.name
    );
    text.push_str(&measured.ladder(operator));
    text
}
