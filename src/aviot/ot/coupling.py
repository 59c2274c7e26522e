"""A coupling between N sources and k supports, and the quantities derived from it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def plogp(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return p log p with 0 log 0 = 0, and a finite gradient at zero (where the true one is infinite)."""
    return p * p.clamp_min(torch.finfo(p.dtype).tiny).log()


@dataclass(frozen=True)
class Coupling:
    """P = exp(log_plan), a batch of problems padded to common N and k.

    `log_plan` is finite everywhere; the masks (None: no padding) mark the sources and supports that exist. All
    properties are zero outside them.
    """

    log_plan: Float[Tensor, "... N k"]
    source_mask: Bool[Tensor, "... N"] | None = None
    support_mask: Bool[Tensor, "... k"] | None = None

    @cached_property
    def plan(self) -> Float[Tensor, "... N k"]:
        """P, the mass transported from each source to each support (eq:supp_finite_coupling)."""
        return self._supports_only(self._sources_only_logits.exp())

    @cached_property
    def mass(self) -> Float[Tensor, "... k"]:
        """m_j = sum_i P_ij, the mass that each support receives (eq:supp_column_normalization)."""
        return self.plan.sum(-2)

    @cached_property
    def source_mass(self) -> Float[Tensor, "... N"]:
        """u_i = sum_j P_ij, the mass that each source gives (eq:supp_pilot_profile)."""
        return self.plan.sum(-1)

    @cached_property
    def conditional(self) -> Float[Tensor, "... N k"]:
        """A_ij = P_ij / m_j, each support's distribution over sources (eq:supp_column_normalization).

        Normalised in the log domain, so a column whose mass underflows still sums to one.
        """
        return self._supports_only(self._sources_only_logits.softmax(-2))

    @cached_property
    def entropy(self) -> Float[Tensor, "... k"]:
        """-sum_i A_ij log A_ij, in nats, of each support's distribution."""
        return -plogp(self.conditional).sum(-2)

    def barycentre(self, points: Float[Tensor, "... N D"], stabilizer: float) -> Float[Tensor, "... k D"]:
        """Return z_j = sum_i P_ij x_i / (m_j + delta) (eq:supp_barycentric_reconstruction)."""
        return self.plan.mT @ points / (self.mass + stabilizer)[..., None]

    @property
    def _sources_only_logits(self) -> Float[Tensor, "... N k"]:
        if self.source_mask is None:
            return self.log_plan
        return self.log_plan.masked_fill(~self.source_mask[..., :, None], -torch.inf)

    def _supports_only(self, values: Float[Tensor, "... N k"]) -> Float[Tensor, "... N k"]:
        if self.support_mask is None:
            return values
        return values.masked_fill(~self.support_mask[..., None, :], 0.0)
