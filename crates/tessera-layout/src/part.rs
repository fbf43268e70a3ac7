//! One of several equal parts of a tile, where every thread keeps what it holds of it: the columns of a product's sums, of which each thread has some
//! in every eight.

use crate::distribution::Distribution;
use crate::linear::{Axis, Dims, LinearLayout};

impl Distribution {
    /// How a part along a dimension lies, where all parts lie alike and no element changes its thread; `None` where they do not.
    pub fn part(&self, dim: usize, parts: u64) -> Option<Distribution> {
        let extent = *self.shape().get(dim)?;
        if parts == 0 || !extent.is_multiple_of(parts) || !extent.is_multiple_of(self.core().extent(dim)) {
            return None;
        }
        let mut shape = self.shape().to_vec();
        shape[dim] /= parts;
        let core = self.core();
        let mut extents = core.extents();
        extents[dim] = extents[dim].min(1 << shape[dim].trailing_zeros());
        let bases = |axis: Axis| (0..core.bits(axis)).map(move |bit| core.basis(axis, bit));
        let beyond = |basis: &Dims| basis[dim] >= extents[dim];
        if [Axis::Lane, Axis::Warp].into_iter().any(|axis| bases(axis).any(|basis| beyond(&basis))) {
            return None;
        }
        let own: Vec<Dims> = bases(Axis::Register).filter(|basis| !beyond(basis)).collect();
        let lists = [(Axis::Register, own), (Axis::Lane, bases(Axis::Lane).collect()), (Axis::Warp, bases(Axis::Warp).collect())];
        let part = Distribution::new(&shape, LinearLayout::from_bases(&extents, &lists).ok()?, self.warps()).ok()?;
        (0..parts).all(|number| self.registers_of_part(&part, dim, number).is_some()).then_some(part)
    }

    /// How two tiles that lie like this one lie as one, one behind the other along a dimension: every thread keeps what it holds of both.
    /// `None` where that is not a layout.
    pub fn joined(&self, dim: usize) -> Option<Distribution> {
        let mut shape = self.shape().to_vec();
        *shape.get_mut(dim)? *= 2;
        let core = self.core();
        let (extent, mut extents) = (core.extent(dim), core.extents());
        if self.shape()[dim] != extent {
            return None;
        }
        extents[dim] = 2 * extent;
        let bases = |axis: Axis| (0..core.bits(axis)).map(|bit| core.basis(axis, bit)).collect::<Vec<Dims>>();
        let mut second = Dims::from_elem(0, shape.len());
        second[dim] = extent;
        let mut own = bases(Axis::Register);
        own.push(second);
        let lists = [(Axis::Register, own), (Axis::Lane, bases(Axis::Lane)), (Axis::Warp, bases(Axis::Warp))];
        Distribution::new(&shape, LinearLayout::from_bases(&extents, &lists).ok()?, self.warps()).ok()
    }

    /// Which registers hold the part with a number, in the order of that part's own.
    pub fn registers_of_part(&self, part: &Distribution, dim: usize, number: u64) -> Option<Vec<usize>> {
        // Threads differ by bits: what holds for each bit holds for all.
        let threads = std::iter::once(0).chain((0..).map(|bit| 1 << bit).take_while(|&thread| thread < self.threads()));
        let mut found: Option<Vec<usize>> = None;
        for thread in threads {
            let whole = self.positions(thread);
            let place = |mut position: Dims| {
                position[dim] += number * part.shape()[dim];
                whole.iter().position(|other| *other == position)
            };
            let own: Vec<usize> = part.positions(thread).into_iter().map(place).collect::<Option<_>>()?;
            if found.get_or_insert_with(|| own.clone()) != &own {
                return None;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::{Axis, Dims, Distribution, LinearLayout};

    /// Sums of warpgroups: rows over warps and lanes, of every eight columns two in a thread.
    fn sums(rows: u64, columns: u64, warps: u64) -> Distribution {
        let core = 1 << columns.trailing_zeros();
        let at = |row: u64, column: u64| Dims::from_slice(&[row, column]);
        let mut registers = vec![at(0, 1), at(8, 0)];
        registers.extend((3..).map(|bit| 1 << bit).take_while(|&column| column < core).map(|column| at(0, column)));
        let lanes = vec![at(0, 2), at(0, 4), at(1, 0), at(2, 0), at(4, 0)];
        let of_warps = (0..warps.next_power_of_two().ilog2()).map(|bit| at(16 << bit, 0)).collect();
        let bases = [(Axis::Register, registers), (Axis::Lane, lanes), (Axis::Warp, of_warps)];
        let core = LinearLayout::from_bases(&[16 * warps.next_power_of_two(), core], &bases).expect("a layout");
        Distribution::new(&[rows, columns], core, warps).expect("a distribution")
    }

    #[test]
    fn parts_of_sums_are_sums() {
        for (columns, parts) in [(128, 2), (128, 8), (64, 8), (96, 2), (96, 4), (160, 4), (16, 2), (128, 1)] {
            let whole = sums(128, columns, 8);
            let part = whole.part(1, parts).unwrap_or_else(|| panic!("{columns} in {parts}"));
            assert_eq!(part.shape(), [128, columns / parts]);
            assert_eq!(part.registers() * parts, whole.registers());
            let mut all: Vec<usize> =
                (0..parts).flat_map(|number| whole.registers_of_part(&part, 1, number).expect("registers")).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..whole.registers() as usize), "each register is in one part");
        }
    }

    #[test]
    fn joined_tiles_are_the_parts_of_their_whole() {
        let one = sums(128, 32, 8);
        let both = one.joined(1).expect("a layout");
        assert_eq!((both.shape(), both.registers()), (&[128, 64][..], 2 * one.registers()));
        assert_eq!(both.part(1, 2), Some(one.clone()));
        let one = one.expand(2).expect("a layout");
        let pairs = one.joined(2).expect("a layout");
        assert_eq!((pairs.shape(), pairs.part(2, 2)), (&[128, 32, 2][..], Some(one)));
        assert_eq!(sums(128, 24, 8).joined(1), None, "the second 24 columns would begin within a core");
    }

    /// Three warpgroups lie as four of which one is missing.
    #[test]
    fn rows_of_missing_warps_are_in_no_part() {
        let part = sums(192, 64, 12).part(1, 2).expect("a part");
        assert_eq!((part.shape(), part.registers(), part.threads()), (&[192, 32][..], 16, 384));
    }

    #[test]
    fn what_threads_would_exchange_is_no_part() {
        assert_eq!(sums(128, 16, 8).part(1, 4), None, "four columns are two threads'");
        assert_eq!(sums(128, 24, 8).part(1, 2), None, "twelve are one and a half times eight");
        assert_eq!(sums(128, 16, 8).part(0, 2), None, "rows are in warps");
        assert_eq!(sums(128, 16, 8).part(1, 3), None, "no equal parts");
    }
}
