//! What operators over rows share: extents, grids and the norms' problem sizes.

use tessera_types::{DType, Policy, Storage};

use crate::operator::Unsupported;
use crate::problem::Problem;

/// The norms' epsilon.
pub(crate) const EPS: f64 = 1e-5;

/// Storage and accumulator of a float policy.
pub(crate) fn storage(policy: Policy, operator: &str) -> Result<(DType, DType), Unsupported> {
    match policy.storage() {
        Storage::Plain(dtype) if dtype.is_float() && dtype != DType::E8M0 => Ok((dtype, policy.accumulator())),
        _ => Err(Unsupported(format!("{operator} takes float precisions, not `{policy}`"))),
    }
}

/// How many rows one block takes: enough elements that a block is worth starting, one row at least.
pub(crate) fn rows_per_block(n: usize) -> usize {
    (16384 / n.max(1)).clamp(1, 16)
}

/// Elements one block of an elementwise kernel takes: blocks cost a few hundred nanoseconds each on a CPU, so large arrays get large
/// tiles (a copy of 64 MiB reached 0.6 of the copy rate with tiles of 4096 and 0.85 with 65536), small ones enough blocks for every core.
pub(crate) fn elementwise_tile(n: usize) -> usize {
    if n >= 1 << 19 { 65536 } else { 4096 }
}

/// One block for every `per_block` rows.
pub(crate) fn grid(rows: usize, per_block: usize) -> Result<[u32; 3], Unsupported> {
    let blocks = u32::try_from(rows.div_ceil(per_block)).ok().filter(|&blocks| blocks < 1 << 31);
    blocks.map(|blocks| [blocks, 1, 1]).ok_or_else(|| Unsupported(format!("{rows} rows need too many blocks")))
}

fn norm(batch: u64, sequence: u64, hidden: u64) -> Problem {
    Problem::new(&[("batch", batch), ("sequence", sequence), ("hidden", hidden)], "")
}

/// Rows and row length of a norm's problem.
pub(crate) fn norm_extents(problem: &Problem) -> (usize, usize) {
    ((problem.get("batch") * problem.get("sequence")) as usize, problem.get("hidden") as usize)
}

/// Hidden sizes of language models, sequences and batches, up to 2^30 elements: 322 cases.
pub(crate) fn norm_suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for hidden in [768, 1024, 1536, 2048, 4096, 8192, 11008] {
        for sequence in [128, 256, 512, 1024, 2048, 4096, 8192] {
            for batch in [1, 4, 8, 16, 32, 64, 128] {
                if batch * sequence * hidden <= 1 << 30 {
                    cases.push(norm(batch, sequence, hidden));
                }
            }
        }
    }
    cases
}

/// Each precision once, and a second size in the widest.
pub(crate) fn norm_quick(precisions: &'static [&'static str]) -> Vec<(Problem, &'static str)> {
    let mut cases: Vec<_> = precisions.iter().map(|&precision| (norm(1, 512, 1024), precision)).collect();
    cases.push((norm(1, 1024, 768), precisions[0]));
    cases
}

/// Row lengths around powers of two and vector widths.
pub(crate) fn norm_edges() -> Vec<Problem> {
    let lengths = [1, 2, 7, 31, 64, 100, 1000, 1023, 1025, 4100];
    lengths.iter().flat_map(|&n| [norm(1, 1, n), norm(3, 11, n)]).collect()
}
