//! `tessera bundle`: kernels compiled ahead of time, in one file.

use std::sync::Arc;

use serde_json::{Value, json};
use tessera::bench::Selection;
use tessera::ops::{AheadError, PlanError, find};
use tessera::runtime::{Bundle as Packs, BundleError, Kernel, Lock, Packed, Variant};
use tessera::types::{Arch, Target};

use crate::arguments::{Bundle, Locking};
use crate::command::compile::{argument_types, assemble};
use crate::command::launch::{compile_options, kernel, kernel_failure, library_options};
use crate::command::locking::{self, locked};
use crate::command::sizes::{refuse_nought, selection};
use crate::failure::{Failure, Outcome, remark, write_bytes};
use crate::finding::report;

pub(crate) fn bundle(arguments: Bundle) -> Outcome {
    if arguments.list {
        return list(&arguments);
    }
    let Some(output) = &arguments.output else {
        return Err(Failure::usage("the bundle has no name\nhelp: name a file: `-o kernels.tbundle`"));
    };
    let subjects = subjects(&arguments.subjects, &arguments.optimise.locking)?;
    let targets = targets(&arguments.target)?;
    refuse_idle(&arguments, &subjects)?;
    let mut variants: Vec<Variant> = Vec::new();
    for subject in &subjects {
        for &arch in &targets {
            for Packed { variant, remark: given_up, tuned } in subject.packed(&arguments, arch)? {
                given_up.iter().for_each(|report| remark(report.diagnostics.first(), &report.sources));
                tuned.iter().for_each(|tuned| eprintln!("note: {} for {arch}: {}", variant.kernel, locking::told(tuned)));
                // Overlapping sizes and the same kernel twice are one variant.
                if !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
    }
    if arguments.cubin {
        for variant in &mut variants {
            variant.code.cubin = Some(assemble(&variant.code.ptx, &variant.target)?.cubin.into());
        }
    }
    let packs = Packs::new(variants).map_err(failure)?;
    write_bytes(output, &packs.to_bytes())?;
    if arguments.json {
        println!("{}", report(0, &[], &json!({ "output": output, "variants": rows(&packs) })));
        return Ok(());
    }
    packs.variants().iter().for_each(|variant| println!("{}", variant.describe()));
    println!("wrote {} to {output}", count(packs.variants().len()));
    Ok(())
}

fn count(variants: usize) -> String {
    if variants == 1 { "1 variant".to_string() } else { format!("{variants} variants") }
}

/// What is packed: a kernel for arguments of some types, or an operator.
enum Subject<'a> {
    Kernel(Kernel, &'a [String]),
    /// With its own sizes, where they stand behind it.
    Operator {
        name: &'a str,
        sizes: Option<String>,
        lock: Option<Arc<Lock>>,
    },
}

impl Subject<'_> {
    /// Its variants for a target.
    fn packed(&self, arguments: &Bundle, arch: Arch) -> Result<Vec<Packed>, Failure> {
        match self {
            Subject::Kernel(kernel, texts) => {
                let options = compile_options(&arguments.optimise, arguments.block)?;
                let types = argument_types(kernel, texts)?;
                Ok(vec![kernel.ahead(&types, &options, arch).map_err(kernel_failure)?])
            }
            Subject::Operator { name, sizes, lock } => {
                let sizes = sizes.as_deref().or(arguments.sizes.as_deref());
                operator((name, sizes, lock.as_ref()), arguments, arch)
            }
        }
    }
}

fn operator(
    (name, sizes, lock): (&str, Option<&str>, Option<&Arc<Lock>>),
    arguments: &Bundle,
    arch: Arch,
) -> Result<Vec<Packed>, Failure> {
    let options = library_options(&arguments.optimise)?;
    let Some(sizes) = sizes else {
        let help = "help: name them behind it, such as `gemm m=1024 n=1024 k=1024`; the library chooses tiles by them";
        return Err(Failure::usage(format!("`{name}` is packed for sizes, and none are given\n{help}")));
    };
    let Selection { operators, precisions, sizes } = selection(&[name.to_owned()], &arguments.precision, Some(sizes))?;
    refuse_nought(&sizes)?;
    let machine = tessera::ops::Machine::Gpu(arch);
    let entries = Selection { operators, precisions, sizes }.entries(machine).map_err(Failure::usage)?;
    let mut packed = Vec::new();
    for entry in entries {
        let about = || format!("{name} {} in {}", entry.problem, entry.policy);
        let ahead = entry.operator.ahead(&entry.problem, entry.policy, arch, &options, lock).map_err(|error| match error {
            AheadError::Kernel(error) | AheadError::Plan(PlanError::Lock(error)) => kernel_failure(error).about(&about()),
            error @ (AheadError::Plan(_) | AheadError::Array { .. }) => Failure::usage(error).about(&about()),
        })?;
        ahead.tuned.iter().for_each(|tuned| eprintln!("note: {} for {arch}: {}", about(), locking::told(tuned)));
        packed.extend(ahead.packed);
    }
    Ok(packed)
}

/// Groups what stands on the command line: a subject is an operator or has `::` in front of any `=`, and the arguments behind it are its
/// own.
fn subjects<'a>(texts: &'a [String], locking: &Locking) -> Result<Vec<Subject<'a>>, Failure> {
    let is_subject = |text: &str| find(text).is_some() || text.split('=').next().is_some_and(|head| head.contains("::"));
    let starts: Vec<usize> = (0..texts.len()).filter(|&at| is_subject(&texts[at])).collect();
    if starts.first() != Some(&0) {
        let named = texts.first().map_or("nothing is named".to_string(), |text| format!("`{text}` names nothing to pack"));
        return Err(Failure::usage(format!("{named}\nhelp: begin with `FILE::KERNEL` and its types, or an operator")));
    }
    let ends = starts.iter().skip(1).copied().chain([texts.len()]);
    let group = |(start, end): (usize, usize)| {
        let (name, own) = (&texts[start], &texts[start + 1..end]);
        match find(name) {
            None => Ok(Subject::Kernel(locked(kernel(name)?, locking)?, own)),
            Some(_) => {
                let sizes = (!own.is_empty()).then(|| own.join(","));
                Ok(Subject::Operator { name, sizes, lock: locking::read(locking, None)? })
            }
        }
    };
    starts.iter().copied().zip(ends).map(group).collect()
}

fn targets(names: &[String]) -> Result<Vec<Arch>, Failure> {
    let mut targets: Vec<Arch> = Vec::new();
    for name in names {
        let arch = Target::parse(name).map_err(Failure::usage)?.arch;
        if targets.contains(&arch) {
            return Err(Failure::usage(format!("the target `{arch}` is given twice")));
        }
        targets.push(arch);
    }
    Ok(targets)
}

/// Refuses options that nothing on the command line takes.
fn refuse_idle(arguments: &Bundle, subjects: &[Subject<'_>]) -> Outcome {
    let is_without_sizes = |subject: &Subject<'_>| matches!(subject, Subject::Operator { sizes: None, .. });
    if arguments.sizes.is_some() && !subjects.iter().any(is_without_sizes) {
        return Err(Failure::usage("`--sizes` is for operators without sizes of their own, and there is none"));
    }
    let has_operator = subjects.iter().any(|subject| matches!(subject, Subject::Operator { .. }));
    if !arguments.precision.is_empty() && !has_operator {
        return Err(Failure::usage("`--precision` is for operators; a kernel is packed for the types that are written"));
    }
    Ok(())
}

/// `tessera bundle FILE.tbundle --list`.
fn list(arguments: &Bundle) -> Outcome {
    let [path] = arguments.subjects.as_slice() else {
        return Err(Failure::usage("`--list` shows one bundle\nhelp: write `tessera bundle FILE.tbundle --list`"));
    };
    let packs = open(path)?;
    if arguments.json {
        println!("{}", report(0, &[], &json!({ "variants": rows(&packs) })));
        return Ok(());
    }
    packs.variants().iter().for_each(|variant| println!("{}", variant.describe()));
    Ok(())
}

fn rows(packs: &Packs) -> Vec<Value> {
    let row = |variant: &Variant| {
        let cubin = variant.code.cubin.as_ref().map(|code| code.len());
        json!({
            "kernel": variant.kernel, "target": variant.target, "describe": variant.describe(), "threads": variant.launch.threads,
            "shared_bytes": variant.launch.shared_bytes, "ptx_bytes": variant.code.ptx.len(), "cubin_bytes": cubin,
        })
    };
    packs.variants().iter().map(row).collect()
}

/// Opens a bundle's file.
pub(crate) fn open(path: &str) -> Result<Packs, Failure> {
    Packs::open(path).map_err(|error| match error {
        BundleError::Io { .. } => failure(error),
        other => failure(other).about(&format!("`{path}`")),
    })
}

/// The exit code of a bundle that cannot be used, or does not have what is asked for.
pub(crate) fn failure(error: BundleError) -> Failure {
    match error {
        BundleError::Device(error) => kernel_failure(error.into()),
        BundleError::Io { .. }
        | BundleError::NotABundle { .. }
        | BundleError::Version { .. }
        | BundleError::Truncated { .. }
        | BundleError::Damaged { .. }
        | BundleError::Invalid { .. } => Failure::environment(error),
        BundleError::NoKernel { .. }
        | BundleError::NoTarget { .. }
        | BundleError::Arguments { .. }
        | BundleError::NoVariant { .. }
        | BundleError::Ambiguous { .. } => Failure::usage(error),
    }
}
