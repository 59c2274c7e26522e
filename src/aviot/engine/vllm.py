"""The decoder on vLLM, started by this process: paged attention, continuous batches, several GPUs."""

import json
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from itertools import count
from pathlib import Path
from typing import Any

from aviot.engine.base import EngineUnavailable
from aviot.engine.decoder_folder import THREE_AXES, end_tokens, save_decoder
from aviot.engine.outside import FINISHED, OutsideEngine
from aviot.engine.prompt_rows import PromptRow
from aviot.engine.vllm_positions import POSITIONS, as_text, cache_salt

QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CONFIGURE_LOGGING": "0"}
"""Environment of vLLM: it sends no statistics, and it logs nothing unless it is told to."""

OLD_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""Environment for positions of requests, which vLLM's second model runner does not take."""

ENDED = "vLLM has ended; its log says why, start it again"
SHUTDOWN_SECONDS = 5.0  # after which vLLM's processes are killed


class VllmDecoder:
    """A decoder folder on vLLM, which must be installed; `started` and `decode` run on one event loop.

    `options` are vLLM's own engine arguments, such as `tensor_parallel_size` or `gpu_memory_utilization`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        three_axes = config["architectures"][0] in THREE_AXES.values()
        for variable, value in (QUIET | (OLD_RUNNER if three_axes else {})).items():
            os.environ.setdefault(variable, value)
        self._arguments = {"model": str(folder), "dtype": config["dtype"], "enable_prompt_embeds": True}
        self._arguments |= {"trust_remote_code": False, "disable_log_stats": True} | options
        self._ends = sorted(end_tokens(config))
        self._numbers = count()
        self._vllm: Any = None

    async def start(self) -> None:
        """Start vLLM, and wait until it has loaded the decoder."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._vllm = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments))

    async def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        if self._vllm is None:
            raise EngineUnavailable("vLLM is starting, or has been closed; send the request again later")
        positions = None if row.positions is None else as_text(row.positions)
        how = SamplingParams(
            temperature=0,
            max_tokens=max_new_tokens,
            stop_token_ids=self._ends,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=None if positions is None else {POSITIONS: positions},
        )
        prompt: dict[str, Any] = {"prompt_embeds": row.embeds}
        if positions is not None:
            prompt["cache_salt"] = cache_salt(positions)
        try:
            (rendered,) = await self._vllm.renderer.render_cmpl_async([prompt])
            async with aclosing(self._vllm.generate(rendered, how, f"aviot-{next(self._numbers)}")) as outputs:
                async for output in outputs:
                    found = output.outputs[0]
                    if found.finish_reason not in (None, *FINISHED):
                        raise EngineUnavailable(f"vLLM ended the answer early: {found.finish_reason}; send it again")
                    yield tuple(found.token_ids)
        except VLLMClientError as error:
            raise ValueError(f"vLLM refuses the prompt: {error}") from error
        except EngineDeadError as error:
            raise EngineUnavailable(ENDED) from error
        except EngineGenerateError as error:
            raise EngineUnavailable(f"vLLM failed: {error.__cause__ or error}") from error

    @property
    def unfinished(self) -> int:
        """The number of requests that vLLM works on."""
        return 0 if self._vllm is None else int(self._vllm.get_num_unfinished_requests())

    def problem(self) -> str | None:
        """Return why vLLM cannot answer; None if it can."""
        return ENDED if self._vllm is None or self._vllm.errored else None

    def close(self) -> None:
        """End vLLM's processes."""
        started, self._vllm = self._vllm, None
        if started is not None:
            started.shutdown(timeout=SHUTDOWN_SECONDS)


class VllmEngine(OutsideEngine):
    """An engine that runs a model's decoder on vLLM, started by this process.

    `folder` is a decoder that `save_decoder` wrote; without it one is written for the start and removed again.
    `options` are those of `VllmDecoder`.
    """

    name = "vllm"

    def __init__(self, model: Any, tokenizer: Any, *, folder: Path | None = None, **options: Any) -> None:
        super().__init__(model, tokenizer)
        with ExitStack() as stack:
            unless_started = stack.enter_context(ExitStack())
            unless_started.callback(self.close)
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aviot-decoder-"))) / "decoder"
                save_decoder(model, tokenizer, folder)
            self.decoder = VllmDecoder(folder, **options)
            self.in_loop(self.decoder.start())
            unless_started.pop_all()

    def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt."""
        return self.decoder.decode(row, max_new_tokens)

    def problem(self) -> str | None:
        """Return whether vLLM's processes have ended."""
        return self.decoder.problem()

    async def release(self) -> None:
        """End vLLM's processes, if they were started."""
        if hasattr(self, "decoder"):
            self.decoder.close()
