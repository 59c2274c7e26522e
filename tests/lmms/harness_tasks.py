"""lmms-eval's own tasks over records that are given, without their datasets."""

from functools import cache

from datasets import Dataset, DatasetDict
from lmms_eval.api.task import ConfigurableMessagesTask
from lmms_eval.tasks import TaskManager


def prompt_of(task: str, record: dict) -> str:
    """What the harness itself would say to a model for a record."""

    class Given(ConfigurableMessagesTask):
        def download(self, dataset_kwargs=None):
            split = self.config.test_split or self.config.validation_split
            self.dataset = self.dataset_no_image = DatasetDict({split: Dataset.from_list([record])})

    return Given(config=manager()._get_config(task), model_name="aviot").doc_to_text(record)


@cache
def manager() -> TaskManager:
    return TaskManager(model_name="aviot")
