"""Pictures of supports: the video's own pixels, mixed with the exact coefficients."""

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from aviot.explain.pictures import Pictures

BLEND_SIDE = 216  # pixels of a blended picture's longer side, about
DROPPED = (27, 29, 33)  # colour of positions from which no token was kept


def blended(
    coefficients: Float[Tensor, "K S T"], pictures: Pictures, grid: tuple[int, int], cover: float
) -> list[Image.Image]:
    """Return one picture per output: at every position the mean of the frames' pixels, weighted by its coefficients.

    Pictures show the part of the frame that the patches cover. Positions without any weight, whose tokens were dropped,
    are dark.
    """
    rows, columns = grid
    high, wide = _patch_size(pictures.size, grid)
    size, covered = (columns * wide, rows * high), pictures.images
    sources = np.stack([np.asarray(_covered(image, cover).resize(size, Image.Resampling.BOX)) for image in covered])
    outputs = len(coefficients)
    made = np.empty((outputs, rows * high, columns * wide, 3), np.uint8)
    dark = torch.tensor(DROPPED, dtype=torch.float32)
    for row in range(rows):
        weights = coefficients[:, row * columns : (row + 1) * columns].float()  # [K,columns,T]
        total = weights.sum(-1, keepdim=True)
        shares = weights / total.clamp_min(torch.finfo(torch.float32).tiny)
        strip = sources[:, row * high : (row + 1) * high].reshape(-1, high, columns, wide, 3)
        pixels = torch.from_numpy(np.ascontiguousarray(strip.transpose(2, 0, 1, 3, 4))).float().flatten(2)
        mixed = torch.bmm(shares.transpose(0, 1), pixels)  # [columns,K,pixels]
        mixed = mixed.unflatten(-1, (high, wide, 3))
        held = (total > 0).transpose(0, 1)[..., None, None]
        mixed = torch.where(held, mixed, dark).round().clamp(0, 255).to(torch.uint8)
        made[:, row * high : (row + 1) * high] = mixed.permute(1, 2, 0, 3, 4).reshape(outputs, high, -1, 3).numpy()
    return [Image.fromarray(picture) for picture in made]


def _patch_size(size: tuple[int, int], grid: tuple[int, int]) -> tuple[int, int]:
    """Return height and width of a patch in the blended pictures, in whole pixels."""
    width, height = size
    scale = BLEND_SIDE / max(width, height)
    return max(1, round(height * scale / grid[0])), max(1, round(width * scale / grid[1]))


def _covered(image: Image.Image, cover: float) -> Image.Image:
    """Return the part of a picture that the patches cover; the encoder leaves a margin at the right and the bottom."""
    width, height = image.size
    return image if cover >= 1 else image.crop((0, 0, max(1, round(width * cover)), max(1, round(height * cover))))
