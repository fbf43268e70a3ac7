//! Shared memory and arrays of registers.
//!
//! An allocation is plain row-major memory of its own; parts of it (slices, subviews, transposes) are offsets and strides. What
//! was not written yet is all ones, and remembered.

use std::rc::Rc;

use smallvec::SmallVec;
use tessera_ir::{Diagnostic, Op, OpData, Shape, SharedType, Span, TileType, Value, collapsed_axes};

use super::machine::{Machine, fault};
use super::mask::Mask;
use super::micro::scalar_bytes;
use super::schedule::pointee_bytes;
use super::value::{Buffer, Data, SharedRef, element_bytes, read};
use crate::exec::{Ran, Range};
use crate::touched::Kind;

/// Memory of a block.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The operation that made it: once in a block, however often it runs.
    op: Op,
    words: Vec<u64>,
    /// Bytes of an element.
    size: usize,
    written: Vec<bool>,
}

impl Allocation {
    fn bytes(&self) -> &[u8] {
        // SAFETY: any byte of the words is a `u8`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 8) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the words are borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 8) }
    }

    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Where an element stands.
    pub(super) fn address(&self, element: usize) -> u64 {
        self.words.as_ptr() as u64 + (element * self.size) as u64
    }

    pub(super) fn store(&mut self, element: usize, bytes: &[u8]) {
        let (at, size) = (element * self.size, self.size);
        self.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        self.written[element..element + bytes.len() / size].fill(true);
    }
}

/// An array of each thread's own.
#[derive(Debug)]
pub(super) struct Registers {
    op: Op,
    shape: SmallVec<[u32; 4]>,
    size: usize,
    /// Elements of a thread.
    len: usize,
    bytes: Vec<u8>,
    written: Vec<bool>,
}

/// Where threads' neighbouring elements begin.
enum Firsts {
    /// In the launch's memory.
    Addresses(Vec<(usize, u64)>),
    /// In an allocation.
    Elements { allocation: usize, parts: Vec<(usize, usize)> },
}

impl SharedRef {
    /// Calls with the first element of each row along the last axis, and the row's place in row-major order, for a thread.
    fn rows(&self, thread: usize, mut visit: impl FnMut(usize, usize)) {
        let (last, outer) = self.shape.split_last().map_or((1, &[][..]), |(last, outer)| (*last as usize, outer));
        let rows: usize = outer.iter().map(|&extent| extent as usize).product();
        for row in 0..rows {
            let (mut rest, mut at) = (row, self.first[thread]);
            for axis in (0..outer.len()).rev() {
                at += (rest % outer[axis] as usize) as i64 * self.strides[axis];
                rest /= outer[axis] as usize;
            }
            visit(at as usize, row * last);
        }
    }

    fn row(&self) -> (usize, usize) {
        (self.shape.last().map_or(1, |&extent| extent as usize), self.strides.last().map_or(1, |&stride| stride as usize))
    }
}

impl Machine<'_> {
    /// Memory for an operation; yields its address.
    pub(super) fn allocate(&mut self, op: Op, bytes: usize, size: usize) -> u64 {
        let words = vec![u64::MAX; bytes.div_ceil(8).max(1)];
        let start = words.as_ptr() as u64;
        self.allocations.push(Allocation { op, words, size, written: vec![false; bytes / size.max(1)] });
        start
    }

    pub(super) fn allocate_shared(&mut self, op: Op, shared: &SharedType) {
        let tile = shared.tile();
        let known = self.allocations.iter().position(|allocation| allocation.op == op);
        let allocation = known.unwrap_or_else(|| {
            let (size, bytes) = (element_bytes(tile.elem), tile.len() * element_bytes(tile.elem));
            let start = self.allocate(op, bytes, size);
            self.memory.push(Range { start, end: start + bytes as u64 });
            self.allocations.len() - 1
        });
        let first = vec![0; self.program.threads].into();
        let whole = SharedRef { allocation, first, strides: row_major(&tile.shape), shape: tile.shape };
        self.set(self.func.ops[op].result(), Data::Shared(Rc::new(whole)));
    }

    pub(super) fn allocate_registers(&mut self, op: Op, tile: &TileType) {
        let known = self.registers.iter().position(|registers| registers.op == op);
        let number = known.unwrap_or_else(|| {
            let (size, len) = (element_bytes(tile.elem), tile.len());
            let count = len * self.program.threads;
            let (bytes, written) = (vec![u8::MAX; count * size], vec![false; count]);
            self.registers.push(Registers { op, shape: tile.shape.clone(), size, len, bytes, written });
            self.registers.len() - 1
        });
        self.set(self.func.ops[op].result(), Data::Registers(number));
    }

    pub(super) fn shared(&self, value: Value, span: Span) -> Ran<Rc<SharedRef>> {
        match self.data(value, span)? {
            Data::Shared(shared) => Ok(shared.clone()),
            _ => Err(fault("cpu-type", span, "a shared buffer was expected")),
        }
    }

    // Parts

    /// An entry of the first axis, chosen by each thread.
    pub(super) fn slice(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let source = self.shared(data.one(0), data.span)?;
        let size = scalar_bytes(self.func.ty(data.one(1)));
        let lanes = self.lanes(data.one(1), data.span)?;
        self.decides(lanes, active, data.span, "an index")?;
        let mut first = source.first.to_vec();
        for thread in active.iter() {
            let index = lanes.get_signed(thread, size);
            self.inside(index, source.shape[0], 0, thread, data.span)?;
            first[thread] += index * source.strides[0];
        }
        self.set_part(data, &source, first, source.shape[1..].into(), source.strides[1..].into());
        Ok(())
    }

    pub(super) fn subview(&mut self, data: &OpData, offsets: &Shape) -> Ran<()> {
        let source = self.shared(data.one(0), data.span)?;
        let moved: i64 = offsets.iter().zip(&source.strides).map(|(&offset, stride)| i64::from(offset) * stride).sum();
        let first = source.first.iter().map(|first| first + moved).collect();
        let shape = self.func.ty(data.result()).the_shared().shape.clone();
        self.set_part(data, &source, first, shape, source.strides.clone());
        Ok(())
    }

    pub(super) fn transpose(&mut self, data: &OpData, permutation: &Shape) -> Ran<()> {
        let source = self.shared(data.one(0), data.span)?;
        let shape = permutation.iter().map(|&axis| source.shape[axis as usize]).collect();
        let strides = permutation.iter().map(|&axis| source.strides[axis as usize]).collect();
        self.set_part(data, &source, source.first.to_vec(), shape, strides);
        Ok(())
    }

    pub(super) fn collapse(&mut self, data: &OpData) -> Ran<()> {
        let source = self.shared(data.one(0), data.span)?;
        let shape = self.func.ty(data.result()).as_shared().map_or_else(SmallVec::new, |shared| shared.shape.clone());
        let groups = collapsed_axes(&source.shape, &shape);
        let dense = |axes: &std::ops::Range<usize>| {
            axes.clone().skip(1).all(|axis| source.strides[axis - 1] == source.strides[axis] * i64::from(source.shape[axis]))
        };
        let groups = groups.filter(|groups| groups.iter().all(dense));
        let groups =
            groups.ok_or_else(|| fault("cpu-shape", data.span, "axes that do not lie one behind the other are no one axis"))?;
        let strides = groups.iter().map(|axes| source.strides[axes.end - 1]).collect();
        self.set_part(data, &source, source.first.to_vec(), shape, strides);
        Ok(())
    }

    fn set_part(
        &mut self,
        data: &OpData,
        source: &SharedRef,
        first: Vec<i64>,
        shape: SmallVec<[u32; 4]>,
        strides: SmallVec<[i64; 4]>,
    ) {
        let part = SharedRef { allocation: source.allocation, first: first.into(), shape, strides };
        self.set(data.result(), Data::Shared(Rc::new(part)));
    }

    // Whole buffers

    /// The thread whose part all active threads have.
    pub(super) fn common(&self, shared: &SharedRef, active: &Mask, span: Span) -> Ran<usize> {
        let mut threads = active.iter();
        let Some(thread) = threads.next() else { return Ok(0) };
        match threads.find(|&other| shared.first[other] != shared.first[thread]) {
            None => Ok(thread),
            Some(other) => {
                let message = format!("threads {thread} and {other} name different parts of the buffer");
                Err(fault("cpu-uniform", span, &message))
            }
        }
    }

    /// The elements of a buffer, row-major.
    pub(super) fn gather(&self, shared: &SharedRef, thread: usize, span: Span) -> Ran<Buffer> {
        let allocation = &self.allocations[shared.allocation];
        let (size, (len, stride)) = (allocation.size, shared.row());
        let count: usize = shared.shape.iter().map(|&extent| extent as usize).product();
        let mut buffer = Buffer::new(count * size);
        let to = buffer.bytes_mut();
        let mut absent = None;
        shared.rows(thread, |from, at| {
            if stride == 1 {
                to[at * size..(at + len) * size].copy_from_slice(&allocation.bytes()[from * size..(from + len) * size]);
            } else {
                for i in 0..len {
                    let from = (from + i * stride) * size;
                    to[(at + i) * size..(at + i + 1) * size].copy_from_slice(&allocation.bytes()[from..from + size]);
                }
            }
            if self.checked && absent.is_none() {
                absent = (0..len).find(|i| !allocation.written[from + i * stride]).map(|i| at + i);
            }
        });
        match absent {
            None => Ok(buffer),
            Some(at) => {
                let mut rest = at;
                let mut index: Vec<usize> = Vec::new();
                for &extent in shared.shape.iter().rev() {
                    index.insert(0, rest % extent as usize);
                    rest /= extent as usize;
                }
                Err(unwritten(span, &format!("element {index:?} of the buffer")))
            }
        }
    }

    /// Writes a buffer, row-major.
    pub(super) fn scatter(&mut self, shared: &SharedRef, thread: usize, value: &Buffer) {
        let allocation = &mut self.allocations[shared.allocation];
        let (size, (len, stride)) = (allocation.size, shared.row());
        shared.rows(thread, |to, at| {
            let row = &value.bytes()[at * size..(at + len) * size];
            if stride == 1 {
                allocation.store(to, row);
            } else {
                row.chunks_exact(size).enumerate().for_each(|(i, element)| allocation.store(to + i * stride, element));
            }
        });
    }

    // Elements

    fn inside(&self, index: i64, extent: u32, axis: usize, thread: usize, span: Span) -> Ran<()> {
        if (0..i64::from(extent)).contains(&index) {
            return Ok(());
        }
        let message = format!("index {index} of axis {axis} lies outside the buffer, which has {extent} there");
        Err(Box::new(Diagnostic::error("cpu-bounds", span, message).note(format!("in thread {thread}"))))
    }

    /// The element that a thread names, counted from the start of its array.
    fn element(&self, shape: &[u32], strides: &[i64], indices: &[Value], thread: usize, span: Span) -> Ran<i64> {
        let mut at = 0;
        for (axis, &value) in indices.iter().enumerate() {
            let lanes = self.lanes(value, span)?;
            self.decides(lanes, &Mask::of([thread]), span, "an index")?;
            let index = lanes.get_signed(thread, scalar_bytes(self.func.ty(value)));
            self.inside(index, shape[axis], axis, thread, span)?;
            at += index * strides[axis];
        }
        Ok(at)
    }

    /// The elements of an allocation that these threads name.
    pub(super) fn elements(&self, shared: &SharedRef, indices: &[Value], active: &Mask, span: Span) -> Ran<Vec<(usize, usize)>> {
        let of = |thread: usize| {
            let at = self.element(&shared.shape, &shared.strides, indices, thread, span)?;
            Ok((thread, (shared.first[thread] + at) as usize))
        };
        active.iter().map(of).collect()
    }

    pub(super) fn load_element(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let size = scalar_bytes(self.func.ty(data.result()));
        let mut lanes = Buffer::new(size * self.program.threads);
        let to = lanes.bytes_mut();
        if let Data::Registers(number) = self.data(data.one(0), data.span)? {
            let array = &self.registers[*number];
            let strides = row_major(&array.shape);
            for thread in active.iter() {
                let at = self.element(&array.shape, &strides, data.group(1), thread, data.span)? as usize;
                let at = thread * array.len + at;
                if self.checked && !array.written[at] {
                    return Err(unwritten(data.span, &format!("a register of thread {thread}")));
                }
                to[thread * size..(thread + 1) * size].copy_from_slice(&array.bytes[at * size..(at + 1) * size]);
            }
        } else {
            let shared = self.shared(data.one(0), data.span)?;
            let elements = self.elements(&shared, data.group(1), active, data.span)?;
            self.watch_shared(shared.allocation, (Kind::Read, data.span), &elements, |_| None)?;
            let allocation = &self.allocations[shared.allocation];
            for (thread, at) in elements {
                if self.checked && !allocation.written[at] {
                    return Err(unwritten(data.span, &format!("an element that thread {thread} reads")));
                }
                to[thread * size..(thread + 1) * size].copy_from_slice(&allocation.bytes()[at * size..(at + 1) * size]);
            }
        }
        self.set(data.result(), Data::Lanes(lanes));
        Ok(())
    }

    pub(super) fn store_element(&mut self, data: &OpData, relaxed: bool, active: &Mask) -> Ran<()> {
        let size = scalar_bytes(self.func.ty(data.one(0)));
        let lanes = self.lanes(data.one(0), data.span)?.clone();
        self.decides(&lanes, active, data.span, "this store")?;
        let element = |thread: usize| &lanes.bytes()[thread * size..(thread + 1) * size];
        if let Data::Registers(number) = *self.data(data.one(1), data.span)? {
            let (shape, len) = (self.registers[number].shape.clone(), self.registers[number].len);
            let strides = row_major(&shape);
            for thread in active.iter() {
                let at = self.element(&shape, &strides, data.group(2), thread, data.span)? as usize;
                let (at, array) = (thread * len + at, &mut self.registers[number]);
                array.bytes[at * array.size..(at + 1) * array.size].copy_from_slice(element(thread));
                array.written[at] = true;
            }
        } else {
            let shared = self.shared(data.one(1), data.span)?;
            let elements = self.elements(&shared, data.group(2), active, data.span)?;
            let kind = if relaxed { Kind::Atomic } else { Kind::Write };
            self.watch_shared(shared.allocation, (kind, data.span), &elements, |thread| Some(lanes.get(thread, size)))?;
            for (thread, at) in elements {
                self.allocations[shared.allocation].store(at, element(thread));
            }
        }
        Ok(())
    }

    /// Where each thread's neighbouring elements begin: an address, or an element of an allocation. They must lie at a multiple of
    /// what they take together, and in one line of a buffer.
    fn first_of(&self, data: &OpData, at: usize, count: usize, active: &Mask) -> Ran<Firsts> {
        let (source, indices, span) = (data.one(at), data.group(at + 1), data.span);
        let unaligned = |thread: usize| {
            let message = format!("thread {thread} moves {count} elements from where they are not aligned to their sum");
            Err(fault("cpu-align", span, &message))
        };
        if self.func.ty(source).is_scalar() {
            let bytes = count * pointee_bytes(self.func.ty(source));
            let addresses = active.iter().map(|thread| Ok((thread, self.address(source, thread, span)?)));
            let addresses = addresses.collect::<Ran<Vec<(usize, u64)>>>()?;
            return match addresses.iter().find(|(_, address)| !address.is_multiple_of(bytes as u64)) {
                Some(&(thread, _)) => unaligned(thread),
                None => Ok(Firsts::Addresses(addresses)),
            };
        }
        let shared = self.shared(source, span)?;
        let parts = self.elements(&shared, indices, active, span)?;
        let Some(axis) = shared.strides.iter().position(|&stride| stride == 1) else {
            return Err(fault("cpu-bounds", span, "the buffer's fastest axis is none of its own"));
        };
        let lanes = self.lanes(indices[axis], span)?;
        let size = scalar_bytes(self.func.ty(indices[axis]));
        let first = |thread: usize| lanes.get_signed(thread, size);
        if let Some(thread) = active.iter().find(|&thread| first(thread) + count as i64 > i64::from(shared.shape[axis])) {
            return Err(fault("cpu-bounds", span, &format!("thread {thread} reaches beyond the end of the buffer's line")));
        }
        match parts.iter().find(|(_, element)| !element.is_multiple_of(count)) {
            Some(&(thread, _)) => unaligned(thread),
            None => Ok(Firsts::Elements { allocation: shared.allocation, parts }),
        }
    }

    pub(super) fn load_vector(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let count = data.results.len();
        let size = scalar_bytes(self.func.ty(data.results[0]));
        let mut lanes = vec![Buffer::new(size * self.program.threads); count];
        let mut put = |thread: usize, bytes: &[u8]| {
            for (lanes, element) in lanes.iter_mut().zip(bytes.chunks_exact(size)) {
                lanes.bytes_mut()[thread * size..(thread + 1) * size].copy_from_slice(element);
            }
        };
        match self.first_of(data, 0, count, active)? {
            Firsts::Addresses(addresses) => {
                for (thread, address) in addresses {
                    put(thread, self.global(address, count * size, data.span)?);
                }
            }
            Firsts::Elements { allocation, parts } => {
                let allocation = &self.allocations[allocation];
                for (thread, at) in parts {
                    if self.checked && !allocation.written[at..at + count].iter().all(|&written| written) {
                        return Err(unwritten(data.span, &format!("an element that thread {thread} reads")));
                    }
                    put(thread, &allocation.bytes()[at * size..(at + count) * size]);
                }
            }
        }
        for (&result, lanes) in data.results.iter().zip(lanes) {
            self.set(result, Data::Lanes(lanes));
        }
        Ok(())
    }

    pub(super) fn store_vector(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let values = data.group(0);
        let size = scalar_bytes(self.func.ty(values[0]));
        let lanes = values.iter().map(|&value| Ok(self.lanes(value, data.span)?.clone())).collect::<Ran<Vec<Buffer>>>()?;
        let of = |thread: usize| -> Vec<u8> {
            lanes.iter().flat_map(|lanes| lanes.bytes()[thread * size..(thread + 1) * size].iter().copied()).collect()
        };
        match self.first_of(data, 1, values.len(), active)? {
            Firsts::Addresses(addresses) => {
                for (thread, address) in addresses {
                    let bytes = of(thread);
                    self.global(address, bytes.len(), data.span)?;
                    // SAFETY: the bytes lie in memory that `run` was promised to be valid, or in an allocation of the block.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
                }
            }
            Firsts::Elements { allocation, parts } => {
                parts.into_iter().for_each(|(thread, at)| self.allocations[allocation].store(at, &of(thread)));
            }
        }
        Ok(())
    }

    /// Where the elements that threads name stand in memory; for updates, which read what must have been written.
    pub(super) fn addresses(&mut self, shared: &SharedRef, indices: &[Value], active: &Mask, span: Span) -> Ran<Buffer> {
        let mut lanes = Buffer::new(8 * self.program.threads);
        let elements = self.elements(shared, indices, active, span)?;
        self.watch_shared(shared.allocation, (Kind::Atomic, span), &elements, |_| None)?;
        let allocation = &self.allocations[shared.allocation];
        let to = lanes.bytes_mut();
        for (thread, at) in elements {
            if self.checked && !allocation.written[at] {
                return Err(unwritten(span, &format!("an element that thread {thread} updates")));
            }
            to[8 * thread..8 * thread + 8].copy_from_slice(&allocation.address(at).to_le_bytes());
        }
        Ok(lanes)
    }

    /// The bits at an address of the launch's memory.
    pub(super) fn global(&self, address: u64, bytes: usize, span: Span) -> Ran<&[u8]> {
        let end = address.saturating_add(bytes as u64);
        if !self.memory.iter().any(|range| range.start <= address && end <= range.end) {
            let diagnostic = Diagnostic::error("cpu-bounds", span, "this copy reads outside the array's memory");
            return Err(Box::new(diagnostic.help("mask the element, or check its index against the array's size")));
        }
        // SAFETY: the bytes lie in memory that `run` was promised to be valid, or in an allocation of the block.
        Ok(unsafe { std::slice::from_raw_parts(address as *const u8, bytes) })
    }

    /// The address in a thread's lane.
    pub(super) fn address(&self, value: Value, thread: usize, span: Span) -> Ran<u64> {
        Ok(read(&self.lanes(value, span)?.bytes()[8 * thread..], 8))
    }
}

pub(super) fn row_major(shape: &[u32]) -> SmallVec<[i64; 4]> {
    let mut strides: SmallVec<[i64; 4]> = SmallVec::from_elem(1, shape.len());
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * i64::from(shape[axis + 1]);
    }
    strides
}

fn unwritten(span: Span, what: &str) -> Box<Diagnostic> {
    let message = format!("{what} was never written");
    Box::new(
        Diagnostic::error("cpu-unwritten", span, message)
            .help("write it first, and wait for the write where another thread does it"),
    )
}
