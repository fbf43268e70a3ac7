//! One kernel, one text: the library's kernels are compiled at every level in three processes, in other orders and on other threads,
//! and print the same bytes.

use std::collections::BTreeMap;
use std::process::Command;

use tessera::compile::{CompileOptions, OptLevel, compile};
use tessera::ir::text::print_module;
use tessera::lang::{ArgType, ConstValue, ParsedFile, parse_project};
use tessera::ops::{Argument, Machine, OPERATORS, SharedFiles};
use tessera::types::{DType, Policy};

const WHERE: &str = "TESSERA_TEST_LISTING";
const REVERSED: &str = "TESSERA_TEST_REVERSED";

/// One compilation: a file's name and text, the kernel, argument types.
struct Job {
    file: &'static str,
    source: &'static str,
    kernel: &'static str,
    types: Vec<(String, ArgType)>,
}

/// The quick suite's launches and those of the edges, each compilation once.
fn jobs() -> BTreeMap<String, Job> {
    let mut jobs = BTreeMap::new();
    for operator in OPERATORS {
        let mut files: BTreeMap<&str, ParsedFile> = BTreeMap::new();
        let edges = (operator.edges)()
            .into_iter()
            .take(3)
            .flat_map(|edge| operator.precisions.iter().map(move |&name| (edge.clone(), name)));
        for (problem, precision) in (operator.quick)().into_iter().chain(edges) {
            let policy: Policy = precision.parse().expect("a policy");
            let Ok(plan) = operator.plan(&problem, policy, Machine::Cpu) else { continue };
            for launch in &plan.launches {
                let source = operator.file_of(launch);
                let parsed = files.entry(source.name).or_insert_with(|| parse_project(source.name, source.text, &SharedFiles));
                let kernel = &parsed.kernels[launch.kernel];
                let types: Vec<(String, ArgType)> = launch
                    .arguments
                    .iter()
                    .map(|(name, argument)| {
                        let constant = kernel.params.iter().any(|param| param.name == *name && param.is_constant());
                        let scalar = |dtype, value| if constant { ArgType::Const(value) } else { ArgType::Scalar(dtype) };
                        let ty = match argument {
                            Argument::Tensor(at) => ArgType::array(plan.tensors[*at].dtype, plan.tensors[*at].shape.len()),
                            Argument::Int(value) => scalar(DType::I32, ConstValue::Int(*value)),
                            Argument::Float(value) => scalar(DType::F32, ConstValue::Float(*value)),
                            Argument::Bool(value) => scalar(DType::B1, ConstValue::Bool(*value)),
                            Argument::Type(dtype) => ArgType::Const(ConstValue::DType(*dtype)),
                            Argument::Word(word) => ArgType::Const(ConstValue::Str(word.to_string())),
                        };
                        (name.to_string(), ty)
                    })
                    .collect();
                let key = format!("{} {} {types:?}", source.name, launch.kernel);
                jobs.insert(key, Job { file: source.name, source: source.text, kernel: launch.kernel, types });
            }
        }
    }
    jobs
}

fn text(job: &Job) -> String {
    let file = parse_project(job.file, job.source, &SharedFiles);
    let levels = OptLevel::ALL.map(|level| {
        let options = CompileOptions { level, ..CompileOptions::default() };
        let compiled = compile(&file, job.kernel, &job.types, &options)
            .unwrap_or_else(|wrong| panic!("{}: {}", job.kernel, wrong[0].render(&file.sources, false)));
        let printed = print_module(&compiled.module);
        assert_eq!(printed, print_module(&compiled.module), "printing twice");
        printed
    });
    levels.concat()
}

/// Every text, worked out forwards or backwards by two threads.
fn listing(reversed: bool) -> String {
    let mut jobs: Vec<(String, Job)> = jobs().into_iter().collect();
    if reversed {
        jobs.reverse();
    }
    let half = jobs.len() / 2;
    let work = |part: &[(String, Job)]| part.iter().map(|(key, job)| (key.clone(), text(job))).collect::<Vec<_>>();
    let mut texts = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(&jobs[half..]));
        let mut texts = work(&jobs[..half]);
        texts.extend(other.join().expect("every kernel compiles"));
        texts
    });
    texts.sort();
    texts.into_iter().map(|(key, text)| format!("// {key}\n{text}")).collect()
}

#[test]
fn every_process_compiles_the_library_to_the_same_text() {
    if let Some(path) = std::env::var_os(WHERE) {
        std::fs::write(path, listing(std::env::var_os(REVERSED).is_some())).expect("written");
        return;
    }
    let here = listing(false);
    assert!(here.matches("schedule @").count() >= 4 * 20, "the library's kernels are missing");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for reversed in [false, true] {
        let path = folder.path().join(format!("{reversed}.txt"));
        let mut other = Command::new(std::env::current_exe().expect("this test"));
        other.args(["--exact", "deterministic::every_process_compiles_the_library_to_the_same_text"]).env(WHERE, &path);
        if reversed {
            other.env(REVERSED, "1");
        }
        let output = other.output().expect("this test starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let there = std::fs::read_to_string(&path).expect("a listing");
        let differing = here.lines().zip(there.lines()).find(|(here, there)| here != there);
        assert!(here == there, "another process gives another text (reversed: {reversed}): {differing:?}");
    }
}
