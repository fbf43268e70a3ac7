//! Structure: every value is defined once and before its uses, operations have the operands, results and regions that their
//! rows declare, every block ends with the one terminator that fits where it stands.

use crate::diag::Diagnostic;
use crate::dialect::{Effects, OperandKind, Results};
use crate::entity::EntityId;
use crate::func::{Block, Def, Func, Level, Module, Op, Value};
use crate::op::OpKind;
use crate::schedule::ScheduleOp;
use crate::tile::TileOp;
use crate::types::Type;
use crate::verify::{Rule, Site, Wrong, ensure, operation, tile, types};

/// What a region belongs to: decides how it may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    Body,
    For(Op),
    Loop(Op),
    If(Op),
    /// The region of a reduction or scan.
    Combine(Op),
    /// The region of a role.
    Role(Op),
}

/// Checks the body of a function.
pub(crate) fn check(module: &Module, func: &Func, found: &mut Vec<Diagnostic>) {
    let mut walk = Walk {
        module,
        func,
        found,
        visible: vec![false; func.values.len()],
        linked: vec![false; func.ops.len()],
        frames: vec![Frame::Body],
    };
    walk.block(func.body);
}

struct Walk<'m, 'd> {
    module: &'m Module,
    func: &'m Func,
    found: &'d mut Vec<Diagnostic>,
    visible: Vec<bool>,
    linked: Vec<bool>,
    frames: Vec<Frame>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: Block) {
        let data = &self.func.blocks[block];
        let mut defined: Vec<Value> = data.args.to_vec();
        for &arg in &data.args {
            self.visible[arg.index()] = true;
        }
        for (position, &op) in data.ops.iter().enumerate() {
            let last = position + 1 == data.ops.len();
            self.op(op, last);
            for &result in &self.func.ops[op].results {
                self.visible[result.index()] = true;
                defined.push(result);
            }
        }
        self.roles(&data.ops);
        if !data.ops.last().is_some_and(|&op| self.func.ops[op].row().effects == Effects::Terminator) {
            let span = data.ops.last().map_or(self.func.span, |&op| self.func.ops[op].span);
            self.found.push(Diagnostic::error("ir-terminator", span, "the block does not end with a terminator"));
        }
        for value in defined {
            self.visible[value.index()] = false;
        }
    }

    fn op(&mut self, op: Op, last: bool) {
        let data = &self.func.ops[op];
        let row = data.row();
        let result = self.shape(op, last).and_then(|()| {
            let site = Site { module: self.module, func: self.func, op: data };
            operation(&site)?;
            if self.func.level == Level::Tile {
                self.threads(&site)?;
            }
            if row.effects == Effects::Terminator { self.terminator(op) } else { Ok(()) }
        });
        let sound = result.is_ok();
        if let Err(Wrong { id, message }) = result {
            self.found.push(Diagnostic::error(id, data.span, format!("`{}`: {message}", row.mnemonic)));
        }
        if data.regions.len() != row.regions || (!sound && self.frames.len() > 256) {
            return;
        }
        let frame = match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => Frame::For(op),
            OpKind::Schedule(ScheduleOp::Loop { .. }) => Frame::Loop(op),
            OpKind::Schedule(ScheduleOp::If { .. }) => Frame::If(op),
            OpKind::Tile(_) => Frame::Role(op),
            OpKind::Schedule(_) | OpKind::Graph(_) => Frame::Combine(op),
        };
        for &region in &data.regions {
            self.frames.push(frame);
            self.block(region);
            self.frames.pop();
        }
    }

    /// Counts, levels, visibility, and types that can exist at all.
    fn shape(&mut self, op: Op, last: bool) -> Rule {
        let data = &self.func.ops[op];
        let row = data.row();
        ensure!(!std::mem::replace(&mut self.linked[op.index()], true), "ir-structure", "stands in two places");
        let total: usize = data.segments.iter().map(|&n| usize::from(n)).sum();
        let counts = data.segments.len() == row.operands.len()
            && total == data.operands.len()
            && data.segments.iter().zip(row.operands).all(|(&count, spec)| match spec.kind {
                OperandKind::One => count == 1,
                OperandKind::Optional => count <= 1,
                OperandKind::Many => true,
            });
        ensure!(counts, "ir-structure", "does not have the operands that it needs");
        ensure!(data.regions.len() == row.regions, "ir-structure", "must have {} regions", row.regions);
        let results = match row.results {
            Results::None => data.results.is_empty(),
            Results::One => data.results.len() == 1,
            Results::Two => data.results.len() == 2,
            Results::Many => true,
        };
        ensure!(results, "ir-results", "has {} results", data.results.len());
        for (position, &result) in data.results.iter().enumerate() {
            let defined = self.func.values[result].def == Def::Result(op, position as u32);
            ensure!(defined, "ir-structure", "a result is not defined by it");
        }
        for operand in data.used() {
            let name = self.func.values[operand].name.as_deref().unwrap_or("value");
            ensure!(self.visible[operand.index()], "ir-dominance", "the operand `{name}` is not defined here");
        }
        for &result in &data.results {
            types::check(self.func.ty(result), self.func.level)?;
        }
        for &region in &data.regions {
            for &arg in &self.func.blocks[region].args {
                types::check(self.func.ty(arg), self.func.level)?;
            }
        }
        let ends = row.effects == Effects::Terminator;
        ensure!(ends == last || !ends, "ir-terminator", "stands before the end of its block");
        self.level(op)?;
        self.inside_combine(op)
    }

    /// Graph functions hold whole-operand operations, elementwise ones and scalar control; Schedule functions their own
    /// operations; Tile functions those and the Tile ones.
    fn level(&self, op: Op) -> Rule {
        let data = &self.func.ops[op];
        let fits = match (self.func.level, &data.kind) {
            (Level::Schedule | Level::Staged | Level::Tile, OpKind::Schedule(_)) => true,
            (Level::Graph, OpKind::Graph(_)) | (Level::Staged | Level::Tile, OpKind::Tile(_)) => true,
            (Level::Schedule | Level::Staged | Level::Tile, OpKind::Graph(_)) => false,
            (Level::Schedule | Level::Graph, OpKind::Tile(_)) => false,
            (Level::Graph, OpKind::Schedule(kind)) => {
                data.row().has(crate::dialect::Trait::Elementwise)
                    || matches!(
                        kind,
                        ScheduleOp::Constant { .. }
                            | ScheduleOp::Assume { .. }
                            | ScheduleOp::GetTensorShape { .. }
                            | ScheduleOp::If { .. }
                            | ScheduleOp::Yield { .. }
                            | ScheduleOp::Return { .. }
                    )
            }
        };
        ensure!(fits, "ir-level", "cannot stand in a {} function", self.func.level.word());
        let Some(through) = data.through else { return Ok(()) };
        let buffer = self.func.ty(through).as_shared().is_some() && self.func.level == Level::Tile;
        ensure!(
            buffer,
            "ir-operand-type",
            "exchanges elements through a shared buffer of a tile function, not `{}`",
            self.func.ty(through)
        );
        Ok(())
    }

    /// Layouts are made for the warps that run the operation; a role is no part of another.
    fn threads(&self, site: &Site<'_>) -> Rule {
        let role = self.frames.iter().rev().find_map(|frame| match frame {
            Frame::Role(owner) => self.func.ops[*owner].kind.tile(),
            _ => None,
        });
        let warps = match role {
            Some(TileOp::Role { warps, .. }) => *warps,
            _ => self.func.hints.num_warps.unwrap_or(0),
        };
        if let OpKind::Tile(TileOp::GroupTurn { groups, .. }) = site.op.kind {
            let wanted = groups.saturating_mul(4);
            let whole = matches!(role, Some(TileOp::Role { warps, .. }) if *warps == wanted);
            ensure!(whole, "ir-role", "{groups} warpgroups take turns in a role of {wanted} warps, which this is not in");
        }
        let nested = role.is_some() && matches!(site.op.kind, OpKind::Tile(TileOp::Role { .. }));
        ensure!(!nested, "ir-role", "cannot stand in a role");
        site.op.operands.iter().chain(&site.op.results).try_for_each(|&value| tile::layout_fits(site, value, u64::from(warps)))
    }

    /// Roles that follow each other run on different warps.
    fn roles(&mut self, ops: &[Op]) {
        let mut taken: Vec<std::ops::Range<u32>> = Vec::new();
        for &op in ops {
            let OpKind::Tile(TileOp::Role { first_warp, warps, .. }) = &self.func.ops[op].kind else {
                taken.clear();
                continue;
            };
            let range = *first_warp..first_warp.saturating_add(*warps);
            if let Some(other) = taken.iter().find(|other| other.start < range.end && range.start < other.end) {
                let (first, last) = (range.start.max(other.start), range.end.min(other.end) - 1);
                let message = format!("`tile.role`: warps {first} to {last} belong to another role that runs at the same time");
                self.found.push(Diagnostic::error("ir-role", self.func.ops[op].span, message));
            }
            taken.push(range);
        }
    }

    /// The region of a reduction works on scalars and has no effects.
    fn inside_combine(&self, op: Op) -> Rule {
        if !matches!(self.frames.last(), Some(Frame::Combine(_))) {
            return Ok(());
        }
        let data = &self.func.ops[op];
        let allowed = data.row().regions == 0
            && matches!(data.row().effects, Effects::Pure | Effects::MayTrap | Effects::Terminator)
            && data.operands.iter().chain(&data.results).all(|&value| self.func.ty(value).is_scalar());
        ensure!(allowed, "ir-region", "only scalar operations without effects can stand in a reduction's region");
        Ok(())
    }

    fn terminator(&self, op: Op) -> Rule {
        let data = &self.func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return Ok(()) };
        let enclosing = || self.frames.iter().rev().find(|frame| !matches!(frame, Frame::If(_))).copied();
        let types = |values: &[Value]| -> Vec<Type> { values.iter().map(|&value| self.func.ty(value).clone()).collect() };
        let wanted = match (kind, self.frames.last().copied()) {
            (ScheduleOp::Yield { .. }, Some(Frame::If(owner) | Frame::Combine(owner))) => {
                if let (Some(Frame::Combine(_)), OpKind::Schedule(ScheduleOp::Scan { .. } | ScheduleOp::Reduce { .. })) =
                    (self.frames.last(), &self.func.ops[owner].kind)
                {
                    self.func.ops[owner].operands.iter().filter_map(|&v| scalar_of(self.func.ty(v))).collect()
                } else {
                    types(&self.func.ops[owner].results)
                }
            }
            (ScheduleOp::Yield { .. }, Some(Frame::Role(_))) => Vec::new(),
            (ScheduleOp::Continue { .. }, _) => match enclosing() {
                Some(Frame::For(owner)) => types(self.func.ops[owner].group(3)),
                Some(Frame::Loop(owner)) => types(self.func.ops[owner].group(0)),
                _ => return Err(misplaced("can only stand in a loop")),
            },
            (ScheduleOp::Break { .. }, _) => match enclosing() {
                Some(Frame::Loop(owner)) => types(&self.func.ops[owner].results),
                _ => return Err(misplaced("can only stand in a `loop`")),
            },
            (ScheduleOp::Return { .. }, _) => match enclosing() {
                _ if self.frames.iter().any(|frame| matches!(frame, Frame::Role(_))) => {
                    return Err(misplaced("cannot stand in a role"));
                }
                Some(Frame::Combine(_)) => return Err(misplaced("cannot stand in a reduction's region")),
                _ => return Ok(()),
            },
            _ => return Err(misplaced("cannot end this block")),
        };
        let found = types(&data.operands);
        ensure!(found.len() == wanted.len(), "ir-terminator", "passes {} values where {} are wanted", found.len(), wanted.len());
        for (position, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            ensure!(found == wanted, "ir-terminator", "value {position} is `{found}`, but `{wanted}` is wanted");
        }
        Ok(())
    }
}

fn scalar_of(ty: &Type) -> Option<Type> {
    ty.num().map(Type::scalar)
}

fn misplaced(message: &str) -> Wrong {
    Wrong { id: "ir-terminator", message: message.to_string() }
}
