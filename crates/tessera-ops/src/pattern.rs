//! Where a sparse matrix has elements, for problems that nobody gives arrays for: how many each row has, and in which columns.
//!
//! | kind | rows have | columns lie |
//! |---|---|---|
//! | uniform | half to one and a half times as many as at the mean | anywhere |
//! | banded | as many as at the mean, or one more | beside the diagonal, in twice as many places |
//! | power law | the k-th largest about 1 / k of the largest, in any order | anywhere |
//!
//! Columns of a row rise, and none comes twice. All follows from the sizes: arrays of one problem fit each other without knowing each other.

use tessera_runtime::RandomStream;

/// How elements are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Rows of much the same length, columns anywhere.
    Uniform,
    /// Columns beside the diagonal.
    Banded,
    /// Few long rows and many short ones.
    PowerLaw,
}

impl Spread {
    /// Names of all, in variants.
    pub(crate) const NAMES: [&'static str; 3] = ["uniform", "banded", "power_law"];

    /// The spread of a name; uniform where there is none.
    pub(crate) fn of(name: &str) -> Option<Spread> {
        match name {
            "" | "uniform" => Some(Spread::Uniform),
            "banded" => Some(Spread::Banded),
            "power_law" => Some(Spread::PowerLaw),
            _ => None,
        }
    }
}

/// The places of a matrix's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements: no more than there are places.
    pub elements: usize,
    /// How they are spread.
    pub spread: Spread,
}

/// The numbers that all patterns are made of.
fn stream() -> RandomStream {
    RandomStream::new(0)
}

/// Words that say where two of each four neighbours stand, for problems that nobody gives arrays for: each pair of places is drawn of the six
/// that there are.
pub fn places_of_fours(words: usize) -> Vec<i32> {
    const PAIRS: [u32; 6] = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110];
    let pair = |word: usize, four: usize| PAIRS[(stream().word((8 * word + four) as u64) % 6) as usize] << (4 * four);
    (0..words).map(|word| (0..8).fold(0, |bits, four| bits | pair(word, four)) as i32).collect()
}

impl Pattern {
    /// Elements of each row.
    fn counts(&self) -> Vec<usize> {
        let weight = |row: usize| match self.spread {
            Spread::Uniform => 0.5 + stream().uniform(row as u64),
            Spread::Banded => 1.0,
            Spread::PowerLaw => 1.0 / stream().uniform(row as u64).max(0.5 / self.rows as f64),
        };
        let total: f64 = (0..self.rows).map(weight).sum();
        let share = |row| (self.elements as f64 * weight(row) / total) as usize;
        let mut counts: Vec<usize> = (0..self.rows).map(|row| share(row).min(self.columns)).collect();
        // What rounding and full rows left goes to rows that have room, from the first on.
        let mut left = self.elements.saturating_sub(counts.iter().sum());
        while left > 0 && counts.iter().any(|&count| count < self.columns) {
            let each = left.div_ceil(self.rows);
            for count in &mut counts {
                let more = each.min(self.columns - *count).min(left);
                *count += more;
                left -= more;
            }
        }
        counts
    }

    /// Where each row begins, and where the last one ends.
    pub fn row_offsets(&self) -> Vec<i32> {
        let mut offsets = vec![0];
        let mut end = 0;
        offsets.extend(self.counts().into_iter().map(|count| {
            end += count;
            end as i32
        }));
        offsets
    }

    /// The column of each element, row by row: each from a part of the row of its own.
    pub fn columns(&self) -> Vec<i32> {
        let mut columns = Vec::with_capacity(self.elements);
        for (row, count) in self.counts().into_iter().enumerate() {
            let width = match self.spread {
                Spread::Banded => (2 * count).min(self.columns),
                Spread::Uniform | Spread::PowerLaw => self.columns,
            };
            let middle = row * self.columns / self.rows;
            let first = if width == self.columns { 0 } else { middle.saturating_sub(width / 2).min(self.columns - width) };
            columns.extend((0..count).map(|at| {
                let [low, high] = [at, at + 1].map(|at| at * width / count);
                let number = stream().word((row as u64) << 32 | at as u64);
                (first + low + (number % (high - low) as u64) as usize) as i32
            }));
        }
        columns
    }

    /// The row of each element.
    pub fn rows(&self) -> Vec<i32> {
        let rows = self.counts().into_iter().enumerate();
        rows.flat_map(|(row, count)| std::iter::repeat_n(row as i32, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_elements_in_columns_that_rise() {
        for spread in Spread::NAMES.map(|name| Spread::of(name).expect("a name")) {
            for (rows, columns, elements) in
                [(1, 1, 0), (1, 1, 1), (7, 5, 35), (100, 30, 1000), (1000, 4000, 20_000), (9, 100, 3)]
            {
                let pattern = Pattern { rows, columns, elements, spread };
                let (offsets, of_elements) = (pattern.row_offsets(), pattern.columns());
                assert_eq!(
                    (offsets.len(), offsets[rows] as usize, of_elements.len()),
                    (rows + 1, elements, elements),
                    "{pattern:?}"
                );
                for row in 0..rows {
                    let own = &of_elements[offsets[row] as usize..offsets[row + 1] as usize];
                    assert!(own.windows(2).all(|pair| pair[0] < pair[1]), "{pattern:?}: {own:?}");
                    assert!(own.iter().all(|&column| (0..columns as i32).contains(&column)));
                }
                assert!(pattern.rows().windows(2).all(|pair| pair[0] <= pair[1]));
            }
        }
    }

    #[test]
    fn a_power_law_has_long_rows() {
        let longest = |spread| {
            let offsets = Pattern { rows: 1000, columns: 100_000, elements: 20_000, spread }.row_offsets();
            offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
        };
        assert!(longest(Spread::Uniform) < 40 && longest(Spread::Banded) <= 21 && longest(Spread::PowerLaw) > 400);
    }
}
