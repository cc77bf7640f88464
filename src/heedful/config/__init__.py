"""Every setting once: name, type, default, limits and help text; presets; loading and overrides. No torch."""

from heedful.config.data_settings import DataSettings, TextSettings
from heedful.config.loading import SECTIONS, RunConfig, TaskName, load_config, settings_template, validate_section
from heedful.config.model_config import ModelConfig, NormKind
from heedful.config.presets import PRESETS, Family, Preset, preset_for
from heedful.config.search_settings import SearchSettings
from heedful.config.section import Section
from heedful.config.train_settings import TrainSettings, parse_duration

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
    "settings_template",
    "validate_section",
]
