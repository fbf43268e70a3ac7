//! Exchanges through a buffer that is smaller than what is exchanged: as much as fits goes through it, all meet, and so on.
//!
//! A function asks for that by `hints(exchange_bytes=N)`. Factors of a product go through it by steps of the contraction: each part is
//! multiplied while it lies there ([`spread`](super::spread)).
//!
//! ```text
//! 65536 elements of 4 bytes through 65536 bytes: four times
//!     st.shared of the elements that lie in bytes 0 .. 65535     meet     ld.shared of those that are wanted     meet
//!     st.shared of those in 65536 .. 131071                      ..
//! ```
//!
//! Where a register's elements lie is known up to its thread: accesses to parts that none of them is in are left out, and those that all
//! of them are in need no condition.

use tessera_ir::Elem;
use tessera_layout::Distribution;
use tessera_ptx::ssa::{Address, Value as Reg};
use tessera_ptx::{Type as Ty, Word};

use super::bound::{Regs, class_of};
use super::lowering::{Lowered, Lowering};
use super::place::{Inside, Place};
use super::scratch::moved_as;

/// Where an element lies among those that are exchanged.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// Whether a thread's register has an element; `None` where each has one.
    pub(super) when: Option<Reg>,
    /// Bytes from the first of all.
    pub(super) at: Address,
    /// The least and the greatest `at` that a thread may have.
    pub(super) range: (u64, u64),
}

impl Lowering<'_> {
    /// A tile's elements, each once, by strides in elements.
    pub(super) fn given(&mut self, elem: Elem, (layout, regs): (&Distribution, &Regs), strides: &[u64]) -> Vec<(Reg, Spot)> {
        let mine = self.stores(layout);
        let spots = self.spots(layout, strides, (0, None), elem.bytes());
        let mut given = Vec::new();
        for (register, spot) in spots.into_iter().enumerate() {
            if let Some(mut spot) = spot.filter(|_| layout.is_primary(register as u64, 0)) {
                spot.when = self.both(spot.when, mine);
                given.push((regs[register], spot));
            }
        }
        given
    }

    /// For each register of a layout the spot of the element number `sum(coordinate * stride) + offset`, the second part of which is known
    /// at run time only; `None` for a register without elements.
    pub(super) fn spots(
        &mut self,
        layout: &Distribution,
        strides: &[u64],
        (offset, moved): (u64, Option<Reg>),
        bytes: u64,
    ) -> Vec<Option<Spot>> {
        let place = self.place(layout);
        let size = self.b.u32(bytes as u32);
        let first = match moved {
            Some(moved) => self.b.mul(Ty::S32, moved, size),
            None => self.b.u32(0),
        };
        let mut bases = rustc_hash::FxHashMap::default();
        (0..place.len())
            .map(|register| {
                let when = match self.inside(&place, register) {
                    Inside::Never => return None,
                    Inside::Always => None,
                    Inside::When(within) => Some(within),
                };
                let at = self.element_address(&place, register, strides, offset, bytes, first, &mut bases);
                let range = if moved.is_some() { (0, u64::MAX) } else { reached(&place, register, strides, offset, bytes) };
                Some(Spot { when, at, range })
            })
            .collect()
    }

    /// Exchanges elements that take `total` bytes through the current operation's buffer: what lies at each spot that is wanted. A register without
    /// one, and one whose spot nothing was given for, gets any element.
    pub(super) fn in_parts(
        &mut self,
        elem: Elem,
        given: &[(Reg, Spot)],
        wanted: &[Option<Spot>],
        total: u64,
    ) -> Lowered<Vec<Reg>> {
        let through = self.data(self.op).through.ok_or_else(|| self.broken("an exchange in parts without a buffer"))?;
        let room = self.room_below(total).unwrap_or(total);
        let base = self.buffer(through)?.base;
        let part = room / elem.bytes() * elem.bytes();
        if part == 0 {
            return Err(self.broken("a buffer that has no room for an element"));
        }
        let mut found: Vec<Option<Reg>> = vec![None; wanted.len()];
        for start in (0..total).step_by(part as usize) {
            if self.scratch.last.replace((0, room)).is_some() {
                self.meet();
            }
            self.put_part(elem, given, start..start + part, base);
            self.meet();
            for (spot, found) in wanted.iter().zip(&mut found) {
                let Some(spot) = spot else { continue };
                let Some((address, within)) = self.within(spot, start..start + part, base) else { continue };
                // No access leaves the buffer.
                let address = match within {
                    Some(within) => {
                        let address = self.address_of(&address);
                        let safe = self.b.select(within, address, base);
                        self.b.at(safe, 0)
                    }
                    None => address,
                };
                let loaded = self.load_as("shared", moved_as(elem), class_of(elem), address);
                *found = Some(match (*found, within) {
                    (Some(before), Some(within)) => self.b.select(within, loaded, before),
                    _ => loaded,
                });
            }
        }
        Ok(found
            .into_iter()
            .map(|found| match found {
                Some(raw) => self.read_element(elem, raw),
                None => self.bits(elem, 0),
            })
            .collect())
    }

    /// Writes the elements that lie in a part to a buffer of the part's size.
    pub(super) fn put_part(&mut self, elem: Elem, given: &[(Reg, Spot)], part: std::ops::Range<u64>, base: Reg) {
        for (reg, spot) in given {
            let Some((address, within)) = self.within(spot, part.clone(), base) else { continue };
            let when = self.both(within, spot.when);
            self.put(elem, address, *reg, when);
        }
    }

    /// The address in the buffer of a spot that may lie in a part, and the condition for that where it is one.
    fn within(&mut self, spot: &Spot, part: std::ops::Range<u64>, base: Reg) -> Option<(Address, Option<Reg>)> {
        let (least, most) = spot.range;
        if most < part.start || least >= part.end {
            return None;
        }
        let offset = spot.at.offset - part.start as i64;
        let sum = self.b.add(Ty::U32, base, spot.at.base);
        let address = self.b.at(sum, offset);
        if least >= part.start && most < part.end {
            return Some((address, None));
        }
        let offset = self.b.u32(offset as u32);
        let lies = self.b.add(Ty::U32, spot.at.base, offset);
        let size = self.b.u32((part.end - part.start) as u32);
        Some((address, Some(self.b.setp(Word::Lt, Ty::U32, lies, size))))
    }
}

/// The least and the greatest place, in bytes, of a register's element in any thread.
fn reached(place: &Place, register: usize, strides: &[u64], offset: u64, bytes: u64) -> (u64, u64) {
    let (mut least, mut most) = (offset, offset);
    for (dim, stride) in strides.iter().enumerate() {
        let (xor, add) = place.parts(register, dim);
        let bits = place.thread_bits[dim];
        least += ((xor & !bits) + add) * stride;
        most += ((xor | bits) + add) * stride;
    }
    (least * bytes, most * bytes)
}
