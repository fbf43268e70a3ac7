//! Writes the anchor kernels: `cargo run -p tessera-ptx --example anchors -- kernels/anchors`.
//!
//! The anchors are what the compiler is measured against. Their text is committed; this program writes it, because 128
//! accumulator registers are not typed by hand. With `--variants` it writes the steps of the ladder too.

mod attention;
mod gemm;
mod softmax;
mod text;

use std::path::PathBuf;

use attention::Attention;
use gemm::{Gemm, OperandB};
use softmax::Softmax;

fn main() -> std::io::Result<()> {
    let mut folder = PathBuf::from("kernels/anchors");
    let mut variants = false;
    for argument in std::env::args().skip(1) {
        if argument == "--variants" { variants = true } else { folder = argument.into() }
    }
    std::fs::create_dir_all(&folder)?;
    for (name, text) in anchors(variants) {
        if let Err(error) = tessera_ptx::parse(&text) {
            return Err(std::io::Error::other(format!("{name}: {}", error.render(&text))));
        }
        std::fs::write(folder.join(format!("{name}.ptx")), text)?;
    }
    Ok(())
}

fn anchors(variants: bool) -> Vec<(String, String)> {
    let mut kernels = Vec::new();
    let mut add_softmax = |name: &'static str, threads, vectors, stages, bulk_store, copy_only| {
        kernels.push((name.to_owned(), softmax::softmax(&Softmax { name, threads, vectors, stages, bulk_store, copy_only })));
    };
    add_softmax("softmax", 128, 8, 3, false, false);
    if variants {
        add_softmax("softmax_row", 256, 4, 0, false, false);
        add_softmax("softmax_row128", 128, 8, 0, false, false);
        add_softmax("softmax_ring", 256, 4, 2, false, false);
        add_softmax("softmax_ring128", 128, 8, 2, false, false);
        add_softmax("softmax_bulk3", 256, 4, 3, true, false);
        add_softmax("softmax_bulk4", 256, 4, 4, true, false);
        add_softmax("softmax_bulk128", 128, 8, 4, true, false);
        add_softmax("softmax_bulk128x6", 128, 8, 6, true, false);
        add_softmax("softmax_copy", 256, 4, 2, false, true);
        add_softmax("softmax_copy4", 256, 4, 4, false, true);
    }
    let mut add_attention = |name: &'static str, keys, stage_in_q, ping_pong| {
        let a = Attention { name, keys, stage_in_q, ping_pong };
        kernels.push((name.to_owned(), attention::attention(&a)));
    };
    add_attention("attention", 128, false, true);
    if variants {
        add_attention("attention_160", 160, false, true);
        add_attention("attention_176", 176, true, true);
        add_attention("attention_free", 128, false, false);
    }
    let mut add_gemm = |name: &str, b, cluster, stages, boxes, group| {
        let g = Gemm { name: name.to_owned(), b, cluster, stages, boxes, group };
        kernels.push((name.to_owned(), gemm::gemm(&g)));
    };
    add_gemm("gemm_nn", OperandB::NMajor, 2, 4, 2, 8);
    add_gemm("gemm_nt", OperandB::KMajor, 2, 4, 2, 8);
    if variants {
        add_gemm("gemm_nt_alone", OperandB::KMajor, 1, 4, 2, 16);
        add_gemm("gemm_nn_alone", OperandB::NMajor, 1, 4, 2, 16);
        add_gemm("gemm_nt_3", OperandB::KMajor, 2, 3, 4, 8);
        add_gemm("gemm_nt_g4", OperandB::KMajor, 2, 4, 2, 4);
        add_gemm("gemm_nt_g16", OperandB::KMajor, 2, 4, 2, 16);
    }
    kernels
}
