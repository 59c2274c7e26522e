"""The decoder on vLLM, started by this process: paged attention, continuous batches, several GPUs."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from itertools import count
from pathlib import Path
from typing import Any

from aviot.engine.base import EngineUnavailable
from aviot.engine.decoder_folder import THREE_AXES, decoder_config, save_decoder
from aviot.engine.outside import OutsideEngine
from aviot.engine.prompt_rows import PromptRow
from aviot.engine.vllm_positions import POSITIONS, as_text, cache_salt

QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CONFIGURE_LOGGING": "0"}
"""Environment of vLLM: it sends no statistics, and it logs nothing unless it is told to."""


OLD_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""Environment for positions of requests, which vLLM's second model runner does not take."""

SHUTDOWN_SECONDS = 5.0  # after which vLLM's processes are killed


class VllmEngine(OutsideEngine):
    """An engine that runs a model's decoder on vLLM, which must be installed.

    `folder` is a decoder that `save_decoder` wrote; without it one is written for the start and removed again.
    `options` are vLLM's own engine arguments, such as `tensor_parallel_size` or `gpu_memory_utilization`.
    """

    name = "vllm"

    def __init__(self, model: Any, tokenizer: Any, *, folder: Path | None = None, **options: Any) -> None:
        three_axes = decoder_config(model)["architectures"][0] in THREE_AXES.values()
        for variable, value in (QUIET | (OLD_RUNNER if three_axes else {})).items():
            os.environ.setdefault(variable, value)
        import vllm  # takes seconds, and is not everywhere  # noqa: F401

        super().__init__(model, tokenizer)
        with ExitStack() as stack:
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aviot-decoder-"))) / "decoder"
                save_decoder(model, tokenizer, folder)
            dtype = str(model.get_input_embeddings().weight.dtype).removeprefix("torch.")
            arguments = {"dtype": dtype, "enable_prompt_embeds": True, "trust_remote_code": False} | options
            starting = asyncio.run_coroutine_threadsafe(_started(str(folder), arguments), self._loop)
            self._vllm = starting.result()
        self._numbers = count()

    async def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        positions = None if row.positions is None else as_text(row.positions)
        how = SamplingParams(
            temperature=0,
            max_tokens=max_new_tokens,
            stop_token_ids=sorted(self.ends),
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=None if positions is None else {POSITIONS: positions},
        )
        prompt: dict[str, Any] = {"prompt_embeds": row.embeds}
        if positions is not None:
            prompt["cache_salt"] = cache_salt(positions)
        (rendered,) = await self._vllm.renderer.render_cmpl_async([prompt])
        try:
            async with aclosing(self._vllm.generate(rendered, how, f"aviot-{next(self._numbers)}")) as outputs:
                async for output in outputs:
                    yield tuple(output.outputs[0].token_ids)
        except VLLMClientError as error:
            raise ValueError(f"vLLM refuses the prompt: {error}") from error
        except EngineDeadError as error:
            raise EngineUnavailable("vLLM has ended; its log says why, start it again") from error
        except EngineGenerateError as error:
            raise EngineUnavailable(f"vLLM failed: {error.__cause__ or error}") from error

    def problem(self) -> str | None:
        """Return whether vLLM's processes have ended."""
        return "vLLM has ended; its log says why, start it again" if self._vllm is None or self._vllm.errored else None

    async def release(self) -> None:
        """End vLLM's processes."""
        started, self._vllm = self._vllm, None
        started.shutdown(timeout=SHUTDOWN_SECONDS)


async def _started(folder: str, arguments: dict[str, Any]) -> Any:
    """Return vLLM's engine, bound to the running loop."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(model=folder, disable_log_stats=True, **arguments))
