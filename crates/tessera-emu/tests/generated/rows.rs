//! Reductions over a block.

use super::kernels::Kernel::{Rows, Sum};
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Barrier, Deadlock, DivergentBarrier, Misaligned, OutOfBounds, Race, Uninitialized, WarpMask};

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        Rows,
        "no barrier between the warps' results and their readers",
        &[("bar.sync 0;", 0, "")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(Rows, "no barrier behind the second results", &[("bar.sync 0;", 1, "")], Report(&[Race, Uninitialized])),
    mutant(
        Rows,
        "the second results in the first ones' place",
        &[("[%r41+16], %r90;", 0, "[%r41], %r90;"), ("[%r42+16];", 0, "[%r42];")],
        Report(&[Race]),
    ),
    mutant(
        Rows,
        "a warp's barrier in place of the block's",
        &[("bar.sync 0;", 0, "bar.warp.sync 4294967295;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Rows,
        "a barrier for three of four warps",
        &[("bar.sync 0;", 0, "bar.sync 0, 96;")],
        Report(&[Barrier, Deadlock, Race, Uninitialized]),
    ),
    mutant(
        Rows,
        "a barrier that some lanes pass by",
        &[("bar.sync 0;", 1, "@%p4 bar.sync 0;")],
        Report(&[DivergentBarrier, Deadlock]),
    ),
    mutant(Rows, "a reader behind the scratch", &[("[%r42+16];", 0, "[%r42+512];")], Report(&[OutOfBounds])),
    mutant(
        Rows,
        "a scratch of half words",
        &[("mad.lo.u32 %r41, %r39, 4, %r5;", 0, "mad.lo.u32 %r41, %r39, 2, %r5;")],
        Report(&[Misaligned]),
    ),
    mutant(
        Rows,
        "an exchange for half of the warp",
        &[("%r35, 16, 31, 4294967295;", 0, "%r35, 16, 31, 65535;")],
        Report(&[WarpMask]),
    ),
    mutant(
        Rows,
        "one step of the exchange missing",
        &[("shfl.sync.bfly.b32 %r89, %r88, 16,", 0, "shfl.sync.bfly.b32 %r89, %r88, 8,")],
        Gate,
    ),
    mutant(Sum, "no barrier between the warps' sums and their reader", &[("bar.sync 0;", 0, "")], Report(&[Race, Uninitialized])),
    mutant(
        Sum,
        "every thread writes the block's sum",
        &[("@%p10 st.global.L1::evict_first.b32 [%d4], %r67;", 0, "@%p9 st.global.L1::evict_first.b32 [%d4], %r67;")],
        Report(&[Race]),
    ),
    mutant(Sum, "every block writes the first one's sum", &[("b32 [%d4], %r67;", 0, "b32 [%d1], %r67;")], Report(&[Race])),
    mutant(Sum, "a sum is not cleared", &[("mov.b32 %r24, 0;", 1, "")], Report(&[Uninitialized])),
    mutant(Sum, "a warp's sum counted twice", &[("add.rn.f32 %r66, %r65, %r63;", 0, "add.rn.f32 %r66, %r65, %r62;")], Gate),
];
