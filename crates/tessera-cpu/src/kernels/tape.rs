//! Chains of `f32` arithmetic in registers: a few vectors go through all steps of a chain before the next ones come.
//!
//! A tape is a machine with one accumulator, a few vectors wide. Each step takes its other operand from memory: an array, a tile
//! that lies in a near cache, a number for all elements. Nothing is written between two steps but what is needed again, so a
//! chain costs little more than its loads, its arithmetic and its last store, which goes past the caches where that pays.
//!
//! ```text
//! y = (x - mean) * scale * w     Load x; Sub mean; Mul scale; Mul w; Store y
//! ```
//!
//! Elements are independent but for sums and their like, whose running values follow [`super::reduce`].

use super::dispatch::Level;
use super::reduce::{Combine as _, LANES, Max, MaxNan, Min, MinNan};
use super::vector::{Eight, Four, Vector};
use crate::lanes::{self, Float, FloatOp, Isa, LaneOp, Strips};
use crate::plan::Combine;

/// What a step does to the accumulator `x`, with operands `a` and `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// `x = a`.
    Load,
    /// `a = x`.
    Store,
    /// `x = x + a`.
    Add,
    /// `x = x - a`.
    Sub,
    /// `x = a - x`.
    SubFrom,
    /// `x = x * a`.
    Mul,
    /// `x = x * x`.
    Square,
    /// `x = x / a`.
    Div,
    /// `x = a / x`.
    DivInto,
    /// `x = x * a + b`, rounded once.
    MulAdd,
    /// `x = a * b + x`, rounded once.
    AddMul,
    /// `x = op(x)`, one call for all elements.
    Call(FloatOp),
    /// `x = op(x, a)`.
    CallWith(FloatOp),
    /// `x = op(a, x)`.
    CallFrom(FloatOp),
    /// Running values at `a` take the elements.
    Reduce(Combine),
}

/// Where an operand stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// The first element.
    pub(crate) at: *mut f32,
    /// The same memory for all elements: one number, or what a step kept for later ones.
    pub(crate) fixed: bool,
    /// One number for all elements.
    pub(crate) splat: bool,
    /// Stores go past the caches; the address is a multiple of 64 bytes.
    pub(crate) stream: bool,
    /// Bytes ahead of what is read that are asked for, so that they have come when they are; 0 for nothing.
    pub(crate) ahead: usize,
}

impl Operand {
    /// An operand that is not there.
    pub(crate) const NONE: Operand = Operand { at: std::ptr::null_mut(), fixed: true, splat: false, stream: false, ahead: 0 };
}

/// A step of a tape, its operands bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) code: Code,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
}

/// Elements that a step may keep for later ones: those of the widest accumulator.
pub(crate) const KEPT: usize = 128;

/// True where the processor has registers that tapes are written for.
pub(crate) fn is_fast() -> bool {
    Level::best() >= Level::Avx2
}

/// Runs all steps, of which the first loads, over `len` elements.
///
/// # Safety
/// Operands hold `len` elements, those of `fixed` ones [`KEPT`], numbers one, running values [`LANES`]. What is written overlaps
/// nothing that is read by a later step.
pub(crate) unsafe fn run(steps: &[Step], len: usize) {
    let isa = Isa::detect();
    // SAFETY: the caller's promise; the processor has the level's instructions.
    unsafe {
        match Level::best() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vnni => avx512(steps, len, isa),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx2Vnni => avx2(steps, len, isa),
            _ => body::<f32>(steps, len, isa),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c")]
unsafe fn avx512(steps: &[Step], len: usize, isa: Isa) {
    // SAFETY: passed on.
    unsafe { body::<std::arch::x86_64::__m512>(steps, len, isa) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c")]
unsafe fn avx2(steps: &[Step], len: usize, isa: Isa) {
    // SAFETY: passed on.
    unsafe { body::<std::arch::x86_64::__m256>(steps, len, isa) };
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Steps of a tape that mostly waits for memory.
const SHORT: usize = 3;

#[inline(always)]
unsafe fn body<V: Vector>(steps: &[Step], len: usize, isa: Isa) {
    // SAFETY: passed on.
    unsafe {
        // More vectors hide more of what an operation waits for; fewer keep loads and stores mixed.
        if steps.len() > SHORT { chunks::<Eight<V>, V>(steps, len, isa) } else { chunks::<Four<V>, V>(steps, len, isa) }
    }
}

#[inline(always)]
unsafe fn chunks<W: Vector, V: Vector>(steps: &[Step], len: usize, isa: Isa) {
    let mut at = 0;
    // SAFETY: passed on; the chunks end at `len`.
    unsafe {
        while at + W::LANES <= len {
            chunk::<W>(steps, at, isa);
            at += W::LANES;
        }
        while at + V::LANES <= len {
            chunk::<V>(steps, at, isa);
            at += V::LANES;
        }
        while at < len {
            chunk::<f32>(steps, at, isa);
            at += 1;
        }
    }
}

/// All steps over the next elements.
#[inline(always)]
unsafe fn chunk<V: Vector>(steps: &[Step], at: usize, isa: Isa) {
    // SAFETY: passed on.
    unsafe {
        let Some((first, steps)) = steps.split_first() else { return };
        let mut x = value::<V>(&first.a, at);
        for step in steps {
            x = match step.code {
                Code::Load => value(&step.a, at),
                Code::Store => {
                    let to = place(&step.a, at);
                    if step.a.stream && V::LANES * 4 >= LINE {
                        x.stream(to)
                    } else {
                        x.store(to)
                    };
                    x
                }
                Code::Add => x.add(value(&step.a, at)),
                Code::Sub => x.sub(value(&step.a, at)),
                Code::SubFrom => value::<V>(&step.a, at).sub(x),
                Code::Mul => x.mul(value(&step.a, at)),
                Code::Square => x.mul(x),
                Code::Div => x.div(value(&step.a, at)),
                Code::DivInto => value::<V>(&step.a, at).div(x),
                Code::MulAdd => x.mul_add(value(&step.a, at), value(&step.b, at)),
                Code::AddMul => value::<V>(&step.a, at).mul_add(value(&step.b, at), x),
                Code::Call(op) => call(op, x, x, isa),
                Code::CallWith(op) => call(op, x, value(&step.a, at), isa),
                Code::CallFrom(op) => call(op, value(&step.a, at), x, isa),
                Code::Reduce(combine) => {
                    let lanes = step.a.at;
                    match combine {
                        Combine::Add => reduce(x, lanes, at, |x, y| x.add(y)),
                        Combine::Mul => reduce(x, lanes, at, |x, y| x.mul(y)),
                        Combine::Max => reduce(x, lanes, at, |x, y| x.zip(y, |x, y| Max.step(x, y))),
                        Combine::Min => reduce(x, lanes, at, |x, y| x.zip(y, |x, y| Min.step(x, y))),
                        Combine::MaxNan => reduce(x, lanes, at, |x, y| x.zip(y, |x, y| MaxNan.step(x, y))),
                        Combine::MinNan => reduce(x, lanes, at, |x, y| x.zip(y, |x, y| MinNan.step(x, y))),
                    }
                    x
                }
            };
        }
    }
}

/// An operation that is not worth a step of its own, or takes many registers: its operands go through memory.
#[inline(always)]
unsafe fn call<V: Vector>(op: FloatOp, x: V, y: V, isa: Isa) -> V {
    #[repr(align(64))]
    struct Chunk(std::mem::MaybeUninit<[f32; KEPT]>);
    let [mut result, mut left, mut right] = [const { Chunk(std::mem::MaybeUninit::uninit()) }; 3];
    // SAFETY: a chunk holds as many elements as any vector; what is read was written.
    unsafe {
        x.store(left.0.as_mut_ptr().cast());
        y.store(right.0.as_mut_ptr().cast());
        let src = [left.0.as_ptr().cast(), right.0.as_ptr().cast(), std::ptr::null()];
        let dst: *mut f32 = result.0.as_mut_ptr().cast();
        lanes::apply(isa, LaneOp::Float(op, Float::F32), Strips { dst: dst.cast(), src, len: V::LANES });
        V::load(dst)
    }
}

#[inline(always)]
unsafe fn place(operand: &Operand, at: usize) -> *mut f32 {
    // SAFETY: the operand has more than `at` elements, or always stands at its first.
    unsafe { operand.at.add(if operand.fixed { 0 } else { at }) }
}

/// The operand's elements from `at` on.
#[inline(always)]
unsafe fn value<V: Vector>(operand: &Operand, at: usize) -> V {
    // SAFETY: passed on.
    unsafe {
        let from = place(operand, at);
        if operand.splat {
            return V::splat(*from);
        }
        if V::LANES * 4 >= LINE && operand.ahead != 0 {
            ask(from.cast::<u8>().wrapping_add(operand.ahead), V::LANES * 4);
        }
        V::load(from)
    }
}

/// Element `at + i` goes to the running value `(at + i) mod LANES`.
#[inline(always)]
unsafe fn reduce<V: Vector>(x: V, lanes: *mut f32, at: usize, f: impl Fn(V::Part, V::Part) -> V::Part) {
    let first = if V::LANES >= LANES { 0 } else { at % LANES };
    // SAFETY: registers divide the lanes, and chunks as long as they are start at the first.
    unsafe {
        x.parts(|before, part| {
            let lane = lanes.add((first + before) % LANES);
            f(V::Part::load(lane), part).store(lane);
        });
    }
}

/// Asks for bytes that are read later.
#[inline(always)]
fn ask(from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches no memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(offset).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, bytes);
}
