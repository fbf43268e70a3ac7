//! Host arrays on the emulator: their bytes are copied there, and back where a kernel has written.
//!
//! Arrays that share memory on the host share it there. Each piece of memory is as far off an address of 16 bytes there as here, so that a
//! kernel is compiled for the alignment that the arrays have.

#![allow(unsafe_code, reason = "copies from and to arrays of other libraries")]

use pyo3::prelude::*;
use tessera::runtime::{Device, DriverDevice, Placed, Tensor};
use tessera::types::DType;

use crate::array::{Given, refuse};

/// Alignment that is kept.
const ALIGN: u64 = 16;

/// A piece of host memory, and where it lies on the device.
struct Piece {
    start: u64,
    end: u64,
    /// Holds the bytes from `start` on, behind `before` bytes of nothing.
    there: Tensor,
    before: u64,
}

/// The arrays of a launch, staged.
pub(crate) struct Stage {
    device: DriverDevice,
    pieces: Vec<Piece>,
}

/// The bytes of a range of host memory.
///
/// # Safety
/// The range is readable while the slice lives.
pub(crate) unsafe fn bytes<'a>(start: u64, end: u64) -> &'a [u8] {
    if start == end {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start as usize), (end - start) as usize) }
}

impl Stage {
    pub(crate) fn new(py: Python<'_>, device: &DriverDevice, arrays: &[&Given]) -> PyResult<Stage> {
        let mut ranges: Vec<(u64, u64)> =
            arrays.iter().map(|given| (given.address, given.address + given.span() as u64)).collect();
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let piece = |(start, end): (u64, u64)| {
            let before = start % ALIGN;
            let mut text = vec![0; before as usize];
            // SAFETY: the range is spanned by arrays that live.
            text.extend_from_slice(unsafe { bytes(start, end) });
            let there = Tensor::from_bytes(DType::U8, &[text.len()], &text)
                .and_then(|host| host.to_device(&Device::Driver(device.clone())));
            there.map(|there| Piece { start, end, there, before }).map_err(|error| refuse(py, error.to_string()))
        };
        Ok(Stage { device: device.clone(), pieces: merged.into_iter().map(piece).collect::<PyResult<_>>()? })
    }

    fn piece(&self, given: &Given) -> Option<&Piece> {
        self.pieces.iter().find(|piece| piece.start <= given.address && given.address < piece.end)
    }

    /// The array where it lies on the device. One without elements lies nowhere.
    pub(crate) fn given(&self, py: Python<'_>, given: &Given) -> PyResult<Given> {
        let place = |piece: &Piece| piece.there.start() + piece.before + (given.address - piece.start);
        Ok(given.at(py, self.piece(given).map_or(0, place)))
    }

    /// A tensor over the array on the device.
    pub(crate) fn tensor(&self, py: Python<'_>, given: &Given, name: &str) -> PyResult<Tensor> {
        self.given(py, given)?.on_device(py, &self.device, name)
    }

    /// Copies arrays back to the host. Bytes between the elements of an array with gaps are what they were, unless the kernel has written them.
    pub(crate) fn bring_back<'a>(&self, py: Python<'_>, written: impl Iterator<Item = &'a Given>) -> PyResult<()> {
        let mut done: Vec<u64> = Vec::new();
        for piece in written.filter_map(|given| self.piece(given)) {
            if done.contains(&piece.start) {
                continue;
            }
            done.push(piece.start);
            let host = piece.there.to_device(&Device::Cpu).map_err(|error| refuse(py, error.to_string()))?;
            let text = host.read::<u8>().map_err(|error| refuse(py, error.to_string()))?;
            let text = &text[piece.before as usize..];
            let to = std::ptr::with_exposed_provenance_mut::<u8>(piece.start as usize);
            // SAFETY: the arrays that span the range live, and those that are written may be.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
        }
        Ok(())
    }
}
