//! Ranks that are threads of one process, and exchange through its memory.
//!
//! A rank that stops early leaves the meeting, and those who wait for it hear of that.

use std::collections::VecDeque;
use std::time::Instant;

use tessera_driver::StreamHandle;

use crate::device::Device;
use crate::ranks::board::Board;
use crate::ranks::call::{Call, CallName};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::ExchangeError;
use crate::ranks::linked::{Linked, Links, Message};
use crate::ranks::meeting::{Meeting, Seat};

impl Meeting {
    /// A rank's end.
    pub fn rank(&self, rank: usize) -> SimulatedRank {
        SimulatedRank(Linked::new(self.seat(rank), rank, self.ranks()))
    }
}

/// One rank's end of a [`Meeting`].
pub struct SimulatedRank(Linked<Seat>);

impl Communicator for SimulatedRank {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        self.0.start(calls, stream)
    }

    fn abort(&mut self, reason: &str) {
        self.0.abort(reason);
    }
}

impl Links for Seat {
    fn send(&mut self, to: usize, message: Message, _call: &CallName) -> Result<(), ExchangeError> {
        self.meeting.table().messages.entry((self.rank, to)).or_default().push_back(message);
        self.meeting.changed();
        Ok(())
    }

    fn receive(&mut self, from: usize, call: &CallName) -> Result<Message, ExchangeError> {
        self.begins(call);
        let (start, limit) = (Instant::now(), self.limits().call);
        let mut table = self.meeting.table();
        loop {
            if let Some(message) = table.messages.get_mut(&(from, self.rank)).and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if let Some(left) = table.left(from, call) {
                return Err(left);
            }
            let waited = start.elapsed();
            if waited >= limit {
                drop(table);
                let detail = self.progress(from).map(|(number, text)| format!("; it was last in its call {number}, {text}"));
                return Err(ExchangeError::Late {
                    ranks: vec![from],
                    waited,
                    detail: detail.unwrap_or_default(),
                    call: call.clone(),
                });
            }
            table = self.meeting.wait(table, limit - waited);
        }
    }

    fn leave(&mut self, reason: Option<&str>) {
        Board::leave(self, reason.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ranks::call::{Group, Reduction};
    use crate::ranks::parts::combined;
    use crate::tensor::Tensor;
    use tessera_types::DType;

    /// What each of `count` ranks gets from one exchange.
    fn exchanged(
        count: usize,
        give: impl Fn(usize) -> Tensor + Sync,
        exchange: impl Fn(&mut SimulatedRank, &Group, Tensor) -> Result<Vec<Tensor>, ExchangeError> + Sync,
    ) -> Vec<Vec<f64>> {
        let meeting = Meeting::new(count);
        let ends: Vec<SimulatedRank> = (0..count).map(|rank| meeting.rank(rank)).collect();
        std::thread::scope(|scope| {
            let (give, exchange) = (&give, &exchange);
            let threads: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(rank, mut end)| {
                    scope.spawn(move || {
                        let group = Group::world(rank, count);
                        exchange(&mut end, &group, give(rank)).unwrap()[0].to_f64().unwrap()
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

    #[test]
    fn the_four_operations_give_what_they_say() {
        let sums = exchanged(2, row, |end, group, tensor| end.all_reduce(group, Reduction::Sum, &[tensor]));
        assert_eq!(sums, [[10.0, 12.0, 14.0, 16.0], [10.0, 12.0, 14.0, 16.0]]);
        let wholes = exchanged(2, row, |end, group, tensor| end.all_gather(group, 1, &[tensor]));
        assert_eq!(wholes[0], [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]);
        let parts = exchanged(2, row, |end, group, tensor| end.reduce_scatter(group, 0, Reduction::Max, &[tensor]));
        assert_eq!(parts, [[10.0, 11.0], [12.0, 13.0]]);
        let turned = exchanged(2, row, |end, group, tensor| end.all_to_all(group, 1, 0, &[tensor]));
        assert_eq!(turned, [[0.0, 2.0, 10.0, 12.0], [1.0, 3.0, 11.0, 13.0]]);
    }

    #[test]
    fn narrow_sums_are_rounded_once_and_integers_wrap() {
        let one = |value: f64, dtype| Tensor::from_f64(dtype, &[1], &[value]).unwrap();
        // In bf16 every single addition of 1 to 256 would be lost.
        let terms: Vec<Tensor> = std::iter::once(256.0).chain([1.0; 4]).map(|value| one(value, DType::BF16)).collect();
        assert_eq!(combined(&terms, Reduction::Sum).unwrap().to_f64().unwrap(), [260.0]);
        assert_eq!(combined(&terms, Reduction::Avg).unwrap().to_f64().unwrap(), [52.0]);
        let bytes = [one(100.0, DType::I8), one(100.0, DType::I8)];
        assert_eq!(combined(&bytes, Reduction::Sum).unwrap().to_f64().unwrap(), [-56.0]);
        assert_eq!(combined(&bytes, Reduction::Avg).unwrap().to_f64().unwrap(), [-28.0]);
        assert_eq!(combined(&bytes, Reduction::Max).unwrap().to_f64().unwrap(), [100.0]);
        let zeros = |signs: [f64; 4]| signs.map(|zero| Tensor::from_f64(DType::F32, &[1], &[zero]).unwrap());
        for signs in [[-0.0, 0.0, -0.0, -0.0], [0.0, -0.0, -0.0, -0.0], [-0.0, -0.0, -0.0, 0.0]] {
            assert_eq!(combined(&zeros(signs), Reduction::Max).unwrap().to_codes().unwrap(), [0], "{signs:?}");
            assert_eq!(combined(&zeros(signs), Reduction::Min).unwrap().to_codes().unwrap(), [0x8000_0000], "{signs:?}");
        }
        assert_eq!(combined(&zeros([f64::NAN, -1.0, 2.0, f64::NAN]), Reduction::Max).unwrap().to_f64().unwrap(), [2.0]);
        assert_eq!(combined(&zeros([f64::NAN, -1.0, 2.0, f64::NAN]), Reduction::Min).unwrap().to_f64().unwrap(), [-1.0]);
    }

    #[test]
    fn a_rank_that_stops_is_reported_to_those_who_wait() {
        let meeting = Meeting::new(2);
        let (mut stays, leaves) = (meeting.rank(0), meeting.rank(1));
        drop(leaves);
        let outcome = stays.all_reduce(&Group::world(0, 2), Reduction::Sum, &[row(0)]);
        assert!(matches!(&outcome, Err(ExchangeError::Left { rank: 1, .. })), "{outcome:?}");
        let text = outcome.unwrap_err().to_string();
        assert_eq!(text, "rank 0, call 1, all_reduce(4 x f32, sum) over [0-1]: rank 1 stopped, and this rank waits for it");
    }

    #[test]
    fn a_rank_that_does_not_come_ends_the_wait() {
        let meeting = Meeting::new(2).with_limit(Duration::from_millis(30));
        let (mut comes, _stays_away) = (meeting.rank(0), meeting.rank(1));
        let outcome = comes.barrier(&Group::world(0, 2));
        assert!(matches!(&outcome, Err(ExchangeError::Late { ranks, .. }) if ranks == &[1]), "{outcome:?}");
        let again = comes.barrier(&Group::world(0, 2));
        assert!(matches!(&again, Err(ExchangeError::Aborted { .. })), "{again:?}");
    }
}
