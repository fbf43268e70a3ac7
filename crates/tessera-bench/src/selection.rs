//! Which cases of the operator library are taken: operators, precisions and sizes as somebody names them.
//!
//! Whoever names something wants it checked: an operator, precision or variant that gets no case is an error that says what there is.

use tessera_ops::{Draw, Machine, OPERATORS, Operator, Problem};
use tessera_runtime::Device;
use tessera_types::Policy;

use crate::random::{Digest, Random};

/// One row of the suite before it is built.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The operator.
    pub operator: &'static Operator,
    /// Extents and variant.
    pub problem: Problem,
    /// Precision.
    pub policy: Policy,
}

/// Why a selection of cases makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// No operator has that name.
    #[error("`{0}` is not an operator\nhelp: `tessera list ops` lists them")]
    Operator(String),
    /// The policy grammar does not have it.
    #[error("`{0}` is not a precision\nhelp: `tessera list precisions` lists them")]
    Precision(String),
    /// No chosen operator takes it.
    #[error("none of the chosen operators takes `{precision}`\nhelp: {known}")]
    Untaken {
        /// The precision.
        precision: String,
        /// What each of them takes.
        known: String,
    },
    /// An operator that was named has no case in what else was named.
    #[error("`{operator}` has no case of these sizes and precisions\nhelp: {help}")]
    Empty {
        /// The operator.
        operator: &'static str,
        /// What it has.
        help: String,
    },
    /// The sizes and variant that were given are none of the operator's.
    #[error("`{operator}` does not do {sizes}: {why}\nhelp: with these sizes its variants are {variants}")]
    Variant {
        /// The operator.
        operator: &'static str,
        /// The sizes and the variant.
        sizes: String,
        /// What is in the way.
        why: String,
        /// What it does.
        variants: String,
    },
    /// A number that a chosen operator does not have.
    #[error("`{number}` is no number of {operator}")]
    Number {
        /// The number.
        number: String,
        /// The operator.
        operator: &'static str,
    },
    /// An extent that no chosen operator has.
    #[error("`{extent}` is not an extent of {operator}, which has {known}")]
    Extent {
        /// The extent.
        extent: String,
        /// The operator, with its variant where one was named.
        operator: String,
        /// Its extents.
        known: String,
    },
}

/// Which problem sizes are taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// The quick subset.
    Quick,
    /// The seed suite.
    Seed,
    /// The seed suite and what goes beyond.
    All,
    /// Small problems at the edges of the kernels' tiles.
    Edges,
    /// Problems of each of these shapes, in their order.
    Given(Vec<Shapes>),
    /// So many problems of each operator, of random sizes and in its precisions in turn.
    Random {
        /// Problems of each operator.
        count: usize,
        /// From which they are drawn.
        seed: u64,
    },
}

/// Problems that somebody names by their extents and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shapes {
    /// Extents, each of them in all of its values.
    pub extents: Vec<(String, Vec<u64>)>,
    /// Numbers such as `alpha`, likewise; those that are absent have their usual values.
    pub numbers: Vec<(String, Vec<f64>)>,
    /// The variant; every one when absent.
    pub variant: Option<String>,
}

impl Sizes {
    /// The name in results.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Sizes::Quick => "quick",
            Sizes::Seed => "seed",
            Sizes::All => "all",
            Sizes::Edges => "edges",
            Sizes::Given(..) => "given",
            Sizes::Random { .. } => "random",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Operators by name; all when empty.
    pub operators: Vec<String>,
    /// Precisions; those of the sizes when empty.
    pub precisions: Vec<String>,
    /// Sizes.
    pub sizes: Sizes,
}

impl Selection {
    /// Its rows for a kind of machine, in the order of the library's lists.
    ///
    /// # Errors
    /// What nothing is selected by.
    pub fn entries(&self, machine: Machine) -> Result<Vec<Entry>, SelectionError> {
        entries_for(self, machine, PATIENT)
    }
}

/// The rows of a selection, in the order of the library's lists.
pub(crate) fn entries(selection: &Selection, device: &Device) -> Result<Vec<Entry>, SelectionError> {
    entries_for(selection, Machine::of(device), effort(device))
}

fn entries_for(selection: &Selection, machine: Machine, effort: (u64, u64)) -> Result<Vec<Entry>, SelectionError> {
    let operators = chosen(&selection.operators)?;
    let wanted: Vec<(&String, Policy)> = selection
        .precisions
        .iter()
        .map(|text| text.parse().map(|policy| (text, policy)).map_err(|_| SelectionError::Precision(text.clone())))
        .collect::<Result<_, _>>()?;
    for (text, policy) in &wanted {
        if !operators.iter().any(|operator| accepted(operator).iter().any(|own| own.canonical() == policy.canonical())) {
            let precision = (*text).clone();
            return Err(SelectionError::Untaken { precision, known: taken(&operators) });
        }
    }
    let wanted: Vec<Policy> = wanted.into_iter().map(|(_, policy)| policy).collect();
    let mut entries = Vec::new();
    for operator in operators {
        let mut own = entries_of(operator, &selection.sizes, &wanted, (machine, effort))?;
        if selection.sizes == Sizes::Quick && selection.operators.is_empty() && selection.precisions.is_empty() {
            own.truncate(quick_rows(operator));
        }
        if own.is_empty() && !selection.operators.is_empty() {
            return Err(SelectionError::Empty { operator: operator.name, help: what_there_is(operator, &selection.sizes) });
        }
        entries.extend(own);
    }
    Ok(entries)
}

/// Operators that reports have most often: matrix products, rows and the benchmark suite's. In the quick suite they have all of their rows, and they have
/// colours of their own, in this order.
pub(crate) const FOREMOST: [&str; 13] = [
    "gemm",
    "attention",
    "softmax",
    "layer_norm",
    "rms_norm",
    "vector",
    "bandwidth",
    "linear_w4",
    "gemm_scaled",
    "linear",
    "permute",
    "gemm_grouped",
    "histogram",
];

/// Rows that an operator has in the quick suite of all of them: the foremost theirs, others one, and gradients none, which stands beside its operator's
/// in `--sizes all`.
fn quick_rows(operator: &Operator) -> usize {
    match (operator.gradient_of().is_some(), FOREMOST.contains(&operator.name)) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => usize::MAX,
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Operator>, SelectionError> {
    if names.is_empty() {
        return Ok(OPERATORS.to_vec());
    }
    names.iter().map(|name| tessera_ops::find(name).ok_or_else(|| SelectionError::Operator(name.clone()))).collect()
}

/// Policies that an operator's plans take.
fn accepted(operator: &Operator) -> Vec<Policy> {
    operator.precisions.iter().chain(operator.further_precisions).filter_map(|text| text.parse().ok()).collect()
}

fn taken(operators: &[&'static Operator]) -> String {
    let of = |operator: &&Operator| {
        let names: Vec<&str> = operator.precisions.iter().chain(operator.further_precisions).copied().collect();
        format!("`{}` takes {}", operator.name, names.join(", "))
    };
    operators.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// What to name instead, for an operator that has no case.
fn what_there_is(operator: &'static Operator, sizes: &Sizes) -> String {
    let lists = [("quick", !(operator.quick)().is_empty()), ("seed", !(operator.suite)().is_empty()), ("all", true)];
    let named: Vec<&str> = lists.iter().filter(|(name, has)| *has && *name != sizes.name()).map(|(name, _)| *name).collect();
    format!("it has cases in `--sizes {}`; {}", named.join("`, `"), taken(&[operator]))
}

fn entries_of(
    operator: &'static Operator,
    sizes: &Sizes,
    wanted: &[Policy],
    (machine, effort): (Machine, (u64, u64)),
) -> Result<Vec<Entry>, SelectionError> {
    let is_wanted = |policy: &Policy| wanted.is_empty() || wanted.iter().any(|w| w.canonical() == policy.canonical());
    let policies: Vec<Policy> = match wanted.is_empty() {
        true => operator.precisions.iter().filter_map(|text| text.parse().ok()).collect(),
        false => accepted(operator).into_iter().filter(is_wanted).collect(),
    };
    let crossed = |problems: Vec<Problem>, policies: &[Policy]| -> Vec<Entry> {
        let each = |problem: Problem| policies.iter().map(move |&policy| Entry { operator, problem: problem.clone(), policy });
        problems.into_iter().flat_map(each).collect()
    };
    Ok(match sizes {
        Sizes::Quick => {
            let listed = (operator.quick)().into_iter();
            let mut quick: Vec<Entry> = listed
                .filter_map(|(problem, text)| Some(Entry { operator, problem, policy: text.parse().ok()? }))
                .filter(|entry| is_wanted(&entry.policy))
                .collect();
            // A precision beyond the suite's is run at the first quick size.
            let is_listed = |policy: &Policy| quick.iter().any(|entry| entry.policy.canonical() == policy.canonical());
            let further: Vec<Policy> = policies.iter().filter(|policy| !is_listed(policy)).copied().collect();
            let first = (operator.quick)().into_iter().next().map(|(problem, _)| problem);
            quick.extend(crossed(first.into_iter().collect(), &further));
            quick
        }
        Sizes::Seed => crossed((operator.suite)(), &policies),
        Sizes::All => crossed((operator.suite)().into_iter().chain((operator.further_suite)()).collect(), &policies),
        Sizes::Edges => crossed((operator.edges)(), &policies),
        Sizes::Given(all) => {
            let mut entries: Vec<Entry> = Vec::new();
            for shapes in all {
                let own = crossed(given(operator, shapes)?, &policies);
                refuse_what_is_not_done(operator, shapes, &own, machine)?;
                let is_new = |entry: &Entry| !entries.iter().any(|e| e.policy == entry.policy && e.problem == entry.problem);
                let own: Vec<Entry> = own.into_iter().filter(is_new).collect();
                entries.extend(own);
            }
            entries
        }
        Sizes::Random { count, seed } => {
            let policies = if wanted.is_empty() { accepted(operator) } else { policies };
            random(operator, &policies, (*count, *seed), effort)
        }
    })
}

/// The operator's first quick problem of each variant (or of one) with the given extents in place of its own. A variant that no quick problem has
/// takes, where calls know it, the extents of the first one, or at the edges of tiles, that go with it; else its first problem of any list.
fn given(operator: &'static Operator, shapes: &Shapes) -> Result<Vec<Problem>, SelectionError> {
    let Shapes { extents, numbers, variant } = of_operator(operator, shapes)?;
    let variant = variant.as_deref();
    let mut problems: Vec<Problem> = Vec::new();
    let is_wanted =
        |problem: &Problem, wanted: &str| wanted == problem.variant || wanted.split(' ').all(|word| problem.has(word));
    let mut own: Vec<Problem> = (operator.quick)().into_iter().map(|(problem, _)| problem).collect();
    if let Some(wanted) = variant.filter(|wanted| !own.iter().any(|own| is_wanted(own, wanted))) {
        own = if operator.calls.variants.contains(&wanted) {
            let policies = accepted(operator);
            let goes = |problem: &Problem| policies.iter().any(|&policy| operator.plan(problem, policy, Machine::Cpu).is_ok());
            let others = own.into_iter().chain((operator.edges)());
            others.map(|problem| Problem { variant: wanted.to_string(), ..problem }).find(goes).into_iter().collect()
        } else {
            // What calls do not choose, such as how a matrix's elements are spread.
            let others = (operator.suite)().into_iter().chain((operator.further_suite)()).chain((operator.edges)());
            others.into_iter().find(|problem| is_wanted(problem, wanted)).into_iter().collect()
        };
    }
    // Variants have extents of their own: what is named for others is no mistake where one of those that are asked for has it.
    own.retain(|problem| variant.is_none_or(|wanted| is_wanted(problem, wanted)));
    let has = |problem: &Problem, name: &str| problem.extents.iter().any(|(own, _)| *own == name);
    if let (Some((name, _)), Some(problem)) =
        (extents.iter().find(|(name, _)| !own.iter().any(|problem| has(problem, name))), own.first())
    {
        return Err(SelectionError::Extent {
            extent: name.clone(),
            operator: variant.map_or(operator.name.to_string(), |variant| format!("{} {variant}", operator.name)),
            known: problem.extents.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        });
    }
    own.retain(|problem| extents.iter().all(|(name, _)| has(problem, name)));
    for problem in own {
        let mut changed = vec![problem.clone()];
        for (name, values) in &extents {
            let each = |problem: Problem| values.iter().filter_map(move |&value| problem.with(name, value));
            changed = changed.into_iter().flat_map(each).collect();
        }
        // In the operator's order, whatever that of the command line is: a case has one name.
        for &(name, usual) in operator.numbers {
            let named = numbers.iter().find(|(own, _)| own == name).map(|(_, values)| values.clone());
            let values = named.unwrap_or_else(|| vec![problem.number(name).unwrap_or(usual)]);
            let each =
                |problem: Problem| values.iter().filter_map(move |&value| operator.with_number(problem.clone(), name, value));
            changed = changed.into_iter().flat_map(each).collect();
        }
        for changed in changed {
            if !problems.contains(&changed) {
                problems.push(changed);
            }
        }
    }
    Ok(problems)
}

/// The shapes as an operator has them: what is a number of one, as `groups` of a norm, is an extent of another, as of a convolution.
fn of_operator(operator: &'static Operator, shapes: &Shapes) -> Result<Shapes, SelectionError> {
    let is_number = |name: &str| operator.numbers.iter().any(|(own, _)| *own == name);
    let has = |name: &str| (operator.edges)().iter().any(|problem| problem.extents.iter().any(|(own, _)| *own == name));
    let whole = |value: &f64| (value.fract() == 0.0 && (0.0..=2f64.powi(53)).contains(value)).then_some(*value as u64);
    let mut own = Shapes { numbers: Vec::new(), ..shapes.clone() };
    for (name, values) in &shapes.numbers {
        match values.iter().map(whole).collect::<Option<Vec<u64>>>() {
            _ if is_number(name) => own.numbers.push((name.clone(), values.clone())),
            Some(extents) if has(name) => own.extents.push((name.clone(), extents)),
            _ => return Err(SelectionError::Number { number: name.clone(), operator: operator.name }),
        }
    }
    Ok(own)
}

/// An error where no case can be done: sizes that clash with the variant, or a variant that there is not.
fn refuse_what_is_not_done(
    operator: &'static Operator,
    shapes: &Shapes,
    entries: &[Entry],
    machine: Machine,
) -> Result<(), SelectionError> {
    let Shapes { extents, numbers, variant } = shapes;
    let does = |problem: &Problem, policy: Policy| operator.plan(problem, policy, machine).map(drop);
    let mut why = None;
    for entry in entries {
        match does(&entry.problem, entry.policy) {
            Ok(()) => return Ok(()),
            Err(unsupported) => why = Some(unsupported.to_string()),
        }
    }
    let policies = accepted(operator);
    let mut variants: Vec<String> = Vec::new();
    for problem in given(operator, &Shapes { variant: None, ..shapes.clone() })? {
        let kind = problem.kind();
        let name = if kind.is_empty() { "the plain one".to_string() } else { format!("`{kind}`") };
        if !variants.contains(&name) && policies.iter().any(|&policy| does(&problem, policy).is_ok()) {
            variants.push(name);
        }
    }
    let sizes = extents.iter().map(|(name, values)| format!("{name}={}", values[0]));
    let numbers = numbers.iter().map(|(name, values)| format!("{name}={}", values[0]));
    let sizes: Vec<String> = sizes.chain(numbers).chain(variant.iter().map(|variant| format!("variant={variant}"))).collect();
    Err(SelectionError::Variant {
        operator: operator.name,
        sizes: sizes.join(","),
        why: why.unwrap_or_else(|| match variant {
            Some(variant) => format!("it has no variant `{variant}`"),
            None => "it does them in no precision that was chosen".to_string(),
        }),
        variants: if variants.is_empty() { "none".to_string() } else { variants.join(", ") },
    })
}

/// What a case of random sizes may take on a chip, which does a trillion operations in a second or so: operations, and elements.
const PATIENT: (u64, u64) = (1 << 37, 1 << 25);

/// The same on a device: an emulator does a few million operations a second.
fn effort(device: &Device) -> (u64, u64) {
    match device {
        Device::Cpu => (1 << 26, 1 << 20),
        Device::Driver(device) if device.is_emulated() => (1 << 19, 1 << 13),
        Device::Driver(_) => PATIENT,
    }
}

/// So many problems of random sizes that differ, in the policies in turn.
fn random(operator: &'static Operator, policies: &[Policy], (count, seed): (usize, u64), effort: (u64, u64)) -> Vec<Entry> {
    let (operations, elements) = effort;
    let mut digest = Digest::default();
    digest.word(seed);
    digest.bytes(operator.name.as_bytes());
    let mut random = Random::new(digest.finish());
    let mut below = |most: u64| random.below(most as usize) as u64;
    let mut entries: Vec<Entry> = Vec::new();
    // Few problems are so small that two are the same: a few tries more find the rest.
    for _ in 0..4 * count {
        if entries.len() == count || policies.is_empty() {
            break;
        }
        let policy = policies[entries.len() % policies.len()];
        let problem = (operator.draw)(&mut Draw::new(&mut below, operations, elements));
        if !entries.iter().any(|entry| entry.policy == policy && entry.problem == problem) {
            entries.push(Entry { operator, problem, policy });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(operators: &[&str], precisions: &[&str], sizes: Sizes) -> Result<Vec<Entry>, String> {
        let own = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let selection = Selection { operators: own(operators), precisions: own(precisions), sizes };
        entries(&selection, &Device::Cpu).map_err(|error| error.to_string())
    }

    fn sizes(extents: &[(&str, &[u64])], variant: Option<&str>) -> Sizes {
        let extents = extents.iter().map(|(name, values)| (name.to_string(), values.to_vec())).collect();
        Sizes::Given(vec![Shapes { extents, variant: variant.map(Into::into), ..Shapes::default() }])
    }

    #[test]
    fn a_number_of_one_operator_is_an_extent_of_another() {
        let groups = |values: &[f64]| {
            let numbers = vec![("groups".to_string(), values.to_vec())];
            Sizes::Given(vec![Shapes { numbers, variant: Some("nhwc".to_string()), ..Shapes::default() }])
        };
        let found = select(&["conv2d"], &["fp32"], groups(&[1.0, 2.0])).expect("cases");
        let all: Vec<u64> = found.iter().map(|entry| entry.problem.get("groups")).collect();
        assert!(all.contains(&1) && all.contains(&2), "{all:?}");
        let wrong = select(&["conv2d"], &["fp32"], groups(&[0.5])).expect_err("half a group");
        assert_eq!(wrong, "`groups` is no number of conv2d");
        assert_eq!(select(&["softmax"], &[], groups(&[1.0])).expect_err("no groups"), "`groups` is no number of softmax");
    }

    #[test]
    fn a_variant_that_no_quick_case_has_takes_the_extents_of_the_first_one() {
        let entries = select(&["linear"], &["fp32"], sizes(&[("rows", &[3])], Some("relu"))).expect("cases");
        let [Entry { problem, .. }] = &entries[..] else { panic!("{} cases", entries.len()) };
        assert_eq!(problem.to_string(), "relu rows=3,out=192,in=128");
    }

    /// Orders of two, three and four axes have as many extents; what is named for others is refused.
    #[test]
    fn a_case_has_the_extents_of_its_variant() {
        let of = |given: &[(&str, &[u64])], variant| {
            let entries = select(&["permute"], &["fp32"], sizes(given, variant))?;
            Ok::<_, String>(entries.iter().map(|entry| entry.problem.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[("c", &[64]), ("d", &[32])], Some("10")), Ok(vec!["10 c=64,d=32".to_string()]));
        assert_eq!(of(&[("c", &[64])], Some("021")), Ok(vec!["021 b=40,c=64,d=6".to_string()]));
        assert_eq!(of(&[("a", &[9])], Some("3012")), Ok(vec!["3012 a=9,b=128,c=8,d=64".to_string()]));
        assert_eq!(of(&[("a", &[9])], None), Ok(["0213 a=9,b=128,c=8,d=64", "0231 a=9,b=32,c=28,d=28"].map(String::from).into()));
        assert_eq!(
            of(&[("a", &[64]), ("b", &[32])], Some("10")),
            Err("`a` is not an extent of permute 10, which has c, d".to_string())
        );
    }

    #[test]
    fn what_gets_no_case_is_an_error_that_says_what_there_is() {
        for (outcome, wanted) in [
            (
                select(&["attention"], &[], sizes(&[("queries", &[300]), ("keys", &[100])], Some("causal"))),
                "`attention` does not do queries=300,keys=100,variant=causal: causal attention needs a key for every query\nhelp: with these \
                 sizes its variants are the plain one",
            ),
            (
                select(&["gemm"], &[], sizes(&[], Some("xy"))),
                "`gemm` does not do variant=xy: it has no variant `xy`\nhelp: with these sizes its variants are `nn`, `nt`, `tn`, `tt`",
            ),
            (
                select(&["softmax"], &["int8"], Sizes::Quick),
                "none of the chosen operators takes `int8`\nhelp: `softmax` takes fp32, fp16, bf16, fp8_e4m3@accum(fp32), fp64",
            ),
            (
                select(&["gemm", "softmax"], &["tf32"], Sizes::Quick),
                "`softmax` has no case of these sizes and precisions\nhelp: it has cases in `--sizes seed`, `all`; `softmax` takes fp32, fp16, \
                 bf16, fp8_e4m3@accum(fp32), fp64",
            ),
            (
                select(&["attention"], &[], Sizes::Seed),
                "`attention` has no case of these sizes and precisions\nhelp: it has cases in `--sizes quick`, `all`; `attention` takes fp16, \
                 bf16, fp32, fp64",
            ),
            (select(&["gemm"], &[], sizes(&[("q", &[3])], None)), "`q` is not an extent of gemm, which has batch, m, n, k"),
        ] {
            assert_eq!(outcome.map(|entries| entries.len()), Err(wanted.to_string()));
        }
    }

    /// A look at all operators takes a minute or so: the foremost have a row of each precision there, others one row, gradients none.
    #[test]
    fn the_quick_suite_is_short_and_lacks_no_operator() {
        let quick = select(&[], &[], Sizes::Quick).expect("cases");
        assert!(FOREMOST.iter().all(|name| tessera_ops::find(name).is_some()), "a name of no operator");
        for operator in OPERATORS {
            let own: Vec<String> =
                quick.iter().filter(|entry| entry.operator.name == operator.name).map(|entry| entry.policy.to_string()).collect();
            let is_gradient = operator.gradient_of().is_some();
            if FOREMOST.contains(&operator.name) {
                assert_eq!(own.len(), select(&[operator.name], &[], Sizes::Quick).expect("cases").len(), "{}", operator.name);
                let lacks = operator.precisions.iter().find(|precision| !own.iter().any(|own| own == *precision));
                assert_eq!(lacks, None, "{}", operator.name);
            } else {
                assert_eq!(own.len(), usize::from(!is_gradient), "{}", operator.name);
            }
        }
        assert!(quick.len() <= 150, "{} rows", quick.len());
    }

    #[test]
    fn every_precision_that_is_named_gets_a_case() {
        let quick = select(&["gemm"], &["fp32", "fp64", "int8"], Sizes::Quick).expect("cases");
        let of = |name: &str| quick.iter().filter(|entry| entry.policy == name.parse().expect("policy")).count();
        assert_eq!((of("fp64"), of("int8")), (1, 1));
        assert!(of("fp32") > 3);
        let crossed = select(&["gemm"], &["fp32"], sizes(&[("m", &[1, 2, 4]), ("k", &[5, 6])], Some("nt"))).expect("cases");
        assert_eq!(crossed.len(), 6);
    }

    #[test]
    fn random_problems_differ_and_have_plans() {
        for operator in OPERATORS {
            let drawn = select(&[operator.name], &[], Sizes::Random { count: 200, seed: 9 }).expect("cases");
            assert_eq!(drawn.len(), 200, "{}", operator.name);
            for entry in &drawn {
                let plan = operator.plan(&entry.problem, entry.policy, Machine::Cpu);
                let plan = plan.unwrap_or_else(|why| panic!("{} {}: {why}", operator.name, entry.problem));
                assert!(plan.work.flops <= 1 << 27 && plan.tensor_bytes() <= 1 << 28, "{} {}", operator.name, entry.problem);
            }
            let again = select(&[operator.name], &[], Sizes::Random { count: 200, seed: 9 }).expect("cases");
            assert!(drawn.iter().zip(&again).all(|(a, b)| a.problem == b.problem && a.policy == b.policy));
            let other = select(&[operator.name], &[], Sizes::Random { count: 200, seed: 10 }).expect("cases");
            assert!(drawn.iter().zip(&other).any(|(a, b)| a.problem != b.problem));
        }
    }
}
