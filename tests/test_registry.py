"""Every architecture that the settings name can be built by its name."""

from typing import get_args

import pytest

from spikehtr.config import Config, ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.registry import NETWORKS, build


def test_every_name_of_the_settings_is_there():
    assert set(NETWORKS) == set(get_args(ModelConfig.model_fields["arch"].annotation))


@pytest.mark.parametrize("arch", NETWORKS)
def test_each_is_built_as_what_it_is_called(arch):
    config = Config.preset("tiny" if arch == "spike-htr" else arch).with_overrides({"model.baseline.scale": 0.05})
    assert type(build(config.model, 7)).__name__ == NETWORKS[arch][1]


def test_a_whole_configuration_is_refused():
    with pytest.raises(SpikeHTRError, match=r"cfg\.model, not Config"):
        build(Config(), 7)
