//! Tensor files: round trips, NumPy's reading and writing of them, and hostile bytes.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use tessera_runtime::{FormatError, RandomStream, Tensor, TensorError, npy, safetensors};
use tessera_types::DType;

fn sample(dtype: DType, shape: &[usize]) -> Tensor {
    RandomStream::named(1, dtype.name()).randn(dtype, shape).unwrap()
}

/// The header of a version 1.0 file.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn every_type_survives_npy() {
    for &dtype in DType::ALL.iter().filter(|&&dtype| dtype != DType::TF32) {
        for shape in [&[][..], &[5], &[0], &[3, 7], &[2, 1, 3]] {
            let x = sample(dtype, shape);
            assert!(npy::decode(&npy::encode(&x).unwrap()).unwrap().same_bits(&x).unwrap(), "{dtype} {shape:?}");
        }
    }
}

#[test]
fn every_type_survives_safetensors() {
    for &dtype in DType::ALL.iter().filter(|&&dtype| !matches!(dtype, DType::TF32 | DType::I4)) {
        // Sub-byte tensors are whole bytes in that format.
        let x = sample(dtype, &[3, 8]);
        let bytes = safetensors::encode(&[("a.b", &x), ("other", &sample(DType::I16, &[2]))]).unwrap();
        assert!(safetensors::decode(&bytes, "a.b").unwrap().same_bits(&x).unwrap(), "{dtype}");
        let names: Vec<String> = safetensors::entries(&bytes).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a.b", "other"]);
    }
}

#[test]
fn a_transposed_view_is_written_in_its_own_order() {
    let x = sample(DType::F32, &[3, 5]).transpose(0, 1).unwrap();
    let back = npy::decode(&npy::encode(&x).unwrap()).unwrap();
    assert_eq!((back.shape(), back.to_f64().unwrap()), (&[5, 3][..], x.to_f64().unwrap()));
}

#[test]
fn fortran_and_big_endian_are_read() {
    let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
    let x = npy::decode(&file(header, &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 255, 255])).unwrap();
    assert_eq!(x.to_f64().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, -1.0]);
}

#[test]
fn what_is_wrong_is_said() {
    let message = |bytes: &[u8]| npy::decode(bytes).unwrap_err().to_string();
    assert_eq!(message(b"PK\x03\x04"), "not a .npy file");
    assert_eq!(message(b"\x93NUMPY\x09\x00\x00\x00"), "version 9.0 of the .npy format is unknown (1.0, 2.0 and 3.0 are)");
    assert_eq!(message(b"\x93NUMPY\x01\x00\xff\xff{"), "the header needs 65545 bytes, the file has 11");
    let with =
        |descr: &str, shape: &str| file(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"), &[0; 8]);
    assert_eq!(message(&with("'<f4'", "(3,)")), "the array needs 12 bytes, the file has 8");
    assert_eq!(message(&with("'<c8'", "(1,)")), "elements of type `<c8` have no counterpart here");
    assert_eq!(message(&with("'|O'", "(1,)")), "elements of type `|O` have no counterpart here");
    let structured = "elements of type `[(\\'a\\', \\'<i4\\'), (\\'b\\', \\'<f4\\', (2,))]` have no counterpart here; structured types are not taken";
    assert!(message(&with("[('a', '<i4'), ('b', '<f4', (2,))]", "(1,)")).starts_with(structured));
    assert_eq!(message(&with("'<f4'", "(-1,)")), "malformed header: a size of `shape` is no number, or too large");
    assert_eq!(message(&with("'<f4'", "(1,) 'x'")), "malformed header: expected `}`, found `\\'`");
    assert!(message(&with("'|V1'", "(8,)")).contains("NumPy does not record which 8-bit type `V1` is"));
    assert!(matches!(
        npy::decode(&with("'<f8'", "(4611686018427387904, 8)")).unwrap_err(),
        FormatError::Tensor(TensorError::TooLarge { .. })
    ));
    // A declared size of a petabyte allocates nothing.
    assert!(matches!(npy::decode(&with("'<f8'", "(1000000000000000,)")).unwrap_err(), FormatError::Truncated { .. }));
    let bytes = safetensors::encode(&[("x", &sample(DType::F32, &[2]))]).unwrap();
    let error = safetensors::decode(&bytes, "y").unwrap_err().to_string();
    assert_eq!(error, "no tensor `y` in the file; it has `x`");
    assert!(matches!(safetensors::decode(&bytes[..bytes.len() - 1], "x"), Err(FormatError::Header(_))));
}

#[test]
fn a_missing_file_is_named() {
    let error = npy::read("no/such/file.npy").unwrap_err().to_string();
    assert!(error.starts_with("`no/such/file.npy`: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_give_errors_or_tensors(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
        kind in 0..3_usize,
    ) {
        let x = sample([DType::F32, DType::F4E2M1, DType::BF16][kind], &[3, 4]);
        for (mut bytes, reads) in [
            (npy::encode(&x).unwrap(), (|bytes| npy::decode(bytes).map(drop)) as fn(&[u8]) -> Result<(), FormatError>),
            (safetensors::encode(&[("x", &x)]).unwrap(), |bytes| safetensors::decode(bytes, "x").map(drop)),
        ] {
            for (place, value) in &edits {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            let end = if truncate { cut.index(bytes.len()) } else { bytes.len() };
            let _ = reads(&bytes[..end]);
        }
    }

    #[test]
    fn mutated_headers_of_npy_give_errors_or_tensors(header in "[{}()\\[\\]':,<>|=a-fiuV0-9 ]{0,80}") {
        let _ = npy::decode(&file(&header, &[0; 16]));
        let _ = npy::decode(&file(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({header}"), &[0; 16]));
    }
}

/// Runs a Python script with the path of a folder, where there is an interpreter with NumPy.
fn python(script: &str, folder: &Path) -> bool {
    let Ok(interpreter) = std::env::var("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no Python with NumPy and ml_dtypes");
        return false;
    };
    let output = Command::new(interpreter).arg("-c").arg(script).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn numpy_reads_what_we_write() {
    let folder = tempfile::tempdir().unwrap();
    for &dtype in DType::ALL.iter().filter(|&&dtype| dtype != DType::TF32) {
        let x = sample(dtype, &[3, 5]);
        npy::write(folder.path().join(format!("{dtype}.npy")), &x).unwrap();
        npy::write(folder.path().join(format!("{dtype}-f64.npy")), &x.to_dtype(DType::F64).unwrap()).unwrap();
    }
    let script = "
import sys, pathlib, numpy as np, ml_dtypes as ml
views = dict(bf16=ml.bfloat16, f8e4m3=ml.float8_e4m3fn, f8e5m2=ml.float8_e5m2, e8m0=ml.float8_e8m0fnu,
             f6e2m3=ml.float6_e2m3fn, f6e3m2=ml.float6_e3m2fn, f4e2m1=ml.float4_e2m1fn, i4=ml.int4)
for path in pathlib.Path(sys.argv[1]).glob('*-f64.npy'):
    name = path.name.removesuffix('-f64.npy')
    x = np.load(path.with_name(name + '.npy'))
    if name in views:
        x = x.view(views[name])
    assert x.shape == (3, 5), (name, x.shape)
    assert (x.astype(np.float64) == np.load(path)).all(), name
";
    python(script, folder.path());
}

#[test]
fn we_read_what_numpy_writes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import sys, pathlib, numpy as np, ml_dtypes as ml
out = pathlib.Path(sys.argv[1])
x = (np.arange(24).reshape(2, 3, 4) - 5)
for name, dtype in dict(b1='?', i8='i1', i16='i2', i32='i4', i64='i8', u8='u1', u16='u2', u32='u4', u64='u8',
                        f16='f2', f32='f4', f64='f8', bf16=ml.bfloat16, f8e4m3=ml.float8_e4m3fn, f8e5m2=ml.float8_e5m2).items():
    y = x.astype(dtype)
    np.save(out / f'{name}.npy', y)
    np.save(out / f'{name}-F.npy', np.asfortranarray(y))
    if name in 'i16 i32 i64 u16 u32 u64 f16 f32 f64'.split():
        np.save(out / f'{name}-B.npy', y.astype(np.dtype(dtype).newbyteorder('>')))
    with open(out / f'{name}-3.npy', 'wb') as f:
        np.lib.format.write_array(f, y, version=(3, 0))
    with np.errstate(all='ignore'):
        np.save(out / f'{name}.want', y.astype(np.float64))
";
    if !python(script, folder.path()) {
        return;
    }
    let mut read = 0;
    for &dtype in DType::ALL {
        for suffix in ["", "-F", "-B", "-3"] {
            let path = folder.path().join(format!("{dtype}{suffix}.npy"));
            if !path.exists() {
                continue;
            }
            let x = npy::read_as(&path, dtype).unwrap();
            let want = npy::read(folder.path().join(format!("{dtype}.want.npy"))).unwrap();
            assert_eq!((x.shape(), x.to_f64().unwrap()), (&[2, 3, 4][..], want.to_f64().unwrap()), "{}", path.display());
            read += 1;
        }
    }
    assert_eq!(read, 15 * 3 + 9);
}
