"""The plug-in by which vLLM finds this package's models (entry point `vllm.general_plugins`)."""


def register() -> None:
    """Add decoders with M-RoPE to vLLM's model registry; called by vLLM in each of its processes."""
    from vllm import ModelRegistry

    ModelRegistry.register_model("AviotQwen2ForCausalLM", "aviot.engine.vllm_model:AviotQwen2ForCausalLM")
