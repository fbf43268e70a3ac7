//! The operator library as a suite: plans become subjects with guarded tensors and compiled kernels.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops;
use std::rc::Rc;
use std::sync::Arc;

use tessera_driver::DriverError;
use tessera_ops::{Argument, Fill, Inputs, Machine, Operator, Plan, Planned, Problem, Role};
use tessera_runtime::lock::{config_text, parse_config};
use tessera_runtime::{
    CompileOptions, Device, DriverDevice, Kernel, Lock, PreparedLaunch, ProfilerRange, RandomStream, Site, Tensor, TensorError,
};
use tessera_types::{DType, FloatFormat, IntFormat};

use crate::asked::{Asked, Manner, compile_fault, unsupported};
use crate::case::{CaseKey, Check, Expected, Fault, FlopClass, Lane, Metric, Output, Phase, Place, Poison, Size, Subject, Work};
use crate::clock::ClockFacts;
use crate::device::{Compiled, DeviceSubject, DeviceTensors, DeviceTimer, Launcher, Timing, launch_fault};
use crate::environment::{Accelerator, Environment};
use crate::guarded::{Guarded, memory_fault};
use crate::selection::{Entry, Selection, SelectionError, entries};
use crate::specials::plant;
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};
use crate::tolerance::as_stored;
use crate::tune::{Tunable, TunedLaunch, Ways};

/// The name of the product's own implementation in results.
pub const TESSERA: &str = "tessera";

/// Elements generated at a time.
const CHUNK: usize = 1 << 20;

/// How many of `count` elements are generated at a time.
pub(crate) fn chunk(fill: Fill, count: usize) -> usize {
    if fill.is_of_one_piece() { count.max(1) } else { CHUNK }
}

/// Cases of the operator library.
pub struct Library {
    name: String,
    entries: Vec<Entry>,
    cases: Vec<CaseSpec>,
    options: CompileOptions,
    device: Device,
    lock: Option<Arc<Lock>>,
    timer: OnceCell<Rc<RefCell<DeviceTimer>>>,
}

impl Library {
    /// The selected cases, to be run on a device.
    pub fn select(selection: &Selection, options: CompileOptions, device: Device) -> Result<Library, SelectionError> {
        let (entries, cases) = distinct(entries(selection, &device)?, &device);
        let name = selection.sizes.name().to_string();
        Ok(Library { name, entries, cases, options, device, lock: None, timer: OnceCell::new() })
    }

    /// These cases.
    pub fn of(entries: Vec<Entry>, options: CompileOptions, device: Device) -> Library {
        let (entries, cases) = distinct(entries, &device);
        Library { name: "given".to_string(), entries, cases, options, device, lock: None, timer: OnceCell::new() }
    }

    /// What the case of a number is of.
    pub fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The same cases, with choices from a lockfile.
    #[must_use]
    pub fn with_lock(self, lock: Option<Arc<Lock>>) -> Library {
        Library { lock, ..self }
    }

    /// Adds to each case the other ways that its operator has to cut it into blocks, so many of those that should take least: implementations that
    /// are called by their choices, `TK=64,TM=128,...`. Gives the cases that are cut in one way alone.
    pub fn add_ways(&mut self, most: usize) -> Vec<CaseKey> {
        let machine = Machine::of(&self.device);
        let mut without = Vec::new();
        for at in 0..self.cases.len() {
            let Entry { operator, problem, policy } = &self.entries[at];
            // What the operator does not offer, or a lockfile does not say, is told where it is run.
            let Ok(ways) = operator.ways(problem, *policy, machine) else { continue };
            let own = self.asked(&self.cases[at], TESSERA).and_then(|asked| asked.plan()).ok().and_then(|planned| planned.tuned);
            let own = own.map(|tuned| tuned.entry.config).or_else(|| Some(ways.first()?.way.clone()));
            let others = ways.iter().map(|possible| &possible.way).filter(|way| Some(*way) != own.as_ref());
            let others: Vec<String> = others.take(most).map(config_text).collect();
            if others.is_empty() && most > 0 {
                without.push(self.cases[at].key.clone());
            }
            self.cases[at].implementations.extend(others);
        }
        without
    }

    /// Adds to each case the rungs of its operator's ladder, from the simplest on.
    pub fn add_rungs(&mut self) {
        for (case, entry) in self.cases.iter_mut().zip(&self.entries) {
            case.implementations.extend(entry.operator.ladder.iter().map(|rung| rung.name.to_string()));
        }
    }

    /// The problems of its cases that have a gradient, or are one, each once: with the operator whose gradient it is.
    pub fn gradients(&self) -> Vec<(&'static Operator, Problem)> {
        let forward = |operator: &'static Operator| {
            if operator.gradient.is_some() { Some(operator) } else { operator.gradient_of() }
        };
        let mut seen = BTreeSet::new();
        let all = self.entries.iter().filter_map(|entry| Some((forward(entry.operator)?, entry.problem.clone())));
        all.filter(|(operator, problem)| seen.insert((operator.name, problem.clone()))).collect()
    }

    /// Keeps at most `most` cases of each operator and precision, the first ones of a fair order.
    pub fn limit(&mut self, most: usize, seed: u64) {
        let keys: Vec<&CaseKey> = self.cases.iter().map(|case| &case.key).collect();
        let order = crate::suite::fair_order(&keys, seed);
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut keep = vec![false; self.cases.len()];
        for index in order {
            let key = &self.cases[index].key;
            let count = counts.entry((key.operator.clone(), key.precision.clone())).or_default();
            *count += 1;
            keep[index] = *count <= most;
        }
        self.keep(&keep);
    }

    /// Keeps the cases that hold to a condition.
    pub fn retain(&mut self, condition: impl Fn(&CaseSpec) -> bool) {
        let keep: Vec<bool> = self.cases.iter().map(condition).collect();
        self.keep(&keep);
    }

    /// Keeps the cases whose flag is set.
    fn keep(&mut self, flags: &[bool]) {
        let mut own = flags.iter();
        self.cases.retain(|_| own.next() == Some(&true));
        let mut own = flags.iter();
        self.entries.retain(|_| own.next() == Some(&true));
    }
}

/// Each problem once, with its case: a suite's lists overlap.
fn distinct(entries: Vec<Entry>, device: &Device) -> (Vec<Entry>, Vec<CaseSpec>) {
    let mut seen = BTreeSet::new();
    let with_cases = entries.into_iter().map(|entry| (case_of(&entry, device), entry));
    with_cases.filter(|(case, _)| seen.insert(case.key.id())).map(|(case, entry)| (entry, case)).unzip()
}

fn case_of(entry: &Entry, device: &Device) -> CaseSpec {
    let plan = entry.operator.plan(&entry.problem, entry.policy, Machine::of(device));
    let work = plan.as_ref().map_or_else(|_| no_work(), |plan| work_of(plan, device));
    CaseSpec {
        key: CaseKey {
            operator: entry.operator.name.to_string(),
            size: Size::new(entry.problem.extents.iter().copied()),
            precision: entry.policy.to_string(),
            variant: entry.problem.variant.clone(),
            distribution: plan.as_ref().map_or(String::new(), distribution),
        },
        work,
        implementations: vec![TESSERA.to_string()],
    }
}

/// What to say of cases that are cut in one way alone, where somebody asked for others: a line for each operator and precision.
pub fn one_way_alone(cases: &[CaseKey]) -> Vec<String> {
    let kinds: BTreeSet<(&str, &str)> = cases.iter().map(|key| (key.operator.as_str(), key.precision.as_str())).collect();
    kinds.iter().map(|(operator, precision)| format!("`{operator}` in {precision} is cut into blocks in one way alone")).collect()
}

/// How an operator's implementation of a name does a case, a way by its choices and a rung by its name; `None` where the name is none of its.
pub(crate) fn manner(operator: &Operator, implementation: &str) -> Option<Manner> {
    let way = || parse_config(implementation).filter(|way| !way.is_empty()).map(Manner::Way);
    match implementation {
        TESSERA => Some(Manner::Own),
        name => operator.rung(name).map(Manner::Rung).or_else(way),
    }
}

fn distribution(plan: &Plan) -> String {
    match plan.tensors.first().map(|tensor| tensor.fill) {
        Some(Fill::Normal { mean, sd }) => format!("normal({mean},{sd})"),
        Some(Fill::Integers { least, greatest }) => format!("integers({least},{greatest})"),
        Some(Fill::Bounds { rows }) => format!("bounds({rows})"),
        Some(Fill::RowOffsets(_) | Fill::Columns(_) | Fill::Rows(_)) => "pattern".to_string(),
        Some(Fill::Places) => "places".to_string(),
        Some(Fill::Distinct { below }) => format!("distinct({below})"),
        None => String::new(),
    }
}

fn no_work() -> Work {
    Work {
        read_bytes: 0,
        write_bytes: 0,
        flops: 0,
        class: None,
        metric: Metric::Bandwidth,
        tensor_bytes: 0,
        formula: String::new(),
    }
}

fn work_of(plan: &Plan, device: &Device) -> Work {
    Work {
        read_bytes: plan.work.read_bytes,
        write_bytes: plan.work.write_bytes,
        flops: plan.work.flops,
        class: plan.work.compute.map(|compute| flop_class(compute, device)),
        metric: match plan.work.metric {
            tessera_ops::Metric::Bandwidth => Metric::Bandwidth,
            tessera_ops::Metric::Compute => Metric::Compute,
        },
        tensor_bytes: plan.tensor_bytes(),
        formula: plan.work.formula.to_string(),
    }
}

/// The arithmetic ceiling of products in a type: on a CPU narrow floats are widened to f32, a device has units for them.
fn flop_class(compute: DType, device: &Device) -> FlopClass {
    match compute {
        DType::F64 => FlopClass::F64,
        dtype if dtype.is_integer() => FlopClass::I8,
        _ if device.is_cpu() => FlopClass::F32,
        DType::TF32 => FlopClass::Tf32,
        DType::F16 => FlopClass::F16,
        DType::BF16 => FlopClass::Bf16,
        DType::F8E4M3 | DType::F8E5M2 => FlopClass::F8,
        _ => FlopClass::F32,
    }
}

impl Tunable for Library {
    fn launches(&self, case: &CaseSpec) -> Result<Vec<TunedLaunch>, Fault> {
        let asked = self.asked(case, TESSERA)?;
        let plan = asked.plan()?.plan;
        let tensors = plan.tensors.iter().enumerate().map(|(position, spec)| Guarded::new(position, spec, &Device::Cpu));
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        asked.launches(&plan, |position| tensors[position].view().clone())
    }

    fn ways(&self, case: &CaseSpec) -> Result<Option<Ways<'_>>, Fault> {
        let Entry { operator, problem, policy } = self.entry_of(case)?;
        let list = operator.ways(problem, *policy, Machine::of(&self.device)).map_err(unsupported)?;
        let key = operator.way_key(problem, *policy, Site::Device(&self.device)).filter(|_| list.len() > 1);
        let asked = self.asked(case, TESSERA)?;
        Ok(key.map(|key| Ways { key, list, launches: Box::new(move |ways| asked.launches_in(ways)) }))
    }
}
impl Library {
    /// A case as an implementation runs it.
    pub(crate) fn asked(&self, case: &CaseSpec, implementation: &str) -> Result<Asked, Fault> {
        let Library { options, device, lock, .. } = self;
        let entry = self.entry_of(case)?.clone();
        Ok(Asked {
            // Others work on the tensors of the operator's own plan.
            manner: manner(entry.operator, implementation).unwrap_or(Manner::Own),
            entry,
            options: options.clone(),
            device: device.clone(),
            lock: lock.clone(),
        })
    }

    fn entry_of(&self, case: &CaseSpec) -> Result<&Entry, Fault> {
        let position = self.cases.iter().position(|own| own.key == case.key);
        let entry = position.map(|position| &self.entries[position]);
        entry.ok_or_else(|| Fault::new(Status::HarnessError, "the case is not of this suite"))
    }

    /// The clock of a device; made when it is asked for first.
    pub(crate) fn timer(&self, device: &DriverDevice) -> Result<Rc<RefCell<DeviceTimer>>, DriverError> {
        if let Some(timer) = self.timer.get() {
            return Ok(Rc::clone(timer));
        }
        let timer = Rc::new(RefCell::new(DeviceTimer::new(device)?));
        Ok(Rc::clone(self.timer.get_or_init(|| timer)))
    }

    /// The clock of a device whose time means something.
    fn on_hardware(&self) -> Option<Rc<RefCell<DeviceTimer>>> {
        let Device::Driver(device) = &self.device else { return None };
        if self.has_time() { self.timer(device).ok() } else { None }
    }

    pub(crate) fn cases_mut(&mut self) -> &mut Vec<CaseSpec> {
        &mut self.cases
    }
}

impl Suite for Library {
    fn name(&self) -> &str {
        &self.name
    }

    fn cases(&self) -> &[CaseSpec] {
        &self.cases
    }

    fn has_time(&self) -> bool {
        match &self.device {
            Device::Cpu => true,
            Device::Driver(device) => !device.is_emulated(),
        }
    }

    fn range(&self, name: &str) -> Option<ProfilerRange> {
        match &self.device {
            Device::Cpu => None,
            Device::Driver(device) => Some(device.range(name)),
        }
    }

    fn accelerator(&self) -> Option<Accelerator> {
        Some(self.on_hardware()?.borrow().accelerator(Timing::COLD))
    }

    fn device_clock(&self) -> Option<ClockFacts> {
        self.on_hardware()?.borrow_mut().facts().ok()
    }

    fn available_bytes(&self) -> Option<u64> {
        match &self.device {
            Device::Cpu => Environment::available_bytes(),
            Device::Driver(device) => device.context().memory().ok().map(|(free, _)| free),
        }
    }

    fn is_lost(&self) -> bool {
        match &self.device {
            Device::Cpu => false,
            Device::Driver(device) => device.stream().synchronize().is_err_and(|error| error.poisons_context()),
        }
    }

    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let asked = self.asked(case, implementation)?;
        let Planned { plan, tuned } = asked.plan()?;
        match &self.device {
            Device::Cpu => {
                let kernels = asked.kernels(&plan).map_err(compile_fault)?;
                Ok(Box::new(PlanSubject::of_kernels(plan, kernels, &self.options, &self.device)?))
            }
            Device::Driver(device) => {
                let timer = self.timer(device).map_err(launch_fault)?;
                let plan = Rc::new(plan);
                let product = Rc::clone(&plan);
                let launcher = |tensors: &DeviceTensors| {
                    Ok(Box::new(Compiled::new(asked, (product, tuned), device, tensors)?) as Box<dyn Launcher>)
                };
                Ok(Box::new(DeviceSubject::build(plan, timer, Timing::COLD, launcher)?))
            }
        }
    }
}

/// `count` elements of a stream.
pub fn filled(stream: RandomStream, dtype: DType, count: usize, fill: Fill) -> Result<Tensor, TensorError> {
    match fill {
        Fill::Normal { mean, sd } => stream.normal_with(dtype, &[count], mean, sd),
        Fill::Integers { least, greatest } => stream.integers(dtype, &[count], least, greatest),
        Fill::Bounds { rows } => stream.bounds(dtype, count, rows),
        Fill::RowOffsets(pattern) => Tensor::from_vec(&[count], pattern.row_offsets()),
        Fill::Columns(pattern) => Tensor::from_vec(&[count], pattern.columns()),
        Fill::Rows(pattern) => Tensor::from_vec(&[count], pattern.rows()),
        Fill::Places => Tensor::from_vec(&[count], tessera_ops::places_of_fours(count)),
        Fill::Distinct { below } => stream.distinct(dtype, count, below),
    }
}

/// What the gate judges of a plan.
pub(crate) fn outputs_of(plan: &Plan) -> Vec<Output> {
    let output = |rows: &tessera_ops::OutputRows| {
        let spec = &plan.tensors[rows.tensor];
        Output {
            name: spec.name.to_string(),
            rows: rows.rows,
            row_len: rows.row_len,
            dtype: spec.dtype,
            check: if rows.exact { Check::Exact } else { Check::Bounded },
            decode: decoder(spec.dtype),
        }
    };
    plan.outputs.iter().map(output).collect()
}

/// A plan with its tensors and compiled kernels.
pub struct PlanSubject {
    plan: Plan,
    tensors: Tensors,
    kernels: Vec<Kernel>,
    launches: Vec<PreparedLaunch>,
    options: CompileOptions,
    device: Device,
    outputs: Vec<Output>,
    phases: Vec<Phase>,
    config: String,
    lane: Lane,
}

/// Fills a tensor's elements, a chunk at a time so that nothing as large as the tensor is held besides it, where the fill allows that.
fn generate(tensor: &Guarded, seed: u64, fill: Fill) -> Result<(), Fault> {
    let most = chunk(fill, tensor.span());
    for (chunk, start) in (0..tensor.span()).step_by(most).enumerate() {
        let count = most.min(tensor.span() - start);
        let stream = RandomStream::named(seed, &format!("{}.{chunk}", tensor.name()));
        let values = filled(stream, tensor.view().dtype(), count, fill);
        let part = tensor.inside(start..start + count)?;
        values.and_then(|values| part.copy_from(&values)).map_err(memory_fault)?;
    }
    Ok(())
}

impl PlanSubject {
    /// Allocates the tensors and compiles the launches, from a source text; `file` names it in messages.
    pub fn build(
        plan: Plan,
        (file, text): (&str, &str),
        options: &CompileOptions,
        device: &Device,
    ) -> Result<PlanSubject, Fault> {
        let kernels = plan.kernels(file, text).map_err(compile_fault)?;
        PlanSubject::of_kernels(plan, kernels, options, device)
    }

    fn of_kernels(plan: Plan, kernels: Vec<Kernel>, options: &CompileOptions, device: &Device) -> Result<PlanSubject, Fault> {
        let tensors = plan
            .tensors
            .iter()
            .enumerate()
            .map(|(position, spec)| Guarded::new(position, spec, device))
            .collect::<Result<Vec<_>, _>>()?;
        let launches = prepare(&plan, &kernels, &tensors, options, device)?;
        let mut phases: Vec<Phase> = Vec::new();
        let mut config = String::new();
        for (launch, prepared) in plan.launches.iter().zip(&launches) {
            for stage in prepared.stages() {
                // Source to Schedule IR, and everything that is done to that.
                let name = if stage.name == "lower" { "lower" } else { "optimise" };
                match phases.iter_mut().find(|phase| phase.name == name) {
                    Some(phase) => phase.ns += stage.time.as_nanos() as f64,
                    None => phases.push(Phase { name: name.to_string(), ns: stage.time.as_nanos() as f64 }),
                }
            }
            let tiles = launch.arguments.iter().filter_map(|(name, argument)| match argument {
                Argument::Int(value) if matches!(*name, "TM" | "TN" | "TK" | "TILE" | "ROWS") => Some(format!("{name}={value}")),
                _ => None,
            });
            if config.is_empty() {
                config = tiles.collect::<Vec<_>>().join(",");
            }
        }
        let before = vec![None; tensors.len()];
        let (outputs, tensors, lane) = (outputs_of(&plan), Tensors { list: tensors, before }, Lane::Case);
        let (options, device) = (options.clone(), device.clone());
        Ok(PlanSubject { plan, tensors, kernels, launches, options, device, outputs, phases, config, lane })
    }
}

/// A plan's launches on its tensors.
fn prepare(
    plan: &Plan,
    kernels: &[Kernel],
    tensors: &[Guarded],
    options: &CompileOptions,
    device: &Device,
) -> Result<Vec<PreparedLaunch>, Fault> {
    plan.prepare(kernels, |position| tensors[position].view().clone(), options, device).map_err(compile_fault)
}

/// The number that the code of an element stands for.
pub(crate) fn decoder(dtype: DType) -> fn(u64) -> f64 {
    macro_rules! table {
        ($($variant:ident),*) => {
            match dtype { $(DType::$variant => |code| match (FloatFormat::of(DType::$variant), IntFormat::of(DType::$variant)) {
                (Some(float), _) => float.decode(code),
                (None, Some(int)) => int.value(code) as f64,
                (None, None) => f64::from(u8::from(code != 0)),
            },)* }
        };
    }
    table!(F64, F32, TF32, F16, BF16, F8E4M3, F8E5M2, E8M0, F6E2M3, F6E3M2, F4E2M1, I64, I32, I16, I8, I4, U64, U32, U16, U8, B1)
}

/// A plan's tensors, as references read them.
struct Tensors {
    list: Vec<Guarded>,
    /// What those that are read and written hold before a launch.
    before: Vec<Option<Tensor>>,
}

impl Tensors {
    /// What a reference reads of a tensor.
    fn before(&self, tensor: usize) -> &Tensor {
        self.before[tensor].as_ref().unwrap_or_else(|| self.list[tensor].view())
    }
}

impl Inputs for Tensors {
    fn numbers(&self, tensor: usize, start: usize, out: &mut [f64]) {
        if self.before(tensor).read_f64(start, out).is_err() {
            out.fill(f64::NAN);
        }
    }

    fn codes(&self, tensor: usize, start: usize, out: &mut [u64]) {
        if self.before(tensor).read_codes(start, out).is_err() {
            out.fill(u64::MAX);
        }
    }
}

impl Subject for PlanSubject {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases.clone()
    }

    fn config(&self) -> String {
        self.config.clone()
    }

    fn has_exact_lane(&self) -> bool {
        self.plan.exact_lane
    }

    fn repeatable(&self) -> bool {
        self.plan.repeatable()
    }

    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        self.lane = lane;
        let Tensors { list, before } = &mut self.tensors;
        for ((spec, tensor), before) in self.plan.tensors.iter().zip(list).zip(before) {
            if matches!(spec.role, Role::Input | Role::InOut) {
                let fill = match lane {
                    Lane::Case | Lane::Special => spec.fill,
                    Lane::Exact => spec.fill.exact(),
                };
                generate(tensor, seed, fill)?;
                if lane == Lane::Special {
                    plant(&tensor.inside(0..tensor.span())?, tensor.name(), seed)?;
                }
            }
            if spec.role == Role::InOut {
                *before = Some(tensor.view().contiguous().map_err(memory_fault)?);
            }
        }
        Ok(())
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        for (tensor, before) in self.tensors.list.iter().zip(&self.tensors.before) {
            match before {
                Some(before) => tensor.view().copy_from(before).map_err(memory_fault)?,
                None => tensor.poison(poison)?,
            }
        }
        Ok(())
    }

    fn relocate(&mut self, place: Place) -> Result<(), Fault> {
        let moved = self.tensors.list.iter().map(|tensor| tensor.moved(place)).collect::<Result<Vec<_>, _>>()?;
        self.launches = prepare(&self.plan, &self.kernels, &moved, &self.options, &self.device)?;
        self.tensors.list = moved;
        Ok(())
    }

    fn rebuild(&mut self) -> Result<(), Fault> {
        self.launches = prepare(&self.plan, &self.kernels, &self.tensors.list, &self.options, &self.device)?;
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Fault> {
        for launch in &self.launches {
            launch.run().map_err(|error| Fault::new(Status::RuntimeError, error.to_string()))?;
        }
        Ok(())
    }

    fn read(&self, output: usize, rows: ops::Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        let out = &self.outputs[output];
        let view = self.tensors.list[self.plan.outputs[output].tensor].view();
        view.read_codes(rows.start * out.row_len, codes).map_err(|error| Fault::new(Status::HarnessError, error.to_string()))
    }

    fn expect(&self, output: usize, rows: ops::Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        match expected {
            Expected::Codes(codes) => {
                self.plan.reference.rows(&self.tensors, output, rows, tessera_ops::Expected::Codes(codes));
            }
            Expected::Values { want, bound } => {
                let answer = tessera_ops::Expected::Bounded { want: &mut *want, bound: &mut *bound };
                self.plan.reference.rows(&self.tensors, output, rows, answer);
                as_stored(self.outputs[output].dtype, self.lane, want, bound);
            }
        }
        Ok(())
    }

    fn input_digest(&self) -> Result<u64, Fault> {
        let mut digest = crate::random::Digest::default();
        for tensor in self.tensors.list.iter().filter(|tensor| tensor.role() == Role::Input) {
            digest.word(tensor.inside(0..tensor.span())?.digest().map_err(memory_fault)?);
        }
        Ok(digest.finish())
    }

    fn damaged_guard(&self) -> Option<String> {
        self.tensors.list.iter().find_map(Guarded::damage)
    }
}
