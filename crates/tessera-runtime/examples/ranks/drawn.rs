//! Random lists of calls with what every rank has to get. Tests make them on threads and processes, this program on devices.
//! Values are small integers, so that every sum is exact; what is expected is computed without the crate's reductions.

use tessera_runtime::ranks::{Call, Communicator, Group, Operation, Reduction};
use tessera_runtime::{Device, RandomStream, Tensor};
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
    fn value(&self, stream: &RandomStream, at: usize) -> i64 {
        let word = stream.word(at as u64) >> 20;
        match (self.operation.reduction(), self.dtype) {
            (Some(Reduction::Prod), DType::U8 | DType::U32) => 1,
            (Some(Reduction::Prod), _) => 1 - 2 * (word % 2) as i64,
            (_, DType::F8E4M3 | DType::F8E5M2) => (word % 2) as i64 * if self.operation.reduction().is_some() { 1 } else { 3 },
            _ => (word % 4) as i64,
        }
    }

    fn given(&self, rank: usize, elements: usize) -> Vec<i64> {
        let stream = self.stream(rank);
        (0..elements).map(|at| self.value(&stream, at)).collect()
    }

    /// Where a rank's values come from.
    fn stream(&self, rank: usize) -> RandomStream {
        RandomStream::named(self.key, &format!("rank {rank}"))
    }

    fn combined(&self, reduction: Reduction, range: std::ops::Range<usize>) -> Vec<f64> {
        let streams: Vec<RandomStream> = self.ranks.iter().map(|&rank| self.stream(rank)).collect();
        range.map(|at| self.combined_at(reduction, &streams, at)).collect()
    }

    fn combined_at(&self, reduction: Reduction, streams: &[RandomStream], at: usize) -> f64 {
        let all = streams.iter().map(|stream| self.value(stream, at));
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
    fn call(&self, rank: usize, device: &Device) -> Option<(Call, Option<Tensor>)> {
        let position = self.ranks.iter().position(|&member| member == rank)?;
        let mut members = self.ranks.clone();
        members.sort_unstable();
        let group = Group::of(members, rank)?;
        let (n, length) = (group.size(), self.length);
        let tensor = |values: &[f64]| Tensor::from_f64(self.dtype, &[values.len()], values).unwrap();
        let there = |tensor: Tensor| tensor.to_device(device).unwrap();
        let own = |elements| there(tensor(&self.given(rank, elements).iter().map(|&value| value as f64).collect::<Vec<_>>()));
        let poison = |elements| there(Tensor::empty(self.dtype, &[elements]).unwrap());
        let part = |whole: &Tensor| whole.slice(0, group.position * length..(group.position + 1) * length, 1).unwrap();
        let (source, result, expected): (Option<Tensor>, Option<Tensor>, Option<Vec<f64>>) = match self.operation {
            Operation::AllReduce(reduction) => {
                let source = own(length);
                let result = if self.in_place { source.clone() } else { poison(length) };
                (Some(source), Some(result), Some(self.combined(reduction, 0..length)))
            }
            Operation::ReduceScatter(reduction) => {
                let source = own(n * length);
                let result = if self.in_place { part(&source) } else { poison(length) };
                let first = group.position * length;
                (Some(source), Some(result), Some(self.combined(reduction, first..first + length)))
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

/// How far a mean may be from the exact one, relatively: on a device each term is divided first, and that is rounded in the type.
fn allowed(drawn: &Drawn, device: &Device) -> f64 {
    match (drawn.operation.reduction(), drawn.dtype) {
        _ if device.is_cpu() => 0.0,
        (Some(Reduction::Avg), DType::F64) => 1e-14,
        (Some(Reduction::Avg), DType::F32) => 1e-6,
        (Some(Reduction::Avg), DType::F16) => 4e-3,
        (Some(Reduction::Avg), DType::BF16) => 3e-2,
        (Some(Reduction::Avg), DType::F8E4M3 | DType::F8E5M2) => 0.5,
        _ => 0.0,
    }
}

/// A rank's calls of a seed, one after another or some at once; an error says which result was wrong.
pub(crate) fn make_calls(communicator: &mut dyn Communicator, seed: u64, count: usize) -> Result<(), String> {
    let (rank, list, device) = (communicator.rank(), drawn(seed, communicator.ranks(), count), communicator.device().clone());
    let mut random = Random { stream: RandomStream::named(seed, "lists"), count: 0 };
    let mut at = 0;
    while at < list.len() {
        // How many at once is the same on every rank.
        let end = (at + 1 + random.below(3)).min(list.len());
        let own: Vec<(usize, (Call, Option<Tensor>))> =
            (at..end).filter_map(|index| Some((index, list[index].call(rank, &device)?))).collect();
        let calls: Vec<Call> = own.iter().map(|(_, (call, _))| call.clone()).collect();
        at = end;
        communicator.start(&calls, None).and_then(|pending| pending.wait()).map_err(|error| format!("{error}\n{calls:?}"))?;
        for (index, (call, expected)) in &own {
            let (Some(result), Some(expected)) = (&call.result, expected) else { continue };
            let (result, error) = (result.to_device(&Device::Cpu).unwrap(), allowed(&list[*index], &device));
            let difference = result.difference(expected, |_, value| error * value.abs());
            if difference != Ok(None) {
                return Err(format!("seed {seed}, call {index}, rank {rank}: {:?}: {difference:?}", list[*index]));
            }
        }
    }
    Ok(())
}
