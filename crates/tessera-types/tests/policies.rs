//! The grammar of precision policies.

use tessera_types::{BlockScaled, DType, Policy, PolicyError, Storage, policy_name};

fn parse(text: &str) -> Result<Policy, PolicyError> {
    text.parse()
}

#[test]
fn the_usual_policies_mean_what_their_names_say() {
    let cases = [
        ("fp64", DType::F64, DType::F64),
        ("fp32", DType::F32, DType::F32),
        ("tf32", DType::TF32, DType::F32),
        ("fp16", DType::F16, DType::F32),
        ("fp16@accum(fp16)", DType::F16, DType::F16),
        ("bf16", DType::BF16, DType::F32),
        ("fp8_e4m3", DType::F8E4M3, DType::F32),
        ("fp8_e4m3@accum(fp32)", DType::F8E4M3, DType::F32),
        ("fp8_e5m2@accum(fp16)", DType::F8E5M2, DType::F16),
        ("fp6@accum(fp32)", DType::F6E2M3, DType::F32),
        ("fp6_e3m2", DType::F6E3M2, DType::F32),
        ("fp4@accum(fp32)", DType::F4E2M1, DType::F32),
        ("int8", DType::I8, DType::I32),
        ("int8@accum(int64)", DType::I8, DType::I64),
        ("int4", DType::I4, DType::I32),
        ("int32", DType::I32, DType::I32),
        ("uint8", DType::U8, DType::I32),
        ("mxfp8_e4m3", DType::F8E4M3, DType::F32),
        ("mxfp8_e5m2", DType::F8E5M2, DType::F32),
        ("mxfp6_e2m3", DType::F6E2M3, DType::F32),
        ("mxfp6_e3m2", DType::F6E3M2, DType::F32),
        ("mxfp4", DType::F4E2M1, DType::F32),
        ("nvfp4", DType::F4E2M1, DType::F32),
    ];
    for (text, element, accumulator) in cases {
        let policy = parse(text).unwrap();
        assert_eq!((policy.element(), policy.accumulator()), (element, accumulator), "{text}");
        assert_eq!(policy.to_string(), text);
        assert_eq!(parse(&policy.canonical().to_string()), Ok(policy.canonical()));
    }
}

#[test]
fn every_storage_and_accumulator_round_trips_or_is_refused() {
    let plain = DType::ALL.iter().filter(|&&t| t != DType::E8M0).map(|&t| Storage::Plain(t));
    let scaled = BlockScaled::ALL.iter().map(Storage::Scaled);
    let mut accepted = 0;
    for storage in plain.chain(scaled) {
        let own = parse(storage.name()).unwrap();
        assert_eq!(own.storage(), storage);
        assert!(Policy::with_accumulator(storage, own.accumulator()).is_ok(), "{}", storage.name());
        for &accumulator in DType::ALL {
            let text = format!("{}@accum({})", storage.name(), policy_name(accumulator));
            match Policy::with_accumulator(storage, accumulator) {
                Ok(policy) => {
                    accepted += 1;
                    assert_eq!(policy.to_string(), text);
                    assert_eq!(parse(&text), Ok(policy));
                    assert!(accumulator.bits() >= storage.element().bits());
                    assert_eq!(accumulator.is_float(), storage.element().is_float());
                }
                Err(error) => assert_eq!(parse(&text), Err(error)),
            }
        }
    }
    assert!(accepted > 40);
}

#[test]
fn results_have_a_type_of_their_own() {
    for text in ["bf16->bf16", "fp16@accum(fp16)->fp32", "fp8_e4m3@accum(fp32)->bf16", "nvfp4->fp16", "int8->int8"] {
        let policy = parse(text).unwrap();
        assert_eq!(policy.to_string(), text);
        assert_eq!(parse(&format!(" {} ", text.replace("->", " -> "))), Ok(policy));
        assert_eq!(Some(policy_name(policy.result().unwrap())), text.split("->").nth(1));
        let plain = parse(text.split("->").next().unwrap()).unwrap();
        assert_eq!((plain.result(), plain.with_result(policy.result().unwrap())), (None, policy));
    }
    for (text, result) in [("bf16->", ""), ("bf16->e8m0", "e8m0"), ("bf16->nvfp4", "nvfp4"), ("bf16->bf16->bf16", "bf16->bf16")] {
        assert_eq!(parse(text), Err(PolicyError::UnknownResult(result.into())), "{text}");
    }
    assert_eq!(parse("->bf16"), Err(PolicyError::UnknownStorage(String::new())));
}

#[test]
fn factors_of_32_bits_are_taken_apart() {
    for (text, parts) in
        [("fp32@3xtf32", DType::TF32), ("fp32@3xbf16->bf16", DType::BF16), ("fp32@3xbf16@accum(fp32)", DType::BF16)]
    {
        let policy = parse(text).unwrap();
        assert_eq!((policy.to_string(), policy.parts(), policy.element()), (text.to_string(), Some(parts), DType::F32));
        assert_eq!(parse(&text.replace('@', " @ ").replace("accum", " accum")), Ok(policy));
        assert_eq!(policy.canonical().parts(), Some(parts));
    }
    assert_eq!((parse("fp32").unwrap().parts(), parse("tf32").unwrap().parts()), (None, None));
    let whole = |text: &str| PolicyError::Whole(text.into());
    assert_eq!(parse("bf16@3xbf16"), Err(whole("bf16")));
    assert_eq!(parse("fp32@3xtf32@accum(fp64)"), Err(whole("fp32@accum(fp64)")));
    assert_eq!(Policy::of(DType::F32).in_parts(DType::F16), Err(whole("fp32")));
    assert_eq!(parse("fp32@3xfp16"), Err(PolicyError::Suffix("3xfp16".into())));
    assert_eq!(parse("fp32@accum(fp32)@3xtf32"), Err(PolicyError::Suffix("accum(fp32)@3xtf32".into())));
}

#[test]
fn a_named_default_means_the_same_as_none() {
    let (named, plain) = (parse("bf16@accum(fp32)").unwrap(), parse("bf16").unwrap());
    assert_ne!(named, plain);
    assert_eq!(named.canonical(), plain.canonical());
    assert_ne!(parse("fp16@accum(fp16)").unwrap().canonical(), parse("fp16").unwrap());
}

#[test]
fn other_grammars_names_are_read_and_printed_in_this_one() {
    assert_eq!(parse("f8e4m3@accum(f32)").unwrap().to_string(), "fp8_e4m3@accum(fp32)");
    assert_eq!(parse(" float16 @accum( float32 ) ").unwrap().to_string(), "fp16@accum(fp32)");
}

#[test]
fn wrong_policies_say_what_is_wrong() {
    let message = |text| parse(text).unwrap_err().to_string();
    assert!(message("fp9").starts_with("`fp9` is not a precision"));
    assert!(message("").starts_with("`` is not a precision"));
    assert!(message("e8m0").starts_with("`e8m0` is not a precision"));
    assert!(message("bf16@accum(fp99)").starts_with("`fp99` is not an accumulator type"));
    assert_eq!(message("bf16@accum(int32)"), "`int32` cannot accumulate `bf16`");
    assert_eq!(message("fp64@accum(fp32)"), "`fp32` cannot accumulate `fp64`");
    assert_eq!(message("bf16@accum(fp16)"), "`fp16` cannot accumulate `bf16`");
    for text in ["bf16@", "bf16@fp32", "bf16@accum", "bf16@accum(fp32", "bf16@accum(fp32)x", "bf16@accum(fp32)@accum(fp32)"] {
        assert!(matches!(parse(text), Err(PolicyError::Suffix(_) | PolicyError::UnknownAccumulator(_))), "{text}");
    }
}

#[test]
fn storage_counts_bits_and_scales() {
    let bytes = |text, rows, columns| parse(text).unwrap().storage().bytes(rows, columns);
    assert_eq!(bytes("fp32", 3, 5), 60);
    assert_eq!(bytes("fp6", 2, 5), 8);
    assert_eq!(bytes("fp4", 2, 5), 6);
    assert_eq!(bytes("bool", 2, 5), 10);
    assert_eq!(bytes("mxfp8_e4m3", 2, 64), 2 * (64 + 2));
    assert_eq!(bytes("mxfp4", 1, 33), 17 + 2);
    assert_eq!(bytes("nvfp4", 4, 32), 4 * (16 + 2) + 4);
}
