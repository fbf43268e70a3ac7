//! Which memory an operand is, and which thread of an operation touches which element of it.
//!
//! ```text
//! %s = tile.alloc_shared {offset=0} : shared<2x64xf32>      the whole of %s, bytes 0 to 512
//! %p = tile.slice_shared %s, %one                           row 1 of it
//! tile.store_element %v, %p, [%t]                           each thread the element of its number there
//! ```

use std::rc::Rc;

use smallvec::SmallVec;
use tessera_ir::attrs::{AtomicMode, MemoryOrder};
use tessera_ir::{
    Const, Def, Does, Op, OpData, OpKind, Padding, Queue, ScheduleOp, Space, TileOp, TileViewType, Touch, Type, Value,
    collapsed_axes,
};

use super::index::{Index, Turn};
use super::place::{Choice, Extent, Memory, Part, Seen, Who};
use super::program::ListId;
use super::read::Reader;
use tessera_analysis::arrangement::Arrangement;
use tessera_analysis::memory::root;
use tessera_analysis::room::buffer_bytes;

impl Reader<'_> {
    pub(super) fn global(&mut self, op: Op, data: &OpData, kind: &ScheduleOp, list: ListId) {
        let touches = self.func.touches(data);
        let (Some(order), Some(touch)) = (kind.memory_order(), touches.first()) else { return };
        let place = touch.value;
        // Pointers are spread as what they point to is.
        let value = self.func.moved(data, touch).first().copied().filter(|_| touch.effect.at.is_some()).unwrap_or(place);
        let releases = matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel);
        let acquires = matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel);
        let writes = touch.effect.writes() || order != MemoryOrder::Weak;
        let who = self.who_of(data, touch, value, order);
        if releases {
            self.touch(op, list, Memory::Released, true, who.clone());
        }
        let access = self.touch(op, list, Memory::Global(root(self.func, place)), writes, who.clone());
        if acquires {
            self.touch(op, list, Memory::Acquired, true, who);
        }
        // Sums may be made in any order, where nobody asks what was there before.
        let mode = match kind {
            ScheduleOp::AtomicRedViewTko { mode, .. } => Some(*mode),
            ScheduleOp::AtomicRmwTko { mode, .. } if !self.is_used(data.results[0]) => Some(*mode),
            _ => None,
        };
        if mode != Some(AtomicMode::Xchg) {
            self.program.accesses[access].atomic = mode.map(|mode| mode as u32);
        }
    }

    fn is_used(&self, value: Value) -> bool {
        self.func.linked_ops().into_iter().any(|op| self.func.ops[op].used().any(|used| used == value))
    }

    fn who_of(&mut self, data: &OpData, touch: &Touch, value: Value, order: MemoryOrder) -> Who {
        let place = touch.value;
        if self.func.ty(value).is_scalar() {
            if self.program.per_thread {
                return self.pointed(place, 1);
            }
            let read_by_all = touch.effect.does == Does::Read && order == MemoryOrder::Weak;
            return if read_by_all { Who::Anyone } else { Who::First };
        }
        let (Some(layout), Type::TileView(view)) = (self.func.ty(value).layout(), self.func.ty(place)) else {
            return Who::Anyone;
        };
        // A matrix may be sent behind axes of extent 1.
        let shape: SmallVec<[u64; 4]> = view.tile.iter().map(|&extent| u64::from(extent)).collect();
        let layout = if layout.shape() == &shape[..] { Ok(layout.clone()) } else { layout.reshape(&shape) };
        let Ok(layout) = layout else { return Who::Anyone };
        // What several threads hold is written by the first of them, and so is what may change meanwhile read.
        let once = touch.effect.does != Does::Read || order != MemoryOrder::Weak;
        if once && layout.primary_masks().1 + 1 == layout.threads() {
            return Who::First;
        }
        let index = touch.effect.at.map_or(&[][..], |at| data.group(at));
        let cut = TileViewType { padding: Padding::Zero, ..(**view).clone() };
        let made = self.func.defining_op(place).map(|op| &self.func.ops[op]);
        let array = match made.map(|made| (&made.kind, made)) {
            Some((OpKind::Schedule(ScheduleOp::MakePartitionView {} | ScheduleOp::MakeStridedView {}), made)) => made.one(0),
            _ => place,
        };
        Who::Spread(layout, Some(Box::new(Seen { array, cut, index: index.iter().copied().collect() })))
    }

    /// Which thread does what of a Tile operation's touch.
    pub(super) fn who(&mut self, data: &OpData, touch: &Touch, memory: &Memory) -> Who {
        let moved = self.func.moved(data, touch);
        match (touch.effect.queue, &data.kind) {
            // A warp meets before the engine, or other lanes of it, get what its threads hold.
            (Some(Queue::Stores), OpKind::Tile(TileOp::SendTile {})) | (None, OpKind::Tile(TileOp::StoreLines {})) => {
                return self.who_of(data, touch, data.one(0), MemoryOrder::Weak);
            }
            // One thread tells the engine.
            (Some(Queue::Stores), _) => return Who::First,
            (Some(Queue::Copies), OpKind::Tile(TileOp::CopyAsyncElement { bytes })) => {
                let elem = self.func.ty(touch.value).as_shared().map(|ty| ty.elem.bits());
                let (Some(at), Some(bits)) = (touch.effect.at, elem) else { return Who::Anyone };
                return self.chosen(memory, data.group(at), i64::from(8 * bytes / bits));
            }
            (Some(_), _) => return Who::Anyone,
            // Matrices are written by the lanes that name their rows.
            (None, OpKind::Tile(TileOp::StoreShared { matrices: true })) => return Who::Anyone,
            // And read by them, where the lowering takes the instruction for that.
            (None, OpKind::Tile(TileOp::LoadShared {})) if self.by_matrices(touch.value, data.result()) => return Who::Anyone,
            (None, _) => {}
        }
        match (touch.space, touch.effect.at) {
            (Space::Shared, Some(at)) => self.chosen(memory, data.group(at), moved.len() as i64),
            (Space::Global, Some(_)) if !moved.is_empty() => self.pointed(touch.value, moved.len() as i64),
            _ => moved.first().map_or(Who::Anyone, |&tile| self.spread(tile)),
        }
    }

    /// Whether a tile may come out of a buffer by `ldmatrix`.
    fn by_matrices(&self, buffer: Value, tile: Value) -> bool {
        let (Some(lies), Some(layout)) = (self.func.ty(buffer).as_shared(), self.func.ty(tile).layout()) else { return false };
        Arrangement::of(lies).matrix_access(layout).is_some()
    }

    /// The element that each thread's pointer points to: an array argument, moved.
    fn pointed(&mut self, pointer: Value, width: i64) -> Who {
        let Some(op) = self.func.defining_op(pointer) else { return Who::Anyone };
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Offset {}) if self.indices.is_common(data.one(0)) => {
                let index = self.indices.of(data.one(1));
                self.choice(Some(data.one(0)), vec![index], width)
            }
            _ => Who::Anyone,
        }
    }

    fn choice(&self, base: Option<Value>, indices: Vec<Option<Index>>, width: i64) -> Who {
        let threads = self.func.hints.threads() as usize;
        Who::Each(Rc::new(Choice { base, indices, width, active: self.active.clone(), threads }))
    }

    // --- buffers

    /// The part of a buffer that a value is.
    pub(super) fn buffer(&self, value: Value) -> Memory {
        Memory::Buffer(self.part(value).map(Box::new))
    }

    fn part(&self, value: Value) -> Option<Part> {
        let Def::Result(op, _) = self.func.values[value].def else { return None };
        let data = &self.func.ops[op];
        let OpKind::Tile(kind) = &data.kind else { return None };
        match kind {
            TileOp::AllocShared { offset, .. } => {
                let ty = self.func.ty(value).as_shared()?;
                let bytes = offset.map(|offset| (u64::from(offset), u64::from(offset) + buffer_bytes(ty)));
                Some(Part { slot: self.slots.contains(&value), ..Part::whole(op, ty, bytes) })
            }
            TileOp::SliceShared {} => {
                let part = self.part(data.one(0))?;
                let index = data.one(1);
                let entry = match self.func.constant(index).and_then(Const::as_int) {
                    Some(number) => Entry::Known(number),
                    None => Entry::Named(index, Turn::of(self.func, index)),
                };
                sliced(part, entry)
            }
            TileOp::SubviewShared { offsets } => {
                let mut part = self.part(data.one(0))?;
                let ty = self.func.ty(value).as_shared()?;
                for (own, (&offset, &extent)) in offsets.iter().zip(&ty.shape).enumerate() {
                    let Some(own) = part.own[own] else { continue };
                    if let Extent::Range(first, count) = &mut part.axes[own] {
                        *first += u64::from(offset);
                        *count = u64::from(extent);
                    }
                }
                Some(part)
            }
            TileOp::TransposeShared { permutation } => {
                let mut part = self.part(data.one(0))?;
                part.own = permutation.iter().map(|&axis| part.own[axis as usize]).collect();
                Some(part)
            }
            TileOp::CollapseShared {} => {
                let mut part = self.part(data.one(0))?;
                let shape = |value: Value| self.func.ty(value).as_shared().map(|ty| &ty.shape[..]);
                let groups = collapsed_axes(shape(data.one(0))?, shape(value)?)?;
                part.own = groups.into_iter().map(|axes| if axes.len() == 1 { part.own[axes.start] } else { None }).collect();
                Some(part)
            }
            TileOp::Slot { buffer } => {
                let ring = self.func.defining_op(data.one(0))?;
                let whole = *self.func.ops[ring].group(0).get(*buffer as usize)?;
                sliced(self.part(whole)?, Entry::Named(data.one(1), None))
            }
            _ => None,
        }
    }

    /// Elements that each thread names.
    fn chosen(&mut self, memory: &Memory, indices: &[Value], width: i64) -> Who {
        let Memory::Buffer(Some(part)) = memory else { return Who::Anyone };
        let mut all: Vec<Option<Index>> = Vec::new();
        for extent in &part.axes {
            all.push(match extent {
                Extent::One(number) => Some(self.indices.number(*number)),
                Extent::Named(value, _) => self.indices.of(*value),
                Extent::Range(..) => None,
            });
        }
        for (&axis, &index) in part.own.iter().zip(indices) {
            let Some(axis) = axis else { continue };
            let Extent::Range(first, _) = part.axes[axis] else { continue };
            all[axis] = self.indices.of(index).map(|index| index.ahead(first as i64));
        }
        // Neighbours are counted along the last axis.
        let last = part.own.last().copied().flatten();
        let whole = self.func.ty(self.func.ops[part.alloc].result()).as_shared();
        let in_order = whole.is_some_and(|ty| ty.order.last().map(|&axis| axis as usize) == last);
        if width > 1 && !(in_order && last.is_some_and(|last| last + 1 == all.len())) {
            return Who::Anyone;
        }
        self.choice(None, all, width)
    }

    fn spread(&self, value: Value) -> Who {
        match self.func.ty(value).layout() {
            Some(layout) => Who::Spread(layout.clone(), None),
            None => Who::Anyone,
        }
    }
}

/// The entry of a part's first axis that a slice takes.
enum Entry {
    Known(i64),
    Named(Value, Option<Turn>),
}

fn sliced(mut part: Part, entry: Entry) -> Option<Part> {
    (!part.own.is_empty()).then_some(())?;
    // Of several axes as one, an entry is not told from others: such a part is not known.
    let axis = part.own.remove(0)?;
    let Extent::Range(first, _) = part.axes[axis] else { return None };
    part.axes[axis] = match entry {
        Entry::Known(number) => Extent::One(number + first as i64),
        Entry::Named(value, turn) => Extent::Named(value, turn.filter(|_| first == 0)),
    };
    Some(part)
}
