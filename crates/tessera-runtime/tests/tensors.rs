//! Tensors: views, copies, conversions and the rules of borrowing.

use proptest::prelude::*;
use tessera_runtime::{Device, Number, RandomStream, Tensor, TensorError};
use tessera_types::DType;

#[test]
fn views_share_memory_and_copies_do_not() {
    let x = Tensor::arange(DType::I32, &[4, 6]).unwrap();
    let view = x.slice(1, 1..6, 2).unwrap();
    assert_eq!((view.shape(), view.strides()), (&[4, 3][..], &[6, 2][..]));
    assert_eq!(view.slice(0, 2..3, 1).unwrap().to_f64().unwrap(), [13.0, 15.0, 17.0]);
    assert!(view.shares_memory(&x) && !view.contiguous().unwrap().shares_memory(&x));
    view.copy_from(&Tensor::zeros(DType::I32, &[4, 3]).unwrap()).unwrap();
    assert_eq!(x.to_f64().unwrap()[12..18], [12.0, 0.0, 14.0, 0.0, 16.0, 0.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = Tensor::zeros(DType::F32, &[2, 3]).unwrap();
    assert!(matches!(x.slice(1, 2..5, 1), Err(TensorError::View { .. })));
    assert!(matches!(x.slice(0, 0..2, 0), Err(TensorError::View { .. })));
    assert!(matches!(x.permute(&[0, 0]), Err(TensorError::View { .. })));
    assert!(matches!(x.strided(1, &[2, 3], &[3, 1]), Err(TensorError::View { .. })));
    assert!(matches!(x.strided(0, &[usize::MAX], &[usize::MAX]), Err(TensorError::View { .. })));
    assert!(matches!(x.reshape(&[4]), Err(TensorError::Count { .. })));
    assert!(matches!(x.read::<i32>(), Err(TensorError::DType { .. })));
    assert!(matches!(x.transpose(0, 1).unwrap().read::<f32>(), Err(TensorError::NotContiguous { .. })));
    assert!(matches!(Tensor::zeros(DType::F64, &[usize::MAX, 2]), Err(TensorError::TooLarge { .. })));
    assert!(matches!(Tensor::zeros(DType::U8, &[1 << 62]), Err(TensorError::OutOfMemory { .. })));
    assert_eq!(Tensor::zeros(DType::F64, &[usize::MAX, 0, usize::MAX]).unwrap().len(), 0);
}

#[test]
fn a_borrow_excludes_writers() {
    let x = Tensor::zeros(DType::F32, &[4]).unwrap();
    let view = x.slice(0, 2..4, 1).unwrap();
    {
        let _first = x.read::<f32>().unwrap();
        let _second = view.read::<f32>().unwrap();
        assert_eq!(view.write::<f32>().unwrap_err(), TensorError::InUse { writing: false });
    }
    let mut writer = view.write::<f32>().unwrap();
    writer[0] = 3.0;
    assert_eq!(x.read::<f32>().unwrap_err(), TensorError::InUse { writing: true });
    drop(writer);
    assert_eq!(*x.read::<f32>().unwrap(), [0.0, 0.0, 3.0, 0.0]);
}

#[test]
fn empty_is_poison_until_written() {
    for &dtype in DType::ALL {
        let x = Tensor::empty(dtype, &[5]).unwrap();
        assert!(x.is_poisoned());
        let has_nan = tessera_types::FloatFormat::of(dtype).is_some_and(|format| format.nan_code().is_some());
        assert_eq!(x.to_f64().unwrap().iter().all(|v| v.is_nan()), has_nan, "{dtype}");
        x.copy_from(&Tensor::zeros(dtype, &[5]).unwrap()).unwrap();
        assert!(!x.is_poisoned());
    }
}

#[test]
fn host_memory_is_aligned() {
    for len in [1, 100, 3 << 20] {
        let x = Tensor::zeros(DType::F32, &[len]).unwrap();
        assert!(x.read::<f32>().unwrap().as_ptr().addr().is_multiple_of(tessera_runtime::HOST_ALIGN));
    }
}

#[test]
fn differences_are_found() {
    let x = Tensor::from_vec(&[2, 2], vec![1.0_f32, f32::NAN, 3.0, f32::INFINITY]).unwrap();
    assert_eq!(x.difference(&x, |_, _| 0.0).unwrap(), None);
    let y = Tensor::from_vec(&[2, 2], vec![1.0_f32, f32::NAN, 3.5, f32::INFINITY]).unwrap();
    let found = x.difference(&y, |_, _| 0.25).unwrap().unwrap();
    assert_eq!(
        (found.count, found.place, found.index, found.left, found.right),
        (1, 2, vec![1, 0], Number::Float(3.0), Number::Float(3.5))
    );
    assert_eq!(x.difference(&y, |place, want| if (place, want) == (2, 3.5) { 0.5 } else { 0.0 }).unwrap(), None);
    let z = Tensor::from_vec(&[2, 2], vec![1.0_f32, 0.0, 3.0, 1.0]).unwrap();
    assert_eq!(x.difference(&z, |_, _| 1e300).unwrap().unwrap().count, 2);
}

/// Numbers beyond 2^53 that an `f64` cannot tell apart, in every type that has them, and beside floats.
#[test]
fn integers_are_compared_and_told_with_all_their_digits() {
    let big = i64::MAX - 1000;
    let x = Tensor::from_vec(&[3], vec![big, i64::MIN, -1]).unwrap();
    let y = Tensor::from_vec(&[3], vec![big + 199, i64::MIN + 1, -1]).unwrap();
    let found = x.difference(&y, |_, _| 0.0).unwrap().unwrap();
    assert_eq!((found.count, found.place, found.left.to_string()), (2, 0, big.to_string()));
    assert_eq!(found.right.to_string(), (big + 199).to_string());
    assert_eq!(x.difference(&y, |_, _| 198.0).unwrap().unwrap().count, 1);
    assert_eq!(x.difference(&y, |_, _| 199.0).unwrap(), None);
    let ends = Tensor::from_vec(&[2], vec![u64::MAX, 0]).unwrap();
    let other = Tensor::from_vec(&[2], vec![u64::MAX - 1, u64::MAX]).unwrap();
    assert_eq!(ends.difference(&other, |_, _| 1.0).unwrap().unwrap().index, [1]);
    assert_eq!(ends.numbers(0, 9).unwrap(), [Number::Integer(u64::MAX.into()), Number::Integer(0)]);
    let floats = Tensor::from_vec(&[3], vec![big as f64, i64::MIN as f64, -1.5]).unwrap();
    assert_eq!(x.difference(&floats, |_, _| 0.5).unwrap().unwrap().index, [0]);
    let infinite = Tensor::from_vec(&[3], vec![f64::INFINITY, f64::NAN, -1.0]).unwrap();
    assert_eq!(x.difference(&infinite, |_, _| f64::MAX).unwrap().unwrap().count, 2);
    let small = Tensor::from_bytes(DType::I4, &[2], &[0x3f]).unwrap();
    assert_eq!(small.numbers(1, 1).unwrap(), [Number::Integer(3)]);
}

#[test]
fn conversions_round_once_and_saturate() {
    let x = Tensor::from_vec(&[4], vec![1e6_f32, -0.3, 2.0f32.powi(-12), f32::NAN]).unwrap();
    assert_eq!(x.to_dtype(DType::F8E4M3).unwrap().to_codes().unwrap(), [0x7e, 0xaa, 0, 0x7f]);
    assert_eq!(x.to_dtype(DType::I8).unwrap().to_f64().unwrap(), [127.0, 0.0, 0.0, 0.0]);
    assert_eq!(x.to_dtype(DType::F4E2M1).unwrap().bytes(), 2);
    assert!(x.to_device(&Device::Cpu).unwrap().shares_memory(&x));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any chain of views reads the elements that the same chain of index arithmetic names.
    #[test]
    fn views_name_the_right_elements(
        shape in prop::collection::vec(1..6_usize, 1..4),
        dtype in prop::sample::select(vec![DType::F64, DType::I16, DType::F4E2M1, DType::F6E3M2, DType::B1, DType::BF16]),
        step in 1..3_usize, start in 0..3_usize, seed in any::<u64>(),
    ) {
        let x = RandomStream::new(seed).rand(dtype, &shape).unwrap();
        let all = x.to_codes().unwrap();
        let start = start.min(shape[0] - 1);
        let rank = shape.len();
        let view = x.slice(0, start..shape[0], step).unwrap().transpose(0, rank - 1).unwrap();
        let copy = view.contiguous().unwrap();
        let found = view.to_codes().unwrap();
        prop_assert_eq!(&copy.to_codes().unwrap(), &found);
        let mut place = 0;
        let mut index = vec![0; rank];
        'elements: loop {
            let mut original = index.clone();
            original.swap(0, rank - 1);
            original[0] = start + original[0] * step;
            let flat = original.iter().zip(&shape).fold(0, |flat, (i, size)| flat * size + i);
            prop_assert_eq!(found[place], all[flat]);
            place += 1;
            for axis in (0..rank).rev() {
                index[axis] += 1;
                if index[axis] < view.shape()[axis] { continue 'elements; }
                index[axis] = 0;
            }
            break;
        }
        prop_assert_eq!(place, found.len());
    }
}
