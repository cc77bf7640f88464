"""What an encoder has on top: BERT's transform before the logits, its pooler, or nothing."""

import pytest
import torch
import torch.nn.functional as F

from heedful.config import ModelConfig, validate_section
from heedful.errors import SettingError

from .samples import fresh, sentences, small


def test_a_transform_is_dense_activation_and_norm_before_the_projection():
    model = fresh(small(family="encoder", head="transform", activation="gelu", output_bias=True))
    hidden = model(sentences([6, 4, 2]))
    dense, norm = model.transform.dense, model.transform.norm
    states = F.gelu(hidden @ dense.weight.t() + dense.bias)
    states = F.layer_norm(states, (16,), norm.weight, norm.bias)
    torch.testing.assert_close(model.project(hidden), states @ model.embedding.weight.t() + model.output_bias)
    torch.testing.assert_close(model.before_output(hidden), states)


def test_a_pooler_sees_the_first_token_alone():
    model = fresh(small(family="encoder", pooler=True))
    hidden = torch.randn(3, 5, 16, dtype=model.pooler.weight.dtype)
    pooled = model.pool(hidden)
    torch.testing.assert_close(pooled, torch.tanh(model.pooler(hidden[:, 0])))
    hidden[:, 1:] = 0
    torch.testing.assert_close(model.pool(hidden), pooled)


def test_an_encoder_without_a_head_or_a_pooler_says_so():
    model = fresh(small(family="encoder", head="none"))
    hidden = model(sentences([3]))
    with pytest.raises(ValueError, match=r"model\.head is none"):
        model.project(hidden)
    with pytest.raises(ValueError, match=r"model\.pooler is false"):
        model.pool(hidden)


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("part", [{"head": "transform"}, {"head": "none"}, {"pooler": True}])
def test_only_encoders_have_them(family, part):
    with pytest.raises(SettingError, match="parts of an encoder"):
        validate_section(ModelConfig, {"family": family, **part})
