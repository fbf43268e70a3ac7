//! Shared memory that operations borrow: one region for the whole kernel. An operation waits for all threads before it writes
//! there and before it reads, so that no two operations meet in it. What borrows little and runs once gets bytes of its own.
//!
//! Elements take whole bytes there: a truth value or a code of fewer bits is one byte.

use rustc_hash::FxHashMap;
use tessera_ir::{Elem, Op};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Class, Guard, Value as Reg};
use tessera_types::DType;

use super::bound::class_of;
use super::lowering::Lowering;

/// Bytes that an operation may have of its own.
const SMALL_BYTES: u64 = 1024;

/// What the kernel's shared memory is given out to.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Bytes that operations borrow in all.
    pub(super) borrowed: u64,
    /// Where the borrowed region of the current team starts in it.
    pub(super) start: u64,
    /// Address of the dynamic shared memory.
    pub(super) base: Option<Reg>,
    /// Bytes that the buffers of the function take in all: the borrowed region starts there.
    pub(super) reserved: u64,
    /// Where each buffer starts, by the operation that allocates it.
    pub(super) offsets: FxHashMap<Op, u64>,
}

/// Bytes that an element takes in shared memory.
pub(super) fn element_bytes(elem: Elem) -> u64 {
    match elem {
        Elem::Ptr(_) => 8,
        Elem::Num(dtype) => dtype.unpacked_bytes() as u64,
    }
}

/// The type that an element is moved as: its bits, and where it is narrower than its register, unsigned.
pub(super) fn moved_as(elem: Elem) -> Ty {
    match element_bytes(elem) {
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

    /// Borrows the scratch region: all threads meet, then it may be written. Its address.
    pub(super) fn borrow(&mut self, bytes: u64) -> Reg {
        let start = self.scratch.start.next_multiple_of(16);
        self.scratch.borrowed = self.scratch.borrowed.max(start + bytes);
        let base = self.shared_base();
        let offset = self.b.u32((self.scratch.reserved + start) as u32);
        let base = self.b.add(Ty::U32, base, offset);
        self.meet();
        base
    }

    /// Where the scratch region starts in shared memory.
    pub(super) fn borrows_at(&self) -> u64 {
        self.scratch.reserved + self.scratch.start.next_multiple_of(16)
    }

    /// Borrows a little memory that no operation has had before, so that nobody waits; the scratch region where that cannot be: in
    /// code that may run again, in a role, and for more than a little.
    pub(super) fn borrow_new(&mut self, bytes: u64) -> Reg {
        if !self.frames.is_empty() || self.team.barrier != 0 || bytes > SMALL_BYTES {
            return self.borrow(bytes);
        }
        let start = self.scratch.borrowed.next_multiple_of(16);
        self.scratch.borrowed = start + bytes;
        let base = self.shared_base();
        let offset = self.b.u32((self.scratch.reserved + start) as u32);
        self.b.add(Ty::U32, base, offset)
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
