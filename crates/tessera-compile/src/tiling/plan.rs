//! Which axes the grid runs over, tile sizes, and whether a function can be tiled at all.

use rustc_hash::FxHashSet;
use tessera_ir::{Axis, Block, Diagnostic, Func, GraphOp, Op, OpKind, Type, Value, bug};

/// No tile has more elements than this.
const MAX_TILE: i64 = 1 << 20;

/// Tile extents by role.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    m: u32,
    n: u32,
    pub(super) k: u32,
}

impl Blocks {
    /// The tile extent for an axis at a position.
    pub(super) fn extent(&self, axes: &[Axis], position: usize) -> u32 {
        let wanted = match axes.len() - position {
            1 => self.n,
            2 => self.m,
            _ => 1,
        };
        fit(wanted, &axes[position])
    }
}

/// A tile is no larger than its axis.
pub(super) fn fit(wanted: u32, axis: &Axis) -> u32 {
    match axis {
        Axis::Fixed(extent) => wanted.min(*extent),
        Axis::Symbol(_) => wanted,
    }
}

/// What the emitter follows.
pub(super) struct Plan {
    pub(super) blocks: Blocks,
    /// For a single store, positions of its axes that the grid runs over; for several, positions in the first one, whose axes
    /// the others have too.
    pub(super) parallel: Vec<usize>,
    /// The first store, if there is one.
    pub(super) first: Option<Op>,
}

impl Plan {
    pub(super) fn of(func: &Func) -> Result<Plan, Vec<Diagnostic>> {
        alone(func)?;
        let mut stores = Vec::new();
        collect_stores(func, func.body, &mut stores);
        hazards(func, &stores)?;
        let mut reduced = Vec::new();
        let mut product = false;
        for op in func.linked_ops() {
            let data = &func.ops[op];
            match &data.kind {
                OpKind::Graph(GraphOp::Reduce { axis, .. }) => {
                    if let Type::Tensor(source) = func.ty(data.one(0)) {
                        reduced.push(source.axes[*axis as usize].clone());
                    }
                }
                OpKind::Graph(GraphOp::Contract {}) => product = true,
                _ => {}
            }
        }
        let axes = |store: Op| &func.ty(func.ops[store].one(0)).the_tensor().axes;
        let mut parallel = Vec::new();
        if let Some((&first, others)) = stores.split_first() {
            for (position, axis) in axes(first).iter().enumerate() {
                let repeated = axes(first)[..position].contains(axis);
                let shared = others.is_empty() || (!repeated && others.iter().all(|&other| axes(other).contains(axis)));
                if shared && !reduced.contains(axis) && *axis != Axis::Fixed(1) {
                    parallel.push(position);
                }
            }
        }
        let rank = stores.first().map_or(0, |&store| axes(store).len());
        Ok(Plan { blocks: blocks(func, product, rank)?, parallel, first: stores.first().copied() })
    }
}

/// A block program is one device's: what ranks exchange lies between such programs.
fn alone(func: &Func) -> Result<(), Vec<Diagnostic>> {
    let exchange = |op: &Op| match &func.ops[*op].kind {
        OpKind::Graph(GraphOp::Load { .. } | GraphOp::Store {} | GraphOp::Contract {}) => false,
        OpKind::Graph(GraphOp::Reduce { .. } | GraphOp::Broadcast {}) => false,
        OpKind::Graph(_) => true,
        OpKind::Schedule(_) | OpKind::Tile(_) => false,
    };
    match func.linked_ops().into_iter().find(exchange) {
        Some(op) => {
            let message = format!("`{}` is for several ranks, and no part of one device's kernel", func.ops[op].row().mnemonic);
            Err(vec![
                Diagnostic::error("ranks", func.ops[op].span, message)
                    .help("run the program on its ranks, which exchange between kernels"),
            ])
        }
        None => Ok(()),
    }
}

fn blocks(func: &Func, product: bool, rank: usize) -> Result<Blocks, Vec<Diagnostic>> {
    let read = |names: &[&str], default: i64| {
        let stated = names.iter().find_map(|name| Some((name.to_string(), *func.config.get(*name)?)));
        let (name, value) = stated.unwrap_or((names[0].to_string(), default));
        if (1..=1 << 16).contains(&value) {
            return Ok(value);
        }
        let message = format!("`{name}` is {value}, which is no extent of a tile");
        Err(vec![Diagnostic::error("tile-size", func.span, message).help("choose an extent from 1 to 65536")])
    };
    let (default_m, default_n) = match (product, rank) {
        (true, _) => (128, 128),
        (false, 0 | 1) => (1, 1024),
        (false, _) => (16, 128),
    };
    let (m, n, k) = (read(&["BLOCK_M"], default_m)?, read(&["BLOCK_N", "BLOCK_SIZE"], default_n)?, read(&["BLOCK_K"], 64)?);
    if m * n > MAX_TILE || m * k > MAX_TILE || n * k > MAX_TILE {
        let message = format!("tiles of {m} x {n} x {k} elements are too large");
        return Err(vec![
            Diagnostic::error("tile-size", func.span, message).help("choose a smaller `BLOCK_M`, `BLOCK_N` or `BLOCK_K`"),
        ]);
    }
    Ok(Blocks { m: m as u32, n: n as u32, k: k as u32 })
}

/// Stores in text order, those under conditions too.
fn collect_stores(func: &Func, block: Block, found: &mut Vec<Op>) {
    for &op in &func.blocks[block].ops {
        if func.ops[op].kind == OpKind::Graph(GraphOp::Store {}) {
            found.push(op);
        }
        for &region in &func.ops[op].regions {
            collect_stores(func, region, found);
        }
    }
}

pub(super) fn holds_store(func: &Func, op: Op) -> bool {
    let mut found = Vec::new();
    func.ops[op].regions.iter().for_each(|&region| collect_stores(func, region, &mut found));
    !found.is_empty()
}

/// An operand that is written may be read only where the same tile is written: elementwise, for its one store, which comes
/// after. Anything else would need the whole operand at once.
fn hazards(func: &Func, stores: &[Op]) -> Result<(), Vec<Diagnostic>> {
    let order = func.linked_ops();
    let place = |op: Op| order.iter().position(|&other| other == op);
    let mut found = Vec::new();
    for &reader in stores {
        let mut loads = FxHashSet::default();
        reads(func, func.ops[reader].one(0), false, &mut FxHashSet::default(), &mut loads);
        for &load in &order {
            let GraphOp::Load { transpose } = (match &func.ops[load].kind {
                OpKind::Graph(kind) => kind,
                OpKind::Schedule(_) | OpKind::Tile(_) => continue,
            }) else {
                continue;
            };
            let operand = func.ops[load].one(0);
            let Some(&writer) = stores.iter().find(|&&store| func.ops[store].one(1) == operand) else { continue };
            let alone = stores.iter().filter(|&&store| func.ops[store].one(1) == operand).count() == 1;
            let in_place =
                alone && reader == writer && !transpose && !loads.contains(&(load, true)) && place(load) < place(writer);
            if (loads.contains(&(load, false)) || loads.contains(&(load, true))) && !in_place {
                let message = "this operand is read as a whole and written in the same kernel";
                found.push(
                    Diagnostic::error("operand-hazard", func.ops[load].span, message)
                        .also(func.ops[writer].span, "written here")
                        .help("write the result to another array, or split the kernel in two"),
                );
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// The loads that a value is computed from, each with whether more of it is needed than the tile at the same place.
fn reads(func: &Func, value: Value, whole: bool, seen: &mut FxHashSet<(Value, bool)>, loads: &mut FxHashSet<(Op, bool)>) {
    let Some(op) = func.defining_op(value) else { return };
    if !seen.insert((value, whole)) {
        return;
    }
    let data = &func.ops[op];
    let inner: Vec<Value> = yielded(func, op, value).chain(data.operands.iter().copied()).collect();
    match &data.kind {
        OpKind::Graph(GraphOp::Load { .. }) => {
            loads.insert((op, whole));
        }
        OpKind::Graph(_) => inner.into_iter().for_each(|value| reads(func, value, true, seen, loads)),
        OpKind::Schedule(_) | OpKind::Tile(_) => inner.into_iter().for_each(|value| reads(func, value, whole, seen, loads)),
    }
}

/// What the regions of an `if` yield for one of its results.
pub(crate) fn yielded(func: &Func, op: Op, result: Value) -> impl Iterator<Item = Value> + '_ {
    let position = func.ops[op].results.iter().position(|&other| other == result);
    let position = position.unwrap_or_else(|| bug!("a result of another operation"));
    func.ops[op].regions.iter().filter_map(move |&region| {
        let last = *func.blocks[region].ops.last()?;
        func.ops[last].operands.get(position).copied()
    })
}
