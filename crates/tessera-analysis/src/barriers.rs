//! Named barriers: a block has a few ("bar", PTX ISA), which threads name by their numbers.
//!
//! Number 0 is the block's own. The others are handed out here and nowhere else, each once: a role takes the first one that is left when it is
//! lowered, an operation that a pass inserts takes the last one. What a function's operations name is taken.

use tessera_ir::{Func, OpKind, TileOp};
use tessera_types::Arch;

/// The named barriers that a function leaves.
#[derive(Clone, Debug)]
pub struct NamedBarriers(Vec<u32>);

impl NamedBarriers {
    /// Those that a function leaves: it names some itself, and a block has so many on an architecture.
    pub fn left_by(func: &Func, arch: Arch) -> NamedBarriers {
        let mut left: Vec<u32> = (1..arch.limits().barriers_per_block).collect();
        for op in func.linked_ops() {
            let taken = match func.ops[op].kind {
                OpKind::Tile(TileOp::NamedBarrier { id, .. } | TileOp::NamedArrive { id, .. }) => id..id + 1,
                OpKind::Tile(TileOp::GroupTurn { id, groups, .. }) => id..id + groups,
                _ => continue,
            };
            left.retain(|other| !taken.contains(other));
        }
        NamedBarriers(left)
    }

    /// For a role; none where all are taken.
    pub fn first(&mut self) -> Option<u32> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// As many in a row for an operation, by the first one; none where no row is left.
    pub fn last_row(&mut self, number: u32) -> Option<u32> {
        let first = self.0.iter().copied().rev().find(|first| (*first..first + number).all(|id| self.0.contains(&id)))?;
        self.0.retain(|id| !(first..first + number).contains(id));
        Some(first)
    }

    /// For an operation; none where all are taken.
    pub fn last(&mut self) -> Option<u32> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use tessera_ir::text::parse_module;

    use super::*;

    #[test]
    fn what_operations_name_is_taken() {
        let text = "
            tile @k() abi() hints(num_warps=2) {
              tile.named_barrier {id=1, threads=64}
              tile.named_arrive {id=15, threads=64}
              return
            }";
        let module = parse_module("k.tir", text).expect("a module");
        let func = &module.funcs[0];
        let mut barriers = NamedBarriers::left_by(func, Arch::Sm90a);
        assert_eq!([barriers.first(), barriers.last(), barriers.first()], [Some(2), Some(14), Some(3)]);
        assert_eq!(std::iter::from_fn(|| barriers.first()).count(), 10);
        assert_eq!((barriers.first(), barriers.last()), (None, None));
    }

    #[test]
    fn a_row_is_taken_as_a_whole() {
        let text = "
            tile @k() abi() hints(num_warps=12) {
              tile.role {first_warp=4, warps=8} () {
                tile.group_turn {id=13, groups=2, step=open}
                yield []
              }
              return
            }";
        let module = parse_module("k.tir", text).expect("a module");
        let mut barriers = NamedBarriers::left_by(&module.funcs[0], Arch::Sm90a);
        // 13 and 14 are taken, so 15 is no row.
        assert_eq!([barriers.last_row(2), barriers.last(), barriers.last()], [Some(11), Some(15), Some(10)]);
        assert_eq!([barriers.last_row(9), barriers.last_row(1), barriers.first()], [Some(1), None, None]);
    }
}
