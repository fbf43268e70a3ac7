"""The programs of the chapter, of the first page and of the notebook run as they stand. What they define is a cell's, so kernels have texts."""

from __future__ import annotations

import json
import linecache
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def blocks(file: str) -> list[tuple[int, str]]:
    """Each block of Python in a page, with the line before it."""
    text = (ROOT / file).read_text()
    return [(text[: found.start()].count("\n") + 1, found[1]) for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def run(name: str, text: str, names: dict) -> None:
    """Runs a cell as notebooks do."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), names)


def test_the_chapter(capsys):
    names: dict = {"__name__": "chapter"}
    found = blocks("docs/python.md")
    assert len(found) >= 8
    for line, text in found:
        # Lines count as in the page.
        run(f"python.md:{line}", "\n" * line + text, names)
    said = capsys.readouterr().out
    assert "race" in said and "error[not-power-of-two]" in said and re.search(r"python\.md:\d+ \d+ \d+", said)
    for shape in ((8, 100), (1, 1000)):
        names["test_softmax"](shape, "float32", "cpu")


def test_the_first_page():
    found = [(line, text) for line, text in blocks("README.md") if "tessera.tile as ct" in text]
    assert len(found) == 1, "the first page has one program of Python"
    run("README.md", found[0][1], {"__name__": "page"})


def test_the_notebook(monkeypatch, tmp_path):
    notebook = json.loads((ROOT / "examples/tessera.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    assert not any(cell.get("outputs") for cell in notebook["cells"]), "outputs are not kept"
    monkeypatch.chdir(tmp_path)
    # Plots are drawn, and not shown.
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict = {"__name__": "__main__"}
    for number, text in enumerate(cells):
        run(f"/cells/{number}.py", text, names)
