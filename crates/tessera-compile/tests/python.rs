//! What scalars mean in a kernel is what Python says: random functions run in the Python interpreter and, as kernels, on the CPU, in
//! lock-step and on the emulator; in block style as helpers and as kernels' own bodies, and in per-thread style; with arguments that are
//! known at run time, when the kernel is compiled, or partly so. Every result is equal, or the compiler refuses the function
//! and says where. A ceiling on what is refused keeps that from being the way out.

mod choices;
mod expressions;
mod program;
mod reference;
mod statements;

use std::collections::BTreeMap;
use std::fmt::Write;

use tessera_compile::{CompileOptions, Compiled, compile};
use tessera_lang::{ArgType, ConstValue, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{ARCHS, Data, Launch, in_lockstep, on_cpu, on_emulator};
use choices::{Choices, shrink};
use program::{Dialect, PARAMETERS, Program, program};
use reference::{Outcome, Python};

/// Values for `a`, `b`, `x`, `p`, `K` and `S`; `T` is `(4, -1, 6)`.
type Inputs = (i64, i64, f64, bool, i64, &'static str);

const INPUTS: [Inputs; 4] =
    [(3, -2, 1.5, true, 2, "fast"), (0, 7, -0.25, false, 5, "a_b"), (-9, 1, 4.0, true, 0, ""), (5, 5, 0.0, false, 3, "slow")];

/// Which arguments are known when a kernel is compiled.
const VERSIONS: [&str; 3] = ["at run time", "compiled in", "mixed"];

/// At most so many of a hundred kernels may be refused.
const CEILING: f64 = 15.0;

/// How a function becomes a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A helper that the kernel calls.
    Helper,
    /// The kernel's own body.
    Direct,
    /// A per-thread kernel's body.
    Threads,
}

/// In block style every other program is a kernel of cuTile, whose loops don't count down, the others are ours.
fn kernel_of(program: &Program, form: Form, number: u64) -> String {
    let decorator = if number & 1 == 0 { "ct.kernel" } else { "tessera.kernel" };
    let mut text = String::from("import cuda.tile as ct\nimport tessera\n");
    text.push_str(&program.prelude);
    let mut stores = String::new();
    for (at, (result, is_float)) in program.results.iter().enumerate() {
        let array = if *is_float { "fout" } else { "out" };
        let _ = match form {
            Form::Helper => writeln!(stores, "    ct.store({array}, ({at},), r[{at}])"),
            Form::Direct => writeln!(stores, "    ct.store({array}, ({at},), {result})"),
            Form::Threads => writeln!(stores, "    result{at} = {result}"),
        };
    }
    if form == Form::Threads {
        stores.push_str("    if tile.thread_id() == 0:\n");
        for (at, (_, is_float)) in program.results.iter().enumerate() {
            let _ = writeln!(stores, "        {}[{at}] = result{at}", if *is_float { "fout" } else { "out" });
        }
    }
    match form {
        Form::Helper => {
            text = format!("import cuda.tile as ct\nimport tessera\n{}", program.source());
            let _ = write!(text, "\n@{decorator}\ndef kernel(out, fout, {PARAMETERS}):\n    r = case({PARAMETERS})\n{stores}");
        }
        Form::Direct => {
            let _ = write!(text, "\n@{decorator}\ndef kernel(out, fout, {PARAMETERS}):\n{}{stores}", program.body);
        }
        Form::Threads => {
            let params =
                "out: Tensor[\"N\", int32], fout: Tensor[\"M\", fp32], a: int, b: int, x: float, p: bool, K: int, S: str";
            let _ = write!(text, "\n@tessera.kernel\ndef kernel({params}):\n{}{stores}", program.body);
        }
    }
    text
}

/// Whether `a`, `b`, `x` and `p` are known when the kernel is compiled.
type Known = [bool; 4];

fn arguments(form: Form, known: Known, inputs: &Inputs) -> (Vec<(String, ArgType)>, Vec<Data>) {
    let (a, b, x, p, k, s) = *inputs;
    let mut args = vec![("out".to_string(), ArgType::array(DType::I32, 1)), ("fout".to_string(), ArgType::array(DType::F32, 1))];
    let mut data = vec![Data::zeros(DType::I32, &[4]), Data::zeros(DType::F32, &[4])];
    let values = [
        ("a", ConstValue::Int(a), DType::I32, (a as i32).to_le_bytes().to_vec()),
        ("b", ConstValue::Int(b), DType::I32, (b as i32).to_le_bytes().to_vec()),
        ("x", ConstValue::Float(x), DType::F32, (x as f32).to_le_bytes().to_vec()),
        ("p", ConstValue::Bool(p), DType::B1, vec![u8::from(p)]),
    ];
    for ((name, value, dtype, bytes), known) in values.into_iter().zip(known) {
        args.push((name.to_string(), if known { ArgType::Const(value) } else { ArgType::Scalar(dtype) }));
        if !known {
            data.push(Data::Scalar(bytes));
        }
    }
    args.push(("K".to_string(), ArgType::Const(ConstValue::Int(k))));
    args.push(("S".to_string(), ArgType::Const(ConstValue::Str(s.to_string()))));
    if form != Form::Threads {
        let items = [4, -1, 6].map(ConstValue::Int).to_vec();
        args.push(("T".to_string(), ArgType::Const(ConstValue::Tuple(items))));
    }
    (args, data)
}

/// What a kernel came to.
enum Verdict {
    Values(Vec<f64>),
    /// The diagnostic's id and its text.
    Refused(&'static str, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    Cpu,
    Lockstep,
    Emulator,
}

fn execute(text: &str, form: Form, known: Known, inputs: &Inputs, on: On, floats: &[bool]) -> Result<Verdict, String> {
    let file = parse_file("case.py", text);
    let (args, mut data) = arguments(form, known, inputs);
    let compiled: Compiled = match compile(&file, "kernel", &args, &CompileOptions::default()) {
        Ok(compiled) => compiled,
        Err(found) => {
            let first = &found[0];
            let shown = first.render(&file.sources, false);
            if first.primary.is_none() || first.id.starts_with("ir-") {
                return Err(format!("a refusal without a place, or of our own making: {shown}"));
            }
            return Ok(Verdict::Refused(first.id, shown));
        }
    };
    let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
    match on {
        On::Cpu => on_cpu(&launch, &mut data)?,
        On::Lockstep => drop(in_lockstep(&launch, ARCHS[0], &mut data)?),
        On::Emulator => on_emulator(&launch, Arch::Sm80, &mut data)?,
    }
    let value = |(at, is_float): (usize, &bool)| {
        let Data::Array { bytes, .. } = &data[usize::from(*is_float)] else { return f64::NAN };
        let word: [u8; 4] = bytes[at * 4..at * 4 + 4].try_into().expect("four bytes");
        if *is_float { f64::from(f32::from_le_bytes(word)) } else { f64::from(i32::from_le_bytes(word)) }
    };
    Ok(Verdict::Values(floats.iter().enumerate().map(value).collect()))
}

/// What was refused, by form and id.
#[derive(Default)]
struct Tally {
    runs: BTreeMap<String, u32>,
    refused: BTreeMap<(String, &'static str), Vec<u64>>,
}

impl Tally {
    fn share(&self, form: &str) -> f64 {
        let refused: usize = self.refused.iter().filter(|((own, _), _)| own == form).map(|(_, cases)| cases.len()).sum();
        100.0 * refused as f64 / f64::from(self.runs.get(form).copied().unwrap_or(1).max(1))
    }

    fn show(&self) {
        for (form, runs) in &self.runs {
            println!("{form}: {runs} kernels, {:.1} % refused", self.share(form));
            for ((own, id), cases) in &self.refused {
                if own == form {
                    let some: Vec<String> = cases.iter().take(12).map(u64::to_string).collect();
                    println!(
                        "    {id}: {} (cases {}{})",
                        cases.len(),
                        some.join(", "),
                        if cases.len() > 12 { ", ..." } else { "" }
                    );
                }
            }
        }
    }
}

fn call(inputs: &Inputs) -> String {
    let (a, b, x, p, k, s) = inputs;
    let truth = if *p { "True" } else { "False" };
    format!("({a}, {b}, {x:?}, {truth}, {k}, {s:?}, (4, -1, 6))")
}

/// Compares a program with Python in every form, version and on every input; what differs.
fn differs(
    python: &mut Python,
    program: &Program,
    dialect: Dialect,
    number: u64,
    deep: bool,
    tally: &mut Tally,
) -> Option<String> {
    let calls: Vec<String> = INPUTS.iter().map(call).collect();
    let outcomes = python.run(&program.source(), &calls);
    let floats: Vec<bool> = program.results.iter().map(|(_, is_float)| *is_float).collect();
    let forms: &[Form] = match dialect {
        Dialect::Threads => &[Form::Threads],
        Dialect::Block if program.returns => &[Form::Helper],
        Dialect::Block => &[Form::Helper, Form::Direct],
    };
    let mixed = [number & 1 == 0, number & 2 == 0, number & 4 == 0, number & 8 == 0];
    for &form in forms {
        let text = kernel_of(program, form, number);
        for (version, known) in VERSIONS.into_iter().zip([[false; 4], [true; 4], mixed]) {
            let label = format!("{form:?}, arguments {version}");
            for (at, (inputs, outcome)) in INPUTS.iter().zip(&outcomes).enumerate() {
                // One kind of argument once is enough where nothing of it is compiled in.
                let on = match (form, deep) {
                    (Form::Threads, false) => On::Lockstep,
                    (_, true) if at == 1 => On::Emulator,
                    (_, true) if at == 2 => On::Lockstep,
                    (Form::Threads, true) => On::Lockstep,
                    _ => On::Cpu,
                };
                *tally.runs.entry(label.clone()).or_insert(0) += 1;
                let work = || execute(&text, form, known, inputs, on, &floats);
                let verdict = std::panic::catch_unwind(work).unwrap_or_else(|panic| {
                    let text =
                        panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()));
                    Err(format!("a panic: {}", text.unwrap_or_default()))
                });
                let told = |what: String| Some(format!("{label}, {inputs:?}, {on:?}: {what}\n{text}"));
                match (verdict, outcome) {
                    (Ok(Verdict::Refused(id, shown)), Outcome::Values(_)) => {
                        if std::env::var_os("TESSERA_SHOW_REFUSED").is_some() {
                            println!("case {number}, {label}: {shown}");
                        }
                        tally.refused.entry((label.clone(), id)).or_default().push(number);
                    }
                    (Ok(Verdict::Refused(..)), Outcome::Raised(..)) => {}
                    (Ok(Verdict::Values(found)), Outcome::Values(wanted)) if found == *wanted => {}
                    (Ok(Verdict::Values(found)), Outcome::Values(wanted)) => {
                        return told(format!("{found:?}, and Python says {wanted:?}"));
                    }
                    // What Python finds out while it runs, a kernel may never come to know; names and types it has to.
                    (Ok(Verdict::Values(found)), Outcome::Raised(name, message)) if is_static(name) => {
                        return told(format!("{found:?}, and Python raises {name}: {message}"));
                    }
                    (Ok(Verdict::Values(_)), Outcome::Raised(..)) => {}
                    (Err(error), Outcome::Raised(..)) if !error.starts_with("a panic") => {}
                    (Err(error), wanted) => return told(format!("{error}; Python says {wanted:?}")),
                }
            }
        }
    }
    None
}

/// Exceptions that are about the program and not about numbers.
fn is_static(exception: &str) -> bool {
    matches!(exception, "NameError" | "UnboundLocalError" | "TypeError" | "AttributeError" | "SyntaxError")
}

/// Compares `count` programs of a dialect; a failure is shown as small as it could be made.
fn compare(dialect: Dialect, first: u64, count: u64) -> Option<Tally> {
    let mut python = Python::start()?;
    let mut tally = Tally::default();
    for number in first..first + count {
        let mut choices = Choices::random(number + 1);
        let case = program(&mut choices, dialect);
        let deep = number % 16 == 0;
        if differs(&mut python, &case, dialect, number, deep, &mut tally).is_some() {
            let again = |choices: &[u32]| program(&mut Choices::again(choices.to_vec()), dialect);
            let small = shrink(choices.taken(), |choices| {
                differs(&mut python, &again(choices), dialect, number, deep, &mut Tally::default()).is_some()
            });
            let told = differs(&mut python, &again(&small), dialect, number, deep, &mut Tally::default());
            panic!("case {number} differs from Python: {}", told.unwrap_or_default());
        }
    }
    tally.show();
    Some(tally)
}

/// A share of the programs in everyday runs, all of them at night.
fn count(some: u64, all: u64) -> u64 {
    if std::env::var_os("TESSERA_TEST_ALL").is_some() { all } else { some }
}

#[test]
fn block_functions_mean_what_python_says() {
    let Some(tally) = compare(Dialect::Block, 0, count(300, 4000)) else { return };
    for form in ["Helper", "Direct"] {
        for version in VERSIONS {
            let share = tally.share(&format!("{form}, arguments {version}"));
            assert!(share <= CEILING, "{form}, arguments {version}: {share:.1} % are refused, and at most {CEILING} % may be");
        }
    }
}

#[test]
fn functions_of_threads_mean_what_python_says() {
    let Some(tally) = compare(Dialect::Threads, 100_000, count(200, 2000)) else { return };
    for version in VERSIONS {
        let share = tally.share(&format!("Threads, arguments {version}"));
        assert!(share <= CEILING, "arguments {version}: {share:.1} % are refused, and at most {CEILING} % may be");
    }
}
