//! What the computing partition does: everything the function did, with slots in place of what rings hold.
//!
//! ```text
//! for %k iter(%cursor) { wait; %acc = mma_shared %a[slot], %b[slot], %acc; release; advance }
//! ```
//!
//! A slot is waited for before the first operation that reads it and released behind the last one, each in the block that fills it; the
//! cursors go through every loop around. A load whose tile others than products use is read from its slot once, where it stood.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Effects, Func, Op, TileOp, Type, Value};
use tessera_types::Arch;

use super::feeder::Rings;
use super::known::{Places, is_counted};
use super::shape::signs;
use super::supply::{Job, Product, Side, Supply};
use crate::tile::feed::Factor;
use crate::tile::feed::is_look;

/// The computing partition.
pub(super) struct Reader<'a> {
    pub(super) supply: &'a Supply,
    pub(super) rings: &'a Rings,
    /// The barrier at which the partition meets.
    pub(super) barrier: u32,
}

/// What is known on the way through the program.
#[derive(Clone, Default)]
struct State {
    /// Where each ring is read next.
    cursors: Vec<Value>,
    /// The buffers of left factors that are kept, by ring.
    kept: FxHashMap<usize, Value>,
    /// Factors in slots that were waited for before the product's loop.
    ready: FxHashMap<(usize, Value), Value>,
}

/// Who reads a site's slots in the site's block.
struct Reads {
    site: usize,
    first: Op,
    last: Op,
    /// Loads whose tiles are read into registers, with their buffers in a slot.
    tiles: Vec<(Op, usize)>,
}

impl Reader<'_> {
    /// Rewrites the function's body; partitions are made of it afterwards.
    pub(super) fn rewrite(&self, func: &mut Func) {
        let reads = self.reads(func);
        let mut state = State { cursors: self.rings.starts.clone(), ..State::default() };
        self.block(func, func.body, &reads, &mut state);
    }

    fn reads(&self, func: &Func) -> Vec<Reads> {
        let supply = self.supply;
        let mut found = Vec::new();
        for (number, site) in supply.sites.iter().enumerate() {
            if !matches!(supply.rings[site.ring].job, Job::Direct | Job::Made) {
                continue;
            }
            let of =
                |product: &&Product| product.sides.iter().any(|side| matches!(side, Side::Slot { site, .. } if *site == number));
            let mut users: Vec<Op> = supply.products.iter().filter(of).map(|product| product.op).collect();
            let loads = site.loads.iter().enumerate().map(|(buffer, &load)| (load, buffer));
            let tiles: Vec<(Op, usize)> = loads.filter(|&(load, _)| needs_tile(func, supply, load)).collect();
            users.extend(tiles.iter().map(|&(load, _)| load));
            let places: Vec<usize> = users.iter().filter_map(|&user| position(func, &supply.places, site.block, user)).collect();
            let (Some(&first), Some(&last)) = (places.iter().min(), places.iter().max()) else { continue };
            let ops = &func.blocks[site.block].ops;
            found.push(Reads { site: number, first: ops[first], last: ops[last], tiles });
        }
        found
    }

    /// Rewrites a block and what it holds; moves the cursors on.
    fn block(&self, func: &mut Func, block: Block, reads: &[Reads], state: &mut State) {
        let supply = self.supply;
        let mut own: Vec<&Reads> = reads.iter().filter(|read| supply.sites[read.site].block == block).collect();
        own.sort_by_key(|read| func.blocks[block].place_of(read.first));
        let mut out: Vec<Op> = Vec::new();
        for op in func.blocks[block].ops.clone() {
            if block == func.body {
                self.keep(func, op, &mut state.kept, &mut out);
            }
            for read in own.iter().filter(|read| read.first == op) {
                self.at(func, read.site, TileOp::Wait {}, &state.cursors, &mut out);
                if !func.ops[op].regions.is_empty() {
                    self.before_loop(func, read.site, state, &mut out);
                }
            }
            for read in &own {
                for &(load, buffer) in read.tiles.iter().filter(|(load, _)| *load == op) {
                    self.read(func, read.site, (load, buffer), &state.cursors, &mut out);
                }
            }
            if matches!(func.ops[op].row().effects, Effects::Terminator) && block != func.body {
                self.advance(func, &own, &mut state.cursors, &mut out);
            }
            if let Some(product) = supply.products.iter().find(|product| product.op == op) {
                self.product(func, product, state, &mut out);
            } else {
                self.inner(func, op, reads, state);
            }
            out.push(op);
            for (number, read) in own.iter().enumerate().filter(|(_, read)| read.last == op) {
                self.at(func, read.site, TileOp::Release {}, &state.cursors, &mut out);
                // The block's next slot of the ring; behind its last one the round ends.
                if own[number + 1..].iter().any(|other| supply.sites[other.site].ring == supply.sites[read.site].ring) {
                    self.advance(func, &own[number..=number], &mut state.cursors, &mut out);
                }
            }
        }
        func.blocks[block].ops = out;
    }

    fn at(&self, func: &mut Func, site: usize, kind: TileOp, cursors: &[Value], out: &mut Vec<Op>) {
        let site = &self.supply.sites[site];
        self.rings.queue(site).at(func, kind, cursors[self.rings.cursors[site.ring]], out);
    }

    /// Reads a load's tile from its slot.
    fn read(&self, func: &mut Func, site: usize, (load, buffer): (Op, usize), cursors: &[Value], out: &mut Vec<Op>) {
        let site = &self.supply.sites[site];
        let slot = self.rings.queue(site).slot(func, cursors[self.rings.cursors[site.ring]], buffer, out);
        let (result, span) = (func.ops[load].results[0], func.ops[load].span);
        let ty = func.ty(result).clone();
        let read = func.make_op(TileOp::LoadShared {}.into(), &[&[slot]], [ty], [], span);
        out.push(read);
        let tile = func.ops[read].result();
        func.replace_uses(|value| if value == result { tile } else { value });
    }

    /// Moves the cursors of a block's sites on by a slot.
    fn advance(&self, func: &mut Func, own: &[&Reads], cursors: &mut [Value], out: &mut Vec<Op>) {
        let mut moved: Vec<usize> = Vec::new();
        for read in own {
            let site = &self.supply.sites[read.site];
            let cursor = self.rings.cursors[site.ring];
            if !moved.contains(&cursor) {
                cursors[cursor] = self.rings.queue(site).next(func, cursors[cursor], out);
                moved.push(cursor);
            }
        }
    }

    /// Rewrites what an operation's regions hold; a loop carries the cursors of the rings inside.
    fn inner(&self, func: &mut Func, op: Op, reads: &[Reads], state: &mut State) {
        for body in func.ops[op].regions.clone() {
            let inside = |read: &&Reads| {
                let mut block = self.supply.sites[read.site].block;
                loop {
                    if block == body {
                        return true;
                    }
                    match self.supply.places.holder(block).and_then(|holder| self.supply.places.block(holder)) {
                        Some(next) => block = next,
                        None => return false,
                    }
                }
            };
            let mut own: Vec<usize> =
                reads.iter().filter(inside).map(|read| self.rings.cursors[self.supply.sites[read.site].ring]).collect();
            own.sort_unstable();
            own.dedup();
            let mut within = state.clone();
            for &cursor in &own {
                within.cursors[cursor] = func.carry(op, state.cursors[cursor]);
            }
            self.block(func, body, reads, &mut within);
            if let (Some(&last), false) = (func.blocks[body].ops.last(), own.is_empty()) {
                let next: Vec<Value> = own.iter().map(|&cursor| within.cursors[cursor]).collect();
                func.append_operands(last, &next);
            }
            if is_counted(func, op) {
                let results = func.ops[op].results.clone();
                let behind = results.len() - own.len();
                for (&cursor, &result) in own.iter().zip(&results[behind..]) {
                    state.cursors[cursor] = result;
                }
            }
        }
    }

    /// Puts a left factor that is kept into its buffer, before the first operation that needs it.
    fn keep(&self, func: &mut Func, op: Op, kept: &mut FxHashMap<usize, Value>, out: &mut Vec<Op>) {
        let supply = self.supply;
        for &(ring, value) in &supply.kept {
            let reads = |product: &&Product| matches!(product.sides[0], Side::Kept { ring: of } if of == ring);
            let needs =
                supply.products.iter().filter(reads).any(|product| supply.places.within(func.body, product.op) == Some(op));
            if kept.contains_key(&ring) || !needs {
                continue;
            }
            let (span, slots) = (supply.at(func), &supply.rings[ring].slots);
            let ty = Type::Shared(Box::new(slots[0].clone()));
            let alloc = func.make_op(TileOp::AllocShared { align: 1024, offset: None }.into(), &[], [ty], [], span);
            let buffer = func.ops[alloc].result();
            let store = func.make_op(TileOp::StoreShared { matrices: false }.into(), &[&[value], &[buffer]], [], [], span);
            let fence = func.make_op(TileOp::FenceAsync {}.into(), &[], [], [], span);
            let kind = TileOp::NamedBarrier { id: self.barrier, threads: Arch::WARP * supply.compute.warps };
            let barrier = func.make_op(kind.into(), &[], [], [], span);
            out.extend([alloc, store, fence, barrier]);
            kept.insert(ring, buffer);
        }
    }

    /// The matrix of a product's factor in its slot.
    fn factor(
        &self,
        func: &mut Func,
        (product, site, buffer, look): (&Product, usize, usize, &Option<Factor>),
        cursors: &[Value],
        out: &mut Vec<Op>,
    ) -> Value {
        let (site, span) = (&self.supply.sites[site], func.ops[product.op].span);
        let slot = self.rings.queue(site).slot(func, cursors[self.rings.cursors[site.ring]], buffer, out);
        look.as_ref().map_or(slot, |look| look.looked_at(func, slot, span, out))
    }

    /// The factors of products in a loop, in a slot that is read in all its rounds.
    fn before_loop(&self, func: &mut Func, site: usize, state: &mut State, out: &mut Vec<Op>) {
        for product in &self.supply.products {
            for (side, from) in product.sides.iter().enumerate() {
                let operand = func.ops[product.op].operands[side];
                if let Side::Slot { site: of, buffer, look } = from
                    && *of == site
                    && !state.ready.contains_key(&(site, operand))
                {
                    let factor = self.factor(func, (product, site, *buffer, look), &state.cursors, out);
                    state.ready.insert((site, operand), factor);
                }
            }
        }
    }

    /// A product that reads slots.
    fn product(&self, func: &mut Func, product: &Product, state: &State, out: &mut Vec<Op>) {
        for (side, from) in product.sides.iter().enumerate() {
            let operand = func.ops[product.op].operands[side];
            let buffer = match from {
                Side::Slot { site, buffer, look } => match state.ready.get(&(*site, operand)) {
                    Some(&ready) => ready,
                    None => self.factor(func, (product, *site, *buffer, look), &state.cursors, out),
                },
                Side::Kept { ring } => state.kept[ring],
                Side::Registers => continue,
            };
            func.ops[product.op].operands[side] = buffer;
        }
        let (fast_acc, lhs_signedness, rhs_signedness) = signs(&func.ops[product.op].kind);
        func.ops[product.op].turn_into(TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness });
    }
}

/// The place in a block of the operation that holds another one, or is it.
fn position(func: &Func, places: &Places, block: Block, op: Op) -> Option<usize> {
    let holder = places.within(block, op)?;
    func.blocks[block].ops.iter().position(|&other| other == holder)
}

/// Others than products that read slots use a load's tile.
fn needs_tile(func: &Func, supply: &Supply, load: Op) -> bool {
    let mut views: FxHashSet<Value> = std::iter::once(func.ops[load].results[0]).collect();
    func.linked_ops().into_iter().any(|op| {
        let data = &func.ops[op];
        let uses = |value: Value| views.contains(&value);
        if !data.operands.iter().any(|&value| uses(value)) {
            return false;
        }
        if let Some(product) = supply.products.iter().find(|product| product.op == op) {
            let slot = |side: usize| matches!(product.sides[side], Side::Slot { .. });
            return (0..data.operands.len()).any(|side| uses(data.operands[side]) && (side >= 2 || !slot(side)));
        }
        if is_look(func, op) {
            views.extend(&data.results);
            return false;
        }
        // What threads make of it, they make of another slot.
        !supply.sites.iter().any(|site| site.factors.iter().any(|factor| factor.ops.contains(&op)))
    })
}
