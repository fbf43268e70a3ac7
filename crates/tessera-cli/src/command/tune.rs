//! `tessera tune`: which of the plans that a kernel can have takes least, as it should be and as it is.

use serde_json::json;
use tessera::bench::{Outcome as Became, Tried, TuneError, Tuning, rank_correlation};
use tessera::runtime::PossiblePlan;
use tessera::types::Device as Product;

use crate::arguments::Tune;
use crate::command::launch::{Subject, device, grid, kernel_failure};
use crate::command::tolerance;
use crate::failure::{Failure, Outcome, write_text};

pub(crate) fn tune(arguments: &Tune) -> Outcome {
    let tolerance = tolerance::asked([arguments.rtol, arguments.atol])?;
    let options = tessera::compile::CompileOptions {
        level: format!("O{}", arguments.level).parse().map_err(Failure::usage)?,
        ..Default::default()
    };
    let subject = Subject::read(&arguments.launch.subject, &arguments.launch.arguments)?;
    let grid = grid(arguments.launch.grid.as_deref())?;
    let plans = |product: &Product| {
        let plans = subject.kernel.possible_plans(&subject.by_name(), grid, &options, product).map_err(kernel_failure)?;
        if plans.is_empty() {
            let help = "plans are for block programs with products; `tessera compile --emit report` says how others are done";
            return Err(Failure::usage(format!(
                "`{}` has no plan to choose on `{}`\nhelp: {help}",
                subject.kernel.name(),
                product.name
            )));
        }
        Ok(plans.into_iter().take(arguments.most.map_or(usize::MAX, |most| most.get())).collect::<Vec<_>>())
    };
    if let Some(name) = &arguments.predict {
        let product = Product::by_name(name).ok_or_else(|| {
            Failure::usage(format!("`{name}` is no product\nhelp: `tessera list devices` names those that are known"))
        })?;
        let plans = plans(product)?;
        show(arguments, &subject, product, plans.iter().map(|plan| (plan, None)));
        return save(arguments, plans.first());
    }
    let (device, _) = device(arguments.device.as_deref())?;
    let help = "help: `--predict h200` says what plans should take there";
    let driver = device.driver().ok_or_else(|| Failure::usage(format!("{device} has no plans\n{help}")))?;
    if driver.context().table().is_ok_and(|table| table.backend == "emulator") {
        return Err(Failure::usage(format!("the emulator's launches do not take the time of any machine\n{help}")));
    }
    let product = product(driver)?;
    let tuning =
        Tuning { kernel: &subject.kernel, arguments: &subject.arguments.0, grid, options: &options, tolerance, device: driver };
    let plans = plans(product)?;
    let count = plans.len();
    let mut tell = |at: usize, outcome: &Became| {
        if !arguments.json && crate::is_live() {
            eprint!("\r{} of {count} plans: {:<40}", at + 1, told(outcome).chars().take(40).collect::<String>());
        }
    };
    let mut tried = tuning.run(plans, &mut tell).map_err(|error| match error {
        TuneError::Kernel(error) => kernel_failure(error),
        other @ (TuneError::Memory(_) | TuneError::Device(_)) => Failure::environment(other),
    })?;
    if !arguments.json && crate::is_live() {
        eprintln!();
    }
    tried.sort_by(|a, b| a.time().unwrap_or(f64::INFINITY).total_cmp(&b.time().unwrap_or(f64::INFINITY)));
    show(arguments, &subject, product, tried.iter().map(|tried| (&tried.plan, Some(&tried.outcome))));
    if !arguments.json {
        tell_order(&tried);
    }
    save(arguments, tried.first().filter(|tried| tried.time().is_some()).map(|tried| &tried.plan))?;
    let wrong = tried.iter().find_map(|tried| match &tried.outcome {
        Became::Wrong(why) => Some((why, &tried.plan.text)),
        Became::Time(_) | Became::Refused(_) => None,
    });
    match wrong {
        Some((why, plan)) => Err(Failure::found(
            format!(
                "error: a plan gives other results than the compiler's own: {why}\n{plan}help: `--rtol` and `--atol` allow more"
            ),
            Vec::new(),
        )),
        None => Ok(()),
    }
}

/// The product that a device is, or the largest of its architecture.
fn product(driver: &tessera::runtime::DriverDevice) -> Result<&'static Product, Failure> {
    let target = driver.properties().target();
    let known = Product::by_name(driver.name()).or_else(|| Product::ALL.iter().rfind(|product| product.arch.name() == target));
    known.ok_or_else(|| Failure::environment(format!("nothing is known of {} ({target})", driver.name())))
}

fn told(outcome: &Became) -> String {
    match outcome {
        Became::Time(time) => format!("{:.1} us", time / 1e3),
        Became::Wrong(why) => format!("other results: {why}"),
        Became::Refused(why) => why.lines().next().unwrap_or_default().to_string(),
    }
}

/// A line for each plan.
fn show<'p>(
    arguments: &Tune,
    subject: &Subject,
    product: &Product,
    plans: impl Iterator<Item = (&'p PossiblePlan, Option<&'p Became>)>,
) {
    let micros = |clocks: f64| clocks / f64::from(product.boost_mhz);
    if !arguments.json {
        println!("{:>10} {:>12}  {:<20} plan", "us", "predicted", "bound");
    }
    for (plan, outcome) in plans {
        let predicted = plan.time.map(|time| micros(time.clocks));
        if arguments.json {
            let (status, why) = match outcome {
                None => ("predicted", None),
                Some(Became::Time(_)) => ("ok", None),
                Some(Became::Wrong(why)) => ("wrong", Some(why)),
                Some(Became::Refused(why)) => ("refused", Some(why)),
            };
            let time = outcome.and_then(|outcome| if let Became::Time(time) = outcome { Some(time / 1e3) } else { None });
            let line = json!({
                "kind": "plan", "kernel": subject.kernel.name(), "arguments": arguments.launch.arguments, "product": product.name,
                "plan": plan.text, "predicted_us": predicted, "bound": plan.time.map(|time| time.bound), "status": status, "why": why,
                "us": time,
            });
            println!("{line}");
            continue;
        }
        let time = outcome.map_or("-".to_string(), |outcome| match outcome {
            Became::Time(time) => format!("{:.1}", time / 1e3),
            Became::Wrong(_) => "wrong".to_string(),
            Became::Refused(_) => "refused".to_string(),
        });
        let should = predicted.map_or("-".to_string(), |time| format!("{time:.1}"));
        println!("{time:>10} {should:>12}  {:<20} {}", plan.time.map_or("-", |time| time.bound), plan.summary);
    }
}

/// How well what plans should take orders what they take.
fn tell_order(tried: &[Tried]) {
    let pairs: Vec<(f64, f64)> = tried.iter().filter_map(|tried| Some((tried.plan.time?.clocks, tried.time()?))).collect();
    let (should, is): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    if let Some(correlation) = rank_correlation(&should, &is) {
        println!("rank correlation of predicted and measured times: {correlation:.2} ({} plans)", is.len());
    }
}

fn save(arguments: &Tune, best: Option<&PossiblePlan>) -> Outcome {
    match (&arguments.out, best) {
        (Some(path), Some(best)) => {
            write_text(path, &best.text)?;
            if !arguments.json {
                println!("wrote the plan that takes least to {path}");
            }
            Ok(())
        }
        (Some(_), None) => Err(Failure::usage("no plan could be timed, so none was written")),
        (None, _) => Ok(()),
    }
}
