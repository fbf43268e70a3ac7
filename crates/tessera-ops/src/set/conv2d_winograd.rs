//! `conv2d` by minimal filtering, whose file says what that is: windows of 3 x 3 at every pixel, one group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use super::conv2d::{bare, line, tiles, types};
use super::conv2d_cut::{Cut, Windowed};
use super::convolution::{Convolution, Windows};
use super::rows::int;
use crate::operator::{
    Argument, Expected, Inputs, KernelFile, LaunchSpec, Machine, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;

const FILE: KernelFile = KernelFile { name: "conv2d_winograd.py", text: include_str!("../../kernels/conv2d_winograd.py") };

/// The transforms of tiles of `n` x `n` pixels, as the file has them: rows of a matrix each.
pub(super) struct Filter {
    n: usize,
    /// B, n x n.
    image: &'static [&'static [f64]],
    /// G, n x 3.
    window: &'static [&'static [f64]],
    /// A, n - 2 x n.
    result: &'static [&'static [f64]],
    /// What columns of A are multiplied by.
    fractions: &'static [f64],
    /// Roundings one behind the other on the way of a value through all transforms, with two multiplications by each fraction that is rounded.
    roundings: usize,
    /// Sums of small whole numbers are exact: fractions are powers of two.
    exact: bool,
}

/// Two elements of y along each axis. A row of B has 1 addition, one of G or A has 2.
pub(super) static F2: Filter = Filter {
    n: 4,
    image: &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]],
    window: &[&[1.0, 0.0, 0.0], &[1.0, 1.0, 1.0], &[1.0, -1.0, 1.0], &[0.0, 0.0, 1.0]],
    result: &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
    fractions: &[1.0, 0.5, 0.5, 1.0],
    roundings: 2 * (1 + 2 + 2),
    exact: true,
};

/// Four along each axis. A row of B has 3 roundings (additions, and a multiplication by 5), one of G 2, one of A 4.
pub(super) static F4: Filter = Filter {
    n: 6,
    image: &[
        &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
        &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
        &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
        &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
        &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
        &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
    ],
    window: &[&[1.0, 0.0, 0.0], &[1.0, 1.0, 1.0], &[1.0, -1.0, 1.0], &[1.0, 2.0, 4.0], &[1.0, -2.0, 4.0], &[0.0, 0.0, 1.0]],
    result: &[
        &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
        &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
        &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
    ],
    fractions: &[1.0 / 4.0, -1.0 / 6.0, -1.0 / 6.0, 1.0 / 24.0, 1.0 / 24.0, 1.0],
    roundings: 2 * (3 + 2 + 4) + 2,
    exact: false,
};

/// Elements of a block of the transforms: a thread holds n * n planes of each of its own.
const ELEMENTS: usize = 256;

/// The plan by one of the filters.
pub(super) fn plan(filter: &'static Filter, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let of = Convolution::of(problem)?;
    let [storage, acc, result] = types(policy, "conv2d")?;
    if [of.r, of.s, of.stride, of.dilation, of.groups] != [3, 3, 1, 1, 1] {
        return Err(Unsupported("minimal filtering has windows of 3 x 3, without stride, dilation or groups".to_string()));
    }
    let mut plan = bare(of, [storage, acc, result]);
    plan.exact_lane &= filter.exact;
    plan.reference = Box::new(Filtered { windows: Windows { of, result, acc }, filter, storage });
    plan.tensors[1].shape = if of.last { vec![of.o, 9, of.c] } else { vec![of.o, of.c, 9] };
    let n = filter.n;
    let [tiles_p, tiles_q] = [of.p(), of.q()].map(|extent| extent.div_ceil(n - 2));
    let (planes, many, padded) = (n * n, of.n * tiles_p * tiles_q, of.c.next_multiple_of(line(storage)));
    let y = plan.tensors.len() - 1;
    let [planes_of_x, planes_of_weight, planes_of_y] = [1, 2, 3].map(|behind| y + behind);
    plan.tensors.push(TensorSpec::new("X", storage, [planes, many, padded], Role::Workspace));
    plan.tensors.push(TensorSpec::new("W", storage, [planes, of.o, padded], Role::Workspace));
    plan.tensors.push(TensorSpec::new("Y", acc, [planes, many, of.o], Role::Workspace));
    let same = [("N", int(n)), ("LAST", Argument::Bool(of.last)), ("ACC", Argument::Type(acc))];
    let places = [("TILES_P", int(tiles_p)), ("TILES_Q", int(tiles_q))];
    let launch =
        |kernel, own: &[(&'static str, Argument)], grid| LaunchSpec::new(kernel, [own, &same].concat(), grid).of_file(FILE);
    let block = |channels: usize| {
        let channels = channels.next_power_of_two().min(64);
        (ELEMENTS / channels, channels)
    };
    let (rows, channels) = block(padded);
    let sizes = [("TC", int(channels)), ("PAD", int(of.padding)), ("TT", int(rows))];
    let arrays = [("x", Argument::Tensor(0)), ("X", Argument::Tensor(planes_of_x))];
    let images = launch("images", &[&arrays[..], &sizes, &places].concat(), [tiles(many, rows)?, tiles(padded, channels)?, 1]);
    let arrays = [("weight", Argument::Tensor(1)), ("W", Argument::Tensor(planes_of_weight))];
    let sizes = [("TC", int(channels)), ("TO", int(rows))];
    let windows = launch("windows", &[arrays, sizes].concat(), [tiles(of.o, rows)?, tiles(padded, channels)?, 1]);

    let windowed = Windowed { pixels: [1, 1, many], out: of.o, within: padded, taps: 1, groups: planes, types: [storage, acc] };
    let cut = Cut::of(&windowed, machine);
    let rows = cut.pixels.iter().product();
    let arguments = vec![
        ("X", Argument::Tensor(planes_of_x)),
        ("W", Argument::Tensor(planes_of_weight)),
        ("Y", Argument::Tensor(planes_of_y)),
        ("ACC", Argument::Type(acc)),
        ("TM", int(rows)),
        ("TN", int(cut.channels)),
        ("TK", int(cut.depth)),
    ];
    let grid = [tiles(many, rows)?, tiles(of.o, cut.channels)?, planes as u32];
    let products = cut.launch("products", arguments, grid).of_file(FILE);

    let (rows, channels) = block(of.o);
    let arguments = [
        ("Y", Argument::Tensor(planes_of_y)),
        // Without a bias, any array that is read stands in its place.
        ("bias", Argument::Tensor(if of.bias { 2 } else { planes_of_y })),
        ("y", Argument::Tensor(y)),
        ("BIAS", Argument::Bool(of.bias)),
        ("TT", int(rows)),
        ("TO", int(channels)),
    ];
    let results = launch("results", &[&arguments[..], &places].concat(), [tiles(many, rows)?, tiles(of.o, channels)?, 1]);
    plan.launches = vec![images, windows, products, results];
    Ok(plan)
}

/// What planes hold: an element, and the sum of magnitudes of what it is the sum of.
#[derive(Clone, Copy, Default)]
struct Element {
    size: f64,
    magnitude: f64,
}

/// `matrix @ values @ matrix^T`, of rows of `width` values.
fn transformed(matrix: &[&[f64]], values: &[f64], width: usize) -> Vec<Element> {
    let places = (0..matrix.len() * matrix.len()).map(|place| (matrix[place / matrix.len()], matrix[place % matrix.len()]));
    let element = |(down, across): (&[f64], &[f64])| {
        let terms = values.iter().enumerate().map(|(at, value)| down[at / width] * across[at % width] * value);
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, magnitude), term: f64| (sum + term, magnitude + term.abs()));
        Element { size: f64::abs(sum), magnitude }
    };
    places.map(element).collect()
}

/// The same results as [`Windows`], with the bounds of a filter.
///
/// An element of y is a sum of products of two sums, and all roundings in the accumulator's type are relative to its terms' magnitudes, which the
/// transforms make larger than those of a direct sum: that is their condition, and a sum so many steps deep. Planes of x and of the weight are
/// rounded to the storage type. Those errors are relative to what the planes hold, and independent of each other: three times the root of the sum of
/// squares bounds their sum (the standard deviation of a rounding to nearest is 0.58 of the unit at most), as the sum of all does where terms are few.
struct Filtered {
    windows: Windows,
    filter: &'static Filter,
    storage: DType,
}

impl Filtered {
    /// Where an element of y lies: the image and the tile's row and column, and the row and column within the tile.
    fn place(&self, row: usize, column: usize) -> ([usize; 3], [usize; 2]) {
        let (of, side) = (&self.windows.of, self.filter.n - 2);
        let [image, p, q] = match of.last {
            true => [row / of.q() / of.p(), row / of.q() % of.p(), row % of.q()],
            false => [row / of.p() / of.o, row % of.p(), column],
        };
        ([image, p / side, q / side], [p % side, q % side])
    }

    /// Planes of a window of the weight, for each channel of x.
    fn weight(&self, weight: &[f64], o: usize) -> Vec<Vec<Element>> {
        let of = &self.windows.of;
        let taps = |c| (0..9).map(|tap| weight[of.place_in_weight(o, tap, c)]).collect::<Vec<_>>();
        (0..of.c).map(|c| transformed(self.filter.window, &taps(c), 3)).collect()
    }

    /// Planes of a tile of x, for each of its channels.
    fn tile(&self, inputs: &dyn Inputs, image: usize, [p, q]: [usize; 2]) -> Vec<Vec<Element>> {
        let (of, n) = (&self.windows.of, self.filter.n);
        let mut pixels = vec![vec![0.0; n * n]; of.c];
        let mut channels = vec![0.0; of.c];
        for at in 0..n * n {
            // A tile's pixels are those under n taps.
            let (Some(h), Some(w)) = (of.under(p * (n - 2), at / n, of.h), of.under(q * (n - 2), at % n, of.w)) else { continue };
            let place =
                |c| if of.last { ((image * of.h + h) * of.w + w) * of.c + c } else { ((image * of.c + c) * of.h + h) * of.w + w };
            if of.last {
                inputs.numbers(0, place(0), &mut channels);
            } else {
                inputs.numbers_at(0, &(0..of.c).map(place).collect::<Vec<_>>(), &mut channels);
            }
            pixels.iter_mut().zip(&channels).for_each(|(pixels, value)| pixels[at] = *value);
        }
        pixels.iter().map(|pixels| transformed(self.filter.image, pixels, n)).collect()
    }

    /// The bound of an element of y that stands at `[i, j]` of its tile, from the planes of both.
    fn bound(&self, want: f64, bias: f64, [i, j]: [usize; 2], tile: &[Vec<Element>], weight: &[Vec<Element>]) -> f64 {
        let (filter, windows) = (self.filter, &self.windows);
        let factor = |row: usize, plane: usize| (filter.result[row][plane] * filter.fractions[plane]).abs();
        let factors: Vec<f64> = (0..filter.n * filter.n).map(|at| factor(i, at / filter.n) * factor(j, at % filter.n)).collect();
        let (mut magnitude, mut sizes, mut squares) = (bias.abs(), 0.0, 0.0);
        for (x, w) in tile.iter().zip(weight) {
            for ((x, w), factor) in x.iter().zip(w).zip(&factors) {
                magnitude += factor * x.magnitude * w.magnitude;
                let size = factor * x.size * w.size;
                sizes += size;
                squares += size * size;
            }
        }
        let kept = if self.storage == windows.acc {
            0.0
        } else {
            2.0 * unit_roundoff(self.storage) * f64::min(sizes, 3.0 * squares.sqrt())
        };
        let steps = windows.of.c + filter.roundings + 1;
        kept + ErrorModel::nearest(windows.result, windows.acc).contraction(want, magnitude, steps)
    }
}

impl Reference for Filtered {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let row_len = if self.windows.of.last { self.windows.of.o } else { self.windows.of.q() };
        self.scattered(inputs, output, row_len, &[rows], expected);
    }

    /// The weight's planes are made once.
    fn scattered(&self, inputs: &dyn Inputs, output: usize, row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        self.windows.scattered(inputs, output, row_len, rows, Expected::Bounded { want: &mut *want, bound: &mut *bound });
        let (of, side) = (&self.windows.of, self.filter.n - 2);
        let mut weight = vec![0.0; of.o * of.terms()];
        inputs.numbers(1, 0, &mut weight);
        let weight: Vec<_> = (0..of.o).into_par_iter().map(|o| self.weight(&weight, o)).collect();
        let mut bias = vec![0.0; of.o];
        if of.bias {
            inputs.numbers(2, 0, &mut bias);
        }
        let rows: Vec<usize> = rows.iter().cloned().flatten().collect();
        // Channels of y share a tile, and so do neighbours.
        let along = if of.last { 1 } else { of.q().div_ceil(side) };
        let places: BTreeSet<_> = rows.iter().flat_map(|&row| (0..along).map(move |at| self.place(row, at * side).0)).collect();
        let tiles = places.into_par_iter().map(|[image, p, q]| ([image, p, q], self.tile(inputs, image, [p, q])));
        let tiles: BTreeMap<_, _> = tiles.collect::<Vec<_>>().into_iter().collect();
        let lines = want.par_chunks_mut(row_len).zip(bound.par_chunks_mut(row_len)).zip(&rows);
        lines.for_each(|((want, bound), &row)| {
            for (column, (want, bound)) in want.iter().zip(bound).enumerate() {
                let (place, within) = self.place(row, column);
                let o = if of.last { column } else { row / of.p() % of.o };
                *bound = self.bound(*want, bias[o], within, &tiles[&place], &weight[o]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of numbers that are all at different places: nothing cancels by chance.
    #[test]
    fn filters_are_convolutions() {
        for filter in [&F2, &F4] {
            let n = filter.n;
            let product = |matrix: &[&[f64]], values: &[f64], width: usize, row: usize, column: usize| -> f64 {
                (0..values.len()).map(|at| matrix[row][at / width] * matrix[column][at % width] * values[at]).sum()
            };
            let tile: Vec<f64> = (0..n * n).map(|at| ((at * at * 7 + at * 3) % 23) as f64 - 11.0).collect();
            let window: Vec<f64> = (0..9).map(|at| ((at * at * 5 + at) % 17) as f64 - 8.0).collect();
            let plane = |at: usize| {
                let [row, column] = [at / n, at % n];
                let fraction = filter.fractions[row] * filter.fractions[column];
                fraction * product(filter.image, &tile, n, row, column) * product(filter.window, &window, 3, row, column)
            };
            let planes: Vec<f64> = (0..n * n).map(plane).collect();
            for (i, j) in (0..n - 2).flat_map(|i| (0..n - 2).map(move |j| (i, j))) {
                let direct: f64 = (0..9).map(|tap| tile[(i + tap / 3) * n + j + tap % 3] * window[tap]).sum();
                let got = product(filter.result, &planes, n, i, j);
                assert!((got - direct).abs() < 1e-9, "F({}, 3) at {i}, {j}: {got} for {direct}", n - 2);
            }
        }
    }
}
