//! Random lists of calls with what every rank has to get, and the ranks that make them: threads here, processes in `processes.rs`.
//! Values are small integers, so that every sum is exact; what is expected is computed without the crate's reductions.

use tessera_runtime::ranks::{Call, Communicator, ExchangeError, Group, Meeting, Operation, Reduction};
use tessera_runtime::{RandomStream, Tensor};
use tessera_types::DType;

const TYPES: [DType; 11] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I32,
    DType::F64,
    DType::I8,
    DType::U8,
    DType::I64,
    DType::U32,
];

struct Random {
    stream: RandomStream,
    count: u64,
}

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.count += 1;
        (self.stream.word(self.count) >> 16) as usize % below
    }
}

/// One call of a list, as all ranks know it.
#[derive(Debug)]
struct Drawn {
    operation: Operation,
    ranks: Vec<usize>,
    dtype: DType,
    /// Elements of a part.
    length: usize,
    in_place: bool,
    key: u64,
}

fn drawn(seed: u64, ranks: usize, count: usize) -> Vec<Drawn> {
    let mut random = Random { stream: RandomStream::named(seed, "calls"), count: 0 };
    let one = |index: usize, random: &mut Random| {
        let mut members: Vec<usize> = (0..ranks).filter(|_| random.below(4) != 0).collect();
        if members.is_empty() || random.below(3) == 0 {
            members = (0..ranks).collect();
        }
        let (a, b) = (random.below(members.len()), random.below(members.len()));
        let reduction = Reduction::ALL[random.below(5)];
        let operation = match random.below(7) {
            0 | 1 => Operation::AllReduce(reduction),
            2 => Operation::ReduceScatter(reduction),
            3 => Operation::AllGather,
            4 => Operation::AllToAll,
            5 => Operation::Broadcast { root: members[a] },
            // Who sends stands in the list of ranks first.
            _ if a != b => {
                members = vec![members[a], members[b]];
                Operation::Send { to: members[1] }
            }
            _ => Operation::Barrier,
        };
        let dtype = TYPES[random.below(TYPES.len())];
        // From nothing to beyond what an all_reduce does in one step.
        let length = [0, 1, 3, 64, 257, 1000, 9001][random.below(7)];
        Drawn { operation, ranks: members, dtype, length, in_place: random.below(3) == 0, key: seed * 10_000 + index as u64 }
    };
    (0..count).map(|index| one(index, &mut random)).collect()
}

impl Drawn {
    /// What a rank gives: small enough that all of them together are exact in the type.
    fn value(&self, rank: usize, at: usize) -> i64 {
        let word = RandomStream::named(self.key, &format!("rank {rank}")).word(at as u64) >> 20;
        match (self.operation.reduction(), self.dtype) {
            (Some(Reduction::Prod), DType::U8 | DType::U32) => 1,
            (Some(Reduction::Prod), _) => 1 - 2 * (word % 2) as i64,
            (_, DType::F8E4M3 | DType::F8E5M2) => (word % 2) as i64 * if self.operation.reduction().is_some() { 1 } else { 3 },
            _ => (word % 4) as i64,
        }
    }

    fn given(&self, rank: usize, elements: usize) -> Vec<i64> {
        (0..elements).map(|at| self.value(rank, at)).collect()
    }

    fn combined(&self, reduction: Reduction, at: usize) -> f64 {
        let all = self.ranks.iter().map(|&rank| self.value(rank, at));
        let count = self.ranks.len() as i64;
        (match reduction {
            Reduction::Sum => all.sum::<i64>(),
            Reduction::Prod => all.product(),
            Reduction::Max => all.max().unwrap_or_default(),
            Reduction::Min => all.min().unwrap_or_default(),
            Reduction::Avg if self.dtype == DType::F64 => return all.sum::<i64>() as f64 / count as f64,
            Reduction::Avg if self.dtype.is_float() => return f64::from((all.sum::<i64>() as f64 / count as f64) as f32),
            Reduction::Avg => all.sum::<i64>() / count,
        }) as f64
    }

    /// The call of a rank, and what its result must be afterwards.
    fn call(&self, rank: usize) -> Option<(Call, Option<Tensor>)> {
        let position = self.ranks.iter().position(|&member| member == rank)?;
        let mut members = self.ranks.clone();
        members.sort_unstable();
        let group = Group::of(members, rank)?;
        let (n, length) = (group.size(), self.length);
        let tensor = |values: &[f64]| Tensor::from_f64(self.dtype, &[values.len()], values).unwrap();
        let own = |elements| tensor(&self.given(rank, elements).iter().map(|&value| value as f64).collect::<Vec<_>>());
        let poison = |elements| Tensor::empty(self.dtype, &[elements]).unwrap();
        let part = |whole: &Tensor| whole.slice(0, group.position * length..(group.position + 1) * length, 1).unwrap();
        let (source, result, expected): (Option<Tensor>, Option<Tensor>, Option<Vec<f64>>) = match self.operation {
            Operation::AllReduce(reduction) => {
                let source = own(length);
                let result = if self.in_place { source.clone() } else { poison(length) };
                (Some(source), Some(result), Some((0..length).map(|at| self.combined(reduction, at)).collect()))
            }
            Operation::ReduceScatter(reduction) => {
                let source = own(n * length);
                let result = if self.in_place { part(&source) } else { poison(length) };
                let first = group.position * length;
                (Some(source), Some(result), Some((first..first + length).map(|at| self.combined(reduction, at)).collect()))
            }
            Operation::AllGather => {
                let (result, source) = (poison(n * length), own(length));
                let source = if self.in_place {
                    part(&result).copy_from(&source).unwrap();
                    part(&result)
                } else {
                    source
                };
                let all = group.ranks.iter().flat_map(|&member| self.given(member, length)).map(|value| value as f64).collect();
                (Some(source), Some(result), Some(all))
            }
            Operation::AllToAll => {
                let first = group.position * length;
                let all = group.ranks.iter().flat_map(|&member| self.given(member, first + length).split_off(first));
                (Some(own(n * length)), Some(poison(n * length)), Some(all.map(|value| value as f64).collect()))
            }
            Operation::Broadcast { root } => {
                let tensor = if root == rank { own(length) } else { poison(length) };
                (None, Some(tensor), Some(self.given(root, length).iter().map(|&value| value as f64).collect()))
            }
            Operation::Send { .. } if position == 0 => (Some(own(length)), None, None),
            Operation::Send { .. } | Operation::Recv { .. } => {
                let from = self.given(self.ranks[0], length).iter().map(|&value| value as f64).collect();
                (None, Some(poison(length)), Some(from))
            }
            Operation::Barrier => (None, None, None),
        };
        let operation = match self.operation {
            Operation::Send { .. } if position == 1 => Operation::Recv { from: self.ranks[0] },
            operation => operation,
        };
        let expected = expected.map(|values| tensor(&values));
        Some((Call::new(operation, &group, source.as_ref(), result.as_ref()), expected))
    }
}

/// A rank's calls of a seed, one after another or some at once; an error says which result was wrong.
pub(super) fn make_calls(communicator: &mut dyn Communicator, seed: u64, count: usize) -> Result<(), String> {
    let (rank, list) = (communicator.rank(), drawn(seed, communicator.ranks(), count));
    let mut random = Random { stream: RandomStream::named(seed, "lists"), count: 0 };
    let mut at = 0;
    while at < list.len() {
        // How many at once is the same on every rank.
        let end = (at + 1 + random.below(3)).min(list.len());
        let own: Vec<(usize, (Call, Option<Tensor>))> =
            (at..end).filter_map(|index| Some((index, list[index].call(rank)?))).collect();
        let calls: Vec<Call> = own.iter().map(|(_, (call, _))| call.clone()).collect();
        at = end;
        communicator.start(&calls, None).and_then(|pending| pending.wait()).map_err(|error| format!("{error}\n{calls:?}"))?;
        for (index, (call, expected)) in &own {
            let (Some(result), Some(expected)) = (&call.result, expected) else { continue };
            if !result.same_bits(expected).unwrap() {
                let difference = result.difference(expected, |_, _| 0.0);
                return Err(format!("seed {seed}, call {index}, rank {rank}: {:?}: {difference:?}", list[*index]));
            }
        }
    }
    Ok(())
}

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

#[test]
fn calls_that_do_not_match_are_found_and_named() {
    let row = |length: usize, dtype| Tensor::zeros(dtype, &[length]).unwrap();
    let both = |calls: [fn(&mut dyn Communicator, &Tensor) -> Result<(), ExchangeError>; 2], tensors: [Tensor; 2]| {
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
fn calls_that_no_rank_could_make_are_refused() {
    let meeting = Meeting::new(2);
    let row = |length: usize| Tensor::zeros(DType::F32, &[length]).unwrap();
    let refused = |operation, source: Option<&Tensor>, result: Option<&Tensor>, text: &str| {
        let mut end = meeting.rank(0);
        let world = end.world();
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
