"""Programs in the manner of NVIDIA's samples, written for a GPU, on the host: each as ``python -m tessera --cpu FILE.py`` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import python
from tessera.__main__ import run

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


@pytest.fixture
def restored(monkeypatch):
    """What running a program changes."""
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    kept = {name: module for name, module in sys.modules.items() if name == "cuda" or name.startswith("cuda.")}
    yield
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        del sys.modules[name]
    sys.modules.update(kept)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program(program, restored):
    import torch

    own = torch.cuda.current_stream
    torch.manual_seed(1)
    run(str(program), [], ["--cpu"])
    assert torch.cuda.current_stream is own, "stand-ins are gone"


def test_there_are_a_dozen():
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize("program", ["vector_add", "softmax", "moe", "reductions"])
def test_a_program_on_the_emulator(program, restored):
    run(str(Path(__file__).parent / "programs" / f"{program}.py"), [], ["--cpu", "--emu"])


def test_on_the_command_line(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "x = torch.zeros(3, device='cuda:0').cuda().to('cuda', torch.float16)\n"
        "y = torch.tensor([1.0], device=torch.device('cuda'), pin_memory=False)\n"
        "assert x.is_cuda and y.is_cuda and torch.cuda.is_available() and torch.cuda.device_count() == 1\n"
        "with torch.cuda.stream(torch.cuda.Stream()) as s:\n    s.synchronize()\n"
        "torch.nn.Linear(3, 3).cuda().to('cuda')(torch.zeros(1, 3, device='cuda'))\n"
        "print(x.device.type, x.dtype)\n"
    )
    ran = python("-m", "tessera", "--cpu", "program.py", cwd=tmp_path)
    assert ran.stdout == "cpu torch.float16\n", ran.stderr


def test_stand_ins(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(
        "import io, torch\n"
        "stream, event = torch.cuda.current_stream(), torch.cuda.Event()\n"
        "stream.wait_event(event)\n"
        "assert stream.query() and stream.record_event().query() and event.query() and event.wait() is None\n"
        "assert torch.cuda.get_device_properties('cuda').total_memory >= torch.cuda.mem_get_info()[1] > 0\n"
        "torch.cuda.reset_peak_memory_stats()\n"
        "generator = torch.Generator(device='cuda').manual_seed(1)\n"
        "assert isinstance(torch.default_generator, torch.Generator) and isinstance(generator, torch.Generator)\n"
        "assert torch.rand(3, device='cuda', generator=generator).shape == (3,)\n"
        "torch.set_default_device('cuda')\n"
        "assert torch.zeros(3).is_cuda\n"
        "torch.set_default_device(None)\n"
        "with torch.cuda.device(0), torch.device('cuda'):\n    assert torch.zeros(3).is_cuda\n"
        "assert not torch.zeros(3).pin_memory().is_pinned()\n"
        "for keywords in ({'map_location': 'cuda'}, {'map_location': {'cuda:0': 'cuda:0'}}, {}):\n"
        "    file = io.BytesIO()\n    torch.save(torch.ones(3), file)\n    file.seek(0)\n    assert torch.load(file, **keywords).sum() == 3\n"
    )
    ran = python("-m", "tessera", "--cpu", "program.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
