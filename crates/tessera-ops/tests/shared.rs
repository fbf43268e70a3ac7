//! Results of several launches lie in memory of their own.

use tessera_ops::{Call, find};
use tessera_runtime::Tensor;
use tessera_types::DType;

#[test]
fn results_in_one_memory_are_refused() {
    let operator = find("attention_backward").expect("an operator");
    let array = |shape: &[usize]| Tensor::ones(DType::F32, shape).expect("memory");
    let four = [1, 1, 4, 64];
    let names = ["Q", "K", "V", "O", "dO"].map(|name| (name, array(&four)));
    let rows = ["lse", "dlse"].map(|name| (name, array(&four[..3])));
    let call = |[dq, dk]: [Tensor; 2]| {
        let tensors = names.iter().chain(&rows).cloned().chain([("dQ", dq), ("dK", dk)]).collect();
        let resolved = operator.resolve(&Call { tensors, ..Call::default() }).map_err(|error| error.to_string())?;
        resolved.run().map_err(|error| error.to_string())
    };
    assert!(call([array(&four), array(&four)]).is_ok());
    let one = array(&four);
    let said = call([one.clone(), one]).expect_err("one array for two results");
    assert!(said.contains("`dK`: it is written in the memory of `dQ`"), "{said}");

    // Parts of one array that lie between each other share nothing.
    let both = array(&[1, 1, 4, 128]);
    let [first, second, across] = [0..64, 64..128, 32..96].map(|part| both.slice(3, part, 1).expect("a part"));
    assert!(call([first.clone(), second]).is_ok());
    assert!(call([first, across]).is_err());
}
