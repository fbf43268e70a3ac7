//! Places for buffers, of which some may share bytes and some may not: so that as few bytes as possible are needed.
//!
//! Buffers are placed one after the other, each at the lowest place where it meets none of those before it that it must be apart from. Some order
//! gives the fewest bytes there are: that of the starts in an optimal placement, since nobody then comes to lie higher than there. So the
//! search is one for an order: a few good ones first (largest first, most constrained first), these with the item moved ahead that ends last, then all, depth first, where a part that is
//! no better than what is known already is left; it ends at a bound that no placement can undercut, or after [`MOST_STEPS`].
//!
//! ```text
//! sizes 4, 3, 2; the first apart from both others, these not from each other
//! largest first: 0..4, 4..7, 4..6: seven, and no fewer since 4 and 3 are apart
//! ```

use tessera_ir::bug;

/// Moves of one item that are tried with each good order.
const MOST_MOVES: u32 = 60;

/// What is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its bytes.
    pub bytes: u64,
    /// What its place is a multiple of, a power of two.
    pub align: u64,
}

/// Places, and what they reach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Where each item starts.
    pub offsets: Vec<u64>,
    /// The end of the last byte.
    pub bytes: u64,
}

/// Placements tried after the good ones.
const MOST_STEPS: u32 = 2_000;

/// Places items so that those that are apart share no byte.
pub fn pack(items: &[Item], apart: impl Fn(usize, usize) -> bool) -> Packed {
    let neighbours: Vec<Vec<usize>> =
        (0..items.len()).map(|item| (0..items.len()).filter(|&other| other != item && apart(item, other)).collect()).collect();
    let mut search =
        Search { items, neighbours, steps: MOST_STEPS, least: 0, best: Packed { offsets: Vec::new(), bytes: u64::MAX } };
    search.least = search.bound();
    let around = |item: &usize| search.neighbours[*item].iter().map(|&other| items[other].bytes).sum::<u64>();
    let mut orders: [Vec<usize>; 3] = std::array::from_fn(|_| (0..items.len()).collect());
    orders[1].sort_by_key(|&item| std::cmp::Reverse((items[item].bytes, items[item].align)));
    orders[2].sort_by_key(|item| std::cmp::Reverse(items[*item].bytes + around(item)));
    for order in &orders {
        search.try_order(order);
    }
    for order in orders {
        search.improve(order);
    }
    let mut by_size: Vec<usize> = (0..items.len()).collect();
    by_size.sort_by_key(|&item| std::cmp::Reverse(items[item].bytes));
    search.deepen(&by_size, &mut vec![None; items.len()], 0);
    search.best
}

/// Items that are all apart from each other, of as many bytes as are found by adding one by one, the largest first, to each.
pub fn heaviest(count: usize, bytes: impl Fn(usize) -> u64, apart: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..count).collect();
    by_size.sort_by_key(|&item| std::cmp::Reverse(bytes(item)));
    let around = |&first: &usize| {
        let mut all = vec![first];
        for &other in &by_size {
            if other != first && all.iter().all(|&member| apart(member, other)) {
                all.push(other);
            }
        }
        all
    };
    let candidates = by_size.iter().map(around);
    candidates.max_by_key(|all| all.iter().map(|&item| bytes(item)).sum::<u64>()).unwrap_or_default()
}

struct Search<'i> {
    items: &'i [Item],
    neighbours: Vec<Vec<usize>>,
    steps: u32,
    /// No placement takes fewer bytes.
    least: u64,
    best: Packed,
}

impl Search<'_> {
    /// Bytes of items that are all apart from each other.
    fn bound(&self) -> u64 {
        let bytes = |item: usize| self.items[item].bytes;
        heaviest(self.items.len(), bytes, |a, b| self.neighbours[a].contains(&b)).into_iter().map(bytes).sum()
    }

    /// The lowest place of an item among those that have one.
    fn lowest(&self, item: usize, offsets: &[Option<u64>]) -> u64 {
        let Item { bytes, align } = self.items[item];
        let mut taken: Vec<(u64, u64)> = self.neighbours[item]
            .iter()
            .filter_map(|&other| offsets[other].map(|start| (start, start + self.items[other].bytes)))
            .collect();
        taken.sort_unstable();
        let mut place = 0u64;
        for (start, end) in taken {
            if place + bytes <= start {
                break;
            }
            place = place.max(end).next_multiple_of(align);
        }
        place
    }

    /// Places items in an order; the number of the one that ends last, and where it does.
    fn try_order(&mut self, order: &[usize]) -> (usize, u64) {
        let mut offsets = vec![None; self.items.len()];
        for &item in order {
            offsets[item] = Some(self.lowest(item, &offsets));
        }
        self.offer(&offsets)
    }

    /// Takes a placement of all items where it is better than the best.
    fn offer(&mut self, offsets: &[Option<u64>]) -> (usize, u64) {
        let place = |offset: &Option<u64>| offset.unwrap_or_else(|| bug!("a buffer without a place"));
        let ends = offsets.iter().zip(self.items).map(|(offset, item)| place(offset) + item.bytes);
        let (last, bytes) = ends.enumerate().max_by_key(|(_, end)| *end).unwrap_or((0, 0));
        if bytes < self.best.bytes {
            self.best = Packed { offsets: offsets.iter().map(place).collect(), bytes };
        }
        (last, bytes)
    }

    /// Moves the item that ends last further to the front, as long as that is no loss: halfway, or before all others.
    fn improve(&mut self, mut order: Vec<usize>) {
        let (mut last, mut bytes) = self.try_order(&order);
        for round in 0..MOST_MOVES {
            if self.best.bytes <= self.least {
                return;
            }
            let from = order.iter().position(|&item| item == last);
            let from = from.unwrap_or_else(|| bug!("an order without one of its buffers"));
            let to = if round % 2 == 0 { from / 2 } else { 0 };
            let mut moved = order.clone();
            moved.remove(from);
            moved.insert(to, last);
            let found = self.try_order(&moved);
            if found.1 <= bytes || round % 4 == 3 {
                order = moved;
                (last, bytes) = found;
            }
        }
    }

    /// Tries the items without a place in every order. Nobody is placed below the last one: in order of their starts is enough.
    fn deepen(&mut self, order: &[usize], offsets: &mut Vec<Option<u64>>, from: u64) {
        let mut all = true;
        for &item in order {
            if offsets[item].is_some() {
                continue;
            }
            all = false;
            if self.best.bytes <= self.least || self.steps == 0 {
                return;
            }
            self.steps -= 1;
            let place = self.lowest(item, offsets);
            if place < from || place + self.items[item].bytes >= self.best.bytes {
                continue;
            }
            offsets[item] = Some(place);
            self.deepen(order, offsets, place);
            offsets[item] = None;
        }
        if all {
            self.offer(offsets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, pack};

    /// Numbers that look random, the same every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn instance(numbers: &mut Numbers, count: usize, density: u64) -> (Vec<Item>, Vec<Vec<bool>>) {
        let items = (0..count).map(|_| Item { bytes: 1 + numbers.below(9), align: 1 << numbers.below(3) }).collect();
        let mut apart = vec![vec![false; count]; count];
        for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let is_apart = numbers.below(100) < density;
            (apart[a][b], apart[b][a]) = (is_apart, is_apart);
        }
        (items, apart)
    }

    fn meets(items: &[Item], apart: &[Vec<bool>], offsets: &[u64], a: usize, b: usize) -> bool {
        apart[a][b] && offsets[a] < offsets[b] + items[b].bytes && offsets[b] < offsets[a] + items[a].bytes
    }

    /// Whether the items fit into so many bytes, by trying every place of every item.
    fn fits(items: &[Item], apart: &[Vec<bool>], bytes: u64, offsets: &mut Vec<u64>) -> bool {
        let next = offsets.len();
        if next == items.len() {
            return true;
        }
        for place in (0..=bytes.saturating_sub(items[next].bytes)).step_by(items[next].align as usize) {
            if place + items[next].bytes > bytes {
                break;
            }
            offsets.push(place);
            let right = (0..next).all(|other| !meets(items, apart, offsets, other, next));
            if right && fits(items, apart, bytes, offsets) {
                return true;
            }
            offsets.pop();
        }
        false
    }

    #[test]
    fn small_instances_are_packed_as_tightly_as_possible() {
        let mut numbers = Numbers(7);
        for round in 0..300 {
            let (items, apart) = instance(&mut numbers, 2 + round % 5, 20 + 20 * (round as u64 % 4));
            let packed = pack(&items, |a, b| apart[a][b]);
            let least = (1..).find(|&bytes| fits(&items, &apart, bytes, &mut Vec::new()));
            assert_eq!(Some(packed.bytes), least, "{items:?} {apart:?}");
        }
    }

    #[test]
    fn items_that_are_apart_share_no_byte_and_are_aligned() {
        let mut numbers = Numbers(11);
        for round in 0..60 {
            let (items, apart) = instance(&mut numbers, 5 + round, 10 + 15 * (round as u64 % 6));
            let packed = pack(&items, |a, b| apart[a][b]);
            for a in 0..items.len() {
                assert_eq!(packed.offsets[a] % items[a].align, 0);
                assert!(packed.offsets[a] + items[a].bytes <= packed.bytes);
                assert!((0..a).all(|b| !meets(&items, &apart, &packed.offsets, a, b)));
            }
        }
    }

    /// Lifetimes of straight code: the bytes occupied at the fullest point bound every packing from below.
    #[test]
    fn intervals_are_packed_within_a_twentieth_of_the_peak() {
        let mut numbers = Numbers(5);
        for _ in 0..100 {
            let count = 8 + numbers.below(16) as usize;
            let items: Vec<Item> = (0..count).map(|_| Item { bytes: 1024 << numbers.below(4), align: 1024 }).collect();
            let spans: Vec<(u64, u64)> = (0..count)
                .map(|_| {
                    let start = numbers.below(40);
                    (start, start + 1 + numbers.below(12))
                })
                .collect();
            let packed = pack(&items, |a, b| spans[a].0 < spans[b].1 && spans[b].0 < spans[a].1);
            let at = |point: u64| {
                (0..count).filter(|&i| spans[i].0 <= point && point < spans[i].1).map(|i| items[i].bytes).sum::<u64>()
            };
            let peak = (0..60).map(at).max().unwrap_or(0);
            assert!(packed.bytes <= peak + peak / 20, "{} for a peak of {peak}: {items:?} {spans:?}", packed.bytes);
        }
    }
}
