//! What a launch of a compiled kernel needs, as text for who launches it with a driver of their own.
//!
//! ```text
//! launch softmax: 128 threads a block, 4096 bytes of dynamic shared memory
//! grid: the blocks that were asked for
//! parameters, in this order:
//!   x: the address of element 0 of an array of f32 (a multiple of 16), 2 sizes and 2 strides in elements, each .s32
//! ```

use std::fmt::Write;

use tessera_types::{L2Promotion, OutOfBounds, Swizzle};

use crate::abi::{Abi, AbiParam, ParamKind};
use crate::image::{GridRule, HiddenParam, KernelImage, LaunchFacts, TensorMapPlan, TileCount};

/// The lines, each with its line break.
pub fn launch_notes(image: &KernelImage) -> String {
    let LaunchFacts { threads, shared_bytes, cluster, tiles, grid, overlaps_predecessor } = &image.launch;
    let mut text = format!("launch {}: {} threads a block", image.entry, by(threads));
    if grid.programs > 1 {
        let _ = write!(
            text,
            ", or 2 to {} times as many for so many neighbours along x of the blocks that were asked for",
            grid.programs
        );
    }
    if *shared_bytes > 0 {
        let _ = write!(text, ", {shared_bytes} bytes of dynamic shared memory");
    }
    if let Some(cluster) = cluster {
        let _ = write!(text, ", clusters of {} blocks", by(cluster));
    }
    let _ = writeln!(text, "\ngrid: {}", rule(*grid));
    if let Some(tiles) = tiles {
        let _ = writeln!(text, "blocks to ask for: {}", counts(tiles, &image.abi));
    }
    if *overlaps_predecessor {
        text.push_str(
            "the launch may start before its predecessor in the stream has ended (programmatic stream serialization)\n",
        );
    }
    if image.abi.params.is_empty() && image.hidden.is_empty() {
        text.push_str("no parameters\n");
        return text;
    }
    text.push_str("parameters, in this order:\n");
    for param in &image.abi.params {
        let _ = writeln!(text, "  {}", argument(param));
    }
    for param in &image.hidden {
        let _ = writeln!(text, "  {}", supplied(param, &image.abi));
    }
    text
}

/// `128`, or `16x8x1` where there is more than one axis.
fn by(extents: &[u32; 3]) -> String {
    match extents {
        [x, 1, 1] => x.to_string(),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

fn rule(grid: GridRule) -> String {
    let whole = if grid.whole_clusters { ", along x in whole clusters" } else { "" };
    let asked = match grid.blocks {
        [1, 1, 1] => "the blocks that were asked for".to_owned(),
        blocks => format!("{} times the blocks that were asked for", by(&blocks)),
    };
    match grid.per_multiprocessor {
        None => format!("{asked}{whole}"),
        Some(each) if grid.fills => format!("one row of {each} a multiprocessor, which share {asked}"),
        Some(most) => format!("one row of {asked}{whole}, at most {most} a multiprocessor"),
    }
}

/// `ceil(A.size0 / 64) * ceil(B.size1 / 128)`.
fn counts(tiles: &[TileCount], abi: &Abi) -> String {
    let name = |param: usize| abi.params.get(param).map_or("?", |param| &*param.name);
    let count = |tile: &TileCount| format!("ceil({}.size{} / {})", name(tile.param), tile.axis, tile.tile);
    if tiles.is_empty() { "1".to_owned() } else { tiles.iter().map(count).collect::<Vec<_>>().join(" * ") }
}

fn argument(param: &AbiParam) -> String {
    let name = &param.name;
    match &param.kind {
        ParamKind::Array { dtype, shape, index, align, .. } => {
            let (rank, index) = (shape.len(), index.dtype().bits());
            let axes = match rank {
                0 => String::new(),
                1 => format!(", its size and its stride in elements, both .s{index}"),
                _ => format!(", {rank} sizes and {rank} strides in elements, each .s{index}"),
            };
            format!("{name}: the address of element 0 of an array of {dtype} (a multiple of {align}){axes}")
        }
        ParamKind::List { dtype, rank, index } => {
            let index = index.dtype().bits();
            format!(
                "{name}: the address of a table, for each array of {dtype} its address, {rank} sizes and {rank} strides as 64-bit words; how many, .s{index}"
            )
        }
        ParamKind::Scalar { dtype } => format!("{name}: {dtype}"),
        ParamKind::Operand { dtype, axes } => format!("{name}: the address of an array of {dtype} [{}]", axes.join(", ")),
    }
}

fn supplied(param: &HiddenParam, abi: &Abi) -> String {
    match param {
        HiddenParam::TensorMap(plan) => tensor_map(plan, abi),
        HiddenParam::Grid => "the blocks that were asked for along x, y and z, each .u32".to_owned(),
        HiddenParam::Workspace { bytes, bytes_per_block } => {
            format!("the address of {bytes} bytes and {bytes_per_block} a block, zero before the first launch")
        }
        HiddenParam::Assertions(list) => {
            format!("the address of 16 bytes, zero, that the host can read after a fault: {} assertions", list.len())
        }
        HiddenParam::Timeline(plan) => format!("the address of zeroed memory for times: {} slots a warp", plan.slots()),
    }
}

fn tensor_map(plan: &TensorMapPlan, abi: &Abi) -> String {
    let param = abi.params.get(plan.param);
    let own = param.and_then(|param| match &param.kind {
        ParamKind::Array { dtype, .. } | ParamKind::Operand { dtype, .. } => Some(*dtype),
        ParamKind::List { .. } | ParamKind::Scalar { .. } => None,
    });
    let name = param.map_or("?", |param| &*param.name);
    let dtype = plan.dtype.or(own).map_or_else(String::new, |dtype| format!(" of {dtype}"));
    let list = |numbers: Vec<String>| numbers.join(", ");
    let axes = list(plan.axes.iter().map(usize::to_string).collect());
    let tile = list(plan.tile.iter().map(u32::to_string).collect());
    let swizzle = match plan.swizzle {
        Swizzle::None => "no swizzle",
        Swizzle::B32 => "swizzle 32B",
        Swizzle::B64 => "swizzle 64B",
        Swizzle::B128 => "swizzle 128B",
    };
    let promotion = match plan.l2 {
        L2Promotion::None => "",
        L2Promotion::B64 => ", L2 promotion 64B",
        L2Promotion::B128 => ", L2 promotion 128B",
        L2Promotion::B256 => ", L2 promotion 256B",
    };
    let outside = match plan.outside {
        OutOfBounds::Zero => "zeros outside",
        OutOfBounds::Nan => "NaN outside",
    };
    format!(
        "a tensor map{dtype} over {name} by value (128 bytes, a multiple of 64): axes [{axes}], the contiguous one first, box [{tile}], {swizzle}, {outside}{promotion}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::IndexType;
    use crate::image::ImageCode;
    use crate::types::Extent;
    use tessera_types::DType;

    #[test]
    fn every_part_of_a_launch_is_named() {
        let array = ParamKind::Array {
            dtype: DType::BF16,
            shape: [Extent::Static(64), Extent::Static(32)].into_iter().collect(),
            strides: [Extent::Static(32), Extent::Static(1)].into_iter().collect(),
            index: IndexType::I32,
            align: 16,
            lines: 16,
            disjoint: true,
        };
        let plan = TensorMapPlan {
            param: 0,
            axes: vec![1, 0],
            tile: vec![64, 128],
            dtype: None,
            swizzle: Swizzle::B128,
            l2: L2Promotion::B256,
            outside: OutOfBounds::Zero,
        };
        let scalar = ParamKind::Scalar { dtype: DType::F32 };
        let param = |name: &str, kind: &ParamKind| AbiParam { name: name.to_owned(), kind: kind.clone() };
        let image = KernelImage {
            entry: "scale".to_owned(),
            target: "sm_90a".to_owned(),
            code: ImageCode::Ptx(String::new()),
            abi: Abi { params: vec![param("x", &array), param("factor", &scalar)], stated: Vec::new() },
            hidden: vec![HiddenParam::TensorMap(plan), HiddenParam::Grid],
            launch: LaunchFacts {
                threads: [384, 1, 1],
                shared_bytes: 98304,
                cluster: Some([2, 1, 1]),
                tiles: Some(vec![TileCount { param: 0, axis: 0, tile: 128 }]),
                grid: GridRule { per_multiprocessor: Some(1), ..GridRule::default() },
                overlaps_predecessor: false,
            },
        };
        let wanted = "\
launch scale: 384 threads a block, 98304 bytes of dynamic shared memory, clusters of 2 blocks
grid: one row of the blocks that were asked for, at most 1 a multiprocessor
blocks to ask for: ceil(x.size0 / 128)
parameters, in this order:
  x: the address of element 0 of an array of bf16 (a multiple of 16), 2 sizes and 2 strides in elements, each .s32
  factor: f32
  a tensor map of bf16 over x by value (128 bytes, a multiple of 64): axes [1, 0], the contiguous one first, box [64, 128], swizzle 128B, zeros outside, L2 promotion 256B
  the blocks that were asked for along x, y and z, each .u32
";
        assert_eq!(launch_notes(&image), wanted);
    }
}
