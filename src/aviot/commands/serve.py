"""`aviot serve`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from aviot.budget import AutoBudget
from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, ModelOptions
from aviot.commands.options import Compile, MaxNewTokens, MethodOption, ReadTimeout
from aviot.commands.terminal import mistakes, say, serving_at, working
from aviot.engine.choice import TRANSFORMERS, check_engine
from aviot.methods.registry import DEFAULT
from aviot.video.checks import DEFAULT_LIMITS

KEY_VARIABLE = "AVIOT_API_KEY"
ENGINE_KEY_VARIABLE = "AVIOT_ENGINE_KEY"
MEGABYTE = 1_000_000
EXPOSED = (
    "Anything but localhost exposes the server to your network: whoever has the API key can use it, and traffic is not "
    "encrypted."
)


@expand_groups
def serve(
    *,
    model: ModelOptions,
    compiled: Compile = False,
    name: Annotated[
        str | None,
        typer.Option(help="Name that clients give as model. Default: the folder's name.", show_default=False),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Bind address. Anything but localhost exposes the server to your network, and needs a key."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8000,
    allow_host: Annotated[
        list[str],
        typer.Option(help="Another NAME or NAME:PORT under which clients reach the server; repeat.", metavar="NAME"),
    ] = [],  # noqa: B006
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with the API key that clients must send. Default: the variable {KEY_VARIABLE}; without one, "
            "no key on localhost, and elsewhere a new one that is printed.",
            show_default=False,
        ),
    ] = None,
    media_folder: Annotated[
        Path | None,
        typer.Option(help="Folder whose videos requests may name as file:///NAME. Default: none.", show_default=False),
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Fetch videos that requests name by public http and https addresses.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="Where the decoder runs: transformers, vllm, or the address of a vLLM server that has this model's "
            f"decoder (aviot convert --decoder); its API key is read from {ENGINE_KEY_VARIABLE}.",
            metavar="NAME|URL",
        ),
    ] = TRANSFORMERS,
    method: MethodOption = DEFAULT,
    budget: AnswerBudget,
    max_new_tokens: MaxNewTokens = 64,
    places: Annotated[int, typer.Option(min=1, help="Answers that are decoded at a time, in one batch.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Most requests that are waited for or worked on.")] = 128,
    wait: Annotated[float, typer.Option(help="Seconds that a request may wait for its turn.", metavar="SECONDS")] = 120,
    answer_time: Annotated[
        float, typer.Option(help="Seconds after which a request must have its whole answer.", metavar="SECONDS")
    ] = 300,
    max_upload: Annotated[int, typer.Option(min=1, help="Largest request, in MB; base64 takes a third more.")] = 128,
    max_duration: Annotated[float, typer.Option(help="Longest video, in seconds.", metavar="SECONDS")] = 14400,
    max_frames: Annotated[int, typer.Option(min=1, help="Most frames that a request may choose.")] = 1024,
    max_answer: Annotated[int, typer.Option(min=1, help="Most tokens of an answer that a request may choose.")] = 2048,
    cache: Annotated[int, typer.Option(min=1, help="Memory for features of encoded videos, in MB.")] = 2000,
    cache_folder: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps features on disk too. Default: memory only.", show_default=False),
    ] = None,
    cache_disk: Annotated[int, typer.Option(min=1, help="Most that the cache folder holds, in MB.")] = 20_000,
    streams: Annotated[int, typer.Option(min=0, help="Streams that can be open at a time; 0: none.")] = 8,
    stream_memory: Annotated[int, typer.Option(min=1, help="Largest memory of one stream, in MB.")] = 500,
    stream_idle: Annotated[
        float, typer.Option(help="Seconds after which a stream that is neither fed nor asked ends.", metavar="SECONDS")
    ] = 600,
    read_timeout: ReadTimeout = DEFAULT_LIMITS.seconds,
) -> None:
    """Answer questions about videos for clients of the OpenAI protocol.

    Only this machine can reach it unless --host says otherwise. Ctrl-C or SIGTERM finishes the requests that it has
    taken; a second one ends it at once.

    Example: aviot serve --model checkpoints/aviot-7b --media-folder talks
    """
    with mistakes(), working() as report:
        import fastapi  # noqa: F401  # found missing before the model is loaded
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401

        from aviot.serve.settings import Limits, Settings
        from aviot.video.checks import ReadLimits
        from aviot.web.access import Access, resolve

        check_engine(engine)
        key, limit = _key(api_key_file), budget.chosen
        limits = Limits(
            upload_bytes=max_upload * MEGABYTE,
            uploads_bytes=4 * max_upload * MEGABYTE,
            frames=max_frames,
            video_seconds=max_duration,
            new_tokens=max_answer,
            queue=queue,
            wait_seconds=wait,
            answer_seconds=answer_time,
            read=ReadLimits(seconds=read_timeout),
        )
        chosen = replace(model.choice(), compile_encoder=compiled)
        settings = Settings(
            name=name or model.served_name,
            limits=limits,
            method=method,
            budget=limit,
            max_new_tokens=max_new_tokens,
            media_folder=media_folder,
            allow_remote=allow_remote,
            feature_bytes=cache * MEGABYTE,
            feature_folder=cache_folder,
            disk_bytes=cache_disk * MEGABYTE,
            streams=streams,
            stream_bytes=stream_memory * MEGABYTE,
            stream_seconds=stream_idle,
        )
        Access.of(host, port, allow_host)
        with serving_at(host, port):
            resolve(host, port)
        from aviot.serve.run import At, Serving, share_processors, with_engine
        from aviot.training.shutdown import end_process

        lm = chosen.load(report)
        report("start the engine")
        lm = with_engine(lm, engine, places, os.environ.get(ENGINE_KEY_VARIABLE))
        lm.backbone.method(method)
        if isinstance(limit, AutoBudget) and not lm.engine.tells_probabilities:
            sentence = f"--budget {budget.budget} needs probabilities of answers, which --engine {engine} does not tell"
            raise ValueError(sentence)
        share_processors(lm)
        with serving_at(host, port):
            server = Serving(lm, settings, At(host, port, allow_host, key))
    say(f"model {settings.name}, up to {lm.engine.places} answers at a time")
    if server.access.token is not None:
        say(EXPOSED)
    if key is None and server.key is not None:
        say(f"API key: {server.key}")
    server.run(lambda: print(server.url, flush=True))
    say("ended")
    end_process()  # without finalisation, which would abort in a thread that is still reading a video


def _key(file: Path | None) -> str | None:
    """Return the API key; raise ValueError for one that no header can carry."""
    found = os.environ.get(KEY_VARIABLE) if file is None else file.read_text(encoding="utf-8")
    if found is None:
        return None
    key = found.strip()
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        where = KEY_VARIABLE if file is None else file
        raise ValueError(f"{where}: an API key must be printable ASCII text without spaces, and not empty")
    return key
