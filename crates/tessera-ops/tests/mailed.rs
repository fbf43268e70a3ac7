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

/// A program that is queued and waited for.
type Run = Box<dyn FnMut()>;

/// A program and how its arrays are cut: `rows`, `columns` and `depth` of the whole product are those of a rank, times as many as there are ranks where an
/// array is cut along them.
struct Case {
    ranks: &'static [usize],
    of_rank: [usize; 3],
    /// Which of the three grow with the ranks.
    grow: [bool; 3],
    /// The axes along which ranks have parts of A, of B and of the whole product.
    axes: [usize; 3],
    /// The rows and columns that a rank gets, of those of the whole product.
    result: fn([usize; 2], usize) -> [usize; 2],
    program: fn(&mut NvlinkCommunicator, [&Tensor; 3]) -> Run,
}

/// Several calls in a row, each with other numbers, so that the sets take turns: each gives its ranks' parts of the whole product.
fn agrees(case: &Case) {
    for (ranks, [dtype, result]) in case.ranks.iter().copied().zip(TYPES.into_iter().cycle()) {
        let extent = |at: usize| case.of_rank[at] * if case.grow[at] { ranks } else { 1 };
        let (m, n, k) = (extent(0), extent(1), extent(2));
        let numbers_of = |call: u64| (array(dtype, &[m, k], 10 + call), array(dtype, &[k, n], 20 + call));
        let all: Vec<(Tensor, Tensor)> = (0..3).map(numbers_of).collect();
        let got = on_ranks(ranks, |end| {
            let (rank, device) = (end.rank(), end.device().clone());
            let parts = |(a, b): &(Tensor, Tensor)| (part(a, case.axes[0], ranks, rank), part(b, case.axes[1], ranks, rank));
            let on = |tensor: Tensor| tensor.to_device(&device).expect("a copy");
            let first = parts(&all[0]);
            let (a, b) = (on(first.0), on(first.1));
            let c = Tensor::zeros_on(result, &(case.result)([m, n], ranks), &device).expect("room");
            let mut run = (case.program)(end, [&a, &b, &c]);
            all.iter()
                .map(|whole| {
                    let own = parts(whole);
                    a.copy_from(&own.0).expect("a copy");
                    b.copy_from(&own.1).expect("a copy");
                    run();
                    numbers(&c)
                })
                .collect::<Vec<_>>()
        });
        for (call, (a, b)) in all.iter().enumerate() {
            let want = whole(a, b);
            for (rank, got) in got.iter().enumerate() {
                let part = numbers(&part(&want, case.axes[2], ranks, rank));
                assert!(got[call] == part, "{dtype}, rank {rank} of {ranks}, call {call}");
            }
        }
    }
}

#[test]
fn rows_that_come_meanwhile_are_multiplied() {
    agrees(&Case {
        ranks: &[1, 2, 3, 4],
        of_rank: [40, 24, 36],
        grow: [true, true, false],
        axes: [0, 1, 1],
        result: |[m, n], ranks| [m, n / ranks],
        program: |end, arrays| {
            let mut program = GatheredProduct::new(end, arrays, PATIENCE).expect("a program");
            Box::new(move || {
                program.enqueue().expect("queued");
                program.wait().expect("all ranks");
            })
        },
    });
}

/// Few rows are one piece, many are two, the second of which is not of whole tiles here.
#[test]
fn sums_are_added_where_they_are_to_be() {
    for (ranks, rows) in [(&[1, 2, 3, 4][..], 20), (&[2, 3], 600)] {
        agrees(&Case {
            ranks,
            of_rank: [rows, 24, 16],
            grow: [true, false, true],
            axes: [1, 0, 0],
            result: |[m, n], ranks| [m / ranks, n],
            program: |end, arrays| {
                let mut program = ScatteredProduct::new(end, arrays, PATIENCE).expect("a program");
                Box::new(move || {
                    program.enqueue().expect("queued");
                    program.wait().expect("all ranks");
                })
            },
        });
    }
}

#[test]
fn a_rank_that_does_not_come_is_told_of() {
    let said = on_ranks(3, |end| {
        let (rank, device) = (end.rank(), end.device().clone());
        let zeros = |shape: &[usize]| Tensor::zeros_on(DType::F32, shape, &device).expect("room");
        let [a, b, c] = [zeros(&[3, 4]), zeros(&[4, 8]), zeros(&[1, 8])];
        let mut program = ScatteredProduct::new(end, [&a, &b, &c], Duration::from_secs(2)).expect("a program");
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
