//! From optimised Schedule IR to code for a GPU: layouts, Target IR, its optimiser, PTX.

use std::time::Instant;

use tessera_ir::text::{parse_plan, print_module, print_plan};
use tessera_ir::{
    Diagnostic, Fallback, Func, Level, Module, PassFailure, PassManager, PassTime, Plan, Reason, Reproducer, Severity, SourceId,
    caught, verify,
};
use tessera_ptx::ssa;
use tessera_types::{Arch, Device};

use crate::driver::{Compiled, Stage};
use crate::ladder::{Attempt, Ladder, Partition, is_too_large};
use crate::passes::all_of;
use crate::pipeline::OptLevel;
use crate::tile::{Candidate, Forecast, Launch, Remarks, Time, Units, candidates, find_place, forecasts, time_of};
use tessera_lang::kernel_option_takes;
use tessera_target::{TargetKernel, lower};

/// A kernel compiled for a GPU.
#[derive(Clone, Debug)]
pub struct DeviceCompiled {
    /// The kernel in Tile IR, with the texts that its places are in.
    pub tile: Module,
    /// The kernel in Target IR, optimised, with what a launch must know.
    pub kernel: TargetKernel,
    /// Which recipes were asked, and what they said.
    pub remarks: Remarks,
    /// The plan that was carried out, as text; none where all warps do the same and nothing is brought ahead.
    pub plan: Option<String>,
    /// What the rounds of its loops should take.
    pub forecasts: Vec<Forecast>,
    /// The partitions that were tried, in order.
    pub attempts: Vec<Attempt>,
    /// The one of them that was taken.
    pub taken: usize,
    /// Why tiles were not cut further, where that was asked.
    pub whole: Option<Reason>,
    /// What was done behind the stages of [`Compiled`], in order.
    pub stages: Vec<Stage>,
}

impl DeviceCompiled {
    /// What was given up to make the kernel fit the target, and what would do without; `None` where nothing was.
    pub fn remark(&self) -> Option<Diagnostic> {
        let taken = &self.attempts[self.taken];
        let (first, changed) = (self.attempts.first()?, taken.partition.changes());
        let dearest = taken.dearest().filter(|fallback| fallback.cost > 0);
        if !changed && dearest.is_none() {
            return None;
        }
        let cause = match (changed, &first.outcome) {
            (false, _) => &dearest?.note,
            // What the kernel asks for as it was written.
            (true, Err(error)) => error,
            (true, Ok(_)) => &first.dearest()?.note,
        };
        let target = &self.kernel.image.target;
        let message = match changed {
            true => format!(
                "`{}` is done {} on `{target}`; as it is written, {}",
                self.kernel.image.entry,
                taken.partition.text(),
                cause.message
            ),
            false => cause.message.clone(),
        };
        let mut remark = Diagnostic { message, ..cause.clone() }.severity(Severity::Note);
        if let Some(fallback) = dearest.filter(|_| changed) {
            remark = remark.note(format!("this way {}", fallback.note.message));
        }
        if let Some(cost) = taken.cost().filter(|&cost| cost > 0) {
            remark = remark.note(format!("it costs some {cost} instructions a thread; `--emit report` says what else was tried"));
        }
        Some(remark)
    }
}

/// A kernel in one partition.
struct Made {
    tile: Module,
    kernel: TargetKernel,
    staged: Staged,
}

/// What the staging passes said, and the plan that came of it.
#[derive(Default)]
struct Staged {
    remarks: Remarks,
    plan: Option<String>,
    forecasts: Vec<Forecast>,
}

/// Compiles an optimised kernel for an architecture. A kernel of Tile IR is taken as it is.
///
/// # Errors
/// What the architecture does not have; more threads or shared memory than a block has there, whatever is done about it; an option of the
/// caller's that changes nothing there.
pub fn compile_for(compiled: &Compiled, arch: Arch, level: OptLevel) -> Result<DeviceCompiled, Vec<Diagnostic>> {
    reproducible(compiled, arch, level, || {
        let device = for_device(compiled, arch, level)?;
        match idle_option(compiled, arch, level, &device) {
            Some(error) => Err(vec![error]),
            None => Ok(device),
        }
    })
}

/// An error for the first option that a caller chose by name and that comes to nothing: with other values of it, and without it, the kernel is the
/// same.
fn idle_option(compiled: &Compiled, arch: Arch, level: OptLevel, device: &DeviceCompiled) -> Option<Diagnostic> {
    let func = compiled.func();
    let entries = func.hints.entries();
    let hints = entries.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let (name, _) = hints.filter(|(name, _)| compiled.asked.iter().any(|asked| asked == name)).find(|&(name, value)| {
        // It chose the level.
        if name == "opt_level" {
            return false;
        }
        let values = [2 * value, value / 2].into_iter().filter(|&other| other != value && kernel_option_takes(name, other));
        let mut others = std::iter::once(None).chain(values.map(Some)).filter_map(|other| {
            let mut compiled = compiled.clone();
            compiled.module.funcs[0].hints.set(name, other);
            for_device(&compiled, arch, level).ok()
        });
        // One whose other values are all refused means something.
        let same =
            |other: &DeviceCompiled| other.kernel.image == device.kernel.image && other.kernel.ptx() == device.kernel.ptx();
        others.next().is_some_and(|other| same(&other)) && others.all(|other| same(&other))
    })?;
    let mut error =
        Diagnostic::error("config-value", func.span, format!("`{name}` changes nothing in `{}` on `{arch}`", func.name));
    for reason in device.remarks.asked.iter().filter_map(|remark| remark.refusal.as_ref()) {
        error = error.note(reason.text.clone());
    }
    Some(error.help("leave it out"))
}

/// Does a part of the work on a kernel; a mistake of ours that it ends with gets what it was given ([`Reproducer`]).
///
/// # Errors
/// What the work says.
pub fn reproducible<T>(
    compiled: &Compiled,
    arch: Arch,
    level: OptLevel,
    work: impl FnOnce() -> Result<T, Vec<Diagnostic>>,
) -> Result<T, Vec<Diagnostic>> {
    caught(work).map_err(|mut found| {
        for ours in found.iter_mut().filter(|found| found.severity == Severity::Bug) {
            ours.reproducer = Some(Box::new(reproducer(compiled, arch, level)));
        }
        found
    })
}

/// What this half of the compiler was given.
fn reproducer(compiled: &Compiled, arch: Arch, level: OptLevel) -> Reproducer {
    let plan = compiled.plan.map_or(String::new(), |plan| format!(" --plan {}", compiled.module.sources.get(plan).name));
    let arguments = format!("::{} --target {arch} -{level}{plan} --emit ptx", compiled.func().name);
    Reproducer { text: print_module(&compiled.module), arguments }
}

fn for_device(compiled: &Compiled, arch: Arch, level: OptLevel) -> Result<DeviceCompiled, Vec<Diagnostic>> {
    let mut stages = Vec::new();
    let [forms, _, _] = level.staging_pass_names();
    let mut prepared = compiled.module.clone();
    run(&mut prepared, arch, forms, &mut stages)?;
    if let Some(source) = compiled.plan {
        plan_by_hand(&mut prepared, source, level)?;
    }
    let mut ladder = Ladder::new(&prepared.funcs[0], arch);
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut best: Option<(usize, u64, Made)> = None;
    while let Some(partition) = ladder.next(&attempts) {
        let (attempt, made) = attempt(&prepared, arch, level, partition, &mut stages)?;
        if let (Some(cost), Some(made)) = (attempt.cost(), made)
            && best.as_ref().is_none_or(|(_, least, _)| cost < *least)
        {
            best = Some((attempts.len(), cost, made));
        }
        attempts.push(attempt);
    }
    let Some((taken, _, Made { tile, mut kernel, staged: Staged { remarks, plan, forecasts } })) = best else {
        // What it asks for as it was written.
        return Err(attempts.into_iter().filter_map(|attempt| attempt.outcome.err()).take(1).collect());
    };
    let start = Instant::now();
    let level = match level {
        OptLevel::O0 => ssa::Level::O0,
        OptLevel::O1 => ssa::Level::O1,
        OptLevel::O2 | OptLevel::O3 => ssa::Level::O2,
    };
    kernel.image.launch.tiles = compiled.grid.as_ref().map(|grid| grid.tiles.clone());
    ssa::optimize(&mut kernel.kernel, level);
    stages.push(stage("optimise-target", start));
    Ok(DeviceCompiled { tile, kernel, remarks, plan, forecasts, attempts, taken, whole: ladder.whole, stages })
}

/// A plan that a kernel can have.
#[derive(Clone, Debug, PartialEq)]
pub struct PossiblePlan {
    /// The plan, as `--plan` takes it.
    pub text: String,
    /// The same in one line.
    pub summary: String,
    /// What a launch under it should take; nothing where the target's parts were measured by nobody.
    pub time: Option<Time>,
}

/// Every plan that is tried for an optimised kernel on a product, those first that should take least of a launch. None where it has no
/// products, or is a program of threads.
///
/// # Errors
/// What the architecture does not have.
pub fn possible_plans(
    compiled: &Compiled,
    device: &Device,
    level: OptLevel,
    launch: &Launch,
) -> Result<Vec<PossiblePlan>, Vec<Diagnostic>> {
    reproducible(compiled, device.arch, level, || {
        let [forms, proposing, _] = level.staging_pass_names();
        let mut prepared = compiled.module.clone();
        run(&mut prepared, device.arch, forms, &mut Vec::new())?;
        let func = &mut prepared.funcs[0];
        if proposing.is_empty() || func.level != Level::Schedule {
            return Ok(Vec::new());
        }
        let found = candidates(func, &Units::of(func, device.arch), device, launch);
        let text = |plan: Plan, func: &mut Func| {
            func.plan = Some(plan);
            print_plan(func)
        };
        let possible = |one: Candidate| {
            let summary = one.plan.summary();
            Some(PossiblePlan { text: text(one.plan, func)?, summary, time: one.time })
        };
        Ok(found.into_iter().filter_map(possible).collect())
    })
}

/// The plan that the compiler would choose for an optimised kernel on a product, with what a launch under it should take; `None` where nothing
/// of it is planned.
///
/// # Errors
/// What the architecture does not have.
pub fn own_plan(
    compiled: &Compiled,
    device: &Device,
    level: OptLevel,
    launch: &Launch,
) -> Result<Option<PossiblePlan>, Vec<Diagnostic>> {
    reproducible(compiled, device.arch, level, || {
        let [forms, proposing, _] = level.staging_pass_names();
        let mut prepared = compiled.module.clone();
        run(&mut prepared, device.arch, forms, &mut Vec::new())?;
        if prepared.funcs[0].level != Level::Schedule {
            return Ok(None);
        }
        let mut proposed = prepared.clone();
        run(&mut proposed, device.arch, proposing, &mut Vec::new())?;
        let Some(plan) = proposed.funcs[0].plan.clone() else { return Ok(None) };
        let Some(text) = print_plan(&proposed.funcs[0]) else { return Ok(None) };
        let time = time_of(&prepared.funcs[0], &plan, device, launch);
        Ok(Some(PossiblePlan { text, summary: plan.summary(), time }))
    })
}

/// Gives the kernel the plan that its user wrote.
fn plan_by_hand(module: &mut Module, source: SourceId, level: OptLevel) -> Result<(), Vec<Diagnostic>> {
    let text = module.sources.get(source).text.clone();
    let func = &mut module.funcs[0];
    let no = |message: &str, help: &str| Err(vec![Diagnostic::bare("plan", message).help(help)]);
    if func.level != Level::Schedule {
        return no("a per-thread kernel has no plan: its source says what each thread does", "leave out `--plan`");
    }
    if level == OptLevel::O0 {
        return no("at `-O0` no plan is carried out", "compile with `-O1` or more, or leave out `--plan`");
    }
    func.plan = Some(parse_plan(source, &text, func).map_err(|found| vec![*found])?);
    Ok(())
}

/// Runs passes by name, and notes what each took.
fn run(module: &mut Module, arch: Arch, names: &[&str], stages: &mut Vec<Stage>) -> Result<Vec<PassTime>, Vec<Diagnostic>> {
    let runs =
        PassManager { target: Some(arch), ..PassManager::default() }.run(module, &all_of(names)).map_err(PassFailure::told)?;
    stages.extend(runs.iter().map(|run| Stage { name: run.pass, time: run.time, changed: run.changed, text: run.text.clone() }));
    Ok(runs)
}

fn stage(name: &'static str, start: Instant) -> Stage {
    Stage { name, time: start.elapsed(), changed: true, text: None }
}

/// Lays the kernel out in one way, runs the passes over Tile IR, and lowers it.
fn attempt(
    prepared: &Module,
    arch: Arch,
    level: OptLevel,
    partition: Partition,
    stages: &mut Vec<Stage>,
) -> Result<(Attempt, Option<Made>), Vec<Diagnostic>> {
    let (mut tile, staged) = in_partition(prepared, arch, level, &partition, stages)?;
    let (recipe, threads) = (staged.remarks.chosen(), tile.funcs[0].hints.threads());
    let (outcome, made) = match on_target(&mut tile, arch, level, stages) {
        Ok((kernel, fallbacks)) => (Ok(fallbacks), Some(Made { tile, kernel, staged })),
        Err(mut found) if found.len() == 1 && found.iter().all(is_too_large) => (Err(found.remove(0)), None),
        Err(found) => return Err(found),
    };
    Ok((Attempt { partition, recipe, threads, outcome }, made))
}

/// Runs the passes over Tile IR, then lowers the kernel.
fn on_target(
    tile: &mut Module,
    arch: Arch,
    level: OptLevel,
    stages: &mut Vec<Stage>,
) -> Result<(TargetKernel, Vec<Fallback>), Vec<Diagnostic>> {
    let runs = run(tile, arch, level.tile_pass_names(), stages)?;
    let fallbacks = runs.into_iter().flat_map(|run| run.fallbacks).collect();
    let start = Instant::now();
    let kernel = lower(tile, &tile.funcs[0], arch).map_err(|error| vec![error])?;
    stages.push(stage("target", start));
    Ok((kernel, fallbacks))
}

/// The kernel in Tile IR, with what the staging passes said and the plan that they carried out.
fn in_partition(
    prepared: &Module,
    arch: Arch,
    level: OptLevel,
    partition: &Partition,
    stages: &mut Vec<Stage>,
) -> Result<(Module, Staged), Vec<Diagnostic>> {
    let mut tile = prepared.clone();
    let func = &mut tile.funcs[0];
    if func.level == Level::Tile {
        return Ok((tile, Staged::default()));
    }
    partition
        .strips
        .cut(func)
        .map_err(|reason| vec![Diagnostic::error("target-broken", reason.span.unwrap_or(func.span), reason.text).ours()])?;
    func.hints.num_warps = partition.warps.or(func.hints.num_warps);
    func.hints.exchange_bytes = partition.exchange(arch).or(func.hints.exchange_bytes);
    func.hints.ring_bytes = partition.rings(arch).or(func.hints.ring_bytes);
    let [_, staging, spreading] = level.staging_pass_names();
    let staging = partition.recipes.asked(staging);
    let by_hand = func.plan.is_some();
    let runs = run(&mut tile, arch, &staging, stages)?;
    let func = &mut tile.funcs[0];
    if let (Some(least), Some(plan)) = (partition.copying, &mut func.plan) {
        find_place(plan, least);
    }
    let forecasts = func.plan.as_ref().map_or_else(Vec::new, |plan| forecasts(func, plan, arch));
    let remarks = if by_hand { Remarks::by_hand() } else { Remarks::of(&runs, &staging) };
    let staged = Staged { remarks, plan: print_plan(func), forecasts };
    run(&mut tile, arch, spreading, stages)?;
    let wrong = verify(&tile);
    if wrong.is_empty() { Ok((tile, staged)) } else { Err(wrong) }
}
