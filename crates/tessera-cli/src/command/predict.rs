//! `tessera tune --predict`: what each candidate should take on a product, best first. No device is needed, and no lockfile written.

use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::json;
use tessera::bench::{Candidate, Field, Suite, Tunable};
use tessera::compile::CompileOptions;
use tessera::ops::{Machine, Operator};
use tessera::runtime::{Device, Lock};
use tessera::types::Device as Product;

use crate::arguments::Tune;
use crate::command::launch::{kernel, kernel_failure};
use crate::command::run_operator::named;
use crate::command::tune::{asked, kernel_cases};
use crate::command::tuned::kind;
use crate::command::{locking, tolerance};
use crate::failure::{Failure, Outcome, write_text};

/// The ways to cut an operator's cases into blocks, or the plans of a kernel.
pub(crate) fn predict(arguments: &Tune, options: &CompileOptions, product: &Product) -> Outcome {
    tolerance::asked([arguments.rtol, arguments.atol])?;
    match named(&arguments.launch.subject)? {
        Some(operator) => ways(arguments, operator, product),
        None => plans(arguments, options, product),
    }
}

fn ways(arguments: &Tune, operator: &Operator, product: &Product) -> Outcome {
    if let Some(out) = &arguments.out {
        return Err(Failure::usage(format!("`-o {out}` takes a plan, and how an operator cuts a problem is none")));
    }
    let machine = Machine::Gpu(product.arch);
    let mut shown = 0;
    for entry in asked(arguments)?.entries(machine).map_err(Failure::usage)? {
        let ways = operator.ways(&entry.problem, entry.policy, machine).map_err(Failure::usage)?;
        if ways.is_empty() {
            continue;
        }
        shown += 1;
        let case = format!("{} {} in {}", operator.name, entry.problem, entry.policy);
        if !arguments.json {
            println!("{case} on {}", product.name);
        }
        print(arguments, product, (operator.name, Some(&case)), Field::of_ways(ways, Some(product)).candidates);
    }
    if shown == 0 {
        let help = "`tessera tune OP --device emu` tunes the plans of its kernels without a GPU";
        let (name, product) = (operator.name, product.name);
        return Err(Failure::usage(format!("`{name}` cuts these cases in one way alone on `{product}`\nhelp: {help}")));
    }
    Ok(())
}

fn plans(arguments: &Tune, options: &CompileOptions, product: &Product) -> Outcome {
    let lock = Arc::new(Lock::read(locking::path(arguments.lock.as_deref(), None)?).map_err(kernel_failure)?);
    let own = kernel(&arguments.launch.subject)?;
    let suite = kernel_cases(arguments, (&own, &lock), options, &Device::Cpu)?;
    for case in suite.cases() {
        let launches = suite.launches(case).map_err(|fault| Failure::environment(format!("{}: {fault}", case.key)))?;
        for launch in launches {
            let mut candidates = launch.field(Some(product)).map_err(kernel_failure)?.candidates;
            candidates.retain(|candidate| candidate.plan.is_some());
            if candidates.is_empty() {
                let help = "plans are for block programs with products; `tessera compile --emit report` says how others are done";
                let name = own.name();
                return Err(Failure::usage(format!("`{name}` has no plan to choose on `{}`\nhelp: {help}", product.name)));
            }
            let best = print(arguments, product, (own.name(), None), candidates);
            if let (Some(out), Some(plan)) = (&arguments.out, best.and_then(|candidate| candidate.plan)) {
                write_text(out, &plan.text)?;
                if !arguments.json {
                    println!("wrote the plan that takes least to {out}");
                }
            }
        }
    }
    Ok(())
}

/// Prints candidates, those first that should take least, and gives the first one. An operator's have a case.
fn print(
    arguments: &Tune,
    product: &Product,
    (name, case): (&str, Option<&str>),
    mut candidates: Vec<Candidate>,
) -> Option<Candidate> {
    let micros = |candidate: &Candidate| candidate.predicted.map_or(f64::INFINITY, |predicted| predicted.micros);
    candidates.sort_by(|a, b| micros(a).total_cmp(&micros(b)));
    candidates.truncate(arguments.most.map_or(usize::MAX, NonZeroUsize::get));
    if !arguments.json {
        println!("{:>10} {:>12}  {:<20} {}", "us", "predicted", "bound", if case.is_some() { "way" } else { "plan" });
    }
    for candidate in &candidates {
        let predicted = candidate.predicted;
        let bound = predicted.and_then(|predicted| predicted.bound);
        if arguments.json {
            let line = json!({
                "kind": kind(case.is_some()), "kernel": name, "case": case, "arguments": arguments.launch.arguments,
                "product": product.name, "config": candidate.config, "plan": candidate.plan.as_ref().map(|plan| &plan.text),
                "bound": bound, "status": "predicted", "predicted_us": predicted.map(|predicted| predicted.micros),
            });
            println!("{line}");
        } else {
            let should = predicted.map_or("-".to_string(), |predicted| format!("{:.1}", predicted.micros));
            println!("{:>10} {should:>12}  {:<20} {}", "-", bound.unwrap_or("-"), candidate.summary());
        }
    }
    candidates.into_iter().next()
}
