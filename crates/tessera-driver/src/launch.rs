//! What a launch is: a kernel, its extents and its parameters as the bytes the kernel will read.
//!
//! Parameters travel as one packed buffer laid out by the PTX rule, each at the next multiple of its alignment, together
//! with the place of each: an assembler may place them elsewhere (ptxas moves a first parameter aligned to 64), so a back end
//! hands them over one by one. [`Params`] builds the buffer; a launcher needs the kernel's ABI record and nothing else.
//!
//! ```
//! use tessera_driver::{DevicePtr, Params};
//! let params = Params::new().u32(7).pointer(DevicePtr(0x1000)).f32(0.5);
//! assert_eq!(params.offsets(), [0, 8, 16]);
//! assert_eq!(params.bytes()[8..16], 0x1000_u64.to_le_bytes());
//! ```

use crate::error::{DriverError, Result};
use crate::handle::{DevicePtr, FunctionHandle, StreamHandle};
use crate::tensor_map::TensorMap;

/// An extent in blocks or threads along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim3 {
    /// Along x, the fastest.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim3 {
    /// One in each direction.
    pub const ONE: Dim3 = Dim3::new(1, 1, 1);
    /// Blocks of a grid along each axis at most (CUDA C++ Programming Guide, "Compute Capabilities").
    pub const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];

    /// An extent.
    pub const fn new(x: u32, y: u32, z: u32) -> Dim3 {
        Dim3 { x, y, z }
    }

    /// How many there are in all.
    pub const fn count(self) -> u64 {
        self.x as u64 * self.y as u64 * self.z as u64
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3::new(x, 1, 1)
    }
}

/// One launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchSpec<'a> {
    /// The kernel.
    pub function: FunctionHandle,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Blocks of a cluster, where the kernel does not fix them itself.
    pub cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Whether the kernel may start before its predecessor has ended (it then waits itself, by `griddepcontrol.wait`).
    pub overlaps_predecessor: bool,
    /// Where it is queued.
    pub stream: StreamHandle,
    /// The parameters.
    pub params: &'a Params,
}

impl LaunchSpec<'_> {
    /// Refuses extents that no device can launch.
    pub fn check(&self) -> Result<()> {
        if self.grid.count() == 0 || self.block.count() == 0 {
            return Err(DriverError::Argument(format!(
                "a launch needs at least one block and one thread: grid {:?}, block {:?}",
                self.grid, self.block
            )));
        }
        let Some(cluster) = self.cluster else {
            return Ok(());
        };
        let divides = |grid: u32, part: u32| part != 0 && grid.is_multiple_of(part);
        if !divides(self.grid.x, cluster.x) || !divides(self.grid.y, cluster.y) || !divides(self.grid.z, cluster.z) {
            return Err(DriverError::Argument(format!("the grid {:?} is no multiple of the cluster {cluster:?}", self.grid)));
        }
        Ok(())
    }
}

/// A packed parameter buffer under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Params {
    /// No parameters.
    pub fn new() -> Params {
        Params::default()
    }

    /// Appends raw bytes at the next multiple of `align` (a power of two; 0 counts as 1).
    pub fn aligned(mut self, bytes: &[u8], align: usize) -> Params {
        self.bytes.resize(self.bytes.len().next_multiple_of(align.max(1)), 0);
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a `.u32` or `.b32`.
    pub fn u32(self, value: u32) -> Params {
        self.aligned(&value.to_le_bytes(), 4)
    }

    /// Appends a `.s32`.
    pub fn i32(self, value: i32) -> Params {
        self.aligned(&value.to_le_bytes(), 4)
    }

    /// Appends a `.u64` or `.b64`.
    pub fn u64(self, value: u64) -> Params {
        self.aligned(&value.to_le_bytes(), 8)
    }

    /// Appends a `.s64`.
    pub fn i64(self, value: i64) -> Params {
        self.aligned(&value.to_le_bytes(), 8)
    }

    /// Appends a `.f32`.
    pub fn f32(self, value: f32) -> Params {
        self.aligned(&value.to_le_bytes(), 4)
    }

    /// Appends a `.f64`.
    pub fn f64(self, value: f64) -> Params {
        self.aligned(&value.to_le_bytes(), 8)
    }

    /// Appends a pointer.
    pub fn pointer(self, value: DevicePtr) -> Params {
        self.u64(value.0)
    }

    /// Appends a tensor map (128 bytes, aligned to 64).
    pub fn tensor_map(self, map: &TensorMap) -> Params {
        self.aligned(map.bytes(), 64)
    }

    /// Writes over the parameter at a position, which has as many bytes.
    pub fn replace(&mut self, position: usize, bytes: &[u8]) {
        let start = self.offsets[position];
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Where each parameter starts in [`bytes`](Params::bytes).
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &Params = &Params { bytes: Vec::new(), offsets: Vec::new() };

    fn spec(grid: Dim3, cluster: Option<Dim3>) -> LaunchSpec<'static> {
        LaunchSpec {
            function: FunctionHandle(1),
            grid,
            block: Dim3::from(128),
            cluster,
            shared_bytes: 0,
            overlaps_predecessor: false,
            stream: StreamHandle::DEFAULT,
            params: NONE,
        }
    }

    #[test]
    fn a_grid_must_be_a_multiple_of_its_cluster() {
        assert!(spec(Dim3::from(132), Some(Dim3::from(2))).check().is_ok());
        assert!(spec(Dim3::from(131), Some(Dim3::from(2))).check().is_err());
        assert!(spec(Dim3::from(4), Some(Dim3::new(2, 0, 1))).check().is_err());
        assert!(spec(Dim3::from(0), None).check().is_err());
    }

    #[test]
    fn a_tensor_map_lands_on_a_multiple_of_64() {
        let params = Params::new().u32(1).tensor_map(&TensorMap::from_bytes([9; 128])).u32(2);
        assert_eq!(params.bytes().len(), 64 + 128 + 4);
        assert_eq!(params.bytes()[64], 9);
        assert_eq!(params.bytes()[4..64], [0; 60]);
        let mut other = params.clone();
        other.replace(1, TensorMap::from_bytes([7; 128]).bytes());
        assert_eq!(other, Params::new().u32(1).tensor_map(&TensorMap::from_bytes([7; 128])).u32(2));
    }
}
