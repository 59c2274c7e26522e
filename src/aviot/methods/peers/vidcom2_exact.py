"""VidCom2 with an exact number of tokens, as vLLM ships it."""

from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod
from aviot.methods.peers.deepstack import all_channels
from aviot.methods.peers.vidcom2 import frame_counts, frame_factors, frame_scales, lowest, redundancy


def exact_count(frames: int, patches: int, pruning_rate: float) -> int:
    """Return the number of tokens for a pruning rate: truncated, at least one per frame."""
    total = frames * patches
    return max(frames, min(int(total * (1.0 - pruning_rate)), total))


def vidcom2_exact(x: Float[Tensor, "T N C"], retention: float, count: int) -> Int[Tensor, "count"]:
    """Return the flat indices of `count` tokens, in ascending order.

    Frames first get VidCom2's own counts for a retention. What is missing to the exact count is added, or what is too
    much dropped, over the whole video by the same redundancy; a frame can lose all its tokens.
    """
    scores = redundancy(x)
    counts = frame_counts(frame_scales(frame_factors(scores.video), retention), x.shape[1])
    dropped = ~lowest(scores.total, counts).flatten()
    order = scores.total.flatten().argsort(stable=True)
    order = order[dropped[order].long().argsort(stable=True)]  # a frame's own choice first, then the others
    return order[:count].sort().values


class VidCom2Exact(BudgetedMethod):
    """VidCom2 with an exact count, as in vLLM 0.32 (VidCom2: EMNLP 2025, 2505.14454).

    Scores and counts per frame are those of VidCom2; the difference to the exact count is settled over the whole video
    by the same scores. Scores are taken over tokens and deepstack features together, where a family has them.

    vLLM's pruning rate q is the share of tokens removed, rounded down in what stays and with at least one token per
    frame. Here the budget is the count, also below one token per frame, and the retention 1 - q is the budget's share.
    Unlike VidCom2 at R = 1, a budget of everything keeps everything.
    """

    name = "vidcom2-exact"
    title = "VidCom2 (exact count)"

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Keep exactly as many tokens as the limit."""
        retention = limit / (video.frames * video.patches)
        return Compressed.kept(video, vidcom2_exact(all_channels(video), retention, limit))
