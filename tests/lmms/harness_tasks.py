"""lmms-eval's own tasks over records that are given, without their datasets."""

from functools import cache

from datasets import Dataset, DatasetDict
from lmms_eval.api.task import ConfigurableMessagesTask
from lmms_eval.tasks import TaskManager


class Given(ConfigurableMessagesTask):
    """A task as the harness sets it up, but for its records."""

    def __init__(self, name: str, records: list[dict]) -> None:
        self._records = records
        super().__init__(config=manager()._get_config(name), model_name="aviot")

    def download(self, dataset_kwargs=None):
        split = self.config.test_split or self.config.validation_split
        self.dataset = self.dataset_no_image = DatasetDict({split: Dataset.from_list(self._records)})


def prompt_of(name: str, record: dict) -> str:
    """What the harness itself would say to a model for a record."""
    return Given(name, [record]).doc_to_text(record)


@cache
def manager() -> TaskManager:
    return TaskManager(model_name="aviot")
