"""The position tables that the engine computes without torch are those of the modules."""

import pytest
import torch

from heedful.config import ModelConfig
from heedful.model import attention, positions
from heedful.model.transformer import build_model
from heedful.native.support import position_tensors, supports, unsupported_setting
from heedful.native.trainer import native_trainer

SIZES = {"vocab_size": 31, "d_model": 24, "d_ff": 20, "n_heads": 3, "encoder_layers": 1, "decoder_layers": 2}


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_its_tables_are_those_of_the_modules(positions: str) -> None:
    config = ModelConfig(**SIZES | {"positions": positions, "max_length": 40})
    buffers = dict(build_model(config).named_buffers())
    result = dict(position_tensors(config))
    assert len(result) == len(buffers) == 2
    for name, table in result.items():
        expected = buffers[name if name in buffers else name.replace("table", "rotations")]
        assert torch.equal(torch.from_numpy(table), expected)


OTHER_SYSTEMS = [{"norm": "rms"}, {"norm": "batch"}, {"norm": "instance"}, {"experts": 2}, {"positions": "syntax"}]


@pytest.mark.parametrize("changes", OTHER_SYSTEMS, ids=str)
def test_what_the_engine_does_not_compute_is_left_to_torch(changes: dict[str, object]) -> None:
    sizes = SIZES | {"d_model": 64, "d_ff": 64, "n_heads": 2}
    config = ModelConfig.model_validate(sizes | changes)
    assert supports(ModelConfig.model_validate(sizes)) and not supports(config)
    assert native_trainer(build_model(config)) is None


def test_learned_positions_are_no_table_to_compute() -> None:
    assert not list(position_tensors(ModelConfig(**SIZES | {"positions": "learned"})))


def test_a_class_of_the_user_under_a_known_name_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nearer(positions.Alibi):
        pass

    class Sharper(attention.ATTENTIONS["full"]):  # type: ignore[misc]
        pass

    config = ModelConfig.model_validate(SIZES | {"d_model": 64, "d_ff": 64, "n_heads": 2, "positions": "alibi"})
    assert supports(config)
    with monkeypatch.context() as patch:
        patch.setitem(positions.POSITIONS, "alibi", Nearer)
        assert unsupported_setting(config) == "the class Nearer for model.positions=alibi"
        assert native_trainer(build_model(config)) is None
    monkeypatch.setitem(attention.ATTENTIONS, "full", Sharper)
    assert unsupported_setting(config) == "the class Sharper for model.attention=full"
