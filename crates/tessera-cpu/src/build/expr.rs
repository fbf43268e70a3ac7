//! Tiles that are not evaluated yet, and the groups that evaluate them.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::{Op, Span};

use super::{Builder, Lane};
use crate::lanes::{FloatOp, IntOp, LaneOp};
use crate::plan::{Fetch, Group, Inst, Node, NodeKind, Place, Reg, Sink};

/// Names an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExprId(u32);

impl ExprId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an expression's elements are.
#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Fetch(Fetch),
    Op(LaneOp, SmallVec<[ExprId; 3]>),
    Load { addresses: ExprId, mask: Option<ExprId>, padding: Option<ExprId>, origin: Option<u16>, strong: bool, op: Op },
}

/// A tile by what its elements are.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) len: usize,
    pub(crate) bytes: u8,
    /// Operands of operations not visited yet that are this tile.
    pub(crate) uses: u32,
    pub(crate) users: Vec<ExprId>,
    pub(crate) region: u32,
    /// A group has fetched it.
    pub(crate) fetched: bool,
    pub(crate) span: Span,
}

/// Makes a sink from the nodes of its expressions.
type MakeSink = Box<dyn FnOnce(&[u16]) -> Sink>;

/// A sink before its expressions have nodes.
pub(crate) enum Wanted {
    Place(ExprId, Place),
    /// Anything else: the expressions, and the sink made from their nodes.
    Sink(SmallVec<[ExprId; 3]>, MakeSink),
}

/// Elements of a strip: the registers of a chain of a few operations stay in the first-level cache.
const STRIP: usize = 1024;

/// Repeating an expression dearer than this costs more than keeping it.
const CHEAP: u32 = 2;

impl Builder<'_> {
    fn new_expr(&mut self, kind: ExprKind, len: usize, bytes: u8) -> ExprId {
        let id = ExprId(self.exprs.len() as u32);
        let children: SmallVec<[ExprId; 3]> = children(&kind);
        for child in children {
            self.exprs[child.index()].users.push(id);
        }
        self.exprs.push(Expr {
            kind,
            len,
            bytes,
            uses: 0,
            users: Vec::new(),
            region: self.region,
            fetched: false,
            span: self.span,
        });
        id
    }

    pub(super) fn uniform(&mut self, reg: Reg, len: usize, bytes: u8) -> ExprId {
        self.new_expr(ExprKind::Fetch(Fetch::Uniform(reg)), len, bytes)
    }

    pub(super) fn place_expr(&mut self, place: Place, len: usize, bytes: u8) -> ExprId {
        self.new_expr(ExprKind::Fetch(Fetch::Place(place)), len, bytes)
    }

    pub(super) fn fetch(&mut self, fetch: Fetch, len: usize, bytes: u8) -> ExprId {
        let memory = matches!(fetch, Fetch::View(_));
        let id = self.new_expr(ExprKind::Fetch(fetch), len, bytes);
        if memory {
            self.loads.push(id);
        }
        id
    }

    pub(super) fn load(
        &mut self,
        addresses: ExprId,
        [mask, padding]: [Option<ExprId>; 2],
        (origin, strong): (Option<u16>, bool),
        bytes: u8,
    ) -> ExprId {
        let len = self.exprs[addresses.index()].len;
        let id = self.new_expr(ExprKind::Load { addresses, mask, padding, origin, strong, op: self.op }, len, bytes);
        self.loads.push(id);
        id
    }

    /// The operation's expression; conversions there and back are left out, and repeated conversions are found.
    pub(super) fn operation(&mut self, op: LaneOp, src: SmallVec<[ExprId; 3]>, len: usize, bytes: u8) -> ExprId {
        if let (LaneOp::Narrow(to), ExprKind::Op(LaneOp::Round(from), inner)) = (op, &self.exprs[src[0].index()].kind) {
            if to == *from {
                let inner = inner.clone();
                return self.operation(op, inner, len, bytes);
            }
        }
        if matches!(op, LaneOp::Narrow(_) | LaneOp::Widen(_)) {
            let known = self.exprs[src[0].index()].users.iter().copied().find(|user| {
                let user = &self.exprs[user.index()];
                user.region == self.region && matches!(&user.kind, ExprKind::Op(known, _) if *known == op)
            });
            if let Some(known) = known {
                return known;
            }
        }
        let id = self.new_expr(ExprKind::Op(op, src), len, bytes);
        if !self.options.fuse && !self.strips {
            self.evaluated(id);
        }
        id
    }

    /// The expression of a lane, over as many elements.
    pub(super) fn lane_expr(&mut self, lane: Lane, len: usize, bytes: u8) -> ExprId {
        match lane {
            Lane::Expr(expr) => expr,
            Lane::Reg(reg) => self.uniform(reg, len, bytes),
        }
    }

    /// True for what can be evaluated anywhere, any number of times.
    pub(super) fn is_free(&self, expr: ExprId) -> bool {
        match &self.exprs[expr.index()].kind {
            ExprKind::Fetch(Fetch::View(_)) | ExprKind::Load { .. } | ExprKind::Op(..) => false,
            ExprKind::Fetch(_) => true,
        }
    }

    /// The place of an expression, evaluated now if it has none.
    pub(super) fn evaluated(&mut self, expr: ExprId) -> Place {
        if let ExprKind::Fetch(Fetch::Place(place)) = self.exprs[expr.index()].kind {
            return place;
        }
        let (len, bytes) = (self.exprs[expr.index()].len, self.exprs[expr.index()].bytes);
        let place = self.buffer(len, bytes as usize);
        self.run(vec![Wanted::Place(expr, place)]);
        place
    }

    /// Whether something after the operation being visited needs the expression, other than through the group.
    fn needed_elsewhere(&self, expr: ExprId, group: &[ExprId]) -> bool {
        if self.exprs[expr.index()].uses > 0 {
            return true;
        }
        let mut seen: FxHashSet<ExprId> = FxHashSet::default();
        let mut stack: Vec<ExprId> = Vec::new();
        let follow = |of: ExprId, stack: &mut Vec<ExprId>, seen: &mut FxHashSet<ExprId>| {
            for &user in &self.exprs[of.index()].users {
                // An evaluated user reads its place instead.
                let reads = children(&self.exprs[user.index()].kind).contains(&of);
                if reads && !(of == expr && group.contains(&user)) && seen.insert(user) {
                    stack.push(user);
                }
            }
        };
        follow(expr, &mut stack, &mut seen);
        while let Some(user) = stack.pop() {
            if self.exprs[user.index()].uses > 0 {
                return true;
            }
            follow(user, &mut stack, &mut seen);
        }
        false
    }

    fn reach(&self, expr: ExprId, order: &mut Vec<ExprId>) {
        if order.contains(&expr) {
            return;
        }
        for child in children(&self.exprs[expr.index()].kind) {
            self.reach(child, order);
        }
        order.push(expr);
    }

    /// Every expression that the roots need, operands first.
    fn reached(&self, roots: &[ExprId]) -> Vec<ExprId> {
        let mut order = Vec::new();
        for &root in roots {
            self.reach(root, &mut order);
        }
        order
    }

    /// True if evaluating the expression reads memory that a write through the origin may touch.
    pub(super) fn reads_memory(&self, expr: ExprId, written: Option<u16>) -> bool {
        self.reached(&[expr]).into_iter().any(|e| match &self.exprs[e.index()].kind {
            ExprKind::Fetch(Fetch::View(access)) => self.may_alias(access.origin, written),
            ExprKind::Load { origin, .. } => self.may_alias(*origin, written),
            _ => false,
        })
    }

    /// Whether evaluating the expression reads the place, and whether only element by element.
    pub(super) fn reads_place(&self, expr: ExprId, place: Place) -> (bool, bool) {
        let mut found = (false, true);
        for e in self.reached(&[expr]) {
            match &self.exprs[e.index()].kind {
                ExprKind::Fetch(Fetch::Place(p)) if *p == place => found.0 = true,
                ExprKind::Fetch(Fetch::Strided { place: p, .. }) if *p == place => found = (true, false),
                ExprKind::Fetch(Fetch::View(access)) => {
                    if access.axes.iter().any(|axis| axis.gather.is_some_and(|(p, _)| p == place)) {
                        found = (true, false);
                    }
                }
                _ => {}
            }
        }
        found
    }

    pub(super) fn may_alias(&self, a: Option<u16>, b: Option<u16>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => a == b || !self.options.distinct,
            _ => true,
        }
    }

    /// Evaluates the loads that a write through the origin may disturb and that are needed after it. What the write itself stores is for
    /// it to evaluate.
    pub(super) fn before_write(&mut self, written: Option<u16>) {
        self.evaluate_loads(|this, origin| this.may_alias(origin, written));
        match written {
            Some(origin) if (origin as usize) < self.func.args().len() => {
                if !self.written.contains(&origin) {
                    self.written.push(origin);
                }
            }
            _ => self.written_elsewhere = true,
        }
    }

    /// Evaluates every load that is still needed: other blocks are told, or asked, how far this one has come.
    pub(super) fn before_fence(&mut self) {
        self.evaluate_loads(|_, _| true);
    }

    /// Evaluates the loads of such origins that are still needed.
    fn evaluate_loads(&mut self, disturbed: impl Fn(&Self, Option<u16>) -> bool) {
        let mut pending = std::mem::take(&mut self.loads);
        pending.retain(|&load| !matches!(self.exprs[load.index()].kind, ExprKind::Fetch(Fetch::Place(_))));
        for &load in &pending {
            let origin = match &self.exprs[load.index()].kind {
                ExprKind::Fetch(Fetch::View(access)) => access.origin,
                ExprKind::Load { origin, .. } => *origin,
                _ => continue,
            };
            if disturbed(self, origin) && self.needed_elsewhere(load, &[]) {
                self.evaluated(load);
            }
        }
        self.loads = pending;
    }

    /// What each expression of a group costs to repeat, operands first as in the group.
    fn costs(&self, order: &[ExprId]) -> FxHashMap<ExprId, u32> {
        let mut costs: FxHashMap<ExprId, u32> = FxHashMap::default();
        for &expr in order {
            let of = |child: &ExprId| costs.get(child).copied().unwrap_or(0);
            let cost = match &self.exprs[expr.index()].kind {
                ExprKind::Fetch(_) => 0,
                ExprKind::Load { addresses, .. } => 6 + of(addresses),
                ExprKind::Op(op, src) => op_cost(*op) + src.iter().map(of).sum::<u32>(),
            };
            costs.insert(expr, cost.min(CHEAP + 1));
        }
        costs
    }

    /// Evaluates what is wanted as one group, and keeps what later operations would otherwise have to repeat.
    pub(super) fn run(&mut self, wanted: Vec<Wanted>) {
        let (group, kept) = self.group(wanted);
        for &place in &group.places {
            self.touch(place);
        }
        self.emit(Inst::Group(Box::new(group.group)));
        for (expr, place) in kept {
            self.exprs[expr.index()].kind = ExprKind::Fetch(Fetch::Place(place));
        }
    }

    /// Evaluates into a place that is overwritten later (a carried value's): the expression is not remembered as standing there.
    pub(super) fn run_into(&mut self, expr: ExprId, place: Place) {
        let kind = self.exprs[expr.index()].kind.clone();
        self.run(vec![Wanted::Place(expr, place)]);
        self.exprs[expr.index()].kind = kind;
    }

    fn group(&mut self, wanted: Vec<Wanted>) -> (Grouped, Vec<(ExprId, Place)>) {
        let mut roots: Vec<ExprId> = Vec::new();
        for want in &wanted {
            match want {
                Wanted::Place(expr, _) => roots.push(*expr),
                Wanted::Sink(exprs, _) => roots.extend_from_slice(exprs),
            }
        }
        let order = self.reached(&roots);
        let len = roots.first().map_or(0, |root| self.exprs[root.index()].len);
        let mut kept: Vec<(ExprId, Place)> = Vec::new();
        let mut sinks: Vec<Sink> = Vec::new();
        let node_of = |expr: ExprId| order.iter().position(|&e| e == expr).unwrap_or(0) as u16;
        for want in wanted {
            match want {
                Wanted::Place(expr, place) => {
                    // A value of another region is evaluated for this one only: the place may not be reached later.
                    if self.exprs[expr.index()].region == self.region
                        && !matches!(self.exprs[expr.index()].kind, ExprKind::Fetch(Fetch::Place(_)))
                    {
                        kept.push((expr, place));
                    }
                    sinks.push(Sink::Place { node: node_of(expr), place });
                }
                Wanted::Sink(exprs, make) => {
                    let nodes: SmallVec<[u16; 3]> = exprs.iter().map(|&e| node_of(e)).collect();
                    sinks.push(make(&nodes));
                }
            }
        }
        if !self.strips {
            let costs = self.costs(&order);
            for (node, &expr) in order.iter().enumerate() {
                let data = &self.exprs[expr.index()];
                let dear = !matches!(data.kind, ExprKind::Fetch(_)) && costs[&expr] > CHEAP;
                if dear
                    && data.region == self.region
                    && !kept.iter().any(|(e, _)| *e == expr)
                    && self.needed_elsewhere(expr, &order)
                {
                    let (elements, bytes) = (data.len, data.bytes as usize);
                    let place = self.buffer(elements, bytes);
                    kept.push((expr, place));
                    sinks.push(Sink::Place { node: node as u16, place });
                }
            }
        }

        let mut places: Vec<Place> = Vec::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(order.len());
        for &expr in &order {
            let data = &self.exprs[expr.index()];
            let kind = match &data.kind {
                ExprKind::Fetch(fetch) => {
                    match fetch {
                        Fetch::Place(place) | Fetch::Strided { place, .. } => places.push(*place),
                        Fetch::View(access) => places.extend(access.axes.iter().filter_map(|axis| axis.gather.map(|g| g.0))),
                        Fetch::Counting { .. } | Fetch::Uniform(_) | Fetch::Param(_) => {}
                    }
                    NodeKind::Fetch(fetch.clone())
                }
                ExprKind::Op(op, src) => NodeKind::Op(*op, src.iter().map(|&e| node_of(e)).collect()),
                ExprKind::Load { addresses, mask, padding, origin, strong, op } => NodeKind::Load {
                    addresses: node_of(*addresses),
                    mask: mask.map(node_of),
                    padding: padding.map(node_of),
                    origin: *origin,
                    strong: *strong,
                    op: *op,
                },
            };
            nodes.push(Node { kind, bytes: data.bytes, slot: 0, direct: false, again: data.fetched, span: data.span });
        }
        order.iter().for_each(|expr| self.exprs[expr.index()].fetched = true);
        for sink in &sinks {
            match sink {
                Sink::Place { place, .. } | Sink::Reduce { place, .. } => places.push(*place),
                Sink::View { access, .. } => places.extend(access.axes.iter().filter_map(|axis| axis.gather.map(|g| g.0))),
                _ => {}
            }
        }
        // A node may be written straight to its place, unless the group reads that place too.
        for sink in &sinks {
            if let Sink::Place { node, place } = sink {
                let read = nodes.iter().any(|n| match &n.kind {
                    NodeKind::Fetch(Fetch::Place(p) | Fetch::Strided { place: p, .. }) => p == place,
                    _ => false,
                });
                let first = sinks.iter().position(|s| matches!(s, Sink::Place { node: n, .. } if n == node));
                let own = first.is_some_and(|first| std::ptr::eq(&sinks[first], sink));
                nodes[*node as usize].direct |= own && !read && !matches!(nodes[*node as usize].kind, NodeKind::Fetch(_));
            }
        }
        let slots = assign_slots(&mut nodes, &sinks);
        let slot_bytes = nodes.iter().map(|node| u16::from(node.bytes)).max().unwrap_or(8).max(1);
        let strip = strip_length(&sinks, len);
        let operations = nodes.iter().filter(|node| matches!(node.kind, NodeKind::Op(..))).count();
        if operations >= 2 && len > 1 {
            let loads =
                nodes.iter().filter(|n| matches!(n.kind, NodeKind::Fetch(Fetch::View(_)) | NodeKind::Load { .. })).count();
            let stores = sinks.iter().filter(|s| matches!(s, Sink::View { .. } | Sink::Scatter { .. })).count();
            let reductions = sinks.iter().filter(|s| matches!(s, Sink::Reduce { .. })).count();
            self.notes.push(format!(
                "fused {operations} operations over {len} elements: {loads} loads, {stores} stores, {reductions} reductions"
            ));
        }
        let tape = if self.strips || !self.options.fuse { None } else { super::tape::compile(&nodes, &sinks, len) };
        if let Some(tape) = &tape {
            self.scratch_bytes = self.scratch_bytes.max(tape.scratch_bytes(&nodes, &sinks));
        }
        let group = Group { len, strip, nodes, sinks, slots, slot_bytes, tape };
        self.scratch_bytes = self.scratch_bytes.max(group.slots_size());
        (Grouped { group, places }, kept)
    }

    /// The group of a region that runs over strips: results are parameters.
    pub(super) fn strip_group(&mut self, results: &[ExprId]) -> Group {
        let wanted = results
            .iter()
            .enumerate()
            .map(|(position, &expr)| {
                let make = move |nodes: &[u16]| Sink::Param { node: nodes[0], position: position as u8 };
                Wanted::Sink(SmallVec::from_slice(&[expr]), Box::new(make) as MakeSink)
            })
            .collect();
        self.group(wanted).0.group
    }
}

struct Grouped {
    group: Group,
    places: Vec<Place>,
}

fn children(kind: &ExprKind) -> SmallVec<[ExprId; 3]> {
    match kind {
        ExprKind::Fetch(_) => SmallVec::new(),
        ExprKind::Op(_, src) => src.clone(),
        ExprKind::Load { addresses, mask, padding, .. } => [Some(*addresses), *mask, *padding].into_iter().flatten().collect(),
    }
}

fn op_cost(op: LaneOp) -> u32 {
    match op {
        LaneOp::Float(op, _) => match op {
            FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Fma | FloatOp::Abs | FloatOp::Neg => 1,
            FloatOp::Max | FloatOp::Min | FloatOp::MaxNan | FloatOp::MinNan => 1,
            FloatOp::Ceil | FloatOp::Floor | FloatOp::Flush => 1,
            FloatOp::Div | FloatOp::Sqrt | FloatOp::Rsqrt => 3,
            _ => 10,
        },
        LaneOp::Int(IntOp::Div | IntOp::DivFloor | IntOp::DivCeil | IntOp::Rem, ..) => 10,
        LaneOp::Directed(..) | LaneOp::Recode(..) | LaneOp::Encode(..) | LaneOp::PowInt(..) | LaneOp::NarrowFma(_) => 20,
        LaneOp::Widen(_) => 1,
        LaneOp::Narrow(_) | LaneOp::Round(_) => 1,
        _ => 1,
    }
}

/// Rows of a reduction are not cut where whole ones fit.
fn strip_length(sinks: &[Sink], len: usize) -> usize {
    let mut strip = STRIP;
    for sink in sinks {
        if let Sink::Reduce { extents: [_, middle, inner], .. } = sink {
            let row = if *inner == 1 { *middle } else { *inner };
            if row <= STRIP {
                strip = STRIP / row * row;
            }
        }
    }
    strip.min(len.max(1))
}

fn is_uniform(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Fetch(fetch) if fetch.is_uniform())
}

/// Gives nodes strip registers so that a result never shares one with what is still read; how many there are.
fn assign_slots(nodes: &mut [Node], sinks: &[Sink]) -> u16 {
    let count = nodes.len();
    let mut last = vec![0_usize; count];
    for (i, node) in nodes.iter().enumerate() {
        match &node.kind {
            NodeKind::Fetch(_) => {}
            NodeKind::Op(_, src) => src.iter().for_each(|&s| last[s as usize] = i),
            NodeKind::Load { addresses, mask, padding, .. } => {
                for s in [Some(*addresses), *mask, *padding].into_iter().flatten() {
                    last[s as usize] = i;
                }
            }
        }
    }
    let mut keep = |node: u16| last[node as usize] = count;
    for sink in sinks {
        match sink {
            Sink::Place { node, .. }
            | Sink::View { node, .. }
            | Sink::Reduce { node, .. }
            | Sink::Param { node, .. }
            | Sink::Assert { node, .. }
            | Sink::Assume { node, .. }
            | Sink::ShiftCount { node, .. } => keep(*node),
            Sink::Scatter { addresses, value, mask, .. } => {
                keep(*addresses);
                keep(*value);
                mask.iter().for_each(|&m| keep(m));
            }
        }
    }
    for (i, node) in nodes.iter().enumerate() {
        // Filled once for all strips.
        if is_uniform(node) {
            last[i] = count;
        }
    }
    let mut owner: Vec<Option<usize>> = Vec::new();
    // Uniform strips are filled before the first strip runs: they come first and are never shared.
    for (i, node) in nodes.iter_mut().enumerate() {
        if is_uniform(node) {
            node.slot = owner.len() as u16;
            owner.push(Some(i));
        }
    }
    for (i, node) in nodes.iter_mut().enumerate() {
        if is_uniform(node) {
            continue;
        }
        // A register is free once the last reader came before this node.
        let free = owner.iter().position(|slot| slot.is_none_or(|holder| last[holder] < i));
        let slot = free.unwrap_or_else(|| {
            owner.push(None);
            owner.len() - 1
        });
        owner[slot] = Some(i);
        node.slot = slot as u16;
    }
    owner.len() as u16
}
