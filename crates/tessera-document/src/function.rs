//! One function: its level, its statements in order, and what operation each is.

use rustc_hash::FxHashMap;

use crate::emit::{Bound, Emit, WithHelp};
use crate::memref::{Memref, Space, Ty};
use crate::syntax::{Body, Function, Operand, Statement};
use tessera_ir::attrs::GridAxis;
use tessera_ir::text::cursor::{Cursor, Parsed};
use tessera_ir::{Builder, Diagnostic, Func, Level, ScheduleOp, TileOp, Type};
use tessera_types::DType;

/// Names that an operation has besides its own.
fn own_name(name: &str) -> &str {
    match name {
        "tile.wait_group" | "tile.async_wait" => "tile.cp_wait_group",
        "tile.commit_group" => "tile.cp_commit_group",
        "tile.copy_async" => "tile.cp_async",
        "tile.all_reduce" => "tile.allreduce",
        "tile.all_gather" => "tile.allgather",
        "func.return" => "return",
        name => name,
    }
}

/// Reads a function behind its first word.
pub(crate) fn function(cursor: &mut Cursor<'_>) -> Parsed<Func> {
    let mut written = crate::syntax::function(cursor)?;
    rename(&mut written.body);
    let level = if multiplies_arrays(&written) { Level::Graph } else { Level::Tile };
    let mut func = Func::new(written.name.text, level, written.name.span);
    let body = func.body;
    let deep = deep_buffers(&written);
    let mut emit = Emit {
        at: Builder { func: &mut func, block: body, span: written.name.span },
        names: FxHashMap::default(),
        defined: Vec::new(),
        cells: Vec::new(),
        arrays: Vec::new(),
        deep,
    };
    emit.function(&written)?;
    Ok(func)
}

fn rename(statements: &mut [Statement<'_>]) {
    for statement in statements {
        statement.name.text = own_name(statement.name.text);
        match &mut *statement.body {
            Body::None => {}
            Body::For { body, .. } => rename(body),
            Body::If { then, orelse } => {
                rename(then);
                rename(orelse);
            }
        }
    }
}

/// Calls with every statement, those of regions included.
pub(crate) fn each<'s, 'a>(statements: &'s [Statement<'a>], visit: &mut impl FnMut(&'s Statement<'a>)) {
    for statement in statements {
        visit(statement);
        match &*statement.body {
            Body::None => {}
            Body::For { body, .. } => each(body, visit),
            Body::If { then, orelse } => {
                each(then, visit);
                each(orelse, visit);
            }
        }
    }
}

/// A product takes a parameter in global memory, whole.
fn multiplies_arrays(function: &Function<'_>) -> bool {
    let global = |name: &str| {
        function.parameters.iter().any(|parameter| {
            parameter.name.text == name && matches!(&parameter.ty, Ty::Memref(Memref { space: Space::Open | Space::Global, .. }))
        })
    };
    let mut found = false;
    each(&function.body, &mut |statement| {
        let takes =
            |operand: &Operand<'_>| matches!(operand, Operand::Value { name, lists } if lists.is_empty() && global(name.text));
        found |= statement.name.text == "tile.mma" && statement.operands.iter().take(2).any(takes);
    });
    found
}

/// Buffers that tiles of arrays with more axes are copied into, by name: how many axes more, and the tile's axes. A copy then names
/// the array itself, which the copy engine needs. Buffers that are used in two ways, or entries of which are chosen by something
/// other than `memref.subview`, are left alone.
fn deep_buffers<'a>(function: &Function<'a>) -> FxHashMap<&'a str, (usize, usize)> {
    let mut ranks: FxHashMap<&str, usize> = FxHashMap::default();
    for parameter in &function.parameters {
        if let Ty::Memref(memref) = &parameter.ty {
            ranks.insert(parameter.name.text, memref.shape.len());
        }
    }
    let (mut roots, mut buffers): (FxHashMap<&str, &'a str>, FxHashMap<&str, usize>) = Default::default();
    let mut found: FxHashMap<&'a str, Option<(usize, usize)>> = FxHashMap::default();
    each(&function.body, &mut |statement| {
        let result = statement.results.first().map(|name| name.text);
        let named = |position: usize| match statement.operands.get(position) {
            Some(Operand::Value { name, .. }) => Some(name.text),
            _ => None,
        };
        let stated = |types: &[(Ty, tessera_ir::Span)]| match types.first() {
            Some((Ty::Memref(memref), _)) => Some(memref.shape.len()),
            _ => None,
        };
        match (statement.name.text, result) {
            ("tile.alloc_shared", Some(result)) => {
                roots.insert(result, result);
                buffers.insert(result, stated(&statement.types).unwrap_or(0));
            }
            ("memref.subview", Some(result)) => {
                let Some(source) = named(0) else { return };
                if let Some(&rank) = ranks.get(source) {
                    ranks.insert(result, rank);
                }
                if let Some(&root) = roots.get(source) {
                    roots.insert(result, root);
                    buffers.insert(result, stated(&statement.result_types).unwrap_or(0));
                }
            }
            ("tile.cp_async", _) => {
                let (Some(from), Some(to)) = (named(0), named(1)) else { return };
                let (Some(&rank), Some(&root), Some(&axes)) = (ranks.get(from), roots.get(to), buffers.get(to)) else { return };
                let wanted = (rank > axes && axes > 0).then(|| (rank - axes, axes));
                let entry = found.entry(root).or_insert(wanted);
                if *entry != wanted {
                    *entry = None;
                }
            }
            _ => {
                // An entry of leading axes is taken by a subview only.
                for operand in &statement.operands {
                    if let Operand::Value { name, .. } = operand
                        && let (Some(&root), Some(&axes)) = (roots.get(name.text), buffers.get(name.text))
                        && root == name.text
                        && found.get(root).is_none_or(|wanted| wanted.is_none_or(|(_, tile)| tile != axes))
                        && axes > 2
                    {
                        found.insert(root, None);
                    }
                }
            }
        }
    });
    let mut deep = FxHashMap::default();
    for name in function_names(function) {
        if let Some(Some(wanted)) = found.get(name) {
            deep.insert(name, *wanted);
        }
    }
    deep
}

/// Every name that a statement gives its first result.
fn function_names<'a>(function: &Function<'a>) -> Vec<&'a str> {
    let mut names = Vec::new();
    each(&function.body, &mut |statement| names.extend(statement.results.first().map(|name| name.text)));
    names
}

impl<'a> Emit<'a, '_> {
    fn function(&mut self, written: &Function<'a>) -> Parsed<()> {
        self.attributes("func", &written.attributes, if self.is_graph() { &["mesh"] } else { &["num_warps"] })?;
        if self.is_graph() {
            self.mesh(written)?;
        } else {
            let warps = match self.number(&written.attributes, "num_warps")? {
                Some(warps) => u32::try_from(warps)
                    .ok()
                    .filter(|warps| (1..=32).contains(warps))
                    .ok_or_else(|| self.error("ir-hint", format!("a block has 1 to 32 warps, not {warps}")))?,
                None => crate::interface::usual_warps(written),
            };
            self.func.hints.num_warps = Some(warps);
        }
        let mut resident = Vec::new();
        for parameter in &written.parameters {
            self.span = parameter.name.span;
            self.parameter(parameter, &mut resident)?;
        }
        let outputs = self.outputs(written)?;
        for &(parameter, array) in &resident {
            self.span = parameter.name.span;
            self.read_in(parameter, array)?;
        }
        if resident.iter().any(|(parameter, _)| matches!(&parameter.ty, Ty::Memref(memref) if memref.space == Space::Shared)) {
            self.op(TileOp::Barrier {}, &[], []);
        }
        let Some((last, body)) = written.body.split_last().filter(|(last, _)| last.name.text == "return") else {
            return Err(Box::new(
                Diagnostic::error("ir-terminator", written.name.span, "the function does not end with `return`")
                    .help("write `return` at its end"),
            ));
        };
        self.statements(body)?;
        self.span = last.span;
        if last.operands.len() != outputs.len() {
            let message = format!("{} values are returned, the function has {} results", last.operands.len(), outputs.len());
            return Err(self.error("ir-results", message));
        }
        for (operand, output) in last.operands.iter().zip(outputs) {
            self.hand_out(operand, &output)?;
        }
        self.op(ScheduleOp::Return {}, &[], []);
        Ok(())
    }

    // Statements

    pub(crate) fn statements(&mut self, statements: &[Statement<'a>]) -> Parsed<()> {
        for statement in statements {
            self.span = statement.span;
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        if self.control(statement)? {
            return Ok(());
        }
        match (self.call(statement)?, statement.results.as_slice()) {
            (Some(bound), [name]) => self.define(*name, bound),
            (None, []) | (Some(_), []) => Ok(()),
            (Some(_), names) => {
                Err(self.error("ir-results", format!("`{}` has one result, {} are named", statement.name.text, names.len())))
            }
            (None, _) => Err(self.error("ir-results", format!("`{}` has no result", statement.name.text))),
        }
    }

    /// Runs one operation; what it yields, if it yields anything.
    pub(crate) fn call(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let span = std::mem::replace(&mut self.span, statement.span);
        let result = self.operation(statement);
        self.span = span;
        result
    }

    fn operation(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = own_name(statement.name.text);
        if let Some(bound) = self.arith(statement)? {
            return Ok(Some(bound));
        }
        if self.is_graph() && !matches!(name, "tile.alloc_register" | "tile.copy" | "memref.dim") && self.memory_only(name) {
            let message = format!("`{name}` is about a block's threads, and this function multiplies whole operands");
            return Err(self
                .error("document-level", message)
                .help_boxed("copy tiles to shared memory and multiply those, or leave it out"));
        }
        if let Some(bound) = self.identity(statement)? {
            return Ok(Some(bound));
        }
        let bound = match name {
            "memref.dim" => Some(self.dim(statement)?),
            "memref.subview" => Some(self.subview(statement)?),
            "tile.alloc_shared" => Some(self.alloc_shared(statement)?),
            "tile.alloc_register" => Some(self.alloc_register(statement)?),
            "tile.load_shared" => Some(self.load_shared(statement)?),
            "tile.load_global" => Some(self.load_global(statement)?),
            "tile.store_shared" => {
                self.store_shared(statement)?;
                None
            }
            "tile.store_global" => {
                self.store_global(statement)?;
                None
            }
            "tile.copy" => {
                self.copy(statement)?;
                None
            }
            "tile.cp_async" => {
                self.cp_async(statement)?;
                None
            }
            "tile.cp_wait_group" => {
                self.wait_group(statement)?;
                None
            }
            "tile.cp_commit_group" | "tile.barrier" => {
                self.at_most(statement, 0)?;
                self.attributes(name, &statement.attributes, &[])?;
                self.op(if name == "tile.barrier" { TileOp::Barrier {} } else { TileOp::CommitGroup {} }, &[], []);
                None
            }
            _ if self.changes(statement)? => None,
            _ => match self.tiles(statement)? {
                Some(bound) => Some(bound),
                None => return Err(self.unknown(statement)),
            },
        };
        Ok(bound)
    }

    /// Operations that a program on whole operands does not have.
    fn memory_only(&self, name: &str) -> bool {
        matches!(
            name,
            "memref.subview"
                | "tile.alloc_shared"
                | "tile.load_shared"
                | "tile.store_shared"
                | "tile.load_global"
                | "tile.store_global"
                | "tile.cp_async"
                | "tile.cp_wait_group"
                | "tile.cp_commit_group"
                | "tile.barrier"
                | "tile.thread_id"
                | "tile.lane_id"
                | "tile.warp_id"
                | "tile.block_id"
                | "tile.num_blocks"
        )
    }

    /// Numbers of threads, warps and blocks.
    fn identity(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = statement.name.text;
        let kind: tessera_ir::OpKind = match name {
            "tile.thread_id" => TileOp::ThreadId {}.into(),
            "tile.lane_id" => TileOp::LaneId {}.into(),
            "tile.warp_id" => TileOp::WarpId {}.into(),
            "tile.block_id" | "tile.num_blocks" => {
                let axis = self.choice(&statement.attributes, "axis", &["x", "y", "z"])?.unwrap_or(0);
                let axis = GridAxis::from_index(axis).unwrap_or(GridAxis::X);
                match name {
                    "tile.block_id" => ScheduleOp::GetTileBlockId { axis }.into(),
                    _ => ScheduleOp::GetNumTileBlocks { axis }.into(),
                }
            }
            _ => return Ok(None),
        };
        self.at_most(statement, 0)?;
        self.attributes(
            name,
            &statement.attributes,
            if name.ends_with("block_id") || name.ends_with("num_blocks") { &["axis"] } else { &[] },
        )?;
        let value = self.value(kind, &[], Type::scalar(DType::I32));
        Ok(Some(Bound::Scalar(value)))
    }

    fn unknown(&self, statement: &Statement<'a>) -> Box<Diagnostic> {
        let name = statement.name.text;
        let found = Diagnostic::error("ir-unknown-op", statement.name.span, format!("`{name}` is not an operation of this form"));
        let help = match name {
            "tile.allreduce" | "tile.allgather" | "tile.reduce_scatter" | "tile.all_to_all" => {
                "collectives are inserted where sharded operands need them: shard the parameters of a product of whole operands"
            }
            "scf.yield" => "`scf.yield` ends a region",
            "return" => "`return` ends the function",
            name if name.starts_with("tile.") => {
                "operations on tiles are `tile.mma`, `tile.fill`, `tile.copy`, `tile.cp_async`, `tile.load_shared`, `tile.row_max` and others"
            }
            _ => "operations are those of `tile`, `arith`, `math`, `memref` and `scf` that the reference lists",
        };
        Box::new(found.help(help))
    }
}
