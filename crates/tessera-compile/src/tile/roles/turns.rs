//! Teams that compute a block's tiles in turn: one stores its tile while the next one multiplies.
//!
//! ```text
//! tile      0           1           2           3
//! team 0    multiply    store       multiply    store
//! team 1                multiply    store       multiply
//! ```
//!
//! The copying partition brings the rounds of all tiles in order. A team goes through its own tiles: its cursors begin behind the tiles before its
//! first one, and skip those of the other teams behind each of its own.
//!
//! A slot's barrier tells odd fillings from even ones, no more: a team that waited for a filling while the one before it was still to come would go
//! on at once. So each waits for its turn, until the team before it has seen all slots of its tile full. Turns go from team to team through rings
//! whose slots hold nothing.
//!
//! ```text
//! for tiles { tile.acquire %turn; the rounds; tile.commit %turn; store }     for the other tiles { tile.wait %turn; the rounds; tile.release %turn; store }
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Builder, Def, Func, Op, OpKind, Plan, Reason, ScheduleOp, TileOp, Type, Value, bug};
use tessera_types::DType;

use super::feeder::Rings;
use super::known::is_counted;
use super::supply::{Job, Supply};
use crate::rewrite::copy;
use crate::tile::numbers::Numbers;
use crate::tile::queue::{Queue, range};

/// Whether teams can take turns in a program as a plan has it.
///
/// # Errors
/// Why they cannot.
pub(in crate::tile) fn check(plan: &Plan) -> Result<(), Reason> {
    for (place, partition) in plan.partitions.iter().enumerate() {
        let Some(turns) = partition.turns else { continue };
        let no = |text: String| Err(Reason::at(text, partition.span));
        if turns < 2 {
            return no(format!("two teams or more take tiles in turn, not {turns}"));
        }
        if place == 0 {
            return no(format!("partition `{}` takes no tiles in turn: the one that computes does", partition.name));
        }
        if plan.persistent.is_none() {
            return no("a block with one tile has no turns: `turns` needs `persistent`".to_string());
        }
        if plan.stream_k.is_some() {
            return no("blocks that share rounds take parts of tiles, and teams whole ones".to_string());
        }
    }
    Ok(())
}

/// The loop over tiles, and how often each of them fills the rings.
pub(super) struct Turns {
    teams: u32,
    tiles: Op,
    /// The loops around each place that fills a ring, by ring.
    fills: Vec<Vec<Vec<Op>>>,
}

impl Turns {
    /// The turns that the computing partition takes, where it does.
    ///
    /// # Errors
    /// How often a tile fills a ring is not known before, or threads fill it.
    pub(super) fn of(func: &Func, supply: &Supply, plan: &Plan) -> Result<Option<Turns>, Reason> {
        let teams = supply.compute.teams();
        if teams == 1 {
            return Ok(None);
        }
        let holds = |op: &Op| !func.ops[*op].regions.is_empty();
        let tiles: Vec<Op> = func.blocks[func.body].ops.iter().copied().filter(holds).collect();
        let [tiles] = tiles[..] else { bug!("a loop over blocks, and nothing beside it") };
        let mut fills = vec![Vec::new(); supply.rings.len()];
        for site in &supply.sites {
            if supply.rings[site.ring].job != Job::Direct {
                return Err(Reason::at(
                    "threads fill a ring for one team, and not for several in turn",
                    plan.rings[site.ring].span,
                ));
            }
            let mut loops = supply.places.loops(func, site.block)?;
            loops.retain(|&looped| looped != tiles);
            if let Some((text, looped)) = loops.iter().find_map(|&looped| Some((unknown(func, supply, looped)?, looped))) {
                return Err(Reason::at(text, func.ops[looped].span));
            }
            fills[site.ring].push(loops);
        }
        Ok(Some(Turns { teams, tiles, fills }))
    }

    /// What each team does, made of what one does for all tiles. What all of them need goes to `shared`.
    pub(super) fn take(&self, func: &mut Func, rings: &Rings, ops: &[Op], shared: &mut Vec<Op>) -> Vec<Vec<Op>> {
        let turns = Handed::new(func, self.teams, self.tiles, shared);
        let copies: Vec<Vec<Op>> = (0..self.teams)
            .map(|team| {
                let mut own = Vec::new();
                match team {
                    0 => own.extend(ops),
                    _ => copy(func, ops, &mut FxHashMap::default(), &mut own),
                }
                own
            })
            .collect();
        (0..)
            .zip(copies)
            .map(|(team, mut own)| {
                let Some(tiles) = own.pop().filter(|_| own.is_empty()) else { bug!("a team does more than go through tiles") };
                let (mut ops, slots) = self.own_tiles(func, team, tiles);
                skip(func, rings, tiles, &slots, &mut ops);
                turns.wait_and_hand_on(func, team, tiles);
                ops.push(tiles);
                ops
            })
            .collect()
    }

    /// Has a loop go through a team's own tiles. The arithmetic that comes before it, and of each ring how many slots lie before the team's first
    /// tile, and between two of its tiles. Each team computes them for itself: what two roles know takes a register in all of them.
    fn own_tiles(&self, func: &mut Func, team: u32, tiles: Op) -> (Vec<Op>, Vec<[Value; 2]>) {
        let before = func.new_block();
        let mut b = Builder { block: before, span: func.ops[tiles].span, func };
        let [first, end, step] = range(b.func, tiles);
        let [ahead, others, teams] = [team, self.teams - 1, self.teams].map(|number| b.number(i64::from(number)));
        let start = b.times(step, ahead);
        let (start, stride) = (b.plus(first, start), b.times(step, teams));
        let slots = self
            .fills
            .iter()
            .map(|sites| {
                let slots = filled(&mut b, sites);
                [b.times(slots, ahead), b.times(slots, others)]
            })
            .collect();
        let groups = [start, end, stride];
        func.ops[tiles].operands[..groups.len()].copy_from_slice(&groups);
        (std::mem::take(&mut func.blocks[before].ops), slots)
    }
}

/// Why it is not known before all tiles how many rounds a loop has, where it is not.
fn unknown(func: &Func, supply: &Supply, looped: Op) -> Option<&'static str> {
    let before = |value: &Value| match func.values[*value].def {
        Def::Result(op, _) => supply.places.block(op) == Some(func.body),
        Def::Argument(block, _) => block == func.body,
    };
    if !is_counted(func, looped) {
        return Some("how often a tile fills a ring is not known before: the loop does not count");
    }
    if !range(func, looped).iter().all(before) {
        return Some("tiles that are taken in turn have as many rounds, and the loop's range differs from tile to tile");
    }
    let signed = matches!(func.ops[looped].kind, OpKind::Schedule(ScheduleOp::For { unsigned: false, .. }));
    let counts = signed && *func.ty(func.ops[looped].one(0)) == Type::scalar(DType::I32);
    (!counts).then_some("rounds that are skipped are counted in signed numbers of 32 bits")
}

/// How often a tile fills a ring, at places in such loops.
fn filled(b: &mut Builder<'_>, sites: &[Vec<Op>]) -> Value {
    let mut all = b.number(0);
    for loops in sites {
        let mut times = b.number(1);
        for &looped in loops {
            let [lower, upper, step] = range(b.func, looped);
            let zero = b.number(0);
            let span = b.minus(upper, lower);
            let span = b.most(span, zero);
            let rounds = b.over_up(span, step);
            times = b.times(times, rounds);
        }
        all = b.plus(all, times);
    }
    all
}

/// Has the cursors that a team carries through its tiles begin behind the slots of the tiles before its first one, and skip those of other teams.
fn skip(func: &mut Func, rings: &Rings, tiles: Op, slots: &[[Value; 2]], out: &mut Vec<Op>) {
    let body = func.ops[tiles].regions[0];
    let Some(last) = func.blocks[body].ops.pop() else { bug!("a loop's body without an end") };
    for (queue, &[before, between]) in rings.queues.iter().zip(slots) {
        let Some(queue) = queue else { bug!("what is kept is computed for each tile") };
        let start = queue.start;
        let Some(position) = func.ops[tiles].group(3).iter().position(|&other| other == start) else {
            bug!("a ring that a team does not go through")
        };
        let first = queue.skip(func, (start, before), out);
        let next = func.ops[last].group(0)[position];
        let mut inside = Vec::new();
        let next = queue.skip(func, (next, between), &mut inside);
        func.blocks[body].ops.extend(inside);
        // A loop's range comes before what it carries.
        func.ops[tiles].operands[3 + position] = first;
        func.ops[last].operands[position] = next;
    }
    func.blocks[body].ops.push(last);
}

/// Rings through which teams hand their turns on, with the team that fills each one and the team that empties it.
struct Handed {
    rings: Vec<(Queue, [u32; 2])>,
}

impl Handed {
    /// From each team to the next, and from the last one back to the first: which waits until what it gave is given back, as the ring between
    /// two teams does by itself.
    fn new(func: &mut Func, teams: u32, tiles: Op, shared: &mut Vec<Op>) -> Handed {
        let span = func.ops[tiles].span;
        let back = (teams > 2).then_some([0, teams - 1]);
        let pairs = (1..teams).map(|team| [team - 1, team]).chain(back);
        Handed {
            rings: pairs.map(|pair| (Queue::new(func, &[], (1, RingProducer::Threads, None), span, shared), pair)).collect(),
        }
    }

    /// A team waits for its turn before the first slot of a tile that it waits for, and hands it on behind the last one.
    fn wait_and_hand_on(&self, func: &mut Func, team: u32, tiles: Op) {
        let own: Vec<(&Queue, bool)> = self
            .rings
            .iter()
            .filter_map(|(queue, [gives, takes])| (team == *gives || team == *takes).then_some((queue, team == *gives)))
            .collect();
        let cursors: Vec<Value> = own.iter().map(|(queue, _)| func.carry(tiles, queue.start)).collect();
        let body = func.ops[tiles].regions[0];
        let ops = func.blocks[body].ops.clone();
        let waits = |op: &Op| waits(func, *op);
        let (Some(first), Some(last)) = (ops.iter().position(waits), ops.iter().rposition(waits)) else {
            bug!("a team that reads no slot");
        };
        let (mut waited, mut handed, mut next) = (Vec::new(), Vec::new(), Vec::new());
        for (&(queue, gives), &cursor) in own.iter().zip(&cursors) {
            let [before, behind] =
                if gives { [TileOp::Acquire {}, TileOp::Commit { bytes: None }] } else { [TileOp::Wait {}, TileOp::Release {}] };
            queue.at(func, before, cursor, &mut waited);
            queue.at(func, behind, cursor, &mut handed);
            next.push(queue.next(func, cursor, &mut handed));
        }
        let Some(&end) = ops.last() else { bug!("a loop's body without an end") };
        func.append_operands(end, &next);
        func.blocks[body].ops = [&ops[..first], &waited, &ops[first..=last], &handed, &ops[last + 1..]].concat();
    }
}

/// An operation waits for a slot, or one that it holds does.
fn waits(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let inside = |region: &Block| func.blocks[*region].ops.iter().any(|&op| waits(func, op));
    matches!(data.kind, OpKind::Tile(TileOp::Wait {})) || data.regions.iter().any(inside)
}
