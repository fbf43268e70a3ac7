//! Copies that bypass the caches: for outputs that are larger than them and not read soon.
//!
//! A streaming store writes whole lines of 64 bytes without reading them first. Streaming stores of one thread become visible to
//! others in no order until [`fence`]; a block that streamed calls it before it ends.

/// Copies bytes, streaming the lines that lie wholly in the destination.
///
/// # Safety
/// `len` bytes may be read at `src` and written at `dst`, which do not overlap.
pub(crate) unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::dispatch::Level;
        if len >= 256 {
            // SAFETY: the caller's promise; the processor has the level's instructions.
            unsafe {
                match Level::best() {
                    Level::Avx512 | Level::Avx512Vnni => return lines_avx512(dst, src, len),
                    Level::Avx2 | Level::Avx2Vnni => return lines_avx2(dst, src, len),
                    Level::Portable => {}
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { dst.copy_from_nonoverlapping(src, len) }
}

/// Orders the streaming stores of this thread before what it writes next.
#[inline]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of the architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! lines {
    ($name:ident, $features:literal, $vector:ty, $load:ident, $stream:ident) => {
        #[target_feature(enable = $features)]
        unsafe fn $name(dst: *mut u8, src: *const u8, len: usize) {
            use std::arch::x86_64::*;
            const VECTORS: usize = 64 / size_of::<$vector>();
            let head = dst.align_offset(64).min(len);
            let lines = (len - head) / 64;
            // SAFETY: head, lines and rest make up the `len` bytes; lines are aligned.
            unsafe {
                dst.copy_from_nonoverlapping(src, head);
                let (to, from) = (dst.add(head).cast::<$vector>(), src.add(head).cast::<$vector>());
                for i in 0..lines * VECTORS {
                    $stream(to.add(i), $load(from.add(i)));
                }
                let done = head + lines * 64;
                dst.add(done).copy_from_nonoverlapping(src.add(done), len - done);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
lines!(lines_avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512);
#[cfg(target_arch = "x86_64")]
lines!(lines_avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_arrives_and_nothing_else_changes() {
        let src: Vec<u8> = (0..2000u32).map(|i| (i * 7 + 3) as u8).collect();
        for (shift, from, len) in [(0, 0, 0), (1, 5, 63), (3, 0, 256), (0, 1, 257), (63, 2, 1000), (17, 64, 1500)] {
            let mut dst = vec![0xaau8; 2000];
            // SAFETY: both ranges lie in their vectors.
            unsafe { stream(dst.as_mut_ptr().add(shift), src.as_ptr().add(from), len) };
            fence();
            assert_eq!(dst[shift..shift + len], src[from..from + len]);
            assert!(dst[..shift].iter().chain(&dst[shift + len..]).all(|&x| x == 0xaa), "{len} bytes at {shift}");
        }
    }
}
