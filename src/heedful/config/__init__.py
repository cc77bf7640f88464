"""Every setting once: name, type, default, limits and help text; presets; loading and overrides. No torch."""

from heedful.config.loading import SECTIONS, RunConfig, TaskName, build, read, template
from heedful.config.presets import PRESETS, Family, Preset, preset_for, preset_for_text
from heedful.config.schema import (
    DataSettings,
    ModelConfig,
    SearchSettings,
    Section,
    TextSettings,
    TrainSettings,
    seconds,
)

__all__ = [
    "PRESETS",
    "SECTIONS",
    "DataSettings",
    "Family",
    "ModelConfig",
    "Preset",
    "RunConfig",
    "SearchSettings",
    "Section",
    "TaskName",
    "TextSettings",
    "TrainSettings",
    "build",
    "preset_for",
    "preset_for_text",
    "read",
    "seconds",
    "template",
]
