"""Attention as a picture for papers."""

from __future__ import annotations

from pathlib import Path

from heedful.align import cross_attention
from heedful.data.batch import collate
from heedful.data.pairs import Pairs
from heedful.translate import Translator


def draw_cross_attention(translator: Translator, source: str, path: Path) -> str:
    """Translate a sentence and draw where each token of the translation looked in the source; the translation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    target = translator.translate(source)
    source_ids, target_ids = translator.source_tokenizer.encode(source), translator.tokenizer.encode(target)
    batch = collate(
        Pairs.of([(source_ids, target_ids)]), [0], translator.source_tokenizer.specials, translator.tokenizer.specials
    ).to(translator.device)
    weights = cross_attention(translator.models[0], batch)[0].cpu().numpy()  # (T, S)
    columns = [*translator.source_tokenizer.pieces(source_ids), "(end)"]
    rows = [*translator.tokenizer.pieces(target_ids), "(end)"]
    figure, axes = plt.subplots(figsize=(1.5 + 0.55 * len(columns), 1.5 + 0.42 * len(rows)), layout="constrained")
    image = axes.imshow(weights, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), [column.replace("▁", "") for column in columns], rotation=60, ha="left")
    axes.set_yticks(range(len(rows)), [row.replace("▁", "") for row in rows])
    axes.xaxis.tick_top()
    axes.set_xlabel("source")
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("translation")
    figure.colorbar(image, label="attention, mean over heads")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return target
