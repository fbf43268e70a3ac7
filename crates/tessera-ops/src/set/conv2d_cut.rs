//! How products of windows are cut into blocks: boxes of pixels, and channels.

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType};

use super::gemm;
use super::gemm_tiles::May;
use crate::operator::{Argument, LaunchSpec, Machine};

/// A product of windows.
pub(super) struct Windowed {
    /// Images, rows and columns of what is made.
    pub(super) pixels: [usize; 3],
    /// Channels of a group that are made, and that are summed over, once for each tap.
    pub(super) out: usize,
    pub(super) within: usize,
    pub(super) taps: usize,
    pub(super) groups: usize,
    /// Of the factors and of the result.
    pub(super) types: [DType; 2],
}

/// How a product of windows is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Images, rows and columns of a block's box of pixels.
    pub(super) pixels: [usize; 3],
    /// Channels that a block makes, and that a round sums over.
    pub(super) channels: usize,
    pub(super) depth: usize,
    /// What blocks share, and how many load together.
    sharing: Sharing,
    cluster: u32,
}

/// What a box of pixels that are summed over costs where it extends along several axes, as a share of one along a single axis, as measured where
/// threads bring the former and warps multiply; a copy engine brings both alike.
const BENT: f64 = 1.6;

/// Pixels of boxes, as a share of those of boxes that cover the images best, from which on a cut is not taken.
const WASTED: f64 = 1.1;

impl Cut {
    pub(super) fn of(windows: &Windowed, machine: Machine) -> Cut {
        Cut::of_warpgroups(windows, machine).unwrap_or_else(|| Cut::of_warps(windows, machine))
    }

    /// The cut of the matrix product of as many rows, which are pixels of a box: the copy engine brings it as lines of a factor. A box extends
    /// along any axes where its pixels are a power of two, so that few of them lie beside the images.
    fn of_warpgroups(windows: &Windowed, machine: Machine) -> Option<Cut> {
        let Machine::Gpu(arch) = machine else { return None };
        if !arch.has_wgmma() || windows.types[0].bits() != 16 {
            return None;
        }
        let rows: usize = windows.pixels.iter().product();
        let sizes = [windows.groups, rows, windows.out, windows.within * windows.taps].map(|extent| extent as u64);
        // Neighbours along x have other pixels and the same channels.
        let of = |may: May| gemm::Cut::of(sizes, windows.types, [false, true], may, machine);
        let together = of(May { cluster: true, ..May::default() });
        let own = if together.choice.is_some_and(|choice| choice.across) { of(May::default()) } else { together };
        // Columns of a thin tile are rows of a warpgroup's: the kernel does not exchange its factors.
        let choice = own.choice.filter(|choice| !choice.exchanged)?;
        let [pixels, channels, depth] = own.tile.map(|extent| extent as usize);
        let (along, count) =
            if pixels.is_power_of_two() { boxed(windows.pixels, pixels) } else { straight(windows.pixels, pixels) };
        // Rows of three warpgroups are pixels along one axis, or, where too many of these lie beside the images, those of two.
        if (count * pixels) as f64 > WASTED * (boxed(windows.pixels, 128).1 * 128) as f64 {
            return Some(Cut::of_two_warpgroups(windows, arch));
        }
        let (sharing, cluster) = match choice.sharing {
            Sharing::Blocks | Sharing::Turns | Sharing::Nothing => (choice.sharing, choice.cluster),
            Sharing::Rounds | Sharing::Cluster => (Sharing::Nothing, 0),
        };
        Some(Cut { pixels: along, channels, depth: few(windows.within, depth), sharing, cluster })
    }

    /// The cut into the largest tiles of two warpgroups.
    fn of_two_warpgroups(windows: &Windowed, arch: Arch) -> Cut {
        let (pixels, boxes) = boxed(windows.pixels, 128);
        let channels = few(windows.out, 256);
        let blocks = boxes * windows.groups * windows.out.div_ceil(channels);
        let sharing = if blocks > arch.multiprocessors() as usize { Sharing::Blocks } else { Sharing::Nothing };
        Cut { pixels, channels, depth: few(windows.within, 64), sharing, cluster: 0 }
    }

    /// The cut for warps, or threads, that multiply: lines of 128 bytes; threads hold fewer sums.
    fn of_warps(windows: &Windowed, machine: Machine) -> Cut {
        let (mut pixels, channels, depth) = match windows.types[0].bits() {
            64 => (64, 64, 16),
            32 => (64, 64, 32),
            _ => (128, 128, 64),
        };
        let channels = few(windows.out, channels);
        if let Machine::Gpu(arch) = machine {
            let blocks = boxed(windows.pixels, pixels).1 * windows.groups * windows.out.div_ceil(channels);
            if blocks < arch.multiprocessors() as usize {
                pixels = 64;
            }
        }
        let depth = few(windows.within, depth);
        Cut { pixels: boxed(windows.pixels, pixels).0, channels, depth, sharing: Sharing::Nothing, cluster: 0 }
    }

    /// A launch of the product.
    pub(super) fn launch(&self, kernel: &'static str, arguments: Vec<(&'static str, Argument)>, grid: [u32; 3]) -> LaunchSpec {
        LaunchSpec { sharing: self.sharing, cluster: self.cluster, ..LaunchSpec::new(kernel, arguments, grid) }
    }
}

/// A power of two that holds an extent, 16 at least.
fn few(extent: usize, most: usize) -> usize {
    extent.next_power_of_two().clamp(16, most)
}

/// How many boxes cover the extents.
fn count(extents: [usize; 3], own: [usize; 3]) -> usize {
    extents.iter().zip(own).map(|(&extent, own)| extent.div_ceil(own)).product()
}

/// The box of so many pixels along one axis of which fewest cover the extents, and how many there are; columns rather than rows and images.
fn straight(extents: [usize; 3], pixels: usize) -> ([usize; 3], usize) {
    let boxes = [[1, 1, pixels], [1, pixels, 1], [pixels, 1, 1]].map(|own| (own, count(extents, own)));
    boxes.into_iter().min_by_key(|(_, count)| *count).unwrap_or(boxes[0])
}

/// The same of boxes whose sides are powers of two, the one with the longest lines of images among the best.
fn boxed(extents: [usize; 3], pixels: usize) -> ([usize; 3], usize) {
    let powers = |most: usize| (0..=most.ilog2()).rev().map(|power| 1 << power);
    let boxes = powers(pixels).flat_map(|q| powers(pixels / q).map(move |p| [pixels / q / p, p, q]));
    let found = boxes.map(|own| (own, count(extents, own))).min_by_key(|(_, count)| *count);
    found.unwrap_or_else(|| straight(extents, pixels))
}

/// A box of so many pixels that are summed over: along one axis where that is little worse.
pub(super) fn lines(extents: [usize; 3], pixels: usize) -> [usize; 3] {
    let ((along, many), (bent, few)) = (straight(extents, pixels), boxed(extents, pixels));
    if many as f64 <= BENT * few as f64 { along } else { bent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_cover_images_with_few_pixels_left_over() {
        // Every size of ResNet-50 is seven times a power of two.
        assert_eq!(boxed([32, 56, 56], 128), ([2, 8, 8], 16 * 49));
        assert_eq!(boxed([32, 28, 28], 128), ([8, 4, 4], 4 * 49));
        assert_eq!(boxed([1, 1, 1000], 128), ([1, 1, 128], 8));
        assert_eq!(straight([256, 14, 14], 128), ([128, 1, 1], 2 * 196));
    }

    #[test]
    fn boxes_of_warpgroups_leave_few_pixels_beside_images() {
        let cut = |pixels: [usize; 3]| {
            let windows = Windowed { pixels, out: 256, within: 256, taps: 9, groups: 1, types: [DType::BF16; 2] };
            Cut::of(&windows, Machine::Gpu(Arch::Sm90a))
        };
        for pixels in [[32, 56, 56], [128, 28, 28], [256, 14, 14], [128, 7, 7]] {
            let cut = cut(pixels);
            let (boxes, own): (usize, usize) = (count(pixels, cut.pixels), cut.pixels.iter().product());
            assert!((boxes * own) as f64 <= WASTED * pixels.iter().product::<usize>() as f64, "{pixels:?} by {:?}", cut.pixels);
        }
        assert_eq!((cut([32, 56, 56]).channels, cut([32, 56, 56]).depth), (256, 64));
    }
}
