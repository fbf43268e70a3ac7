//! Problems of random sizes, for checks that no list of sizes would think of.
//!
//! Half of all extents are spread evenly over their range and half over its powers of two, so that small and large ones both come up;
//! every fourth lies on a multiple of 64 or beside one, where tiles end.

/// Chooses sizes.
pub struct Draw<'a> {
    /// A number below its argument.
    below: &'a mut dyn FnMut(u64) -> u64,
    operations: u64,
    elements: u64,
}

impl<'a> Draw<'a> {
    /// Problems of at most about so many operations, and tensors of at most about so many elements.
    pub fn new(below: &'a mut dyn FnMut(u64) -> u64, operations: u64, elements: u64) -> Draw<'a> {
        Draw { below, operations, elements }
    }

    /// Elements that a tensor may have.
    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// Operations that a problem may take.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// One of some choices.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.below)(choices.len() as u64) as usize]
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        (self.below)(times) == 0
    }

    /// An extent from 1 to `most`.
    pub(crate) fn extent(&mut self, most: u64) -> u64 {
        let most = most.max(1);
        let even = (self.below)(2) == 0;
        let limit = if even { most } else { most.min(2 << (self.below)(u64::from(most.ilog2()) + 1)) };
        let extent = 1 + (self.below)(limit);
        match (self.below)(4) {
            0 => (extent.next_multiple_of(64) + (self.below)(3) - 1).min(most),
            _ => extent,
        }
    }

    /// Extents whose product is at most `product`, each at most its own number; none is favoured.
    pub(crate) fn extents<const N: usize>(&mut self, product: u64, most: [u64; N]) -> [u64; N] {
        let mut extents = [1; N];
        let first = (self.below)(N as u64) as usize;
        let mut left = product.max(1);
        for axis in (0..N).map(|step| (first + step) % N) {
            extents[axis] = self.extent(most[axis].min(left));
            left /= extents[axis];
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |most| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % most
        }
    }

    #[test]
    fn extents_are_small_and_large_and_beside_tiles() {
        let mut below = numbers(3);
        let mut draw = Draw::new(&mut below, 1 << 30, 1 << 20);
        let drawn: Vec<u64> = (0..4000).map(|_| draw.extent(4096)).collect();
        let share = |test: &dyn Fn(u64) -> bool| drawn.iter().filter(|&&extent| test(extent)).count();
        assert!(drawn.iter().all(|extent| (1..=4096).contains(extent)));
        assert!(share(&|extent| extent <= 16) > 200 && share(&|extent| extent > 2048) > 800);
        assert!(share(&|extent| extent % 64 == 1) > 250 && share(&|extent| extent % 64 == 63) > 250);
        assert!(share(&|extent| extent % 2 == 1) > 1500);
        for _ in 0..500 {
            let extents = draw.extents(5000, [100, 4096, 300]);
            assert!(extents.iter().product::<u64>() <= 5000 && extents[0] <= 100 && extents[2] <= 300);
        }
    }
}
