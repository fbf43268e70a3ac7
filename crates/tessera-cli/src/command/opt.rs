//! `tessera opt`: passes over an IR file.

use std::io::IsTerminal;

use tessera::compile::{named_pipeline, passes, pipeline_names};
use tessera::document;
use tessera::ir::{Diagnostic, Level, Pass, PassManager, PrintAfter, Severity, text, verify};
use tessera::types::{Arch, Target};

use crate::arguments::Opt;
use crate::difference::difference;
use crate::failure::{Failure, Outcome, read_text, remark, write_text};

pub(crate) fn opt(arguments: Opt) -> Outcome {
    let mut pipeline = pipeline(&arguments)?;
    let of_passes = [
        ("--target", arguments.target.is_some()),
        ("--verify-each", arguments.verify_each),
        ("--print-after-all", arguments.print_after_all),
        ("--diff", arguments.diff),
        ("--time", arguments.time),
    ];
    if let Some((option, _)) = of_passes.into_iter().find(|(_, given)| *given && pipeline.is_empty()) {
        return Err(Failure::usage(format!("`{option}`: no pass runs\nhelp: name some: `--pass NAME,...` or `--pipeline NAME`")));
    }
    let target = arguments.target.as_deref().map(target).transpose()?;
    let source = read_text(&arguments.file)?;
    let mut module = document::parse_module(&arguments.file, &source)
        .map_err(|(module, diagnostic)| Failure::diagnostics(&[*diagnostic], &module.sources))?;
    let diagnostics = verify(&module);
    if !diagnostics.is_empty() {
        return Err(Failure::diagnostics(&diagnostics, &module.sources));
    }

    if arguments.pipeline.as_deref() == Some("tile") && module.funcs.iter().any(|func| func.level == Level::Schedule) {
        // They work on tiles that are spread over threads.
        pipeline.splice(0..0, named_pipeline("staging").unwrap_or_default());
    }
    if arguments.pipeline.as_deref() == Some("default") && module.funcs.iter().all(|func| func.level == Level::Tile) {
        // What was spread over threads is past the passes of block programs.
        pipeline = named_pipeline("tile").unwrap_or_default();
    }
    let coloured = std::io::stdout().is_terminal() && crate::colours();
    let mut show = |pass: &Pass, before: &str, after: &str| {
        println!("--- before {}\n+++ after {}\n{}", pass.name, pass.name, difference(before, after, coloured));
    };
    let mut manager = PassManager {
        verify_each: arguments.verify_each,
        print_after: if arguments.print_after_all { PrintAfter::All } else { PrintAfter::Never },
        target,
        ..PassManager::default()
    };
    if arguments.diff {
        manager.observer = Some(&mut show);
    }
    let ran = manager.run(&mut module, &pipeline);
    let times = ran.map_err(|failure| Failure::diagnostics(&failure.told(), &module.sources))?;
    for time in &times {
        for refusal in &time.refusals {
            let message = format!("`{}` leaves the function as it is: {}", time.pass, refusal.text);
            let note = match refusal.span {
                Some(span) => Diagnostic::error("left-as-it-is", span, message),
                None => Diagnostic::bare("left-as-it-is", message),
            };
            remark(Some(&note.severity(Severity::Note)), &module.sources);
        }
        time.fallbacks.iter().for_each(|fallback| remark(Some(&fallback.note), &module.sources));
    }
    for time in times.iter().filter(|time| time.text.is_some()) {
        println!("// after {}\n{}", time.pass, time.text.as_deref().unwrap_or_default());
    }
    let printed = text::print_module(&module);
    match &arguments.output {
        Some(path) => write_text(path, &printed)?,
        None if !arguments.diff && !arguments.print_after_all => print!("{printed}"),
        None => {}
    }
    if arguments.time {
        for time in &times {
            let unchanged = if time.changed { "" } else { " (no change)" };
            eprintln!("{:>10.1} us  {}{unchanged}", time.time.as_secs_f64() * 1e6, time.pass);
        }
        let all: f64 = times.iter().map(|time| time.time.as_secs_f64() * 1e6).sum();
        eprintln!("{all:>10.1} us  in all");
    }
    Ok(())
}

fn target(name: &str) -> Result<Arch, Failure> {
    Target::parse(name).map(|target| target.arch).map_err(|_| {
        let known: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
        let help = format!("the targets are {}, and the products of `tessera list targets`", known.join(", "));
        Failure::usage(format!("`{name}` is not a target\nhelp: {help}"))
    })
}

fn pipeline(arguments: &Opt) -> Result<Vec<&'static Pass>, Failure> {
    if let Some(name) = &arguments.pipeline {
        return named_pipeline(name).ok_or_else(|| {
            Failure::usage(format!("`{name}` is not a pipeline\nhelp: the pipelines are {}", pipeline_names().join(", ")))
        });
    }
    arguments
        .pass
        .iter()
        .map(|name| {
            passes::find(name).ok_or_else(|| {
                let known: Vec<&str> = passes::ALL.iter().map(|pass| pass.name).collect();
                Failure::usage(format!("`{name}` is not a pass\nhelp: the passes are {}", known.join(", ")))
            })
        })
        .collect()
}
