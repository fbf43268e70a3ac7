//! A register of a warp: 32 lanes of 64 bits, or the same memory as 32 lanes of 32 bits.
//!
//! A PTX register of at most 32 bits uses the narrow view (16-bit values stand zero-extended in their lane), a 64-bit one the
//! wide view. Which view a register has follows from its declaration, never from an instruction, so the two are never
//! mixed for one register.

#![allow(unsafe_code, reason = "one slot of memory is seen as 32-bit or as 64-bit lanes")]

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// 32 lanes of 32 bits.
pub(crate) type Narrow = [u32; LANES];
/// 32 lanes of 64 bits.
pub(crate) type Wide = [u64; LANES];

/// The memory of one register.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot(Wide);

impl Slot {
    pub(crate) const ZERO: Slot = Slot([0; LANES]);

    pub(crate) fn n(&self) -> &Narrow {
        // SAFETY: a `Wide` is at least as large and as aligned as a `Narrow`, and every bit pattern is a `Narrow`.
        unsafe { &*(&raw const self.0).cast::<Narrow>() }
    }

    pub(crate) fn n_mut(&mut self) -> &mut Narrow {
        // SAFETY: as in `n`; the borrow of `self` is exclusive.
        unsafe { &mut *(&raw mut self.0).cast::<Narrow>() }
    }

    pub(crate) fn w(&self) -> &Wide {
        &self.0
    }

    pub(crate) fn w_mut(&mut self) -> &mut Wide {
        &mut self.0
    }

    pub(crate) fn narrow(value: u32) -> Slot {
        let mut slot = Slot::ZERO;
        *slot.n_mut() = [value; LANES];
        slot
    }

    pub(crate) fn wide(value: u64) -> Slot {
        Slot([value; LANES])
    }

    pub(crate) fn get(&self, wide: bool, lane: usize) -> u64 {
        if wide { self.0[lane] } else { u64::from(self.n()[lane]) }
    }

    pub(crate) fn set(&mut self, wide: bool, lane: usize, value: u64) {
        if wide { self.0[lane] = value } else { self.n_mut()[lane] = value as u32 }
    }

    /// Takes the lanes in `mask` from another slot.
    pub(crate) fn take(&mut self, from: &Slot, wide: bool, mask: u32) {
        match (wide, mask) {
            (false, FULL) => *self.n_mut() = *from.n(),
            (true, FULL) => self.0 = from.0,
            (false, _) => {
                let (to, from) = (self.n_mut(), from.n());
                for lane in 0..LANES {
                    let keep = (mask >> lane & 1).wrapping_sub(1);
                    to[lane] = (to[lane] & keep) | (from[lane] & !keep);
                }
            }
            (true, _) => {
                for lane in 0..LANES {
                    let keep = u64::from(mask >> lane & 1).wrapping_sub(1);
                    self.0[lane] = (self.0[lane] & keep) | (from.0[lane] & !keep);
                }
            }
        }
    }
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            lane
        })
    })
}
