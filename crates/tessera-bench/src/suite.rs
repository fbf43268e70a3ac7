//! What is run: the cases of a suite, in an order of which any prefix is a fair sample, cut into groups that are timed together.

use std::collections::BTreeMap;

use tessera_runtime::ProfilerRange;

use crate::case::{CaseKey, Fault, Subject, Work};
use crate::ceiling::{Ceilings, ProbeOptions};
use crate::clock::ClockFacts;
use crate::environment::{Accelerator, Environment};
use crate::random::{Digest, Random};

/// A case with the implementations that are to be measured side by side.
#[derive(Clone, Debug)]
pub struct CaseSpec {
    /// The identity.
    pub key: CaseKey,
    /// The least work and the memory it takes.
    pub work: Work,
    /// Implementations by name. The first is the product, the others are baselines.
    pub implementations: Vec<String>,
}

/// Something that knows cases and can build their implementations.
pub trait Suite {
    /// The suite's name.
    fn name(&self) -> &str;

    /// All cases.
    fn cases(&self) -> &[CaseSpec];

    /// Builds one implementation of one case with its tensors; compiles it if that is needed.
    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault>;

    /// The device that kernels run on, where it is not this machine's processor.
    fn accelerator(&self) -> Option<Accelerator> {
        None
    }

    /// The step and the cost of the device's own clock: the floor is the time of an empty launch.
    fn device_clock(&self) -> Option<ClockFacts> {
        None
    }

    /// How fast the device copies, reads and multiplies.
    fn ceilings(&self, probe: ProbeOptions) -> Ceilings {
        Ceilings::measure(probe)
    }

    /// Memory that cases can still take.
    fn available_bytes(&self) -> Option<u64> {
        Environment::available_bytes()
    }

    /// Bytes of the tensors that may be held at once by cases that are timed in turn.
    fn group_bytes(&self) -> u64 {
        32 << 20
    }

    /// Whether its rows are those that somebody listed: two lists are compared in their order where their rows have other names.
    fn is_listed(&self) -> bool {
        false
    }

    /// Whether the device, or a team of ranks, was lost to a fault, so that nothing more can be run in this process.
    fn is_lost(&self) -> bool {
        false
    }

    /// A range of a profiler's, until it is dropped; none where cases run on no device.
    fn range(&self, _name: &str) -> Option<ProfilerRange> {
        None
    }

    /// Whether launches take the time of a machine; the emulator's say nothing of any.
    fn has_time(&self) -> bool {
        true
    }

    /// A launch that does nothing, if the device has such a thing: its time is the floor of all others.
    fn empty_launch(&self) -> Option<Box<dyn FnMut() + '_>> {
        None
    }
}

/// Hash of a case list, independent of its order.
pub fn suite_hash(cases: &[CaseSpec]) -> String {
    let mut ids: Vec<String> =
        cases.iter().flat_map(|c| c.implementations.iter().map(move |i| format!("{}:{i}", c.key.id()))).collect();
    ids.sort();
    let mut digest = Digest::default();
    ids.iter().for_each(|id| digest.bytes(id.as_bytes()));
    format!("{:016x}", digest.finish())
}

/// An order in which every prefix holds operators, and within each its precisions, in proportion (to within one or two cases).
///
/// Item `j` of the `n` of a kind gets the position `(j + u) / n` with `u` random: a prefix up to position `t` then holds
/// `t n` of them, give or take one. Precisions are dealt within an operator first, then operators among each other.
pub fn fair_order(keys: &[&CaseKey], seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut operators: BTreeMap<&str, BTreeMap<(&str, &str), Vec<usize>>> = BTreeMap::new();
    for (index, key) in keys.iter().enumerate() {
        let kinds = operators.entry(&key.operator).or_default();
        kinds.entry((&key.precision, &key.variant)).or_default().push(index);
    }
    let mut dealt = Vec::with_capacity(operators.len());
    for kinds in operators.into_values() {
        let mut strata: Vec<Vec<usize>> = kinds.into_values().collect();
        strata.iter_mut().for_each(|stratum| random.shuffle(stratum));
        dealt.push(deal(strata, &mut random));
    }
    deal(dealt, &mut random)
}

fn deal(strata: Vec<Vec<usize>>, random: &mut Random) -> Vec<usize> {
    let mut placed = Vec::new();
    for stratum in strata {
        let n = stratum.len() as f64;
        placed.extend(stratum.into_iter().enumerate().map(|(j, item)| ((j as f64 + random.unit()) / n, item)));
    }
    placed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    placed.into_iter().map(|(_, item)| item).collect()
}

/// Cuts an order into groups that are timed in common rounds: at most six cases, whose tensors together stay within what a
/// measurement may take beyond one case's own.
pub fn groups(cases: &[CaseSpec], order: &[usize], most_bytes: u64) -> Vec<Vec<usize>> {
    const MOST_CASES: usize = 6;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0u64;
    for &index in order {
        let spec = &cases[index];
        let own = spec.work.tensor_bytes.saturating_mul(spec.implementations.len() as u64);
        match groups.last_mut() {
            Some(group) if group.len() < MOST_CASES && bytes.saturating_add(own) <= most_bytes => {
                group.push(index);
                bytes += own;
            }
            _ => {
                groups.push(vec![index]);
                bytes = own;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Metric, Size};

    fn key(operator: &str, precision: &str, n: u64) -> CaseKey {
        CaseKey {
            operator: operator.into(),
            size: Size::new([("n", n)]),
            precision: precision.into(),
            variant: String::new(),
            distribution: "normal01".into(),
        }
    }

    #[test]
    fn every_prefix_is_a_fair_sample() {
        let mut keys = Vec::new();
        for (operator, precisions, sizes) in [("gemm", 7, 40), ("softmax", 4, 45), ("norm", 4, 20), ("copy", 2, 3)] {
            for p in 0..precisions {
                keys.extend((0..sizes).map(|n| key(operator, &format!("p{p}"), n)));
            }
        }
        let refs: Vec<&CaseKey> = keys.iter().collect();
        let order = fair_order(&refs, 5);
        let mut seen = order.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..keys.len()).collect::<Vec<_>>());
        assert_ne!(order, fair_order(&refs, 6));
        assert_eq!(order, fair_order(&refs, 5));
        for prefix in 1..=order.len() {
            let fraction = prefix as f64 / order.len() as f64;
            for operator in ["gemm", "softmax", "norm", "copy"] {
                let all = keys.iter().filter(|k| k.operator == operator).count() as f64;
                let here = order[..prefix].iter().filter(|&&i| keys[i].operator == operator).count() as f64;
                assert!((here - fraction * all).abs() <= 3.0, "{operator}: {here} of {all} in {prefix}");
            }
            for p in 0..7 {
                let of = |i: &usize| keys[*i].operator == "gemm" && keys[*i].precision == format!("p{p}");
                let here = order[..prefix].iter().filter(|i| of(i)).count() as f64;
                assert!((here - fraction * 40.0).abs() <= 3.5, "gemm p{p}: {here} in {prefix}");
            }
        }
    }

    #[test]
    fn groups_respect_the_memory_budget() {
        let spec = |mib: u64| CaseSpec {
            key: key("copy", "f32", mib),
            work: Work {
                read_bytes: 0,
                write_bytes: 0,
                flops: 0,
                class: None,
                metric: Metric::Bandwidth,
                tensor_bytes: mib << 20,
                formula: String::new(),
            },
            implementations: vec!["tessera".into(), "memcpy".into()],
        };
        let cases: Vec<CaseSpec> = [1, 2, 100, 8, 8, 1, 0, 0, 0, 0, 0, 0, 0].map(spec).into();
        let order: Vec<usize> = (0..cases.len()).collect();
        assert_eq!(groups(&cases, &order, 32 << 20), [vec![0, 1], vec![2], vec![3, 4], vec![5, 6, 7, 8, 9, 10], vec![11, 12]]);
    }
}
