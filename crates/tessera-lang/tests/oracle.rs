//! Every language test is shown to NVIDIA's front end (`cuda-tile` 1.7.0, which needs no GPU): what we accept, it accepts, and
//! what we refuse, it refuses. Blocks marked `ours` are about what only this toolkit has or forbids.

use std::fmt::Write;
use std::process::Command;

use tessera_lang::{ArgType, ConstValue};
use tessera_types::DType;

use crate::support;

const DRIVER: &str = r#"
import importlib.util, io, sys, traceback
import cuda.tile as ct
from cuda.tile.compilation import export_kernel, KernelSignature, ArrayConstraint, ScalarConstraint, ListConstraint, ConstantConstraint, CallingConvention

def array(dtype, shape):
    n = len(shape)
    return ArrayConstraint(dtype, n, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False,
                           stride_constant=(None,) * (n - 1) + (1,) if n else None, shape_constant=shape, base_addr_divisible_by=16)

def lists(dtype, rank):
    item = ArrayConstraint(dtype, rank, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False)
    return ListConstraint(item, alias_groups=(), elements_may_alias=False)

def show(path, name, args):
    spec = importlib.util.spec_from_file_location("block", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = KernelSignature(args, CallingConvention.cutile_python_v2())
    export_kernel(getattr(module, name), [signature], io.BytesIO(), gpu_code="sm_100", output_format="tileir_bytecode", bytecode_version="13.4")

surprises = 0
for label, path, name, wrong, args in BLOCKS:
    try:
        show(path, name, args())
        if wrong:
            surprises += 1
            print(f"{label} {name}: accepted")
    except (Exception, RecursionError) as error:
        if not wrong:
            surprises += 1
            print(f"{label} {name}: {type(error).__name__}: {error}")
print(f"{len(BLOCKS)} kernels shown, {surprises} surprises")
sys.exit(1 if surprises else 0)
"#;

#[test]
fn nvidia_judges_as_we_do() {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no interpreter with cuda-tile");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut blocks = String::from("BLOCKS = [\n");
    for (i, block) in support::blocks("language").iter().enumerate() {
        if block.is_ours {
            continue;
        }
        let path = folder.path().join(format!("block{i}.py"));
        let text = format!("{}\n\ndef reveal_type(value):\n    return value\n", block.source());
        std::fs::write(&path, text).expect("a temporary file can be written");
        let args = support::arguments(&block.args_text());
        let file = block.parsed();
        assert!(block.expects_error() || !file.kernels.is_empty());
        for (name, kernel) in &file.kernels {
            let list: Vec<String> = kernel
                .params
                .iter()
                .map(|param| {
                    args.iter().find(|(name, _)| *name == param.name).map_or("None".to_string(), |(_, arg)| constraint(arg))
                })
                .collect();
            writeln!(
                blocks,
                "    ({:?}, {:?}, {name:?}, {}, lambda: [{}]),",
                format!("{}:{}", block.file, block.line),
                path,
                if block.expects_error() { "True" } else { "False" },
                list.join(", ")
            )
            .unwrap();
        }
    }
    let (prologue, work) = DRIVER.split_once("surprises = 0").expect("the driver has two parts");
    let script = folder.path().join("driver.py");
    std::fs::write(&script, format!("{prologue}{blocks}]\nsurprises = 0{work}")).expect("a temporary file can be written");
    let output = Command::new(python).arg(&script).output().expect("the interpreter runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success(), "{text}");
}

fn dtype(dtype: DType) -> String {
    let name = dtype.aliases().iter().find(|name| name.contains("int") || name.contains("float") || name.ends_with('_'));
    format!("ct.{}", name.unwrap_or(&dtype.name()))
}

fn constraint(arg: &ArgType) -> String {
    match arg {
        ArgType::Array { dtype: elem, shape, .. } => {
            let dims: String = shape
                .iter()
                .map(|extent| match extent {
                    tessera_ir::Extent::Static(value) => format!("{value}, "),
                    tessera_ir::Extent::Dynamic => "None, ".to_string(),
                })
                .collect();
            format!("array({}, ({dims}))", dtype(*elem))
        }
        ArgType::List { dtype: elem, rank, .. } => format!("lists({}, {rank})", dtype(*elem)),
        ArgType::Tuple(_) => panic!("the argument notation of these tests has no tuples"),
        ArgType::Scalar(elem) => format!("ScalarConstraint({})", dtype(*elem)),
        ArgType::Const(value) => format!("ConstantConstraint({})", constant(value)),
        ArgType::Stated { .. } => panic!("nothing is stated of the arguments of these tests"),
    }
}

fn constant(value: &ConstValue) -> String {
    match value {
        ConstValue::None => "None".to_string(),
        ConstValue::Bool(true) => "True".to_string(),
        ConstValue::Bool(false) => "False".to_string(),
        ConstValue::Int(value) => value.to_string(),
        ConstValue::Float(value) => format!("{value:?}"),
        ConstValue::Str(text) => format!("{text:?}"),
        ConstValue::DType(elem) => dtype(*elem),
        ConstValue::Tuple(items) => format!("({})", items.iter().map(|item| constant(item) + ", ").collect::<String>()),
    }
}
