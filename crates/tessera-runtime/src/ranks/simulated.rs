//! Ranks that are threads of one process, and exchange through its memory.
//!
//! Every rank puts a copy of its tensors on a table, waits until all of the group have, and computes its own result from all of
//! them in the order of ranks: the result does not depend on who came first. A rank that stops early leaves the table, and those who
//! wait for it hear of that.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tessera_ir::attrs::Combine;

use crate::ranks::communicator::{Communicator, ExchangeError, Group};
use crate::ranks::parts::{combined, joined, part};
use crate::tensor::Tensor;

/// What was given for one exchange: by position in the group.
struct Round {
    given: Vec<Option<Vec<Tensor>>>,
    taken: usize,
}

#[derive(Default)]
struct Table {
    /// By the group and the number of the exchange in it.
    rounds: BTreeMap<(Vec<usize>, u64), Round>,
    left: Vec<usize>,
}

/// Where the ranks of one process meet.
#[derive(Clone, Default)]
pub struct Meeting {
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Meeting {
    /// A rank's end.
    pub fn rank(&self, rank: usize) -> SimulatedRank {
        SimulatedRank { meeting: self.clone(), rank, counts: BTreeMap::new() }
    }
}

/// One rank's end of a [`Meeting`].
pub struct SimulatedRank {
    meeting: Meeting,
    rank: usize,
    counts: BTreeMap<Vec<usize>, u64>,
}

impl SimulatedRank {
    /// Gives tensors and takes those of all ranks of the group, by position.
    fn meet(&mut self, group: &Group, tensors: &[Tensor]) -> Result<Vec<Vec<Tensor>>, ExchangeError> {
        let copies = tensors.iter().map(Tensor::contiguous).collect::<Result<Vec<_>, _>>()?;
        let count = self.counts.entry(group.ranks.clone()).or_default();
        let key = (group.ranks.clone(), *count);
        *count += 1;
        let (table, changed) = &*self.meeting.table;
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let size = group.ranks.len();
        let round = table.rounds.entry(key.clone()).or_insert_with(|| Round { given: vec![None; size], taken: 0 });
        round.given[group.position] = Some(copies);
        changed.notify_all();
        loop {
            let Some(round) = table.rounds.get_mut(&key) else { return Err(ExchangeError::Left { rank: self.rank }) };
            if let Some(all) = round.given.iter().cloned().collect::<Option<Vec<_>>>() {
                round.taken += 1;
                if round.taken == size {
                    table.rounds.remove(&key);
                }
                return match all.iter().all(|other| other.len() == tensors.len()) {
                    true => Ok(all),
                    false => Err(ExchangeError::Mismatch { reason: "they exchange different numbers of tensors".to_string() }),
                };
            }
            let missing = |position: usize| round.given[position].is_none();
            let absent: Vec<usize> =
                (0..size).filter(|&position| missing(position)).map(|position| group.ranks[position]).collect();
            if let Some(rank) = absent.into_iter().find(|rank| table.left.contains(rank)) {
                return Err(ExchangeError::Left { rank });
            }
            table = changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Every tensor of an exchange, made of what the ranks gave for it.
    fn each(
        &mut self,
        group: &Group,
        tensors: &[Tensor],
        make: impl Fn(Vec<Tensor>) -> Result<Tensor, ExchangeError>,
    ) -> Result<Vec<Tensor>, ExchangeError> {
        let all = self.meet(group, tensors)?;
        (0..tensors.len()).map(|at| make(all.iter().map(|given| given[at].clone()).collect())).collect()
    }
}

impl Drop for SimulatedRank {
    fn drop(&mut self) {
        let (table, changed) = &*self.meeting.table;
        table.lock().unwrap_or_else(PoisonError::into_inner).left.push(self.rank);
        changed.notify_all();
    }
}

impl Communicator for SimulatedRank {
    fn all_reduce(&mut self, group: &Group, combine: Combine, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        self.each(group, tensors, |given| combined(&given, combine))
    }

    fn all_gather(&mut self, group: &Group, axis: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        self.each(group, tensors, |given| joined(&given, axis))
    }

    fn reduce_scatter(
        &mut self,
        group: &Group,
        axis: usize,
        combine: Combine,
        tensors: &[Tensor],
    ) -> Result<Vec<Tensor>, ExchangeError> {
        let (count, position) = (group.ranks.len(), group.position);
        self.each(group, tensors, |given| {
            let parts = given.iter().map(|tensor| part(tensor, axis, count, position)).collect::<Result<Vec<_>, _>>()?;
            combined(&parts, combine)
        })
    }

    fn all_to_all(&mut self, group: &Group, split: usize, join: usize, tensors: &[Tensor]) -> Result<Vec<Tensor>, ExchangeError> {
        let (count, position) = (group.ranks.len(), group.position);
        self.each(group, tensors, |given| {
            let parts = given.iter().map(|tensor| part(tensor, split, count, position)).collect::<Result<Vec<_>, _>>()?;
            joined(&parts, join)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of `count` ranks gets from one exchange.
    fn exchanged(
        count: usize,
        give: impl Fn(usize) -> Tensor + Sync,
        exchange: impl Fn(&mut SimulatedRank, &Group, Tensor) -> Result<Vec<Tensor>, ExchangeError> + Sync,
    ) -> Vec<Vec<f64>> {
        let meeting = Meeting::default();
        let ends: Vec<SimulatedRank> = (0..count).map(|rank| meeting.rank(rank)).collect();
        std::thread::scope(|scope| {
            let (give, exchange) = (&give, &exchange);
            let threads: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(position, mut end)| {
                    scope.spawn(move || {
                        let group = Group { ranks: (0..count).collect(), position };
                        exchange(&mut end, &group, give(position)).unwrap()[0].to_f64().unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn row(rank: usize) -> Tensor {
        let values: Vec<f64> = (0..4).map(|i| (10 * rank + i) as f64).collect();
        Tensor::from_f64(DType::F32, &[2, 2], &values).unwrap()
    }

    use tessera_types::DType;

    #[test]
    fn the_four_operations_give_what_they_say() {
        let sums = exchanged(2, row, |end, group, tensor| end.all_reduce(group, Combine::Sum, &[tensor]));
        assert_eq!(sums, [[10.0, 12.0, 14.0, 16.0], [10.0, 12.0, 14.0, 16.0]]);
        let wholes = exchanged(2, row, |end, group, tensor| end.all_gather(group, 1, &[tensor]));
        assert_eq!(wholes[0], [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]);
        let parts = exchanged(2, row, |end, group, tensor| end.reduce_scatter(group, 0, Combine::Max, &[tensor]));
        assert_eq!(parts, [[10.0, 11.0], [12.0, 13.0]]);
        let turned = exchanged(2, row, |end, group, tensor| end.all_to_all(group, 1, 0, &[tensor]));
        assert_eq!(turned, [[0.0, 2.0, 10.0, 12.0], [1.0, 3.0, 11.0, 13.0]]);
    }

    #[test]
    fn narrow_sums_are_rounded_once_and_integers_wrap() {
        let one = |value: f64, dtype| Tensor::from_f64(dtype, &[1], &[value]).unwrap();
        // In bf16 every single addition of 1 to 256 would be lost.
        let terms: Vec<Tensor> = std::iter::once(256.0).chain([1.0; 4]).map(|value| one(value, DType::BF16)).collect();
        assert_eq!(combined(&terms, Combine::Sum).unwrap().to_f64().unwrap(), [260.0]);
        let bytes = [one(100.0, DType::I8), one(100.0, DType::I8)];
        assert_eq!(combined(&bytes, Combine::Sum).unwrap().to_f64().unwrap(), [-56.0]);
        assert_eq!(combined(&bytes, Combine::Max).unwrap().to_f64().unwrap(), [100.0]);
    }

    #[test]
    fn a_rank_that_stops_is_reported_to_those_who_wait() {
        let meeting = Meeting::default();
        let (mut stays, leaves) = (meeting.rank(0), meeting.rank(1));
        drop(leaves);
        let group = Group { ranks: vec![0, 1], position: 0 };
        let outcome = stays.all_reduce(&group, Combine::Sum, &[row(0)]);
        assert!(matches!(outcome, Err(ExchangeError::Left { rank: 1 })));
    }
}
