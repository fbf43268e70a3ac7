//! `tessera run OP`: operators of the library on one's own arrays.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tessera::ops::{self, Call};
use tessera::runtime::{CompileOptions, Device, Tensor, npy};
use tessera::types::DType;

fn tessera(folder: &Path, line: &str) -> (i32, String) {
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).map(|word| word.trim_matches('\'')).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(folder).args(words).output().expect("tessera starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().expect("an exit code"), text)
}

fn right(folder: &Path, line: &str) -> String {
    let (code, text) = tessera(folder, line);
    assert_eq!(code, 0, "{line}\n{text}");
    text
}

/// A call, with what it prints of its output. Sums of ones are exact everywhere.
const CALLS: [(&str, &str); 58] = [
    ("softmax x=zeros:f32[2,3,4]", "y: f32[2, 3, 4] = [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, ...]"),
    ("softmax x=zeros:f16[8]", "y: f16[8] = [0.125, 0.125, 0.125, 0.125, 0.125, 0.125, ...]"),
    ("softmax x=zeros:f32[2,2] variant=causal", "y: f32[2, 2] = [1, 0, 0.5, 0.5]"),
    ("softmax x=ones:f32[0,7]", "nothing to launch, compiled in 0.00 ms"),
    ("gemm A=ones:f32[3,64] B=ones:f32[64,2]", "C: f32[3, 2] = [64, 64, 64, 64, 64, 64]"),
    ("gemm A=ones:bf16[2,3,64] B=ones:bf16[2,64,2] alpha=0.5", "C: f32[2, 3, 2] = [32, 32, 32, 32, 32, 32, ...]"),
    ("gemm A=ones:f16[64,3] B=ones:f16[2,64] variant=tt", "C: f32[3, 2] = [64, 64, 64, 64, 64, 64]"),
    ("gemm A=ones:f32[1,64] B=ones:f32[64,1] C=const(2):f32[1,1] beta=3", "C: f32[1, 1] = [70]"),
    ("gemm A=ones:f32[1,64] B=ones:f32[64,1] C=const(nan):f32[1,1] alpha=0.5", "C: f32[1, 1] = [32]"),
    ("gemm A=ones:f32[3,64] B=const(3):f32[64,2] precision=fp32@3xbf16", "C: f32[3, 2] = [192, 192, 192, 192, 192, 192]"),
    ("linear x=ones:f32[2,64] weight=ones:f32[3,64] bias=ones:f32[3]", "y: f32[2, 3] = [65, 65, 65, 65, 65, 65]"),
    ("permute x=arange:i32[2,3]", "y: i32[3, 2] = [0, 3, 1, 4, 2, 5]"),
    (
        "linear_w4 x=ones:bf16[2,64] W=const(286331153):i32[1,64] S=ones:bf16[1,3]",
        "y: bf16[2, 3] = [-448, -448, -448, -448, -448, -448]",
    ),
    (
        "linear_w4 x=ones:f16[1,128] W=const(858993459):i32[1,128] S=const(0.5):f16[2,2] Z=ones:f16[2,2] variant=zeros",
        "y: f16[1, 2] = [128, 128]",
    ),
    (
        "gemm_scaled A=ones:f8e4m3[1,128] B=ones:f8e4m3[3,128] SA=const(2):f32[1,1] SB=const(3):f32[1,1]",
        "C: bf16[1, 3] = [768, 768, 768]",
    ),
    (
        "gemm_scaled A=ones:f8e4m3[1,40] B=ones:f8e4m3[2,40] SA=ones:f32[1] SB=const(3):f32[2] C=zeros:f32[1,2] variant=rows",
        "C: f32[1, 2] = [120, 120]",
    ),
    ("gemm_grouped A=ones:bf16[3,64] B=ones:bf16[3,64,2] offsets=arange:i32[4]", "C: bf16[3, 2] = [64, 64, 64, 64, 64, 64]"),
    (
        "gemm_grouped A=ones:f16[1,40] B=ones:f16[1,2,40] offsets=arange:i32[2] C=zeros:f32[1,2] variant=nt",
        "C: f32[1, 2] = [40, 40]",
    ),
    ("rms_norm x=const(3):f32[2,8] weight=const(2):f32[8] eps=0", "y: f32[2, 8] = [2, 2, 2, 2, 2, 2, ...]"),
    ("layer_norm x=const(3):f32[2,8] weight=ones:f32[8] bias=ones:f32[8]", "y: f32[2, 8] = [1, 1, 1, 1, 1, 1, ...]"),
    (
        "attention Q=ones:f16[1,4,8,64] K=ones:f16[1,2,16,64] V=ones:f16[1,2,16,64] variant=causal",
        "O: f16[1, 4, 8, 64] = [1, 1, 1, 1, 1, 1, ...]",
    ),
    (
        "rms_norm_backward x=const(2):f32[2,8] weight=ones:f32[8] dy=ones:f32[2,8] eps=0",
        "dweight: f32[8] = [2, 2, 2, 2, 2, 2, ...]",
    ),
    ("layer_norm_backward x=const(3):f32[2,8] weight=ones:f32[8] dy=ones:f32[2,8]", "dbias: f32[8] = [2, 2, 2, 2, 2, 2, ...]"),
    ("softmax_backward y=const(0.25):f32[2,4] dy=ones:f32[2,4]", "dx: f32[2, 4] = [0, 0, 0, 0, 0, 0, ...]"),
    ("softmax_backward y=ones:f32[2,2] dy=ones:f32[2,2] variant=causal", "dx: f32[2, 2] = [0, 0, -1, -1]"),
    ("log_softmax x=ones:f32[2,1]", "y: f32[2, 1] = [0, 0]"),
    ("log_softmax_backward y=zeros:f32[2,1] dy=ones:f32[2,1]", "dx: f32[2, 1] = [0, 0]"),
    ("log_sum_exp x=const(3):f32[2,1]", "y: f32[2] = [3, 3]"),
    ("log_sum_exp_backward x=zeros:f32[2,2] y=zeros:f32[2] dy=ones:f32[2]", "dx: f32[2, 2] = [1, 1, 1, 1]"),
    ("cross_entropy x=ones:f32[2,1] labels=zeros:i32[2]", "lse: f32[2] = [1, 1]"),
    ("cross_entropy x=ones:f32[2,1] labels=zeros:i32[2] ignore_index=0", "loss: f32[2] = [0, 0]"),
    (
        "cross_entropy_backward x=zeros:f32[1,2] labels=ones:i32[1] lse=zeros:f32[1] dloss=ones:f32[1] dlse=zeros:f32[1]",
        "dx: f32[1, 2] = [1, 0]",
    ),
    ("linear_cross_entropy x=ones:f32[2,4] weight=ones:f32[1,4] labels=zeros:i32[2]", "lse: f32[2] = [4, 4]"),
    (
        "linear_cross_entropy_backward x=ones:f32[1,2] weight=zeros:f32[2,2] labels=zeros:i32[1] lse=const(0.6931472):f32[1] dloss=ones:f32[1] dlse=zeros:f32[1]",
        "dweight: f32[2, 2] = [-0.5, -0.5, 0.5, 0.5]",
    ),
    ("reduce_rows x=arange:f32[2,3] variant=mean", "y: f32[2] = [1, 4]"),
    ("reduce_rows_backward x=arange:f32[2,3] y=const(2):f32[2] dy=ones:f32[2] variant=max", "dx: f32[2, 3] = [0, 0, 1, "),
    ("reduce_columns x=arange:f32[2,3] variant=sum", "y: f32[3] = [3, 5, 7]"),
    ("arg_rows x=arange:f32[2,3] variant=max", "y: i32[2] = [2, 2]"),
    ("cumsum x=arange:f32[2,3]", "y: f32[2, 3] = [0, 1, 3, 3, 7, 12]"),
    ("cumsum_backward dy=ones:f32[1,3]", "dx: f32[1, 3] = [3, 2, 1]"),
    ("top_k x=arange:f32[1,5] values=empty:f32[1,2] indices=empty:i32[1,2]", "indices: i32[1, 2] = [4, 3]"),
    ("top_k x=arange:f32[2,20000] values=empty:f32[2,0] indices=empty:i32[2,0]", "nothing to launch, compiled in 0.00 ms"),
    ("group_norm x=ones:f32[2,0,4] weight=ones:f32[0] bias=ones:f32[0]", "nothing to launch, compiled in 0.00 ms"),
    ("sort_rows x=arange:f32[1,5] variant=descending", "indices: i32[1, 5] = [4, 3, 2, 1, 0]"),
    ("top_k_backward indices=ones:i32[1,1] dvalues=ones:f32[1,1] dx=empty:f32[1,3]", "dx: f32[1, 3] = [0, 1, 0]"),
    ("sort_rows_backward indices=arange:i32[1,3] dvalues=arange:f32[1,3]", "dx: f32[1, 3] = [0, 1, 2]"),
    (
        "group_norm x=const(3):f32[1,4,2] weight=ones:f32[4] bias=ones:f32[4] groups=2",
        "y: f32[1, 4, 2] = [1, 1, 1, 1, 1, 1, ...]",
    ),
    ("group_norm_backward x=const(3):f32[2,4,2] weight=ones:f32[4] dy=ones:f32[2,4,2] groups=2", "dbias: f32[4] = [4, 4, 4, 4]"),
    ("batch_norm x=const(3):f32[2,4,2] weight=ones:f32[4] bias=ones:f32[4]", "mean: f32[4] = [3, 3, 3, 3]"),
    (
        "batch_norm_backward x=const(3):f32[2,2,2] weight=ones:f32[2] mean=const(3):f32[2] rstd=ones:f32[2] dy=ones:f32[2,2,2] dmean=zeros:f32[2] drstd=zeros:f32[2]",
        "dbias: f32[2] = [4, 4]",
    ),
    (
        "batch_norm_inference x=const(3):f32[1,2,2] weight=ones:f32[2] bias=ones:f32[2] mean=ones:f32[2] variance=ones:f32[2] eps=0",
        "y: f32[1, 2, 2] = [3, 3, 3, 3]",
    ),
    (
        "running_statistics mean=const(4):f32[2] rstd=ones:f32[2] running_mean=zeros:f32[2] running_var=ones:f32[2] momentum=0.5 eps=0",
        "running_mean: f32[2] = [2, 2]",
    ),
    ("vector x=arange:f32[2,3] y=ones:f32[2,3] alpha=2 variant=axpy", "z: f32[2, 3] = [1, 3, 5, 7, 9, 11]"),
    ("vector x=ones:f16[5000] y=ones:f16[5000] variant=dot", "result: f32[1] = [5000]"),
    ("histogram x=arange:i32[2,3] counts=empty:i32[4]", "counts: i32[4] = [1, 1, 1, 1]"),
    ("histogram x=arange:f32[9] counts=empty:i32[4] least=1 greatest=5", "counts: i32[4] = [1, 1, 1, 2]"),
    ("bandwidth a=arange:i32[5] variant=copy", "c: i32[5] = [0, 1, 2, 3, 4]"),
    ("bandwidth a=arange:i32[5] b=ones:i32[5] scalar=10 variant=triad", "c: i32[5] = [10, 11, 12, 13, 14]"),
];

/// The same of elementwise operators, fused ones, casts, random numbers and rotary position embedding: of several results the last.
const ELEMENTWISE: [(&str, &str); 44] = [
    ("relu x=const(-2):f32[3]", "y: f32[3] = [0, 0, 0]"),
    ("relu_backward x=const(2):f32[3] dy=const(5):f32[3]", "dx: f32[3] = [5, 5, 5]"),
    ("leaky_relu x=const(-4):f32[3] slope=0.25", "y: f32[3] = [-1, -1, -1]"),
    ("leaky_relu_backward x=const(-4):f32[3] dy=const(2):f32[3] slope=0.25", "dx: f32[3] = [0.5, 0.5, 0.5]"),
    ("elu x=const(-100):f32[3] alpha=2", "y: f32[3] = [-2, -2, -2]"),
    ("elu_backward x=const(3):f32[3] dy=const(2):f32[3]", "dx: f32[3] = [2, 2, 2]"),
    ("sigmoid x=zeros:f32[3]", "y: f32[3] = [0.5, 0.5, 0.5]"),
    ("sigmoid_backward y=const(0.5):f32[3] dy=const(2):f32[3]", "dx: f32[3] = [0.5, 0.5, 0.5]"),
    ("tanh x=zeros:bf16[3]", "y: bf16[3] = [0, 0, 0]"),
    ("tanh_backward y=const(0.5):f32[3] dy=ones:f32[3]", "dx: f32[3] = [0.75, 0.75, 0.75]"),
    ("silu x=const(100):f32[2,3]", "y: f32[2, 3] = [100, 100, 100, 100, 100, 100]"),
    ("silu_backward x=zeros:f32[3] dy=const(2):f32[3]", "dx: f32[3] = [1, 1, 1]"),
    ("gelu x=const(100):f16[3]", "y: f16[3] = [100, 100, 100]"),
    ("gelu_backward x=zeros:f64[3] dy=const(2):f64[3]", "dx: f64[3] = [1, 1, 1]"),
    ("gelu_tanh x=const(100):f32[3]", "y: f32[3] = [100, 100, 100]"),
    ("gelu_tanh_backward x=zeros:f32[3] dy=const(2):f32[3]", "dx: f32[3] = [1, 1, 1]"),
    ("swiglu gate=const(100):f32[3] up=const(2):f32[3]", "y: f32[3] = [200, 200, 200]"),
    ("swiglu_backward gate=zeros:f32[3] up=const(2):f32[3] dy=ones:f32[3]", "dup: f32[3] = [0, 0, 0]"),
    ("geglu gate=const(100):f32[3] up=const(2):f32[3]", "y: f32[3] = [200, 200, 200]"),
    ("geglu_backward gate=zeros:f32[3] up=const(2):f32[3] dy=ones:f32[3]", "dup: f32[3] = [0, 0, 0]"),
    ("geglu_tanh gate=const(100):f32[3] up=const(2):f32[3]", "y: f32[3] = [200, 200, 200]"),
    ("geglu_tanh_backward gate=zeros:f32[3] up=const(2):f32[3] dy=ones:f32[3]", "dup: f32[3] = [0, 0, 0]"),
    ("bias_relu x=ones:f32[2,3] bias=const(-2):f32[3]", "y: f32[2, 3] = [0, 0, 0, 0, 0, 0]"),
    ("bias_relu_backward x=ones:f32[2,3] bias=ones:f32[3] dy=ones:f32[2,3]", "dbias: f32[3] = [2, 2, 2]"),
    ("bias_silu x=ones:f32[2,3] bias=const(99):f32[3]", "y: f32[2, 3] = [100, 100, 100, 100, 100, 100]"),
    ("bias_silu_backward x=ones:f32[2,3] bias=const(-1):f32[3] dy=ones:f32[2,3]", "dbias: f32[3] = [1, 1, 1]"),
    ("bias_gelu x=ones:f32[2,3] bias=const(99):f32[3]", "y: f32[2, 3] = [100, 100, 100, 100, 100, 100]"),
    ("bias_gelu_backward x=ones:f32[2,3] bias=const(99):f32[3] dy=ones:f32[2,3]", "dbias: f32[3] = [2, 2, 2]"),
    (
        "add_rms_norm x=ones:f32[2,8] residual=const(2):f32[2,8] weight=const(2):f32[8] eps=0",
        "y: f32[2, 8] = [2, 2, 2, 2, 2, 2, ...]",
    ),
    (
        "add_rms_norm_backward sum=const(3):f32[2,8] weight=ones:f32[8] dsum=const(2):f32[2,8] dy=zeros:f32[2,8]",
        "dx: f32[2, 8] = [2, 2, 2, 2, 2, 2, ...]",
    ),
    (
        "add_layer_norm_backward sum=const(3):f32[2,8] weight=ones:f32[8] dsum=const(2):f32[2,8] dy=ones:f32[2,8]",
        "dbias: f32[8] = [2, 2, 2, 2, 2, 2, ...]",
    ),
    (
        "add_layer_norm x=ones:f32[2,8] residual=const(2):f32[2,8] weight=ones:f32[8] bias=const(7):f32[8]",
        "y: f32[2, 8] = [7, 7, 7, 7, 7, 7, ...]",
    ),
    ("cast x=const(2.5):f32[3] precision=fp32->int8", "y: i8[3] = [2, 2, 2]"),
    ("quantise x=const(-254):f32[1,3] variant=rows_int8", "scales: f32[1] = [2]"),
    ("dequantise codes=const(3):i8[2,3] scales=const(0.5):f32[2]", "y: f32[2, 3] = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5]"),
    ("dropout x=ones:f32[3] p=1", "y: f32[3] = [0, 0, 0]"),
    ("dropout_backward dy=ones:f32[3] p=0", "dx: f32[3] = [1, 1, 1]"),
    ("random_uniform y=empty:f16[1]", "y: f16[1] = [0.39892578]"),
    ("random_normal y=empty:bf16[1]", "y: bf16[1] = [0.04711914]"),
    ("rope x=ones:f32[1,2,1,4] cos=zeros:f32[2,2] sin=ones:f32[2,2]", "y: f32[1, 2, 1, 4] = [-1, -1, 1, 1, -1, -1, ...]"),
    ("rope_backward dy=ones:f32[1,1,1,4] variant=halves_theta", "dx: f32[1, 1, 1, 4] = [1, 1, 1, 1]"),
    ("rope_inplace x=ones:f16[1,2,1,4] cos=zeros:f32[2,2] sin=ones:f32[2,2]", "x: f16[1, 2, 1, 4] = [-1, -1, 1, 1, -1, -1, ...]"),
    ("rope_inplace x=ones:f32[1,1,1,4] variant=halves_theta", "x: f32[1, 1, 1, 4] = [1, 1, 1, 1]"),
    (
        "qk_norm_rope q=const(3):f32[2,1,4] k=const(5):f32[2,1,4] q_weight=ones:f32[4] k_weight=const(2):f32[4] cos=ones:f32[2,2] sin=zeros:f32[2,2] eps=0",
        "k_out: f32[2, 1, 4] = [2, 2, 2, 2, 2, 2, ...]",
    ),
];

/// The same of convolution, attention's relatives, tables and caches, mixtures of experts, scans, sorts and sparse matrices: of several results one.
const FURTHER: [(&str, &str); 36] = [
    ("conv2d x=arange:f32[1,1,3,3] weight=ones:f32[1,1,2,2]", "y: f32[1, 1, 2, 2] = [8, 12, 20, 24]"),
    (
        "conv2d_backward x=arange:f32[1,1,3,3] weight=ones:f32[1,1,2,2] dy=ones:f32[1,1,2,2]",
        "dweight: f32[1, 1, 2, 2] = [8, 12, 20, 24]",
    ),
    ("attention_lse Q=zeros:f16[1,1,2,64] K=zeros:f16[1,1,1,64] V=ones:f16[1,1,1,64]", "lse: f32[1, 1, 2] = [0, 0]"),
    (
        "attention_backward Q=zeros:f16[1,1,1,64] K=zeros:f16[1,1,1,64] V=ones:f16[1,1,1,64] O=ones:f16[1,1,1,64] lse=zeros:f32[1,1,1] dO=const(3):f16[1,1,1,64] dlse=zeros:f32[1,1,1]",
        "dV: f16[1, 1, 1, 64] = [3, 3, 3, 3, 3, 3, ...]",
    ),
    (
        "attention_decode Q=ones:f16[1,2,64] k_cache=ones:f16[1,16,1,64] v_cache=const(3):f16[1,16,1,64] block_table=zeros:i32[1,1] lengths=const(5):i32[1]",
        "O: f16[1, 2, 64] = [3, 3, 3, 3, 3, 3, ...]",
    ),
    (
        "attention_window Q=zeros:f16[1,1,3,64] K=zeros:f16[1,1,4,64] V=ones:f16[1,1,4,64] left=0 right=0",
        "lse: f32[1, 1, 3] = [0, 0, 0]",
    ),
    (
        "attention_varlen Q=ones:f16[3,1,64] K=ones:f16[3,1,64] V=const(3):f16[3,1,64] cu_seqlens_q=arange:i32[4] cu_seqlens_k=arange:i32[4]",
        "lse: f32[1, 3] = [8, 8, 8]",
    ),
    ("embedding table=arange:f32[3,2] ids=const(2):i32[2]", "y: f32[2, 2] = [4, 5, 4, 5]"),
    ("embedding_backward dy=ones:f32[3,2] ids=ones:i32[3] dtable=empty:f32[3,2]", "dtable: f32[3, 2] = [0, 0, 3, 3, 0, 0]"),
    (
        "kv_append k=ones:f16[1,1,2] v=const(3):f16[1,1,2] slots=ones:i32[1] k_cache=zeros:f16[1,2,1,2] v_cache=zeros:f16[1,2,1,2]",
        "v_cache: f16[1, 2, 1, 2] = [0, 0, 3, 3]",
    ),
    ("moe_gate logits=zeros:f32[1,4] weights=empty:f32[1,2] ids=empty:i32[1,2]", "weights: f32[1, 2] = [0.25, 0.25]"),
    ("moe_gate logits=arange:f32[1,4] weights=empty:f32[1,1] ids=empty:i32[1,1] variant=renormalised", "ids: i32[1, 1] = [3]"),
    ("moe_gate_backward logits=zeros:f32[1,2] ids=zeros:i32[1,1] dweights=ones:f32[1,1]", "dlogits: f32[1, 2] = [0.25, -0.25]"),
    ("moe_sort ids=const(1):i32[2,1] offsets=empty:i32[4]", "offsets: i32[4] = [0, 0, 2, 2]"),
    ("moe_permute x=arange:f32[2,2] place=arange:i32[2,1] y=empty:f32[2,2]", "y: f32[2, 2] = [0, 1, 2, 3]"),
    ("moe_permute_backward dy=arange:f32[4,1] place=arange:i32[2,2]", "dx: f32[2, 1] = [1, 5]"),
    ("moe_combine y=arange:f32[4,1] place=arange:i32[2,2] weights=const(2):f32[2,2]", "out: f32[2, 1] = [2, 10]"),
    (
        "moe_combine_backward y=arange:f32[4,1] place=arange:i32[2,2] weights=const(2):f32[2,2] dout=ones:f32[2,1]",
        "dweights: f32[2, 2] = [0, 1, 2, 3]",
    ),
    ("sparse24_compress x=arange:f16[1,32]", "values: f16[1, 16] = [2, 3, 6, 7, 10, 11, ...]"),
    ("sparse24_expand values=ones:f16[1,16] places=const(-286331154):i32[1,1]", "x: f16[1, 32] = [0, 0, 1, 1, 0, 0, ...]"),
    ("sparse24_gemm values=ones:f16[1,16] places=const(-286331154):i32[1,1] B=ones:f16[32,1]", "C: f16[1, 1] = [16]"),
    ("prefix_sum x=arange:f32[6] variant=inclusive", "y: f32[6] = [0, 1, 3, 6, 10, 15]"),
    ("prefix_sum x=arange:f32[6] variant=exclusive", "y: f32[6] = [0, 0, 1, 3, 6, 10]"),
    ("masked_select x=arange:f32[5] mask=ones:i8[5]", "count: i32[1] = [5]"),
    ("masked_select x=arange:f32[5] mask=ones:i8[5]", "y: f32[5] = [0, 1, 2, 3, 4]"),
    ("masked_select x=arange:f32[5] mask=zeros:i8[5]", "y: f32[5] = [0, 0, 0, 0, 0]"),
    ("masked_select x=arange:f32[5] mask=arange:i8[5]", "y: f32[5] = [1, 2, 3, 4, 0]"),
    ("sort x=const(7):i32[5] variant=order", "order: i32[5] = [0, 1, 2, 3, 4]"),
    (
        "spmv values=const(2):f32[3] columns=arange:i32[3] row_offsets=arange:i32[4] x=arange:f32[3] y=empty:f32[3]",
        "y: f32[3] = [0, 2, 4]",
    ),
    (
        "spmm values=const(2):f32[3] columns=arange:i32[3] row_offsets=arange:i32[4] B=arange:f32[3,2] C=empty:f32[3,2]",
        "C: f32[3, 2] = [0, 2, 4, 6, 8, 10]",
    ),
    ("sddmm A=arange:f32[3,2] B=ones:f32[3,2] columns=arange:i32[3] row_offsets=arange:i32[4]", "y: f32[3] = [1, 5, 9]"),
    ("csr_to_coo columns=zeros:i32[3] row_offsets=arange:i32[4]", "rows: i32[3] = [0, 1, 2]"),
    ("coo_to_csr rows=const(1):i32[3] row_offsets=empty:i32[4]", "row_offsets: i32[4] = [0, 0, 3, 3]"),
    (
        "csr_to_csc values=arange:f32[3] columns=const(1):i32[3] row_offsets=arange:i32[4] column_offsets=empty:i32[4]",
        "column_offsets: i32[4] = [0, 0, 3, 3]",
    ),
    (
        "dense_to_csr x=arange:f32[2,2] values=empty:f32[3] columns=empty:i32[3] row_offsets=empty:i32[3]",
        "row_offsets: i32[3] = [0, 1, 3]",
    ),
    (
        "csr_to_dense values=const(5):f32[2] columns=arange:i32[2] row_offsets=arange:i32[3] x=empty:f32[2,3]",
        "x: f32[2, 3] = [5, 0, 0, 0, 5, 0]",
    ),
];

#[test]
fn every_operator_runs_on_one_s_own_arrays() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let calls = || CALLS.into_iter().chain(ELEMENTWISE).chain(FURTHER);
    for (call, wanted) in calls() {
        for device in ["cpu", "emu"] {
            let text = right(folder.path(), &format!("run {call} --device {device} --sanitize all"));
            let verdict = if wanted.starts_with("nothing") { wanted } else { "checked: nothing found" };
            assert!(text.contains(wanted) && text.contains(verdict), "{device}: {call}\n{text}");
        }
    }
    // The whole word: names begin with those of others.
    let called: BTreeSet<&str> = calls().filter_map(|(call, _)| call.split(' ').next()).collect();
    let idle: Vec<&str> = ops::OPERATORS.iter().map(|operator| operator.name).filter(|name| !called.contains(name)).collect();
    assert!(idle.is_empty(), "operators that are not called: {idle:?}");
}

#[test]
fn files_go_in_and_come_out_as_from_rust() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, x) = (folder.path(), Tensor::arange(DType::F32, &[6, 10]).expect("a tensor"));
    let x = ops::softmax(&ops::axpy(0.1, &x, &x).expect("axpy")).expect("softmax");
    npy::write(path.join("x.npy"), &x).expect("written");
    let text = right(path, "run softmax x=@x.npy --save y=y.npy --save x=again.npy --device cpu");
    assert!(text.contains("softmax on cpu (asked for): 1 launch, compiled in"), "{text}");
    assert!(text.contains("wrote y to y.npy"), "{text}");
    let read = |name: &str| npy::read(path.join(name)).expect("a file");
    assert!(read("y.npy").same_bits(&ops::softmax(&x).expect("softmax")).expect("one shape"));
    assert!(read("again.npy").same_bits(&x).expect("one shape"));
    let (code, text) = tessera(path, "run softmax x=@x.npy y=zeros:f32[6,10] --save y=z.npy --device cpu --json");
    let object: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((code, &object["passed"], &object["operator"]), (0, &Value::from(true), &Value::from("softmax")));
    assert_eq!(object["outputs"][0]["shape"], serde_json::json!([6, 10]));
    assert_eq!(object["kernels"][0]["kernel"], "softmax");
    assert!(read("z.npy").same_bits(&read("y.npy")).expect("one shape"));
}

#[test]
fn calls_that_make_no_sense_are_refused_with_what_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wrong = [
        ("nosuch x=ones:f32[4]", "operators are gemm, linear, linear_w4, "),
        ("gemm A=ones:f32[3,64] B=ones:f32[65,2]", "`k` is 64 in `A` and 65 in `B`: `A[..batch, m, k]` has shape [3, 64]"),
        ("gemm A=ones:f32[2,3,4] B=ones:f32[3,4,5]", "`batch` is 2 in `A` and 3 in `B`"),
        ("gemm A=ones:f32[3,64] B=ones:f16[64,2]", "`A` holds `f32` and `B` `f16`"),
        ("linear_w4 x=ones:f16[1,64] W=ones:f16[1,64] S=ones:f16[1,8]", "`W` holds `f16`, and linear_w4 takes `i32` there"),
        ("linear_w4 x=ones:f16[1,96] W=ones:i32[1,96] S=ones:f16[1,8]", "groups are of 64 or 128 columns, not of 96"),
        ("linear_w4 x=ones:f16[1,64] W=ones:i32[1,8] S=ones:f16[1,8]", "`W` has shape [1, 8], and [1, 64] is wanted"),
        (
            "gemm_scaled A=ones:f8e4m3[1,100] B=ones:f8e4m3[1,100] SA=ones:f32[1,1] SB=ones:f32[1,1]",
            "100 columns are not of whole blocks of 128",
        ),
        (
            "gemm_grouped A=ones:f16[3,4] B=ones:f16[2,4,5] offsets=zeros:i32[2]",
            "`B` has 2 groups, of which `offsets` has 3 bounds, not 2",
        ),
        (
            "gemm_grouped A=ones:f16[3,8] B=ones:f16[2,8,4] offsets=const(3):i32[3]",
            "`offsets`: the first bound is 3, and the first group begins with row 0",
        ),
        (
            "gemm_grouped A=ones:f16[3,8] B=ones:f16[1,8,4] offsets=arange:i32[2]",
            "`offsets`: the last bound is 1, and `A` has 3 rows",
        ),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,2] --ranks 2", "leave out `--ranks`"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,2] --check-calls", "leave out `--check-calls`"),
        ("gemm A=ones:f32[3] B=ones:f32[3,2]", "`A` has shape [3], and `A[..batch, m, k]` is wanted"),
        ("gemm A=ones:f32[3,4]", "gemm nn takes `A[..batch, m, k]`, `B[..batch, k, n]` and gives `C[..batch, m, n]`"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] beta=1", "`C` is not given, but read as well"),
        ("histogram x=arange:i32[3]", "`counts` is not given, and nothing else says how large it is"),
        ("histogram x=arange:i32[3] counts=empty:i32[4] least=1", "`least` is 1: arrays of this type take no such number"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] C=ones:f16[3,5]", "`C` holds `f16`, and gemm of `f32` gives `f32`"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] C=ones:f32[5,3]", "`m` is 3 in `A` and 5 in `C`"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] variant=xy", "gemm has no variant `xy`: it is one of `nn`, `nt`, `tn`, `tt`"),
        ("gemm A=ones:i64[3,4] B=ones:i64[4,5]", "gemm takes no `i64`: it takes f32, f16, bf16"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] precision=bf16", "`bf16` is for arrays of `bf16`, and `A` holds `f32`"),
        ("gemm A=ones:f32[3,4] B=ones:f32[4,5] precision=fp32@2xtf32", "`@2xtf32` is not understood"),
        ("softmax x=ones:f32[3,4] precision=fp32@3xtf32", "softmax takes no factors apart, as `fp32@3xtf32` says"),
        ("permute x=ones:f32[2,3] variant=01", "permute has no variant `01`: it is one of `10`, `021`"),
        ("softmax x=ones:f32[3,4] eps=1", "`eps` is none of them"),
        ("softmax x=3", "softmax takes `x[..rows, keys]`"),
        ("softmax x=ones:f32[5,4] variant=causal", "causal softmax needs a key for every query"),
        ("softmax x=ones:f32[5,4] --grid 4", "operators have a grid of their own"),
        ("softmax x=ones:f32[5,4] --save z=z.npy", "arrays are x, y"),
        ("softmax x=ones:f32[5,4] x=ones:f32[5,4]", "`x` is given twice"),
        ("rms_norm x=ones:f32[5,4] weight=ones:f32[5]", "`hidden` is 4 in `x` and 5 in `weight`"),
        ("attention Q=ones:f16[3,8,64] K=ones:f16[2,8,64] V=ones:f16[2,8,64]", "`Q` has 3 heads and `K` 2"),
        ("vector x=ones:f32[5]", "vector needs a variant: it is one of `axpy`, `dot`"),
        ("bandwidth a=ones:i32[5] variant=scale scalar=0.5", "the arrays hold integers, so it is one"),
        ("rope x=ones:f32[1,2,1,4] cos=ones:f32[9,2] sin=ones:f32[9,2] start=-3", "`start` is -3, and is a whole number from 0"),
        ("rope x=ones:f32[1,2,1,4] cos=ones:f32[9,2] sin=ones:f32[9,2] start=0.5", "`start` is 0.5, and is a whole number"),
        ("rope x=ones:f32[1,2,1,4] variant=halves_theta start=2147483646", "have positions that 32 bits do not count"),
        ("rope x=ones:f32[1,2,1,8] variant=halves_theta dims=5", "`dims` is 5, and elements are turned in pairs"),
        (
            "qk_norm_rope q=ones:f32[2,1,4] k=ones:f32[2,1,4] q_weight=ones:f32[4] k_weight=ones:f32[4] cos=ones:f32[2,2] sin=ones:f32[2,2] start=1e20",
            "`start` is 100000000000000000000, and is a whole number",
        ),
        ("dropout x=ones:f32[3] seed=-1", "`seed` is -1, and is a whole number from 0 to 9007199254740991"),
        ("random_uniform y=empty:f32[3] offset=9007199254740992", "`offset` is 9007199254740992, and is a whole number"),
        ("cross_entropy x=ones:f32[2,3] labels=ones:i32[2] ignore_index=0.5", "`ignore_index` is 0.5, and is a whole number"),
        (
            "linear_cross_entropy x=ones:f32[2,4] weight=ones:f32[3,4] labels=const(3):i32[2]",
            "`labels`: 3 at place 0 is no class of `weight`, which has 3, nor",
        ),
        ("cross_entropy x=ones:f32[2,3] labels=const(3):i32[2]", "`labels`: 3 at place 0 is no class of `x`, which has 3, nor"),
        ("cross_entropy x=ones:f32[2,3] labels=const(-100):i32[2] ignore_index=2", "`labels`: -100 at place 0 is no class"),
        ("group_norm x=ones:f32[2,0,4] weight=ones:f32[0] bias=ones:f32[0] groups=1e19", "`groups` is 10000000000000000000, and"),
        ("arg_rows x=ones:f32[2,0] variant=max", "of no elements none is the largest or smallest"),
        ("cast x=ones:f32[3] precision=fp32->int32", "cast takes no `fp32->int32`"),
        ("dequantise codes=ones:f32[2,3] scales=ones:f32[2] precision=fp32->bf16", "dequantise takes no `fp32->bf16`"),
    ];
    for (call, wanted) in wrong {
        let (code, text) = tessera(folder.path(), &format!("run {call} --device cpu"));
        assert!(code == 5 && text.contains(wanted), "{call}: {code}\n{text}");
    }
    assert_eq!(tessera(folder.path(), "run softmax x=@missing.npy --device cpu").0, 4);
}

#[test]
fn calls_from_rust_run_where_their_arrays_are_and_compile_once() {
    let device = Device::emulator().expect("the emulator");
    let a = Tensor::arange(DType::F32, &[5, 37]).expect("a tensor");
    let b = Tensor::ones(DType::F32, &[5, 37]).expect("a tensor");
    let wanted = ops::gemm(&a, &b.transpose(0, 1).expect("a view")).expect("gemm");
    assert_eq!(wanted.to_f64().expect("numbers")[0], 666.0);
    let there = |tensor: &Tensor| tensor.to_device(&device).expect("copied");
    let c = ops::gemm(&there(&a), &there(&b).transpose(0, 1).expect("a view")).expect("gemm");
    assert!(!c.device().is_cpu());
    assert!(c.to_device(&Device::Cpu).expect("copied").same_bits(&wanted).expect("one shape"));
    let error = ops::gemm(&there(&a), &b).expect_err("two devices").to_string();
    assert!(error.contains("copy one with `to_device`"), "{error}");

    let cached = || {
        let call =
            Call { variant: Some("dot"), tensors: vec![("x", a.clone()), ("y", b.clone())], scalars: Vec::new(), lock: None };
        let resolved = ops::find("vector").expect("an operator").resolve(&call).expect("resolved");
        let result = Tensor::zeros(DType::F32, &[1]).expect("a tensor");
        let launches = resolved.prepare(std::slice::from_ref(&result), &CompileOptions::default()).expect("prepared");
        launches.iter().map(|launch| launch.is_cached()).collect::<Vec<_>>()
    };
    assert_eq!((cached(), cached()), (vec![false], vec![true]));
}
