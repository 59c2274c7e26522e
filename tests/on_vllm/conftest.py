"""vLLM in this process and behind an address, started once: loading takes most of a test's time."""

import pytest
from vllm_server import Served

from aviot.bundled import embedded_model
from aviot.engine.decoder_folder import save_decoder
from aviot.engine.vllm import VllmEngine
from aviot.session import VideoLM


@pytest.fixture(scope="session")
def bundled():
    return VideoLM.from_pretrained(embedded_model(), device="cpu")


@pytest.fixture(scope="session")
def decoder(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder") / "decoder"
    save_decoder(bundled.backbone.model, bundled.backbone.tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def served(decoder, tmp_path_factory):
    server = Served(decoder, tmp_path_factory.mktemp("log") / "vllm.log")
    server.start(wait=False)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="session")
def in_process(bundled, decoder):
    model, tokenizer = bundled.backbone.model, bundled.backbone.tokenizer
    engine = VllmEngine(model, tokenizer, folder=decoder, max_model_len=4096, enforce_eager=True)
    yield engine
    engine.close()
