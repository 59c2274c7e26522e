"""`aviot` in a process of its own; or killed by itself while it writes a row, after so many that it writes whole."""

import os
import signal
import sys

from aviot.cli import app
from aviot.evaluation import run
from aviot.utils import journal


class Doomed(journal.Journal):
    left = 0

    def add(self, row):
        if Doomed.left == 0:
            self._file.write(journal.as_line(row)[:-9])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        Doomed.left -= 1
        super().add(row)


def aviot(*words: str) -> None:
    sys.argv = ["aviot", *words]
    app(prog_name="aviot")


def aviot_killed(rows_written: str, *words: str) -> None:
    Doomed.left = int(rows_written)
    run.Journal = Doomed
    aviot(*words)
