//! The instruction table: one row an instruction form, by the sections of the PTX manual's chapter "Instruction Set". See `form` for how forms are
//! written and `operand_rule` for operands.
//!
//! Rows of one mnemonic are tried in order; the first whose form and operands fit is the instruction's row. What assemblers take and refuse
//! of the rows is kept in `tests/ptx/acceptance.txt`; a test compares.

mod arithmetic;
mod control;
mod copies;
mod floating;
mod matrix;
mod memory;
mod texture;
mod threads;
mod video;

use std::sync::LazyLock;

use crate::form::Row;

/// Rows as Rust constants: `"section" { "form" "operands" MAJOR MINOR Need SM ... }`.
macro_rules! rows {
    ($($section:literal { $($form:literal $operands:literal $major:literal $minor:literal $need:ident $sm:literal)* })*) => {
        pub(super) const ROWS: &[$crate::form::Row] = &[$($($crate::form::Row {
            section: $section,
            form: $form,
            operands: $operands,
            ptx: $crate::target::PtxVersion::new($major, $minor),
            needs: $crate::target::Needs::$need($sm),
        }),*),*];
    };
}
use rows;

pub(crate) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    [
        arithmetic::ROWS,
        floating::ROWS,
        memory::ROWS,
        copies::ROWS,
        texture::ROWS,
        control::ROWS,
        threads::ROWS,
        matrix::ROWS,
        video::ROWS,
    ]
    .concat()
});

/// Instructions and modifiers of PTX 8.7 that no chip before Blackwell has, and the target that they need.
pub(crate) const LATER: &[(&str, &str)] = &[
    ("tcgen05", "sm_100a"),
    ("clusterlaunchcontrol", "sm_100"),
    (".f32x2", "sm_100"),
    (".bulk", "sm_100"),
    (".cp_mask", "sm_100"),
    (".tile::gather4", "sm_100a"),
    (".tile::scatter4", "sm_100a"),
    (".im2col::w", "sm_100a"),
    (".im2col::w::128", "sm_100a"),
    (".cta_group::1", "sm_100a"),
    (".cta_group::2", "sm_100a"),
    (".swizzle_atomicity", "sm_100a"),
    (".m16n16", "sm_100a"),
    (".m8n16", "sm_100a"),
    (".m16n8", "sm_100a"),
    (".b8x16", "sm_100a"),
    (".b6x16_p32", "sm_100a"),
    (".b4x16_p64", "sm_100a"),
    (".e2m1", "sm_120a"),
    (".e2m3", "sm_120a"),
    (".e3m2", "sm_120a"),
    (".e2m1x2", "sm_100a"),
    (".e2m3x2", "sm_100a"),
    (".e3m2x2", "sm_100a"),
    (".ue8m0", "sm_120a"),
    (".ue4m3", "sm_120a"),
    (".ue8m0x2", "sm_100a"),
    (".rs", "sm_100a"),
    (".kind::f8f6f4", "sm_120a"),
    (".kind::mxf8f6f4", "sm_120a"),
    (".kind::mxf4", "sm_120a"),
    (".kind::mxf4nvf4", "sm_120a"),
    (".block_scale", "sm_120a"),
    (".acc::f16", "sm_100a"),
    (".e4m3x4", "sm_100a"),
    (".e5m2x4", "sm_100a"),
    (".sync_restrict::shared::cta::read", "sm_100"),
];

/// What an instruction or modifier needs that is no part of the table.
pub(crate) fn later(name: &str) -> Option<&'static str> {
    LATER.iter().find(|(later, _)| *later == name).map(|(_, target)| *target)
}
