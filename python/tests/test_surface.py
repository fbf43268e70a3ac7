"""``tessera.tile`` against ``cuda.tile`` 1.7: names, kinds, members, parameters. ``cutile-1.7.json`` is what ``surface.py`` prints of it."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tessera
import tessera.tile as ct
from processes import python
from surface import surface
from tessera import _native

HERE = Path(__file__).parent
WANTED = json.loads((HERE / "cutile-1.7.json").read_text())
OURS = surface("tessera.tile")


def test_the_names_are_those_of_cutile():
    assert sorted(ct.__all__) == sorted(WANTED)
    assert len(WANTED) == 155
    assert all(hasattr(ct, name) for name in WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_a_name_is_what_it_is_in_cutile(name):
    want, ours = WANTED[name], OURS[name]
    assert ours["kind"] == want["kind"]
    if want["kind"] == "function":
        # On the host, `cdiv` takes integers; `host`, `tile` and the like have the same names.
        assert [row[1:] for row in ours["parameters"]] == [row[1:] for row in want["parameters"]] or name == "printf"
        if name not in ("cdiv", "printf"):
            assert ours["parameters"] == want["parameters"]
    elif want["kind"] == "class":
        assert set(want["members"]) <= set(ours["members"]), "members are missing"
        assert ours.get("values") == want.get("values")
        assert ours.get("bases") == want.get("bases")
        for method, parameters in want.get("methods", {}).items():
            if parameters is not None and issubclass(getattr(ct, name), (ct.Array, ct.Tile, ct.TiledView)):
                assert ours["methods"][method] == parameters, method
    elif want["kind"] == "module":
        assert set(want["members"]) <= set(ours["members"])
        for inner, described in want["members"].items():
            assert ours["members"][inner]["kind"] == described["kind"], inner
            if described["kind"] == "class" and inner != "ParameterConstraint":
                assert set(described["members"]) <= set(ours["members"][inner]["members"]), inner


def _python_with_cutile() -> str | None:
    tools = HERE.parent.parent / "target/test-tools/venv/bin/python"
    for own in (sys.executable, str(tools)):
        if Path(own).exists() and subprocess.run([own, "-c", "import cuda.tile"], capture_output=True, check=False).returncode == 0:
            return own
    return None


def test_the_kept_surface_is_that_of_the_installed_cutile():
    found = _python_with_cutile()
    if found is None:
        pytest.skip("cuda-tile is not installed: `cargo xtask test` installs it into target/test-tools")
    ran = subprocess.run([found, str(HERE / "surface.py"), "cuda.tile"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == WANTED


def test_functions_of_kernels_say_that_they_are():
    with pytest.raises(TypeError, match="inside kernels alone"):
        ct.load(None, (0,), (1,))
    with pytest.raises(TypeError, match="inside kernels alone"):
        ct.Array.tiled_view(None, (1,))
    with pytest.raises(TypeError, match="inside kernels alone"):
        ct.Tile().shape  # noqa: B018
    with pytest.raises(TypeError, match="inside kernels alone"):
        ct.Slice(0, 1)


def test_element_types_are_one_object_in_both_modules():
    assert ct.float32 is tessera.float32 is tessera.fp32
    assert (str(ct.float8_e4m3fn), ct.float8_e4m3fn.bitwidth, ct.int64.bitwidth) == ("float8_e4m3fn", 8, 64)
    assert (ct.int32(3.7), ct.float32(2), ct.bool_(0)) == (3, 2.0, False)


def test_what_is_called_on_the_host():
    assert ct.cdiv(7, 2) == 4 and ct.cdiv(8, 2) == 4
    assert ct.ByTarget(sm_90=2, default=1)._value_by_target == {"sm_90": 2}
    with pytest.raises(ValueError, match="no target"):
        ct.ByTarget(h100=2)
    with pytest.raises(tessera.TileError, match="foreign"):
        ct.foreign_pointer_dtype(ct.float32)
    with pytest.raises(ValueError, match="positive"), ct.compiler_timeout(0):
        pass


def test_the_stubs_are_what_the_package_has():
    # Not as a script: the tree's package, which may have no native part, would come before the one that is tested.
    script = str(HERE.parent / "make_stubs.py")
    ran = python("-c", f"import runpy, sys; sys.argv[:] = [{script!r}, '--check']; runpy.run_path({script!r}, run_name='__main__')")
    assert ran.returncode == 0, ran.stderr
    stub = ast.parse((HERE.parent / "tessera/_native.pyi").read_text())
    named = {node.name: node for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    native = {name: value for name, value in vars(_native).items() if not name.startswith("__")}
    assert set(named) == set(native)
    for name, value in native.items():
        if isinstance(value, type):
            members = {node.name for node in named[name].body if isinstance(node, ast.FunctionDef)}
            assert members - {"__new__"} == {member for member in vars(value) if not member.startswith("__")}, name
        else:
            assert [own.arg for own in named[name].args.args] == list(inspect.signature(value).parameters), name


def test_install_puts_it_in_the_place_of_cutile():
    program = (
        "import tessera; tessera.install()\n"
        "import cuda.tile as ct, cuda.tile.tune, cuda.tile.compilation\n"
        "from cuda.tile import kernel, launch\n"
        "import tessera.tile\n"
        "assert ct is tessera.tile and cuda.tile.tune is tessera.tile.tune and launch is tessera.launch\n"
    )
    ran = python("-c", program)
    assert ran.returncode == 0, ran.stderr
