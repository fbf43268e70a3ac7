//! Shared memory: its address, and the buffers that operations exchange elements through.
//!
//! An operation whose threads exchange elements names a buffer for that (`through`), and puts one exchange after the other into it. In an
//! exchange threads write, meet, and read; nobody waits before it, since barriers of the function see to that. Exchanges of one operation take turns
//! between two parts of the buffer where that is small: who writes the one part has met those who read it in the other's exchange.
//!
//! A [recording](super::recording) notes what each operation asks for.
//!
//! Elements take whole bytes there: a truth value or a code of fewer bits is one byte.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tessera_ir::{Elem, Op, SharedType};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Class, Guard, Value as Reg};
use tessera_types::DType;

use super::bound::class_of;
use super::lowering::{Lowered, Lowering};
use tessera_analysis::room::buffer_bytes;

/// Bytes of a buffer whose exchanges take turns.
pub(super) const SMALL_BYTES: u64 = 8192;

/// What an operation exchanges elements through.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Bytes.
    pub bytes: u64,
    /// Bytes with which it can be done too, in [parts](super::parts).
    pub least: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// How a tile lies there that changes its layout.
    pub lies: Option<SharedType>,
}

/// What the kernel's shared memory is given out to.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// What operations ask for, in a recording.
    pub(super) asked: Option<BTreeMap<Op, Exchange>>,
    /// The part of its buffer that the current operation's last exchange used: first byte and the one behind the last.
    pub(super) last: Option<(u64, u64)>,
    /// Address of the dynamic shared memory.
    pub(super) base: Option<Reg>,
    /// Bytes that the buffers of the function take in all.
    pub(super) reserved: u64,
    /// Where each buffer starts, by the operation that allocates it.
    pub(super) offsets: FxHashMap<Op, u64>,
}

/// The type that an element is moved as: its bits, and where it is narrower than its register, unsigned.
pub(super) fn moved_as(elem: Elem) -> Ty {
    match elem.bytes() {
        1 => Ty::U8,
        2 if class_of(elem) == Class::B16 => Ty::B16,
        2 => Ty::U16,
        4 => Ty::B32,
        _ => Ty::B64,
    }
}

impl Lowering<'_> {
    /// The address of dynamic shared memory.
    pub(super) fn shared_base(&mut self) -> Reg {
        if let Some(base) = self.scratch.base {
            return base;
        }
        let base = self.b.dynamic_shared("shared_memory", 1024);
        self.scratch.base = Some(base);
        base
    }

    /// The address of so many bytes that the current operation may write. Its threads meet before they read there.
    pub(super) fn exchange(&mut self, bytes: u64, align: u64) -> Lowered<Reg> {
        self.exchange_of(bytes, bytes, align)
    }

    /// The same for what could be done in parts, where all of it fits.
    pub(super) fn whole_exchange(&mut self, bytes: u64, align: u64) -> Lowered<Reg> {
        self.exchange_of(bytes, bytes.min(SMALL_BYTES), align)
    }

    /// Bytes of the current operation's buffer where it has fewer than these, so that what is exchanged goes through it in parts.
    pub(super) fn room_below(&self, bytes: u64) -> Option<u64> {
        let through = self.data(self.op).through.filter(|_| !self.is_recording())?;
        let room = buffer_bytes(self.func.ty(through).the_shared());
        (room < bytes).then_some(room)
    }

    /// The same for what could be done with as few as `least` bytes.
    pub(super) fn exchange_of(&mut self, bytes: u64, least: u64, align: u64) -> Lowered<Reg> {
        let start = match self.scratch.last {
            Some((first, _)) if bytes <= first => 0,
            Some((_, end)) if end.next_multiple_of(align) + bytes <= SMALL_BYTES => end.next_multiple_of(align),
            Some(_) => {
                self.meet();
                0
            }
            None => 0,
        };
        self.scratch.last = Some((start, start + bytes));
        let base = self.exchanged_through((start + bytes, start + least), align, None)?;
        let offset = self.b.u32(start as u32);
        Ok(self.b.add(Ty::U32, base, offset))
    }

    /// The address of the buffer that the current operation exchanges elements through, of so many bytes. A recording also notes with how few
    /// it could do.
    pub(super) fn exchanged_through(&mut self, (bytes, least): (u64, u64), align: u64, lies: Option<SharedType>) -> Lowered<Reg> {
        if let Some(asked) = &mut self.scratch.asked {
            let asked = asked.entry(self.op).or_default();
            asked.bytes = asked.bytes.max(bytes);
            asked.least = asked.least.max(least);
            asked.align = asked.align.max(align);
            asked.lies = lies;
            return Ok(self.shared_base());
        }
        let Some(through) = self.data(self.op).through else {
            return Err(self.broken("an operation that exchanges elements and has no buffer for that"));
        };
        let room = buffer_bytes(self.func.ty(through).the_shared());
        if room < bytes {
            return Err(self.broken("a buffer that is too small for what is exchanged through it"));
        }
        Ok(self.buffer(through)?.base)
    }

    /// An element as it is kept in memory: truth values as bytes.
    pub(super) fn stored_element(&mut self, elem: Elem, reg: Reg) -> Reg {
        if elem == Elem::Num(DType::B1) {
            let (one, zero) = (self.b.u32(1), self.b.u32(0));
            return self.b.select(reg, one, zero);
        }
        reg
    }

    /// An element as it came from memory.
    pub(super) fn read_element(&mut self, elem: Elem, reg: Reg) -> Reg {
        if elem == Elem::Num(DType::B1) {
            let zero = self.b.u32(0);
            return self.b.setp(tessera_ptx::Word::Ne, Ty::U32, reg, zero);
        }
        reg
    }

    /// Writes an element to shared memory, where the condition holds.
    pub(super) fn put(&mut self, elem: Elem, address: impl Into<Address>, reg: Reg, when: Option<Reg>) {
        let value = self.stored_element(elem, reg);
        let ty = moved_as(elem);
        let address = address.into();
        match when {
            None => self.b.st("shared", ty, address, value),
            Some(value_of) => {
                self.b.under(Guard { value: value_of, negated: false }, |b| b.st("shared", ty, address, value));
            }
        }
    }

    /// Reads an element from shared memory.
    pub(super) fn take(&mut self, elem: Elem, address: impl Into<Address>) -> Reg {
        let value = self.load_as("shared", moved_as(elem), class_of(elem), address.into());
        self.read_element(elem, value)
    }

    /// A load into a register of the class that the element has.
    pub(super) fn load_as(&mut self, space: &str, ty: Ty, class: Class, address: Address) -> Reg {
        let loaded = self.b.ld(space, ty, address);
        self.fitted(loaded, class)
    }

    /// A value of 16 bits in 32 where the element wants that.
    pub(super) fn fitted(&mut self, loaded: Reg, class: Class) -> Reg {
        match (self.class(loaded), class) {
            (Class::B16, Class::B32) => self.b.cvt(Ty::U32, Ty::U16, loaded),
            (Class::B32, Class::B16) => self.b.cvt(Ty::U16, Ty::U32, loaded),
            _ => loaded,
        }
    }
}
