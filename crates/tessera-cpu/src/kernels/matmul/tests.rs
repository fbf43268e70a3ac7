//! Products against one fused multiply-add after the other: equal bits, for every level of this processor.

use super::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn number(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }
}

const SHAPES: [[usize; 3]; 10] = [
    [1, 1, 1],
    [1, 17, 3],
    [5, 1, 300],
    [12, 32, 16],
    [13, 33, 17],
    [64, 64, 64],
    [7, 100, 0],
    [250, 40, 30],
    [30, 2100, 20],
    [31, 65, 1100],
];

/// How an operand lies in memory: rows or columns contiguous, or neither.
fn strides(kind: usize, rows: usize, columns: usize) -> (isize, isize, usize) {
    match kind {
        0 => (columns as isize, 1, rows * columns),
        1 => (1, rows as isize, rows * columns),
        _ => (2 * columns as isize + 3, 2, rows * (2 * columns + 3)),
    }
}

fn operand<T>(data: &[T], kind: usize, rows: usize, columns: usize, dtype: DType) -> Operand {
    let (row_stride, column_stride, _) = strides(kind, rows, columns);
    Operand { base: data.as_ptr().cast(), row_stride, column_stride, dtype, compute: dtype }
}

fn at(kind: usize, rows: usize, columns: usize, i: usize, j: usize) -> usize {
    let (row, column, _) = strides(kind, rows, columns);
    i * row as usize + j * column as usize
}

#[test]
fn f32_products_are_one_chain_along_k() {
    let mut random = Random(1);
    for &level in Level::all().iter() {
        for [m, n, k] in SHAPES {
            for (kind_a, kind_b, start) in
                [(0, 0, Start::Zero), (1, 0, Start::Accumulate), (0, 1, Start::Accumulate), (2, 2, Start::Zero)]
            {
                let a: Vec<f32> = (0..strides(kind_a, m, k).2).map(|_| random.number()).collect();
                let b: Vec<f32> = (0..strides(kind_b, k, n).2).map(|_| random.number()).collect();
                let stride = n + 3;
                let old: Vec<f32> = (0..m * stride).map(|_| random.number()).collect();
                let mut c = old.clone();
                let to = Destination { base: c.as_mut_ptr(), row_stride: stride, start };
                let (first, second) = (operand(&a, kind_a, m, k, DType::F32), operand(&b, kind_b, k, n, DType::F32));
                // SAFETY: the vectors hold the matrices.
                unsafe { float32_at(level, Extents { m, n, k }, first, second, to) };
                for i in 0..m {
                    for j in 0..stride {
                        let from = if start == Start::Zero && j < n { 0.0 } else { old[i * stride + j] };
                        let steps = if j < n { k } else { 0 };
                        let expected =
                            (0..steps).fold(from, |sum, p| a[at(kind_a, m, k, i, p)].mul_add(b[at(kind_b, k, n, p, j)], sum));
                        assert_eq!(c[i * stride + j].to_bits(), expected.to_bits(), "{level:?} {m}x{n}x{k} at {i}, {j}");
                    }
                }
            }
        }
    }
}

#[test]
fn f64_products_are_one_chain_along_k() {
    let mut random = Random(2);
    for &level in Level::all().iter() {
        for [m, n, k] in SHAPES {
            let a: Vec<f64> = (0..m * k).map(|_| f64::from(random.number())).collect();
            let b: Vec<f64> = (0..k * n).map(|_| f64::from(random.number())).collect();
            let mut c = vec![0.25; m * n];
            let to = Destination { base: c.as_mut_ptr(), row_stride: n, start: Start::Accumulate };
            // SAFETY: the vectors hold the matrices.
            unsafe {
                float64_at(level, Extents { m, n, k }, operand(&a, 0, m, k, DType::F64), operand(&b, 0, k, n, DType::F64), to)
            };
            for (at, &result) in c.iter().enumerate() {
                let expected: f64 = (0..k).fold(0.25, |sum, p| a[at / n * k + p].mul_add(b[p * n + at % n], sum));
                assert_eq!(result, expected, "{level:?} {m}x{n}x{k}");
            }
        }
    }
}

#[test]
fn narrow_operands_are_widened_exactly() {
    use tessera_types::element;
    let mut random = Random(3);
    type Widen = fn(u16) -> f32;
    let formats: [(DType, Widen); 4] = [
        (DType::F16, element::f16_to_f32),
        (DType::BF16, element::bf16_to_f32),
        (DType::F8E4M3, |x| element::f8e4m3_to_f32(x as u8)),
        (DType::F4E2M1, |x| element::f4e2m1_to_f32(x as u8 & 15)),
    ];
    let (m, n, k) = (20, 35, 70);
    for (dtype, widen) in formats {
        for kind in [0, 1, 2] {
            let mut codes = |len: usize| -> Vec<u16> {
                (0..len)
                    .map(|_| {
                        (random.next()
                            & if dtype == DType::F16 {
                                0xbbff
                            } else if dtype == DType::BF16 {
                                0xbfff
                            } else {
                                0x77
                            }) as u16
                    })
                    .collect()
            };
            let (a, b) = (codes(strides(kind, m, k).2), codes(strides(kind, k, n).2));
            let bytes = |codes: &[u16]| codes.iter().map(|&x| x as u8).collect::<Vec<u8>>();
            let (bytes_a, bytes_b) = (bytes(&a), bytes(&b));
            let wide = dtype.unpacked_bytes() == 2;
            let first = if wide { operand(&a, kind, m, k, dtype) } else { operand(&bytes_a, kind, m, k, dtype) };
            let second = if wide { operand(&b, kind, k, n, dtype) } else { operand(&bytes_b, kind, k, n, dtype) };
            let mut c = vec![0f32; m * n];
            let to = Destination { base: c.as_mut_ptr(), row_stride: n, start: Start::Zero };
            // SAFETY: the vectors hold the matrices.
            unsafe { float32(Extents { m, n, k }, first, second, to) };
            for (place, &result) in c.iter().enumerate() {
                let (i, j) = (place / n, place % n);
                let expected =
                    (0..k).fold(0f32, |sum, p| widen(a[at(kind, m, k, i, p)]).mul_add(widen(b[at(kind, k, n, p, j)]), sum));
                assert!(
                    result == expected || result.is_nan() && expected.is_nan(),
                    "{dtype:?}, layout {kind}: {result} and {expected}"
                );
            }
        }
    }
}

#[test]
fn operands_are_rounded_to_what_they_are_computed_in() {
    let (m, n, k) = (3, 3, 20);
    let mut random = Random(4);
    let a: Vec<f32> = (0..m * k).map(|_| random.number()).collect();
    let b: Vec<f32> = (0..k * n).map(|_| random.number()).collect();
    let mut c = vec![0f32; m * n];
    let to = Destination { base: c.as_mut_ptr(), row_stride: n, start: Start::Zero };
    let rounded = |data: &[f32], rows, columns| Operand { compute: DType::TF32, ..operand(data, 0, rows, columns, DType::F32) };
    // SAFETY: the vectors hold the matrices.
    unsafe { float32(Extents { m, n, k }, rounded(&a, m, k), rounded(&b, k, n), to) };
    let tf32 = tessera_types::element::f32_to_tf32;
    for (place, &result) in c.iter().enumerate() {
        assert_eq!(result, (0..k).fold(0f32, |sum, p| tf32(a[place / n * k + p]).mul_add(tf32(b[p * n + place % n]), sum)));
    }
}

#[test]
fn bytes_multiply_exactly_signed_or_not() {
    let mut random = Random(5);
    for &level in Level::all().iter() {
        for [m, n, k] in SHAPES {
            for (signed_a, signed_b) in [(true, true), (true, false), (false, true), (false, false)] {
                for kind in [0, 1, 2] {
                    let mut bytes = |len: usize| -> Vec<u8> {
                        (0..len)
                            .map(|_| {
                                if random.next().is_multiple_of(8) {
                                    [0, 127, 128, 255][random.next() as usize % 4]
                                } else {
                                    random.next() as u8
                                }
                            })
                            .collect()
                    };
                    let (a, b) = (bytes(strides(kind, m, k).2), bytes(strides(kind, k, n).2));
                    let dtype = |signed| if signed { DType::I8 } else { DType::U8 };
                    let value = |signed, byte: u8| if signed { i32::from(byte as i8) } else { i32::from(byte) };
                    let mut c = vec![i32::MAX; m * n];
                    let to = Destination { base: c.as_mut_ptr(), row_stride: n, start: Start::Accumulate };
                    let (first, second) = (operand(&a, kind, m, k, dtype(signed_a)), operand(&b, kind, k, n, dtype(signed_b)));
                    // SAFETY: the vectors hold the matrices.
                    unsafe { int8_at(level, Extents { m, n, k }, first, second, to) };
                    for (place, &result) in c.iter().enumerate().step_by(if m * n > 5000 { 37 } else { 1 }) {
                        let (i, j) = (place / n, place % n);
                        let expected = (0..k).fold(i32::MAX, |sum, p| {
                            sum.wrapping_add(value(signed_a, a[at(kind, m, k, i, p)]) * value(signed_b, b[at(kind, k, n, p, j)]))
                        });
                        assert_eq!(result, expected, "{level:?} {m}x{n}x{k} {signed_a} {signed_b} layout {kind}");
                    }
                }
            }
        }
    }
}
