//! What a kernel is compiled for and judged by: an architecture and, where one was named, a product.
//!
//! An architecture alone (`sm_90a`) decides legality and limits; clocks, bandwidth and peaks belong to products (`h200`) and are
//! unknown without one: two products of one architecture differ by half.
//!
//! ```
//! use tessera_types::{Arch, DType, Target};
//! let h200 = Target::parse("h200").unwrap();
//! assert_eq!(h200.arch, Arch::Sm90a);
//! assert_eq!(h200.device.unwrap().peak(DType::BF16, DType::F32).unwrap().tera, 989.4);
//! assert!(Target::parse("sm_90a").unwrap().device.is_none());
//! ```

use std::fmt;
use std::str::FromStr;

use crate::arch::Arch;
use crate::device::Device;

/// An architecture and, where one was named, a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// What the instruction set has and a block may use.
    pub arch: Arch,
    /// The product, whose clocks and peaks are known.
    pub device: Option<&'static Device>,
}

/// A name that is no target's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a target: expected an architecture such as `sm_90a` or a device such as `h200`")]
pub struct UnknownTarget(pub String);

impl Target {
    /// The target that an architecture's or a device's name stands for; a device also goes by the name its driver reports.
    ///
    /// # Errors
    /// For any other name: a similar product is never taken in its place.
    pub fn parse(name: &str) -> Result<Target, UnknownTarget> {
        if let Ok(arch) = name.parse() {
            return Ok(Target { arch, device: None });
        }
        match Device::by_name(name) {
            Some(device) => Ok(Target::from(device)),
            None => Err(UnknownTarget(name.to_string())),
        }
    }

    /// The device's name or, without one, the architecture's.
    pub const fn name(self) -> &'static str {
        match self.device {
            Some(device) => device.name,
            None => self.arch.name(),
        }
    }
}

impl From<&'static Device> for Target {
    fn from(device: &'static Device) -> Target {
        Target { arch: device.arch, device: Some(device) }
    }
}

impl From<Arch> for Target {
    fn from(arch: Arch) -> Target {
        Target { arch, device: None }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Target, UnknownTarget> {
        Target::parse(text)
    }
}
