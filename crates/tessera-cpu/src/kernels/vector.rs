//! `f32` vectors as wide as the processor's registers, for loops that are written once.
//!
//! A loop is generic over [`Vector`] and inlined into one function for each instruction set. Every method rounds as the scalar
//! operation does, so a loop gives the same bits with `f32`, which is a vector of one.
//!
//! ```text
//! #[target_feature(enable = "avx512f")] fn wide(..) { body::<__m512>(..) }
//! ```

/// Some `f32` side by side.
///
/// # Safety
/// Methods of a type are called only where its instruction set is enabled; pointers hold [`Vector::LANES`] elements.
pub(super) unsafe trait Vector: Copy {
    /// Elements.
    const LANES: usize;
    /// What one register holds of it.
    type Part: Vector;

    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Past the caches; the address is a multiple of the vector's size.
    unsafe fn stream(self, to: *mut f32);
    unsafe fn splat(value: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + summand`, rounded once.
    unsafe fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// A function of the elements of both; without branches it becomes vector code.
    unsafe fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self;
    /// Visits each register with the number of elements before it.
    unsafe fn parts(self, visit: impl FnMut(usize, Self::Part));
}

/// Four vectors, one after another.
#[derive(Clone, Copy)]
pub(super) struct Four<V>(V, V, V, V);

/// Eight vectors, one after another.
#[derive(Clone, Copy)]
pub(super) struct Eight<V>(V, V, V, V, V, V, V, V);

macro_rules! several {
    ($name:ident, $count:literal, $($k:tt)*) => {
        // SAFETY: each method is that of every vector.
        unsafe impl<V: Vector> Vector for $name<V> {
            const LANES: usize = $count * V::LANES;
            type Part = V::Part;

            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller's promises, here and below.
                unsafe { $name($(V::load(from.add($k * V::LANES))),*) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { $(self.$k.store(to.add($k * V::LANES));)* }
            }
            #[inline(always)]
            unsafe fn stream(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { $(self.$k.stream(to.add($k * V::LANES));)* }
            }
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: as above.
                unsafe { $name($({ let _ = $k; V::splat(value) }),*) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.add(other.$k)),*) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.sub(other.$k)),*) }
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.mul(other.$k)),*) }
            }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.div(other.$k)),*) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, summand: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.mul_add(factor.$k, summand.$k)),*) }
            }
            #[inline(always)]
            unsafe fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
                // SAFETY: as above.
                unsafe { $name($(self.$k.zip(other.$k, &f)),*) }
            }
            #[inline(always)]
            unsafe fn parts(self, mut visit: impl FnMut(usize, V::Part)) {
                // SAFETY: as above.
                unsafe { $(self.$k.parts(|before, part| visit($k * V::LANES + before, part));)* }
            }
        }
    };
}
several!(Four, 4, 0 1 2 3);
several!(Eight, 8, 0 1 2 3 4 5 6 7);

// SAFETY: the scalar operations.
unsafe impl Vector for f32 {
    const LANES: usize = 1;
    type Part = f32;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { *from }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { *to = self };
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { *to = self };
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    unsafe fn add(self, other: f32) -> f32 {
        self + other
    }
    #[inline(always)]
    unsafe fn sub(self, other: f32) -> f32 {
        self - other
    }
    #[inline(always)]
    unsafe fn mul(self, other: f32) -> f32 {
        self * other
    }
    #[inline(always)]
    unsafe fn div(self, other: f32) -> f32 {
        self / other
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: f32, summand: f32) -> f32 {
        f32::mul_add(self, factor, summand)
    }
    #[inline(always)]
    unsafe fn zip(self, other: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        f(self, other)
    }
    #[inline(always)]
    unsafe fn parts(self, mut visit: impl FnMut(usize, f32)) {
        visit(0, self);
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($ty:ident, $lanes:literal, $load:ident, $store:ident, $stream:ident, $splat:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident) => {
        // SAFETY: each method is the instruction for every element.
        unsafe impl Vector for std::arch::x86_64::$ty {
            const LANES: usize = $lanes;
            type Part = Self;

            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller's promises, here and below.
                unsafe { std::arch::x86_64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$store(to, self) };
            }
            #[inline(always)]
            unsafe fn stream(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$stream(to, self) };
            }
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$splat(value) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$sub(self, other) }
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$mul(self, other) }
            }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$div(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, summand: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$fma(self, factor, summand) }
            }
            #[inline(always)]
            unsafe fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
                // SAFETY: as above.
                let (mut elements, others) = unsafe {
                    (std::mem::transmute::<Self, [f32; $lanes]>(self), std::mem::transmute::<Self, [f32; $lanes]>(other))
                };
                elements.iter_mut().zip(others).for_each(|(x, y)| *x = f(*x, y));
                // SAFETY: as above.
                unsafe { std::mem::transmute::<[f32; $lanes], Self>(elements) }
            }
            #[inline(always)]
            unsafe fn parts(self, mut visit: impl FnMut(usize, Self)) {
                visit(0, self);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(
    __m256,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_stream_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    _mm256_fmadd_ps
);
#[cfg(target_arch = "x86_64")]
vector!(
    __m512,
    16,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_stream_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_div_ps,
    _mm512_fmadd_ps
);
