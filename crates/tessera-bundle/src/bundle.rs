//! A bundle in memory.

use std::path::Path;

use crate::error::BundleError;
use crate::format;
use crate::variant::Variant;

/// Compiled kernels, found by name and arguments.
#[derive(Clone, Debug)]
pub struct Bundle {
    variants: Vec<Variant>,
}

impl Bundle {
    /// A bundle of variants. Of several that take the arguments of a launch the first is launched.
    ///
    /// # Errors
    /// A variant that no launch could work with.
    pub fn new(variants: Vec<Variant>) -> Result<Bundle, BundleError> {
        for (position, variant) in variants.iter().enumerate() {
            if let Some(fault) = variant.fault() {
                return Err(BundleError::Invalid { why: format!("variant {position} (`{}`): {fault}", variant.kernel) });
            }
        }
        Ok(Bundle { variants })
    }

    /// Reads a bundle's bytes. Every byte is covered by a checksum, and nothing is looked at before that matches.
    ///
    /// # Errors
    /// What is no bundle, of a later version, cut off, damaged or made wrongly.
    pub fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        Bundle::new(format::read(bytes)?)
    }

    /// The same from a file.
    ///
    /// # Errors
    /// As [`Bundle::read`], and a file that cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| BundleError::Io { path: path.display().to_string(), error })?;
        Bundle::read(&bytes)
    }

    /// The bytes of a file that holds it.
    pub fn to_bytes(&self) -> Vec<u8> {
        format::write(&self.variants)
    }

    /// Its variants, in the order in which they are tried.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }
}
