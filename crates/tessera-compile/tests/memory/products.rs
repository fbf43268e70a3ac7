//! Random products whose factors, summands and results are tiles of the same arrays: the loops that recipes take apart into warps that
//! load ahead and warps that multiply and store. Numbers are small integers, as in [`super::Program`].

use tessera_types::DType;

use super::Choose;
use super::meaning::{Arrays, clamp};
use super::text::{NAMES, name};

/// Tiles of each extent along an axis of an array.
const TILES: usize = 4;

/// Which tile along an axis.
#[derive(Clone, Copy, Debug)]
enum At {
    Fixed(usize),
    /// The round of the product's loop.
    Round,
    /// The round of the loop around it and something, modulo [`TILES`].
    Outer(usize),
}

/// A tile of an array.
#[derive(Clone, Copy, Debug)]
struct Part {
    array: usize,
    index: [At; 2],
    shape: [usize; 2],
}

/// One tile stored to another.
#[derive(Clone, Copy, Debug)]
struct Copy {
    to: Part,
    from: Part,
}

/// `for t: acc = zero; for k: acc = mma(lhs[.., k], rhs[k, ..], acc); out = acc + added`, with copies between.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) dtype: DType,
    /// Arrays, all of them with so many rows and columns.
    pub(crate) count: usize,
    pub(crate) side: usize,
    /// Rows and columns of the result's tile, and what a round contracts.
    m: usize,
    n: usize,
    k: usize,
    /// Rounds of the loop around the product's, where there is one, and of that itself.
    outer: Option<usize>,
    pub(crate) rounds: usize,
    lhs: Part,
    rhs: Part,
    /// A second product: what becomes of the first is its left factor, and this its right one.
    second: Option<Part>,
    /// In front of the product's loop, in it, and behind the store.
    before: Option<Copy>,
    inside: Option<Copy>,
    behind: Option<Copy>,
    added: Option<Part>,
    out: Part,
}

/// A product over few arrays.
pub(crate) fn product(choose: &mut Choose<'_>) -> Product {
    let dtype = [DType::F16, DType::BF16, DType::I8, DType::F32, DType::F8E4M3][choose(5)];
    let (m, n) = ([64, 64, 32, 128][choose(4)], [16, 32, 64][choose(3)]);
    let k = [16, 32, 64][choose(3)].max(256 / dtype.bits() as usize);
    let (count, outer, rounds) = (1 + choose(3), (choose(2) == 0).then_some(2 + choose(2)), 2 + choose(3));
    let mut at = |round: bool| match choose(3) {
        _ if round => At::Round,
        0 if outer.is_some() => At::Outer(choose(2)),
        _ => At::Fixed(choose(TILES)),
    };
    let mut indices = |rounds: [bool; 2]| rounds.map(&mut at);
    let places = [[false, true], [true, false], [true, false], [false; 2], [false; 2]].map(&mut indices);
    let copies = [[false; 2], [false, true], [false; 2]].map(|rounds| [indices(rounds), indices([false; 2])]);
    let mut part = |index: [At; 2], shape: [usize; 2]| Part { array: choose(count), index, shape };
    let lhs = part(places[0], [m, k]);
    let rhs = part(places[1], [k, n]);
    let second = part(places[2], [n, n]);
    let (added, out) = (part(places[3], [m, n]), part(places[4], [m, n]));
    let [before, inside, behind] = copies.map(|[to, from]| Copy { to: part(to, [m, n]), from: part(from, [m, n]) });
    let chained = matches!(dtype, DType::F16 | DType::BF16) && choose(3) == 0;
    Product {
        dtype,
        count,
        side: TILES * m.max(n).max(k),
        m,
        n,
        k,
        outer,
        rounds,
        lhs,
        rhs,
        second: chained.then_some(second),
        before: (choose(2) == 0).then_some(before),
        inside: (choose(4) == 0).then_some(inside),
        behind: (choose(2) == 0).then_some(behind),
        added: (choose(2) == 0).then_some(added),
        out,
    }
}

impl Product {
    /// The arrays before a run.
    pub(crate) fn arrays(&self) -> Arrays {
        let number = |array: usize, i: usize| ((i * 7 + i / 13 * 3 + array * 5) % 7) as i64 - 3;
        (0..self.count).map(|array| (0..self.side * self.side).map(|i| number(array, i)).collect()).collect()
    }

    /// The arrays after a run.
    pub(crate) fn run(&self) -> Arrays {
        let mut arrays = self.arrays();
        let Product { m, n, k, .. } = *self;
        for outer in 0..self.outer.unwrap_or(1) {
            self.copy(&mut arrays, self.before, [outer, 0]);
            let mut acc = vec![0; m * n];
            for round in 0..self.rounds {
                let [a, b] = [self.lhs, self.rhs].map(|part| self.read(&arrays, part, [outer, round]));
                match self.second {
                    None => multiply(&a, &b, &mut acc, n, k),
                    Some(second) => {
                        let mut sums = vec![0; m * n];
                        multiply(&a, &b, &mut sums, n, k);
                        let left: Vec<i64> = sums.into_iter().map(clamp).collect();
                        multiply(&left, &self.read(&arrays, second, [outer, round]), &mut acc, n, n);
                    }
                }
                self.copy(&mut arrays, self.inside, [outer, round]);
            }
            if let Some(added) = self.added {
                acc.iter_mut().zip(self.read(&arrays, added, [outer, 0])).for_each(|(sum, more)| *sum += more);
            }
            let result: Vec<i64> = acc.into_iter().map(clamp).collect();
            self.write(&mut arrays, self.out, [outer, 0], &result);
            self.copy(&mut arrays, self.behind, [outer, 0]);
        }
        arrays
    }

    fn copy(&self, arrays: &mut Arrays, copy: Option<Copy>, counters: [usize; 2]) {
        if let Some(Copy { to, from }) = copy {
            let value = self.read(arrays, from, counters);
            self.write(arrays, to, counters, &value);
        }
    }

    fn places(&self, part: Part, [outer, round]: [usize; 2]) -> impl Iterator<Item = usize> + use<> {
        let [row, column] = part.index.map(|at| match at {
            At::Fixed(value) => value,
            At::Round => round,
            At::Outer(plus) => (outer + plus) % TILES,
        });
        let ([height, width], side) = (part.shape, self.side);
        (0..height * width).map(move |i| (row * height + i / width) * side + column * width + i % width)
    }

    fn read(&self, arrays: &Arrays, part: Part, counters: [usize; 2]) -> Vec<i64> {
        self.places(part, counters).map(|at| arrays[part.array][at]).collect()
    }

    fn write(&self, arrays: &mut Arrays, part: Part, counters: [usize; 2], value: &[i64]) {
        self.places(part, counters).zip(value).for_each(|(at, &value)| arrays[part.array][at] = value);
    }

    /// The source of `kernel`, which takes the arrays and the rounds of the product's loop.
    pub(crate) fn text(&self) -> String {
        let Product { m, n, .. } = *self;
        let (own, acc) = (name(self.dtype), if self.dtype == DType::I8 { "ct.int32" } else { "ct.float32" });
        let mut lines = vec![(0, "@ct.kernel".to_string()), (0, format!("def kernel({}, n):", NAMES[..self.count].join(", ")))];
        lines.extend(self.outer.map(|rounds| (1, format!("for t in range({rounds}):"))));
        let depth = 1 + usize::from(self.outer.is_some());
        lines.extend(self.before.map(|copy| (depth, copy.text())));
        lines.push((depth, format!("acc = ct.zeros(({m}, {n}), {acc})")));
        lines.push((depth, "for k in range(n):".to_string()));
        let (a, b) = (self.lhs.text(), self.rhs.text());
        match self.second {
            None => lines.push((depth + 1, format!("acc = ct.mma({a}, {b}, acc)"))),
            Some(second) => {
                lines.push((depth + 1, format!("s = clamp(ct.mma({a}, {b}, ct.zeros(({m}, {n}), {acc})))")));
                lines.push((depth + 1, format!("acc = ct.mma(s.astype({own}), {}, acc)", second.text())));
            }
        }
        lines.extend(self.inside.map(|copy| (depth + 1, copy.text())));
        lines.extend(self.added.map(|added| (depth, format!("acc = acc + {}.astype({acc})", added.text()))));
        let out = format!("ct.store({}, {}, clamp(acc).astype({own}))", NAMES[self.out.array], self.out.place());
        lines.push((depth, out));
        lines.extend(self.behind.map(|copy| (depth, copy.text())));
        let lines: Vec<String> = lines.into_iter().map(|(depth, line)| format!("{}{line}\n", "    ".repeat(depth))).collect();
        format!("import cuda.tile as ct\n\ndef clamp(t):\n    return ct.minimum(ct.maximum(t, -8), 8)\n\n{}", lines.concat())
    }

    /// The product with parts left out as long as `fails` holds.
    pub(crate) fn shrunk(mut self, fails: impl Fn(&Product) -> bool) -> Product {
        let changes: [fn(&mut Product); 6] = [
            |product| product.before = None,
            |product| product.inside = None,
            |product| product.added = None,
            |product| product.behind = None,
            |product| product.second = None,
            |product| product.rounds = 2,
        ];
        for change in changes {
            let mut smaller = self.clone();
            change(&mut smaller);
            if fails(&smaller) {
                self = smaller;
            }
        }
        self
    }
}

impl Part {
    fn place(&self) -> String {
        let [row, column] = self.index.map(|at| match at {
            At::Fixed(value) => value.to_string(),
            At::Round => "k".to_string(),
            At::Outer(plus) => format!("(t + {plus}) % {TILES}"),
        });
        format!("({row}, {column})")
    }

    fn text(&self) -> String {
        let [height, width] = self.shape;
        format!("ct.load({}, {}, ({height}, {width}))", NAMES[self.array], self.place())
    }
}

impl Copy {
    fn text(&self) -> String {
        format!("ct.store({}, {}, {})", NAMES[self.to.array], self.to.place(), self.from.text())
    }
}

/// `acc += a b`, row-major.
fn multiply(a: &[i64], b: &[i64], acc: &mut [i64], n: usize, k: usize) {
    for (i, sum) in acc.iter_mut().enumerate() {
        let row = &a[i / n * k..][..k];
        *sum += row.iter().enumerate().map(|(at, &x)| x * b[at * n + i % n]).sum::<i64>();
    }
}
