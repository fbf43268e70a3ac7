//! Files that are whole, cut off, damaged, of other versions, and made to deceive.

use proptest::prelude::*;
use tessera_bundle::{Bundle, BundleError, VERSION, Variant};
use tessera_ir::{HiddenParam, LaunchFacts};
use tessera_launch::{Argument, Array, Constant, LaunchGrid};
use tessera_types::DType;

use crate::samples::{all, device, scale};

const HEADER: usize = 96;

fn bytes() -> Vec<u8> {
    Bundle::new(all()).expect("whole variants").to_bytes()
}

/// A file of these parts with a right header: what somebody could write who knows the format.
fn sealed(index: &[u8], code: &[u8]) -> Vec<u8> {
    let mut bytes = b"tessera bundle\r\n".to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((index.len() as u64).to_le_bytes());
    bytes.extend((code.len() as u64).to_le_bytes());
    bytes.resize(64, 0);
    let sum = blake3::hash(&[&bytes, index, code].concat());
    [&bytes[..], sum.as_bytes(), index, code].concat()
}

fn parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    let index = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")) as usize;
    bytes[HEADER..].split_at(index)
}

#[test]
fn what_is_written_is_read() {
    let bytes = bytes();
    let read = Bundle::read(&bytes).expect("whole");
    assert_eq!(read.variants(), all());
    assert_eq!(read.to_bytes(), bytes);
    let (index, code) = parts(&bytes);
    assert_eq!(sealed(index, code), bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kernels.tbundle");
    std::fs::write(&path, &bytes).expect("written");
    assert_eq!(Bundle::open(&path).expect("whole").variants(), all());
    let error = Bundle::open(folder.path().join("missing")).expect_err("no file").to_string();
    assert!(error.starts_with("can't read `") && error.contains("missing`: "), "{error}");
}

#[test]
fn every_beginning_says_that_it_is_cut_off() {
    let bytes = bytes();
    for length in 0..bytes.len() {
        let error = Bundle::read(&bytes[..length]).expect_err("cut off");
        match (&error, length) {
            (BundleError::NotABundle { bytes: 0 }, 0) => {
                assert_eq!(error.to_string(), "the file is empty; `tessera bundle` makes bundles")
            }
            (BundleError::Truncated { expected, found }, 1..) => {
                assert_eq!(*found, length as u64);
                assert_eq!(*expected, if length < HEADER { HEADER } else { bytes.len() } as u64);
            }
            _ => panic!("{length} bytes: {error}"),
        }
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(Bundle::read(&longer), Err(BundleError::Truncated { .. })));
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = bytes();
    let code = HEADER + parts(&bytes).0.len();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let error = Bundle::read(&flipped).expect_err("damaged");
            let is_right = match at {
                0..16 => matches!(error, BundleError::NotABundle { .. }),
                16..20 => matches!(error, BundleError::Version { .. }),
                24..40 => matches!(error, BundleError::Truncated { .. }),
                _ => matches!(error, BundleError::Damaged { .. }),
            };
            assert!(is_right, "bit {bit} of byte {at}: {error}");
            if at >= code {
                let text = error.to_string();
                assert!(text.contains("the checksum of variant ") && text.contains("(`scale"), "byte {at}: {text}");
            }
        }
    }
}

#[test]
fn other_versions_and_other_files_are_told() {
    let mut later = bytes();
    later[16] = 4;
    let text = Bundle::read(&later).expect_err("later").to_string();
    assert_eq!(text, "the bundle has version 4, this program reads version 3; use a newer one, or pack the kernels again");
    // A later version may be shorter than a header of ours.
    assert!(matches!(Bundle::read(&later[..24]), Err(BundleError::Version { found: 4, known: 3 })));
    for other in [&b"\x7fELF"[..], b"tessera bundle\n\n and more of it", b"PK"] {
        assert_eq!(
            Bundle::read(other).expect_err("another file").to_string(),
            "the file is no bundle; `tessera bundle` makes bundles"
        );
    }
}

#[test]
fn what_no_launch_could_work_with_is_refused() {
    type Breakage = fn(&mut Variant);
    let broken: [(Breakage, &str); 12] = [
        (|v| v.kernel.clear(), "it has no name"),
        (|v| v.code.ptx = "".into(), "it has no PTX"),
        (|v| v.target = "sm_ninety".into(), "its target is none"),
        (|v| _ = v.interface.written.pop(), "it does not say of each parameter whether it is written"),
        (|v| v.launch = LaunchFacts { threads: [0, 1, 1], ..LaunchFacts::default() }, "its blocks have no or too many threads"),
        (|v| v.launch.grid.programs = 0, "its blocks have no or too many programs"),
        (|v| v.launch.grid.programs = 64, "its blocks have no or too many programs"),
        (|v| v.launch.threads = [1024, 1025, 1], "its blocks have no or too many threads"),
        (|v| v.launch.cluster = Some([0, 1, 1]), "its clusters have no or too many blocks"),
        (|v| v.launch.grid.blocks = [1, 0, 1], "its grid has no or too many blocks"),
        (
            |v| {
                if let HiddenParam::TensorMap(plan) = &mut v.hidden[0] {
                    plan.param = 7;
                }
            },
            "a tensor map is over axes that no array has",
        ),
        (
            |v| v.interface.tiles.iter_mut().flatten().for_each(|tile| tile.tile = 0),
            "blocks are counted by axes that no array has",
        ),
    ];
    for (breakage, why) in broken {
        let mut variant = scale("sm_80", DType::F32, 16, 32);
        breakage(&mut variant);
        let error = Bundle::new(vec![variant]).expect_err(why).to_string();
        assert!(error.starts_with("the bundle is not usable: variant 0 (") && error.ends_with(why), "{error}");
    }
}

#[test]
fn an_index_with_a_right_checksum_is_not_trusted() {
    let bytes = bytes();
    let (index, code) = parts(&bytes);
    let text = std::str::from_utf8(index).expect("JSON");
    let deceived = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Bundle::read(&sealed(text.replacen(from, to, 1).as_bytes(), code)).expect_err(to).to_string()
    };
    assert!(deceived("\"ptx\":{\"start\":0", "\"ptx\":{\"start\":99999").contains("lies outside of the file"));
    assert!(deceived("\"ptx\":{\"start\":0", "\"ptx\":{\"start\":18446744073709551615").contains("lies outside of the file"));
    assert!(deceived("\"kernel\":\"scale\"", "\"kernel\":7").contains("its index: "));
    assert!(deceived("\"dtype\":\"f32\"", "\"dtype\":\"f33\"").contains("its index: "));
    assert!(deceived("{", "").contains("its index: "));
    let letter = code.iter().position(|&byte| byte == b'/').expect("PTX");
    let mut no_text = code.to_vec();
    no_text[letter] = 0xff;
    assert!(Bundle::read(&sealed(index, &no_text)).expect_err("no text").to_string().contains("is no text"));
}

/// What a launch does with a bundle up to the driver: nothing of it may panic.
fn use_all(bundle: &Bundle) {
    let again = Bundle::read(&bundle.to_bytes()).expect("what was read can be written and read");
    assert_eq!(format!("{again:?}"), format!("{bundle:?}"));
    let device = device((9, 0));
    let array = |shape: &[usize]| Argument::Array(Array::new(DType::F32, 256, shape, None).expect("an array"));
    let args = [("x", array(&[8, 64])), ("y", array(&[8, 64])), ("a", Argument::Constant(Constant::Int(2)))];
    for variant in bundle.variants() {
        variant.describe();
        let chosen = bundle.choose(&device, &variant.kernel, &args, LaunchGrid::Auto);
        let Ok(chosen) = chosen else { continue };
        let image = chosen.image(&device);
        image.launch.grid.physical(chosen.grid, 132, image.launch.cluster);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_change_of_an_index_is_an_error_or_a_bundle(
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-z\\[\\]{}\",:]{0,3}", 0_usize..4), 1..4)
    ) {
        let bytes = bytes();
        let (index, code) = parts(&bytes);
        let mut changed = index.to_vec();
        for (at, text, cut) in changes {
            let at = at.index(changed.len());
            let end = (at + cut).min(changed.len());
            changed.splice(at..end, text.bytes());
        }
        if let Ok(bundle) = Bundle::read(&sealed(&changed, code)) {
            use_all(&bundle);
        }
    }

    #[test]
    fn any_number_of_an_index_may_be_another(which in any::<prop::sample::Index>(), number in prop_oneof![
        Just(0_u64), Just(1), Just(3), Just(1 << 31), Just(1 << 32), Just(u64::MAX), any::<u64>()
    ]) {
        let bytes = bytes();
        let (index, code) = parts(&bytes);
        let text = std::str::from_utf8(index).expect("JSON");
        let digits = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let starts: Vec<usize> = (1..text.len()).filter(|&at| digits(at) && !digits(at - 1)).collect();
        let start = *which.get(&starts);
        let end = (start..text.len()).find(|&at| !digits(at)).unwrap_or(text.len());
        let changed = format!("{}{number}{}", &text[..start], &text[end..]);
        if let Ok(bundle) = Bundle::read(&sealed(changed.as_bytes(), code)) {
            use_all(&bundle);
        }
    }

    #[test]
    fn any_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), is_ours in any::<bool>()) {
        let bytes = if is_ours { [&b"tessera bundle\r\n\x01\0\0\0"[..], &bytes].concat() } else { bytes };
        prop_assert!(Bundle::read(&bytes).is_err());
    }
}
