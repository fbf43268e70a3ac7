//! Where the elements of a warp's matrices lie, where each lane holds its own as scalars.
//!
//! A fragment is a matrix of 16 x 16, eight elements a lane, as the tensor cores of a warp take them. Lane `l` is number `l % 4` of
//! group `l / 4`; an element's place follows along one axis from the group, along the other from the number in it:
//!
//! ```text
//! rows of a left factor, of sums     group + 0 or 8        columns of a left factor     w * number + 0 .. w (+ 8)
//! columns of a right factor          group + 0 or 8        rows of a right factor       w * number + 0 .. w (+ 8)
//!                                                          columns of sums              2 * number + 0 .. 2 (+ 8)
//! ```
//! `w` is 2 for factors of 16 bits and 4 for those of 8.

/// Rows and columns of a fragment.
pub const SIDE: u32 = 16;

/// Elements of a fragment that a lane holds.
pub const PER_LANE: usize = 8;

/// What a fragment is in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The left factor.
    Lhs,
    /// The right factor.
    Rhs,
    /// The sums.
    Acc,
}

/// The place of one of a lane's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneElement {
    /// The axis, 0 or 1, along which the lane's group counts.
    pub group_axis: usize,
    /// What is added to the group along that axis.
    pub behind_group: u32,
    /// What the lane's number in its group is multiplied by along the other axis.
    pub scale: u32,
    /// What is added there.
    pub behind_number: u32,
}

impl Fragment {
    /// Element `element` of a lane, in a fragment of elements of so many bits.
    pub fn element(self, bits: u32, element: usize) -> LaneElement {
        let bit = |position: u32| (element as u32 >> position) & 1;
        let wide = bits == 8 && self != Fragment::Acc;
        let within = if wide { element as u32 & 3 } else { bit(0) };
        let (behind_group, far) = match (self, wide) {
            (_, true) => (bit(2), 0),
            (Fragment::Rhs, false) => (bit(2), bit(1)),
            (Fragment::Lhs | Fragment::Acc, false) => (bit(1), bit(2)),
        };
        LaneElement {
            group_axis: usize::from(self == Fragment::Rhs),
            behind_group: 8 * behind_group,
            scale: if wide { 4 } else { 2 },
            behind_number: within + 8 * far,
        }
    }
}

impl LaneElement {
    /// Row and column in a lane.
    pub fn place(self, lane: u32) -> [u32; 2] {
        let (by_group, by_number) = (lane / 4 + self.behind_group, self.scale * (lane % 4) + self.behind_number);
        if self.group_axis == 0 { [by_group, by_number] } else { [by_number, by_group] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_place() {
        for (fragment, bits) in
            [(Fragment::Lhs, 16), (Fragment::Rhs, 16), (Fragment::Lhs, 8), (Fragment::Rhs, 8), (Fragment::Acc, 32)]
        {
            let all = (0..32).flat_map(|lane| (0..PER_LANE).map(move |at| fragment.element(bits, at).place(lane)));
            let mut all: Vec<[u32; 2]> = all.collect();
            all.sort_unstable();
            assert!(all.iter().enumerate().all(|(at, place)| at as u32 == SIDE * place[0] + place[1]), "{fragment:?} {bits}");
        }
    }
}
