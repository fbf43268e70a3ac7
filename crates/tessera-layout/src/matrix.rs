//! Linear algebra over F2: a matrix is its columns, a column is a `u64`.
//!
//! The value of the map at `x` is the XOR of the columns whose bit is set in `x`. [`Echelon`] is a matrix made ready for solving:
//! columns are taken in order and a column that depends on earlier ones never takes part in a solution, so every solution is the
//! smallest one: inputs with a high index are used only where no other input reaches the target.
//!
//! ```text
//! columns 0b01, 0b10, 0b11:  apply(0b101) = 0b01 ^ 0b11 = 0b10,  solve(0b11) = 0b011,  kernel = [0b111]
//! ```

use smallvec::SmallVec;

/// Columns of a matrix over F2.
pub(crate) type Columns = SmallVec<[u64; 16]>;

/// The XOR of the columns selected by the bits of `x`.
pub(crate) fn apply(columns: &[u64], mut x: u64) -> u64 {
    let mut y = 0;
    while x != 0 {
        let i = x.trailing_zeros() as usize;
        y ^= columns.get(i).copied().unwrap_or(0);
        x &= x - 1;
    }
    y
}

/// A matrix in echelon form, with the combinations of columns that made each row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echelon {
    /// (reduced vector, the columns it is the XOR of), each with a leading bit that no other has as its leading bit.
    pivots: SmallVec<[(u64, u64); 16]>,
    kernel: SmallVec<[u64; 4]>,
    dependent: u64,
}

impl Echelon {
    pub(crate) fn new(columns: &[u64]) -> Echelon {
        let mut echelon = Echelon::default();
        for (i, &column) in columns.iter().enumerate() {
            echelon.push(column, 1 << i);
        }
        echelon
    }

    /// Adds a vector made by `combination`; false when it depends on the earlier ones.
    pub(crate) fn push(&mut self, column: u64, combination: u64) -> bool {
        let (rest, used) = self.reduce(column);
        let made = used ^ combination;
        if rest == 0 {
            self.kernel.push(made);
            self.dependent |= combination;
            return false;
        }
        let at = self.pivots.partition_point(|(vector, _)| vector.leading_zeros() < rest.leading_zeros());
        self.pivots.insert(at, (rest, made));
        true
    }

    /// What is left of `y` after the pivots, and the combination that was taken out.
    fn reduce(&self, mut y: u64) -> (u64, u64) {
        let mut used = 0;
        for &(vector, combination) in &self.pivots {
            if y & (1 << (63 - vector.leading_zeros())) != 0 {
                y ^= vector;
                used ^= combination;
            }
        }
        (y, used)
    }

    /// The combination of columns whose XOR is `y`.
    pub(crate) fn solve(&self, y: u64) -> Option<u64> {
        let (rest, used) = self.reduce(y);
        (rest == 0).then_some(used)
    }

    pub(crate) fn rank(&self) -> usize {
        self.pivots.len()
    }

    /// A basis of the inputs that map to zero; each has a highest bit that the others lack.
    pub(crate) fn kernel(&self) -> &[u64] {
        &self.kernel
    }

    /// The inputs whose columns depend on columns before them.
    pub(crate) fn dependent(&self) -> u64 {
        self.dependent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn solutions_solve_and_the_kernel_vanishes(columns in prop::collection::vec(0u64..64, 0..9), x in 0u64..512) {
            let x = x & ((1 << columns.len()) - 1);
            let echelon = Echelon::new(&columns);
            let y = apply(&columns, x);
            let solution = echelon.solve(y).expect("a value of the map has a solution");
            prop_assert_eq!(apply(&columns, solution), y);
            prop_assert_eq!(solution & echelon.dependent(), 0);
            for &k in echelon.kernel() {
                prop_assert_eq!(apply(&columns, k), 0);
                prop_assert!(k != 0);
            }
            prop_assert_eq!(echelon.rank() + echelon.kernel().len(), columns.len());
            let image: std::collections::BTreeSet<u64> = (0..1 << columns.len()).map(|x| apply(&columns, x)).collect();
            prop_assert_eq!(image.len(), 1 << echelon.rank());
            for y in 0..64 {
                prop_assert_eq!(echelon.solve(y).is_some(), image.contains(&y));
            }
        }
    }
}
