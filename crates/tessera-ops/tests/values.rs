//! Results of numbers at the ends of their types, in rows that a block takes whole and in rows that several share.

use tessera_ops::{Call, Random, Reduction, dropout, find, reduce_rows_backward};
use tessera_runtime::{Device, Element, Tensor};
use tessera_types::DType;

/// More elements than a block takes whole on a GPU.
const LONG: usize = 9000;

/// What an operator gives of one row of so many elements, which are `rest` but for the first one, on the CPU and in the emulator.
fn of_row<T: Element + Copy>(operator: &str, n: usize, [first, rest]: [T; 2]) -> [f64; 2] {
    let operator = find(operator).expect("an operator");
    [Device::Cpu, Device::emulator().expect("an emulator")].map(|device| {
        let mut numbers = vec![rest; n];
        numbers[0] = first;
        let x = Tensor::from_vec(&[1, n], numbers).and_then(|made| made.to_device(&device)).expect("memory");
        let resolved = operator.resolve(&Call { tensors: vec![("x", x)], ..Call::default() }).expect("resolved");
        let results = resolved.run().expect("it runs");
        results[0].to_device(&Device::Cpu).and_then(|host| host.to_f64()).expect("numbers")[0]
    })
}

#[test]
fn log_sum_exp_takes_infinities_and_the_lowest_numbers() {
    let infinity = f64::INFINITY;
    for n in [5, LONG] {
        let of = |row: [f32; 2]| of_row("log_sum_exp", n, row);
        assert_eq!(of([f32::INFINITY, 1.0]), [infinity; 2], "{n}");
        assert_eq!(of([f32::INFINITY; 2]), [infinity; 2], "{n}");
        assert_eq!(of([-f32::INFINITY; 2]), [-infinity; 2], "{n}");
        assert_eq!(of([2.0, -f32::INFINITY]), [2.0; 2], "{n}");
        assert_eq!(of([f32::MIN; 2]), [f64::from(f32::MIN); 2], "{n}");
        assert!(of([f32::NAN, f32::INFINITY]).iter().all(|y| y.is_nan()), "{n}");
        // Far below what 32 bits hold.
        assert_eq!(of_row("log_sum_exp", n, [-1e300_f64; 2]), [-1e300; 2], "{n}");
    }
}

#[test]
fn what_divides_in_64_bits_is_no_factor_of_32() {
    let ones = |shape: &[usize]| Tensor::ones(DType::F64, shape).expect("memory");
    let of_mean = reduce_rows_backward(&ones(&[1, 3]), &ones(&[1]), &ones(&[1]), Reduction::Mean).expect("a gradient");
    assert_eq!(of_mean.to_f64().expect("numbers"), [1.0 / 3.0; 3]);
    let dropped = dropout(&ones(&[4000]), 0.1, Random { seed: 1, offset: 0 }).expect("a result").to_f64().expect("numbers");
    let kept = 1.0 / (1.0 - 0.1);
    assert!(dropped.contains(&kept) && dropped.iter().all(|y| *y == 0.0 || *y == kept), "{:?}", &dropped[..8]);
}
