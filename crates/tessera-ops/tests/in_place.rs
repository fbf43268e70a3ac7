//! What is done in place gives what is done into another array.

use tessera_ops::{Call, find};
use tessera_runtime::{RandomStream, Tensor};
use tessera_types::DType;

/// Sequences, tokens, heads and their elements, of which the last two are in no pair.
const SHAPE: [usize; 4] = [2, 37, 3, 18];

#[test]
fn rope_in_place_has_the_bits_of_rope() {
    let (rope, in_place) = (find("rope").expect("an operator"), find("rope_inplace").expect("an operator"));
    let table = |name: &str| RandomStream::named(1, name).normal_with(DType::F32, &[40, 8], 0.0, 0.7).expect("memory");
    let tables = [("cos", table("cos")), ("sin", table("sin"))];
    let mut held = 0;
    for &variant in rope.calls.variants {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            let x = RandomStream::named(1, "x").normal_with(dtype, &SHAPE, 0.0, 1.0).expect("memory");
            let (given, scalars) = match variant.ends_with("_theta") {
                true => (&[][..], vec![("start", 3.0), ("dims", 16.0)]),
                false => (&tables[..], vec![("start", 3.0)]),
            };
            let run = |operator: &'static tessera_ops::Operator, x: &Tensor| {
                let tensors = [("x", x.clone())].into_iter().chain(given.iter().cloned()).collect();
                let call = Call { variant: Some(variant), tensors, scalars: scalars.clone(), lock: None };
                operator.resolve(&call).expect("a plan").run().expect("a result").remove(0)
            };
            let want = run(rope, &x).to_f64().expect("numbers");
            assert_ne!(want, x.to_f64().expect("numbers"), "{variant} {dtype}: nothing is turned");
            let got = run(in_place, &x);
            assert_eq!(got.to_f64().expect("numbers"), want, "{variant} {dtype}");
            assert_eq!(x.to_f64().expect("numbers"), want, "{variant} {dtype}: it is another array");
            held += 1;
        }
    }
    assert_eq!(held, 4 * 5);
}
