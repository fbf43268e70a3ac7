//! A smaller problem that is wrong in the same way, where one of random sizes is: less to look at.

use tessera::bench::Entry;

use crate::failure::Failure;

/// Problems that are tried.
const TRIES: usize = 40;

/// A smaller problem that `is_wrong` says is wrong, from one that is; none where none is found. An extent after the other goes to 1, else to a half of what
/// it is, else to one less, as long as that leaves the problem wrong. After 40 problems it stops, with the smallest so far.
pub(crate) fn smallest(
    entry: &Entry,
    mut is_wrong: impl FnMut(&Entry) -> Result<bool, Failure>,
) -> Result<Option<Entry>, Failure> {
    let mut best = entry.clone();
    let mut tries = 0;
    let mut shrunk = true;
    while shrunk {
        shrunk = false;
        for (name, _) in entry.problem.extents.iter().copied() {
            let extent = best.problem.get(name);
            let mut smaller: Vec<u64> = [1, extent / 2, extent.saturating_sub(1)].into();
            smaller.retain(|&own| own > 0 && own < extent);
            smaller.dedup();
            for problem in smaller.into_iter().filter_map(|own| best.problem.with(name, own)) {
                if tries == TRIES {
                    return Ok((best.problem != entry.problem).then_some(best));
                }
                tries += 1;
                let tried = Entry { problem, ..best.clone() };
                if is_wrong(&tried)? {
                    best = tried;
                    shrunk = true;
                    break;
                }
            }
        }
    }
    Ok((best.problem != entry.problem).then_some(best))
}

#[cfg(test)]
mod tests {
    use tessera::ops::{OPERATORS, Problem};

    use super::*;

    fn found(wrong: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
        let problem = Problem::new(&[("m", 300), ("n", 77)], "");
        let entry = Entry { operator: OPERATORS[0], problem, policy: "fp32".parse().expect("a precision") };
        let is_wrong = |entry: &Entry| Ok(wrong(entry.problem.get("m"), entry.problem.get("n")));
        smallest(&entry, is_wrong).ok().flatten().map(|entry| (entry.problem.get("m"), entry.problem.get("n")))
    }

    #[test]
    fn extents_shrink_as_long_as_it_is_wrong() {
        assert_eq!(found(|m, _| m >= 33), Some((33, 1)));
        assert_eq!(found(|_, _| true), Some((1, 1)));
        assert_eq!(found(|m, n| m == 300 && n == 77), None);
        assert_eq!(found(|_, n| n % 2 == 1), Some((1, 1)));
    }

    #[test]
    fn it_stops_after_so_many_tries() {
        let tries = std::cell::Cell::new(0);
        let counted = |m: u64, _| {
            tries.set(tries.get() + 1);
            // It goes down by one, and at each step a problem with m at 1 and one with a half of it are right.
            m >= 200
        };
        assert_eq!((found(counted), tries.get()), (Some((287, 1)), TRIES));
    }
}
