"""`aviot`, killed by itself while it writes a row: the first argument says how many rows it writes whole before."""

import os
import signal
import sys

from aviot.cli import app
from aviot.evaluation import journal


class Doomed(journal.Journal):
    left = int(sys.argv.pop(1))

    def add(self, row):
        if Doomed.left == 0:
            self._file.write(journal.as_line(row)[:-9])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        Doomed.left -= 1
        super().add(row)


if __name__ == "__main__":
    from aviot.evaluation import run

    run.Journal = Doomed
    app(prog_name="aviot")
