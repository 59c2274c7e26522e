"""The transport space: a learned embedding of descriptors, weighted by the question, and its layers."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """A linear map in the precision of x."""

    def forward(self, input: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
        """Return W x + b."""
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return F.linear(input, self.weight.to(input.dtype), bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation with scale and shift, in the precision of x."""

    def forward(self, input: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Normalise, scale, shift."""
        weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class MetricParameters(NamedTuple):
    """The embedding's parameters by name, or their gradients."""

    first: Float[Tensor, "C D"]
    first_bias: Float[Tensor, "C"]
    second: Float[Tensor, "C C"]
    second_bias: Float[Tensor, "C"]
    gain: Float[Tensor, "C"]
    shift: Float[Tensor, "C"]


class Metric(nn.Module):
    """C_ij(q) = || w(q) * (phi(x_i) - phi(z_j)) ||^2 with w(q) = softplus(h(q)) > 0 (eq:supp_question_cost)."""

    def __init__(self, dim: int, cost_dim: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(Linear(dim, cost_dim), nn.GELU(), Linear(cost_dim, cost_dim), LayerNorm(cost_dim))
        self.weigh = nn.Sequential(Linear(dim, cost_dim // 2), nn.GELU(), Linear(cost_dim // 2, cost_dim))

    @property
    def parts(self) -> MetricParameters:
        """The embedding's parameters."""
        return MetricParameters(*self.embed.parameters())

    def weights(self, question: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """Return w(q), one positive weight per coordinate of the transport space (eq:question_weights)."""
        logits = self.weigh(question)
        return F.softplus(logits) + 0 * logits  # NaN, which is refused, for minus infinity, which softplus hides

    def unit_weights(self, weights: Float[Tensor, "B C"], unit_cost: float) -> Float[Tensor, "B C"]:
        """Return weights of the same direction, with which the cost is a weighted mean over coordinates.

        With v = w gamma, gamma the embedding's last gain, sum v^2 = unit_cost: points whose normalised coordinates all
        differ by one cost unit_cost, whatever the question and the gain.
        """
        scaled = weights / weights.detach().amax(-1, keepdim=True)  # no square over- or underflows
        squares = (scaled * self.parts.gain.to(scaled)).square().sum(-1, keepdim=True)
        return scaled * (unit_cost / squares).sqrt()

    def lift(self, points: Float[Tensor, "B R N D"]) -> Float[Tensor, "B R N C"]:
        """Apply the embedding's first map, W x + b: affine, so it commutes with mixing by weights that sum to one."""
        return self.embed[0](points)

    def place(self, lifted: Float[Tensor, "B R N C"], weights: Float[Tensor, "B C"] | None) -> Float[Tensor, "B R N C"]:
        """Return w(q) * phi(x) of lifted points; their squared distances are the cost. No weights: all ones."""
        embedded = self.embed[1:](lifted)
        return embedded if weights is None else embedded * weights[:, None, None, :].to(embedded.dtype)
