//! The candidates of a launch: points of the kernel's space, each with the compiler's own plan, and the plans that the best of them can have.
//!
//! ```text
//! 180 legal points   --what each should take, with its own plan-->   the best 4   --every plan-->   all in order, the first N are tried
//! ```
//!
//! The first is what is taken without a choice: the point that should take least. Ways to cut a case into blocks are a field as they are.
//!
//! The model speaks of plans alone: on the CPU, for programs of threads and for kernels without products every point stays in, in the order of the
//! space. A block program without a space and without plans has its hints: warps of a block, and blocks of a multiprocessor.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tessera_ops::PossibleWay;
use tessera_runtime::lock::config_text;
use tessera_runtime::{
    CompileOptions, Device, Kernel, KernelError, LaunchGrid, Point, PossiblePlan, Question, TensorError, Value,
};
use tessera_types::Device as Product;

/// Points whose plans are all looked at.
const WITH_PLANS: usize = 4;
/// Hints that are tried where nothing else can be chosen; 0 leaves the compiler its way.
const WARPS: [i64; 5] = [0, 2, 4, 8, 16];
const RESIDENT: [i64; 3] = [0, 2, 4];

/// A launch whose choice is looked for.
#[derive(Clone, Debug)]
pub struct TunedLaunch {
    /// The kernel, without a lockfile.
    pub kernel: Kernel,
    /// Arguments, on the CPU or on the device.
    pub arguments: Vec<(String, Value)>,
    /// Blocks.
    pub grid: LaunchGrid,
    /// How it is compiled without a choice.
    pub options: CompileOptions,
}

/// A choice that can be tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Choices of the schedule by name.
    pub config: BTreeMap<String, i64>,
    /// The plan, where something of the kernel is planned.
    pub plan: Option<PossiblePlan>,
    /// Whether the plan is another one than the compiler's own.
    pub is_planned: bool,
    /// What a launch should take, where the model says that.
    pub predicted: Option<Predicted>,
}

/// What a launch should take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Microseconds.
    pub micros: f64,
    /// What bounds it, where the model says that too.
    pub bound: Option<&'static str>,
}

impl Predicted {
    /// A time of the model's, in clocks.
    fn of(clocks: f64, bound: Option<&'static str>, product: &Product) -> Predicted {
        Predicted { micros: clocks / f64::from(product.boost_mhz), bound }
    }
}

impl Candidate {
    /// The choice in one line: `BLOCK_M=64, copy 4 warps ...`.
    pub fn summary(&self) -> String {
        let config = (!self.config.is_empty()).then(|| config_text(&self.config));
        let plan = self.plan.as_ref().map(|plan| plan.summary.clone());
        let parts: Vec<String> = config.into_iter().chain(plan).collect();
        if parts.is_empty() { "as it is".to_string() } else { parts.join(", ") }
    }
}

/// All candidates of a launch; the first is what is taken without a choice, the others follow in the order of what they should take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Field {
    /// See above.
    pub candidates: Vec<Candidate>,
    /// Points of the space that the target cannot run, and why the first one cannot.
    pub pruned: (usize, Option<String>),
    /// Choices of the space that change nothing in this kernel.
    pub idle: Vec<String>,
    /// Names of the decorator's `key` that are no axis and no argument.
    pub unknown: Vec<String>,
}

impl Field {
    /// Ways to cut a case into blocks, in their order; on a product with what they should take.
    pub fn of_ways(ways: Vec<PossibleWay>, product: Option<&Product>) -> Field {
        let candidate = |PossibleWay { way, clocks }| {
            let predicted = product.map(|product| Predicted::of(clocks, None, product));
            Candidate { config: way, predicted, ..Candidate::default() }
        };
        Field { candidates: ways.into_iter().map(candidate).collect(), ..Field::default() }
    }
}

impl TunedLaunch {
    /// Arguments as a launch takes them.
    pub fn by_name(&self) -> Vec<(&str, Value)> {
        self.arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
    }

    fn with(&self, config: &BTreeMap<String, i64>, target: Option<&Product>) -> CompileOptions {
        let own = |product: &Product| product.arch.name().to_string();
        let target = self.options.target.clone().or_else(|| target.map(own));
        let config = config.iter().map(|(name, value)| (name.clone(), *value)).collect();
        CompileOptions { searched: true, config, target, ..self.options.clone() }
    }

    /// The candidates on a product, or on the CPU where none is given.
    ///
    /// # Errors
    /// Where the kernel does not take its arguments.
    pub fn field(&self, product: Option<&Product>) -> Result<Field, KernelError> {
        let arguments = self.by_name();
        let types = self.kernel.argument_types(&arguments)?;
        let options = self.with(&BTreeMap::new(), product);
        let unknown = self.kernel.unknown_key_names(&Question::of_launch(&arguments, &types), &options)?;
        let Some(product) = product else {
            let choices = self.kernel.choices(&types, &options)?;
            let plain = |config| Candidate { config, ..Candidate::default() };
            let candidates = choices.points.into_iter().map(plain).collect();
            return Ok(Field { candidates, pruned: choices.pruned, idle: choices.idle, unknown });
        };
        let (points, choices) = self.kernel.ranked_points(&arguments, self.grid, &options, product)?;
        let own = |Point { config, plan }| {
            let predicted = plan.as_ref().and_then(|plan| predicted(plan, product));
            Candidate { config, plan, is_planned: false, predicted }
        };
        let points: Vec<Candidate> = points.into_iter().map(own).collect();
        let planned = |of: &Candidate| {
            let options = self.with(&of.config, Some(product));
            let plans = self.kernel.possible_plans(&arguments, self.grid, &options, product)?;
            let is_own = |plan: &PossiblePlan| of.plan.as_ref().is_some_and(|own| own.text == plan.text);
            let with = |plan: PossiblePlan| Candidate {
                config: of.config.clone(),
                predicted: predicted(&plan, product),
                is_planned: true,
                plan: Some(plan),
            };
            Ok(plans.into_iter().filter(|plan| !is_own(plan)).map(with).collect())
        };
        let planned: Result<Vec<Vec<Candidate>>, KernelError> = points.par_iter().take(WITH_PLANS).map(planned).collect();
        let planned = planned?.concat();
        let mut points = points.into_iter();
        let own = points.next();
        let mut others: Vec<Candidate> = points.chain(planned).collect();
        if others.is_empty() && self.kernel.takes_hints() {
            others.extend(hints());
        }
        others.sort_by(|a, b| micros(a).total_cmp(&micros(b)));
        let candidates = own.into_iter().chain(others).collect();
        Ok(Field { candidates, pruned: choices.pruned, idle: choices.idle, unknown })
    }
}

/// Every pair of hints but the one that hints at nothing.
fn hints() -> impl Iterator<Item = Candidate> {
    let pairs = WARPS.into_iter().flat_map(|warps| RESIDENT.map(|blocks| [("num_warps", warps), ("occupancy", blocks)]));
    let config = pairs.map(|pair| -> BTreeMap<String, i64> {
        pair.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_string(), value)).collect()
    });
    config.filter(|config| !config.is_empty()).map(|config| Candidate { config, ..Candidate::default() })
}

fn predicted(plan: &PossiblePlan, product: &Product) -> Option<Predicted> {
    plan.time.map(|time| Predicted::of(time.clocks, Some(time.bound), product))
}

fn micros(candidate: &Candidate) -> f64 {
    candidate.predicted.map_or(f64::INFINITY, |predicted| predicted.micros)
}

/// The arguments with their arrays on a device.
pub(super) fn on_device(launch: &TunedLaunch, device: &Device) -> Result<Vec<(String, Value)>, TensorError> {
    let value = |value: &Value| -> Result<Value, TensorError> {
        Ok(match value {
            Value::Tensor(tensor) => Value::Tensor(tensor.to_device(device)?),
            Value::List(items) => Value::List(items.iter().map(|item| item.to_device(device)).collect::<Result<_, _>>()?),
            other => other.clone(),
        })
    };
    launch.arguments.iter().map(|(name, own)| Ok((name.clone(), value(own)?))).collect()
}
