"""A model's decoder as a checkpoint of its own: a plain causal language model that reads embeddings, for vLLM."""

import copy
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from aviot.engine.prompt_rows import UnsupportedDecoder
from aviot.utils.files import atomic_folder

logger = logging.getLogger(__name__)

THREE_AXES = {"qwen2_vl_text": "AviotQwen2ForCausalLM", "qwen2_5_vl_text": "AviotQwen2ForCausalLM"}
"""Decoders with M-RoPE, and the class that `aviot.engine.vllm_plugin` registers for them."""

ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")
IN_PROCESS = "answer with the transformers engine"


def check_settings(model: Any) -> None:
    """Raise UnsupportedDecoder if a checkpoint's settings change the logits in a way that is lost outside.

    A repetition penalty alone is left out with a warning: vLLM counts the tokens of the prompt as well, and embeddings
    are none.
    """
    settings, _ = model._prepare_generation_config(None, do_sample=False, num_beams=1)
    settings = copy.deepcopy(settings)
    if (settings.repetition_penalty or 1.0) != 1.0:
        logger.warning(
            "the checkpoint's repetition penalty of %s is not applied to prompt embeddings", settings.repetition_penalty
        )
        settings.repetition_penalty = None
    changing = model._get_logits_processor(settings, input_ids_seq_length=0, device=model.device)
    names = [type(one).__name__ for one in changing] + ["stop strings"] * bool(settings.stop_strings)
    if names:
        raise UnsupportedDecoder(
            f"the checkpoint's generation_config.json sets {', '.join(names)}, which are not applied to prompt "
            f"embeddings; remove them there, or {IN_PROCESS}"
        )


def decoder_config(model: Any) -> dict[str, Any]:
    """Return the decoder's config.json; raise UnsupportedDecoder if it cannot run on its own."""
    text = model.config.get_text_config(decoder=True)
    kind, parameters = text.model_type, getattr(text, "rope_parameters", None) or {}
    if kind in THREE_AXES:
        architecture = THREE_AXES[kind]
    elif "mrope_section" in parameters or kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UnsupportedDecoder(f"decoders of type {kind!r} cannot run on prompt embeddings alone; {IN_PROCESS}")
    else:
        architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    config: dict[str, Any] = json.loads(text.to_json_string(use_diff=False))
    ends = {name: getattr(model.generation_config, name, None) for name in ENDS}
    config |= {name: value for name, value in ends.items() if value is not None}
    dtype = str(_embedding(model).weight.dtype).removeprefix("torch.")
    return config | {"architectures": [architecture], "tie_word_embeddings": _is_tied(model), "dtype": dtype}


def save_decoder(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model's decoder, its head and its tokenizer into a new folder, as safetensors."""
    if folder.exists():
        raise ValueError(f"{folder} exists; name a new folder")
    config, state = decoder_config(model), _state(model)
    ends = {name: config[name] for name in ENDS if name in config}
    with atomic_folder(folder) as temporary:
        save_torch_state_dict(state, temporary)
        (temporary / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n")
        (temporary / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary)


def end_tokens(config: Mapping[str, Any]) -> frozenset[int]:
    """Return the tokens that end an answer, by a decoder's config.json."""
    ends = config.get("eos_token_id")
    return frozenset(ends if isinstance(ends, list) else () if ends is None else (ends,))


def load_decoder(folder: Path, device: torch.device) -> tuple[Any, Any]:
    """Return a decoder that `save_decoder` wrote, and its tokenizer, for engines of transformers."""
    options = {"local_files_only": True, "trust_remote_code": False}
    architecture = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    if architecture in THREE_AXES.values():
        raise UnsupportedDecoder(f"{folder} has positions on three axes, which only vLLM takes from requests")
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, **options)
    return model.to(device).eval(), AutoTokenizer.from_pretrained(folder, **options)


def _state(model: Any) -> dict[str, Tensor]:
    """Return the weights by the names of a causal language model; raise UnsupportedDecoder for ones that do not fit."""
    state = {f"model.{name}": tensor for name, tensor in model.get_decoder().state_dict().items()}
    if not _is_tied(model):
        state["lm_head.weight"] = model.get_output_embeddings().weight.detach()
    for name, tensor in state.items():
        if ".lora_" in name or ".base_layer." in name:
            raise UnsupportedDecoder(f"the decoder has low-rank adapters ({name}), which are not merged; {IN_PROCESS}")
        if tensor.is_meta or not tensor.is_floating_point():
            raise UnsupportedDecoder(
                f"{name} is quantised or not in memory; load the model whole, without a device map or quantisation"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"the decoder's {name} is not finite (NaN or infinity); the checkpoint is damaged")
    return state


def _embedding(model: Any) -> Any:
    return model.get_input_embeddings()


def _is_tied(model: Any) -> bool:
    """Return whether the head's weights are those of the input embeddings."""
    head, embedding = model.get_output_embeddings().weight, _embedding(model).weight
    return head is embedding or head.data_ptr() == embedding.data_ptr()
