"""`python -m aviot`, which torchrun and accelerate can start: the command line."""

from aviot.cli import app

app(prog_name="aviot")
