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
//!
//! A left factor may be stored by half: a fragment of it holds two of each four neighbours in a row of 32, and a fragment of *places* says which,
//! in a word of 32 bits for each of its 16 rows. The lowest four bits of a word are of the first four neighbours, those above of the next four, and so on;
//! the lower two of them are the place of what is stored first. Each lane has the words of the rows `group` and `group + 8`.
//!
//! ```text
//! row             0 a 0 b   c d 0 0   ...      stored   a b c d ...
//! places of it     1 and 3   0 and 1  ...      word     0b ... 01_00 11_01
//! ```

/// Rows and columns of a fragment.
pub const SIDE: u32 = 16;

/// Elements of a factor or of sums that a lane holds.
pub const PER_LANE: usize = 8;

/// Neighbours in a row of a left factor stored by half whose places one word says.
pub const WORD: u32 = 2 * SIDE;

/// Words of places that a lane holds.
pub const PLACES_PER_LANE: usize = 2;

/// Words of four bits each: which two of four neighbours stand in a row, the first two.
pub const FIRST_PLACES: u32 = 0x4444_4444;

/// Where along a row of 32 each of its 16 stored elements stands; an error names four neighbours of which not two stand in order.
pub fn stored_places(word: u32) -> Result<[usize; SIDE as usize], usize> {
    let mut places = [0; SIDE as usize];
    for (four, pair) in places.chunks_exact_mut(2).enumerate() {
        let of = |nth: usize| (word >> (4 * four + 2 * nth)) as usize & 3;
        if of(0) >= of(1) {
            return Err(four);
        }
        pair.copy_from_slice(&[4 * four + of(0), 4 * four + of(1)]);
    }
    Ok(places)
}

/// What a fragment is in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The left factor.
    Lhs,
    /// The right factor.
    Rhs,
    /// The sums.
    Acc,
    /// Where the elements of a left factor that is stored by half stand.
    Places,
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
    /// Elements that a lane holds.
    pub fn per_lane(self) -> usize {
        match self {
            Fragment::Lhs | Fragment::Rhs | Fragment::Acc => PER_LANE,
            Fragment::Places => PLACES_PER_LANE,
        }
    }

    /// Element `element` of a lane, in a fragment of elements of so many bits.
    pub fn element(self, bits: u32, element: usize) -> LaneElement {
        let bit = |position: u32| (element as u32 >> position) & 1;
        if self == Fragment::Places {
            return LaneElement { group_axis: 0, behind_group: 8 * bit(0), scale: 0, behind_number: 0 };
        }
        let wide = bits == 8 && self != Fragment::Acc;
        let within = if wide { element as u32 & 3 } else { bit(0) };
        let (behind_group, far) = match (self, wide) {
            (_, true) => (bit(2), 0),
            (Fragment::Rhs, false) => (bit(2), bit(1)),
            (Fragment::Lhs | Fragment::Acc | Fragment::Places, false) => (bit(1), bit(2)),
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
    fn words_say_which_two_of_four_stand() {
        let places = stored_places(0x4444_444d).unwrap();
        assert_eq!(places, [1, 3, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29]);
        assert_eq!(stored_places(FIRST_PLACES).unwrap()[..4], [0, 1, 4, 5]);
        for wrong in [0x0, 0x5, 0xa, 0xf, 0x1, 0x2, 0x3, 0x6, 0x7, 0xb] {
            assert_eq!(stored_places(0x4444_4044 | wrong << 8), Err(2), "{wrong:x}");
        }
        for right in [0x4, 0x8, 0x9, 0xc, 0xd, 0xe] {
            assert!(stored_places(0x4444_4044 | right << 8).is_ok(), "{right:x}");
        }
    }

    #[test]
    fn every_lane_of_a_group_has_the_places_of_two_rows() {
        for lane in 0..32 {
            let places = [0, 1].map(|at| Fragment::Places.element(32, at).place(lane));
            assert_eq!(places, [[lane / 4, 0], [lane / 4 + 8, 0]]);
        }
    }

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
