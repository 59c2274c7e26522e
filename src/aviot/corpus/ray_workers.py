"""Workers as actors of Ray Data: rows stream back as they are made, and a worker that dies is replaced.

Ray holds back new videos while all workers are busy. The questions of a video whose worker died are asked again by
another one; rows that had arrived before are not repeated by Ray, nor written twice by the caller.
"""

import json
import logging
import os
import secrets
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from aviot.corpus.config import CorpusConfig
from aviot.corpus.work import IN_FLIGHT, VideoWork, Worker, WorkerPlan
from aviot.utils.printing import json_text

RETRIES = 10
"""Times that the questions of one video are asked again after their worker died."""

MAX_BLOCKS = 10_000
"""Tasks that Ray has in its list; past this number of videos, a task has several of them."""

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""Environment for Ray: it sends no statistics, and tells of its own workings in its log files alone."""

LOCAL = QUIET | {"RAY_AUTH_MODE": "token"}
"""Environment for Ray on this machine: its ports are open to the network, and take nothing without a run's token."""

OBJECT_STORE_BYTES = 200_000_000  # rows are short texts, and videos are read by the workers themselves


def work_on(config: CorpusConfig, work: Sequence[VideoWork]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the evaluation's row of each question, in the order in which they are answered.

    Questions whose worker died too often are left out. Raises ValueError if workers cannot be started.
    """
    with _ray(config.address) as ray:
        from ray.data import ActorPoolStrategy, DataContext
        from ray.exceptions import RayError

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # its import sets another one

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # every row leaves its worker at once
        context.max_errored_blocks = -1  # a video that ends worker after worker is left out
        count, resources, device = _workers(ray.cluster_resources(), config, len(work))
        tasks = [{"work": one.to_json()} for one in work]
        data = ray.data.from_items(tasks, override_num_blocks=min(len(tasks), MAX_BLOCKS))
        compute = ActorPoolStrategy(
            size=count,
            max_tasks_in_flight_per_actor=IN_FLIGHT,
            max_concurrent_calls_per_actor=IN_FLIGHT,
            enable_true_multi_threading=True,
        )
        plan = asdict(WorkerPlan.of(config, device))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a way to say this that Ray 2.64 is to have; the extra stays below it
            rows = data.flat_map(
                RayWorker,
                fn_constructor_args=(plan,),
                compute=compute,
                max_task_retries=RETRIES,
                **resources,
            )
        try:
            for batch in rows.iter_batches(batch_size=None, prefetch_batches=0):
                for text in batch["row"]:
                    found = json.loads(text)
                    if "unusable" in found:
                        raise ValueError(f"a worker could not load the model: {found['unusable']}")
                    yield found["number"], found["result"]
        except RayError as error:
            raise ValueError(f"workers could not be started: {_reason(error)}") from error


class RayWorker:
    """A worker of Ray Data, in a process of its own; one whose model cannot be loaded says so in place of answers."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._worker: Worker | None = None
        try:
            self._worker = Worker(WorkerPlan(**plan))
        except (ValueError, OSError, ImportError) as error:
            self._unusable = str(error)

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, str]]:
        """Yield the rows of one video's questions."""
        if self._worker is None:
            yield {"row": json_text({"unusable": self._unusable})}
        else:
            yield from self._worker(row)


@contextmanager
def _ray(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start Ray on this machine alone and stop it at the end."""
    if "ray" not in sys.modules:  # which reads its environment once
        secret = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        for name, value in (LOCAL | secret if address is None else QUIET).items():
            os.environ.setdefault(name, value)
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        local = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        ray.init(address="local", **local, **quiet)
    else:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(
                f"no Ray cluster answers at {address} ({error}); start it, or correct the address"
            ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _workers(available: dict[str, float], config: CorpusConfig, videos: int) -> tuple[int, dict[str, float], str]:
    """Return the number of workers, the resources of each, and the device that it uses."""
    gpus, cpus = int(available.get("GPU", 0)), int(available.get("CPU", 1))
    on_gpu = config.device.startswith("cuda") or (config.device == "auto" and gpus > 0)
    if on_gpu and not gpus:
        raise ValueError(f"device {config.device} was chosen, and Ray finds no GPU; use the CPU")
    count = min(config.workers or (gpus if on_gpu else 1), videos)
    if count > (limit := gpus if on_gpu else cpus):
        raise ValueError(f"{count} workers need as many {'GPUs' if on_gpu else 'CPUs'}, and Ray finds {limit}")
    if on_gpu:
        return count, {"num_cpus": 1, "num_gpus": 1}, "cuda"
    return count, {"num_cpus": 1 if config.address else cpus // count}, "cpu"


def _reason(error: Exception) -> str:
    """Return the last line of an error of another process that says something."""
    cause = getattr(error, "cause", None)
    lines = [line for line in str(cause or error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
