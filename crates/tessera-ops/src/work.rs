//! The work a problem needs at least, whatever the implementation: the numerator of every throughput.

use tessera_types::DType;

/// In which unit a case's throughput is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Useful bytes a second.
    Bandwidth,
    /// Useful operations a second.
    Compute,
}

/// Useful bytes and operations of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Bytes of inputs, each needed element counted once at packed width.
    pub read_bytes: u64,
    /// Bytes of outputs, each written element counted once at packed width.
    pub write_bytes: u64,
    /// Useful arithmetic operations; a multiply-add is two.
    pub flops: u64,
    /// The type the products are taken in, where operations are held against an arithmetic ceiling.
    pub compute: Option<DType>,
    /// The unit of the headline throughput.
    pub metric: Metric,
    /// How bytes and operations were counted, for the report's footnote.
    pub formula: &'static str,
}

/// Bytes of `count` packed elements, rounded up.
pub(crate) fn packed_bytes(dtype: DType, count: u64) -> u64 {
    let bits = if dtype.is_byte_bool() { 8 } else { u64::from(dtype.bits()) };
    (u128::from(count) * u128::from(bits)).div_ceil(8) as u64
}
