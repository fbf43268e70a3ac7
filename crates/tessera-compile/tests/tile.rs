//! Schedule IR to Tile IR: whatever verifies gets layouts that verify.

use arbtest::arbtest;
use tessera_compile::tile::{Units, to_tile};
use tessera_compile::{CompileOptions, compile, generate};
use tessera_ir::text::{parse_module, print_module};
use tessera_ir::{Module, verify};
use tessera_lang::{ArgType, ConstValue, parse_file};
use tessera_types::DType;

const UNITS: Units = Units { capability: 90, warpgroups: false, shared: 227 << 10 };

fn lay_out(module: &Module, units: &Units) -> Result<Module, String> {
    let mut tile = module.clone();
    for func in &mut tile.funcs {
        *func = to_tile(func, units).map_err(|error| error.message)?;
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

fn tile_text(file: &str, kernel: &str, args: &[(&str, ArgType)], units: &Units) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(file);
    let text = std::fs::read_to_string(&path).expect("the kernel's file");
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    let file = parse_file(file, &text);
    let compiled = compile(&file, kernel, &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
    print_module(&lay_out(&compiled.module, units).unwrap_or_else(|error| panic!("{error}")))
}

fn constant(value: i64) -> ArgType {
    ArgType::Const(ConstValue::Int(value))
}

fn dtype(dtype: DType) -> ArgType {
    ArgType::Const(ConstValue::DType(dtype))
}

fn conversions(text: &str) -> usize {
    text.matches("tile.convert_layout").count()
}

#[test]
fn a_row_kernel_needs_no_conversion() {
    let arrays = ["x", "y"].map(|name| (name, ArgType::array(DType::F16, 2)));
    let [x, y] = arrays;
    let args = [x, y, ("ACC", dtype(DType::F32)), ("ROWS", constant(4)), ("N", constant(1024)), ("QUERIES", constant(512))];
    let text = tile_text("softmax.py", "softmax_causal", &args, &UNITS);
    assert_eq!(conversions(&text), 0, "{text}");
}

fn product(units: &Units) -> String {
    let flag = |value| ArgType::Const(ConstValue::Bool(value));
    let args = [
        ("A", ArgType::array(DType::BF16, 2)),
        ("B", ArgType::array(DType::BF16, 2)),
        ("C", ArgType::array(DType::BF16, 2)),
        ("alpha", ArgType::Scalar(DType::F32)),
        ("beta", ArgType::Scalar(DType::F32)),
        ("K", ArgType::Scalar(DType::I32)),
        ("COMPUTE", dtype(DType::BF16)),
        ("ACC", dtype(DType::F32)),
        ("TM", constant(128)),
        ("TN", constant(128)),
        ("TK", constant(64)),
        ("TRANSPOSE_A", flag(false)),
        ("TRANSPOSE_B", flag(true)),
    ];
    tile_text("gemm.py", "gemm", &args, units)
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
