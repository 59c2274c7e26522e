"""Layers that compute in their input's precision, whatever type their weights are stored in."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """A linear map in the precision of x."""

    def forward(self, input: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
        """W x + b."""
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return F.linear(input, self.weight.to(input.dtype), bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation with scale and shift, in the precision of x."""

    def forward(self, input: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Normalise, scale, shift."""
        weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)
