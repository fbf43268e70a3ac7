//! Attention of packed sequences and of windows, against sums as one would write them down.

use tessera_ops::{Bias, Packed, Seen, attention_varlen, attention_window};
use tessera_runtime::Tensor;

const DIM: usize = 64;

/// Numbers around 0 that repeat themselves nowhere near.
fn numbers(count: usize, salt: u64) -> Vec<f32> {
    let mut state = salt;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

/// One row, of the keys and values that it sees, with what is added to each one's score: the result and the logarithm.
fn row(q: &[f32], keys: &[(&[f32], &[f32], f64)], cap: f64) -> (Vec<f64>, f64) {
    let score = |k: &[f32]| q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() / (DIM as f64).sqrt();
    let weights: Vec<f64> = keys.iter().map(|(k, _, bias)| (cap * (score(k) / cap).tanh() + bias).exp()).collect();
    let total: f64 = weights.iter().sum();
    let at = |column: usize| keys.iter().zip(&weights).map(|((_, v, _), weight)| weight * f64::from(v[column])).sum::<f64>();
    ((0..DIM).map(|column| if total > 0.0 { at(column) / total } else { 0.0 }).collect(), total.ln())
}

fn assert_near(found: &[f64], wanted: &[f64], what: &str) {
    let far = found.iter().zip(wanted).position(|(found, wanted)| !(found == wanted || (found - wanted).abs() < 1e-5));
    assert!(found.len() == wanted.len() && far.is_none(), "{what}: {far:?} of {found:?}, not {wanted:?}");
}

/// Queries and keys of sequences beside the ends of tiles, and of none.
const LENGTHS: [(usize, usize); 11] =
    [(0, 5), (1, 0), (1, 1), (17, 17), (0, 0), (63, 64), (64, 63), (65, 129), (127, 127), (128, 128), (129, 65)];

fn bounds(of: impl Fn(&(usize, usize)) -> usize) -> Vec<i32> {
    let ends = LENGTHS.iter().scan(0, |end, lengths| {
        *end += of(lengths) as i32;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[test]
fn each_sequence_sees_its_own_keys() {
    const HEADS: usize = 2;
    let (queries_at, keys_at) = (bounds(|lengths| lengths.0), bounds(|lengths| lengths.1));
    let (tokens, past) = (queries_at[LENGTHS.len()] as usize, keys_at[LENGTHS.len()] as usize);
    let (q, k, v) = (numbers(tokens * HEADS * DIM, 1), numbers(past * DIM, 2), numbers(past * DIM, 3));
    let slopes = [0.1f32, 0.03];
    let tensor = |shape: &[usize], values: &[f32]| Tensor::from_vec(shape, values.to_vec()).expect("memory");
    let (tensor_q, tensor_slopes) = (tensor(&[tokens, HEADS, DIM], &q), tensor(&[HEADS], &slopes));
    let (tensor_k, tensor_v) = (tensor(&[past, 1, DIM], &k), tensor(&[past, 1, DIM], &v));
    let at = |bounds: &[i32]| Tensor::from_vec(&[bounds.len()], bounds.to_vec()).expect("memory");
    let (at_q, at_k) = (at(&queries_at), at(&keys_at));
    let packed = Packed { q: &tensor_q, k: &tensor_k, v: &tensor_v, queries_at: &at_q, keys_at: &at_k };
    for (left, right) in [(None, None), (None, Some(0)), (Some(17), Some(0)), (Some(0), Some(0)), (Some(63), Some(64))] {
        let seen = Seen { left, right, cap: Some(0.5), bias: Bias::Slopes(&tensor_slopes) };
        let results = attention_varlen(&packed, &seen).expect("attention").map(|result| result.to_f64().expect("numbers"));
        for (sequence, &(queries, keys)) in LENGTHS.iter().enumerate() {
            let (first, first_key) = (queries_at[sequence] as usize, keys_at[sequence] as usize);
            for (query, head) in (0..queries).flat_map(|query| (0..HEADS).map(move |head| (query, head))) {
                let place = (query + keys) as i64 - queries as i64;
                let sees = |key: &usize| {
                    let distance = *key as i64 - place;
                    left.is_none_or(|left| -distance <= i64::from(left)) && right.is_none_or(|right| distance <= i64::from(right))
                };
                let of_key = |key: usize| {
                    let line = (first_key + key) * DIM..(first_key + key + 1) * DIM;
                    (&k[line.clone()], &v[line], -f64::from(slopes[head]) * (key as i64 - place).abs() as f64)
                };
                let row_of = (first + query) * HEADS + head;
                let (o, lse) = row(&q[row_of * DIM..][..DIM], &(0..keys).filter(sees).map(of_key).collect::<Vec<_>>(), 0.5);
                let what = format!("query {query} of sequence {sequence}, head {head}, {left:?} {right:?}");
                assert_near(&results[0][row_of * DIM..][..DIM], &o, &what);
                assert_near(&[results[1][head * tokens + first + query]], &[lse], &what);
            }
        }
    }
}

#[test]
fn a_bias_without_end_hides_a_key() {
    const KEYS: usize = 70;
    let (q, k, v) = (numbers(3 * DIM, 4), numbers(KEYS * DIM, 5), numbers(KEYS * DIM, 6));
    // The first query sees no key, the second only those of the second tile, the last one all.
    let bias: Vec<f32> = numbers(3 * KEYS, 7)
        .into_iter()
        .enumerate()
        .map(|(at, bias)| if at < KEYS + 66 { f32::NEG_INFINITY } else { bias })
        .collect();
    let tensor = |shape: &[usize], values: &[f32]| Tensor::from_vec(shape, values.to_vec()).expect("memory");
    let arrays =
        [tensor(&[1, 3, DIM], &q), tensor(&[1, KEYS, DIM], &k), tensor(&[1, KEYS, DIM], &v), tensor(&[1, 3, KEYS], &bias)];
    let seen = Seen { cap: Some(1.5), bias: Bias::Each(&arrays[3]), ..Seen::default() };
    let results = attention_window(&arrays[0], &arrays[1], &arrays[2], &seen).expect("attention");
    let [o, lse] = results.map(|result| result.to_f64().expect("numbers"));
    for query in 0..3 {
        let of_key = |key: usize| (&k[key * DIM..][..DIM], &v[key * DIM..][..DIM], f64::from(bias[query * KEYS + key]));
        let (wanted, logarithm) = row(&q[query * DIM..][..DIM], &(0..KEYS).map(of_key).collect::<Vec<_>>(), 1.5);
        assert_near(&o[query * DIM..][..DIM], &wanted, &format!("query {query}"));
        assert_near(&lse[query..=query], &[logarithm], &format!("query {query}"));
    }
}

#[test]
fn what_windows_and_sequences_cannot_be_is_named() {
    let (q, k) = (Tensor::from_vec(&[3, 2, DIM], numbers(6 * DIM, 8)), Tensor::from_vec(&[4, 1, DIM], numbers(4 * DIM, 9)));
    let (q, k) = (q.expect("memory"), k.expect("memory"));
    let said = |queries_at: &[i32], keys_at: &[i32], seen: &Seen<'_>| {
        let at = |bounds: &[i32]| Tensor::from_vec(&[bounds.len()], bounds.to_vec()).expect("memory");
        let packed = Packed { q: &q, k: &k, v: &k, queries_at: &at(queries_at), keys_at: &at(keys_at) };
        attention_varlen(&packed, seen).map(drop).map_err(|error| error.to_string())
    };
    let all = Seen::default();
    assert_eq!(said(&[0, 1, 3], &[0, 4, 4], &all), Ok(()));
    assert_eq!(said(&[0, 1, 3], &[0, 3, 3], &all), Err("`cu_seqlens_k`: the last bound is 3, and `K` has 4 rows".to_string()));
    assert_eq!(
        said(&[1, 1, 3], &[0, 3, 4], &all),
        Err("`cu_seqlens_q`: the first bound is 1, and the first group begins with row 0".to_string())
    );
    let lengths = said(&[0, 3], &[0, 3, 4], &all).expect_err("one sequence and two");
    assert!(lengths.starts_with("`bounds` is 2 in `cu_seqlens_q` and 3 in `cu_seqlens_k`"), "{lengths}");
    let capped = said(&[0, 1, 3], &[0, 3, 4], &Seen { cap: Some(0.0), ..all }).expect_err("a cap of 0");
    assert!(capped.starts_with("`cap` is 0: "), "{capped}");
    let biased = said(&[0, 1, 3], &[0, 3, 4], &Seen { bias: Bias::Each(&q), ..all }).expect_err("a bias for each pair");
    assert!(biased.starts_with("attention_varlen has no variant `bias`"), "{biased}");
    let [one, keys] =
        [[1, 2, 3, DIM], [1, 1, 4, DIM]].map(|shape| Tensor::ones(tessera_types::DType::F32, &shape).expect("memory"));
    let bias = Tensor::zeros(tessera_types::DType::F32, &[3, 3, 4]).expect("memory");
    let each = attention_window(&one, &keys, &keys, &Seen { bias: Bias::Each(&bias), ..all }).expect_err("biases of three heads");
    assert!(each.to_string().contains("biases of 3 heads for 2"), "{each}");
}
