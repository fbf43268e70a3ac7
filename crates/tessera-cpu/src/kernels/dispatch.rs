//! Which instructions the processor has, asked once, and functions compiled for each set of them.
//!
//! [`simd!`] turns one body into a function for every [`Level`]; the compiler vectorises each with the registers it has, and
//! calls take the widest.
//!
//! ```text
//! simd! {
//!     fn double[T: Float](x: &mut [T]) { for x in x { *x = *x + *x; } }
//! }
//! ```

use std::sync::OnceLock;

/// A set of instructions; later ones contain earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX2 with 8-bit dot products.
    Avx2Vnni,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// AVX-512 with 8-bit dot products.
    Avx512Vnni,
}

/// The level in use, fixed by the first question for it.
static BEST: OnceLock<Level> = OnceLock::new();

impl Level {
    /// Every level this processor has, the best last.
    pub(crate) fn all() -> &'static [Level] {
        static ALL: OnceLock<Vec<Level>> = OnceLock::new();
        ALL.get_or_init(detect)
    }

    /// The level in use: the best that this processor has, unless [`Level::limit`] said less.
    #[inline]
    pub(crate) fn best() -> Level {
        *BEST.get_or_init(|| Level::within(Level::Avx512Vnni))
    }

    /// The level that kernels of this process use.
    pub fn in_use() -> Level {
        Level::best()
    }

    /// Uses no level beyond this one. Call it once, before any work: false when the level is fixed already.
    pub fn limit(self) -> bool {
        BEST.set(Level::within(self)).is_ok()
    }

    fn within(limit: Level) -> Level {
        Level::all().iter().copied().rfind(|&level| level <= limit).unwrap_or(Level::Portable)
    }

    /// Reads `portable`, `avx2`, `avx2-vnni`, `avx512` or `avx512-vnni`.
    pub fn parse(text: &str) -> Option<Level> {
        Some(match text {
            "portable" => Level::Portable,
            "avx2" => Level::Avx2,
            "avx2-vnni" => Level::Avx2Vnni,
            "avx512" => Level::Avx512,
            "avx512-vnni" => Level::Avx512Vnni,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx2Vnni => "avx2-vnni",
            Level::Avx512 => "avx512",
            Level::Avx512Vnni => "avx512-vnni",
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Level> {
    let mut levels = vec![Level::Portable];
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    if !avx2 {
        return levels;
    }
    levels.push(Level::Avx2);
    if is_x86_feature_detected!("avxvnni") {
        levels.push(Level::Avx2Vnni);
    }
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 {
        levels.push(Level::Avx512);
        if is_x86_feature_detected!("avx512vnni") {
            levels.push(Level::Avx512Vnni);
        }
    }
    levels
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Vec<Level> {
    vec![Level::Portable]
}

/// Compiles a body once for every width of vectors. Type parameters must follow from the arguments.
macro_rules! simd {
    ($($(#[$attr:meta])* $vis:vis fn $name:ident $([$($generics:tt)*])? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$attr])*
        $vis fn $name $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
            fn avx2 $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
            fn avx512 $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match $crate::kernels::dispatch::Level::best() {
                // SAFETY: the processor has the level's instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::dispatch::Level::Avx512 | $crate::kernels::dispatch::Level::Avx512Vnni => unsafe { avx512($($arg),*) },
                // SAFETY: the processor has the level's instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::dispatch::Level::Avx2 | $crate::kernels::dispatch::Level::Avx2Vnni => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    )*};
}
pub(crate) use simd;
