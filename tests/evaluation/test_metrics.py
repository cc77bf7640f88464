"""What is said about text that looks tokenised, and about tokenisers that are not there."""

from importlib.util import find_spec

import pytest
import sacrebleu

from heedful.errors import SettingError
from heedful.evaluation.metrics import evaluate, quick_scores

TOKENISED = ["two dogs run in the snow ."] * 100


@pytest.mark.parametrize(("tokenize", "warned"), [("none", False), ("13a", True), (None, True)])
def test_only_text_that_should_be_plain_is_warned_of(
    tokenize: str | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    other = ["two dogs ran in the snow ."] * 100
    result = evaluate(TOKENISED, other, tokenize=tokenize)
    assert ("forgot to detokenize" in caplog.text) == warned
    expected = sacrebleu.corpus_bleu(TOKENISED, [other], force=True, **({"tokenize": tokenize} if tokenize else {}))
    assert result.bleu == expected.score


def test_validation_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    quick_scores(TOKENISED, TOKENISED)
    assert not caplog.text


def test_a_tokeniser_of_no_such_name_is_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"'13b'; it must be one of .*13a"):
        evaluate(["a"], ["a"], tokenize="13b")


@pytest.mark.skipif(find_spec("MeCab") is not None, reason="what it needs is installed")
def test_a_tokeniser_that_is_not_installed_is_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"'ja-mecab' is not ready: .*pip install sacrebleu\[ja\]"):
        evaluate(["a"], ["a"], tokenize="ja-mecab")


def test_case_is_ignored_in_all_scores_or_in_none() -> None:
    assert evaluate(["The dog"], ["the dog"]).exact == 0
    assert evaluate(["The dog"], ["the dog"], lowercase=True).exact == 100


def test_scores_are_those_of_sacrebleu_with_its_own_defaults() -> None:
    hypotheses, references = ["The dog Sees a cat .", "a Man reads"], ["the dog sees the Cat .", "a man was reading"]
    result = evaluate(hypotheses, references)
    assert result.bleu == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert result.chrf == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert result.ter == sacrebleu.corpus_ter(hypotheses, [references]).score
    assert "case:lc" in result.signatures["TER"] and "case:mixed" in result.signatures["chrF"]
