//! Parallel copies one after the other.
//!
//! All sources are read before any destination is written. A destination that nobody still reads is written first; when only
//! cycles are left, one register is saved in a spare and the cycle opened.

/// Orders copies `(to, from)` between registers. `spare` gives a register that may hold what `to` holds.
pub(crate) fn sequence<R: Copy + Eq>(copies: &[(R, R)], mut spare: impl FnMut(R) -> R) -> Vec<(R, R)> {
    let mut waiting: Vec<(R, R)> = copies.iter().copied().filter(|(to, from)| to != from).collect();
    let mut done = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let free = waiting.iter().position(|&(to, _)| waiting.iter().all(|&(_, from)| from != to));
        match free {
            Some(index) => done.push(waiting.remove(index)),
            None => {
                let (to, _) = waiting[0];
                let saved = spare(to);
                done.push((saved, to));
                for (_, from) in &mut waiting {
                    if *from == to {
                        *from = saved;
                    }
                }
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(copies: &[(u32, u32)]) -> (Vec<(u32, u32)>, Vec<u32>) {
        let mut next = 100;
        let order = sequence(copies, |_| {
            next += 1;
            next
        });
        let mut registers: Vec<u32> = (0..200).collect();
        for &(to, from) in &order {
            registers[to as usize] = registers[from as usize];
        }
        (order, registers)
    }

    #[test]
    fn chains_need_no_spare_and_cycles_one() {
        let (order, _) = run(&[(1, 0), (2, 1), (3, 2), (4, 4)]);
        assert_eq!(order, [(3, 2), (2, 1), (1, 0)]);
        let (order, registers) = run(&[(0, 1), (1, 2), (2, 0), (5, 0)]);
        assert_eq!(order.len(), 5);
        assert_eq!((registers[0], registers[1], registers[2], registers[5]), (1, 2, 0, 0));
    }

    #[test]
    fn every_permutation_of_five_arrives() {
        for code in 0..5u32.pow(5) {
            let copies: Vec<(u32, u32)> = (0..5).map(|to| (to, code / 5u32.pow(to) % 5)).collect();
            let (_, registers) = run(&copies);
            copies.iter().for_each(|&(to, from)| assert_eq!(registers[to as usize], from, "{copies:?}"));
        }
    }
}
