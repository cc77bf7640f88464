"""The wheel: one for all versions of Python, with the compiled engine, that translates without torch or a compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.inside.conftest import make_folder, tokenizer
from tests.serve.test_light_install import without

from heedful.inference.translator import Translator
from heedful.native import library
from heedful.packages import EXTRAS
from heedful.storage.folder import save_folder

__all__ = ["make_folder", "tokenizer"]
ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(1200)  # it compiles the engine for every instruction set
@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
def test_a_wheel_translates_without_torch_and_without_a_compiler(make_folder, tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    tools = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    subprocess.run([*command, "--quiet"], cwd=ROOT, env=tools, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"heedful-[\d.]+-py3-none-(?!any)\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    libraries = {Path(name).name for name in names if re.match(r"heedful/native/libheedful-\w+\.(so|dll|dylib)", name)}
    assert any("portable" in name for name in libraries) and not any("csrc" in name for name in names)

    save_folder(replace(make_folder(), path=tmp_path / "model"))
    (tmp_path / "light").mkdir()
    light = without(EXTRAS, tmp_path / "light")
    paths = [light["PYTHONPATH"].split(os.pathsep)[0], str(tmp_path / "installed")]
    light |= {"PYTHONPATH": os.pathsep.join(paths), "PATH": ""}
    text = "The dog sleeps."
    for words, stdin in (["info"], ""), (["translate", "model"], f"{text}\n"):
        heedful = [sys.executable, "-m", "heedful", *words]
        done = subprocess.run(heedful, input=stdin, capture_output=True, text=True, env=light, cwd=tmp_path, check=True)
        assert not done.stderr
        if words == ["info"]:
            assert f"engine: {tmp_path / 'installed'}" in done.stdout
    assert done.stdout == Translator.load(tmp_path / "model").translate(text) + "\n"
