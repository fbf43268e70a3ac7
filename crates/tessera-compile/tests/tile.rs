//! Schedule IR to Tile IR: whatever verifies gets layouts that verify.

#[allow(dead_code, reason = "each test file uses a part")]
mod library;

use arbtest::arbtest;
use library::Args;
use tessera_compile::generate;
use tessera_compile::tile::{Units, to_tile};
use tessera_ir::text::{parse_module, print_module};
use tessera_ir::{Module, verify};

const UNITS: Units = Units { capability: 90, warpgroups: false, shared: 227 << 10 };

fn lay_out(module: &Module, units: &Units) -> Result<Module, String> {
    let mut tile = module.clone();
    for func in &mut tile.funcs {
        *func = to_tile(func, units).map_err(|error| error.message)?.0;
    }
    let found = verify(&tile);
    match found.first() {
        None => Ok(tile),
        Some(first) => Err(format!("{}\n{}", first.render_line(&tile.sources), print_module(&tile))),
    }
}

#[test]
fn random_programs_get_layouts() {
    arbtest(|u| {
        let size = u.int_in_range(5..=120usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let tile = lay_out(&module, &UNITS).unwrap_or_else(|error| panic!("{error}\nfrom\n{}", print_module(&module)));
        let text = print_module(&tile);
        let again = parse_module("again.tir", &text).unwrap_or_else(|(_, error)| panic!("{}\n{text}", error.message));
        assert_eq!(text, print_module(&again));
        Ok(())
    })
    .budget_ms(1_500);
}

fn tile_text(file: &str, kernel: &str, args: &Args, units: &Units) -> String {
    let compiled = library::compiled(&library::file(file), kernel, args);
    print_module(&lay_out(&compiled.module, units).unwrap_or_else(|error| panic!("{error}")))
}

fn conversions(text: &str) -> usize {
    text.matches("tile.convert_layout").count()
}

#[test]
fn a_row_kernel_needs_no_conversion() {
    let text = tile_text("softmax.py", "softmax_causal", &library::softmax_args([4, 1024, 512]), &UNITS);
    assert_eq!(conversions(&text), 0, "{text}");
}

fn product(units: &Units) -> String {
    tile_text("gemm.py", "gemm", &library::product_args([128, 128, 64]), units)
}

#[test]
fn a_product_converts_its_factors_and_its_result() {
    let text = product(&UNITS);
    assert_eq!(conversions(&text), 3, "{text}");
}

#[test]
fn a_product_of_warpgroups_has_roles() {
    let text = product(&Units { warpgroups: true, ..UNITS });
    assert_eq!(text.matches("tile.role ").count(), 2, "{text}");
    assert_eq!(text.matches("tile.tma_load ").count(), 2, "{text}");
    assert_eq!(conversions(&text), 0, "{text}");
}
