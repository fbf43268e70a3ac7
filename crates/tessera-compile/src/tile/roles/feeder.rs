//! What the copying partition does: the program again with nothing but the copies, and the scalars that say where from.
//!
//! ```text
//! for %t in (%bid, %total, %blocks) iter(%cursor) { %i = ... %t ...; for %k iter { acquire; tma_load %view[%i, %k]; commit; advance } }
//! ```
//!
//! Every loop that holds a site is repeated, with the carried scalars that are needed and the cursors of the rings inside, so that slots go on
//! in order from one tile to the next. Loops in which threads make factors are [`makers`](super::makers)'.

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value, bug};

use super::known::{is_counted, is_test, starts};
use super::makers::Maker;
use super::supply::{Job, Site, Supply};
use crate::tile::cluster::Together;
use crate::tile::queue::{Queue, copied, mapped, over, range};

/// What stands for values of the original function.
pub(super) type Names = FxHashMap<Value, Value>;

/// A plan's rings as operations.
pub(super) struct Rings {
    /// By the plan's number; none for what the computing partition keeps.
    pub(super) queues: Vec<Option<Queue>>,
    /// Which cursor goes through each ring: rings that are filled together share one.
    pub(super) cursors: Vec<usize>,
    /// The cursors before the first slots.
    pub(super) starts: Vec<Value>,
    /// What blocks of a cluster load together.
    pub(super) together: Option<Together>,
}

impl Rings {
    /// The ring that a site fills.
    pub(super) fn queue(&self, site: &Site) -> &Queue {
        self.queues[site.ring].as_ref().unwrap_or_else(|| bug!("a site that fills what is kept"))
    }

    /// A slot filled with what loads load; the cursor behind it.
    pub(super) fn fill(
        &self,
        func: &mut Func,
        queue: &Queue,
        loads: &[Op],
        (names, cursor): (&Names, Value),
        out: &mut Vec<Op>,
    ) -> Value {
        queue.at(func, TileOp::Acquire {}, cursor, out);
        for (position, &load) in loads.iter().enumerate() {
            let data = func.ops[load].clone();
            let (view, index) = (mapped(names, data.group(0))[0], mapped(names, data.group(1)));
            let blocks = self.together.as_ref().and_then(|together| together.of(load));
            queue.load(func, (view, &index, data.span), (cursor, position, blocks), out);
        }
        queue.at(func, TileOp::Commit { bytes: queue.part(loads.len()) }, cursor, out);
        queue.next(func, cursor, out)
    }
}

/// The copying partition.
pub(super) struct Feeder<'a> {
    pub(super) supply: &'a Supply,
    pub(super) rings: &'a Rings,
    /// Buffers for factors before they are turned, by site.
    pub(super) before_turn: &'a FxHashMap<usize, Vec<Value>>,
    /// The barrier at which threads that make factors meet.
    pub(super) barrier: u32,
}

impl Feeder<'_> {
    /// The partition's operations.
    pub(super) fn work(&self, func: &mut Func) -> Vec<Op> {
        let mut cursors = self.rings.starts.clone();
        self.body(func, func.body, Names::default(), &mut cursors).0
    }

    /// The cursors that go through rings with sites in the regions of an operation.
    fn inside(&self, op: Op) -> Vec<usize> {
        let supply = self.supply;
        let holds = |site: &&Site| {
            let mut block = site.block;
            while let Some(holder) = supply.places.holder(block) {
                match supply.places.block(holder) {
                    _ if holder == op => return true,
                    Some(next) => block = next,
                    None => return false,
                }
            }
            false
        };
        let mut found: Vec<usize> = supply.sites.iter().filter(holds).map(|site| self.rings.cursors[site.ring]).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Fills a slot with what a site's loads load.
    fn fill(&self, func: &mut Func, site: &Site, (names, cursors): (&Names, &mut [Value]), out: &mut Vec<Op>) {
        let at = self.rings.cursors[site.ring];
        cursors[at] = self.rings.fill(func, self.rings.queue(site), &site.loads, (names, cursors[at]), out);
    }

    /// A loop again; `inside` are the cursors of the rings in it.
    fn looped(&self, func: &mut Func, op: Op, (names, inside): (&Names, &[usize]), cursors: &mut [Value], out: &mut Vec<Op>) {
        let body = func.ops[op].regions[0];
        let made = self.supply.made_at(body);
        let own: Vec<Value> = inside.iter().map(|&cursor| cursors[cursor]).collect();
        if let Some(made) = made {
            for (cursor, value) in self.maker(made, body).work(func, op, names, cursors, out) {
                cursors[cursor] = value;
            }
            return;
        }
        let positions: Vec<usize> =
            self.supply.needed.carried.get(&op).map_or_else(Vec::new, |found| found.iter().copied().collect());
        let init: Vec<Value> = positions.iter().map(|&at| starts(func, op)[at]).collect();
        let init = [&mapped(names, &init)[..], &own].concat();
        let first = usize::from(is_counted(func, op));
        let args = func.blocks[body].args.clone();
        let again = |func: &mut Func, names: Names, carried: &[Value]| {
            let mut names = names;
            names.extend(positions.iter().zip(carried).map(|(&at, &value)| (args[at + first], value)));
            let mut all = cursors.to_vec();
            for (&cursor, &value) in inside.iter().zip(&carried[positions.len()..]) {
                all[cursor] = value;
            }
            let (ops, names) = self.body(func, body, names, &mut all);
            let last = func.blocks[body].ops.last().copied();
            let handed = last.map_or_else(Vec::new, |last| func.ops[last].group(0).to_vec());
            let mut next = mapped(&names, &positions.iter().map(|&at| handed[at]).collect::<Vec<_>>());
            next.extend(inside.iter().map(|&cursor| all[cursor]));
            (ops, next)
        };
        let made = if is_counted(func, op) {
            let rounds = range(func, op).map(|value| names.get(&value).copied().unwrap_or(value));
            over(func, op, rounds, &init, |func, counter, carried| {
                let mut names = names.clone();
                names.insert(args[0], counter);
                again(func, names, carried)
            })
        } else {
            let data = func.ops[op].clone();
            let block = func.new_block();
            let types: Vec<Type> = init.iter().map(|&value| func.ty(value).clone()).collect();
            let carried: Vec<Value> = types.into_iter().map(|ty| func.add_arg(block, ty, None)).collect();
            let (mut ops, next) = again(func, names.clone(), &carried);
            ops.push(func.make_op(ScheduleOp::Continue {}.into(), &[&next], [], [], data.span));
            func.blocks[block].ops = ops;
            func.make_op(data.kind, &[&init], [], [block], data.span)
        };
        out.push(made);
        let results = func.ops[made].results.clone();
        if results.len() == init.len() {
            for (&cursor, &value) in inside.iter().zip(&results[positions.len()..]) {
                cursors[cursor] = value;
            }
        }
    }

    /// The operations of a block, and what stands for its values. Scalars of the function's own body stand before all partitions.
    fn body(&self, func: &mut Func, block: Block, names: Names, cursors: &mut [Value]) -> (Vec<Op>, Names) {
        let mut names = names;
        let mut out = Vec::new();
        for op in func.blocks[block].ops.clone() {
            if block != func.body && self.supply.needed.ops.contains(&op) {
                let copy = copied(func, op, &mut names);
                out.push(copy);
            } else if is_test(func, op) {
                let copy = left_alone(func, op, &names);
                out.push(copy);
            } else if !func.ops[op].regions.is_empty() {
                let inside = self.inside(op);
                if !inside.is_empty() {
                    self.looped(func, op, (&names, &inside), cursors, &mut out);
                }
            }
            for site in self.supply.sites.iter().filter(|site| site.block == block) {
                if last_load(func, site) == Some(op) {
                    self.fill(func, site, (&names, cursors), &mut out);
                }
            }
        }
        (out, names)
    }

    /// Those who make the factors of a site.
    fn maker(&self, made: usize, body: Block) -> Maker<'_> {
        let fed = |site: usize| {
            let site = &self.supply.sites[site];
            (self.rings.queue(site), site, self.rings.cursors[site.ring])
        };
        let site = |job: Job| self.supply.site_at(body, job).map(fed);
        Maker {
            supply: self.supply,
            rings: self.rings,
            made: fed(made),
            direct: site(Job::Direct),
            raw: site(Job::Raw),
            before_turn: self.before_turn.get(&made).map_or(&[], Vec::as_slice),
            barrier: self.barrier,
        }
    }
}

/// The load of a site behind which all of them can be done.
fn last_load(func: &Func, site: &Site) -> Option<Op> {
    func.blocks[site.block].ops.iter().rev().find(|op| site.loads.contains(op)).copied()
}

/// A test that leaves the loop, with no results.
fn left_alone(func: &mut Func, op: Op, names: &Names) -> Op {
    let data = func.ops[op].clone();
    let mut regions = Vec::new();
    for &region in &data.regions {
        let block = func.new_block();
        let kinds: Vec<OpKind> = func.blocks[region].ops.iter().map(|&inner| func.ops[inner].kind.clone()).collect();
        for kind in kinds {
            let ends = func.make_op(kind, &[&[]], [], [], data.span);
            func.blocks[block].ops.push(ends);
        }
        regions.push(block);
    }
    let condition = mapped(names, data.group(0));
    func.make_op(data.kind, &[&condition], [], regions, data.span)
}
