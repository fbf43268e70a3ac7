//! What norms of images give, and their gradients, in f64.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel};

use crate::element::{storable, sum, underflow};
use crate::operator::{Expected, Inputs, Reference};
use crate::set::norm::eps;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Forward,
    Inference,
    Backward,
}

/// What is normalised together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// So many groups of an image's channels.
    Groups(usize),
    /// All images of a channel.
    Channels,
}

/// The norm of a problem. Rows are the pixels of a channel of an image.
pub(crate) struct Normalised {
    pub(crate) what: What,
    pub(crate) layout: Layout,
    /// Images, channels, pixels.
    pub(crate) sizes: [usize; 3],
    pub(crate) out: DType,
    pub(crate) acc: DType,
}

/// The most elements of a tile.
const TOGETHER: f64 = 8192.0;

/// What is known of elements that are normalised together.
#[derive(Clone, Copy, Debug)]
struct Known {
    mean: f64,
    scale: f64,
    /// Error of a normalised element `h`: a part of `h`, and a part that it has whatever it is.
    relative: f64,
    absolute: f64,
}

/// A sum with the largest error that it has.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    value: f64,
    error: f64,
}

impl Normalised {
    fn channels(&self) -> usize {
        self.sizes[1]
    }

    fn pixels(&self) -> usize {
        self.sizes[2]
    }

    /// Which elements a row is normalised with.
    fn set_of(&self, row: usize) -> usize {
        match self.layout {
            Layout::Groups(groups) => row / (self.channels() / groups),
            Layout::Channels => row % self.channels(),
        }
    }

    /// The rows of elements that are normalised together.
    fn rows_of(&self, set: usize) -> Vec<usize> {
        match self.layout {
            Layout::Groups(groups) => {
                let each = self.channels() / groups;
                (set * each..(set + 1) * each).collect()
            }
            Layout::Channels => (0..self.sizes[0]).map(|image| image * self.channels() + set).collect(),
        }
    }

    fn count(&self) -> f64 {
        let rows = match self.layout {
            Layout::Groups(groups) => self.channels() / groups,
            Layout::Channels => self.sizes[0],
        };
        (rows * self.pixels()) as f64
    }

    /// How many additions deep a sum of all elements is at most: those of a tile, and those of all tiles, which are put together.
    fn depth(&self) -> f64 {
        self.count().min(TOGETHER) + (self.count() / TOGETHER).floor()
    }

    fn model(&self) -> ErrorModel {
        ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) }
    }

    fn row(&self, inputs: &dyn Inputs, tensor: usize, row: usize) -> Vec<f64> {
        let mut numbers = vec![0.0; self.pixels()];
        inputs.numbers(tensor, row * self.pixels(), &mut numbers);
        numbers
    }

    fn number(inputs: &dyn Inputs, tensor: usize, at: usize) -> f64 {
        let mut number = [0.0];
        inputs.numbers(tensor, at, &mut number);
        number[0]
    }

    /// The statistics of a set: those that are given, or of its elements.
    fn known(&self, inputs: &dyn Inputs, set: usize) -> Known {
        let u = self.model().u_acc;
        let given = match (self.layout, self.what) {
            (Layout::Channels, What::Inference) => {
                Some((Self::number(inputs, 3, set), 1.0 / (Self::number(inputs, 4, set) + eps(self.acc)).sqrt()))
            }
            (Layout::Channels, What::Backward) => Some((Self::number(inputs, 2, set), Self::number(inputs, 3, set))),
            (Layout::Groups(_), _) | (Layout::Channels, What::Forward) => None,
        };
        if let Some((mean, scale)) = given {
            // A difference, a root and a product are rounded.
            return Known { mean, scale, relative: 8.0 * u, absolute: 2.0 * u * (mean * scale).abs() };
        }
        let elements: Vec<f64> = self.rows_of(set).into_iter().flat_map(|row| self.row(inputs, 0, row)).collect();
        let n = self.count();
        let mean = sum(elements.iter().copied()) / n;
        let scale = 1.0 / (sum(elements.iter().map(|x| (x - mean) * (x - mean))) / n + eps(self.acc)).sqrt();
        Known { mean, scale, relative: 8.0 * u * self.depth().sqrt(), absolute: 8.0 * u * (1.0 + (mean * scale).abs()) }
    }

    /// The statistics of some sets.
    fn all_known(&self, inputs: &dyn Inputs, rows: impl Iterator<Item = usize>) -> BTreeMap<usize, Known> {
        let sets: std::collections::BTreeSet<usize> = rows.map(|row| self.set_of(row)).collect();
        sets.into_par_iter().map(|set| (set, self.known(inputs, set))).collect()
    }

    fn forward(&self, inputs: &dyn Inputs, rows: Range<usize>, want: &mut [f64], bound: &mut [f64]) {
        let model = self.model();
        let known = self.all_known(inputs, rows.clone());
        let pixels = self.pixels();
        want.par_chunks_mut(pixels).zip(bound.par_chunks_mut(pixels)).enumerate().for_each(|(r, (want, bound))| {
            let row = rows.start + r;
            let Known { mean, scale, relative, absolute } = known[&self.set_of(row)];
            let channel = row % self.channels();
            let (weight, bias) = (Self::number(inputs, 1, channel), Self::number(inputs, 2, channel));
            for ((want, bound), x) in want.iter_mut().zip(bound).zip(self.row(inputs, 0, row)) {
                let h = (x - mean) * scale;
                let exact = h * weight + bias;
                let lost = (relative * h.abs() + absolute + 2.0 * model.u_acc * h.abs()) * weight.abs();
                *bound = model.u_out * exact.abs() + lost + model.u_acc * (bias.abs() + exact.abs()) + model.floor;
                *want = storable(self.out, exact);
            }
        });
    }

    /// Mean (0) or scale (1) of each channel, as results.
    fn statistics(&self, inputs: &dyn Inputs, which: usize, want: &mut [f64], bound: &mut [f64]) {
        let u = self.model().u_acc;
        let adding = 8.0 * u * self.depth().sqrt();
        want.par_iter_mut().zip(bound).enumerate().for_each(|(set, (want, bound))| {
            let Known { mean, scale, .. } = self.known(inputs, set);
            (*want, *bound) = match which {
                0 => (mean, 8.0 * u * mean.abs() + adding / scale),
                _ => (scale, scale * (adding + 8.0 * u * (mean * scale).abs())),
            };
        });
    }

    /// Sums of `dy h` and of `dy` over a row.
    fn sums_of(&self, inputs: &dyn Inputs, known: Known, row: usize) -> [Sum; 2] {
        let dy_at = if self.layout == Layout::Channels { 4 } else { 2 };
        let (x, dy) = (self.row(inputs, 0, row), self.row(inputs, dy_at, row));
        let adding = 4.0 * self.model().u_acc * self.depth().sqrt();
        let h = |x: &f64| (x - known.mean) * known.scale;
        let of_weight = Sum {
            value: sum(x.iter().zip(&dy).map(|(x, dy)| dy * h(x))),
            error: x.iter().zip(&dy).map(|(x, dy)| dy.abs() * ((adding + known.relative) * h(x).abs() + known.absolute)).sum(),
        };
        let of_bias = Sum { value: sum(dy.iter().copied()), error: adding * dy.iter().map(|dy| dy.abs()).sum::<f64>() };
        [of_weight, of_bias]
    }

    /// The gradients of weight and bias, from all rows of a channel.
    fn of_channels(&self, inputs: &dyn Inputs, which: usize, want: &mut [f64], bound: &mut [f64]) {
        let model = self.model();
        let [batch, channels, _] = self.sizes;
        let known = self.all_known(inputs, 0..batch * channels);
        want.par_iter_mut().zip(bound).enumerate().for_each(|(channel, (want, bound))| {
            let rows = (0..batch).map(|image| image * channels + channel);
            let sums: Vec<Sum> = rows.map(|row| self.sums_of(inputs, known[&self.set_of(row)], row)[which]).collect();
            let exact = sum(sums.iter().map(|sum| sum.value));
            // Rows are added up as their elements are.
            let among = 4.0 * model.u_acc * (batch as f64).sqrt() * sums.iter().map(|sum| sum.value.abs()).sum::<f64>();
            *bound = model.u_out * exact.abs() + sums.iter().map(|sum| sum.error).sum::<f64>() + among + model.floor;
            *want = storable(self.out, exact);
        });
    }

    /// What all elements of a set have in common in their gradients, and what is along their deviations, each with its error.
    fn common(&self, inputs: &dyn Inputs, set: usize, known: Known) -> [Sum; 2] {
        let (mut along, mut plain) = (Sum::default(), Sum::default());
        for row in self.rows_of(set) {
            let weight = Self::number(inputs, 1, row % self.channels());
            let [of_weight, of_bias] = self.sums_of(inputs, known, row);
            for (total, part) in [(&mut along, of_weight), (&mut plain, of_bias)] {
                total.value += part.value * weight;
                total.error += part.error * weight.abs() + 4.0 * self.model().u_acc * (part.value * weight).abs();
            }
        }
        [plain, along].map(|sum| Sum { value: sum.value / self.count(), error: sum.error / self.count() })
    }

    fn backward(&self, inputs: &dyn Inputs, rows: Range<usize>, want: &mut [f64], bound: &mut [f64]) {
        let model = self.model();
        let (pixels, u) = (self.pixels(), model.u_acc);
        let known = self.all_known(inputs, rows.clone());
        let common: BTreeMap<usize, [Sum; 2]> =
            known.par_iter().map(|(set, known)| (*set, self.common(inputs, *set, *known))).collect();
        want.par_chunks_mut(pixels).zip(bound.par_chunks_mut(pixels)).enumerate().for_each(|(r, (want, bound))| {
            let row = rows.start + r;
            let set = self.set_of(row);
            let Known { mean, scale, relative, absolute } = known[&set];
            let [plain, along] = common[&set];
            let weight = Self::number(inputs, 1, row % self.channels());
            // Statistics that are results have cotangents of their own.
            let (of_mean, of_scale) = match self.layout {
                Layout::Channels => {
                    (Self::number(inputs, 5, set) / self.count(), Self::number(inputs, 6, set) * scale * scale / self.count())
                }
                Layout::Groups(_) => (0.0, 0.0),
            };
            let dy = self.row(inputs, if self.layout == Layout::Channels { 4 } else { 2 }, row);
            for (j, x) in self.row(inputs, 0, row).into_iter().enumerate() {
                let h = (x - mean) * scale;
                let h_error = relative * h.abs() + absolute;
                let slope = along.value * scale + of_scale;
                let exact = (dy[j] * weight - plain.value) * scale + of_mean - h * slope;
                let terms = scale.abs() * ((dy[j] * weight).abs() + plain.value.abs()) + of_mean.abs() + (h * slope).abs();
                let of_sums = scale.abs() * (plain.error + h.abs() * along.error);
                let lost = of_sums + h_error * slope.abs() + (8.0 * u + relative) * terms;
                bound[j] = model.u_out * exact.abs() + lost + 8.0 * u * h.abs() * of_scale.abs() + model.floor;
                want[j] = storable(self.out, exact);
            }
        });
    }
}

impl Reference for Normalised {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        match (self.what, output) {
            (What::Forward | What::Inference, 0) => self.forward(inputs, rows, want, bound),
            (What::Forward | What::Inference, _) => self.statistics(inputs, output - 1, want, bound),
            (What::Backward, 0) => self.backward(inputs, rows, want, bound),
            (What::Backward, _) => self.of_channels(inputs, output - 1, want, bound),
        }
    }
}
