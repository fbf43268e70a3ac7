//! Which operators `tessera check` holds to their references where inputs have NaN and infinities.

use tessera_ops::OPERATORS;

/// Those that it does not; each says why.
const NOT_HELD: [&str; 14] = [
    "linear",
    "linear_w4",
    "gemm_scaled",
    "attention",
    "conv2d",
    "conv2d_backward",
    "attention_lse",
    "attention_backward",
    "attention_decode",
    "attention_window",
    "attention_varlen",
    "batch_norm",
    "batch_norm_backward",
    "sparse24_compress",
];
const HELD: usize = 100;

#[test]
fn all_operators_but_these_are_held() {
    let not_held: Vec<&str> = OPERATORS.iter().filter(|own| own.no_specials.is_some()).map(|own| own.name).collect();
    assert_eq!(not_held, NOT_HELD);
    assert_eq!(OPERATORS.len() - not_held.len(), HELD);
    assert!(OPERATORS.iter().filter_map(|own| own.no_specials).all(|why| why.len() > 20 && !why.ends_with('.')));
}
