//! Calls of ranks that are threads: random lists of them, those that do not match, those that no rank could make.

use std::sync::Arc;

use tessera_runtime::Tensor;
use tessera_runtime::ranks::{Call, Checked, Communicator, ExchangeError, Meeting, Operation, Reduction};
use tessera_types::DType;

#[path = "../../examples/ranks/drawn.rs"]
mod drawn;

pub(super) use drawn::make_calls;

/// Runs something on ranks that are threads.
fn together<T: Send>(ranks: usize, work: impl Fn(&mut dyn Communicator) -> T + Sync) -> Vec<T> {
    let meeting = Meeting::new(ranks);
    let ends: Vec<_> = (0..ranks).map(|rank| meeting.rank(rank)).collect();
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ends.into_iter().map(|mut end| scope.spawn(move || work(&mut end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn random_calls_on_simulated_ranks_give_what_they_say() {
    for (seed, ranks) in (0..).zip(1..=16) {
        let outcomes = together(ranks, |communicator| make_calls(communicator, seed, 24));
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    }
}

#[test]
#[ignore = "long: a thousand calls of each number of ranks"]
fn a_thousand_random_calls_on_simulated_ranks() {
    for ranks in 1..=16 {
        let outcomes = together(ranks, |communicator| make_calls(communicator, 100 + ranks as u64, 1000));
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    }
}

type Attempt = fn(&mut dyn Communicator, &Tensor) -> Result<(), ExchangeError>;

#[test]
fn calls_that_do_not_match_are_found_and_named() {
    let row = |length: usize, dtype| Tensor::zeros(dtype, &[length]).unwrap();
    let both = |calls: [Attempt; 2], tensors: [Tensor; 2]| {
        let outcomes = together(2, |communicator| {
            let rank = communicator.rank();
            calls[rank](communicator, &tensors[rank]).map_err(|error| error.to_string())
        });
        outcomes.into_iter().filter_map(Result::err).next().expect("an error")
    };
    let sum = |communicator: &mut dyn Communicator, tensor: &Tensor| {
        let world = communicator.world();
        communicator.all_reduce_into(&world, Reduction::Sum, tensor, tensor)?.wait()
    };
    let max = |communicator: &mut dyn Communicator, tensor: &Tensor| {
        let world = communicator.world();
        communicator.all_reduce_into(&world, Reduction::Max, tensor, tensor)?.wait()
    };
    let root_1 = |communicator: &mut dyn Communicator, tensor: &Tensor| {
        let world = communicator.world();
        communicator.broadcast_into(&world, 1, tensor)?.wait()
    };
    let text = both([sum, sum], [row(4, DType::F32), row(8, DType::F32)]);
    assert!(
        text.contains("all_reduce(4 x f32, sum) over [0-1]") && text.contains("all_reduce(8 x f32, sum) over [0-1]"),
        "{text}"
    );
    let text = both([sum, sum], [row(4, DType::F32), row(4, DType::F16)]);
    assert!(text.contains("4 x f32") && text.contains("4 x f16"), "{text}");
    let text = both([sum, max], [row(4, DType::F32), row(4, DType::F32)]);
    assert!(text.contains("sum") && text.contains("max"), "{text}");
    let text = both([sum, root_1], [row(4, DType::F32), row(4, DType::F32)]);
    assert!(text.contains("all_reduce") && text.contains("broadcast(4 x f32, root 1)"), "{text}");
}

#[test]
fn checked_calls_are_compared_before_they_are_made() {
    let checked =
        |ranks: usize, work: &(dyn Fn(&mut dyn Communicator) -> Result<(), String> + Sync)| -> Vec<Result<(), String>> {
            let meeting = Meeting::new(ranks);
            std::thread::scope(|scope| {
                let make = |rank| {
                    let meeting = &meeting;
                    scope.spawn(move || work(&mut Checked::new(meeting.rank(rank), Arc::new(meeting.seat(rank)))))
                };
                let threads: Vec<_> = (0..ranks).map(make).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        };
    for outcome in checked(5, &|communicator| make_calls(communicator, 77, 60)) {
        outcome.unwrap();
    }
    // Lists of both ends, in any order of their messages.
    let exchanged = checked(2, &|communicator| {
        let (rank, world, row) =
            (communicator.rank(), communicator.world(), |value| Tensor::full(DType::I32, &[4], value).unwrap());
        for turned in [false, true] {
            let (own, theirs) = (row(rank as f64), row(9.0));
            let mut calls = vec![
                Call::new(Operation::Send { to: 1 - rank }, &world, Some(&own), None),
                Call::new(Operation::Recv { from: 1 - rank }, &world, None, Some(&theirs)),
            ];
            if turned && rank == 1 {
                calls.reverse();
            }
            communicator.start(&calls, None).and_then(|pending| pending.wait()).map_err(|error| error.to_string())?;
            assert_eq!(theirs.to_f64().unwrap(), [(1 - rank) as f64; 4]);
        }
        Ok(())
    });
    assert_eq!(exchanged, [Ok(()), Ok(())]);
    // Each waits for what the other would send.
    let outcomes = checked(2, &|communicator| {
        let (other, tensor) = (1 - communicator.rank(), Tensor::zeros(DType::F16, &[4]).unwrap());
        communicator.recv(other, &tensor).and_then(|pending| pending.wait()).map_err(|error| error.to_string())
    });
    let first = "rank 0, call 1, send(4 x f16) from 1 to 0: rank 1 calls send(4 x f16) from 0 to 1 instead";
    assert!(outcomes[0].as_ref().unwrap_err().starts_with(first), "{outcomes:?}");
    assert!(outcomes[1].is_err());
}

#[test]
fn calls_that_no_rank_could_make_are_refused() {
    let meeting = Meeting::new(2);
    let row = |length: usize| Tensor::zeros(DType::F32, &[length]).unwrap();
    // What is refused is no call: the same end goes on.
    let mut end = meeting.rank(0);
    let world = end.world();
    let mut refused = |operation, source: Option<&Tensor>, result: Option<&Tensor>, text: &str| {
        let error = end.start(&[Call::new(operation, &world, source, result)], None).err().expect("an error").to_string();
        assert!(error.contains(text), "{error}");
    };
    let (four, eight) = (row(4), row(8));
    refused(Operation::AllReduce(Reduction::Sum), Some(&four), None, "a result is needed");
    refused(Operation::AllReduce(Reduction::Sum), Some(&four), Some(&eight), "do not fit 2 ranks");
    refused(Operation::AllGather, Some(&four), Some(&four), "do not fit 2 ranks");
    refused(Operation::ReduceScatter(Reduction::Sum), Some(&four), Some(&four), "do not fit 2 ranks");
    refused(Operation::AllToAll, Some(&row(3)), Some(&row(3)), "do not fit 2 ranks");
    refused(Operation::Broadcast { root: 2 }, None, Some(&four), "rank 2 is not in the group");
    refused(Operation::Send { to: 0 }, Some(&four), None, "does not send to itself");
    refused(Operation::Barrier, Some(&four), None, "has no use");
    let half = eight.slice(0, 2..6, 1).unwrap();
    refused(Operation::AllGather, Some(&half), Some(&eight), "overlap");
    let every_second = eight.slice(0, 0..8, 2).unwrap();
    refused(Operation::AllReduce(Reduction::Sum), Some(&every_second), Some(&four), "not contiguous");
    let bits = Tensor::zeros(DType::B1, &[4]).unwrap();
    refused(Operation::AllReduce(Reduction::Sum), Some(&bits), Some(&bits), "`b1` has no sum");
}
