"""Open answers put to a judge: every verdict on disk as it comes, and what got none reported as such."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from aviot.evaluation.endpoint import Endpoint, EndpointError
from aviot.evaluation.item import Item
from aviot.evaluation.judge import judge_messages, parse_verdict
from aviot.evaluation.plan import Key
from aviot.evaluation.rows import ANSWERED, settled
from aviot.journal import Row


def wants_judge(row: Mapping[str, Any], items: Sequence[Item]) -> bool:
    """Whether a row is an answer to an open question whose right answer is known."""
    return row["status"] == ANSWERED and row["kind"] == "open" and items[row["item"]].has_answer


def judge_rows(endpoint: Endpoint, rows: Iterable[Row], items: Sequence[Item]) -> Iterator[Row]:
    """A verdict, or why there is none, for each row, as they come; a judge that turns everyone away is left alone."""
    hopeless: list[str] = []

    def judge(row: Row) -> Row:
        item = items[row["item"]]
        told = {"item": row["item"], "setting": row["setting"]}
        if hopeless:
            return told | {"unjudged": hopeless[0]}
        messages = judge_messages(item.question, " / ".join(item.answers), row["prediction"])
        try:
            verdict = endpoint.complete(messages, parse_verdict)
        except EndpointError as error:
            if error.hopeless:
                hopeless.append(str(error))
            return told | {"unjudged": str(error)}
        return told | {"correct": verdict.correct, "score": verdict.score}

    pool = ThreadPoolExecutor(endpoint.parallel)
    try:
        for done in as_completed([pool.submit(judge, row) for row in rows]):
            yield done.result()
    finally:  # an interrupt does not wait for requests that have not been sent
        pool.shutdown(cancel_futures=True)


def verdicts(rows: Iterable[Row]) -> dict[Key, Row]:
    """The verdict of each row; one that was judged at last replaces one that was not."""
    return settled(rows, lambda row: "unjudged" in row)


def with_verdict(row: Row, verdict: Mapping[str, Any] | None) -> Row:
    """A row beside what the judge said of it."""
    if verdict is None:
        return row
    return row | {"judge": {name: value for name, value in verdict.items() if name not in ("item", "setting")}}
