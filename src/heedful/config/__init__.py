"""Every setting once: name, type, default, limits and help text; presets; loading and overrides. No torch."""

from heedful.config.loading import SECTIONS, RunConfig, TaskName, load_config, settings_template, validate_section
from heedful.config.presets import PRESETS, Family, Preset, preset_for, preset_for_text
from heedful.config.schema import (
    DataSettings,
    ModelConfig,
    NormKind,
    SearchSettings,
    Section,
    TextSettings,
    TrainSettings,
    parse_duration,
)

__all__ = [
    "PRESETS",
    "SECTIONS",
    "DataSettings",
    "Family",
    "ModelConfig",
    "NormKind",
    "Preset",
    "RunConfig",
    "SearchSettings",
    "Section",
    "TaskName",
    "TextSettings",
    "TrainSettings",
    "load_config",
    "parse_duration",
    "preset_for",
    "preset_for_text",
    "settings_template",
    "validate_section",
]
