//! Which loops are unrolled, and how far: by how many rounds they have and how much a round becomes.
//!
//! A loop of at most [`WHOLE`] rounds is written out whole where that makes no more than [`MOST`] elements' work
//! ([`MOST_OF_TILES`] where tiles are held, whose registers all copies may want at once); one of more rounds by the largest power of
//! two up to 4 that divides them. Loops whose rounds are not known, that hold others, or whose threads meet or wait in them stay
//! as they are.

use tessera_ir::{Func, Op, OpKind, ScheduleOp, TileOp, Trait};

/// The most rounds of a loop that is written out whole.
const WHOLE: u64 = 8;

/// The most elements' operations of a thread that copies of a body become.
const MOST: u64 = 128;
const MOST_OF_TILES: u64 = 32;

/// Loops with the copies that each becomes.
pub(super) fn unrolled(func: &Func) -> Vec<(Op, u32)> {
    func.linked_ops().into_iter().filter_map(|op| Some((op, copies(func, op)?))).collect()
}

fn copies(func: &Func, op: Op) -> Option<u32> {
    let data = &func.ops[op];
    let OpKind::Schedule(ScheduleOp::For { unroll: None, .. }) = data.kind else { return None };
    let rounds = func.known_rounds(data).filter(|&rounds| rounds > 1)?;
    let work = work(func, data.regions[0])?.max(1);
    let most = if holds_tiles(func, data.regions[0]) { MOST_OF_TILES } else { MOST };
    let whole = (rounds <= WHOLE && rounds * work <= most).then_some(rounds);
    let parts = || [4, 2].into_iter().find(|&parts| rounds.is_multiple_of(parts) && parts * work <= most);
    whole.or_else(parts).and_then(|copies| u32::try_from(copies).ok())
}

fn holds_tiles(func: &Func, block: tessera_ir::Block) -> bool {
    func.blocks[block].ops.iter().any(|&op| {
        let data = &func.ops[op];
        data.results.iter().any(|&value| func.ty(value).layout().is_some())
            || data.regions.iter().any(|&region| holds_tiles(func, region))
    })
}

/// Operations on elements that a thread does in a round; `None` where the loop is not to be unrolled.
fn work(func: &Func, block: tessera_ir::Block) -> Option<u64> {
    let mut sum = 0;
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        let waits = data.row().has(Trait::Together)
            || matches!(
                data.kind,
                OpKind::Tile(
                    TileOp::CommitGroup {}
                        | TileOp::WaitGroup { .. }
                        | TileOp::NamedBarrier { .. }
                        | TileOp::NamedArrive { .. }
                        | TileOp::GroupTurn { .. }
                ) | OpKind::Schedule(
                    ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled {} | ScheduleOp::MmaFSparse {},
                )
            );
        let nested = matches!(
            data.kind,
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) | OpKind::Tile(TileOp::Role { .. })
        );
        let reduces = matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
        if waits || nested || reduces {
            return None;
        }
        let held = data
            .results
            .iter()
            .chain(&data.operands)
            .map(|&value| func.ty(value).layout().map_or(1, |layout| layout.registers()));
        sum += held.max().unwrap_or(0);
        for &region in &data.regions {
            sum += work(func, region)?;
        }
    }
    Some(sum)
}
