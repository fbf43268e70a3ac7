//! Loops that are walked round by round, so that arrays of registers are indexed by constants and stay in registers.
//!
//! ```text
//! acc = tile.alloc_register[fp32](4)
//! for j in range(4):                       acc[0] += s[0] * v
//!     acc[j] += s[j] * v                   acc[1] += s[1] * v ...
//! ```

use super::Check;
use super::env::{Entry, Item};
use super::program::{Memory, Space};
use super::value::At;
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::fixed::Fixed;

/// The most rounds of a loop that is unrolled.
const MOST_ROUNDS: i128 = 64;

impl Check<'_> {
    /// The numbers of a loop that is to be unrolled: known, few, and indices of an array of registers.
    pub(super) fn unrolled(&mut self, target: &str, bounds: [&At; 3], body: &[Stmt]) -> Option<Vec<Item>> {
        let number = |(item, _): &At| match item {
            Item::Fixed(value) => value.as_int(),
            _ => None,
        };
        let (start, stop, step) = (number(bounds[0])?, number(bounds[1])?, number(bounds[2])?);
        let rounds = if step > 0 { (stop - start + step - 1) / step } else { (start - stop - step - 1) / -step };
        if rounds > MOST_ROUNDS || jumps(body) {
            return None;
        }
        let names = self.frame().names.clone();
        let allocations = &self.allocations;
        let is_array = |name: &str| match names.get(name) {
            Some(Entry::Item(Item::Array(Memory::Allocation(at)), _)) => allocations[*at].space == Space::Register,
            _ => false,
        };
        let indexes = any(body, &|expr| match &expr.kind {
            ExprKind::Subscript(base, index) => {
                matches!(&base.kind, ExprKind::Name(name) if is_array(name))
                    && within(index, &|expr| matches!(&expr.kind, ExprKind::Name(name) if name == target))
            }
            _ => false,
        });
        indexes.then(|| (0..rounds.max(0)).map(|round| Item::Fixed(Fixed::int(start + round * step))).collect())
    }
}

/// True when a `break` or `continue` belongs to the loop with this body.
fn jumps(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::If { body, orelse, .. } => jumps(body) || jumps(orelse),
        _ => false,
    })
}

/// True when a part of an expression of the statements is as wanted.
fn any(stmts: &[Stmt], wanted: &dyn Fn(&Expr) -> bool) -> bool {
    let here = |expr: &Expr| within(expr, wanted);
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Assign(targets, value) => targets.iter().any(here) || here(value),
        StmtKind::AugAssign(target, _, value) => here(target) || here(value),
        StmtKind::AnnAssign(target, _, value) => here(target) || value.as_ref().is_some_and(here),
        StmtKind::Expr(value) => here(value),
        StmtKind::If { test, body, orelse } => here(test) || any(body, wanted) || any(orelse, wanted),
        StmtKind::For { iterable, body, .. } => here(iterable) || any(body, wanted),
        StmtKind::While { test, body, .. } => here(test) || any(body, wanted),
        _ => false,
    })
}

fn within(expr: &Expr, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    let here = |expr: &Expr| within(expr, wanted);
    wanted(expr)
        || match &expr.kind {
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::BoolOp(_, items) => items.iter().any(here),
            ExprKind::Starred(inner) | ExprKind::Unary(_, inner) | ExprKind::Attribute(inner, _) => here(inner),
            ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => here(a) || here(b),
            ExprKind::Compare(first, rest) => here(first) || rest.iter().any(|(_, expr)| here(expr)),
            ExprKind::Call(function, args) => here(function) || args.iter().any(|arg| here(&arg.value)),
            ExprKind::IfElse { test, body, orelse } => here(test) || here(body) || here(orelse),
            _ => false,
        }
}
