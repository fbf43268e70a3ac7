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
    let mut add_softmax = |name, threads, vectors, resident, hints| {
        kernels.push((String::from(name), softmax::softmax(&Softmax { name, threads, vectors, resident, hints })));
    };
    add_softmax("softmax", 512, 2, 4, false);
    if variants {
        add_softmax("softmax_hints", 512, 2, 4, true);
        add_softmax("softmax_512x2_r3", 512, 2, 3, false);
        add_softmax("softmax_256x4_r4", 256, 4, 4, false);
        add_softmax("softmax_256x4_r5", 256, 4, 5, false);
        add_softmax("softmax_128x8_r5", 128, 8, 5, false);
    }
    let mut add_attention = |name, keys, stage_in_q, ping_pong| {
        let a = Attention { name, keys, stage_in_q, ping_pong };
        kernels.push((String::from(name), attention::attention(&a)));
    };
    add_attention("attention", 128, false, true);
    add_attention("attention_free", 128, false, false);
    if variants {
        add_attention("attention_160", 160, false, true);
        add_attention("attention_160_free", 160, false, false);
        add_attention("attention_176", 176, true, true);
    }
    let mut add_gemm = |name, b, stages, boxes, group, in_flight| {
        kernels.push((String::from(name), gemm::gemm(&Gemm { name, b, stages, boxes, group, in_flight })));
    };
    add_gemm("gemm_nn", OperandB::NMajor, 4, 2, 16, true);
    add_gemm("gemm_nt", OperandB::KMajor, 4, 2, 16, true);
    if variants {
        add_gemm("gemm_nt_waits", OperandB::KMajor, 4, 2, 16, false);
        add_gemm("gemm_nt_2_stages", OperandB::KMajor, 2, 2, 16, true);
        add_gemm("gemm_nt_3_stages", OperandB::KMajor, 3, 2, 16, true);
        add_gemm("gemm_nt_whole_c", OperandB::KMajor, 3, 4, 16, true);
        add_gemm("gemm_nt_group_1", OperandB::KMajor, 4, 2, 1, true);
        add_gemm("gemm_nt_group_8", OperandB::KMajor, 4, 2, 8, true);
    }
    kernels
}
