"""Makes PyTorch's wheel for CUDA importable without CUDA's libraries.

The wheel is linked to some 3 GB of them. On a machine without a GPU nothing of them is needed but that their names are found: this makes a library
of each name that PyTorch's libraries want and nobody has, in the folder ``torch/lib``. Its functions have no bodies: each returns 100, which is "no
device" to CUDA, so that ``torch.cuda.is_available()`` is false::

    pip install --no-deps torch
    python stub_cuda.py          # says what it has made

It needs ``readelf``, ``nm``, ``ldconfig`` and a C compiler, and changes nothing where all libraries are found.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

#: Functions of CUDA's libraries whose names carry no version, which would say from which library they are.
_OF_CUDA = re.compile(r"(cu[A-Z]|cufile|cusparse|cudnn|nccl|nvrtc|nvshmem)")


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(library: Path) -> list[str]:
    """The names of the libraries that a library is linked to."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _said("readelf", "-d", str(library)))


def versions(library: Path) -> dict[str, str]:
    """For each version of names that a library asks for, the library that has it."""
    found = {}
    file = ""
    for line in _said("readelf", "-V", str(library)).splitlines():
        if named := re.search(r"File: (\S+)", line):
            file = named[1]
        elif named := re.search(r"Name: (\S+)\s+Flags: .*Version:", line):
            found[named[1]] = file
    return found


def wanted(libraries: list[Path]) -> dict[str, dict[str, set[str]]]:
    """What is missing: for each library that nobody has, the names that others want of it, by their versions (``""`` for none)."""
    there = set(re.findall(r"^\s+(\S+) \(", _said("ldconfig", "-p"), re.MULTILINE))
    there |= {beside.name for library in libraries for beside in library.parent.iterdir()}
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for library in libraries:
        absent = [name for name in needed(library) if name not in there]
        for name in absent:
            found[name][""] |= set()
        owners = versions(library)
        for line in _said("nm", "-D", "-u", "--with-symbol-versions", str(library)).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            if version and owners.get(version) in absent:
                found[owners[version]][version].add(symbol)
            elif not version and absent and _OF_CUDA.match(symbol):
                found[absent[0]][""].add(symbol)
    return found


def make(folder: Path, name: str, symbols: dict[str, set[str]]) -> None:
    """Makes a library of functions without bodies.

    Raises:
        subprocess.CalledProcessError: the C compiler does not.
    """
    lines, script = [], []
    for version, names in sorted(symbols.items()):
        for symbol in sorted(names):
            text = "Error" in symbol and "Get" in symbol and ("String" in symbol or "Name" in symbol)
            lines.append(f'const char *{symbol}(void) {{ return "no device"; }}' if text else f"long {symbol}(void) {{ return 100; }}")
        if version:
            script.append(f"{version} {{ global: {' '.join(f'{symbol};' for symbol in sorted(names))} }};")
    with tempfile.TemporaryDirectory() as scratch:
        source, versions_of = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        source.write_text("\n".join(lines) + "\n")
        versions_of.write_text("\n".join(script) + "\n")
        command = ["cc", "-shared", "-fPIC", "-ffreestanding", "-nostdlib", str(source), f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run([*command, f"-Wl,--version-script,{versions_of}"] if script else command, check=True)


def main() -> int:
    """Finds PyTorch without importing it, makes what it wants, and says so."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        print("stub_cuda: PyTorch is not installed: `pip install --no-deps torch`", file=sys.stderr)
        return 1
    root = Path(found.origin).parent
    missing = wanted(sorted([*(root / "lib").glob("*.so"), *root.glob("*.so")]))
    for name, symbols in missing.items():
        make(root / "lib", name, symbols)
    print(f"stub_cuda: made {len(missing)} libraries in {root / 'lib'}: {', '.join(missing) or 'none is missing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
