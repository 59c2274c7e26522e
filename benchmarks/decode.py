"""What a prompt of a new length costs a decoder, with torch's own choice of attention and without cuDNN's.

python benchmarks/decode.py [--layers 4] [--tokens 32]

A decoder of the 7B's width reads prompts of lengths that it has not met, then the same again, and generates from each.
Milliseconds of each prompt's first pass, of its second, and a generated token.
"""

import argparse
import contextlib
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import Qwen2Config, Qwen2ForCausalLM

LENGTHS = (3501, 3517, 3533, 3549)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    shape = {"num_hidden_layers": given.layers, "vocab_size": 1000, "max_position_embeddings": 32768}
    width = {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4}
    device = torch.device(given.device)
    model = Qwen2ForCausalLM(Qwen2Config(**shape, **width)).to(device, torch.bfloat16).eval()

    @torch.no_grad()
    def milliseconds(length: int, tokens: int) -> float:
        embeds = torch.randn(1, length, width["hidden_size"], device=device, dtype=torch.bfloat16)
        mask = torch.ones(1, length, dtype=torch.long, device=device)
        synchronise(device)
        start = time.perf_counter()
        model.generate(
            inputs_embeds=embeds,
            attention_mask=mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        synchronise(device)
        return 1000 * (time.perf_counter() - start)

    without = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    for name, shift, choice in (
        ("torch's choice", 0, contextlib.nullcontext()),
        ("without cuDNN's", 7, sdpa_kernel(without)),
    ):
        with choice:
            milliseconds(128 + shift, 2)
            for length in LENGTHS:
                first, second = (milliseconds(length + shift, 1) for _ in range(2))
                generated = (milliseconds(length + shift, given.tokens + 1) - second) / given.tokens
                print(
                    f"{name}, {length + shift} tokens: {first:.1f} ms, then {second:.1f}; {generated:.1f} a token",
                    flush=True,
                )


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
