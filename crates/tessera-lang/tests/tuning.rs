//! Tuning spaces: parsed, pruned with reasons, chosen from.

use indexmap::IndexMap;
use tessera_lang::tuning::{Facts, Point, check};
use tessera_lang::{ArgType, LowerOptions, lower, parse_file};
use tessera_types::{Arch, DType};

const GEMM: &str = include_str!("seeds/tessera_gemm.py");

/// The points that a rule leaves of the usual matrix-product space.
fn legal(dtype: DType, rule: impl Fn(&str) -> bool) -> usize {
    let file = parse_file("gemm.py", GEMM);
    let space = file.kernels["tessera_gemm"].space(&file).unwrap().expect("the kernel declares a space");
    let pruning = space.prune(&Facts::new(dtype, Arch::Sm90a));
    assert_eq!(pruning.legal.len() + pruning.pruned.len(), space.len());
    pruning.legal.len() + pruning.pruned.iter().filter(|pruned| !rule(&pruned.reason)).count()
}

#[test]
fn the_matrix_product_space_has_known_counts() {
    // By shared memory alone; with the accumulators too.
    for (dtype, memory, both) in [(DType::BF16, 204, 180), (DType::F32, 135, 123), (DType::F8E4M3, 240, 206)] {
        assert_eq!(legal(dtype, |reason| reason.contains("shared memory")), memory, "{dtype}");
        assert_eq!(legal(dtype, |_| true), both, "{dtype}");
    }
    let file = parse_file("gemm.py", GEMM);
    let space = file.kernels["tessera_gemm"].space(&file).unwrap().unwrap();
    assert_eq!((space.len(), space.key.join(" ")), (243, "M N K".to_string()));
    assert_eq!(space.cache.as_deref(), Some("~/.tesserabench/autotune/gemm"));
    assert_eq!(space.points().count(), 243);
}

fn point(items: &[(&str, i64)]) -> Point {
    items.iter().map(|(name, value)| (name.to_string(), *value)).collect()
}

#[test]
fn each_rule_prunes_and_says_why() {
    let facts = Facts::new(DType::F32, Arch::Sm90a);
    for (items, reason) in [
        (&[("BLOCK_SIZE", 128), ("num_warps", 8)][..], "`BLOCK_SIZE` = 128 clashes with `num_warps` = 8, which are 256 threads"),
        (&[("VECTOR_WIDTH", 8)], "a vector of 8 f32 elements is wider than 16 bytes"),
        (&[("num_warps", 64)], "2048 threads a block; sm_90a allows 1024"),
        (&[("BLOCK_M", 0)], "`BLOCK_M` = 0 is no size"),
        (
            &[("BLOCK_M", 256), ("BLOCK_N", 256), ("num_warps", 4)],
            "256x256 f32 accumulators take 512 registers of each of 128 threads; a thread has 255",
        ),
    ] {
        assert_eq!(check(&point(items), &facts), Err(reason.to_string()));
    }
    assert_eq!(check(&point(&[("BLOCK_SIZE", 256), ("num_warps", 8), ("VECTOR_WIDTH", 4)]), &facts), Ok(()));
    assert_eq!(check(&point(&[("VECTOR_WIDTH", 16)]), &Facts::new(DType::F8E4M3, Arch::Sm90a)), Ok(()));
}

fn gemm_with(config: &[(&str, i64)], target: Option<&str>) -> Result<IndexMap<String, i64>, String> {
    let file = parse_file("gemm.py", GEMM);
    let args = ["A", "B", "C"].map(|name| (name.to_string(), ArgType::array(DType::F32, 2)));
    let options = LowerOptions { config: point(config), target: target.map(str::to_string), ..LowerOptions::default() };
    match lower(&file, "tessera_gemm", &args, &options) {
        Ok(module) => Ok(module.funcs[0].config.clone()),
        Err(diagnostics) => {
            assert_eq!(diagnostics.len(), 1);
            Err(format!(
                "[{}] {} {:?} {:?}",
                diagnostics[0].id, diagnostics[0].message, diagnostics[0].help, diagnostics[0].notes
            ))
        }
    }
}

#[test]
fn the_first_legal_point_is_the_default_and_a_configuration_picks_another() {
    let default = point(&[("BLOCK_M", 64), ("BLOCK_N", 64), ("BLOCK_K", 32), ("num_warps", 4), ("num_stages", 2)]);
    assert_eq!(gemm_with(&[], None), Ok(default.clone()));
    let mut chosen = default.clone();
    chosen["BLOCK_N"] = 128;
    assert_eq!(gemm_with(&[("BLOCK_N", 128)], None), Ok(chosen));
    // The others follow: 256 x 256 accumulators need more than four warps.
    let big = gemm_with(&[("BLOCK_M", 256), ("BLOCK_N", 256)], None).unwrap();
    assert_eq!((big["num_warps"], big["num_stages"], big["BLOCK_K"]), (16, 2, 32));
    let unknown = gemm_with(&[("BLOCK_Q", 1)], None).unwrap_err();
    assert!(unknown.starts_with("[config-value] `tessera_gemm` has no choice `BLOCK_Q`"), "{unknown}");
    let outside = gemm_with(&[("BLOCK_M", 65)], None).unwrap_err();
    assert!(outside.starts_with("[config-value] `BLOCK_M` = 65 is not in the kernel's space"), "{outside}");
    let illegal = gemm_with(&[("BLOCK_M", 256), ("BLOCK_N", 256), ("BLOCK_K", 128)], None).unwrap_err();
    assert!(illegal.starts_with("[tuning-space] no legal configuration for sm_90a"), "{illegal}");
    assert!(illegal.contains("bytes of shared memory"), "{illegal}");
    // A smaller target has other legal points.
    assert!(gemm_with(&[("BLOCK_M", 128), ("BLOCK_N", 128), ("BLOCK_K", 128)], Some("sm_90")).is_err());
    assert!(gemm_with(&[("BLOCK_M", 128), ("BLOCK_N", 64), ("BLOCK_K", 128)], Some("sm_90")).is_ok());
    assert!(gemm_with(&[("BLOCK_M", 128), ("BLOCK_N", 64), ("BLOCK_K", 128)], Some("sm_89")).is_err());
}
