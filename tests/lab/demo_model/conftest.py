from functools import partial

import pytest
from narrow import narrow_config

from aviot_lab.demo_model import architecture
from aviot_lab.demo_model import tokenizer as tokenizers
from aviot_lab.demo_model.training_model import OPTION_LAYERS


@pytest.fixture
def narrow(monkeypatch, tokenizer):
    """Runs and exports are of a model of the small one's shape, a few channels wide, and train no tokenizer anew."""
    monkeypatch.setattr(architecture, "small_config", partial(narrow_config, decoder_layers=OPTION_LAYERS))
    monkeypatch.setattr(tokenizers, "build_tokenizer", lambda: tokenizer)
