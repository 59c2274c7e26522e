"""What lmms-eval's registry is told; its entry point loads this, and nothing heavy with it."""

from lmms_eval.models.registry_v2 import ModelManifest


def manifest() -> ModelManifest:
    """One chat model, `aviot`."""
    return ModelManifest(model_id="aviot", chat_class_path="aviot.evaluation.lmms.model.Aviot")
