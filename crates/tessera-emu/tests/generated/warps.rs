//! A product by warps: four slots that every thread fills by `cp.async`, `ldmatrix` and `mma.sync`.

use super::kernels::Kernel::Warps;
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Barrier, Deadlock, DivergentBarrier, OutOfBounds, Race, Uninitialized};

const FIRST_READ: &str = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r130, %r131, %r132, %r133}, [%r129+20480];";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        Warps,
        "the wait leaves a group more",
        &[("cp.async.wait_group 2;", 0, "cp.async.wait_group 3;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(Warps, "no wait for the copies", &[("cp.async.wait_group 2;", 0, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "no commit before the loop", &[("cp.async.commit_group;", 0, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "no commit in the loop", &[("cp.async.commit_group;", 1, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "no barrier behind the wait", &[("bar.sync 0;", 0, "")], Report(&[Race])),
    mutant(
        Warps,
        "the barrier stands before the wait",
        &[("cp.async.wait_group 2;", 0, "bar.sync 0;"), ("bar.sync 0;", 1, "cp.async.wait_group 2;")],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "the barrier stands behind the first fragments",
        &[
            ("bar.sync 0;", 0, ""),
            (
                FIRST_READ,
                0,
                "bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r130, %r131, %r132, %r133}, [%r129+20480];",
            ),
        ],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "a barrier for three of four warps",
        &[("bar.sync 0;", 0, "bar.sync 0, 96;")],
        Report(&[Barrier, Deadlock, Race, Uninitialized]),
    ),
    mutant(
        Warps,
        "a barrier that some lanes pass by",
        &[("bar.sync 0;", 0, "@%p5 bar.sync 0;")],
        Report(&[DivergentBarrier, Deadlock]),
    ),
    mutant(
        Warps,
        "A goes to the slot that is read",
        &[("mad.lo.u32 %r155, %r115, 5120, %r10;", 0, "mad.lo.u32 %r155, %r114, 5120, %r10;")],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "B goes to the slot that is read",
        &[("mad.lo.u32 %r164, %r115, 4608, %r10;", 0, "mad.lo.u32 %r164, %r114, 4608, %r10;")],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "the ring is one slot short",
        &[("setp.eq.s32 %p24, %r173, 4;", 0, "setp.eq.s32 %p24, %r173, 3;")],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "B goes where A is",
        &[("cp.async.cg.shared.global [%r74+20480],", 0, "cp.async.cg.shared.global [%r74],")],
        Report(&[Race]),
    ),
    mutant(
        Warps,
        "rows behind the last are copied",
        &[("selp.b32 %r163, 16, 0, %p19;", 0, "mov.b32 %r163, 16;")],
        Report(&[OutOfBounds]),
    ),
    mutant(
        Warps,
        "the result's last columns are stored without their bound: into the next rows",
        &[("@%p64 st.global.b32 [%d27+48], %r345;", 0, "st.global.b32 [%d27+48], %r345;")],
        Report(&[Race, OutOfBounds]),
    ),
    mutant(Warps, "a sum is not cleared", &[("mov.b32 %r77, 0;", 1, "")], Report(&[Uninitialized])),
    mutant(Warps, "a fragment of the wrong column", &[("[%r119+32];", 0, "[%r119+16];")], Gate),
    mutant(Warps, "B's fragments not transposed", &[(".x4.trans.shared", 0, ".x4.shared")], Gate),
    mutant(
        Warps,
        "rows of A as far apart as B's",
        &[("mad.lo.u32 %r118, %r109, 80,", 0, "mad.lo.u32 %r118, %r109, 144,")],
        Report(&[Uninitialized, Race, OutOfBounds]),
    ),
    mutant(
        Warps,
        "fragments swapped",
        &[("{%r120, %r121, %r122, %r123}, {%r132, %r133}", 0, "{%r124, %r125, %r126, %r127}, {%r132, %r133}")],
        Gate,
    ),
    mutant(
        Warps,
        "the operands' buffers swapped",
        &[
            ("[%r129+20480];", 0, "[%r129];"),
            (
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r120, %r121, %r122, %r123}, [%r119];",
                0,
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r120, %r121, %r122, %r123}, [%r119+20480];",
            ),
        ],
        Report(&[Uninitialized, Race, OutOfBounds]),
    ),
];
