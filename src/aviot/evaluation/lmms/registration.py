"""Entry point of lmms-eval's model registry; imports nothing heavy."""

from lmms_eval.models.registry_v2 import ModelManifest


def manifest() -> ModelManifest:
    """Return the registration of the chat model `aviot`."""
    return ModelManifest(model_id="aviot", chat_class_path="aviot.evaluation.lmms.model.Aviot")
