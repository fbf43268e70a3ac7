//! Prefix sums, packing, sorting, and products with sparse matrices.

use tessera_runtime::Tensor;
use tessera_types::DType;

use super::{all, first_axis, last_axis, new, run};
use crate::call::CallError;
use crate::set;

/// Sums of all elements up to each one, itself included, in the order in which they lie: an array of the shape and type of `x`. Floats of 16 bits are
/// added up in 32; integers of 32 bits wrap.
///
/// ```
/// use tessera_runtime::Tensor;
/// let y = tessera_ops::prefix_sum(&Tensor::from_vec(&[4], vec![1, 2, 3, 4])?)?;
/// assert_eq!(y.to_f64()?, [1.0, 3.0, 6.0, 10.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prefix_sum(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::scan::PREFIX_SUM, "inclusive", &[("x", x)], &[])
}

/// [`prefix_sum`] without the element itself: the first one is 0.
///
/// ```
/// use tessera_runtime::Tensor;
/// let y = tessera_ops::exclusive_prefix_sum(&Tensor::from_vec(&[4], vec![1, 2, 3, 4])?)?;
/// assert_eq!(y.to_f64()?, [0.0, 1.0, 3.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn exclusive_prefix_sum(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::scan::PREFIX_SUM, "exclusive", &[("x", x)], &[])
}

/// The elements of `x` where `mask`, of `i8`, is not 0, in their order, zeros behind them, in the shape of `x`; and how many they are.
///
/// ```
/// use tessera_runtime::Tensor;
/// let (x, mask) = (Tensor::from_vec(&[4], vec![5, 6, 7, 8])?, Tensor::from_vec(&[4], vec![0i8, 1, 0, 1])?);
/// let [y, count] = tessera_ops::masked_select(&x, &mask)?;
/// assert_eq!((y.to_f64()?, count.to_f64()?[0]), (vec![6.0, 8.0, 0.0, 0.0], 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn masked_select(x: &Tensor, mask: &Tensor) -> Result<[Tensor; 2], CallError> {
    all(&set::scan::MASKED_SELECT, "", &[("x", x), ("mask", mask)], &[])
}

/// The elements of `x[n]`, of `i32` or `f32`, from the least to the greatest; floats in the order of IEEE's totalOrder, -0 before 0 and NaN at the
/// ends.
///
/// ```
/// use tessera_runtime::Tensor;
/// let y = tessera_ops::sort(&Tensor::from_vec(&[4], vec![3, -1, 2, -7])?)?;
/// assert_eq!(y.to_f64()?, [-7.0, -1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sort(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::sort::SORT, "keys", &[("x", x)], &[])
}

/// [`sort`], and the place at which each element stood; equal ones keep their order.
///
/// ```
/// use tessera_runtime::Tensor;
/// let [y, order] = tessera_ops::sort_with_order(&Tensor::from_vec(&[4], vec![3.0f32, -1.0, 3.0, -7.0])?)?;
/// assert_eq!((y.to_f64()?[0], order.to_f64()?), (-7.0, vec![3.0, 1.0, 0.0, 2.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sort_with_order(x: &Tensor) -> Result<[Tensor; 2], CallError> {
    all(&set::sort::SORT, "order", &[("x", x)], &[])
}

/// [`sort`], and values of `i32` in the order of their keys.
///
/// ```
/// use tessera_runtime::Tensor;
/// let [_, w] = tessera_ops::sort_with_values(&Tensor::from_vec(&[3], vec![3, 1, 2])?, &Tensor::from_vec(&[3], vec![30, 10, 20])?)?;
/// assert_eq!(w.to_f64()?, [10.0, 20.0, 30.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sort_with_values(x: &Tensor, v: &Tensor) -> Result<[Tensor; 2], CallError> {
    all(&set::sort::SORT, "values", &[("x", x), ("v", v)], &[])
}

/// A matrix in CSR form (`values` and `columns[elements]`, `row_offsets[m + 1]`, both of `i32`) times `x[n]`: `y[m]`. Sums of 16-bit floats are kept in
/// 32 bits. Elements of a row may stand in any order, and in the same place.
///
/// ```
/// use tessera_runtime::Tensor;
/// // 1 . 2
/// // . . .
/// // . 3 .
/// let values = Tensor::from_vec(&[3], vec![1.0f32, 2.0, 3.0])?;
/// let (columns, offsets) = (Tensor::from_vec(&[3], vec![0, 2, 1])?, Tensor::from_vec(&[4], vec![0, 2, 2, 3])?);
/// let y = tessera_ops::spmv(&values, &columns, &offsets, &Tensor::from_vec(&[3], vec![1.0f32, 10.0, 100.0])?)?;
/// assert_eq!(y.to_f64()?, [201.0, 0.0, 30.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spmv(values: &Tensor, columns: &Tensor, row_offsets: &Tensor, x: &Tensor) -> Result<Tensor, CallError> {
    let y = new("y", values.dtype(), &[rows(row_offsets)?], values)?;
    let tensors = [("values", values), ("columns", columns), ("row_offsets", row_offsets), ("x", x), ("y", &y)];
    run(&set::spmv::SPMV, "", &tensors, &[])
}

/// A matrix in CSR form times `b[n, k]`: `[m, k]`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (values, b) = (Tensor::full(DType::F32, &[2], 2.0)?, Tensor::ones(DType::F32, &[5, 4])?);
/// let (columns, offsets) = (Tensor::from_vec(&[2], vec![0, 4])?, Tensor::from_vec(&[3], vec![0, 0, 2])?);
/// let c = tessera_ops::spmm(&values, &columns, &offsets, &b)?;
/// assert_eq!((c.shape(), c.to_f64()?), (&[2, 4][..], vec![0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 4.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spmm(values: &Tensor, columns: &Tensor, row_offsets: &Tensor, b: &Tensor) -> Result<Tensor, CallError> {
    let c = new("C", values.dtype(), &[rows(row_offsets)?, last_axis("B", "n k", b)?], values)?;
    let tensors = [("values", values), ("columns", columns), ("row_offsets", row_offsets), ("B", b), ("C", &c)];
    run(&set::spmm::SPMM, "", &tensors, &[])
}

/// `a[m, k]` times the transposed `b[n, k]`, where a matrix in CSR form has elements: their values.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (a, b) = (Tensor::ones(DType::F32, &[2, 8])?, Tensor::arange(DType::F32, &[3, 8])?);
/// let (columns, offsets) = (Tensor::from_vec(&[2], vec![0, 2])?, Tensor::from_vec(&[3], vec![0, 1, 2])?);
/// assert_eq!(tessera_ops::sddmm(&a, &b, &columns, &offsets)?.to_f64()?, [28.0, 156.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sddmm(a: &Tensor, b: &Tensor, columns: &Tensor, row_offsets: &Tensor) -> Result<Tensor, CallError> {
    run(&set::sddmm::SDDMM, "", &[("A", a), ("B", b), ("columns", columns), ("row_offsets", row_offsets)], &[])
}

/// The row of each element of a matrix in CSR form: COO form has these instead of offsets.
///
/// ```
/// use tessera_runtime::Tensor;
/// let (columns, offsets) = (Tensor::from_vec(&[3], vec![0, 2, 1])?, Tensor::from_vec(&[4], vec![0, 2, 2, 3])?);
/// let rows = tessera_ops::csr_to_coo(&columns, &offsets)?;
/// assert_eq!(rows.to_f64()?, [0.0, 0.0, 2.0]);
/// assert_eq!(tessera_ops::coo_to_csr(&rows, 3)?.to_f64()?, [0.0, 2.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn csr_to_coo(columns: &Tensor, row_offsets: &Tensor) -> Result<Tensor, CallError> {
    run(&set::formats::CSR_TO_COO, "", &[("columns", columns), ("row_offsets", row_offsets)], &[])
}

/// Where each of so many rows begins among elements in the order of rows, and where the last one ends: CSR form, from the rows of COO form.
pub fn coo_to_csr(rows: &Tensor, m: usize) -> Result<Tensor, CallError> {
    let offsets = new("row_offsets", DType::I32, &[m + 1], rows)?;
    run(&set::formats::COO_TO_CSR, "", &[("rows", rows), ("row_offsets", &offsets)], &[])
}

/// A matrix in CSR form with `n` columns in CSC form: values and rows of the elements, column by column, and `column_offsets[n + 1]`. Elements of a
/// column keep their order. From CSC to CSR it is the same, with rows for columns.
///
/// ```
/// use tessera_runtime::Tensor;
/// let values = Tensor::from_vec(&[3], vec![1.0f32, 2.0, 3.0])?;
/// let (columns, offsets) = (Tensor::from_vec(&[3], vec![0, 2, 0])?, Tensor::from_vec(&[4], vec![0, 2, 2, 3])?);
/// let [by_columns, rows, column_offsets] = tessera_ops::csr_to_csc(&values, &columns, &offsets, 3)?;
/// assert_eq!((by_columns.to_f64()?, rows.to_f64()?), (vec![1.0, 3.0, 2.0], vec![0.0, 2.0, 0.0]));
/// let [again, columns_again, _] = tessera_ops::csr_to_csc(&by_columns, &rows, &column_offsets, 3)?;
/// assert_eq!((again.to_f64()?, columns_again.to_f64()?), (vec![1.0, 2.0, 3.0], vec![0.0, 2.0, 0.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn csr_to_csc(values: &Tensor, columns: &Tensor, row_offsets: &Tensor, n: usize) -> Result<[Tensor; 3], CallError> {
    let offsets = new("column_offsets", DType::I32, &[n + 1], values)?;
    let tensors = [("values", values), ("columns", columns), ("row_offsets", row_offsets), ("column_offsets", &offsets)];
    all(&set::formats::CSR_TO_CSC, "", &tensors, &[])
}

/// The elements of `x[m, n]` that are not 0 in CSR form: values and columns, with room for `room` elements, and `row_offsets[m + 1]`. What is behind
/// the last element is 0, and where there is no room, elements are left out: the last offset says how many there are.
///
/// ```
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[2, 3], vec![0.0f32, 5.0, 0.0, 6.0, 0.0, 7.0])?;
/// let [values, columns, offsets] = tessera_ops::dense_to_csr(&x, 3)?;
/// assert_eq!((values.to_f64()?, columns.to_f64()?, offsets.to_f64()?), (vec![5.0, 6.0, 7.0], vec![1.0, 0.0, 2.0], vec![0.0, 1.0, 3.0]));
/// assert_eq!(tessera_ops::csr_to_dense(&values, &columns, &offsets, 3)?.to_f64()?, x.to_f64()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dense_to_csr(x: &Tensor, room: usize) -> Result<[Tensor; 3], CallError> {
    let values = new("values", x.dtype(), &[room], x)?;
    let columns = new("columns", DType::I32, &[room], x)?;
    let offsets = new("row_offsets", DType::I32, &[first_axis("x", "m n", x)? + 1], x)?;
    let tensors = [("x", x), ("values", &values), ("columns", &columns), ("row_offsets", &offsets)];
    all(&set::formats::DENSE_TO_CSR, "", &tensors, &[])
}

/// A matrix in CSR form with `n` columns and its zeros: `[m, n]`.
pub fn csr_to_dense(values: &Tensor, columns: &Tensor, row_offsets: &Tensor, n: usize) -> Result<Tensor, CallError> {
    let x = new("x", values.dtype(), &[rows(row_offsets)?, n], values)?;
    let tensors = [("values", values), ("columns", columns), ("row_offsets", row_offsets), ("x", &x)];
    run(&set::formats::CSR_TO_DENSE, "", &tensors, &[])
}

/// Of each four neighbours in a row of `x[m, k]`, whose `k` is a multiple of 4, the two of the largest magnitude, of equal ones the first: `values[m, k / 2]`,
/// and `places[m, ceil(k / 32)]`, words of `i32` that say where they stand. Nothing is lost where two of each four are 0.
///
/// ```
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[1, 8], vec![0.0f32, 5.0, 0.0, -6.0, 7.0, 0.0, 0.0, 0.0])?;
/// let [values, places] = tessera_ops::sparse24_compress(&x)?;
/// assert_eq!((values.to_f64()?, places.to_f64()?), (vec![5.0, -6.0, 7.0, 0.0], vec![f64::from(0x4444_444d)]));
/// assert_eq!(tessera_ops::sparse24_expand(&values, &places)?.to_f64()?, x.to_f64()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sparse24_compress(x: &Tensor) -> Result<[Tensor; 2], CallError> {
    all(&set::sparse24::COMPRESS, "", &[("x", x)], &[])
}

/// The matrix of which [`sparse24_compress`] has stored half, with its zeros.
pub fn sparse24_expand(values: &Tensor, places: &Tensor) -> Result<Tensor, CallError> {
    run(&set::sparse24::EXPAND, "", &[("values", values), ("places", places)], &[])
}

/// The matrix of which [`sparse24_compress`] has stored half times `b[k, n]`, both of 16-bit floats: `[m, n]`. Tensor cores skip what is not stored,
/// also where `b` is infinite there. From sm_80 on.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// // Of four ones the first two are stored.
/// let [values, places] = tessera_ops::sparse24_compress(&Tensor::ones(DType::BF16, &[1, 4])?)?;
/// let c = tessera_ops::sparse24_gemm(&values, &places, &Tensor::arange(DType::BF16, &[4, 2])?)?;
/// assert_eq!(c.to_f64()?, [2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sparse24_gemm(values: &Tensor, places: &Tensor, b: &Tensor) -> Result<Tensor, CallError> {
    run(&set::sparse24::GEMM, "", &[("values", values), ("places", places), ("B", b)], &[])
}

/// Rows of so many offsets.
fn rows(row_offsets: &Tensor) -> Result<usize, CallError> {
    let why = || "it has one more than the matrix has rows, one at least".to_owned();
    let bounds = first_axis("row_offsets", "bounds", row_offsets)?;
    bounds.checked_sub(1).ok_or_else(|| CallError::Values { name: "row_offsets", why: why() })
}
