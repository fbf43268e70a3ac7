//! Uniformity: which threads are sure to hold the same scalar, and to run an operation together.
//!
//! A value is uniform over the *grid* (arguments), the *cluster*, the *block* (the block's index), its *role*, the *warp*
//! (`tile.warp_id`), or not at all (*thread*: `tile.thread_id`, what an atomic update found). An operation's results are as
//! little uniform as its least uniform operand; what a loop or condition yields depends also on what decides about them.
//! Where no thread can ask for its number, a block runs one program: a scalar's atomic update, or its load in an order that others see,
//! is done once, and all threads get what it found.
//! A load is as uniform as its address: threads that read what others write meanwhile are wrong on any machine.
//!
//! An operation stands under a condition that is as little uniform as the least uniform `if`, loop bound or earlier exit
//! around it. Operations on tiles with layouts, and those whose row says `Together` or `Convergent`, need conditions (and
//! their scalar operands) to be uniform over their role or warp, else some threads would not come:
//!
//! ```text
//! %small = cmpi %thread, %n {predicate=lt} : tile<i1>
//! if %small () {
//!   tile.barrier          // refused: `%small` differs between threads
//! ```

use crate::attrs::{MemoryOrder, ShuffleMode};
use crate::diag::{Diagnostic, Span};
use crate::dialect::Trait;
use crate::entity::EntityId;
use crate::func::{Block, Def, Func, Op, Value};
use crate::op::OpKind;
use crate::schedule::ScheduleOp;
use crate::tile::TileOp;
use crate::types::Type;

/// Over which threads something is the same; ordered from the most to the least uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uniformity {
    /// All threads of the launch.
    Grid,
    /// All threads of a cluster of blocks.
    Cluster,
    /// All threads of a block.
    Block,
    /// All threads of a role.
    Role,
    /// All lanes of a warp.
    Warp,
    /// One thread.
    Thread,
}

impl Uniformity {
    /// Its word in messages and text.
    pub const fn word(self) -> &'static str {
        match self {
            Uniformity::Grid => "grid",
            Uniformity::Cluster => "cluster",
            Uniformity::Block => "block",
            Uniformity::Role => "role",
            Uniformity::Warp => "warp",
            Uniformity::Thread => "thread",
        }
    }
}

/// Whether the scalars of a Tile function are each thread's own: it says so (`num_threads`), or threads ask for their numbers.
/// Elsewhere the block runs one program, and what that does to memory with scalars is done once.
pub fn is_per_thread(func: &Func) -> bool {
    let numbered =
        |op: Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::ThreadId {} | TileOp::LaneId {} | TileOp::WarpId {}));
    func.hints.num_threads.is_some() || func.linked_ops().into_iter().any(numbered)
}

/// How uniform a condition is, and the value that makes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Over which threads it is the same.
    pub uniformity: Uniformity,
    /// The least uniform value that decides; `None` when nothing does.
    pub decided_by: Option<Value>,
}

impl Condition {
    const NONE: Condition = Condition { uniformity: Uniformity::Grid, decided_by: None };

    fn and(self, other: Condition) -> Condition {
        if other.uniformity > self.uniformity { other } else { self }
    }
}

/// The result of the analysis for one function.
#[derive(Clone, Debug)]
pub struct UniformityMap {
    values: Vec<Uniformity>,
    conditions: Vec<Condition>,
}

impl UniformityMap {
    /// Analyses a Tile function that is structurally sound.
    pub fn new(func: &Func) -> UniformityMap {
        let map = UniformityMap {
            values: vec![Uniformity::Grid; func.values.len()],
            conditions: vec![Condition::NONE; func.ops.len()],
        };
        let mut walk = Walk { func, map, changed: true, scope: Uniformity::Block, per_thread: is_per_thread(func) };
        while std::mem::take(&mut walk.changed) {
            walk.block(func.body, Condition::NONE);
        }
        walk.map
    }

    /// How uniform a value is.
    pub fn value(&self, value: Value) -> Uniformity {
        self.values[value.index()]
    }

    /// The condition that an operation stands under.
    pub fn condition(&self, op: Op) -> Condition {
        self.conditions[op.index()]
    }
}

/// Conditions under which a region is left early.
#[derive(Clone, Copy)]
struct Exits {
    continues: Condition,
    breaks: Condition,
    returns: Condition,
}

impl Exits {
    const NONE: Exits = Exits { continues: Condition::NONE, breaks: Condition::NONE, returns: Condition::NONE };

    fn and(self, other: Exits) -> Exits {
        Exits {
            continues: self.continues.and(other.continues),
            breaks: self.breaks.and(other.breaks),
            returns: self.returns.and(other.returns),
        }
    }

    fn any(self) -> Condition {
        self.continues.and(self.breaks).and(self.returns)
    }
}

struct Walk<'f> {
    func: &'f Func,
    map: UniformityMap,
    changed: bool,
    /// What operations on whole tiles are uniform over here: the block, or the role.
    scope: Uniformity,
    per_thread: bool,
}

impl Walk<'_> {
    /// Tokens order operations; they hold nothing that could differ.
    fn raise(&mut self, value: Value, to: Uniformity) {
        if *self.func.ty(value) == Type::Token {
            return;
        }
        let known = &mut self.map.values[value.index()];
        if to > *known {
            *known = to;
            self.changed = true;
        }
    }

    fn of(&self, value: Value) -> Uniformity {
        self.map.value(value)
    }

    fn least(&self, values: &[Value]) -> Condition {
        values
            .iter()
            .fold(Condition::NONE, |least, &value| least.and(Condition { uniformity: self.of(value), decided_by: Some(value) }))
    }

    /// Walks a block that is entered under a condition; yields how it is left before its end.
    fn block(&mut self, block: Block, mut under: Condition) -> Exits {
        let func = self.func;
        let mut exits = Exits::NONE;
        for &op in &func.blocks[block].ops {
            self.map.conditions[op.index()] = under;
            let left = self.op(op, under);
            exits = exits.and(left);
            under = under.and(left.any());
        }
        exits
    }

    fn op(&mut self, op: Op, under: Condition) -> Exits {
        let func = self.func;
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::If {}) => {
                let inner = under.and(self.least(data.group(0)));
                let exits = data.regions.iter().fold(Exits::NONE, |exits, &region| exits.and(self.block(region, inner)));
                for &region in &data.regions {
                    if let Some(last) = self.terminator(region, |kind| matches!(kind, ScheduleOp::Yield {})) {
                        self.pass(last, &data.results, self.least(data.group(0)));
                    }
                }
                // Threads that leave early leave what follows to those whose condition was another.
                data.results.iter().for_each(|&result| self.raise(result, exits.any().uniformity));
                exits
            }
            OpKind::Schedule(ScheduleOp::For { .. }) => {
                let bounds = self.least(&data.operands[..3]);
                let args = &func.blocks[data.regions[0]].args;
                self.raise(args[0], self.least(&[data.operands[0], data.operands[2]]).uniformity);
                self.enter(data.group(3), &args[1..]);
                let exits = self.body(data.regions[0], under.and(bounds), &args[1..]);
                for (&result, &arg) in data.results.iter().zip(&args[1..]) {
                    self.raise(result, self.of(arg).max(bounds.uniformity));
                }
                exits
            }
            OpKind::Schedule(ScheduleOp::Loop {}) => {
                let args = &func.blocks[data.regions[0]].args;
                self.enter(data.group(0), args);
                let exits = self.body(data.regions[0], under, args);
                self.jumps(data.regions[0], &data.results, |kind| matches!(kind, ScheduleOp::Break {}));
                exits
            }
            OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }) => {
                for &arg in &func.blocks[data.regions[0]].args {
                    self.raise(arg, self.scope);
                }
                self.block(data.regions[0], under);
                self.results(op);
                Exits::NONE
            }
            OpKind::Tile(TileOp::Role { .. }) => {
                let outside = std::mem::replace(&mut self.scope, Uniformity::Role);
                let role = Condition { uniformity: Uniformity::Role, decided_by: None };
                self.block(data.regions[0], under.and(role));
                self.scope = outside;
                Exits::NONE
            }
            OpKind::Schedule(ScheduleOp::Continue {}) => Exits { continues: under, ..Exits::NONE },
            OpKind::Schedule(ScheduleOp::Break {}) => Exits { breaks: under, ..Exits::NONE },
            OpKind::Schedule(ScheduleOp::Return {}) => Exits { returns: under, ..Exits::NONE },
            OpKind::Schedule(_) | OpKind::Tile(_) | OpKind::Graph(_) => {
                self.results(op);
                Exits::NONE
            }
        }
    }

    /// The body of a loop: who has left it by `break` or `return` does not come to its later rounds. What is carried round
    /// depends on the exits that decide between ways round. Yields the exits that leave the loop's block too.
    fn body(&mut self, region: Block, under: Condition, args: &[Value]) -> Exits {
        let mut exits = self.block(region, under);
        loop {
            let later = under.and(exits.breaks).and(exits.returns);
            let again = self.block(region, later);
            let more = exits.and(again);
            let stable = more.any().uniformity == exits.any().uniformity;
            exits = more;
            if stable {
                break;
            }
        }
        self.jumps(region, args, |kind| matches!(kind, ScheduleOp::Continue {}));
        Exits { returns: exits.returns, ..Exits::NONE }
    }

    fn enter(&mut self, values: &[Value], args: &[Value]) {
        for (&value, &arg) in values.iter().zip(args) {
            self.raise(arg, self.of(value));
        }
    }

    /// The last operation of a block, if it is of a kind.
    fn terminator(&self, block: Block, fits: impl Fn(&ScheduleOp) -> bool) -> Option<Op> {
        let last = *self.func.blocks[block].ops.last()?;
        self.func.ops[last].kind.schedule().is_some_and(fits).then_some(last)
    }

    /// Passes a terminator's values on, where a condition decides whether it is this terminator.
    fn pass(&mut self, terminator: Op, to: &[Value], decides: Condition) {
        let func = self.func;
        for (&value, &to) in func.ops[terminator].operands.iter().zip(to) {
            self.raise(to, self.of(value).max(decides.uniformity));
        }
    }

    /// Passes on the values of every jump of a kind out of a loop's body, nested loops left alone.
    fn jumps(&mut self, block: Block, to: &[Value], fits: impl Fn(&ScheduleOp) -> bool + Copy) {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            match &data.kind {
                OpKind::Schedule(ScheduleOp::If {}) => data.regions.iter().for_each(|&region| self.jumps(region, to, fits)),
                OpKind::Schedule(kind) if fits(kind) => self.pass(op, to, self.map.condition(op)),
                _ => {}
            }
        }
    }

    /// Results of an operation without control.
    fn results(&mut self, op: Op) {
        let data = &self.func.ops[op];
        let operands = self.least(&data.operands).uniformity;
        let found = if self.per_thread { Uniformity::Thread } else { operands.max(self.scope) };
        let uniformity = match &data.kind {
            OpKind::Schedule(ScheduleOp::GetTileBlockId { .. })
            | OpKind::Tile(TileOp::Worker {} | TileOp::ClusterRank {} | TileOp::ClusterNumber {}) => Uniformity::Block,
            OpKind::Schedule(ScheduleOp::AtomicRmwTko { .. } | ScheduleOp::AtomicCasTko { .. }) => found,
            OpKind::Schedule(ScheduleOp::LoadPtrTko { order, .. } | ScheduleOp::LoadViewTko { order, .. }) => match order {
                MemoryOrder::Weak => operands,
                _ => found,
            },
            OpKind::Tile(TileOp::ThreadId {} | TileOp::LaneId {}) => Uniformity::Thread,
            OpKind::Tile(TileOp::WarpId {}) => Uniformity::Warp,
            OpKind::Tile(TileOp::AtomicElement { .. } | TileOp::AtomicCasElement {}) => Uniformity::Thread,
            OpKind::Tile(TileOp::LoadElement {}) if matches!(self.func.ty(data.operands[0]), Type::Registers(_)) => {
                Uniformity::Thread
            }
            OpKind::Tile(TileOp::WarpReduce { .. }) => operands.min(Uniformity::Warp),
            OpKind::Tile(TileOp::Shuffle { mode }) => match mode {
                ShuffleMode::Index if self.of(data.one(1)) <= Uniformity::Warp => self.of(data.one(0)).min(Uniformity::Warp),
                _ => operands,
            },
            _ => operands,
        };
        for &result in &data.results {
            // A tile with a layout exists once, and so does what it is reduced to.
            let whole = matches!(self.func.ty(result), Type::Distributed(_) | Type::InFlight(_));
            self.raise(result, if whole { self.scope } else { uniformity });
        }
    }
}

/// Operations that not all the threads they need would run, or that would not get one value from all of them.
pub(crate) fn check(func: &Func) -> Vec<Diagnostic> {
    let map = UniformityMap::new(func);
    let mut found = Vec::new();
    visit(func, &map, func.body, Uniformity::Block, &mut found);
    found
}

fn visit(func: &Func, map: &UniformityMap, block: Block, scope: Uniformity, found: &mut Vec<Diagnostic>) {
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        let spread = |&value: &Value| matches!(func.ty(value), Type::Distributed(_) | Type::InFlight(_));
        let structured = !data.regions.is_empty() || data.row().effects == crate::dialect::Effects::Terminator;
        let tiles = !structured && data.operands.iter().chain(&data.results).any(spread);
        let role = matches!(data.kind, OpKind::Tile(TileOp::Role { .. }));
        let reduces = matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
        let together = tiles || role || reduces || data.row().has(Trait::Together);
        let needed = match together {
            true => scope,
            false if data.row().has(Trait::Convergent) => Uniformity::Warp,
            false => Uniformity::Thread,
        };
        let condition = map.condition(op);
        if condition.uniformity > needed {
            found.push(divergent(func, op, condition, needed));
        } else if together {
            found.extend(
                data.operands.iter().find(|&&value| map.value(value) > needed).map(|&value| uneven(func, op, value, map, needed)),
            );
        }
        let inner = if role { Uniformity::Role } else { scope };
        for &region in &data.regions {
            visit(func, map, region, inner, found);
        }
    }
}

fn who(needed: Uniformity) -> &'static str {
    match needed {
        Uniformity::Warp => "all lanes of a warp",
        Uniformity::Role => "all threads of its role",
        _ => "all threads of the block",
    }
}

/// Where a value comes from, for a message.
fn origin(func: &Func, value: Value) -> Option<Span> {
    match func.values[value].def {
        Def::Result(op, _) => Some(func.ops[op].span),
        Def::Argument(block, _) => {
            func.linked_ops().into_iter().find(|&op| func.ops[op].regions.contains(&block)).map(|op| func.ops[op].span)
        }
    }
}

fn named(func: &Func, value: Value) -> String {
    func.values[value].name.as_deref().map_or("a value".to_string(), |name| format!("`%{name}`"))
}

fn differs(uniformity: Uniformity) -> &'static str {
    match uniformity {
        Uniformity::Thread => "differs between the threads of a warp",
        Uniformity::Warp => "differs between the warps of a role",
        _ => "differs between the roles of a block",
    }
}

fn divergent(func: &Func, op: Op, condition: Condition, needed: Uniformity) -> Diagnostic {
    let data = &func.ops[op];
    let message = format!("`{}` is run by {} together, but not all of them come here", data.row().mnemonic, who(needed));
    let found = Diagnostic::error("ir-divergent", data.span, message)
        .help("move it out of the condition, or make the condition the same for all of them");
    let Some(value) = condition.decided_by else { return found };
    let text = format!("{} decides, and {}", named(func, value), differs(condition.uniformity));
    match origin(func, value) {
        Some(span) => found.also(span, text),
        None => found.note(text),
    }
}

fn uneven(func: &Func, op: Op, value: Value, map: &UniformityMap, needed: Uniformity) -> Diagnostic {
    let data = &func.ops[op];
    let message = format!(
        "`{}` needs one value from {}, but {} {}",
        data.row().mnemonic,
        who(needed),
        named(func, value),
        differs(map.value(value))
    );
    let found = Diagnostic::error("ir-divergent", data.span, message);
    match origin(func, value) {
        Some(span) => found.also(span, "defined here"),
        None => found,
    }
}
