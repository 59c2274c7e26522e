"""A backbone of another package, in one file: a byte-level model that sees a frame as a grid of mean colours."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from aviot import Budget
from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.base import Backbone, EncodedVideo, Prompt, StoredBackbone, VideoInPrompt
from aviot.engine.base import DecoderInput
from aviot.methods import VideoFeatures
from aviot.video import Scaling, read_video

GRID, SIDE, WIDTH = (4, 4), 16, 32
SAMPLING = {"fps": 2.0, "max_frames": 32, "image_size": SIDE}


def make_checkpoint(folder: Path) -> Path:
    """Write a tiny random checkpoint with a tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<end>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    save_file(_new_model(len(vocabulary)).state_dict(), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"model_type": "mosaic", "vocabulary": len(vocabulary)}))
    return folder


def _new_model(vocabulary):
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    config = Qwen2Config(vocab_size=vocabulary, hidden_size=WIDTH, eos_token_id=0, pad_token_id=0, **sizes)
    config.tie_word_embeddings = False
    return Qwen2ForCausalLM(config).eval()


class Mosaic(Backbone):
    """Mean colours of a 4 x 4 grid, repeated to the decoder's width; text is read byte by byte."""

    family = "mosaic"
    image_size = SIDE
    max_length = 4096
    default_budget = Budget(ratio=2)
    decoder = DecoderShape(layers=3, width=WIDTH, feed_forward=48, grid=GRID, pool_stride=1)

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def handles(cls, config):
        return config.get("model_type") == "mosaic"

    @classmethod
    def load(cls, folder, device):
        model = _new_model(json.loads((folder / "config.json").read_text())["vocabulary"])
        model.load_state_dict(load_file(folder / "model.safetensors"))
        model.name_or_path = str(folder)
        return cls(model.to(device), PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")))

    @classmethod
    def wrap(cls, model, processor):
        return cls(model, processor) if isinstance(model, Qwen2ForCausalLM) else None

    @classmethod
    def stored(cls, folder):
        return StoredBackbone(cls.default_budget, dict(SAMPLING), lambda question, span: f"<video>{question}")

    def read(self, source, *, transform=None, reader=read_video, **sampling):
        chosen = {"fps": SAMPLING["fps"], "max_frames": SAMPLING["max_frames"]}
        chosen |= {name: value for name, value in sampling.items() if value is not None}
        return reader(source, transform=transform or Scaling(SIDE), **chosen)

    def pixels(self, videos):
        return [torch.from_numpy(np.asarray(video.frames)).to(self.device) for video in videos]

    def encode(self, videos, pixels=None):
        found = []
        for video, frames in zip(videos, self.pixels(videos) if pixels is None else pixels, strict=True):
            colours = frames.permute(0, 3, 1, 2).float() / 255
            cells = torch.nn.functional.adaptive_avg_pool2d(colours, GRID).flatten(2).mT  # [T,16,3]
            found.append(EncodedVideo(video, cells.repeat(1, 1, -(-WIDTH // 3))[..., :WIDTH], GRID))
        return found

    @torch.inference_mode()
    def prompt(self, question, video, *, history=(), span=None):
        ids = torch.tensor(self.tokenizer.encode(question), device=self.device)
        embeds = self.model.get_input_embeddings()(ids)
        return Prompt(question, embeds, embeds.mean(0))

    def features(self, encoded, method, *, conditioned):
        return VideoFeatures(encoded.features, GRID, tuple(encoded.video.times))

    def project(self, made, method):
        return VideoInPrompt(made.tokens, made, order=torch.arange(len(made)))

    def place(self, prompts, videos):
        rows = [torch.cat((video.tokens, one.content)) for one, video in zip(prompts, videos, strict=True)]
        longest = max(map(len, rows))
        embeds = torch.stack([torch.nn.functional.pad(row, (0, 0, longest - len(row), 0)) for row in rows])
        mask = torch.stack([(torch.arange(longest) >= longest - len(row)).long() for row in rows]).to(embeds.device)
        visual = tuple((longest - len(row), len(video.tokens)) for row, video in zip(rows, videos, strict=True))
        return DecoderInput({"inputs_embeds": embeds, "attention_mask": mask}, longest, visual)

    def relevance(self, encoded, prompt):
        return torch.cosine_similarity(encoded.features.mean(1), prompt.question[None], dim=-1).cpu()
