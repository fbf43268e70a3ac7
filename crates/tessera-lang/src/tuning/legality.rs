//! Which points of a tuning space a target can run at all, decided from the numbers alone.
//!
//! | rule | names |
//! |---|---|
//! | `num_stages * (BLOCK_M*BLOCK_K + BLOCK_K*BLOCK_N)` elements fit the shared memory of a block | all four |
//! | `BLOCK_M*BLOCK_N` accumulators over the block's threads leave a thread fewer registers than it can name | `BLOCK_M`, `BLOCK_N`, threads |
//! | a vector access moves at most 16 bytes | `VECTOR_WIDTH` |
//! | `BLOCK_SIZE` is `32 * num_warps` where both are given | `BLOCK_SIZE`, `num_warps` |
//! | threads a block are between 1 and the target's limit | `BLOCK_SIZE`, `num_warps` |
//!
//! For bf16 on `sm_90a`, 180 of the 243 points of the usual matrix-product space are legal.

use tessera_types::{Arch, DType, Policy};

use super::Point;

/// Bytes that one vector access of a thread moves at most.
const VECTOR_BYTES: i64 = 16;

/// What legality depends on besides the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Element type of what is loaded.
    pub operand: DType,
    /// Element type of what is summed.
    pub accumulator: DType,
    /// The target.
    pub arch: Arch,
}

impl Facts {
    /// The facts of kernels that load elements of a type and sum in the type's usual accumulator.
    pub fn new(operand: DType, arch: Arch) -> Facts {
        Facts { operand, accumulator: Policy::of(operand).accumulator(), arch }
    }
}

/// The threads of a block that a point asks for.
pub fn threads(point: &Point) -> Option<i64> {
    point.get("BLOCK_SIZE").copied().or_else(|| point.get("num_warps").map(|warps| warps.saturating_mul(i64::from(Arch::WARP))))
}

/// Why a point can't run.
///
/// # Errors
/// The reason, as one sentence.
pub fn check(point: &Point, facts: &Facts) -> Result<(), String> {
    let get = |name: &str| point.get(name).copied();
    let limits = facts.arch.limits();
    for (name, &value) in point {
        let positive = name.starts_with("BLOCK_") || matches!(name.as_str(), "num_warps" | "num_stages" | "VECTOR_WIDTH");
        if positive && !(1..=1 << 24).contains(&value) {
            return Err(format!("`{name}` = {value} is no size"));
        }
    }
    if let (Some(block), Some(warps)) = (get("BLOCK_SIZE"), get("num_warps"))
        && block != warps * i64::from(Arch::WARP)
    {
        return Err(format!("`BLOCK_SIZE` = {block} clashes with `num_warps` = {warps}, which are {} threads", warps * 32));
    }
    let threads = threads(point);
    if let Some(threads) = threads
        && threads > i64::from(limits.threads_per_block)
    {
        return Err(format!("{threads} threads a block; {} allows {}", facts.arch, limits.threads_per_block));
    }
    if let Some(width) = get("VECTOR_WIDTH")
        && width * i64::from(facts.operand.bits()) > VECTOR_BYTES * 8
    {
        return Err(format!("a vector of {width} {} elements is wider than {VECTOR_BYTES} bytes", facts.operand));
    }
    let (m, n, k) = (get("BLOCK_M"), get("BLOCK_N"), get("BLOCK_K"));
    if let (Some(m), Some(n), Some(k), Some(stages)) = (m, n, k, get("num_stages")) {
        let elements = i128::from(stages) * (i128::from(m) * i128::from(k) + i128::from(k) * i128::from(n));
        let bytes = (elements * i128::from(facts.operand.bits()) + 7) / 8;
        if bytes > i128::from(limits.shared_per_block) {
            return Err(format!(
                "{stages} stages of {m}x{k} and {k}x{n} {} tiles take {bytes} bytes of shared memory; a block of {} has {}",
                facts.operand, facts.arch, limits.shared_per_block
            ));
        }
    }
    if let (Some(m), Some(n), Some(threads)) = (m, n, threads) {
        let each = (i128::from(m) * i128::from(n) + i128::from(threads) - 1) / i128::from(threads);
        let registers = each * i128::from(facts.accumulator.bits().div_ceil(32));
        if registers >= i128::from(limits.registers_per_thread) {
            return Err(format!(
                "{m}x{n} {} accumulators take {registers} registers of each of {threads} threads; a thread has {}",
                facts.accumulator, limits.registers_per_thread
            ));
        }
    }
    Ok(())
}
