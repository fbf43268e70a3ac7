//! Groups of `f32` arithmetic as tapes.
//!
//! The order of the group's operations is kept. A result that only the next operation reads stays in the accumulator; others are
//! kept near. A group qualifies when it fetches `f32` in rows that are long enough, and computes what tapes have steps for.

use smallvec::SmallVec;

use crate::kernels::reduce::LANES;
use crate::kernels::tape::{Code, KEPT};
use crate::lanes::{Float, FloatOp, LaneOp};
use crate::plan::{Fetch, Node, NodeKind, Place, ReduceLane, Sink, Source, Tape, TapeStep};

/// Rows shorter than this cost more to bind than strips cost to walk.
const ROW: usize = 256;

/// Results kept: what fits the first-level cache with ease.
const MOST_KEPT: u16 = 16;

/// Elements that a tape takes from a tile that does not stand in memory in its own order: it is gathered so far.
pub(crate) const GATHERED: usize = 1024;

/// What a node computes, with its operands in the operation's order.
enum Operation {
    /// Commutes.
    Symmetric(Code),
    /// The first operand in the accumulator, or the second.
    Sided(Code, Code),
    MulAdd,
    Unary(Code),
}

fn operation(op: LaneOp) -> Option<Operation> {
    let LaneOp::Float(op, Float::F32) = op else { return None };
    Some(match op {
        FloatOp::Add => Operation::Symmetric(Code::Add),
        FloatOp::Mul => Operation::Symmetric(Code::Mul),
        FloatOp::Sub => Operation::Sided(Code::Sub, Code::SubFrom),
        FloatOp::Div => Operation::Sided(Code::Div, Code::DivInto),
        FloatOp::Fma => Operation::MulAdd,
        _ if op.operands() == 1 => Operation::Unary(Code::Call(op)),
        _ => Operation::Sided(Code::CallWith(op), Code::CallFrom(op)),
    })
}

impl Tape {
    /// Memory for what is kept, for gathered tiles and for running values.
    pub(crate) fn scratch_bytes(&self, nodes: &[Node], sinks: &[Sink]) -> usize {
        self.kept as usize * KEPT * 4 + (nodes.len() + sinks.len()) * GATHERED * 4 + LANES * 4 * sinks.len()
    }
}

/// The group's tape, if it is one.
pub(super) fn compile(nodes: &[Node], sinks: &[Sink], len: usize) -> Option<Tape> {
    let rows = rows(nodes, sinks, len)?;
    let mut uses = vec![0_u32; nodes.len()];
    for node in nodes {
        if let NodeKind::Op(_, src) = &node.kind {
            src.iter().for_each(|&s| uses[s as usize] += 1);
        }
    }
    let mut tape = Writer { steps: Vec::new(), kept: vec![None; nodes.len()], count: 0, held: None };
    // What is only fetched and put elsewhere goes first: it takes the accumulator.
    for (i, node) in nodes.iter().enumerate() {
        if matches!(node.kind, NodeKind::Fetch(_)) && sinks.iter().any(|sink| sunk(sink) == Some(i as u16)) {
            tape.load(i as u16, nodes);
            tape.sinks(i as u16, sinks);
        }
    }
    let operations: Vec<(usize, LaneOp, &[u16])> = nodes
        .iter()
        .enumerate()
        .filter_map(|(i, node)| match &node.kind {
            NodeKind::Op(op, src) => Some((i, *op, src.as_slice())),
            _ => None,
        })
        .collect();
    for (position, &(i, op, src)) in operations.iter().enumerate() {
        tape.operation(operation(op)?, src, nodes);
        tape.held = Some(i as u16);
        tape.sinks(i as u16, sinks);
        // Only the next operation reads it, and once, or as a square.
        let passed = uses[i] == 0
            || operations.get(position + 1).is_some_and(|&(_, next, src)| {
                let square = next == LaneOp::Float(FloatOp::Mul, Float::F32);
                let read = src.iter().filter(|&&s| s as usize == i).count() as u32;
                read == uses[i] && (read == 1 || square)
            });
        if !passed {
            tape.keep(i as u16);
        }
    }
    (tape.count <= MOST_KEPT).then_some(Tape { steps: tape.steps, kept: tape.count, rows })
}

/// The node that a sink takes.
fn sunk(sink: &Sink) -> Option<u16> {
    match sink {
        Sink::Place { node, .. } | Sink::View { node, .. } | Sink::Reduce { node, .. } => Some(*node),
        _ => None,
    }
}

/// Lengths of the rows that operands follow; `None` where the group is no tape.
fn rows(nodes: &[Node], sinks: &[Sink], len: usize) -> Option<SmallVec<[usize; 2]>> {
    let mut rows: SmallVec<[usize; 2]> = SmallVec::new();
    let mut read: Vec<Place> = Vec::new();
    let row = |length: usize, rows: &mut SmallVec<[usize; 2]>| {
        if length != len && !rows.contains(&length) {
            rows.push(length);
        }
        length >= ROW || length == len
    };
    if len < LANES {
        return None;
    }
    for node in nodes {
        let fits = match &node.kind {
            NodeKind::Fetch(fetch) if node.bytes == 4 => match fetch {
                Fetch::Place(place) => {
                    read.push(*place);
                    true
                }
                Fetch::Strided { place, extents, strides, .. } => {
                    read.push(*place);
                    let stride = strides.last().copied().unwrap_or(0);
                    fetch.is_uniform() || (stride == 0 || stride == 1) && row(*extents.last()?, &mut rows)
                }
                Fetch::Uniform(_) | Fetch::View(_) => true,
                Fetch::Counting { .. } | Fetch::Param(_) => false,
            },
            NodeKind::Op(op, _) => operation(*op).is_some(),
            _ => false,
        };
        if !fits {
            return None;
        }
    }
    for sink in sinks {
        let fits = match sink {
            // Other elements of what is written must not be read later.
            Sink::Place { place, .. } => !read.contains(place),
            Sink::View { .. } => true,
            Sink::Reduce { lane: ReduceLane::F32, extents: [_, middle, 1], .. } => row(*middle, &mut rows),
            // Only checked launches look at them, and run no tapes.
            Sink::Assume { .. } | Sink::ShiftCount { .. } => true,
            _ => false,
        };
        if !fits {
            return None;
        }
    }
    // Running values go on at a multiple of their number from the start of their row.
    let apart = |sink: &Sink| matches!(sink, Sink::Reduce { extents: [_, middle, _], .. } if rows[..] != [*middle]);
    (rows.iter().all(|row| row % LANES == 0) || !sinks.iter().any(apart)).then_some(rows)
}

struct Writer {
    steps: Vec<TapeStep>,
    /// Where results are kept.
    kept: Vec<Option<u16>>,
    count: u16,
    /// The node whose result is in the accumulator.
    held: Option<u16>,
}

impl Writer {
    fn step(&mut self, code: Code, a: Source, b: Source) {
        self.steps.push(TapeStep { code, a, b });
    }

    fn source(&self, node: u16, nodes: &[Node]) -> Source {
        match (&nodes[node as usize].kind, self.kept[node as usize]) {
            (NodeKind::Fetch(_), _) => Source::Fetched(node),
            (_, Some(kept)) => Source::Kept(kept),
            (_, None) => Source::None,
        }
    }

    fn load(&mut self, node: u16, nodes: &[Node]) {
        if self.held != Some(node) {
            let source = self.source(node, nodes);
            self.step(Code::Load, source, Source::None);
            self.held = Some(node);
        }
    }

    fn keep(&mut self, node: u16) {
        self.kept[node as usize] = Some(self.count);
        self.step(Code::Store, Source::Kept(self.count), Source::None);
        self.count += 1;
    }

    fn sinks(&mut self, node: u16, sinks: &[Sink]) {
        for (position, sink) in sinks.iter().enumerate() {
            if sunk(sink) != Some(node) {
                continue;
            }
            let code = if let Sink::Reduce { combine, .. } = sink { Code::Reduce(*combine) } else { Code::Store };
            self.step(code, Source::Sink(position as u16), Source::None);
        }
    }

    fn operation(&mut self, operation: Operation, src: &[u16], nodes: &[Node]) {
        // The accumulator is one operand: what it holds, or else the first.
        let held = self.held.and_then(|held| src.iter().position(|&s| s == held));
        let at = held.unwrap_or(0);
        self.load(src[at], nodes);
        let other = |position: usize| self.source(src[position], nodes);
        match operation {
            Operation::Symmetric(Code::Mul) if src[0] == src[1] => self.step(Code::Square, Source::None, Source::None),
            Operation::Symmetric(code) => self.step(code, other(1 - at), Source::None),
            Operation::Sided(first, second) => self.step(if at == 0 { first } else { second }, other(1 - at), Source::None),
            Operation::MulAdd if at == 2 => self.step(Code::AddMul, other(0), other(1)),
            Operation::MulAdd => self.step(Code::MulAdd, other(1 - at), other(2)),
            Operation::Unary(code) => self.step(code, Source::None, Source::None),
        }
    }
}
