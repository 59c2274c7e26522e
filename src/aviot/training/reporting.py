"""Experiment trackers that a run reports to, checked before anything else is done."""

import importlib.util
from collections.abc import Sequence

TRACKERS: dict[str, tuple[str, ...]] = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub", "mlflow"),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""Names of the Trainer's `report_to`, and the packages that each imports."""

PACKAGES = {"azureml": "azureml-core mlflow azureml-mlflow", "comet_ml": "comet-ml"}
"""What pip calls a package whose name is not that of its import."""


def require_trackers(names: Sequence[str]) -> None:
    """Raise ValueError for a tracker that is not known or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(
                f"logging.report_to must be none or some of {', '.join(TRACKERS)}, got {name!r}; correct the name, or "
                "set logging.report_to=none"
            )
        for module in TRACKERS[name]:
            if importlib.util.find_spec(module) is None:
                raise ValueError(
                    f"logging.report_to is {name}, which needs the package {module}, and that is not installed; "
                    f"pip install {PACKAGES.get(module, module)}, or set logging.report_to=none"
                )
