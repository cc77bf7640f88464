"""What a CPU says of itself, and what torch is told of it."""

import os
import subprocess
import sys

import pytest

from heedful.ops import cpu, precision

PRODUCT = "import heedful, torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a)[0, 0]))"


@pytest.fixture
def become(monkeypatch):
    """A CPU with given flags, which describes its tiles so often, or does not let itself be asked."""

    def describe(flags, palettes):
        def ask():
            if palettes is None:
                raise PermissionError("no page may be written to and run")
            return palettes

        monkeypatch.setattr(cpu, "cpu_flags", lambda: frozenset(flags.split()))
        monkeypatch.setattr(cpu, "_count_palettes", ask)

    monkeypatch.delenv(cpu.WITHOUT_AMX[0], raising=False)
    cpu.amx_is_described.cache_clear()
    yield describe
    cpu.amx_is_described.cache_clear()


@pytest.mark.parametrize(
    ("flags", "palettes", "spared"),
    [("avx2", 0, False), ("avx2 amx_tile", 1, False), ("avx2 amx_tile", 0, True), ("amx_tile", None, False)],
)
def test_amx_is_disabled_if_its_tiles_are_not_described(become, flags, palettes, spared):
    become(flags, palettes)
    cpu.disable_undescribed_amx()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == ("AVX512_CORE_BF16" if spared else None)


def test_an_isa_that_the_user_has_set_stays(become, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    become("amx_tile", 0)
    cpu.disable_undescribed_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_without_tiles_torch_computes_in_float32_where_it_could_have_had_them(become, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    become("avx512_bf16", 0)
    assert precision.choose_precision("auto", "cpu") == "bfloat16"
    cpu.amx_is_described.cache_clear()
    become("avx512_bf16 amx_tile", 0)
    assert precision.choose_precision("auto", "cpu") == "float32"
    assert precision.choose_precision("bfloat16", "cpu") == "bfloat16"


def test_products_in_bfloat16_survive_on_this_machine():
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
