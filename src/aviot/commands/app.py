"""`aviot app`."""

from typing import Annotated

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import ModelOptions
from aviot.commands.options import MaxNewTokens, MethodOption, ReadTimeout
from aviot.commands.terminal import mistakes, say, serving_at, working
from aviot.methods.registry import DEFAULT
from aviot.video.checks import DEFAULT_LIMITS


@expand_groups
def app(
    *,
    model: ModelOptions,
    host: Annotated[
        str,
        typer.Option(help="Bind address. Anything but localhost exposes the app to your network and requires a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8765,
    allow_host: Annotated[
        list[str],
        typer.Option(
            help="Another NAME or NAME:PORT under which browsers reach the app, through a tunnel or proxy; repeat.",
            metavar="NAME",
        ),
    ] = [],  # noqa: B006
    max_upload: Annotated[int, typer.Option(help="Largest video to accept, in MB.")] = 512,
    method: MethodOption = DEFAULT,
    max_new_tokens: MaxNewTokens = 64,
    read_timeout: ReadTimeout = DEFAULT_LIMITS.seconds,
) -> None:
    """Serve a page to upload a video, ask about it, and see which frames and patches the answer was made from.

    Only this machine can reach it unless --host says otherwise; then the printed address includes a token, without
    which no request is answered. Ctrl-C or SIGTERM ends it and deletes all uploads.

    Example: aviot app --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        import fastapi  # noqa: F401  # found missing before the model is loaded
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401

        from aviot.request import check_compresses
        from aviot.web.access import EXPOSED, Access, resolve

        if max_upload < 1:
            raise ValueError(f"--max-upload must be at least 1 MB, got {max_upload}")
        check_compresses(method)
        chosen = model.choice()
        Access.of(host, port, allow_host)
        with serving_at(host, port):
            resolve(host, port)
        from aviot.app.run import AppSettings, ServingApp
        from aviot.serve.run import At
        from aviot.training.shutdown import end_process
        from aviot.video.checks import ReadLimits

        settings = AppSettings(
            name=model.served_name,
            upload_bytes=max_upload * 1_000_000,
            method=method,
            max_new_tokens=max_new_tokens,
            read=ReadLimits(seconds=read_timeout),
        )
        lm = chosen.load(report)
        lm.backbone.method(method)
        with serving_at(host, port):
            server = ServingApp(lm, settings, At(host, port, allow_host))
    info = server.service.info
    say(f"answers come from {info.name} ({info.facts})")
    if server.access.token is not None:
        say(EXPOSED)
    server.run(lambda: print(server.url, flush=True))
    say("ended")
    end_process()  # without finalisation, which would abort in a thread that still answers a request
