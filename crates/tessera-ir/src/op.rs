//! The operation of any dialect, and the attribute text that rows share.

use indexmap::IndexMap;

use crate::attrs::Attr;
use crate::diag::{Diagnostic, Span};
use crate::dialect::Row;
use crate::effect::Effect;
use crate::graph::GraphOp;
use crate::schedule::ScheduleOp;
use crate::text::cursor::{Cursor, Parsed};
use crate::tile::TileOp;

/// What an operation is, attributes included; operands, results and regions stand in [`crate::OpData`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Whole operands.
    Graph(GraphOp),
    /// Tiles.
    Schedule(ScheduleOp),
    /// Threads and what they share.
    Tile(TileOp),
}

impl OpKind {
    /// What is declared about the operation.
    pub fn row(&self) -> &'static Row {
        match self {
            OpKind::Graph(op) => op.row(),
            OpKind::Schedule(op) => op.row(),
            OpKind::Tile(op) => op.row(),
        }
    }

    /// What it does to which memory, as its row says.
    pub fn effects(&self) -> &'static [Effect] {
        self.row().memory
    }

    /// The Schedule operation, if it is one.
    pub fn schedule(&self) -> Option<&ScheduleOp> {
        match self {
            OpKind::Schedule(op) => Some(op),
            OpKind::Graph(_) | OpKind::Tile(_) => None,
        }
    }

    /// The Tile operation, if it is one.
    pub fn tile(&self) -> Option<&TileOp> {
        match self {
            OpKind::Tile(op) => Some(op),
            OpKind::Graph(_) | OpKind::Schedule(_) => None,
        }
    }

    pub(crate) fn print_attrs(&self, out: &mut String) {
        match self {
            OpKind::Graph(op) => op.print_attrs(out),
            OpKind::Schedule(op) => op.print_attrs(out),
            OpKind::Tile(op) => op.print_attrs(out),
        }
    }

    pub(crate) fn parse(mnemonic: &str, attrs: &mut AttrTexts<'_>) -> Option<Parsed<OpKind>> {
        if let Some(op) = ScheduleOp::parse(mnemonic, attrs) {
            return Some(op.map(OpKind::Schedule));
        }
        if let Some(op) = TileOp::parse(mnemonic, attrs) {
            return Some(op.map(OpKind::Tile));
        }
        GraphOp::parse(mnemonic, attrs).map(|op| op.map(OpKind::Graph))
    }

    /// The row of a mnemonic.
    pub fn find_row(mnemonic: &str) -> Option<&'static Row> {
        ScheduleOp::ROWS.iter().chain(TileOp::ROWS).chain(GraphOp::ROWS).find(|row| row.mnemonic == mnemonic)
    }
}

impl From<ScheduleOp> for OpKind {
    fn from(op: ScheduleOp) -> Self {
        OpKind::Schedule(op)
    }
}

impl From<GraphOp> for OpKind {
    fn from(op: GraphOp) -> Self {
        OpKind::Graph(op)
    }
}

impl From<TileOp> for OpKind {
    fn from(op: TileOp) -> Self {
        OpKind::Tile(op)
    }
}

/// Appends `name=value` unless the value is implied.
pub(crate) fn print_attr<T: Attr>(name: &str, value: &T, out: &mut String) {
    if T::implied().is_some_and(|implied| implied == *value) {
        return;
    }
    if !out.is_empty() {
        out.push_str(", ");
    }
    out.push_str(name);
    out.push('=');
    value.print(out);
}

/// The attributes written on one operation, each with a cursor at its value.
pub(crate) struct AttrTexts<'a> {
    values: IndexMap<&'a str, Cursor<'a>>,
    op: Span,
}

impl<'a> AttrTexts<'a> {
    /// The attributes by name; `op` is blamed for what is missing.
    pub(crate) fn new(values: IndexMap<&'a str, Cursor<'a>>, op: Span) -> Self {
        AttrTexts { values, op }
    }

    /// Reads the attribute, or yields what is implied.
    pub(crate) fn take<T: Attr>(&mut self, name: &str) -> Parsed<T> {
        match self.values.shift_remove(name) {
            Some(mut cursor) => {
                let value = T::parse(&mut cursor)?;
                if !(cursor.peek(",") || cursor.peek("}")) {
                    return Err(cursor.unexpected("`,` or `}` after the attribute"));
                }
                Ok(value)
            }
            None => T::implied().ok_or_else(|| {
                Box::new(Diagnostic::error("ir-attribute", self.op, format!("the attribute `{name}` is missing")))
            }),
        }
    }

    /// The first attribute that nobody took.
    pub(crate) fn left_over(&self) -> Option<&'a str> {
        self.values.keys().next().copied()
    }
}
