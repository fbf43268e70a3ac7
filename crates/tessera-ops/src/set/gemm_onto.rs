//! A product to which a matrix is added: C = A x B + P, a step of ranks that share a contraction.

use tessera_types::DType;

use super::gemm::{Cut, blocks};
use super::gemm_tiles::May;
use crate::operator::{Argument, LaunchSpec, Machine, Unsupported};

/// What the kernel can do.
const MAY: May = May { copy: false, exchange: false, cluster: false, added: true, banded: false };

/// The launch, of the file of `gemm`, of a product of rows, columns and contraction, whose factors and result have these types. Its tensors are A, B, P, of the result's
/// shape and type, and C.
pub(crate) fn launch([m, n, k]: [u64; 3], [storage, result]: [DType; 2], machine: Machine) -> Result<LaunchSpec, Unsupported> {
    if !(storage.is_float() && result.is_float()) {
        return Err(Unsupported(format!("partial sums are of floats, not of `{storage}` and `{result}`")));
    }
    let cut = Cut::of([1, m, n, k], [storage, result], [false, false], MAY, machine);
    let &Cut { compute, tile: [tm, tn, tk], .. } = &cut;
    let acc = if storage == DType::F64 { DType::F64 } else { DType::F32 };
    let arguments = vec![
        ("A", Argument::Tensor(0)),
        ("B", Argument::Tensor(1)),
        ("PART", Argument::Tensor(2)),
        ("C", Argument::Tensor(3)),
        ("K", Argument::Int(k as i64)),
        ("COMPUTE", Argument::Type(compute)),
        ("ACC", Argument::Type(acc)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("TK", Argument::Int(tk)),
    ];
    Ok(cut.launch("gemm_onto", arguments, [blocks(m, tm)?, blocks(n, tn)?, 1]))
}
