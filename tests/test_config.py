import pytest
import yaml

from spikehtr.config import PRESETS, Config, ConfigError, known_keys


@pytest.mark.parametrize(
    ("name", "dim", "blocks", "gamma", "tau", "aux"),
    [
        ("tiny", 384, "LA QK LK LA", 0.75, 0.90, 0.0),
        ("small", 512, "LA QK LK LA", 0.70, 0.88, 0.2),
        ("medium", 640, "LA QK QK LK LA", 0.70, 0.88, 0.2),
        ("base", 768, "LA QK QK LK LK LA", 0.70, 0.88, 0.2),
    ],
)
def test_presets_hold_the_papers_values(name, dim, blocks, gamma, tau, aux):
    c = Config.preset(name)
    assert c.model.dim == dim
    assert " ".join(c.model.mixer.operators) == blocks
    assert (c.model.reducer.gamma, c.model.reducer.tau, c.model.reducer.k) == (gamma, tau, 3)
    assert c.training.aux_weight == aux
    assert (c.training.learning_rate, c.training.epochs, c.training.ema_decay) == (3e-4, 210, 0.9998)


@pytest.mark.parametrize("name", PRESETS)
def test_yaml_round_trip(name, tmp_path):
    c = Config.preset(name).with_overrides({"model.timesteps": 1})
    path = tmp_path / "c.yaml"
    c.save(path)
    assert Config.load(path) == c
    assert yaml.safe_load(c.to_yaml()) == c.to_dict()
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]


def test_yaml_may_name_a_preset_and_be_partial(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("preset: tiny\nmodel: {timesteps: 4, mixer: {heads: 12}}\n")
    c = Config.load(path)
    assert (c.model.dim, c.model.timesteps, c.model.mixer.heads, c.model.mixer.lk_kernel) == (384, 4, 12, 15)


def test_overrides_from_text_and_from_values():
    c = Config().with_overrides(
        ["model.timesteps=1", "model.entry=poisson", "training.learning_rate=1e-3", "model.mixer.blocks=[LA, LK]"]
    )
    assert (c.model.timesteps, c.model.entry, c.training.learning_rate) == (1, "poisson", 1e-3)
    assert c.model.mixer.operators == ("LA", "LK")
    assert c == Config().with_overrides(
        {
            "model.timesteps": 1,
            "model.entry": "poisson",
            "training.learning_rate": 1e-3,
            "model.mixer": {"blocks": ["LA", "LK"]},
        }
    )
    assert Config().model.timesteps == 2  # the original is untouched


def test_layout_overrides_the_blocks():
    c = Config.preset("tiny").with_overrides({"model.mixer.layout": "all-QK"})
    assert c.model.mixer.operators == ("QK",) * 4


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.timestep=1", "did you mean 'model.timesteps'"),
        ("timesteps=1", "did you mean 'model.timesteps'"),
        ("modle.timesteps=1", "did you mean 'model.timesteps'"),
        ("model.reducer.mod=none", "did you mean 'model.reducer.mode'"),
        ("T=1", "did you mean 'model.timesteps'"),
        ("model.T=1", "unknown key 'model.T'; did you mean 'model.timesteps'"),
        ("model.lif.tau=2", "did you mean 'model.lif.decay'"),
        ("model.lif.V_th=2", "did you mean 'model.lif.threshold'"),
        ("model.redcuer=none", "did you mean 'model.reducer'"),
        ("training.lr=1", "did you mean 'training.learning_rate'"),
        ("lerning_rate=1", "did you mean 'training.learning_rate'"),
        ("data.height=1", "did you mean 'model.height'"),
        ("training.learing_rate=1", "did you mean 'training.learning_rate'"),
        ("model.reducer=none", "is a section"),
        ("model.reducer.mode=keep", "'keep-and-merge'"),
        ("model.timesteps=5", "above max_timesteps"),
        ("model.timesteps=two", "valid integer"),
        ("model.dim=770", "multiple of 4"),
        ("model.mixer.heads=7", "multiple of mixer.heads"),
        ("model.encoder.stem_stride=[2, 2]", "must multiply to 4"),
        ("model.encoder.stem_stride=[3, 1]", "stem_stride"),
        ("model.height=62", "multiple of 4, the product of the encoder's strides"),
        ("model.encoder.kernel=4", "odd"),
        ("model.inkcoder.q_low=0.9", "below q_high"),
        ("model.beta=1.0", "less than 1"),
        ("training.learning_rate=.nan", "finite"),
        ("model.timesteps", "key=value"),
        ("model.timesteps={a: 1, a: 2}", "not valid YAML"),
    ],
)
def test_wrong_overrides_say_what_is_wrong(override, says):
    with pytest.raises(ConfigError, match=says):
        Config().with_overrides([override])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("model: {timestep: 1}", r"c\.yaml: unknown key 'model\.timestep'; did you mean 'model\.timesteps'"),
        ("modle: {dim: 8}", "unknown key 'modle'; did you mean 'model'"),
        ("model: {redcuer: {mode: none}}", "did you mean 'model.reducer'"),
        ("model: {T: 1}", "did you mean 'model.timesteps'"),
        ("model: {dim: 8, dim: 16}", "given twice"),
        ("[1, 2]", "expected keys and values"),
        ("model: [", "not valid YAML"),
        ("preset: huge", "no preset called 'huge'"),
        ("preset: smal", "did you mean 'small'"),
    ],
)
def test_wrong_files_say_what_is_wrong(content, says, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=says):
        Config.load(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        Config.load(tmp_path / "nowhere.yaml")


def test_every_problem_is_listed_at_once(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: {timestep: 1}\ntraining: {epochs: -1}\n")
    with pytest.raises(ConfigError) as caught:
        Config.load(path)
    assert "timestep" in str(caught.value)
    assert "training.epochs" in str(caught.value)


def test_every_key_can_be_overridden_with_its_own_value():
    c = Config.preset("tiny")
    values = c.to_dict()
    for key in known_keys():
        value = values
        for part in key.split("."):
            value = value[part]
        assert c.with_overrides({key: value}) == c


@pytest.mark.parametrize("key", ["training.rl", "data.nope"])
def test_a_key_that_is_near_to_none_is_no_other_one(key):
    with pytest.raises(ConfigError) as error:
        Config().with_overrides({key: 1})
    assert "did you mean" not in str(error.value)
