//! Kernels of projects: helpers, constants and kernels that other files of a package define, and imports that lead nowhere.

use std::path::Path;

use tessera_runtime::{Kernel, KernelError, Tensor, Value};
use tessera_types::DType;

/// A package of a kernel library: relative and absolute imports, re-exports, modules as values, a star, constants and their arithmetic, a
/// private path of `cuda.tile`, and host code that nobody finds.
const PACKAGE: &[(&str, &str)] = &[
    ("lib/__init__.py", "from .ops.scale import scale\nfrom .util import *\n"),
    ("lib/ops/__init__.py", ""),
    (
        "lib/util/__init__.py",
        "from .consts import SIZE as TILE\nfrom .acts import twice\nfrom . import acts\n__all__ = ['twice', 'acts', 'TILE']\n",
    ),
    ("lib/util/consts.py", "import math\nBASE = 2 ** 3\nSIZE = BASE * 2\nHALF = math.cos(math.pi / 3)\n"),
    (
        "lib/util/acts.py",
        "
try:
    import cuda.tile as ct
except ImportError:
    ct = None
from cuda.tile._numeric_semantics import RoundingMode as RMd
from lib.util.consts import HALF

OFFSET = 1.0

def shifted(x):
    return x + OFFSET

def twice(x):
    return ct.add(shifted(x), shifted(x), rounding_mode=RMd.RN)
",
    ),
    (
        "lib/util/shapes.py",
        "
from dataclasses import dataclass
from enum import Enum
from .consts import BASE

class Mode(Enum):
    PLAIN = 'plain'
    SHIFTED = 'shifted'

@dataclass(frozen=True)
class Tiling:
    size: int
    mode: Mode = Mode.SHIFTED

    def finished(self, x):
        from .acts import shifted, OFFSET
        return shifted(x) * OFFSET if self.mode is Mode.SHIFTED else x + BASE

PLAIN = Tiling(16, Mode.PLAIN)
",
    ),
    (
        "lib/ops/scale.py",
        "
import torch
from torch import nn
import cuda.tile as ct
from ..util import acts as activation
import lib.util.consts as consts

OFFSET = 100.0

@ct.kernel
def scale(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), activation.twice(ct.load(x, (i,), (consts.SIZE,))) * consts.HALF)

@ct.kernel
def nothing_of_torch(x):
    ct.store(x, (0,), nn.relu(ct.load(x, (0,), (16,))))

def launch(x):
    return torch.empty_like(x)
",
    ),
    (
        "main.py",
        "
import lib
import lib.ops.scale as inner
import tessera
from tessera import Tensor, tile
from lib import scale
from lib.util.acts import shifted, twice as doubled
import cuda.tile as ct

@ct.kernel
def through(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), lib.twice(ct.load(x, (i,), (lib.TILE,))) + inner.consts.BASE)

@tessera.kernel
def whole(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    tile.store(y, lib.util.acts.shifted(shifted(tile.load(x))) * inner.consts.BASE)

@ct.kernel
def classes(x, y):
    from lib.util.shapes import Tiling, Mode as M
    import lib.util.shapes as shapes
    tiling = Tiling(8)
    t = ct.load(x, (ct.bid(0),), (tiling.size,))
    ct.static_assert(tiling.mode is shapes.Mode.SHIFTED and tiling.mode == M.SHIFTED and shapes.PLAIN != tiling)
    ct.store(y, (ct.bid(0),), tiling.finished(t) + shapes.PLAIN.finished(t))

@tessera.kernel
def of_tiles(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    tile.store(y, doubled(tile.load(x)))

@tessera.kernel
def threads(x: Tensor[\"N\", dtype], y: Tensor[\"N\", dtype]):
    i = tile.thread_id()
    if i < x.shape[0]:
        y[i] = lib.util.acts.shifted(x[i]) + inner.consts.BASE
",
    ),
    ("lib/cyc_a.py", "from .cyc_b import loop\n"),
    ("lib/cyc_b.py", "from .cyc_a import loop\n"),
    ("lib/broken.py", "def f(x:\n"),
    (
        "wrong.py",
        "
from lib.util.acts import nothing
from lib.cyc_a import loop
from lib.broken import f
from .absent import thing
import lib
import cuda.tile as ct

@ct.kernel
def no_name(x):
    ct.store(x, (0,), nothing(ct.load(x, (0,), (16,))))

@ct.kernel
def round(x):
    ct.store(x, (0,), loop(ct.load(x, (0,), (16,))))

@ct.kernel
def syntax(x):
    ct.store(x, (0,), f(ct.load(x, (0,), (16,))))

@ct.kernel
def no_module(x):
    ct.store(x, (0,), thing(ct.load(x, (0,), (16,))))

@ct.kernel
def no_member(x):
    ct.store(x, (0,), lib.util.acts.twise(ct.load(x, (0,), (16,))))

def plain(x):
    ct.store(x, (0,), 0.0)
",
    ),
];

fn written(folder: &Path) {
    for (name, text) in PACKAGE {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn run(file: &Path, kernel: &str, grid: Option<[u32; 3]>) -> Vec<f64> {
    let kernel = Kernel::from_file(file, kernel).unwrap_or_else(|error| panic!("{error}"));
    let (x, y) = (Tensor::arange(DType::F32, &[16]).unwrap(), Tensor::empty(DType::F32, &[16]).unwrap());
    let grid = grid.map_or(tessera_runtime::LaunchGrid::Auto, Into::into);
    kernel.launch(&[("x", (&x).into()), ("y", (&y).into())], grid).unwrap_or_else(|error| panic!("{error}"));
    y.to_f64().unwrap()
}

fn each(value: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..16).map(|i| value(f64::from(i))).collect()
}

#[test]
fn a_package_is_read_as_python_would() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let at = |name: &str| folder.path().join(name);
    let one = Some([1, 1, 1]);
    let scaled = each(|x| x + 1.0);
    let close = |found: Vec<f64>, wanted: &[f64]| {
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {wanted:?}");
    };
    close(run(&at("lib/ops/scale.py"), "scale", one), &scaled);
    // By a re-export, and by an import of that.
    close(run(&at("lib/__init__.py"), "scale", one), &scaled);
    close(run(&at("main.py"), "scale", one), &scaled);
    close(run(&at("main.py"), "through", one), &each(|x| 2.0 * (x + 1.0) + 8.0));
    close(run(&at("main.py"), "threads", one), &each(|x| x + 9.0));
    close(run(&at("main.py"), "classes", Some([2, 1, 1])), &each(|x| 2.0 * x + 9.0));
}

#[test]
fn whole_operands_use_other_modules() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    assert_eq!(run(&folder.path().join("main.py"), "whole", None), each(|x| (x + 2.0) * 8.0));
    // `ct.add` is a function of tiles, which whole operands do not know: the place is in the module.
    let error = refused(folder.path(), "main.py", "of_tiles");
    assert!(error.contains("`cuda.tile.add` is not available here") && error.contains("acts.py:15"), "{error}");
}

/// Everything that is said of a kernel that is refused.
fn refused(folder: &Path, file: &str, name: &str) -> String {
    let x = Tensor::zeros(DType::F32, &[16]).unwrap();
    let args: Vec<(&str, Value)> = vec![("x", (&x).into()), ("y", (&x).into())];
    let found = Kernel::from_file(folder.join(file), name);
    let args = if found.as_ref().is_ok_and(|kernel| kernel.parameters().len() == 1) { &args[..1] } else { &args[..] };
    let result = found.and_then(|kernel| kernel.launch(args, tessera_runtime::LaunchGrid::Auto));
    match result {
        Err(KernelError::Rejected(report)) => report.render(false),
        other => panic!("{other:?}"),
    }
}

#[test]
fn imports_that_lead_nowhere_are_told_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let told = |name: &str, parts: &[&str]| {
        let x = Tensor::zeros(DType::F32, &[16]).unwrap();
        let error = match Kernel::from_file(folder.path().join("wrong.py"), name)
            .and_then(|kernel| kernel.launch(&[("x", (&x).into())], [1, 1, 1]))
        {
            Err(KernelError::Rejected(report)) => report.render(false),
            other => panic!("{other:?}"),
        };
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
    };
    told("no_name", &["acts.py` has no `nothing`", "wrong.py:11", "imported here"]);
    told("round", &["the imports of `loop` go round", "wrong.py:15", "cyc_"]);
    told("syntax", &["invalid syntax", "broken.py:1", "imported here"]);
    told("no_module", &["there is no module `.absent`", "looked for", "absent.py", "--path"]);
    told("no_member", &["has no `twise`", "did you mean `twice`?"]);
    told("plain", &["`plain` is no kernel", "wrong.py:29", "@ct.kernel"]);
}

#[test]
fn what_nobody_finds_is_host_code_until_a_kernel_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let error = refused(folder.path(), "lib/ops/scale.py", "nothing_of_torch");
    assert!(error.contains("torch.nn"), "{error}");
}
