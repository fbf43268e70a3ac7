//! A two-dimensional convolution: its extents, what a window of it reads, and the reference.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel};

use crate::element::storable;
use crate::operator::{Expected, Inputs, Reference, Unsupported};
use crate::problem::Problem;

/// Numbers of a problem, each with its usual value.
pub(super) const NUMBERS: [(&str, f64); 3] = [("stride", 1.0), ("padding", 0.0), ("dilation", 1.0)];

/// Extents and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Convolution {
    /// Images.
    pub(super) n: usize,
    /// Channels of x, of all groups, and its rows and columns.
    pub(super) c: usize,
    pub(super) h: usize,
    pub(super) w: usize,
    /// Channels of y, of all groups.
    pub(super) o: usize,
    /// Rows and columns of a window.
    pub(super) r: usize,
    pub(super) s: usize,
    pub(super) groups: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
    /// Channels lie last in arrays, else before rows and columns.
    pub(super) last: bool,
    pub(super) bias: bool,
}

impl Convolution {
    /// The convolution of a problem.
    ///
    /// # Errors
    /// Where a number is none that it can have, a group would not be whole, or no window lies inside of what is padded.
    pub(super) fn of(problem: &Problem) -> Result<Convolution, Unsupported> {
        let extent = |name| problem.get(name) as usize;
        let number = |(name, usual): (&str, f64)| {
            let value = problem.number(name).unwrap_or(usual);
            let least = if name == "padding" { 0.0 } else { 1.0 };
            match value.fract() == 0.0 && (least..=65536.0).contains(&value) {
                true => Ok(value as usize),
                false => Err(Unsupported(format!("`{name}` is {value}, and is a whole number of {least} or more"))),
            }
        };
        let [stride, padding, dilation] = NUMBERS.map(number);
        let own = Convolution {
            n: extent("n"),
            c: extent("c"),
            h: extent("h"),
            w: extent("w"),
            o: extent("o"),
            r: extent("r"),
            s: extent("s"),
            groups: extent("groups").max(1),
            stride: stride?,
            padding: padding?,
            dilation: dilation?,
            last: problem.has("nhwc"),
            bias: problem.has("bias"),
        };
        own.refuse_sizes()?;
        if !own.c.is_multiple_of(own.groups) || !own.o.is_multiple_of(own.groups) {
            let Convolution { c, o, groups, .. } = own;
            return Err(Unsupported(format!("{groups} groups do not divide {c} channels of `x` and {o} of `y`")));
        }
        if own.r == 0 || own.s == 0 {
            return Err(Unsupported("a window has a row and a column at least".to_string()));
        }
        let [rows, columns] = [own.reach(own.r), own.reach(own.s)];
        if own.h + 2 * own.padding < rows || own.w + 2 * own.padding < columns {
            let Convolution { h, w, padding, .. } = own;
            return Err(Unsupported(format!("a window of {rows} x {columns} is larger than {h} x {w} with {padding} around")));
        }
        Ok(own)
    }

    /// Refuses extents that kernels cannot count in 32 bits, and arrays beyond any memory, whose elements could not be counted in 64.
    fn refuse_sizes(&self) -> Result<(), Unsupported> {
        const MOST: u128 = 1 << 48;
        let Convolution { n, c, h, w, o, r, s, .. } = *self;
        let longest = [n, c, h, w, o, r, s].into_iter().max().unwrap_or_default();
        if longest > i32::MAX as usize {
            return Err(Unsupported(format!("an extent of {longest} is more than 32 bits count")));
        }
        let padded = 2 * self.padding;
        // No result has more rows and columns than what is padded.
        let arrays = [[n, c.max(o), h + padded, w + padded], [o, c, r, s]];
        let counts = arrays.map(|all| all.iter().map(|&extent| extent as u128).product::<u128>());
        if let Some(at) = counts.iter().position(|&count| count > MOST) {
            let shown = arrays[at].map(|extent| extent.to_string()).join(" x ");
            return Err(Unsupported(format!("{shown} elements are more than any memory has")));
        }
        if counts[0] * counts[1] > 1 << 62 {
            return Err(Unsupported("a convolution of more than 2^62 operations would not end".to_string()));
        }
        Ok(())
    }

    /// Pixels from the first to the last tap of so many.
    fn reach(&self, taps: usize) -> usize {
        (taps - 1) * self.dilation + 1
    }

    /// Windows of so many taps along an axis; none where no image is.
    fn windows(&self, extent: usize, taps: usize) -> usize {
        (extent + 2 * self.padding).checked_sub(self.reach(taps)).map_or(0, |left| left / self.stride + 1)
    }

    /// Rows of y.
    pub(super) fn p(&self) -> usize {
        self.windows(self.h, self.r)
    }

    /// Columns of y.
    pub(super) fn q(&self) -> usize {
        self.windows(self.w, self.s)
    }

    /// The same where windows are pixels: all of them are one line, or those of an image, where its channels lie before it.
    pub(super) fn flat(self) -> Convolution {
        match (self.r * self.s * self.stride, self.padding) {
            (1, 0) if self.last => Convolution { n: 1, h: 1, w: self.n * self.h * self.w, ..self },
            (1, 0) => Convolution { h: 1, w: self.h * self.w, ..self },
            _ => self,
        }
    }

    /// Channels of x that a channel of y is made of.
    pub(super) fn within(&self) -> usize {
        self.c / self.groups
    }

    /// Channels of y of a group.
    pub(super) fn out(&self) -> usize {
        self.o / self.groups
    }

    /// Products that are added up in an element of y.
    pub(super) fn terms(&self) -> usize {
        self.r * self.s * self.within()
    }

    pub(super) fn shape_of_x(&self) -> Vec<usize> {
        self.image(self.c, self.h, self.w)
    }

    pub(super) fn shape_of_y(&self) -> Vec<usize> {
        self.image(self.o, self.p(), self.q())
    }

    fn image(&self, channels: usize, rows: usize, columns: usize) -> Vec<usize> {
        if self.last { vec![self.n, rows, columns, channels] } else { vec![self.n, channels, rows, columns] }
    }

    /// Where an element of the weight lies: channel of y, tap, channel of its group of x.
    pub(super) fn place_in_weight(&self, o: usize, tap: usize, c: usize) -> usize {
        let (taps, within) = (self.r * self.s, self.within());
        if self.last { (o * taps + tap) * within + c } else { (o * within + c) * taps + tap }
    }

    /// The row or column of x that a tap of a window reads, where there is one.
    pub(super) fn under(&self, at: usize, tap: usize, extent: usize) -> Option<usize> {
        (at * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|&place| place < extent)
    }
}

/// y from x, the weight and the bias, which are the plan's first tensors.
pub(super) struct Windows {
    pub(super) of: Convolution,
    pub(super) result: DType,
    pub(super) acc: DType,
}

impl Windows {
    /// Adds up the products of a row of y, channels last: of a pixel.
    fn pixel(&self, inputs: &dyn Inputs, row: usize, weight: &[f64], sums: &mut [f64], magnitudes: &mut [f64]) {
        let of = &self.of;
        let (n, p, q) = (row / of.q() / of.p(), row / of.q() % of.p(), row % of.q());
        let mut x = vec![0.0; of.c];
        for tap in 0..of.r * of.s {
            let (Some(h), Some(w)) = (of.under(p, tap / of.s, of.h), of.under(q, tap % of.s, of.w)) else { continue };
            inputs.numbers(0, ((n * of.h + h) * of.w + w) * of.c, &mut x);
            for (o, (sum, magnitude)) in sums.iter_mut().zip(magnitudes.iter_mut()).enumerate() {
                let first = o / of.out() * of.within();
                for (c, x) in x[first..first + of.within()].iter().enumerate() {
                    let product = x * weight[of.place_in_weight(o, tap, c)];
                    *sum += product;
                    *magnitude += product.abs();
                }
            }
        }
    }

    /// The same, channels first: of a line of one channel.
    fn line(&self, inputs: &dyn Inputs, row: usize, weight: &[f64], sums: &mut [f64], magnitudes: &mut [f64]) {
        let of = &self.of;
        let (n, o, p) = (row / of.p() / of.o, row / of.p() % of.o, row % of.p());
        let first = o / of.out() * of.within();
        let mut x = vec![0.0; of.w];
        for c in 0..of.within() {
            for r in 0..of.r {
                let Some(h) = of.under(p, r, of.h) else { continue };
                inputs.numbers(0, ((n * of.c + first + c) * of.h + h) * of.w, &mut x);
                for s in 0..of.s {
                    let factor = weight[of.place_in_weight(o, r * of.s + s, c)];
                    for (q, (sum, magnitude)) in sums.iter_mut().zip(magnitudes.iter_mut()).enumerate() {
                        let Some(w) = of.under(q, s, of.w) else { continue };
                        *sum += x[w] * factor;
                        *magnitude += (x[w] * factor).abs();
                    }
                }
            }
        }
    }
}

impl Reference for Windows {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let of = &self.of;
        let mut weight = vec![0.0; of.o * of.terms()];
        inputs.numbers(1, 0, &mut weight);
        let mut bias = vec![0.0; of.o];
        if of.bias {
            inputs.numbers(2, 0, &mut bias);
        }
        let model = ErrorModel::nearest(self.result, self.acc);
        let row_len = if of.last { of.o } else { of.q() };
        want.par_chunks_mut(row_len).zip(bound.par_chunks_mut(row_len)).enumerate().for_each(|(at, (want, bound))| {
            let row = rows.start + at;
            want.fill(0.0);
            bound.fill(0.0);
            match of.last {
                true => self.pixel(inputs, row, &weight, want, bound),
                false => self.line(inputs, row, &weight, want, bound),
            }
            for (place, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
                let added = bias[if of.last { place } else { row / of.p() % of.o }];
                let sum = *want + added;
                *bound = model.contraction(sum, *bound + added.abs(), of.terms() + 1);
                *want = storable(self.result, sum);
            }
        });
    }
}
