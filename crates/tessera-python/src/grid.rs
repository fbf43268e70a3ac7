//! Grids of the caller's.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tessera::runtime::LaunchGrid;

use crate::array::refuse;
use crate::error::Failure;

/// One to three numbers, or one alone; without any the compiler chooses.
pub(crate) fn blocks(grid: &Bound<'_, PyAny>) -> PyResult<LaunchGrid> {
    if grid.is_none() {
        return Ok(LaunchGrid::Auto);
    }
    let mut blocks = [1; 3];
    if let Ok(axes) = grid.cast::<PyTuple>()
        && (1..=3).contains(&axes.len())
    {
        for (block, axis) in blocks.iter_mut().zip(axes.iter_borrowed()) {
            *block = extent(&axis, grid)?;
        }
        return Ok(LaunchGrid::Blocks(blocks));
    }
    match grid.extract::<u32>() {
        Ok(block) => return Ok(LaunchGrid::Blocks([block, 1, 1])),
        Err(error) if error.is_instance_of::<PyTypeError>(grid.py()) => {}
        Err(_) => return Err(beyond(grid)),
    }
    let Ok(axes) = grid.try_iter().and_then(|axes| axes.collect::<PyResult<Vec<_>>>()) else { return Err(no_grid(grid)) };
    if !(1..=3).contains(&axes.len()) {
        return Err(beyond(grid));
    }
    for (block, axis) in blocks.iter_mut().zip(&axes) {
        *block = extent(axis, grid)?;
    }
    Ok(LaunchGrid::Blocks(blocks))
}

fn extent(axis: &Bound<'_, PyAny>, grid: &Bound<'_, PyAny>) -> PyResult<u32> {
    axis.extract::<u32>()
        .map_err(|error| if error.is_instance_of::<PyTypeError>(grid.py()) { no_grid(grid) } else { beyond(grid) })
}

fn no_grid(grid: &Bound<'_, PyAny>) -> PyErr {
    refuse(grid.py(), format!("a grid is one to three integers, not {}", said(grid)))
}

fn beyond(grid: &Bound<'_, PyAny>) -> PyErr {
    let text = format!("a grid is one to three integers that are not negative and have 32 bits, not {}", said(grid));
    Failure::plain("value", text).raise(grid.py())
}

fn said(grid: &Bound<'_, PyAny>) -> String {
    grid.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string())
}
