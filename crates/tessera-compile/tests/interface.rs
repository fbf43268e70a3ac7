//! What the compiler offers beside kernels: counts of blocks, pipelines by their passes' names, and what shows a mistake of ours again.

use tessera_compile::{CompileOptions, Compiled, Grid, OptLevel, compile, compile_for, compile_ir, reproducible};
use tessera_ir::text::parse_module;
use tessera_ir::{Reproducer, Severity, TileCount, bug};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

#[test]
fn a_grid_counts_ragged_tiles() {
    let tile = |axis, tile| TileCount { param: 0, axis, tile };
    let grid = Grid { tiles: vec![tile(0, 64), tile(1, 32)] };
    assert_eq!(grid.blocks(|_, axis| [65, 32][axis]), Some(2));
    assert_eq!(grid.blocks(|_, axis| [0, 32][axis]), Some(0));
    assert_eq!(grid.blocks(|_, _| i64::MAX), None);
    assert_eq!(Grid::default().blocks(|_, _| 0), Some(1));
}

#[test]
fn every_name_in_a_pipeline_is_a_pass() {
    for level in OptLevel::ALL {
        assert_eq!(level.passes().len(), level.pass_names().len(), "{level}");
        assert_eq!(level.staging_passes().len(), level.staging_pass_names().concat().len(), "{level}");
        assert_eq!(level.tile_passes().len(), level.tile_pass_names().len(), "{level}");
    }
}

#[test]
fn a_mistake_of_ours_comes_with_what_shows_it_again() {
    let text = "import cuda.tile as ct\n\n@ct.kernel\ndef twice(x):\n    \
        ct.store(x, (ct.bid(0),), 2.0 * ct.load(x, (ct.bid(0),), (64,)))\n";
    let args = [("x".to_string(), ArgType::array(DType::F32, 1))];
    let options = CompileOptions::default();
    let compiled = compile(&parse_file("twice.py", text), "twice", &args, &options).expect("a kernel");
    let work = || -> Result<(), _> { bug!("no warps") };
    let found = reproducible(&compiled, Arch::Sm90a, OptLevel::O3, work).expect_err("a mistake of ours");
    assert_eq!((found[0].id, found[0].severity), ("bug", Severity::Bug));
    assert!(found[0].message.contains("no warps (") && found[0].message.contains("interface.rs:"), "{}", found[0].message);
    let Reproducer { text, arguments } = *found[0].reproducer.clone().expect("a reproducer");
    assert_eq!(arguments, "::twice --target sm_90a -O3 --emit ptx");
    let again = compile_ir(parse_module("twice.tir", &text).expect("IR"), &args, &options).expect("a kernel");
    let code = |compiled: &Compiled| {
        let ptx = compile_for(compiled, Arch::Sm90a, OptLevel::O3).expect("code").kernel.ptx();
        // Places are the text's.
        ptx.lines()
            .filter(|line| ![".loc", ".file"].iter().any(|place| line.trim().starts_with(place)))
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(code(&again), code(&compiled));
}
