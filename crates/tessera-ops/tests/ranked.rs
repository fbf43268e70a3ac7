//! Programs of ranks give what the unsharded operator gives, among 1 to 16 simulated ranks.

use tessera_ops::ranked::{RankedError, RingAttention, gathered_product, ring_attention, scattered_product};
use tessera_ops::{Call, find};
use tessera_runtime::Tensor;
use tessera_runtime::ranks::{Communicator, Group, Meeting, SimulatedRank};
use tessera_types::{DType, unit_roundoff};

/// What each rank's program gives.
fn on_ranks<T: Send>(count: usize, program: impl Fn(&mut SimulatedRank, &Group, usize) -> T + Sync) -> Vec<T> {
    let meeting = Meeting::new(count);
    let ends: Vec<SimulatedRank> = (0..count).map(|rank| meeting.rank(rank)).collect();
    std::thread::scope(|scope| {
        let program = &program;
        let threads: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(rank, mut end)| scope.spawn(move || program(&mut end, &Group::world(rank, count), rank)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

/// Numbers of a few bits in [-2, 2), which differ from place to place.
fn array(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as f64 / 64.0 - 2.0
    };
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
    Tensor::from_f64(dtype, shape, &values).expect("an array")
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64().expect("numbers")
}

fn run(operator: &str, variant: &str, tensors: Vec<(&str, Tensor)>, scalars: Vec<(&str, f64)>) -> Vec<Tensor> {
    let call = Call { variant: Some(variant), tensors, scalars, lock: None };
    find(operator).expect("an operator").resolve(&call).expect("a plan").run().expect("results")
}

/// Parts along an axis, in new memory.
fn part(whole: &Tensor, axis: usize, count: usize, at: usize) -> Tensor {
    let size = whole.shape()[axis] / count;
    whole.slice(axis, at * size..(at + 1) * size, 1).and_then(|part| part.contiguous()).expect("a part")
}

/// Each row's allowed difference: results are averages of values up to 2, rounded a few times in each step.
fn near(got: &[f64], want: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= bound, "{what}: {at} is {got}, not {want}");
    }
}

#[test]
fn ring_attention_is_attention() {
    for (dtype, causal) in [(DType::F32, false), (DType::F32, true), (DType::BF16, true), (DType::F16, false)] {
        for ranks in [1, 2, 3, 4, 7, 16] {
            let (length, width) = (8, 16);
            let whole = length * ranks;
            let q = array(dtype, &[2, 4, whole, width], 1);
            let (k, v) = (array(dtype, &[2, 2, whole, width], 2), array(dtype, &[2, 2, whole, width], 3));
            let how = RingAttention { scale: 0.25, causal };
            let parts = on_ranks(ranks, |end, group, rank| {
                let own = [&q, &k, &v].map(|array| part(array, 2, ranks, rank));
                ring_attention(end, group, [&own[0], &own[1], &own[2]], how).expect("results")
            });
            let variant = if causal { "causal" } else { "" };
            let tensors = vec![("Q", q.clone()), ("K", k.clone()), ("V", v.clone())];
            let want = run("attention_lse", variant, tensors, vec![("scale", how.scale)]);
            for (rank, got) in parts.iter().enumerate() {
                let what = format!("{dtype}, {ranks} ranks, causal {causal}, rank {rank}");
                // Each step's part is rounded to the type, and so is the result.
                let bound = 2.0 * 2.0 * unit_roundoff(dtype) * 2.0 + 1e-5;
                near(&numbers(&got.output), &numbers(&part(&want[0], 2, ranks, rank)), bound, &what);
                near(&numbers(&got.lse), &numbers(&part(&want[1], 2, ranks, rank)), 1e-4, &format!("{what}, lse"));
            }
        }
    }
}

#[test]
fn ring_attention_of_f64_is_exact_to_f64() {
    let (ranks, length, width) = (3, 5, 8);
    let arrays = [1, 2, 3].map(|seed| array(DType::F64, &[1, 1, length * ranks, width], seed));
    let parts = on_ranks(ranks, |end, group, rank| {
        let own = [0, 1, 2].map(|at: usize| part(&arrays[at], 2, ranks, rank));
        ring_attention(end, group, [&own[0], &own[1], &own[2]], RingAttention { scale: 0.5, causal: false }).expect("results")
    });
    let [q, k, v] = [0, 1, 2].map(|at: usize| numbers(&arrays[at]));
    let keys = length * ranks;
    for (rank, got) in parts.iter().enumerate() {
        let (output, lse) = (numbers(&got.output), numbers(&got.lse));
        for row in 0..length {
            let query = &q[(rank * length + row) * width..][..width];
            let score = |key: usize| (0..width).map(|i| query[i] * k[key * width + i]).sum::<f64>() * 0.5;
            let weights: Vec<f64> = (0..keys).map(|key| score(key).exp()).collect();
            let sum: f64 = weights.iter().sum();
            assert!((lse[row] - sum.ln()).abs() < 1e-6, "{} {}", lse[row], sum.ln());
            for i in 0..width {
                let want = (0..keys).map(|key| weights[key] * v[key * width + i]).sum::<f64>() / sum;
                // The scale of a launch has 32 bits.
                assert!((output[row * width + i] - want).abs() < 1e-6, "{} {want}", output[row * width + i]);
            }
        }
    }
}

#[test]
fn products_in_pieces_are_the_product() {
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        for ranks in [1, 2, 3, 4, 8, 16] {
            let (m, n, k) = (4 * ranks, 6 * ranks, 5 * ranks);
            let (a, b) = (array(dtype, &[m, k], 4), array(dtype, &[k, n], 5));
            let want = run("gemm", "nn", vec![("A", a.clone()), ("B", b.clone())], vec![]).remove(0);
            // Values have eight bits, and sums stay below 2^24 of their products' last bit: all is exact but in bf16's inputs, which are.
            let gathered = on_ranks(ranks, |end, group, rank| {
                gathered_product(end, group, &part(&a, 0, ranks, rank), &part(&b, 1, ranks, rank)).expect("a product")
            });
            for (rank, got) in gathered.iter().enumerate() {
                let what = format!("all-gather + product, {dtype}, {ranks} ranks, rank {rank}");
                near(&numbers(got), &numbers(&part(&want, 1, ranks, rank)), 1e-4, &what);
            }
            let scattered = on_ranks(ranks, |end, group, rank| {
                scattered_product(end, group, &part(&a, 1, ranks, rank), &part(&b, 0, ranks, rank)).expect("a product")
            });
            for (rank, got) in scattered.iter().enumerate() {
                let what = format!("product + reduce-scatter, {dtype}, {ranks} ranks, rank {rank}");
                near(&numbers(got), &numbers(&part(&want, 0, ranks, rank)), 1e-4, &what);
            }
        }
    }
}

#[test]
fn programs_run_in_groups_of_ranks() {
    let a = array(DType::F32, &[8, 4], 6);
    let b = array(DType::F32, &[4, 4], 7);
    let want = numbers(&run("gemm", "nn", vec![("A", a.clone()), ("B", b.clone())], vec![])[0]);
    // Two groups of two: even and odd ranks, each with the whole product.
    let got = on_ranks(4, |end, _, rank| {
        let members = (0..4).filter(|other| other % 2 == rank % 2).collect();
        let group = Group::of(members, end.rank()).expect("a group");
        let rows = part(&a, 0, 2, group.position);
        gathered_product(end, &group, &rows, &b).expect("a product")
    });
    got.iter().for_each(|got| near(&numbers(got), &want, 1e-5, "a group of two"));
}

#[test]
fn parts_that_do_not_fit_are_told() {
    let meeting = Meeting::new(1);
    let mut alone = meeting.rank(0);
    let group = alone.world();
    let [q, k] = [[1, 2, 4, 8], [1, 2, 5, 8]].map(|shape| array(DType::F32, &shape, 8));
    let how = RingAttention { scale: 1.0, causal: true };
    let said = |error: RankedError| error.to_string();
    let error = ring_attention(&mut alone, &group, [&q, &k, &k], how).expect_err("5 keys");
    assert_eq!(said(error), "ring attention: 4 queries and keys of shape [1, 2, 5, 8]: causal parts are of one length");
    let flat = array(DType::F32, &[4, 8], 9);
    let error = ring_attention(&mut alone, &group, [&flat, &k, &k], how).expect_err("two axes");
    assert!(said(error).contains("batch x heads x length x width are wanted"));
    let error = gathered_product(&mut alone, &group, &flat, &flat).expect_err("8 is not 4");
    assert!(said(error).contains("inner extents agree"));
    let meeting = Meeting::new(3);
    let mut first = meeting.rank(0);
    let group = first.world();
    let error = scattered_product(&mut first, &group, &array(DType::F32, &[4, 8], 1), &array(DType::F32, &[8, 2], 2))
        .expect_err("4 rows");
    assert_eq!(said(error), "product + reduce-scatter: 4 rows do not divide among 3 ranks");
}

#[test]
fn a_rank_that_leaves_ends_the_others() {
    let outcomes = on_ranks(3, |end, group, rank| {
        let (a, b) = (array(DType::F32, &[2, 4], 1), array(DType::F32, &[4, 2], 2));
        if rank == 1 {
            end.abort("it has enough");
            return Ok(());
        }
        gathered_product(end, group, &a, &b).map(drop)
    });
    let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(ToString::to_string).collect::<Vec<_>>();
    assert!(failed.iter().any(|text| text.contains("rank 1 stopped")), "{failed:?}");
}
