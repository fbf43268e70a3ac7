//! What a launch of a compiled kernel must be: its parameters, and how many blocks it needs.
//!
//! It is the part of a compiled kernel that no code says. The same value stands behind a launch on the CPU and on a device, and
//! a file that holds compiled kernels holds it with the code.

use serde::{Deserialize, Serialize};
use tessera_driver::Dim3;
use tessera_ir::{Abi, Diagnostic, Span, TileCount};

use crate::argument::{Argument, Flat};
use crate::array::Placed;
use crate::check::Checker;

/// How many blocks a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchGrid {
    /// As many as the kernel's tiles need; for kernels whose tiles the compiler chose.
    Auto,
    /// Along x, y and z.
    Blocks([u32; 3]),
}

impl From<[u32; 3]> for LaunchGrid {
    fn from(blocks: [u32; 3]) -> LaunchGrid {
        LaunchGrid::Blocks(blocks)
    }
}

/// What a compiled kernel takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The parameters that are passed, in order.
    pub abi: Abi,
    /// Whether each of them may be written.
    pub written: Vec<bool>,
    /// Arrays with named axes, in memory order: a name stands for one size wherever it occurs, a number for itself.
    pub axes: Vec<(String, Vec<String>)>,
    /// Where the compiler chose the tiles: as many blocks as the product of these counts.
    pub tiles: Option<Vec<TileCount>>,
}

impl Interface {
    /// Checks arguments against everything that the compiled kernel assumes of them. `places` has what a message about a
    /// parameter points at, where there is a text.
    ///
    /// # Errors
    /// Everything that is wrong: `missing-argument`, `argument-kind`, `argument-type`, `argument-rank`,
    /// `argument-shape`, `argument-alignment`, `argument-index`, `argument-scalar`, `symbol-mismatch`, `argument-overlap`.
    pub fn check<A: Placed>(
        &self,
        places: &[(&str, Span)],
        args: &[(&str, Argument<A>)],
    ) -> Result<Vec<Flat<A>>, Vec<Diagnostic>> {
        Checker { places, interface: self, args }.flatten()
    }

    /// The blocks of a launch of `kernel` that asks for `grid`.
    ///
    /// # Errors
    /// A grid that is not what the kernel's tiles need, that nobody gave, or that no device has.
    pub fn blocks<A: Placed>(
        &self,
        kernel: &str,
        grid: LaunchGrid,
        args: &[(&str, Argument<A>)],
    ) -> Result<[u32; 3], Box<Diagnostic>> {
        let needed = self.tiles.as_ref().map(|tiles| self.needed(tiles, args));
        match (grid, needed) {
            (LaunchGrid::Blocks(blocks), None) => check_grid(blocks).map(|()| blocks),
            (LaunchGrid::Auto, None) => {
                let message = format!("the grid of `{kernel}` cannot be chosen for it");
                Err(Box::new(
                    Diagnostic::bare("grid", message)
                        .note("the kernel says itself what a block does, so only its author knows how many are needed")
                        .help("give the number of blocks, such as `--grid 128`"),
                ))
            }
            (_, Some(None)) => Err(Box::new(Diagnostic::bare("grid", "the arrays need more blocks than a grid can have"))),
            (LaunchGrid::Auto, Some(Some(blocks))) => Ok([blocks, 1, 1]),
            (LaunchGrid::Blocks(given), Some(Some(blocks))) => {
                if given == [blocks, 1, 1] || given.contains(&0) && blocks == 0 {
                    return Ok(given);
                }
                let message = format!("`{kernel}` needs a grid of {blocks}, {given:?} is given");
                Err(Box::new(Diagnostic::bare("grid", message).help("write `--grid auto`")))
            }
        }
    }

    fn needed<A: Placed>(&self, tiles: &[TileCount], args: &[(&str, Argument<A>)]) -> Option<u32> {
        TileCount::blocks(tiles, |param, axis| {
            let name = self.abi.params.get(param).map(|param| param.name.as_str());
            match args.iter().find(|(given, _)| Some(*given) == name) {
                Some((_, Argument::Array(array))) => array.sizes().get(axis).map_or(0, |&size| size as i64),
                _ => 0,
            }
        })
    }
}

/// Refuses grids that no device can launch. One without blocks is a launch of nothing, as an array without elements asks for.
///
/// # Errors
/// The axis that has too many.
pub fn check_grid(grid: [u32; 3]) -> Result<(), Box<Diagnostic>> {
    for ((axis, &blocks), most) in ["x", "y", "z"].iter().zip(&grid).zip(Dim3::MOST_BLOCKS) {
        if blocks > most {
            let message = format!("the grid has {blocks} blocks along {axis}, at most {most} are possible");
            return Err(Box::new(Diagnostic::bare("grid", message).help("put the long axis along x, or more work into a block")));
        }
    }
    Ok(())
}
