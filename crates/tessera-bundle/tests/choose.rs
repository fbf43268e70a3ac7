//! Which variant a launch gets, and what is said where there is none.

use tessera_bundle::{Bundle, BundleError, Variant};
use tessera_launch::{Argument, Array, Constant, Flat, LaunchGrid};
use tessera_types::DType;

use crate::samples::{all, device, scale};

type Args = Vec<(&'static str, Argument<Array>)>;

fn matrix(dtype: DType, address: u64, shape: &[usize]) -> Argument<Array> {
    Argument::Array(Array::new(dtype, address, shape, None).expect("an array"))
}

/// Arguments of `scale` on arrays of `columns` columns.
fn args(dtype: DType, columns: usize) -> Args {
    let number = Argument::Constant(Constant::Float(0.5));
    vec![("x", matrix(dtype, 256, &[100, columns])), ("y", matrix(dtype, 1 << 20, &[100, columns])), ("a", number)]
}

fn bundle(variants: Vec<Variant>) -> Bundle {
    Bundle::new(variants).expect("whole variants")
}

/// The position and the grid of what is chosen on a device.
fn choose(bundle: &Bundle, capability: (i32, i32), args: &Args) -> Result<(usize, [u32; 3]), BundleError> {
    bundle.choose(&device(capability), "scale", args, LaunchGrid::Auto).map(|chosen| (chosen.position, chosen.grid))
}

fn refused(bundle: &Bundle, args: &Args) -> String {
    choose(bundle, (8, 0), args).expect_err("refused").to_string()
}

#[test]
fn the_first_that_takes_the_arguments_is_launched() {
    let bundle = bundle(all());
    // 16 columns of f32 are whole vectors, 15 are not.
    assert_eq!(choose(&bundle, (8, 0), &args(DType::F32, 16)).expect("chosen"), (0, [4, 1, 1]));
    assert_eq!(choose(&bundle, (8, 6), &args(DType::F32, 15)).expect("chosen"), (1, [4, 1, 1]));
    assert_eq!(choose(&bundle, (9, 0), &args(DType::BF16, 16)).expect("chosen"), (2, [2, 1, 1]));
    // Text of an earlier target runs on later devices.
    assert_eq!(choose(&bundle, (10, 0), &args(DType::F32, 16)).expect("chosen"), (0, [4, 1, 1]));
}

#[test]
fn later_targets_come_first_and_machine_code_where_it_runs() {
    let mut variants = vec![scale("sm_80", DType::F32, 16, 32), scale("sm_90a", DType::F32, 16, 32)];
    for variant in &mut variants {
        variant.code.cubin = Some(b"machine code"[..].into());
    }
    let bundle = bundle(variants);
    for (capability, position, is_code) in [((8, 6), 0, true), ((9, 0), 1, true), ((10, 0), 0, false)] {
        let device = device(capability);
        let arguments = args(DType::F32, 16);
        let chosen = bundle.choose(&device, "scale", &arguments, LaunchGrid::Auto).expect("chosen");
        assert_eq!(chosen.position, position);
        let is_machine_code = matches!(chosen.image(&device).code, tessera_ir::ImageCode::Cubin(_));
        assert_eq!(is_machine_code, is_code, "{capability:?}");
    }
}

#[test]
fn a_name_or_a_device_that_is_not_there_says_what_is() {
    let bundle = bundle(all());
    let device = device((7, 5));
    let ask = |kernel: &str| bundle.choose(&device, kernel, &args(DType::F32, 16), LaunchGrid::Auto).expect_err("refused");
    assert_eq!(ask("scael").to_string(), "the bundle has no kernel `scael`; it has scale, scale.fixed");
    assert_eq!(ask("scale").to_string(), "no variant of `scale` runs on Pretended (sm_75); there are variants for sm_80, sm_90a");
}

#[test]
fn a_missing_variant_names_itself_and_those_that_are_there() {
    let text = refused(&bundle(all()), &args(DType::F16, 16));
    let wanted = "no variant of `scale` takes x=f16[100,16], y=f16[100,16], a=0.5; there are
  scale for sm_80: x=f32[?,?];align=16, y=f32[?,?];align=16, a=f32, TILE=32
    `x` holds `f16`, the kernel was compiled for `f32` [argument-type]; convert the array to `f32`, or compile for `f16`
  scale for sm_80: x=f32[?,?];align=4, y=f32[?,?];align=4, a=f32, TILE=32
    `x` holds `f16`, the kernel was compiled for `f32` [argument-type]; convert the array to `f32`, or compile for `f16`";
    assert_eq!(text, wanted);
}

#[test]
fn the_only_variant_says_everything_that_is_wrong() {
    let one = bundle(vec![scale("sm_80", DType::F32, 16, 32)]);
    let says = |args: &Args, wanted: &str| {
        let text = refused(&one, args);
        assert!(text.starts_with("`scale` does not take these arguments: ") && text.contains(wanted), "{text}");
    };
    says(&Vec::new(), "the argument `x` is missing [missing-argument]\nthe argument `y` is missing [missing-argument]");
    let with = |change: fn(&mut Args)| {
        let mut args = args(DType::F32, 16);
        change(&mut args);
        args
    };
    says(
        &with(|args| args.push(("z", matrix(DType::F32, 64, &[1, 4])))),
        "`scale` has no parameter `z` [unknown-argument]; its parameters are",
    );
    says(&with(|args| args.push(args[0].clone())), "the argument `x` is given twice [argument-twice]");
    says(&with(|args| args[0].1 = matrix(DType::F32, 64, &[4])), "`x` has 1 axes, the kernel was compiled for 2 [argument-rank]");
    says(&with(|args| args[0].1 = matrix(DType::F32, 264, &[100, 16])), "`x` does not start at a multiple of 16 bytes");
    says(
        &args(DType::F32, 15),
        "axis 0 of `x` has stride 15, no multiple of 16 bytes, as the kernel was compiled for [argument-alignment]",
    );
    says(
        &with(|args| args[1].1 = matrix(DType::F32, 1 << 20, &[99, 16])),
        "`M` is 100 in `x` (axis 0) but 99 in `y` (axis 0) [symbol-mismatch]",
    );
    says(&with(|args| args[1].1 = args[0].1.clone()), "overlap in memory, and the kernel writes `y` [argument-overlap]");
    says(
        &with(|args| args[2].1 = matrix(DType::F32, 64, &[4])),
        "`a` takes a number of type `f32`, not an array `f32[4]` [argument-scalar]",
    );
    says(
        &with(|args| args.push(("TILE", Argument::Constant(Constant::Int(64))))),
        "`TILE` is the integer 64, the kernel was compiled for 32",
    );
    let error =
        one.choose(&device((8, 0)), "scale", &args(DType::F32, 16), LaunchGrid::Blocks([5, 1, 1])).expect_err("a wrong grid");
    assert!(error.to_string().contains("`scale` needs a grid of 4, [5, 1, 1] is given [grid]"), "{error}");
}

#[test]
fn a_constant_that_decides_must_be_given() {
    let both = bundle(vec![scale("sm_80", DType::F32, 16, 32), scale("sm_80", DType::F32, 16, 64)]);
    let text = refused(&both, &args(DType::F32, 16));
    assert_eq!(text, "`scale` was compiled for several values of `TILE` (32, 64); give the one that is wanted");
    for (tile, wanted) in [(32, (0, [4, 1, 1])), (64, (1, [2, 1, 1]))] {
        let mut args = args(DType::F32, 16);
        args.push(("TILE", Argument::Constant(Constant::Int(tile))));
        assert_eq!(choose(&both, (8, 0), &args).expect("chosen"), wanted);
    }
}

#[test]
fn constants_of_another_target_decide_nothing() {
    let both = bundle(vec![scale("sm_80", DType::F32, 16, 32), scale("sm_90a", DType::F32, 16, 64)]);
    assert_eq!(choose(&both, (9, 0), &args(DType::F32, 16)).expect("chosen"), (1, [2, 1, 1]));
    assert_eq!(choose(&both, (8, 0), &args(DType::F32, 16)).expect("chosen"), (0, [4, 1, 1]));
}

#[test]
fn blocks_for_certain_shapes_are_launched_for_no_others() {
    let bundle = bundle(all());
    let device = device((8, 0));
    let arrays = |rows| {
        let number = Argument::Constant(Constant::Float(0.5));
        vec![("x", matrix(DType::F32, 256, &[rows, 64])), ("y", matrix(DType::F32, 1 << 20, &[rows, 64])), ("a", number)]
    };
    let constants = [("causal", Constant::Int(1)), ("acc", Constant::Text("f8e4m3".into())), ("eps", Constant::Float(0.1))];
    let mut args: Args = arrays(8);
    args.extend(constants.map(|(name, value)| (name, Argument::Constant(value))));
    for grid in [LaunchGrid::Auto, LaunchGrid::Blocks([3, 1, 1])] {
        assert_eq!(bundle.choose(&device, "scale.fixed", &args, grid).expect("chosen").grid, [3, 1, 1]);
    }
    // Its number is 1 where none is given.
    let number = |args: &Args| match bundle.choose(&device, "scale.fixed", args, LaunchGrid::Auto).expect("chosen").flat.last() {
        Some(Flat::Word(bits)) => f32::from_bits(*bits as u32),
        other => panic!("{other:?}"),
    };
    let without: Args = args.iter().filter(|(name, _)| *name != "a").cloned().collect();
    assert_eq!((number(&args), number(&without)), (0.5, 1.0));
    let refuse = |args: &Args, grid| bundle.choose(&device, "scale.fixed", args, grid).expect_err("refused").to_string();
    assert!(refuse(&args, LaunchGrid::Blocks([4, 1, 1])).contains("needs a grid of [3, 1, 1], [4, 1, 1] is given [grid]"));
    let text = refuse(&arrays(9), LaunchGrid::Auto);
    assert!(text.contains("`x` has shape [9, 64], the kernel was packed for [8, 64] [argument-shape]"), "{text}");
}
