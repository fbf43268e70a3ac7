//! Products of ranks that reach each other's memory give what the unsharded product gives, on emulated devices; and a rank that does not come is told of.

use std::sync::Arc;
use std::time::Duration;

use tessera_emu::EmuOptions;
use tessera_ops::ranked::{GatheredProduct, RankedError, ScatteredProduct};
use tessera_ops::{Call, find};
use tessera_runtime::ranks::nvlink::{Choice, Layout, NvlinkCommunicator, SymmetricMemory};
use tessera_runtime::ranks::{Communicator, ExchangeError, Meeting};
use tessera_runtime::{Device, DriverDevice, RandomStream, Tensor};
use tessera_types::DType;

const PATIENCE: Duration = Duration::from_secs(60);

/// What each rank does, on an emulated device of its own; the results in the order of ranks.
fn on_ranks<T: Send>(ranks: usize, work: impl Fn(&mut NvlinkCommunicator) -> T + Sync) -> Vec<T> {
    let options = EmuOptions { devices: ranks as u32, multiprocessors: Some(2), ..EmuOptions::default() };
    let table = Arc::new(tessera_emu::driver(&options).expect("the emulator"));
    let device = |ordinal| DriverDevice::open(Arc::clone(&table), ordinal as u32).expect("a device");
    let devices: Vec<DriverDevice> = (0..ranks).map(device).collect();
    let (devices, meeting, work) = (&devices, &Meeting::new(ranks), &work);
    let one = |rank: usize| {
        let mut inner = meeting.rank(rank);
        let layout = Layout { lines_bytes: 256, set_bytes: 256 };
        let memory = SymmetricMemory::meet(&devices[rank], layout, &mut inner).expect("symmetric memory");
        let mut end = NvlinkCommunicator::new(Box::new(inner), memory, Choice::NONE, PATIENCE).expect("a communicator");
        // Others may still write into what this one's work has made.
        (work(&mut end), end)
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a rank")).collect();
        ended.into_iter().map(|(result, _)| result).collect()
    })
}

/// Small integers, whose products' sums are exact in every type.
fn array(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    RandomStream::new(seed).integers(dtype, shape, -4, 4).expect("numbers")
}

fn part(whole: &Tensor, axis: usize, count: usize, at: usize) -> Tensor {
    let size = whole.shape()[axis] / count;
    whole.slice(axis, at * size..(at + 1) * size, 1).and_then(|part| part.contiguous()).expect("a part")
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_device(&Device::Cpu).and_then(|tensor| tensor.to_f64()).expect("numbers")
}

/// The whole product, in `fp32`.
fn whole(a: &Tensor, b: &Tensor) -> Tensor {
    let call = Call { variant: Some("nn"), tensors: vec![("A", a.clone()), ("B", b.clone())], ..Call::default() };
    find("gemm").expect("an operator").resolve(&call).expect("a plan").run().expect("a product").remove(0)
}

/// Element types of factors and of results; of sums up to 256 bf16 has all integers.
const TYPES: [[DType; 2]; 3] = [[DType::F32; 2], [DType::BF16, DType::F32], [DType::F16, DType::F16]];

#[test]
fn rows_that_come_meanwhile_are_multiplied() {
    for (ranks, [dtype, result]) in [1, 2, 3, 4].into_iter().zip(TYPES.into_iter().cycle()) {
        let (m, n, k) = (40, 24, 36);
        let all: Vec<(Tensor, Tensor)> =
            (0..3).map(|call| (array(dtype, &[m * ranks, k], 10 + call), array(dtype, &[k, n * ranks], 20 + call))).collect();
        let got = on_ranks(ranks, |end| {
            let (rank, device) = (end.rank(), end.device().clone());
            let on = |tensor: Tensor| tensor.to_device(&device).expect("a copy");
            let (a, b) = (on(part(&all[0].0, 0, ranks, rank)), on(part(&all[0].1, 1, ranks, rank)));
            let c = Tensor::zeros_on(result, &[m * ranks, n], &device).expect("room");
            let mut program = GatheredProduct::new(end, [&a, &b, &c], PATIENCE).expect("a program");
            // Several in a row, each with other numbers: the sets take turns.
            all.iter()
                .map(|(own_a, own_b)| {
                    a.copy_from(&part(own_a, 0, ranks, rank)).expect("a copy");
                    b.copy_from(&part(own_b, 1, ranks, rank)).expect("a copy");
                    program.enqueue().expect("queued");
                    program.wait().expect("all ranks");
                    numbers(&c)
                })
                .collect::<Vec<_>>()
        });
        for (call, (a, b)) in all.iter().enumerate() {
            let want = whole(a, b);
            for (rank, got) in got.iter().enumerate() {
                assert!(got[call] == numbers(&part(&want, 1, ranks, rank)), "{dtype}, rank {rank} of {ranks}, call {call}");
            }
        }
    }
}

#[test]
fn sums_are_stored_where_they_are_added() {
    for (ranks, [dtype, result]) in [1, 2, 3, 4].into_iter().zip(TYPES.into_iter().cycle()) {
        let (m, n, k) = (20, 48, 16);
        let all: Vec<(Tensor, Tensor)> = (0..3)
            .map(|call| (array(dtype, &[m * ranks, k * ranks], 30 + call), array(dtype, &[k * ranks, n], 40 + call)))
            .collect();
        let got = on_ranks(ranks, |end| {
            let (rank, device) = (end.rank(), end.device().clone());
            let on = |tensor: Tensor| tensor.to_device(&device).expect("a copy");
            let (a, b) = (on(part(&all[0].0, 1, ranks, rank)), on(part(&all[0].1, 0, ranks, rank)));
            let c = Tensor::zeros_on(result, &[m, n], &device).expect("room");
            let mut program = ScatteredProduct::new(end, [&a, &b, &c], PATIENCE).expect("a program");
            all.iter()
                .map(|(own_a, own_b)| {
                    a.copy_from(&part(own_a, 1, ranks, rank)).expect("a copy");
                    b.copy_from(&part(own_b, 0, ranks, rank)).expect("a copy");
                    program.enqueue().expect("queued");
                    program.wait().expect("all ranks");
                    numbers(&c)
                })
                .collect::<Vec<_>>()
        });
        for (call, (a, b)) in all.iter().enumerate() {
            let want = whole(a, b);
            for (rank, got) in got.iter().enumerate() {
                assert!(got[call] == numbers(&part(&want, 0, ranks, rank)), "{dtype}, rank {rank} of {ranks}, call {call}");
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_told_of() {
    let said = on_ranks(3, |end| {
        let (rank, device) = (end.rank(), end.device().clone());
        let zeros = |shape: &[usize]| Tensor::zeros_on(DType::F32, shape, &device).expect("room");
        let [a, b, c] = [zeros(&[3, 4]), zeros(&[4, 8]), zeros(&[1, 8])];
        let mut program = ScatteredProduct::new(end, [&a, &b, &c], Duration::from_millis(50)).expect("a program");
        if rank != 1 {
            program.enqueue().expect("queued");
        }
        let said = program.wait().err();
        // What the others write into stays.
        (said, program)
    });
    let said: Vec<_> = said.into_iter().map(|(said, _)| said).collect();
    for rank in [0, 2] {
        let Some(RankedError::Exchange(ExchangeError::Late { ranks, .. })) = &said[rank] else { panic!("{:?}", said[rank]) };
        assert_eq!(ranks, &[1], "rank {rank}");
    }
}

#[test]
fn arrays_that_do_not_fit_are_told() {
    let said = on_ranks(2, |end| {
        let (rank, device) = (end.rank(), end.device().clone());
        let zeros = |shape: &[usize]| Tensor::zeros_on(DType::F32, shape, &device).expect("room");
        let told = |error: RankedError| error.to_string();
        let (a, b) = (zeros(&[4, 8]), zeros(&[8, 6]));
        let gathered = |end: &mut NvlinkCommunicator, c: &Tensor, b: &Tensor| {
            GatheredProduct::new(end, [&a, b, c], PATIENCE).map(drop).map_err(told).expect_err("no program")
        };
        let shapes = gathered(end, &zeros(&[4, 6]), &b);
        let rows = ScatteredProduct::new(end, [&zeros(&[5, 8]), &b, &zeros(&[2, 6])], PATIENCE).map(drop).map_err(told);
        let apart = gathered(end, &zeros(&[6, 8]).permute(&[1, 0]).expect("a view"), &b);
        let elsewhere = gathered(end, &Tensor::zeros(DType::F32, &[8, 6]).expect("room"), &b);
        // Ranks with other extents.
        let wide = 6 + 2 * rank;
        let differ = gathered(end, &zeros(&[8, wide]), &zeros(&[8, wide]));
        [shapes, rows.expect_err("no program"), apart, elsewhere, differ]
    });
    for (rank, [shapes, rows, apart, elsewhere, differ]) in said.into_iter().enumerate() {
        let expected = "all-gather + product: A is 4 x 8: B of 8 x n and C of 8 x n are wanted, not 8 x 6 and 4 x 6";
        assert_eq!(shapes, expected);
        assert_eq!(rows, "product + reduce-scatter: 5 rows of A do not divide among the ranks");
        assert!(apart.contains("call `contiguous` first"), "{apart}");
        assert!(elsewhere.contains("an array is on `cpu`"), "{elsewhere}");
        assert_eq!(
            differ,
            format!("all-gather + product: rank {} has other extents or types than rank {rank}: all have the same", 1 - rank)
        );
    }
}
