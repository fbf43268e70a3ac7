//! A plan's tensor in memory: guard, elements, guard. It can be moved, to other memory or within its own.
//!
//! The guard behind begins at the first whole byte after the last element, so nothing between the guards is ever left to
//! chance: elements are generated or poisoned, everything else holds one known content. A digest may therefore run beyond
//! the last element, to a whole word, and is the same for equal elements.
//!
//! ```text
//! bytes   0xc3 .. 0xc3 | e0 e1 .. en | 0xc3 .. 0xc3       elements of 3, 6 or 4 bits: the last byte's other bits are 0
//!         guard          elements      guard
//! ```

use std::ops::Range;

use tessera_ops::{Role, TensorSpec};
use tessera_runtime::{Device, Tensor, TensorError};
use tessera_types::DType;

use crate::case::{Fault, Place, Poison};
use crate::random::mix;
use crate::status::Status;

/// Elements of the guard on either side of a tensor: at least 4 KiB, and whole cache lines in every type.
pub(crate) const GUARD: usize = 8192;
/// So many elements fill whole bytes in every type.
const UNIT: usize = 8;
/// A tensor may begin later in its memory by so many steps of 256 bytes (a multiple of them, in types of six bits).
const STEPS: u64 = 256;
const STEP_BYTES: usize = 256;

/// What guards of the tensor at a position of a plan are filled with. Each has its own: a kernel that copies one guard over
/// another would not be seen.
const fn guard_byte(position: usize) -> u8 {
    0xc3 ^ (position as u8).wrapping_mul(2)
}

/// What memory that cannot be had means for a row.
pub(crate) fn memory_fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(Status::Oom, error.to_string())
}

/// Bits of an element in memory.
fn stored_bits(dtype: DType) -> usize {
    if dtype.is_byte_bool() { 8 } else { dtype.bits() as usize }
}

/// One tensor of a plan between its guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    name: String,
    role: Role,
    position: usize,
    memory: Tensor,
    /// Where in the memory the elements begin.
    start: usize,
    /// Elements between the guards, gaps included.
    elements: usize,
    view: Tensor,
}

/// Elements of a step.
fn step(dtype: DType) -> usize {
    let bits = stored_bits(dtype);
    if (8 * STEP_BYTES).is_multiple_of(bits) { 8 * STEP_BYTES / bits } else { 4 * STEP_BYTES }
}

impl Guarded {
    /// Memory for a plan's tensor at a position, guards filled.
    pub(crate) fn new(position: usize, spec: &TensorSpec, device: &Device) -> Result<Guarded, Fault> {
        Guarded::sized(position, (spec.name, spec.role), spec.dtype, (&spec.shape, spec.step), device)
    }

    /// The same for any row-major array whose elements lie `step` apart.
    pub(crate) fn sized(
        position: usize,
        (name, role): (&str, Role),
        dtype: DType,
        (shape, distance): (&[usize], usize),
        device: &Device,
    ) -> Result<Guarded, Fault> {
        let elements = shape.iter().product::<usize>() * distance;
        let later = (STEPS as usize - 1) * step(dtype);
        // Room for a digest's last word beside the guard.
        let size = GUARD + later + elements.next_multiple_of(32) + GUARD;
        let memory = Tensor::zeros_shareable(dtype, &[size], device).map_err(memory_fault)?;
        let mut strides = vec![1; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        strides.iter_mut().for_each(|stride| *stride *= distance);
        let view = memory.strided(GUARD, shape, &strides).map_err(memory_fault)?;
        let guarded = Guarded { name: name.to_string(), role, position, memory, start: GUARD, elements, view };
        guarded.fill_guards()?;
        Ok(guarded)
    }

    fn fill_guards(&self) -> Result<(), Fault> {
        let fill = |guard: &Tensor| guard.fill_bytes(guard_byte(self.position)).map_err(memory_fault);
        self.guards()?.iter().try_for_each(fill)
    }

    /// The same tensor with the same contents elsewhere.
    pub(crate) fn moved(&self, place: Place) -> Result<Guarded, Fault> {
        let (dtype, device) = (self.view.dtype(), self.memory.device());
        let (memory, contents) = if place.fresh {
            let memory = Tensor::zeros_shareable(dtype, &[self.memory.len()], &device).map_err(memory_fault)?;
            (memory, self.inside(0..self.span())?)
        } else {
            // The old place and the new one may overlap.
            let held = Tensor::zeros_on(dtype, &[self.span()], &device).map_err(memory_fault)?;
            held.copy_from(&self.inside(0..self.span())?).map_err(memory_fault)?;
            (self.memory.clone(), held)
        };
        let steps = if place.key == 0 { 0 } else { mix(place.key ^ self.position as u64) % STEPS };
        let start = GUARD + steps as usize * step(dtype);
        let view = memory.strided(start, self.view.shape(), self.view.strides()).map_err(memory_fault)?;
        let moved = Guarded { name: self.name.clone(), memory, start, view, ..*self };
        moved.inside(0..moved.span())?.copy_from(&contents).map_err(memory_fault)?;
        moved.fill_guards()?;
        Ok(moved)
    }

    /// The tensor as a kernel takes it.
    pub(crate) fn view(&self) -> &Tensor {
        &self.view
    }

    /// Whether it is memory for a plan's tensor.
    pub(crate) fn is_of(&self, spec: &TensorSpec) -> bool {
        let kind = (self.name.as_str(), self.role, self.view.dtype(), self.view.shape());
        kind == (spec.name, spec.role, spec.dtype, spec.shape.as_slice()) && self.elements == spec.len() * spec.step
    }

    /// What it is for.
    pub(crate) fn set_role(&mut self, role: Role) {
        self.role = role;
    }

    /// What it is for.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Its name in the plan.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Elements between the guards, gaps included, as far as they fill whole bytes.
    pub(crate) fn span(&self) -> usize {
        let whole = stored_bits(self.view.dtype()).is_multiple_of(8);
        if whole { self.elements } else { self.elements.next_multiple_of(UNIT) }
    }

    /// 32-bit words from the first element on that hold all of them; what else they hold is the guard's.
    pub(crate) fn words(&self) -> u64 {
        (self.elements.next_multiple_of(32) * stored_bits(self.view.dtype()) / 32) as u64
    }

    /// Elements between the guards, counted from the first.
    pub(crate) fn inside(&self, range: Range<usize>) -> Result<Tensor, Fault> {
        self.memory.slice(0, self.start + range.start..self.start + range.end, 1).map_err(memory_fault)
    }

    fn guards(&self) -> Result<[Tensor; 2], Fault> {
        let part = |range: Range<usize>| self.memory.slice(0, range, 1).map_err(memory_fault);
        Ok([part(0..self.start)?, part(self.start + self.span()..self.memory.len())?])
    }

    /// Fills what a launch is to write; an input keeps its contents.
    pub(crate) fn poison(&self, poison: Poison) -> Result<(), Fault> {
        if !matches!(self.role, Role::Output | Role::Workspace) {
            return Ok(());
        }
        let span = self.span();
        self.inside(0..span)?.fill_bytes(poison.byte()).map_err(memory_fault)?;
        if span > self.elements {
            // Bits that no element has must not differ between poisons: a kernel may leave them as they are.
            let dtype = self.view.dtype();
            let mut bytes = vec![poison.byte(); stored_bits(dtype)];
            let kept = (self.elements + UNIT - span) * stored_bits(dtype);
            bytes[kept / 8] &= (1 << (kept % 8)) - 1;
            bytes[kept / 8 + 1..].fill(0);
            let last = Tensor::from_bytes(dtype, &[UNIT], &bytes).map_err(memory_fault)?;
            self.inside(span - UNIT..span)?.copy_from(&last).map_err(memory_fault)?;
        }
        Ok(())
    }

    /// Codes of elements, `step` of which lie from one to the next; on whatever device it is.
    pub(crate) fn read(&self, step: usize, start: usize, codes: &mut [u64]) -> Result<(), Fault> {
        let failed = |error: TensorError| Fault::new(Status::HarnessError, error.to_string());
        let (end, span) = (start + codes.len(), self.span());
        // Whole bytes are fetched: elements that share bytes with neighbours come with them.
        let (first, last) = (start / UNIT * UNIT, end.next_multiple_of(UNIT).min(span.div_ceil(step)));
        let part = self.inside(first * step..(last * step).min(span))?;
        let host = part.to_device(&Device::Cpu).map_err(failed)?;
        let host = host.slice(0, 0..host.len(), step).map_err(failed)?;
        host.read_codes(start - first, codes).map_err(failed)
    }

    /// Where a guard was overwritten, if one was.
    pub(crate) fn damage(&self) -> Option<String> {
        for (side, guard) in ["before", "after"].iter().zip(self.guards().ok()?) {
            if let Ok(Some(byte)) = guard.first_other_byte(guard_byte(self.position)) {
                return Some(format!("{byte} bytes into the guard {side} `{}`", self.name));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies between the last element and the next whole word is the same under both poisons, and is watched.
    #[test]
    fn nothing_beside_the_elements_changes_with_the_poison() {
        for dtype in [DType::F32, DType::F16, DType::I8, DType::B1, DType::F8E4M3, DType::F6E2M3, DType::F4E2M1, DType::I4] {
            for count in [1, 2, 3, 5, 8, 31, 32, 33, 1001] {
                let spec = TensorSpec {
                    name: "c",
                    dtype,
                    shape: vec![count],
                    step: 1,
                    role: Role::Output,
                    fill: tessera_ops::Fill::NORMAL,
                };
                let guarded = Guarded::new(3, &spec, &Device::Cpu).expect("memory");
                let words = guarded.words() as usize * 4 * 8 / stored_bits(dtype);
                let after = |poison: Poison| {
                    guarded.poison(poison).expect("poison");
                    let mut own = vec![0; count];
                    guarded.view().read_codes(0, &mut own).expect("codes");
                    assert!(own.iter().all(|&code| code == poison.code(dtype)), "{dtype} {count}");
                    let all = guarded.inside(0..words).expect("part").to_codes().expect("codes");
                    all[count..].to_vec()
                };
                assert_eq!(after(Poison::Ones), after(Poison::Alternating), "{dtype} {count}");
                assert_eq!(guarded.damage(), None);
                if guarded.span() < words {
                    let beyond = guarded.inside(guarded.span()..guarded.span() + UNIT).expect("part");
                    beyond.slice(0, 0..UNIT, 1).and_then(|part| part.fill_bytes(0)).expect("filled");
                    let damage = guarded.damage().expect("seen");
                    assert!(damage.starts_with("0 bytes into the guard after `c`"), "{damage}");
                }
            }
        }
    }

    /// Moving keeps every element, begins at a multiple of 256 bytes, leaves guards on both sides, and ends up in many places.
    #[test]
    fn moved_tensors_hold_what_they_held() {
        for dtype in [DType::F32, DType::I8, DType::F6E2M3, DType::F4E2M1] {
            let spec =
                TensorSpec { name: "c", dtype, shape: vec![7, 9], step: 2, role: Role::Input, fill: tessera_ops::Fill::NORMAL };
            let made = Guarded::new(1, &spec, &Device::Cpu).expect("memory");
            let values = tessera_runtime::RandomStream::new(3).randn(dtype, &[made.span()]).expect("values");
            made.inside(0..made.span()).and_then(|part| part.copy_from(&values).map_err(memory_fault)).expect("filled");
            let held = made.view().to_codes().expect("codes");
            let mut starts = std::collections::BTreeSet::new();
            for key in 0..40 {
                for fresh in [true, false] {
                    let moved = made.moved(Place { fresh, key }).expect("moved");
                    assert_eq!(moved.view().to_codes().expect("codes"), held, "{dtype} {key}");
                    assert_eq!(moved.damage(), None);
                    assert!(((moved.start - GUARD) * stored_bits(dtype) / 8).is_multiple_of(STEP_BYTES));
                    starts.insert(moved.start);
                    if !fresh {
                        // Back home, for the next.
                        let home = moved.moved(Place { fresh: false, key: 0 }).expect("moved");
                        assert_eq!((home.start, home.view().to_codes().expect("codes")), (GUARD, held.clone()));
                    }
                }
            }
            assert!(starts.len() > 25, "{dtype}: {} places", starts.len());
        }
    }
}
