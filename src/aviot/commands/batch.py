"""`aviot batch`."""

import json
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, InstructionOptions, ModelOptions, SamplingOptions
from aviot.commands.options import Json, MaxNewTokens, MethodOption
from aviot.commands.terminal import counted, hints, mistakes, refuse, say
from aviot.methods.registry import DEFAULT

MAX_LISTED = 20

Questions = Annotated[
    Path, typer.Argument(help="JSON, JSONL or a dataset folder: video, question, options, id.", show_default=False)
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File of the answers (JSONL).", show_default=False)]
Videos = Annotated[
    Path | None, typer.Option(help="Folder that video paths are relative to. Default: that of QUESTIONS.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of processes that answer, each with the model. Default: one per GPU, else one."),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, whose machines see model and videos at the same paths. Default: this machine."
    ),
]


@expand_groups
def batch(
    questions: Questions,
    output: Output,
    *,
    model: ModelOptions,
    budget: AnswerBudget,
    method: MethodOption = DEFAULT,
    videos: Videos = None,
    workers: Workers = None,
    address: Address = None,
    resume: Annotated[bool, typer.Option("--resume", help="Ask the questions that have no answer yet.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="With --resume: ask again the questions that failed.")] = False,
    together: Annotated[
        int, typer.Option("--batch", help="Number of questions about a video that the decoder reads at a time.")
    ] = 1,
    max_new_tokens: MaxNewTokens = 64,
    instructions: InstructionOptions,
    sampling: SamplingOptions,
    as_json: Json = False,
) -> None:
    """Answer questions about a corpus of videos, with several processes or machines by Ray Data.

    Each video is decoded and encoded once for all its questions. Answers are appended to the output as they come, and
    stand in the order of the questions at the end; a question that cannot be answered has the reason instead. After an
    interruption, --resume asks what is missing. Answers are those of aviot evaluate.

    Example: aviot batch questions.jsonl -o answers.jsonl --model checkpoints/aviot-7b --ratio 4
    """
    with mistakes():
        if retry and not resume:
            raise ValueError("--retry asks failed questions again; add --resume")
        if not questions.exists():
            raise ValueError(f"{questions}: no such file; give JSON, JSONL or a dataset folder")
        limit = budget.chosen
        chosen = model.choice()
        if find_spec("ray") is None:
            raise ModuleNotFoundError("no module named 'ray'", name="ray")
        from aviot.corpus.config import CorpusConfig
        from aviot.evaluation.reading import read_items

        config = CorpusConfig(
            questions=questions,
            model=chosen.folder,
            out=output,
            videos=videos,
            method=method,
            budget=limit,
            sampling=sampling.given,
            instructions=instructions.instructions(),
            max_new_tokens=max_new_tokens,
            together=together,
            limits=sampling.limits,
            loading=chosen.options,
            base=model.base,
            device=model.device,
            workers=workers,
            address=address,
        )
        read_items(config.questions, videos=config.videos)  # finds unusable ones before torch and Ray are imported
        from aviot.corpus.answers import AnswersExistError, NoAnswersError
        from aviot.corpus.run import answer_corpus

        report = say if sys.stderr.isatty() else _silent
        existing = hints({AnswersExistError: "--resume", NoAnswersError: "without --resume"})
        with existing, redirect_stdout(sys.stderr):  # where Ray's own messages belong
            result = answer_corpus(config, resume=resume, retry=retry, report=report)
    if as_json:
        print(json.dumps({"answers": str(output)} | result.as_dict(), indent=2))
    for row in result.failed[:MAX_LISTED]:
        say(f"{row['id']}: {row['failed']}")
    more = len(result.failed) - MAX_LISTED
    listed = f"; {more} more failures are in {output}" if more > 0 else ""
    count = counted(result.questions - len(result.failed), "answer")
    say(f"{output}: {count}, {len(result.failed)} failed, about {counted(result.videos, 'video')}{listed}")
    if result.questions == len(result.failed):
        refuse("no question could be answered; see the reasons above", code=1)


def _silent(_: str) -> None:
    """Ignore a progress report."""
