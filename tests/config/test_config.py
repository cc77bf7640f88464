"""Settings say what they mean, refuse what they do not know, and tell it in one sentence."""

import re
import tomllib

import pytest
from pydantic import ValidationError

from heedful.config import (
    PRESETS,
    SECTIONS,
    ModelConfig,
    RunConfig,
    SearchSettings,
    TrainSettings,
    load_config,
    parse_duration,
    preset_for,
    settings_template,
    validate_section,
)
from heedful.config.presets import weight_decay_for
from heedful.errors import HeedfulError, SettingError

FIELDS = [(section, name) for section in SECTIONS for name in getattr(RunConfig(), section).__class__.model_fields]


def message_of(run) -> str:
    """The one sentence that a mistake is answered with."""
    with pytest.raises(SettingError) as caught:
        run()
    message = str(caught.value)
    assert len(re.findall(r"[.?!](?=\s|$)", message)) == 1, message
    assert message[-1] in ".?"
    assert "\n" not in message
    return message


@pytest.fixture
def toml(tmp_path):
    def write(text: str):
        path = tmp_path / "run.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


class TestDefaults:
    def test_the_model_is_the_base_model_of_the_paper(self):
        model = ModelConfig()
        assert (model.d_model, model.d_ff, model.n_heads, model.d_head, model.key_width) == (512, 2048, 8, 64, 64)
        assert (model.encoder_layers, model.decoder_layers, model.dropout) == (6, 6, 0.1)
        assert (model.pre_norm, model.activation, model.positions, model.tie) == (False, "relu", "sinusoidal", "all")
        assert model.bias and model.scale_embedding

    def test_training_and_search_are_those_of_the_paper(self):
        train, search = TrainSettings(), SearchSettings()
        assert (train.beta1, train.beta2, train.epsilon) == (0.9, 0.98, 1e-9)
        assert (train.warmup, train.schedule, train.learning_rate) == (4000, "inverse-sqrt", None)
        assert (train.label_smoothing, train.label_smoothing_form, train.average_checkpoints) == (0.1, "uniform", 5)
        assert (search.beam, search.length_penalty, search.max_extra) == (4, 0.6, 50)

    def test_the_big_preset_is_the_big_model_of_the_paper(self):
        run = RunConfig().with_preset("big")
        model, train = run.model, run.train
        assert (model.d_model, model.d_ff, model.n_heads, model.dropout) == (1024, 4096, 16, 0.3)
        assert (model.encoder_layers, model.decoder_layers) == (6, 6)
        assert (train.max_updates, train.average_checkpoints, train.batch_tokens) == (300_000, 20, 25_000)

    def test_nothing_validated_can_change(self):
        with pytest.raises(ValidationError):
            RunConfig().model.d_model = 3

    @pytest.mark.parametrize(("section", "name"), [*FIELDS, ("", "preset")])
    def test_every_setting_has_a_description(self, section, name):
        kind = getattr(RunConfig(), section).__class__ if section else RunConfig
        description = kind.model_fields[name].description
        assert description
        assert description.endswith(".")
        assert "\n" not in description


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ("train.warmpu=3", "unknown key train.warmpu; did you mean train.warmup?"),
            ("trian.warmup=3", "unknown key trian; did you mean train?"),
            ("warmup=3", "unknown key warmup; did you mean train.warmup?"),
            ("model.learning_rate=1", "unknown key model.learning_rate; did you mean train.learning_rate?"),
            ("train.dropout=0.1", "unknown key train.dropout; did you mean model.dropout?"),
            ("model.seed=1", "unknown key model.seed; did you mean train.seed?"),
            ("text.max_length=9", "unknown key text.max_length; did you mean data.max_length?"),
            ("model.nheads=1", "unknown key model.nheads; did you mean model.n_heads?"),
            ("model.xyzzy=1", "unknown key model.xyzzy; `heedful settings` lists them all."),
            ("zzz.qqq=1", "unknown key zzz; `heedful settings` lists them all."),
            ("model.d_model.x=3", "unknown key model.d_model.x; did you mean model.d_model?"),
        ],
    )
    def test_the_nearest_name_is_suggested(self, override, expected):
        assert message_of(lambda: load_config(None, [override])) == expected

    @pytest.mark.parametrize("section", SECTIONS)
    def test_the_nearest_name_is_suggested_for_a_file_too(self, toml, section):
        path = toml(f"[{section}]\nno_such_thing = 1\n")
        assert message_of(lambda: load_config(path)).startswith(f"unknown key {section}.no_such_thing; ")

    def test_several_mistakes_are_reported_together(self):
        with pytest.raises(SettingError) as caught:
            load_config(None, ["train.warmpu=3", "model.d_ff=0"])
        assert "train.warmpu" in str(caught.value)
        assert "model.d_ff is 0" in str(caught.value)

    def test_one_section_alone_names_where_it_came_from(self):
        message = message_of(lambda: validate_section(ModelConfig, {"d_modle": 4}, "config.json"))
        assert message == "unknown key config.json.d_modle; did you mean d_model?"
        assert isinstance(validate_section(ModelConfig, {"d_model": 64}), ModelConfig)


class TestRanges:
    @pytest.mark.parametrize(
        "override",
        [
            "model.d_model=0",
            "model.d_model=65537",
            "model.d_model=9999999999999999999999",
            "model.dropout=1",
            "model.dropout=-0.1",
            "model.dropout=nan",
            "model.attention_dropout=inf",
            "model.norm_eps=0",
            "model.vocab_size=0",
            "model.max_length=1",
            "train.seed=-1",
            "train.seed=2147483648",
            "train.warmup=0",
            "train.warmup=1.5",
            "train.warmup=many",
            "train.warmup=",
            "train.learning_rate=0",
            "train.learning_rate=11",
            "train.label_smoothing=1",
            "train.beta2=1",
            "train.micro_batches=0",
            "train.clip_norm=inf",
            "train.epsilon=inf",
            "data.max_ratio=inf",
            "train.patience=-1",
            "text.vocab_size=15",
            "text.joint=maybe",
            "data.max_ratio=0.5",
            "search.beam=0",
            "search.beam=[1, 2]",
            "search.length_penalty=-1",
            "model.pre_norm=middle",
            "model.positions=none",
            "preset=huge",
        ],
    )
    def test_what_is_out_of_range_is_refused_by_name_and_value(self, override):
        name, _, value = override.partition("=")
        message = message_of(lambda: load_config(None, [override]))
        assert message.startswith(f"{name} is ")
        assert value in message

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"d_model": 100}, "d_model (100) must be divisible by n_heads (8); set model.n_heads to one of "),
            ({"d_model": 24, "positions": "rotary"}, "rotary positions need an even width of a head's keys"),
            ({"d_model": 9, "n_heads": 3}, "sinusoidal positions need an even d_model, and it is 9."),
            ({"source_vocab_size": 99}, "separate vocabularies cannot share embeddings three ways"),
            ({"vocab_size": 3}, "pad_id, bos_id and eos_id must be below vocab_size (3)."),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, values, expected):
        assert expected in message_of(lambda: validate_section(ModelConfig, values))

    @pytest.mark.parametrize("values", [{"d_model": 9, "n_heads": 3, "positions": "alibi"}, {"d_key": 3}])
    def test_odd_widths_are_fine_where_nothing_is_paired(self, values):
        assert validate_section(ModelConfig, values).key_width == 3

    @pytest.mark.parametrize(("d_key", "width"), [(None, 64), (16, 16), (128, 128)])
    def test_key_width(self, d_key, width):
        assert ModelConfig(d_key=d_key).key_width == width
        assert ModelConfig(d_key=d_key).d_head == 64


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "value"),
        [
            ("train.warmup=7", 7),
            ("train.warmup= 7 ", 7),
            ("train.learning_rate=5e-4", 5e-4),
            ("text.lowercase=true", True),
            ("model.activation=gelu", "gelu"),
            ('model.activation="gelu"', "gelu"),
            ("train.time=1h30m", "1h30m"),
            ("train.device=cpu", "cpu"),
        ],
    )
    def test_values_are_read_as_toml_or_else_as_text(self, override, value):
        section, _, key = override.partition("=")[0].partition(".")
        run = load_config(None, [override])
        assert getattr(getattr(run, section), key) == value
        assert getattr(run, section).model_fields_set == {key}

    def test_paths_may_hold_spaces_and_equals_signs(self):
        assert str(load_config(None, ["data.source=my corpus=1.en"]).data.source) == "my corpus=1.en"

    def test_later_wins_over_earlier_over_arguments_over_file(self, toml):
        path = toml("[train]\nwarmup = 1\nseed = 1\naverage_checkpoints = 1\npatience = 1\n")
        arguments = {"warmup": 2, "seed": 2, "average_checkpoints": 2}
        run = load_config(path, ["train.warmup=3", "train.seed=3", "train.warmup=4"], train=arguments)
        assert (run.train.warmup, run.train.seed, run.train.average_checkpoints, run.train.patience) == (4, 3, 2, 1)

    def test_the_preset_is_a_setting_of_the_top_level(self):
        assert load_config(None, ["preset=tiny"]).preset == "tiny"

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ("train.seed", "'train.seed' is not a setting; write section.key=value, such as train.seed=7."),
            ("train=3", "'train=3' sets a whole section; write train.key=value."),
        ],
    )
    def test_what_is_no_override_is_explained(self, override, expected):
        assert message_of(lambda: load_config(None, [override])) == expected


class TestFiles:
    def test_a_file_is_read(self, toml):
        run = load_config(toml('preset = "small"\n[model]\nd_model = 64\n[search]\nbeam = 2\n'))
        assert (run.preset, run.model.d_model, run.search.beam) == ("small", 64, 2)
        assert load_config(None) == RunConfig()

    def test_a_missing_settings_file_is_refused(self, tmp_path):
        message = message_of(lambda: load_config(tmp_path / "absent.toml"))
        expected = f"{tmp_path / 'absent.toml'} does not exist; give the TOML file of a run, or a setting as section."
        assert message == f"{expected}key=value."

    def test_a_folder_in_place_of_a_settings_file_is_refused(self, tmp_path):
        assert message_of(lambda: load_config(tmp_path)).startswith(f"{tmp_path} cannot be read: ")

    def test_a_settings_file_that_is_not_text_is_refused(self, tmp_path):
        path = tmp_path / "run.toml"
        path.write_bytes(b"\xff\xfe\x00")
        assert message_of(lambda: load_config(path)) == f"{path} is not UTF-8 text; a run is described by a TOML file."

    @pytest.mark.parametrize("text", ["[model]\nd_model =", "[model", "d_model: 3", "[train]\nseed = 1\nseed = 2"])
    def test_broken_toml_is_reported_with_its_place(self, toml, text):
        path = toml(text)
        message = message_of(lambda: load_config(path))
        assert message.startswith(f"{path} is not valid TOML: ")
        assert re.search(r"\(at (line \d+|end of document)", message)

    def test_a_section_is_not_a_value(self, toml):
        path = toml("model = 3\n")
        assert message_of(lambda: load_config(path)).startswith("model is 3: ")
        expected = f"{path}: model is a section, not a value; write [model] above its settings."
        assert message_of(lambda: load_config(path, model={"d_ff": 3})) == expected

    @pytest.mark.parametrize("text", ["model = 3\n", 'model = "small"\n'])
    def test_an_override_of_a_section_that_is_a_value(self, toml, text):
        path = toml(text)
        assert "model is a section, not a value" in message_of(lambda: load_config(path, ["model.d_ff=3"]))

    def test_every_problem_is_a_setting_error(self):
        assert issubclass(SettingError, HeedfulError)


class TestPresets:
    @pytest.mark.parametrize("name", PRESETS)
    def test_a_preset_fills_in_its_values(self, name):
        run = RunConfig().with_preset(name)
        assert run.preset == name
        for section, values in PRESETS[name].items():
            assert values.items() <= getattr(run, section).model_dump().items()

    @pytest.mark.parametrize("name", PRESETS)
    def test_a_preset_leaves_everything_else_at_its_default(self, name):
        run = RunConfig().with_preset(name)
        for section in SECTIONS:
            actual, reference = getattr(run, section), getattr(RunConfig(), section)
            open_keys = set(type(actual).model_fields) - set(PRESETS[name].get(section, {}))
            assert actual.model_dump(include=open_keys) == reference.model_dump(include=open_keys)

    @pytest.mark.parametrize("name", PRESETS)
    def test_what_the_user_set_stays_even_at_its_default(self, name):
        user = ["model.d_ff=2048", "model.dropout=0.1", "train.max_updates=100000", "train.batch_tokens=4096"]
        run = load_config(None, user).with_preset(name)
        assert (run.model.d_ff, run.model.dropout) == (2048, 0.1)
        assert (run.train.max_updates, run.train.batch_tokens) == (100_000, 4096)

    def test_a_draft_may_contradict_defaults_that_a_preset_replaces(self):
        draft = load_config(None, ["model.d_model=100"])
        model = draft.with_preset("tiny").model
        assert (model.d_model, model.n_heads, model.d_head) == (100, 4, 25)
        expected = "model: d_model (100) must be divisible by n_heads (8); set model.n_heads"
        assert message_of(lambda: draft.with_preset("base")).startswith(expected)

    @pytest.mark.parametrize(
        ("pairs", "name"),
        [(1, "tiny"), (99_999, "tiny"), (100_000, "small"), (999_999, "small"), (1_000_000, "base"), (10**9, "base")],
    )
    def test_the_size_of_the_corpus_chooses_the_preset(self, pairs, name):
        assert preset_for(pairs) == name

    @pytest.mark.parametrize(
        ("updates", "rate", "decay"),
        [
            (0.1, 6e-3, 0.3),
            (210, 6e-3, 0.3),
            (210, 1.2e-2, 0.2),
            (760, 6e-3, 0.09),
            (1520, 3e-3, 0.09),
            (1e5, 6e-3, 7e-4),
        ],
    )
    def test_weights_decay_by_passes_over_the_corpus(self, updates, rate, decay):
        assert weight_decay_for(updates, rate) == decay

    def test_replacing_changes_only_what_is_named(self):
        run = load_config(None, ["train.seed=5", "model.d_ff=64"]).with_preset("tiny")
        new = run.replace(model={"vocab_size": 99}, search={"beam": 2})
        assert (new.model.vocab_size, new.model.d_ff, new.model.d_model) == (99, 64, 128)
        assert (new.search.beam, new.train, new.preset) == (2, run.train, "tiny")
        assert run.model.vocab_size == 37_000

    def test_replacing_is_checked(self):
        assert message_of(lambda: RunConfig().replace(model={"d_model": 101})).startswith("model: d_model (101)")
        assert "did you mean model?" in message_of(lambda: RunConfig().replace(modle={"d_model": 64}))

    def test_settings_survive_a_round_trip(self):
        run = load_config(None, ["train.time=30m", "data.source=a.en", "model.d_model=64"]).with_preset("small")
        assert RunConfig.model_validate_json(run.model_dump_json()) == run


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1h30m", 5400), ("1h30m15s", 5415), ("0.5s", 0.5)],
    )
    def test_a_duration_in_seconds(self, text, expected):
        assert parse_duration(text) == expected
        assert load_config(None, [f"train.time={text}"]).train.time == text

    @pytest.mark.parametrize("text", ["", "30", "m", "1h 30m", "-5m", "1h30", "5d", "1e3s", "30m!", "½h", "0s", "0h0m"])
    def test_what_is_no_duration_is_refused(self, text):
        assert message_of(lambda: load_config(None, [f'train.time="{text}"'])).startswith(
            f"train.time is {text!r}: a duration "
        )


class TestTemplate:
    def test_the_uncommented_template_is_toml_with_the_defaults(self):
        text = re.sub(r"(?m)^# (\w+ = .+)$", r"\1", settings_template())
        tree = tomllib.loads(text)
        assert RunConfig.model_validate(tree) == RunConfig()
        assert tree["train"]["epsilon"] == 1e-9
        assert tree["model"]["pre_norm"] is False
        assert tree["text"]["joint"] is True

    def test_the_template_changes_nothing(self, toml):
        assert load_config(toml(settings_template())) == RunConfig()

    @pytest.mark.parametrize(("section", "name"), FIELDS)
    def test_every_setting_stands_below_its_description(self, section, name):
        text = settings_template()[settings_template().index(f"[{section}]") :]
        description = getattr(RunConfig(), section).__class__.model_fields[name].description
        assert f"# {description}\n# {name} =" in text


def test_a_file_may_be_called_by_a_number():
    for name in ("2024", "2024-01-01", "1.5"):
        assert str(load_config(None, [f"data.source={name}"]).data.source) == name


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "run.toml").write_text("[train]\nseed = 7\n", encoding="utf-8-sig")
    assert load_config(tmp_path / "run.toml").train.seed == 7


@pytest.mark.parametrize("override", ["=3", " = 3"])
def test_a_setting_needs_a_name(override):
    with pytest.raises(SettingError, match="is not a setting; write"):
        load_config(None, [override])


def test_a_device_is_one_that_there_is():
    with pytest.raises(SettingError, match=r"train\.device is 'tpu'"):
        load_config(None, ["train.device=tpu"])


@pytest.mark.parametrize(
    "override", ["x" * 5000, f"train.seed={'9' * 5000}a", f"train.{'y' * 5000}=1", f"model={'z' * 5000}"]
)
def test_what_was_given_is_cut_to_a_readable_length(override):
    message = message_of(lambda: load_config(None, [override]))
    assert len(message) < 400
    assert override[:20] in message or override.partition("=")[2][:20] in message


def test_a_table_where_a_value_belongs_is_cut(toml):
    path = toml(
        f"[train]\nseed = [{'1, ' * 5000}]\n[data]\nsource = {{ {', '.join(f'k{i} = 1' for i in range(999))} }}"
    )
    with pytest.raises(SettingError) as caught:
        load_config(path)
    assert len(str(caught.value)) < 600
