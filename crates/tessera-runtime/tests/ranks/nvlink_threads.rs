//! Communicators over symmetric memory: ranks are threads with an emulated device each, behind one driver table.

use std::sync::Arc;
use std::time::Duration;

use tessera_emu::EmuOptions;
use tessera_runtime::ranks::nvlink::{Algorithm, Choice, Layout, NvlinkCommunicator, SymmetricMemory};
use tessera_runtime::ranks::{Call, Communicator, ExchangeError, Group, Meeting, Operation, Reduction};
use tessera_runtime::{DriverDevice, RandomStream, Tensor};
use tessera_types::DType;

const LAYOUT: Layout = Layout { lines_bytes: 1 << 15, set_bytes: 1 << 17 };
/// Every algorithm has its sizes.
const CHOICE: Choice = Choice { small: 512, one_shot: 2048, two_shot: 1 << 14, reduce_scatter: 1 << 13, all_gather: 1 << 13 };

fn devices(ranks: usize) -> Vec<DriverDevice> {
    let options = EmuOptions { devices: ranks as u32, multiprocessors: Some(4), ..EmuOptions::default() };
    let table = Arc::new(tessera_emu::driver(&options).expect("the emulator"));
    (0..ranks as u32).map(|ordinal| DriverDevice::open(Arc::clone(&table), ordinal).expect("a device")).collect()
}

/// What each rank does, with its communicator; the results in the order of ranks.
fn on_ranks<T: Send>(ranks: usize, limit: Duration, work: impl Fn(&mut NvlinkCommunicator, &Group) -> T + Sync) -> Vec<T> {
    let (devices, meeting, inner, work) = (devices(ranks), Meeting::new(ranks), Meeting::new(ranks), &work);
    let (devices, meeting, inner) = (&devices, &meeting, &inner);
    let one = |rank: usize| {
        let memory = SymmetricMemory::meet(&devices[rank], LAYOUT, &mut meeting.rank(rank)).expect("symmetric memory");
        let inner = Box::new(inner.rank(rank));
        let mut communicator = NvlinkCommunicator::new(inner, memory, CHOICE, limit).expect("a communicator");
        let result = work(&mut communicator, &Group::world(rank, ranks));
        // Others may still write here.
        (result, communicator)
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a rank")).collect();
        ended.into_iter().map(|(result, _)| result).collect()
    })
}

fn normal(rank: usize, elements: usize) -> Tensor {
    RandomStream::new(rank as u64 + 1).randn(DType::F32, &[elements]).expect("random numbers")
}

fn bytes(call: &Call) -> Vec<u8> {
    call.result.as_ref().expect("a result").to_bytes().expect("bytes")
}

#[test]
fn ranks_get_equal_bits_of_sums_in_the_order_of_ranks() {
    for ranks in [2, 3] {
        for (elements, algorithm) in
            [(100, Algorithm::SmallAllReduce), (333, Algorithm::OneShotAllReduce), (2001, Algorithm::TwoShotAllReduce)]
        {
            let results = on_ranks(ranks, Duration::from_secs(20), |communicator, group| {
                let source = normal(group.position, elements).to_device(communicator.device()).expect("a copy");
                let result = Tensor::zeros_on(DType::F32, &[elements], communicator.device()).expect("a tensor");
                let apart = Call::new(Operation::AllReduce(Reduction::Sum), group, Some(&source), Some(&result));
                assert_eq!(communicator.algorithm(&apart), Some(algorithm));
                for _ in 0..3 {
                    communicator.start(std::slice::from_ref(&apart), None).and_then(|pending| pending.wait()).expect("a sum");
                }
                let in_place = Call::new(Operation::AllReduce(Reduction::Sum), group, Some(&source), Some(&source));
                communicator.start(std::slice::from_ref(&in_place), None).and_then(|pending| pending.wait()).expect("a sum");
                (bytes(&apart), bytes(&in_place))
            });
            let given: Vec<Vec<f32>> =
                (0..ranks).map(|rank| normal(rank, elements).read::<f32>().expect("numbers").to_vec()).collect();
            let sum = |at: usize| given[1..].iter().fold(given[0][at], |sum, values| sum + values[at]);
            let expected: Vec<u8> = (0..elements).flat_map(|at| sum(at).to_le_bytes()).collect();
            for (rank, (apart, in_place)) in results.into_iter().enumerate() {
                assert!(apart == expected, "rank {rank} of {ranks}, {algorithm:?}");
                assert!(in_place == expected, "rank {rank} of {ranks}, {algorithm:?}, in place");
            }
        }
    }
}

#[test]
fn what_has_no_kernel_goes_to_the_inner_communicator() {
    let results = on_ranks(2, Duration::from_secs(20), |communicator, group| {
        let device = communicator.device().clone();
        let source = normal(group.position, 64).to_device(&device).expect("a copy");
        let result = Tensor::zeros_on(DType::F32, &[64], &device).expect("a tensor");
        let product = Call::new(Operation::AllReduce(Reduction::Prod), group, Some(&source), Some(&result));
        assert_eq!(communicator.algorithm(&product), None);
        let whole = Tensor::zeros_on(DType::F32, &[128], &device).expect("a tensor");
        let gathered = Call::new(Operation::AllGather, group, Some(&source), Some(&whole));
        // Both at once: one is done here, the other one there.
        communicator.start(&[product.clone(), gathered.clone()], None).and_then(|pending| pending.wait()).expect("both");
        (bytes(&product), bytes(&gathered))
    });
    let given: Vec<Vec<f32>> = (0..2).map(|rank| normal(rank, 64).read::<f32>().expect("numbers").to_vec()).collect();
    let product: Vec<u8> = (0..64).flat_map(|at| (given[0][at] * given[1][at]).to_le_bytes()).collect();
    let whole: Vec<u8> = given.concat().iter().flat_map(|value| value.to_le_bytes()).collect();
    for found in results {
        assert_eq!(found, (product.clone(), whole.clone()));
    }
}

#[test]
fn a_rank_that_does_not_come_is_told_of_and_ends_the_communicator() {
    let outcomes = on_ranks(3, Duration::from_millis(50), |communicator, group| {
        let source = normal(group.position, 64).to_device(communicator.device()).expect("a copy");
        let call = Call::new(Operation::AllReduce(Reduction::Sum), group, Some(&source), Some(&source));
        let mut again = || communicator.start(std::slice::from_ref(&call), None).and_then(|pending| pending.wait());
        // Once with all ranks, which compiles the kernel.
        let all = again();
        if group.position == 1 { vec![all] } else { vec![all, again(), again()] }
    });
    for rank in [0, 2] {
        let [Ok(()), Err(ExchangeError::Late { ranks, .. }), Err(after @ ExchangeError::Aborted { .. })] = &outcomes[rank][..]
        else {
            panic!("rank {rank}: {:?}", outcomes[rank])
        };
        assert_eq!(ranks, &[1], "rank {rank}");
        assert!(after.to_string().contains("make a new communicator"), "{after}");
    }
}

#[test]
fn ranks_on_one_device_are_refused() {
    let (device, meeting) = (devices(1).remove(0), Meeting::new(2));
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (device, meeting) = (&device, &meeting);
            scope.spawn(move || {
                let met = SymmetricMemory::meet(device, LAYOUT, &mut meeting.rank(rank));
                let message = met.expect_err("one device").to_string();
                assert!(message.contains("has the same device"), "{message}");
            });
        }
    });
}

#[test]
fn a_region_of_other_ranks_is_refused() {
    let devices = devices(2);
    let memory = SymmetricMemory::of_devices(&devices, LAYOUT).expect("memory").remove(0);
    let inner = Box::new(Meeting::new(3).rank(0));
    let outcome = NvlinkCommunicator::new(inner, memory, CHOICE, Duration::from_secs(1));
    let message = outcome.err().expect("other ranks").to_string();
    assert!(message.contains("rank 0 of 3, the region rank 0 of 2"), "{message}");
}
