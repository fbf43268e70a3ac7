//! Schedule IR to Tile IR: whatever verifies gets layouts that verify.

use arbtest::arbtest;
use tessera_compile::generate;
use tessera_ir::text::{parse_module, print_module};
use tessera_ir::{OpKind, ScheduleOp};
use tessera_lang::{ArgType, ConstValue};
use tessera_types::{Arch, DType};

use crate::devices::tiled;
use crate::library::{self, Args};

/// A target without warpgroups.
const PLAIN: Arch = Arch::Sm89;

#[test]
fn random_programs_get_layouts() {
    arbtest(|u| {
        let size = u.int_in_range(5..=120usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let tile = tiled(&module, PLAIN).unwrap_or_else(|error| panic!("{error}\nfrom\n{}", print_module(&module)));
        let text = print_module(&tile);
        let again = parse_module("again.tir", &text).unwrap_or_else(|(_, error)| panic!("{}\n{text}", error.message));
        assert_eq!(text, print_module(&again));
        Ok(())
    })
    .budget_ms(1_500);
}

fn tile_text(file: &str, kernel: &str, args: &Args, arch: Arch) -> String {
    let compiled = library::compiled(&library::file(file), kernel, args);
    print_module(&tiled(&compiled.module, arch).unwrap_or_else(|error| panic!("{error}")))
}

fn conversions(text: &str) -> usize {
    text.matches("tile.convert_layout").count()
}

#[test]
fn a_row_kernel_needs_no_conversion() {
    let text = tile_text("softmax.py", "softmax_causal", &library::softmax_args([4, 1024, 512]), PLAIN);
    assert_eq!(conversions(&text), 0, "{text}");
}

/// Warps and resident blocks of a row kernel, and whether a warp has a row of its own.
fn rows(dtype: DType, rows: i64, n: i64) -> (u32, Option<u32>, bool) {
    let constants = [("ACC", ConstValue::DType(DType::F32)), ("ROWS", ConstValue::Int(rows)), ("N", ConstValue::Int(n))];
    let constants = constants.map(|(name, value)| (name.to_string(), ArgType::Const(value)));
    let arrays = ["x", "y"].map(|name| (name.to_string(), ArgType::array(dtype, 2)));
    let args: Args = arrays.into_iter().chain(constants).collect();
    let compiled = library::compiled(&library::file("softmax.py"), "softmax", &args);
    let tile = tiled(&compiled.module, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}"));
    let func = &tile.funcs[0];
    let combined =
        func.linked_ops().into_iter().find(|&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. })));
    let layout = func.ty(func.ops[combined.expect("a reduction")].one(0)).layout().expect("a layout").clone();
    (func.hints.num_warps.expect("warps"), func.hints.occupancy, layout.along(1).warps == 0)
}

/// 64 bytes a thread, at most 32 elements; 1024 threads resident where their registers suffice; warps across rows first.
#[test]
fn row_kernels_have_enough_in_flight() {
    assert_eq!(rows(DType::BF16, 1, 4096), (4, Some(8), false));
    assert_eq!(rows(DType::BF16, 1, 8192), (8, Some(4), false));
    assert_eq!(rows(DType::F8E4M3, 1, 8192), (8, Some(4), false));
    assert_eq!(rows(DType::F32, 1, 8192), (16, Some(2), false));
    // 43 elements a thread rather than 22 of twice as many threads.
    assert_eq!(rows(DType::BF16, 1, 11008), (8, Some(3), false));
    assert_eq!(rows(DType::BF16, 4, 1024), (4, Some(8), true));
    // The masks of the last vector are held, too.
    assert_eq!(rows(DType::BF16, 4, 1000), (4, Some(7), true));
    assert_eq!(rows(DType::BF16, 2, 2048), (4, Some(8), false));
}

fn product(arch: Arch) -> String {
    tile_text("gemm.py", "gemm", &library::product_args([128, 128, 64]), arch)
}

#[test]
fn a_product_reads_its_factors_from_slots() {
    let text = product(PLAIN);
    assert_eq!(text.matches("tile.copy_async ").count(), 4, "{text}");
    assert_eq!(conversions(&text), 0, "{text}");
}

#[test]
fn a_product_without_asynchronous_copies_converts_its_factors_too() {
    let text = product(Arch::Sm75);
    assert_eq!(text.matches("tile.copy_async ").count(), 0, "{text}");
}

#[test]
fn a_product_of_warpgroups_has_roles() {
    let text = product(Arch::Sm90a);
    assert_eq!(text.matches("tile.role ").count(), 2, "{text}");
    assert_eq!(text.matches("tile.tma_load ").count(), 2, "{text}");
    assert_eq!(conversions(&text), 0, "{text}");
}
