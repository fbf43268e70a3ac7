//! Buffers, copies, loads and stores, groups of copies, barriers.

use crate::emit::{Bound, Emit, Shared, WithHelp};
use crate::memref::{Memref, Space, Ty};
use crate::slices::Slice;
use crate::syntax::{Index, Operand, Statement};
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::text::cursor::Parsed;
use tessera_ir::{Diagnostic, Elem, ScheduleOp, Shape, SharedType, Swizzle, TileOp, TileType, Type, Value};

/// The swizzle whose span a line of so many bytes fills.
fn swizzle_of(line: u64) -> Swizzle {
    match line {
        line if line.is_multiple_of(128) => Swizzle::B128,
        line if line.is_multiple_of(64) => Swizzle::B64,
        line if line.is_multiple_of(32) => Swizzle::B32,
        _ => Swizzle::NONE,
    }
}

impl<'a> Emit<'a, '_> {
    fn made(&self, statement: &Statement<'a>, space: Space) -> Parsed<(Memref, TileType)> {
        let word = if space == Space::Shared { "3" } else { "5" };
        let Some(memref) = self.stated(statement).filter(|memref| memref.space == space) else {
            let message = format!("`{}` makes a memref in space {word}", statement.name.text);
            return Err(self.error("document-space", message).help_boxed(format!("write `: memref<16x16xf32, {word}>`")));
        };
        let Some(tile) = memref.tile() else {
            return Err(self.error("document-type", format!("`{memref}` must have known extents")));
        };
        Ok((memref, tile))
    }

    pub(super) fn alloc_register(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 0)?;
        self.attributes(statement.name.text, &statement.attributes, &[])?;
        let (_, tile) = self.made(statement, Space::Register)?;
        let dtype = tile.elem.num().unwrap_or(tessera_types::DType::F32);
        let zero = self.constant(tessera_ir::Const::splat(dtype, 0), &tile.shape)?;
        Ok(self.cell(tile, zero))
    }

    pub(super) fn alloc_shared(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 0)?;
        let known = ["swizzle", "swizzle_size", "alignment"];
        self.attributes(statement.name.text, &statement.attributes, &known)?;
        let (memref, tile) = self.made(statement, Space::Shared)?;
        let Elem::Num(dtype) = tile.elem else { return Err(self.error("document-type", format!("`{memref}` holds no numbers"))) };
        let line = u64::from(tile.shape.last().copied().unwrap_or(1)) * u64::from(dtype.bits()) / 8;
        let swizzle = match self.choice(&statement.attributes, "swizzle", &["xor", "none"])? {
            Some(0) => match self.number(&statement.attributes, "swizzle_size")? {
                None => swizzle_of(line),
                Some(32) => Swizzle::B32,
                Some(64) => Swizzle::B64,
                Some(128) => Swizzle::B128,
                Some(other) => {
                    return Err(self.error("ir-attribute", format!("a swizzle spans 32, 64 or 128 bytes, not {other}")));
                }
            },
            _ => Swizzle::NONE,
        };
        let align = self.number(&statement.attributes, "alignment")?.unwrap_or(128);
        let align = u32::try_from(align).ok().filter(|align| align.is_power_of_two() && *align <= 1024);
        let align = align.ok_or_else(|| self.error("ir-attribute", "an alignment is a power of two up to 1024"))?;
        let name = statement.results.first().map_or("", |result| result.text);
        let (units, rank) = self.deep.get(name).copied().unwrap_or((0, tile.shape.len()));
        let front = tile.shape.len() - rank;
        let mut shape: Shape = tile.shape[..front].into();
        shape.extend(std::iter::repeat_n(1, units));
        shape.extend_from_slice(&tile.shape[front..]);
        let full = SharedType { swizzle, ..SharedType::new(shape, dtype) };
        let full = self.value(TileOp::AllocShared { align, offset: None }, &[], Type::Shared(Box::new(full)));
        if units == 0 {
            return Ok(Bound::Shared(Shared { value: full, deep: None }));
        }
        if front > 0 {
            // Parts of it are taken first: only those have the tile's axes.
            return Ok(Bound::Shared(Shared { value: full, deep: Some((full, units)) }));
        }
        let value = self.without_units(full, units)?;
        Ok(Bound::Shared(Shared { value, deep: Some((full, units)) }))
    }

    /// A buffer without its first axes, of extent 1.
    pub(super) fn without_units(&mut self, mut buffer: Value, units: usize) -> Parsed<Value> {
        for _ in 0..units {
            let zero = self.index(0);
            buffer = self.entry_of_buffer(buffer, zero)?;
        }
        Ok(buffer)
    }

    fn shared_tile(&self, buffer: Value) -> TileType {
        self.func
            .ty(buffer)
            .as_shared()
            .map_or(TileType { shape: Shape::new(), elem: Elem::Num(tessera_types::DType::F32) }, SharedType::tile)
    }

    // Copies

    /// `tile.copy %from, %to` between any two spaces; it is done when the operation is.
    pub(super) fn copy(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        self.at_most(statement, 2)?;
        self.attributes(statement.name.text, &statement.attributes, &[])?;
        let to = self.plain(self.operand(statement, 1)?)?.cloned();
        match to {
            Some(Bound::Cell(cell)) => {
                let tile = self.cells[cell].tile.clone();
                let value = match self.plain(self.operand(statement, 0)?)?.cloned() {
                    Some(Bound::Shared(shared)) => self.load_buffer(shared.value)?.0,
                    Some(Bound::Slice(slice)) => self.load_tile(&slice, &tile)?,
                    _ => {
                        let operand = self.operand(statement, 0)?.clone();
                        let (value, from) = self.tile_of(&operand)?;
                        return self.assign(cell, value, &from);
                    }
                };
                self.assign(cell, value, &tile)
            }
            Some(Bound::Shared(shared)) => match self.plain(self.operand(statement, 0)?)?.cloned() {
                Some(Bound::Shared(from)) => {
                    self.op(TileOp::CopyShared {}, &[&[from.value], &[shared.value]], []);
                    Ok(())
                }
                Some(Bound::Slice(slice)) => {
                    let tile = self.shared_tile(shared.value);
                    let value = self.load_tile(&slice, &tile)?;
                    self.store_buffer(value, &tile, shared.value)
                }
                _ => {
                    let operand = self.operand(statement, 0)?.clone();
                    let (value, tile) = self.tile_of(&operand)?;
                    self.store_buffer(value, &tile, shared.value)
                }
            },
            Some(Bound::Slice(slice)) => {
                let (value, tile) = match self.plain(self.operand(statement, 0)?)?.cloned() {
                    Some(Bound::Shared(from)) => self.load_buffer(from.value)?,
                    _ => {
                        let operand = self.operand(statement, 0)?.clone();
                        self.tile_of(&operand)?
                    }
                };
                self.store_tile(value, &tile, &slice)
            }
            _ => Err(self.error("document-operands", "nothing can be copied there")),
        }
    }

    /// `tile.cp_async %array, %buffer`: started here, done behind a wait for its group.
    pub(super) fn cp_async(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        self.at_most(statement, 2)?;
        self.attributes(statement.name.text, &statement.attributes, &["bypass_l1"])?;
        let bypass_l1 = self.flag(&statement.attributes, "bypass_l1")?.unwrap_or(false);
        let from = self.plain(self.operand(statement, 0)?)?.cloned();
        let to = self.plain(self.operand(statement, 1)?)?.cloned();
        let (Some(Bound::Slice(slice)), Some(Bound::Shared(shared))) = (from, to) else {
            return Err(self
                .error("document-space", "an asynchronous copy goes from an array to shared memory")
                .help_boxed("write `tile.copy` for any other"));
        };
        let tile = self.shared_tile(shared.value);
        let deep = shared.deep.filter(|(_, units)| slice.kept.len() + units == slice.offsets.len() && self.leads(&slice));
        let (view, index) = self.view(&slice, &tile, deep.is_none())?;
        let buffer = deep.map_or(shared.value, |(full, _)| full);
        self.op(TileOp::CopyAsync { bypass_l1, cache: CacheHint::Normal, lines: false }, &[&[view], &index, &[buffer]], []);
        Ok(())
    }

    /// The axes that a slice lacks stand before those that it has.
    fn leads(&self, slice: &Slice) -> bool {
        let first = slice.offsets.len() - slice.kept.len();
        slice.kept.iter().enumerate().all(|(position, &axis)| axis == first + position)
    }

    /// `tile.cp_wait_group 1`.
    pub(super) fn wait_group(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        self.at_most(statement, 1)?;
        self.attributes(statement.name.text, &statement.attributes, &[])?;
        let pending = match statement.operands.first() {
            None => 0,
            Some(Operand::Number(word)) => {
                let wrong = || Diagnostic::error("document-operands", word.span, "a number of groups is needed");
                word.text.parse::<u32>().map_err(|_| Box::new(wrong()))?
            }
            Some(_) => return Err(self.error("document-operands", "the number of groups that may be unfinished is a literal")),
        };
        self.op(TileOp::WaitGroup { pending }, &[], []);
        Ok(())
    }

    // Loads and stores

    fn load_buffer(&mut self, buffer: Value) -> Parsed<(Value, TileType)> {
        let tile = self.shared_tile(buffer);
        let ty = self.tile_type(&tile)?;
        Ok((self.value(TileOp::LoadShared {}, &[&[buffer]], ty), tile))
    }

    fn store_buffer(&mut self, value: Value, tile: &TileType, buffer: Value) -> Parsed<()> {
        let wanted = self.shared_tile(buffer);
        if *tile != wanted {
            return Err(self.error("document-type", format!("`{tile}` is stored in a buffer of `{wanted}`")));
        }
        self.op(TileOp::StoreShared { matrices: false }, &[&[value], &[buffer]], []);
        Ok(())
    }

    /// A tile of a view's axes as one of others: extents of 1 come or go.
    fn reshaped(&mut self, value: Value, tile: &TileType) -> Parsed<Value> {
        if self.func.ty(value).as_tile() == Some(tile) {
            return Ok(value);
        }
        let ty = self.tile_type(tile)?;
        Ok(self.value(ScheduleOp::Reshape {}, &[&[value]], ty))
    }

    pub(super) fn load_tile(&mut self, slice: &Slice, tile: &TileType) -> Parsed<Value> {
        let (view, index) = self.view(slice, tile, false)?;
        let Type::TileView(ty) = self.func.ty(view) else { return Err(self.error("document-type", "no view")) };
        let loaded = self.tile_type(&TileType { shape: ty.tile.clone(), elem: tile.elem })?;
        let kind = ScheduleOp::LoadViewTko {
            order: MemoryOrder::Weak,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::default(),
        };
        let op = self.op(kind, &[&[view], &index, &[]], [loaded, Type::Token]);
        let value = self.func.ops[op].results[0];
        self.reshaped(value, tile)
    }

    pub(super) fn store_tile(&mut self, value: Value, tile: &TileType, slice: &Slice) -> Parsed<()> {
        let (view, index) = self.view(slice, tile, false)?;
        let Type::TileView(ty) = self.func.ty(view) else { return Err(self.error("document-type", "no view")) };
        let stored = TileType { shape: ty.tile.clone(), elem: tile.elem };
        let value = self.reshaped(value, &stored)?;
        let kind = ScheduleOp::StoreViewTko {
            order: MemoryOrder::Weak,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::default(),
        };
        self.op(kind, &[&[value], &[view], &index, &[]], [Type::Token]);
        Ok(())
    }

    /// An operand that is an array or a part of one, with its lists of indices.
    fn array_of(&mut self, statement: &Statement<'a>, position: usize) -> Parsed<(Slice, Vec<Vec<Index<'a>>>)> {
        let Operand::Value { name, lists } = self.operand(statement, position)?.clone() else {
            return Err(self.error("document-operands", "an array is needed"));
        };
        match self.look_up(name)? {
            Bound::Slice(slice) => Ok((slice.clone(), lists)),
            _ => Err(self.error("document-space", format!("`%{}` is no array", name.text))),
        }
    }

    /// An operand that is a buffer, with its lists of indices.
    fn buffer_of(&mut self, statement: &Statement<'a>, position: usize) -> Parsed<(Shared, Vec<Vec<Index<'a>>>)> {
        let Operand::Value { name, lists } = self.operand(statement, position)?.clone() else {
            return Err(self.error("document-operands", "a buffer is needed"));
        };
        match self.look_up(name)? {
            Bound::Shared(shared) => Ok((shared.clone(), lists)),
            _ => Err(self.error("document-space", format!("`%{}` does not lie in shared memory", name.text))),
        }
    }

    fn indices(&mut self, lists: &[Vec<Index<'a>>]) -> Parsed<Vec<Value>> {
        match lists {
            [list] => list.iter().map(|&index| self.entry(index)).collect(),
            _ => Err(self.error("document-operands", "one list of indices is needed")),
        }
    }

    /// `tile.load_shared %m[%i, %j]` is an element of each thread's choice, `tile.load_shared %m : ... -> memref<..., 5>` a tile.
    pub(super) fn load_shared(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        self.attributes(statement.name.text, &statement.attributes, &[])?;
        let (shared, lists) = self.buffer_of(statement, 0)?;
        if lists.is_empty() {
            let (value, tile) = self.load_buffer(shared.value)?;
            return Ok(self.cell(tile, value));
        }
        let indices = self.indices(&lists)?;
        let elem = self.shared_tile(shared.value).elem;
        let ty = Type::Tile(TileType { shape: Shape::new(), elem });
        Ok(Bound::Scalar(self.value(TileOp::LoadElement {}, &[&[shared.value], &indices], ty)))
    }

    /// `tile.store_shared %value, %m[%i, %j]`, or a whole tile.
    pub(super) fn store_shared(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        self.at_most(statement, 2)?;
        self.attributes(statement.name.text, &statement.attributes, &[])?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let (shared, lists) = self.buffer_of(statement, 1)?;
        if lists.is_empty() {
            return self.store_buffer(value, &tile, shared.value);
        }
        let indices = self.indices(&lists)?;
        self.op(TileOp::StoreElement { relaxed: false }, &[&[value], &[shared.value], &indices], []);
        Ok(())
    }

    /// `tile.load_global %a[%i]`, or a tile of an array.
    pub(super) fn load_global(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        self.attributes(statement.name.text, &statement.attributes, &["coalesce"])?;
        let (slice, lists) = self.array_of(statement, 0)?;
        if let [list] = lists.as_slice() {
            let pointer = self.element_of(&slice, list)?;
            let elem = self.arrays[slice.array].ty.elem;
            let kind =
                ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, scope: None, latency: None, cache: CacheHint::default() };
            let op = self.op(kind, &[&[pointer], &[], &[], &[]], [Type::scalar(elem), Type::Token]);
            return Ok(Bound::Scalar(self.func.ops[op].results[0]));
        }
        let Some((Ty::Memref(memref), _)) = statement.result_types.first() else {
            return Err(self
                .error("document-type", "which tile is loaded?")
                .help_boxed("write `: memref<...> -> memref<16x16xf32, 5>`, or indices of one element"));
        };
        let Some(tile) = memref.tile().filter(|_| memref.space == Space::Register) else {
            return Err(self.error("document-space", format!("a tile is loaded to registers, not to `{memref}`")));
        };
        let value = self.load_tile(&slice, &tile)?;
        Ok(self.cell(tile, value))
    }

    /// `tile.store_global %value, %a[%i]`, or a tile.
    pub(super) fn store_global(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        self.at_most(statement, 2)?;
        self.attributes(statement.name.text, &statement.attributes, &["coalesce"])?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let (slice, lists) = self.array_of(statement, 1)?;
        if let [list] = lists.as_slice() {
            let pointer = self.element_of(&slice, list)?;
            let kind =
                ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, scope: None, latency: None, cache: CacheHint::default() };
            self.op(kind, &[&[pointer], &[value], &[], &[]], [Type::Token]);
            return Ok(());
        }
        self.store_tile(value, &tile, &slice)
    }
}
