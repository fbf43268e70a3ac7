//! Atomic updates: whole operations of the processor where it has them, compare-and-swap loops elsewhere.

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use tessera_ir::attrs::AtomicMode;
use tessera_types::{DType, cast, default_rounding};

use super::marks::each_element;
use super::{Machine, Ran, sign_extend};
use crate::check::Marks;
use crate::plan::{Access, Inst, Place};
use crate::touched::{Kind, Touch};

/// Marks of an update's operands.
struct Operands {
    mask: Marks,
    addresses: Marks,
    value: Marks,
    compare: Marks,
}

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn atomic(&mut self, inst: &Inst) -> Ran<()> {
        let Inst::Atomic { addresses, value, compare, mask, old, mode, dtype, len, origin, strong, ordered, span, .. } = inst
        else {
            return Ok(());
        };
        let bytes = dtype.unpacked_bytes();
        // SAFETY: places hold `len` elements; addresses are checked.
        let (list, active) = unsafe {
            let list = std::slice::from_raw_parts(self.place(*addresses).cast::<u64>(), *len);
            (list, mask.map(|mask| std::slice::from_raw_parts(self.place(mask), *len)))
        };
        let marks = self.check.as_mut().map(|check| {
            if let Some(old) = old {
                check.clear(*old, *len);
            }
            let of = |place| check.marks(place, 0, *len);
            Operands { mask: mask.and_then(of), addresses: of(*addresses), value: of(*value), compare: compare.and_then(of) }
        });
        self.reachable(list, active, bytes, *origin, *span, Kind::Atomic)?;
        for (i, &address) in list.iter().enumerate() {
            if let (Some(check), Some(marks)) = (&self.check, &marks) {
                check.element(&marks.mask, i, *span, "a mask")?;
            }
            // SAFETY: the place holds `len` elements.
            let expected = compare.map(|compare| unsafe { element(self.place(compare), i, bytes) });
            let previous = if active.is_none_or(|active| active[i] != 0) {
                if address % bytes as u64 != 0 {
                    let message = format!("this atomic update of {bytes} bytes is not aligned to its size");
                    return Err(Box::new(tessera_ir::Diagnostic::error("cpu-atomic-align", *span, message)));
                }
                if let (Some(check), Some(marks)) = (self.check.as_mut(), &marks) {
                    check.element(&marks.addresses, i, *span, "an address")?;
                    check.element(&marks.value, i, *span, "this update")?;
                    check.element(&marks.compare, i, *span, "this update")?;
                    let kind = if *strong { Kind::Atomic } else { Kind::Write };
                    check.touch(Touch { kind, address, bytes, value: None, span: *span })?;
                }
                // SAFETY: the address was checked and is aligned.
                unsafe {
                    let operand = element(self.place(*value), i, bytes);
                    match expected {
                        Some(expected) => update(address, bytes, |old| if old == expected { operand } else { old }),
                        None => update(address, bytes, |old| combine(*mode, *dtype, old, operand)),
                    }
                }
            } else {
                expected.unwrap_or(0)
            };
            if let Some(old) = old {
                // SAFETY: the place holds `len` elements.
                unsafe {
                    let to = self.place(*old).add(i * bytes);
                    std::ptr::copy_nonoverlapping(previous.to_le_bytes().as_ptr(), to, bytes);
                }
            }
        }
        if *ordered {
            if let Some(check) = self.check.as_mut() {
                check.synchronised();
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn atomic_view(&mut self, access: &Access, value: Place, mode: AtomicMode, ordered: bool) -> Ran<()> {
        let window = self.window(access, Kind::Atomic)?;
        let len: usize = access.axes.iter().map(|axis| axis.extent).product();
        let from = self.place(value);
        let mut result = Ok(());
        let check = &mut self.check;
        let marks = check.as_ref().and_then(|check| check.marks(value, 0, len));
        each_element(&window, 0, len, |k, place| {
            let Some((address, bytes)) = place else { return };
            if let Some(check) = check {
                let kind = if access.strong { Kind::Atomic } else { Kind::Write };
                let touch = Touch { kind, address, bytes, value: None, span: access.span };
                let fine = check.element(&marks, k, access.span, "this update").and_then(|()| check.touch(touch));
                if result.is_ok() {
                    result = fine.map(|_| ());
                }
            }
            // SAFETY: the window's memory was checked; its elements are aligned as the argument is.
            unsafe {
                let operand = element(from, k, bytes);
                update(address, bytes, |old| combine(mode, access.dtype, old, operand));
            }
        });
        if ordered {
            if let Some(check) = check {
                check.synchronised();
            }
        }
        result
    }
}

unsafe fn element(from: *const u8, index: usize, bytes: usize) -> u64 {
    let mut bits = [0; 8];
    // SAFETY: the caller vouches for the element.
    unsafe { std::ptr::copy_nonoverlapping(from.add(index * bytes), bits.as_mut_ptr(), bytes) };
    u64::from_le_bytes(bits)
}

/// Replaces the element by a function of itself; what it was.
unsafe fn update(address: u64, bytes: usize, f: impl Fn(u64) -> u64) -> u64 {
    macro_rules! swap {
        ($atomic:ident, $ty:ty) => {{
            // SAFETY: the caller vouches for an aligned element; all blocks reach it by atomics while they race.
            let cell = unsafe { $atomic::from_ptr(address as usize as *mut $ty) };
            let mut old = cell.load(atomic::Ordering::Acquire);
            loop {
                let new = f(u64::from(old)) as $ty;
                match cell.compare_exchange_weak(old, new, atomic::Ordering::AcqRel, atomic::Ordering::Acquire) {
                    Ok(old) => break u64::from(old),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match bytes {
        1 => swap!(AtomicU8, u8),
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        _ => swap!(AtomicU64, u64),
    }
}

fn combine(mode: AtomicMode, dtype: DType, old: u64, operand: u64) -> u64 {
    let bytes = dtype.unpacked_bytes() as u8;
    let signed = |pick: fn(i64, i64) -> i64| pick(sign_extend(old, bytes), sign_extend(operand, bytes)) as u64;
    match mode {
        AtomicMode::And => old & operand,
        AtomicMode::Or => old | operand,
        AtomicMode::Xor => old ^ operand,
        AtomicMode::Add => old.wrapping_add(operand),
        AtomicMode::AddF => add_float(dtype, old, operand),
        AtomicMode::MaxF => extreme_float(dtype, true, old, operand),
        AtomicMode::MinF => extreme_float(dtype, false, old, operand),
        AtomicMode::Max => signed(i64::max),
        AtomicMode::Min => signed(i64::min),
        AtomicMode::UMax => old.max(operand),
        AtomicMode::UMin => old.min(operand),
        AtomicMode::Xchg => operand,
    }
}

/// The larger or smaller of two numbers: the positive one of two zeros is larger, a NaN is ignored.
fn extreme_float(dtype: DType, larger: bool, a: u64, b: u64) -> u64 {
    let wide = |bits| f64::from_bits(cast(bits, dtype, DType::F64, default_rounding(dtype, DType::F64)));
    let (x, y) = (wide(a), wide(b));
    let other = match x.partial_cmp(&y) {
        None => x.is_nan(),
        Some(Ordering::Equal) => x.is_sign_negative() == larger,
        Some(order) => (order == Ordering::Less) == larger,
    };
    if other { b } else { a }
}

fn add_float(dtype: DType, a: u64, b: u64) -> u64 {
    use tessera_types::element::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
    match dtype {
        DType::F64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        DType::F16 => u64::from(f32_to_f16(f16_to_f32(a as u16) + f16_to_f32(b as u16))),
        DType::BF16 => u64::from(f32_to_bf16(bf16_to_f32(a as u16) + bf16_to_f32(b as u16))),
        DType::F8E4M3 | DType::F8E5M2 => {
            let wide = |bits| f32::from_bits(cast(bits, dtype, DType::F32, default_rounding(dtype, DType::F32)) as u32);
            let sum = u64::from((wide(a) + wide(b)).to_bits());
            cast(sum, DType::F32, dtype, default_rounding(DType::F32, dtype))
        }
        _ => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
    }
}
