//! Ranges of a program's work that a profiler shows.

use crate::device::DriverDevice;

/// A range that ends when this is dropped: in the thread where it began, after those that began in it.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct ProfilerRange {
    /// Where the end is told; none where no profiler heard of the beginning.
    device: Option<DriverDevice>,
}

impl DriverDevice {
    /// Begins a range of this name, as profilers that know NVTX 3 show it. Where none listens it is nothing.
    pub fn range(&self, name: &str) -> ProfilerRange {
        let told = self.context().table().and_then(|table| table.range_push(name)).is_ok();
        ProfilerRange { device: told.then(|| self.clone()) }
    }
}

impl Drop for ProfilerRange {
    fn drop(&mut self) {
        if let Some(table) = self.device.as_ref().and_then(|device| device.context().table().ok()) {
            // A profiler that heard of the beginning takes the end, and there is nobody to tell otherwise.
            let _ = table.range_pop();
        }
    }
}
