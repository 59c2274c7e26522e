"""Calibrate and measure automatic budgets in the world without the command line's packages; or draw a report again.

    python benchmarks/auto_budget.py -o RUN --device cuda      # as aviot reproduce --experiment auto --setting full
    python benchmarks/auto_budget.py -o RUN --redraw           # report and plot from RUN/report.json

It needs no pydantic, PyAV or matplotlib, and resumes. Without matplotlib the report has no plot.
"""

import argparse
import json
from pathlib import Path

import torch

from aviot import VideoLM
from aviot.bundled import embedded_model
from aviot_lab.auto.report import document_of, lines_of
from aviot_lab.auto.run import AutoOptions, measure_auto
from aviot_lab.auto.size import size_named
from aviot_lab.reproduce.progress import RunProgress
from aviot_lab.reproduce.write import write_document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("-m", "--model", type=Path, help="a checkpoint folder; default: the bundled demo model")
    parser.add_argument("--setting", default="full", help="small or full; default: full")
    parser.add_argument("--questions", type=int, help="of the test split; default: the setting's")
    parser.add_argument("--frames", type=int, help="per video; default: the setting's")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--redraw", action="store_true", help="write report.md and report.html from report.json again")
    given = parser.parse_args()
    if given.redraw:
        report = json.loads((given.output / "report.json").read_text())
        write_document(given.output, report, document_of(report))
    else:
        options = AutoOptions(
            folder=given.model or embedded_model(),
            setting=given.setting,
            size=size_named(given.setting, given.questions, given.frames),
            seed=0,
            out=given.output,
            device=torch.device(given.device),
        )
        with RunProgress() as progress:
            report = measure_auto(
                options, lambda folder: VideoLM.from_pretrained(folder, device=given.device), progress
            )
    print("\n".join(lines_of(report["figures"])))


if __name__ == "__main__":
    main()
