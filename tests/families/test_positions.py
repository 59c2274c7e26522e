"""The rule for text after a video, as different versions of transformers have it."""

from functools import partial

import numpy as np
import pytest
import tiny_models as tiny
import torch
from loaded import session_of

import aviot
from aviot import methods
from aviot.backbones.base import CompressionRequest
from aviot.backbones.huggingface.layout import layout_of, nearest, rope_positions
from aviot.methods.base import Compressed
from aviot.methods.features import TokenMixture


def older_rope_index(
    per_second, merge, input_ids, mm_token_type_ids, video_grid_thw=None, second_per_grid_ts=None, **_
):
    """Return positions of one prompt with one video as transformers 4.57 computed them: text goes past the largest."""
    ids = mm_token_type_ids[0].tolist()
    before = ids.index(2)
    frames, rows, columns = video_grid_thw[0].tolist()
    interval = 1 if second_per_grid_ts is None else float(second_per_grid_ts[0]) * per_second
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in (frames, rows // merge, columns // merge)), indexing="ij"))
    video = torch.from_numpy(grid.reshape(3, -1)).double()
    video[0] = (video[0] * interval).floor()
    video = video.long() + before
    after = len(ids) - before - video.shape[1]
    text = torch.arange(before).expand(3, -1), torch.arange(after).expand(3, -1) + video.max() + 1
    return torch.cat((text[0], video, text[1]), 1)[:, None], None


def placed(backbone, frames, method="none"):
    clip = np.random.RandomState(0).randint(0, 256, (frames, 56, 112, 3)).astype(np.uint8)
    video = backbone.read(clip, source_fps=2.0)
    (encoded,) = backbone.encode([video])
    prompt = backbone.prompt("What happens?", video)
    made = backbone.compress([encoded], [prompt], CompressionRequest(aviot.Budget(ratio=2), method))
    return encoded, backbone.place([prompt], made).arguments


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl"])
def test_text_goes_on_where_the_installed_version_does(family, monkeypatch):
    """Version 5.22 continues past the longer side of the grid, 4.57 past the largest position."""
    backbone = tiny.backbone(family)
    assert backbone.after_video == "grid"
    _, given = placed(backbone, 40)
    visual = given["mm_token_type_ids"][0] == 2
    last, after = int(visual.nonzero()[-1, 0]), given["position_ids"][1:, 0]
    start = int(visual.nonzero()[0, 0])
    assert after[:, last + 1].tolist() == [start + 4] * 3
    assert int(after[0, last]) > start + 4

    older = tiny.backbone(family)
    per_second = 1 if family == "qwen2-vl" else older.model.config.vision_config.tokens_per_second
    merge = older.model.config.vision_config.spatial_merge_size
    rule = partial(older_rope_index, per_second, merge)
    monkeypatch.setattr(older.model.model, "get_rope_index", rule)
    assert older.after_video == "maximum"
    encoded, given = placed(older, 40)
    grid = torch.tensor([[20, *(merge * side for side in encoded.grid)]])
    times = {} if family == "qwen2-vl" else {"second_per_grid_ts": torch.tensor([1.0])}
    expected, _ = rule(given["input_ids"], given["mm_token_type_ids"], video_grid_thw=grid, **times)
    assert torch.equal(given["position_ids"][1:], expected)


def test_runs_are_placed_one_after_another():
    offsets = torch.tensor([[0, 0, 1], [0, 1, 2], [3, 0, 0]])
    runs = [(2, 2), (5, 1)]
    grid = rope_positions(7, runs, offsets, 3, "grid")
    assert grid.tolist() == [[0, 1, 2, 2, 5, 9, 9], [0, 1, 2, 3, 5, 6, 9], [0, 1, 3, 4, 5, 6, 9]]
    most = rope_positions(7, runs, offsets, 3, "maximum")
    assert most.tolist() == [[0, 1, 2, 2, 5, 9, 10], [0, 1, 2, 3, 5, 6, 10], [0, 1, 3, 4, 5, 6, 10]]


def test_a_support_has_the_number_of_the_nearest_frame():
    times = (0.0, 0.5, 1.0, 4.0)
    assert [nearest(time, times) for time in (0.0, 0.2, 0.25, 0.3, 1.0, 2.4999, 2.6, 9.0)] == [0, 0, 0, 1, 2, 2, 3, 3]
    assert nearest(0.75 + 1e-9, times) == 1  # halfway, but for rounding: the earlier one


def test_frame_numbers_tell_when_supports_are():
    """Supports of frames 1 and 2, 3 and 4, 5 and 6, and 7 have the numbers of the nearest frames, the earlier ones."""
    backbone = tiny.backbone("internvl")
    _, given = placed(backbone, 7, "segment-mean")
    text = backbone.tokenizer.decode(given["input_ids"][0]).replace("<IMG_CONTEXT>", "")
    assert [part.split(":")[0] for part in text.split("Frame")[1:]] == ["1", "3", "5", "7"]


@pytest.mark.parametrize("family", ["llava-video", "qwen2-vl"])
def test_the_order_of_a_sum_does_not_decide_where_a_token_stands(family):
    """Means half way between two rows differ by rounding from device to device; order and positions must not."""
    session = session_of(family)
    video = session.backbone.features(session.encoded, methods.get("low-resolution"), conditioned=False)
    columns = video.grid[1]
    squares = torch.tensor([0, 1, columns, columns + 1]) + 2 * torch.arange(columns // 2)[:, None]
    indices = torch.cat([frame * video.patches + squares for frame in range(video.frames)])

    def placed(error):
        weights = 0.25 + error * torch.tensor([-1.0, -1.0, 1.0, 1.0]).repeat(len(indices), 1)
        weights[1::2] = weights[1::2].flip(1)
        made = Compressed.mixed(video, TokenMixture(indices, weights, video.frames, video.patches))
        if family == "llava-video":
            return session.backbone.model.model.with_separators(made)[1]
        return layout_of(made, {}).positions[:, 1:].round()

    assert torch.equal(placed(0.0), placed(5e-8))
