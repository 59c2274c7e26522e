"""`aviot app`."""

from typing import Annotated

import typer

from aviot.commands.options import Device, MaxNewTokens, Model
from aviot.terminal import load_model, mistakes, printable, say, working


def app(
    model: Model = None,
    host: Annotated[str, typer.Option(help="Bind address. Anything but localhost exposes the app to your network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve at; 0: any free one.")] = 8765,
    max_upload: Annotated[int, typer.Option(help="Largest video, in MB.")] = 512,
    max_new_tokens: MaxNewTokens = 64,
    device: Device = "auto",
) -> None:
    """Serve a page to drop a video in, ask about it, and see where the answer came from.

    Nobody but this machine can reach it unless --host says so. Ctrl-C ends it.

    Example: aviot app --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.machine import check_device_name
        from aviot.request import checkpoint_folder

        if max_upload < 1:
            raise ValueError(f"--max-upload must be at least 1 MB, got {max_upload}")
        if model is not None:
            checkpoint_folder(model)
        check_device_name(device)
        from aviot.explain.server import App, Limits
        from aviot.explain.videos import Videos

        limits = Limits(max_upload * 1_000_000)
        loaded, processor = load_model(model, device, report)
        try:
            server = App((host, port), Videos(loaded, processor, max_new_tokens), limits, say)
        except OSError as error:
            raise ValueError(
                f"cannot serve at {host}:{port} ({error.strerror}); try another --port or --host"
            ) from error
    info = server.videos.info
    say(printable(f"answers come from {info.name} ({info.facts})"))
    print(server.url, flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
