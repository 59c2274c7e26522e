"""Front-ends and decoders as deployments of Ray Serve, each with as many replicas as the load needs.

A front-end is `aviot serve`'s own application: it decodes, encodes and compresses. What it keeps are caches; any other
one answers the next request. A decoder has a decoder folder on one GPU, and takes prompts from all front-ends.

    serve run aviot.serve.ray:build model=/shared/aviot-7b decoder=/shared/aviot-7b-decoder engine=vllm
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, Field
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle

from aviot.engine.base import DecoderInput, EngineUnavailable, Piece
from aviot.engine.choice import ADDRESS, TRANSFORMERS, check_engine, engine_of
from aviot.engine.outside import OutsideEngine
from aviot.engine.prompt_rows import PromptRow
from aviot.methods.registry import DEFAULT
from aviot.request import MAX_NEW_TOKENS, checkpoint_folder
from aviot.serve.app import OPEN, Service, refused_response
from aviot.serve.settings import Settings
from aviot.web.access import Access
from aviot.web.gate import Application, Gate, Keys

logger = logging.getLogger(__name__)

KEY_VARIABLE, ENGINE_KEY_VARIABLE = "AVIOT_API_KEY", "AVIOT_ENGINE_KEY"
MOST_REQUESTS = 64  # that one replica works on at a time
BUSY = 0.5  # the share of them above which another replica is started
ENDING_SECONDS = 330.0  # in which a replica that is stopped finishes what it took


class Replicas(BaseModel, extra="forbid"):
    """The smallest and largest number of replicas of a deployment, and the CPUs and GPUs of each."""

    least: int = Field(default=1, ge=1)
    most: int = Field(default=1, ge=1)
    cpus: float = 1
    gpus: float = 0

    def options(self) -> dict[str, Any]:
        """Return the options of a deployment."""
        scaling = {"min_replicas": self.least, "max_replicas": max(self.least, self.most)}
        return {
            "ray_actor_options": {"num_cpus": self.cpus, "num_gpus": self.gpus},
            "autoscaling_config": scaling | {"target_ongoing_requests": MOST_REQUESTS * BUSY},
            "max_ongoing_requests": MOST_REQUESTS,
            "graceful_shutdown_timeout_s": ENDING_SECONDS,
        }


class Plan(BaseModel, extra="forbid"):
    """The settings of a deployment; paths are the same on every machine.

    `engine` is `transformers` or `vllm`, which `decoders` run on the folder `decoder`, or the address of a vLLM server.
    `host` and `port` are where Ray Serve listens, and `names` other names under which clients reach it. Anything but a
    loopback address needs an API key in the variable AVIOT_API_KEY of every front-end.
    """

    model: str | None = None
    decoder: str | None = None
    engine: str = TRANSFORMERS
    engine_options: dict[str, Any] = {}
    name: str | None = None
    method: str = DEFAULT
    max_new_tokens: int = MAX_NEW_TOKENS
    media_folder: str | None = None
    device: str = "auto"
    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    front_ends: Replicas = Replicas()
    decoders: Replicas = Replicas()

    def check(self) -> None:
        """Raise ValueError for a plan that could not be deployed."""
        check_engine(self.engine)
        if self.model is not None:
            checkpoint_folder(self.model)
        if not self.engine.startswith(ADDRESS):
            if self.decoder is None:
                raise ValueError("name the folder of the decoder, which aviot convert writes (decoder=FOLDER)")
            checkpoint_folder(self.decoder)
        self.gate(None)

    def gate(self, application: Any) -> Gate:
        """Return the gate of a front-end; ValueError without a key where others can reach it."""
        access, key = Access.of(self.host, self.port, self.names), os.environ.get(KEY_VARIABLE)
        if access.token is not None and not key:
            raise ValueError(f"{self.host} can be reached by others, which needs an API key in {KEY_VARIABLE}")
        return Gate(application, access, Keys(key, OPEN), refused_response)


class RayEngine(OutsideEngine):
    """An engine that sends prompts to a deployment of decoders."""

    name = "ray"

    def __init__(self, model: Any, tokenizer: Any, decoders: DeploymentHandle) -> None:
        super().__init__(model, tokenizer)
        self._decoders = decoders.options(stream=True)

    async def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt."""
        positions = None if row.positions is None else row.positions.numpy()
        arriving = self._decoders.decode.remote(as_numpy(row.embeds), positions, str(row.embeds.dtype), max_new_tokens)
        try:
            async for tokens in arriving:
                yield tuple(tokens)
        except RayError as error:
            if isinstance(cause := getattr(error, "cause", None), ValueError | EngineUnavailable):
                raise cause from error
            raise EngineUnavailable(f"a decoder failed ({type(error).__name__}); send the request again") from error
        finally:
            arriving.cancel()


class Decoder:
    """A decoder folder on one device, for the prompts of all front-ends."""

    async def __init__(self, plan: Plan) -> None:  # type: ignore[misc]  # Ray Serve waits for it
        from aviot.engine.decoder_folder import load_decoder
        from aviot.engine.vllm import VllmDecoder
        from aviot.utils.machine import device_named

        folder = Path(plan.decoder or "")
        self._vllm: VllmDecoder | None = None
        if plan.engine == TRANSFORMERS:
            model, tokenizer = load_decoder(folder, device_named(plan.device))
            self._device, self._engine = model.device, engine_of(TRANSFORMERS, model, tokenizer)
            return
        self._vllm = VllmDecoder(folder, **plan.engine_options)
        await self._vllm.start()

    async def decode(self, embeds: Any, positions: Any, dtype: str, max_new_tokens: int) -> AsyncGenerator[list[int]]:
        """Yield the tokens of the greedy answer to one prompt."""
        tensor = torch.from_numpy(embeds.copy()).to(getattr(torch, dtype.removeprefix("torch.")))
        row = PromptRow(tensor, None if positions is None else torch.from_numpy(positions.copy()))
        if self._vllm is None:
            async for piece in self._pieces(row, max_new_tokens):
                yield list(piece.tokens)
            return
        async for tokens in self._vllm.decode(row, max_new_tokens):
            yield list(tokens)

    def check_health(self) -> None:
        """Raise if vLLM has ended, so that Ray Serve replaces this replica."""
        problem = None if self._vllm is None else self._vllm.problem()
        if problem is not None:
            raise RuntimeError(problem)

    async def _pieces(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[Piece]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Piece | Exception]()
        length = len(row.embeds)
        mask = torch.ones(1, length, dtype=torch.long, device=self._device)
        arguments = {"inputs_embeds": row.embeds[None].to(self._device), "attention_mask": mask}
        inputs = DecoderInput(arguments, length, ((0, length),))

        def deliver(piece: Piece | Exception) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, piece)

        cancel = self._engine.submit(inputs, max_new_tokens, deliver)
        try:
            while True:
                piece = await arrived.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish is not None:
                    return
        finally:
            cancel()


@serve.ingress()
class FrontEnd:
    """The application of `aviot serve`, with decoders of another deployment or behind an address."""

    def __init__(self, plan: Plan, decoders: DeploymentHandle | None = None) -> None:
        from aviot.bundled import embedded_model
        from aviot.session import VideoLM

        self._plan = plan
        folder = Path(plan.model) if plan.model is not None else embedded_model()
        lm = VideoLM.from_pretrained(folder, device=plan.device)
        model, tokenizer = lm.backbone.model, lm.backbone.tokenizer
        if decoders is None:
            lm.engine = engine_of(plan.engine, model, tokenizer, key=os.environ.get(ENGINE_KEY_VARIABLE))
        else:
            engine = RayEngine(model, tokenizer, decoders)
            engine.free_decoder()
            lm.engine = engine
        media = None if plan.media_folder is None else Path(plan.media_folder)
        self._lm = lm
        self._settings = Settings(
            name=plan.name or ("aviot" if plan.model is None else folder.resolve().name),
            method=plan.method,
            max_new_tokens=plan.max_new_tokens,
            media_folder=media,
            streams=0,  # one is on a single front-end, and requests go to any
        )

    def __serve_build_asgi_app__(self) -> Application:  # Ray Serve's name
        """Return the application; called on the event loop's thread."""
        return self._plan.gate(Service(self._lm, self._settings).app)


def build(plan: Plan) -> Any:
    """Return the application for `serve run` and `serve deploy`, whose arguments are those of `Plan`."""
    plan.check()
    front_end = serve.deployment(FrontEnd, **plan.front_ends.options())
    if plan.engine.startswith(ADDRESS):
        return front_end.bind(plan)
    decoders = serve.deployment(Decoder, **plan.decoders.options()).bind(plan)
    return front_end.bind(plan, decoders)


def as_numpy(embeds: torch.Tensor) -> Any:
    """Return embeddings for Ray, which takes numpy's types: bfloat16 goes as float32, without a loss."""
    return (embeds.float() if embeds.dtype == torch.bfloat16 else embeds).numpy()
