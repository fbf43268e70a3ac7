//! Which of the three styles a kernel is written in.
//!
//! `@ct.kernel` is block style. Under `@tessera.kernel` the body decides: names of `tile` that belong to threads make it
//! SIMT, other names of `tile` make it declarative, and a body without `tile`, with its functions of tiles alone (`tile.mma_sparse`), or that asks which
//! block it is (`import tessera.tile as ct`, `ct.bid(0)`) is block style without the limits of cuTile.

use crate::ast::{Arg, Expr, ExprKind, Function, Stmt, StmtKind};
use crate::builtins::{Builtin, Space};
use crate::file::{Moment, ParsedFile};

/// The style of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Programs of blocks over tiles.
    Block {
        /// True where the limits of cuTile hold: extents that are powers of two, ranges that count up.
        cutile: bool,
    },
    /// Whole operands.
    Declarative,
    /// Programs of threads.
    Simt,
}

/// Members of `tile` that only programs of threads use.
const THREAD_NAMES: &[&str] = &[
    "thread_id",
    "lane_id",
    "warp_id",
    "block_id",
    "block_size",
    "linear_id",
    "alloc_shared",
    "alloc_register",
    "barrier",
    "warp_reduce_sum",
    "warp_reduce_max",
    "warp_reduce_min",
    "cp_async",
    "fragment",
    "array_at",
];

/// Members of `tile` that only programs of blocks use, which have all of `cuda.tile` there.
const BLOCK_NAMES: &[&str] = &["bid", "num_blocks"];

/// The style of a function with a kernel decorator; `None` for other functions.
pub(crate) fn of(file: &ParsedFile, function: &Function, at: Moment) -> Option<Style> {
    function.decorators.iter().find_map(|decorator| match decorator_path(file, decorator, at)?.as_str() {
        // `tessera.tile` has the names of `cuda.tile` beside those of the other styles, which have no `kernel`.
        "cuda.tile.kernel" | "tessera.tile.kernel" => Some(Style::Block { cutile: true }),
        "tessera.kernel" | "tessera.kernel.autotune" => {
            let mut members = Vec::new();
            tile_members(file, &function.body, &mut members);
            Some(if members.iter().any(|member| THREAD_NAMES.contains(&member.as_str())) {
                Style::Simt
            } else if members.iter().any(|member| BLOCK_NAMES.contains(&member.as_str()))
                || members.iter().all(|member| Builtin::find(Space::OwnTile, member).is_some())
            {
                Style::Block { cutile: false }
            } else {
                Style::Declarative
            })
        }
        _ => None,
    })
}

/// The path of a decorator, with or without arguments, at the moment of the definition.
pub(crate) fn decorator_path(file: &ParsedFile, decorator: &Expr, at: Moment) -> Option<String> {
    match &decorator.kind {
        ExprKind::Call(function, _) => file.path_at(function, at),
        _ => file.path_at(decorator, at),
    }
}

/// The arguments of a decorator.
pub(crate) fn decorator_args(decorator: &Expr) -> &[Arg] {
    match &decorator.kind {
        ExprKind::Call(_, args) => args,
        _ => &[],
    }
}

/// Every `tile.member` in a body.
fn tile_members(file: &ParsedFile, stmts: &[Stmt], members: &mut Vec<String>) {
    for stmt in stmts {
        let mut expr = |expr: &Expr| expr_members(file, expr, members);
        match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                targets.iter().for_each(&mut expr);
                expr(value);
            }
            StmtKind::AugAssign(target, _, value) => {
                expr(target);
                expr(value);
            }
            StmtKind::AnnAssign(_, _, value) => value.iter().for_each(expr),
            StmtKind::Expr(value) => expr(value),
            StmtKind::Return(value) | StmtKind::Raise(value) => value.iter().for_each(expr),
            StmtKind::Assert(test, message) => {
                expr(test);
                message.iter().for_each(expr);
            }
            StmtKind::For { iterable, body, .. } => {
                expr(iterable);
                tile_members(file, body, members);
            }
            StmtKind::While { test, body, .. } => {
                expr(test);
                tile_members(file, body, members);
            }
            StmtKind::If { test, body, orelse } => {
                expr(test);
                tile_members(file, body, members);
                tile_members(file, orelse, members);
            }
            StmtKind::Function(function) => tile_members(file, &function.body, members),
            StmtKind::With { items, body } => {
                items.iter().for_each(|(manager, _)| expr(manager));
                tile_members(file, body, members);
            }
            StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Pass
            | StmtKind::Class(_)
            | StmtKind::Import(_)
            | StmtKind::Unsupported(_) => {}
        }
    }
}

fn expr_members(file: &ParsedFile, expr: &Expr, members: &mut Vec<String>) {
    if let ExprKind::Attribute(_, member) = &expr.kind
        && let Some(path) = file.path_of(expr)
        && path.starts_with("tessera.tile.")
    {
        members.push(member.name.clone());
    }
    let mut visit = |expr: &Expr| expr_members(file, expr, members);
    match &expr.kind {
        ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::BoolOp(_, items) => items.iter().for_each(visit),
        ExprKind::Starred(inner) | ExprKind::Unary(_, inner) | ExprKind::Attribute(inner, _) => visit(inner),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => {
            visit(a);
            visit(b);
        }
        ExprKind::Compare(first, rest) => {
            visit(first);
            rest.iter().for_each(|(_, expr)| visit(expr));
        }
        ExprKind::Call(function, args) => {
            visit(function);
            args.iter().for_each(|arg| visit(&arg.value));
        }
        ExprKind::IfElse { test, body, orelse } => {
            visit(test);
            visit(body);
            visit(orelse);
        }
        _ => {}
    }
}
