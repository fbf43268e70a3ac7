//! What products with sparse matrices share: problems, arrays in CSR form, and the rows that references read.

use std::ops::Range;

use tessera_types::{Arch, DType};

use crate::draw::Draw;
use crate::operator::{Fill, Inputs, KernelFile, Machine, Role, TensorSpec, Unsupported};
use crate::pattern::{Pattern, Spread};
use crate::problem::Problem;
use crate::set::{rows, scan};

/// The kernels' file.
pub(crate) const FILE: KernelFile = KernelFile { name: "sparse.py", text: include_str!("../../kernels/sparse.py") };

/// Arrays of other types than the elements.
pub(crate) const TYPES: &[(&str, DType)] = &[("columns", DType::I32), ("row_offsets", DType::I32)];

/// Threads of a block of these kernels.
pub(crate) const THREADS: usize = 128;
pub(crate) const WARP: usize = Arch::WARP as usize;

/// Threads that a machine holds at once: beside them there is work for whoever is done early.
pub(crate) fn resident(machine: Machine) -> usize {
    /// Of a multiprocessor.
    const HELD: usize = 2048;
    match machine {
        Machine::Cpu => 1,
        Machine::Gpu(arch) => arch.multiprocessors() as usize * HELD,
    }
}

/// A problem: rows and columns of the sparse matrix, its elements, and further extents.
pub(crate) fn problem([m, n, elements]: [u64; 3], further: &[(&'static str, u64)], spread: &str) -> Problem {
    let own = [("m", m), ("n", n), ("elements", elements)];
    let extents: Vec<_> = own.iter().chain(further).copied().collect();
    Problem::new(&extents, spread)
}

/// The problem's matrix.
pub(crate) fn pattern(problem: &Problem) -> Result<Pattern, Unsupported> {
    let [m, n, elements] = ["m", "n", "elements"].map(|name| problem.get(name));
    if u128::from(elements) > u128::from(m) * u128::from(n) {
        return Err(Unsupported(format!("{m} x {n} has no place for {elements} elements")));
    }
    // Parts take the ends of rows as well as elements.
    scan::numbered(u128::from(m) + u128::from(elements))?;
    scan::numbered(n.into())?;
    let [rows, columns, elements] = [m, n, elements].map(|extent| extent as usize);
    let spread =
        Spread::of(&problem.kind()).ok_or_else(|| Unsupported(format!("`{}` is no spread of elements", problem.kind())))?;
    Ok(Pattern { rows, columns, elements, spread })
}

/// Each kind of matrix for some sizes.
pub(crate) fn of_each(sizes: &[[u64; 3]], further: &[(&'static str, u64)]) -> Vec<Problem> {
    sizes.iter().flat_map(|&sizes| Spread::NAMES.map(|name| problem(sizes, further, name))).collect()
}

/// Matrices of meshes and of graphs: a few to some hundred elements a row.
pub(crate) const LARGE: [[u64; 3]; 4] =
    [[1 << 20, 1 << 20, 1 << 23], [1 << 20, 1 << 20, 1 << 24], [1 << 18, 1 << 18, 1 << 24], [1 << 14, 1 << 14, 13_421_773]];
/// Empty matrices, one row, one column, rows without elements, and what parts end in.
pub(crate) const SMALL: [[u64; 3]; 8] = [
    [1, 1, 1],
    [5, 7, 0],
    [1, 4100, 997],
    [1025, 1, 600],
    [16, 16, 256],
    [997, 1000, 4100],
    [3000, 100, 500],
    [1023, 500, 20_000],
];

/// Small matrices with further columns `k`: fewer than a vector's, odd ones, and more than a block's.
pub(crate) fn with_columns() -> Vec<Problem> {
    let columns = [64, 1, 7, 20, 8, 1, 33, 16];
    let small = SMALL.iter().zip(columns).flat_map(|(&sizes, k)| of_each(&[sizes], &[("k", k)]));
    small.chain([problem([300, 200, 9000], &[("k", 300)], "power_law"), problem([3, 9000, 12_000], &[("k", 12)], "")]).collect()
}

/// Sizes of a random matrix.
pub(crate) fn drawn(draw: &mut Draw<'_>) -> ([u64; 3], &'static str) {
    let spread = draw.one_of(&Spread::NAMES);
    let [m, n] = [draw.extent(1 << 14), draw.extent(1 << 14)];
    let most = draw.elements().min(m * n);
    ([m, n, draw.extent(most)], spread)
}

/// The elements, their columns, and where rows begin.
pub(crate) fn tensors(pattern: Pattern, storage: DType) -> [TensorSpec; 3] {
    let [columns, offsets] = index_tensors(pattern);
    [TensorSpec::new("values", storage, [pattern.elements], Role::Input), columns, offsets]
}

/// The columns of elements, and where rows begin.
pub(crate) fn index_tensors(pattern: Pattern) -> [TensorSpec; 2] {
    let columns = TensorSpec::new("columns", DType::I32, [pattern.elements], Role::Input);
    let offsets = TensorSpec::new("row_offsets", DType::I32, [pattern.rows + 1], Role::Input);
    [TensorSpec { fill: Fill::Columns(pattern), ..columns }, TensorSpec { fill: Fill::RowOffsets(pattern), ..offsets }]
}

/// Elements of a line of `k` that a thread takes at once, so that lines have a whole number of accesses.
pub(crate) fn vector(k: usize, storage: DType) -> usize {
    let most = rows::VECTOR_BITS / storage.bits() as usize;
    (0..=most.ilog2()).rev().map(|bit| 1 << bit).find(|&vector| k.is_multiple_of(vector)).unwrap_or(1)
}

/// Parts of so many items of the list of a matrix's ends of rows and elements.
pub(crate) fn parts(pattern: Pattern, size: usize) -> usize {
    (pattern.rows + pattern.elements).div_ceil(size)
}

/// A matrix's rows, as a reference reads them: tensors `values`, `columns` and `offsets` of a plan.
pub(crate) struct Rows {
    first: usize,
    offsets: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Rows {
    pub(crate) fn read(inputs: &dyn Inputs, [values, columns, offsets]: [usize; 3], rows: Range<usize>) -> Rows {
        let numbers = |tensor, start, len| {
            let mut numbers = vec![0.0; len];
            inputs.numbers(tensor, start, &mut numbers);
            numbers
        };
        let integers = |tensor, start, len| numbers(tensor, start, len).into_iter().map(|number| number as usize).collect();
        let offsets: Vec<usize> = integers(offsets, rows.start, rows.len() + 1);
        let (start, len) = (offsets[0], offsets[rows.len()] - offsets[0]);
        Rows { first: rows.start, columns: integers(columns, start, len), values: numbers(values, start, len), offsets }
    }

    /// Columns and values of a row.
    pub(crate) fn row(&self, row: usize) -> impl ExactSizeIterator<Item = (usize, f64)> + '_ {
        let [start, end] = [row, row + 1].map(|row| self.offsets[row - self.first] - self.offsets[0]);
        (start..end).map(|at| (self.columns[at], self.values[at]))
    }
}
