//! Matrix products: by hand in shared memory, `wmma` in every type, `mma.sync` behind `cp.async`, a warpgroup's product.

use tessera_driver::{Dim3, Params};
use tessera_types::element;

use super::machine::{Plain, Stream, each, near, wide};

/// `A (m x k) * B (k x n)` in f64.
pub(crate) fn product(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum()).collect()
}

pub(crate) fn transposed<T: Copy>(x: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..rows * columns).map(|at| x[at % rows * columns + at / rows]).collect()
}

pub(crate) fn decoded<T: Plain>(codes: &[T], decode: impl Fn(T) -> f32) -> Vec<f64> {
    codes.iter().map(|code| f64::from(decode(*code))).collect()
}

#[test]
fn products_by_hand() {
    each(&["matmul.sm_80"], |m| {
        let mut stream = Stream(41);
        let shape @ (rows, cols, k) = (37usize, 29usize, 45usize);
        let (a, b) = (stream.units(rows * k), stream.units(k * cols));
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(rows * cols * 4));
        let args = Params::new().pointer(at).pointer(bt).pointer(out).i32(rows as i32).i32(cols as i32).i32(k as i32);
        m.run("matmul_f32", Dim3::new(2, 3, 1), Dim3::new(16, 16, 1), &args);
        let wanted = product(&wide(&a).collect::<Vec<_>>(), &wide(&b).collect::<Vec<_>>(), shape);
        near("f32", wide(&m.get::<f32>(out, rows * cols)), wanted, 0.0, 1e-5);

        let shape @ (rows, cols, k) = (64usize, 32usize, 24usize);
        let (a, b): (Vec<f64>, Vec<f64>) = (wide(&stream.units(rows * k)).collect(), wide(&stream.units(k * cols)).collect());
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(rows * cols * 8));
        let args = Params::new().pointer(at).pointer(bt).pointer(out).i32(rows as i32).i32(cols as i32).i32(k as i32);
        m.run("matmul_f64", Dim3::new(1, 2, 1), 256, &args);
        near("f64", m.get::<f64>(out, rows * cols), product(&a, &b, shape), 0.0, 1e-13);
    });
}

#[test]
fn warp_matrices() {
    each(&["matmul_wmma.sm_80"], |m| {
        let mut stream = Stream(42);
        let shape @ (rows, cols, k) = (32usize, 48usize, 80usize);
        let grid = Dim3::new(3, 2, 1);
        let (fa, fb) = (stream.units(rows * k), stream.units(k * cols));

        let (a, b): (Vec<u16>, Vec<u16>) =
            (fa.iter().map(|v| element::f32_to_f16(*v)).collect(), fb.iter().map(|v| element::f32_to_f16(*v)).collect());
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(rows * cols * 4));
        m.run("wmma_f16", grid, 32, &Params::new().pointer(at).pointer(bt).pointer(out).i32(cols as i32).i32(k as i32).f32(0.5));
        let exact = product(&decoded(&a, element::f16_to_f32), &decoded(&b, element::f16_to_f32), shape);
        near("f16", wide(&m.get::<f32>(out, rows * cols)), exact.iter().map(|v| v * 0.5), 0.0, 1e-5);

        // B and C by columns, C starts with something.
        let (a, b): (Vec<u16>, Vec<u16>) =
            (fa.iter().map(|v| element::f32_to_bf16(*v)).collect(), fb.iter().map(|v| element::f32_to_bf16(*v)).collect());
        let start = stream.units(rows * cols);
        let (at, bt, out) = (m.put(&a), m.put(&transposed(&b, k, cols)), m.put(&start));
        m.run(
            "wmma_bf16",
            grid,
            32,
            &Params::new().pointer(at).pointer(bt).pointer(out).i32(rows as i32).i32(cols as i32).i32(k as i32),
        );
        let exact =
            transposed(&product(&decoded(&a, element::bf16_to_f32), &decoded(&b, element::bf16_to_f32), shape), rows, cols);
        let wanted = exact.iter().zip(wide(&start)).map(|(v, c)| v + c);
        near("bf16", wide(&m.get::<f32>(out, rows * cols)), wanted, 0.0, 1e-5);

        let (a, b): (Vec<i8>, Vec<i8>) =
            ((0..rows * k).map(|_| stream.bits() as i8).collect(), (0..k * cols).map(|_| stream.bits() as i8).collect());
        let (at, bt, out) = (m.put(&a), m.put(&transposed(&b, k, cols)), m.room(rows * cols * 4));
        m.run("wmma_s8", grid, 32, &Params::new().pointer(at).pointer(bt).pointer(out).i32(cols as i32).i32(k as i32));
        let wanted: Vec<i32> =
            product(&decoded(&a, f32::from), &decoded(&b, f32::from), shape).into_iter().map(|v| v as i32).collect();
        assert_eq!(m.get::<i32>(out, rows * cols), wanted);

        let (at, bt, out) = (m.put(&fa), m.put(&fb), m.room(rows * cols * 4));
        m.run("wmma_tf32", grid, 32, &Params::new().pointer(at).pointer(bt).pointer(out).i32(cols as i32).i32(k as i32));
        let exact = product(&decoded(&fa, element::f32_to_tf32_away), &decoded(&fb, element::f32_to_tf32_away), shape);
        near("tf32", wide(&m.get::<f32>(out, rows * cols)), exact, 0.0, 1e-5);

        let (da, db): (Vec<f64>, Vec<f64>) = (wide(&fa).collect(), wide(&fb).collect());
        let (at, bt, out) = (m.put(&da), m.put(&db), m.room(rows * cols * 8));
        m.run(
            "wmma_f64",
            Dim3::new(6, 4, 1),
            32,
            &Params::new().pointer(at).pointer(bt).pointer(out).i32(cols as i32).i32(k as i32),
        );
        near("f64", m.get::<f64>(out, rows * cols), product(&da, &db, shape), 0.0, 1e-13);

        // A by columns, sums in f16.
        let (a, b): (Vec<u16>, Vec<u16>) = (
            (0..512).map(|_| element::f32_to_f16(stream.unit())).collect(),
            (0..128).map(|_| element::f32_to_f16(stream.unit())).collect(),
        );
        let (at, bt, out) = (m.put(&transposed(&a, 32, 16)), m.put(&b), m.room(512));
        m.run("wmma_half_sums", 1, 32, &Params::new().pointer(at).pointer(bt).pointer(out));
        let exact = product(&decoded(&a, element::f16_to_f32), &decoded(&b, element::f16_to_f32), (32, 8, 16));
        near("half", decoded(&m.get::<u16>(out, 256), element::f16_to_f32), exact.iter().map(|v| v + 0.5), 2f64.powi(-10), 1e-3);
    });
}

#[test]
fn matrix_instructions_behind_copies() {
    each(&["matmul_mma.sm_90a"], |m| {
        let mut stream = Stream(43);
        let shape @ (rows, cols, k) = (45usize, 51usize, 160usize);
        let a: Vec<u16> = stream.units(rows * k).into_iter().map(element::f32_to_bf16).collect();
        let b: Vec<u16> = stream.units(cols * k).into_iter().map(element::f32_to_bf16).collect();
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(rows * cols * 4));
        let args = Params::new().pointer(at).pointer(bt).pointer(out).i32(rows as i32).i32(cols as i32).i32(k as i32);
        m.run("mma_bf16", Dim3::new(2, 2, 1), 128, &args);
        let exact = product(&decoded(&a, element::bf16_to_f32), &transposed(&decoded(&b, element::bf16_to_f32), cols, k), shape);
        near("mma", wide(&m.get::<f32>(out, rows * cols)), exact, 0.0, 2e-5);
    });
}

#[test]
fn a_warpgroup_and_matrix_moves() {
    each(&["warpgroup.sm_90a"], |m| {
        let mut stream = Stream(44);
        let a: Vec<u16> = stream.units(4096).into_iter().map(element::f32_to_bf16).collect();
        let b: Vec<u16> = stream.units(4096).into_iter().map(element::f32_to_bf16).collect();
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(4096 * 4));
        m.run("wgmma_tile", 1, 128, &Params::new().pointer(at).pointer(bt).pointer(out));
        let exact =
            product(&decoded(&a, element::bf16_to_f32), &transposed(&decoded(&b, element::bf16_to_f32), 64, 64), (64, 64, 64));
        near("wgmma", wide(&m.get::<f32>(out, 4096)), exact.iter().map(|v| v + 1.0), 0.0, 2e-5);

        let x = stream.words(32);
        let (at, y, z) = (m.put(&x), m.room(128), m.room(128));
        m.run("matrix_moves", 1, 32, &Params::new().pointer(at).pointer(y).pointer(z));
        let halves: Vec<u16> = x.iter().flat_map(|v| [*v as u16, (*v >> 16) as u16]).collect();
        let turned = transposed(&halves, 8, 8);
        let pairs: Vec<u32> = turned.chunks(2).map(|p| u32::from(p[0]) | u32::from(p[1]) << 16).collect();
        assert_eq!(m.get::<u32>(y, 32), pairs);
        assert_eq!(m.get::<u16>(z, 64), turned);
    });
}
