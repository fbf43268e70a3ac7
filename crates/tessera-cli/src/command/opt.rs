//! `tessera opt`: passes over an IR file.

use tessera::compile::{OptLevel, passes};
use tessera::ir::{Pass, PassManager, PrintAfter, text, verify};

use crate::arguments::Opt;
use crate::failure::{Failure, Outcome, read_text};

pub(crate) fn opt(arguments: Opt) -> Outcome {
    let pipeline = pipeline(&arguments)?;
    let source = read_text(&arguments.file)?;
    let mut module = text::parse_module(&arguments.file, &source)
        .map_err(|(module, diagnostic)| Failure::diagnostics(&[*diagnostic], &module.sources))?;
    let diagnostics = verify(&module);
    if !diagnostics.is_empty() {
        return Err(Failure::diagnostics(&diagnostics, &module.sources));
    }

    let mut show = |pass: &Pass, before: &str, after: &str| println!("--- {}\n{}", pass.name, difference(before, after));
    let mut manager = PassManager {
        verify_each: arguments.verify_each,
        print_after: if arguments.print_after_all { PrintAfter::All } else { PrintAfter::Never },
        ..PassManager::default()
    };
    if arguments.diff {
        manager.observer = Some(&mut show);
    }
    let times = manager.run(&mut module, &pipeline).map_err(|failure| {
        if failure.broke_module {
            // A pass that breaks a module that verified is our mistake, not the file's.
            Failure { exit: crate::OUR_BUG, ..Failure::diagnostics(&failure.diagnostics, &module.sources) }
        } else {
            Failure::diagnostics(&failure.diagnostics, &module.sources)
        }
    })?;
    for time in times.iter().filter(|time| time.text.is_some()) {
        println!("// after {}\n{}", time.pass, time.text.as_deref().unwrap_or_default());
    }
    if !arguments.diff && !arguments.print_after_all {
        print!("{}", text::print_module(&module));
    }
    if arguments.time {
        for time in &times {
            eprintln!(
                "{:>10.1} us  {}{}",
                time.time.as_secs_f64() * 1e6,
                time.pass,
                if time.changed { "" } else { " (no change)" }
            );
        }
    }
    Ok(())
}

fn pipeline(arguments: &Opt) -> Result<Vec<&'static Pass>, Failure> {
    if let Some(name) = &arguments.pipeline {
        let level: OptLevel = name.parse().map_err(Failure::usage)?;
        return Ok(level.passes());
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

/// Lines that went (`-`) and came (`+`), with two lines around each change.
fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    // Longest common subsequence by dynamic programming: functions have at most a few thousand lines.
    let mut common = vec![vec![0u32; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i][j] = if before[i] == after[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines: Vec<(char, &str)> = Vec::new();
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            lines.push((' ', before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || i < before.len() && common[i + 1][j] >= common[i][j + 1] {
            lines.push(('-', before[i]));
            i += 1;
        } else {
            lines.push(('+', after[j]));
            j += 1;
        }
    }
    const AROUND: usize = 2;
    let near = |at: usize| lines[at.saturating_sub(AROUND)..(at + AROUND + 1).min(lines.len())].iter().any(|line| line.0 != ' ');
    let mut text = String::new();
    let mut gap = false;
    for (at, (mark, line)) in lines.iter().enumerate() {
        if near(at) {
            text.push_str(&format!("{mark} {line}\n"));
            gap = false;
        } else if !std::mem::replace(&mut gap, true) {
            text.push_str("  ...\n");
        }
    }
    text
}
