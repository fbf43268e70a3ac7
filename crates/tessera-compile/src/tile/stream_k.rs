//! Rounds of a product shared among blocks (stream-K, arXiv 2301.03598): whole tiles are taken first, by as many waves as there are, and the
//! blocks that are launched take equal parts of all rounds of the tiles that are left.
//!
//! ```text
//! tiles      |-------0-------|-------1-------|-------2-------|     16 rounds each
//! blocks     |----0----|----1----|----2----|----3----|----4---|    10 rounds each
//! even       |---0---|---1---|---2---|---3---|---4---|---5---|      8 rounds each: split-K
//! ```
//!
//! A block that has all rounds of a tile goes on as if nothing had happened. Else it leaves its sums in the launch's memory and counts
//! itself; who counts last adds up the tile's sums in the order of their rounds and does what comes behind the loop. Nobody waits.
//! Parts of a tile are even where that loses little: blocks that go through tiles in step find what they read in the cache, and others do
//! not. Nothing is shared where that would not pay: the program decides by the grid that is asked for, the rounds of a tile, and how many
//! rounds the plan says that sharing costs.
//!
//! Blocks of a cluster that load together share as one: what is said of a block here is true of a cluster, whose blocks take the same rounds
//! of neighbouring tiles. Each leaves its own sums.
//!
//! Sums come out the same whenever the same number of blocks is launched, since their order follows from that alone.

use tessera_ir::attrs::{Predicate, Rounding, Signedness};
use tessera_ir::{Builder, Const, Func, Op, OpKind, Reason, ScheduleOp, Shape, Type, Value, bug};
use tessera_types::DType;

use super::numbers::Numbers;
use super::persistent::{Grid, Split};
use super::pool::{Leavers, Pool, branch, element};
use super::relation::has_layout;
use super::roles::{is_free, is_product};

/// Sums that a block leaves in the launch's memory, for each block that is launched: a piece's number is its block's and its tile's, added up,
/// and there are fewer tiles than blocks.
const SLOTS: u32 = 2;
/// Rounds that a piece has at least.
const LEAST_ROUNDS: i64 = 4;
/// What a piece costs where nothing does, so that the root is finite.
const FREE: f64 = 1.0 / 1024.0;
/// What storing, counting and waiting for memory take, in bytes that a multiprocessor brings meanwhile.
const MEETING: f64 = 256.0 * 1024.0;

/// The loop whose rounds can be shared: of products that add up, or are scaled and added up, with as many rounds in every block.
///
/// # Errors
/// Why there is none.
pub(super) fn shareable(func: &Func) -> Result<Op, Reason> {
    let holds_product = |op: &Op| {
        let data = &func.ops[*op];
        let looped = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
        looped && func.blocks[data.regions[0]].ops.iter().any(|&op| is_product(func, op))
    };
    let loops: Vec<Op> = func.blocks[func.body].ops.iter().copied().filter(holds_product).collect();
    let &[looped] = &loops[..] else {
        return Err(format!(
            "rounds of one loop of products are shared, and the function has {} that no loop is around",
            loops.len()
        )
        .into());
    };
    let (data, at) = (&func.ops[looped], func.ops[looped].span);
    let same = Split::of(func).same;
    if !data.operands[..3].iter().all(|bound| same.contains(bound)) {
        return Err(Reason::at("blocks have different numbers of rounds", at));
    }
    let body = data.regions[0];
    for &op in &func.blocks[body].ops {
        let inner = &func.ops[op];
        let ends = matches!(inner.kind, OpKind::Schedule(ScheduleOp::Continue {}));
        let weak = inner.kind.schedule().is_some_and(ScheduleOp::is_weak_load);
        if !(ends || inner.regions.is_empty() && (is_free(func, op) || weak)) {
            return Err(Reason::at("a round does more than load and compute", inner.span));
        }
    }
    for position in 0..data.group(3).len() {
        adds_up(func, looped, position).map_err(|why| Reason::at(why, at))?;
    }
    Ok(looped)
}

/// A carried value starts at zero, and rounds do nothing with it but add to it.
fn adds_up(func: &Func, looped: Op, position: usize) -> Result<(), &'static str> {
    const OTHER: &str = "the loop carries more than sums of products";
    let (data, body) = (&func.ops[looped], func.ops[looped].regions[0]);
    let start = func.constant(data.group(3)[position]).and_then(Const::splat_bits);
    if start != Some(0) {
        return Err("sums that are shared start from zero");
    }
    let mut value = func.blocks[body].args[1 + position];
    if !has_layout(func, value) {
        return Err(OTHER);
    }
    loop {
        let users: Vec<Op> = func.blocks[body].ops.iter().copied().filter(|&op| func.ops[op].operands.contains(&value)).collect();
        let &[user] = &users[..] else { return Err(OTHER) };
        let data = &func.ops[user];
        let once = data.operands.iter().filter(|&&operand| operand == value).count() == 1;
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Continue {}) if once && data.group(0)[position] == value => return Ok(()),
            OpKind::Schedule(ScheduleOp::AddF { .. } | ScheduleOp::AddI { .. }) if once => value = data.result(),
            OpKind::Schedule(ScheduleOp::Fma { .. }) if once && data.one(2) == value => value = data.result(),
            _ if once && is_product(func, user) && data.one(2) == value => value = data.result(),
            _ => return Err(OTHER),
        }
    }
}

/// What a plan asks for.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    /// The loop whose rounds are shared.
    pub(super) looped: Op,
    /// Where that saves more than so many of them.
    pub(super) saved: u32,
    /// Threads that hold its sums.
    pub(super) threads: u32,
}

/// How the rounds are shared, as values before the loop over pieces. Blocks and tiles are counted by clusters where there are some.
pub(super) struct Share {
    looped: Op,
    grid: [Value; 2],
    /// How many pieces this block has.
    pub(super) pieces: Value,
    /// Rounds of a tile, and a number to divide by that is not zero.
    rounds: [Value; 2],
    /// Rounds are shared at all.
    shared: Value,
    /// Waves of whole tiles before that; the number of the first tile that is shared.
    waves: Value,
    first: Value,
    /// This block's rounds of those that are shared: the first one, and the first behind.
    own: [Value; 2],
    /// Blocks and rounds of a group: of each tile where parts are even, of all that are shared else.
    group: [Value; 2],
    /// The first so many blocks of a group have one round more than the others, who have so many.
    longer: Value,
    each: Value,
    /// Where sums are left.
    pool: Pool,
}

/// Rounds of one tile that a block takes one after the other.
pub(super) struct Piece {
    /// Number of the tile's block in the grid.
    pub(super) place: Value,
    /// Number of the tile among those that are shared.
    tile: Value,
    /// The first round, and the first behind.
    rounds: [Value; 2],
}

impl Share {
    /// Computes what all pieces follow from, where `b` stands.
    pub(super) fn of(b: &mut Builder<'_>, Shared { looped, saved, threads }: Shared, grid: &Grid) -> Share {
        let data = b.func.ops[looped].clone();
        let [zero, one] = [0, 1].map(|number| b.number(number));
        let cluster = b.func.hints.cluster.map(|blocks| {
            let blocks = b.number(i64::from(blocks));
            [blocks, b.modulo(grid.worker, blocks)]
        });
        let [worker, workers, tiles] = [grid.worker, grid.workers, grid.all].map(|count| match cluster {
            Some([blocks, _]) => b.over(count, blocks),
            None => count,
        });
        let span = b.minus(data.one(1), data.one(0));
        let span = b.most(span, zero);
        let rounds = b.over_up(span, data.one(2));
        let divisor = b.most(rounds, one);
        let part = Cost::of(b.func, looped).part.min(f64::from(saved));

        // Without: waves of whole tiles.
        let full = b.over(tiles, workers);
        let started = b.times(full, workers);
        let over = b.minus(tiles, started);
        let plain = {
            let more = b.is(zero, Predicate::Lt, over);
            let more = b.choose(more, one, zero);
            let waves = b.plus(full, more);
            b.times(waves, rounds)
        };
        // With: the tiles that are left in equal parts.
        let (first, rest) = (started, over);
        let total = b.times(rest, rounds);
        let blocks = sharers(b, (workers, rest, rounds, total), (part, saved));
        let some = b.most(rest, one);
        let even = {
            let uneven = b.modulo(blocks, some);
            b.is(uneven, Predicate::Eq, zero)
        };
        let parts = b.over(blocks, some);
        let group = [b.choose(even, parts, blocks), b.choose(even, divisor, total)];
        let each = b.over(group[1], group[0]);
        let longer = {
            let all = b.times(each, group[0]);
            b.minus(group[1], all)
        };
        let time = {
            let whole = b.times(full, rounds);
            let slower = out_of_step(b, each);
            let own = b.choose(even, each, slower);
            let time = b.plus(whole, own);
            // A block that takes rounds of two tiles meets others twice.
            let [twice, once] = [2 * saved, saved].map(|rounds| b.number(i64::from(rounds)));
            let meeting = b.choose(even, once, twice);
            let time = b.plus(time, meeting);
            let adding = b.number(part.ceil() as i64);
            let adding = b.times(parts, adding);
            b.plus(time, adding)
        };
        let shared = b.is(time, Predicate::Lt, plain);

        let own = {
            let start = |b: &mut Builder<'_>, block: Value| {
                let [nth, block] = [b.over(block, group[0]), b.modulo(block, group[0])];
                let groups = b.times(nth, group[1]);
                let before = b.times(block, each);
                let more = b.least(block, longer);
                let within = b.plus(before, more);
                b.plus(groups, within)
            };
            let next = b.plus(worker, one);
            let ends = [worker, next].map(|block| b.least(block, blocks));
            ends.map(|block| start(b, block))
        };
        let pieces = {
            let late = b.is(worker, Predicate::Lt, over);
            let last = b.choose(late, one, zero);
            let begun = b.over(own[0], divisor);
            let ended = b.over_up(own[1], divisor);
            let some = b.is(own[0], Predicate::Lt, own[1]);
            let touched = b.minus(ended, begun);
            let touched = b.choose(some, touched, zero);
            let more = b.choose(shared, touched, last);
            b.plus(full, more)
        };
        let sums = data.results.to_vec();
        let pool = Pool::of(b, &sums, Leavers { slots: SLOTS, blocks: grid.workers, cluster, pieces: None, threads });
        let each = b.most(each, one);
        Share {
            looped,
            grid: [worker, workers],
            pieces,
            rounds: [rounds, divisor],
            shared,
            waves: full,
            first,
            own,
            group,
            longer,
            each,
            pool,
        }
    }

    /// The piece of this block with a number.
    pub(super) fn piece(&self, b: &mut Builder<'_>, number: Value) -> Piece {
        let [worker, workers] = self.grid;
        let [rounds, divisor] = self.rounds;
        let zero = b.number(0);
        let before = b.times(number, workers);
        let whole = b.plus(before, worker);
        let late = b.is(self.waves, Predicate::Le, number);
        let shared = b.both(self.shared, late);
        let begun = b.over(self.own[0], divisor);
        let nth = b.minus(number, self.waves);
        let tile = b.plus(begun, nth);
        let place = b.plus(self.first, tile);
        let place = b.choose(shared, place, whole);
        let place = self.pool.own(b, place);
        let start = b.times(tile, rounds);
        let [from, to] = self.own.map(|round| b.minus(round, start));
        let (from, to) = (b.most(from, zero), b.least(to, rounds));
        let rounds = [b.choose(shared, from, zero), b.choose(shared, to, rounds)];
        Piece { place, tile, rounds }
    }

    /// The block's operations for one piece; what stands for the values of the loop behind it.
    pub(super) fn work(&self, b: &mut Builder<'_>, piece: &Piece, ops: &[Op]) -> Vec<(Value, Value)> {
        let mut parts = ops.split(|&op| op == self.looped);
        let (Some(before), Some(behind)) = (parts.next(), parts.next()) else { bug!("the shared loop stands elsewhere") };
        b.func.blocks[b.block].ops.extend(before);
        let data = b.func.ops[self.looped].clone();
        let (lower, upper, step) = (data.one(0), data.one(1), data.one(2));
        let ends = piece.rounds.map(|round| {
            let ahead = b.times(round, step);
            b.plus(lower, ahead)
        });
        let end = b.least(ends[1], upper);
        let types: Vec<Type> = data.results.iter().map(|&result| b.func.ty(result).clone()).collect();
        let groups: [&[Value]; 4] = [&[ends[0]], &[end], &[step], data.group(3)];
        let own_span = std::mem::replace(&mut b.span, data.span);
        let looped = b.op_with_regions(data.kind.clone(), &groups, types.clone(), data.regions.clone());
        b.span = own_span;
        let sums = b.func.ops[looped].results.to_vec();

        let [first, last] = piece.rounds;
        let begins = {
            let zero = b.number(0);
            b.is(first, Predicate::Eq, zero)
        };
        let ends = b.is(last, Predicate::Eq, self.rounds[0]);
        let whole = b.both(begins, ends);
        let types: Vec<Type> = types.into_iter().chain([Type::scalar(DType::B1)]).collect();
        let results = branch(
            b,
            whole,
            &types,
            |b| {
                let yes = b.constant(Const::bool(true), Shape::new());
                [&sums[..], &[yes]].concat()
            },
            |b| self.met(b, piece, &sums),
        );
        let (totals, mine) = (&results[..sums.len()], results[sums.len()]);
        let (rest, nothing) = (b.func.new_block(), b.func.new_block());
        b.func.blocks[rest].ops.extend(behind);
        for block in [rest, nothing] {
            b.within(block, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
        }
        b.op_with_regions(ScheduleOp::If {}, &[&[mine]], [], [rest, nothing]);
        data.results.iter().copied().zip(totals.iter().copied()).collect()
    }

    /// Leaves the sums of a piece and counts it. The tile's sums where it is the last one, and whether it is.
    fn met(&self, b: &mut Builder<'_>, piece: &Piece, sums: &[Value]) -> Vec<Value> {
        let slot = b.plus(self.grid[0], piece.tile);
        // The tile's first and last blocks.
        let start = b.times(piece.tile, self.rounds[0]);
        let end = b.plus(start, self.rounds[0]);
        let one = b.number(1);
        let end = b.minus(end, one);
        let ends = [start, end].map(|round| {
            let block = self.sharer(b, round);
            b.plus(block, piece.tile)
        });
        self.pool.met(b, (slot, piece.tile), ends, sums)
    }

    /// The block that has a round of those that are shared.
    fn sharer(&self, b: &mut Builder<'_>, round: Value) -> Value {
        let [blocks, rounds] = self.group;
        let [nth, round] = [b.over(round, rounds), b.modulo(round, rounds)];
        let before = b.times(nth, blocks);
        let one = b.number(1);
        let more = b.plus(self.each, one);
        let long = b.times(self.longer, more);
        let among_long = b.over(round, more);
        let behind = b.minus(round, long);
        let zero = b.number(0);
        let behind = b.most(behind, zero);
        let among_short = b.over(behind, self.each);
        let among_short = b.plus(self.longer, among_short);
        let early = b.is(round, Predicate::Lt, long);
        let within = b.choose(early, among_long, among_short);
        b.plus(before, within)
    }
}

/// How many blocks share: as many as are launched, unless adding up would cost more than rounds are saved, or pieces would be too short.
///
/// A tile of `r` rounds in `s` pieces takes `r / s` rounds and `p s` to add up: least where `s` is the root of `r / p`.
fn sharers(
    b: &mut Builder<'_>,
    (workers, tiles, rounds, total): (Value, Value, Value, Value),
    (part, saved): (f64, u32),
) -> Value {
    let one = b.number(1);
    let least = b.number(i64::from(saved).clamp(1, LEAST_ROUNDS));
    let float = |b: &mut Builder<'_>, kind: ScheduleOp, value: Value| b.value(kind, &[&[value]], Type::scalar(DType::F32));
    let (signedness, rounding) = (Signedness::Signed, Rounding::NearestEven);
    let wide = float(b, ScheduleOp::IToF { signedness, rounding }, rounds);
    let scale = b.constant(Const::splat(DType::F32, u64::from(((1.0 / part.max(FREE)) as f32).to_bits())), Shape::new());
    let ratio = b.same(ScheduleOp::MulF { rounding, flush_to_zero: false }, &[wide, scale]);
    let root = b.same(ScheduleOp::Sqrt { rounding, flush_to_zero: false }, &[ratio]);
    let kind = ScheduleOp::FToI { signedness, rounding: Rounding::Zero };
    let pieces = b.value(kind, &[&[root]], Type::scalar(DType::I32));
    let pieces = b.most(pieces, one);
    let useful = b.times(tiles, pieces);
    let long = b.over(total, least);
    let blocks = b.least(workers, useful);
    let blocks = b.least(blocks, long);
    let blocks = b.most(blocks, one);
    // As many for each tile, where that costs no more than to meet once more does: then nobody has rounds of two tiles.
    let divisor = b.most(tiles, one);
    let each = b.over(blocks, divisor);
    let each = b.most(each, one);
    let even = b.times(each, divisor);
    let [own, least] = [even, blocks].map(|blocks| b.over(total, blocks));
    let met = b.number(i64::from(saved));
    let most = out_of_step(b, least);
    let most = b.plus(most, met);
    let is_long = b.is(most, Predicate::Lt, own);
    let few = b.is(blocks, Predicate::Lt, tiles);
    let even = b.choose(is_long, blocks, even);
    b.choose(few, blocks, even)
}

/// How long so many rounds take where blocks are at different places of their tiles, as measured: half as long again.
fn out_of_step(b: &mut Builder<'_>, rounds: Value) -> Value {
    let two = b.number(2);
    let half = b.over(rounds, two);
    b.plus(rounds, half)
}

/// Rounds that sharing costs, whatever the grid.
pub(super) fn meeting(func: &Func, looped: Op) -> u32 {
    Cost::of(func, looped).meeting.ceil() as u32
}

/// What sharing costs, in rounds of the loop: a round takes at least as long as its bytes take to come.
struct Cost {
    /// Of each piece of a tile, where these are added up.
    part: f64,
    /// Of leaving sums, counting and waiting.
    meeting: f64,
}

impl Cost {
    fn of(func: &Func, looped: Op) -> Cost {
        let bytes = |value: Value| {
            let tile = func.ty(value).the_tile();
            tile.len() as f64 * f64::from(element(tile).bits()) / 8.0
        };
        let data = &func.ops[looped];
        let loads = func.blocks[data.regions[0]]
            .ops
            .iter()
            .filter(|&&op| func.ops[op].kind.schedule().is_some_and(ScheduleOp::is_weak_load));
        let round: f64 = loads.map(|&op| bytes(func.ops[op].results[0])).sum::<f64>().max(1.0);
        let sums: f64 = data.results.iter().map(|&sum| bytes(sum)).sum();
        Cost { part: sums / round, meeting: (sums + MEETING) / round }
    }
}
