"""The compressor as printed in the paper: float64, one video, a loop over stages, regions, segments and rounds.

It shares nothing with the other implementations but the config, so that agreement is evidence. Weights are a mapping of
tensors: `metric.embed.*`, `metric.weigh.*`, `region_position.weight`, `gate.*`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Num
from torch import Tensor

from aviot.config import CompressorConfig, LevelConfig
from aviot.ot.reference import barycentre, column_entropy, conditional, solve, source_masses

FLAT = 1e-6  # a spread below this counts as none when segment signals are standardized (interop, "N(.)")
MEAN_SQUARE_FLOOR = 1e-12  # under the square roots of the gate's statistics (interop, "Gate")
RMS_FLOOR = 1e-6  # in the denominator of the relative RMS (interop, "Gate")
CLIP = 5.0  # of every gate statistic (interop, "Gate")
RATIO_SLACK = 1e-9  # keeps rounding of T / ratio from pushing a whole number up to the next
TERMS = ("temporal", "regional", "continuity", "variation", "balance", "entropy")


@dataclass(frozen=True)
class ReferenceStage:
    """A stage's plans, one [R,K,N] per level with rows that sum to one, its gates [K,S,L] and coefficients [K,S,N]."""

    conditionals: list[Tensor]
    gates: Tensor
    coefficients: Tensor


@dataclass(frozen=True)
class ReferenceResult:
    """Outputs in float64: features [K,S,D], coefficients [K,S,T] over all stages, and the stages' records."""

    features: Tensor
    path: tuple[int, ...]
    budgets: tuple[tuple[int, ...], ...]
    loss: Tensor
    terms: dict[str, Tensor]
    stages: tuple[ReferenceStage, ...]
    coefficients: Tensor


@dataclass(frozen=True)
class _Setting:
    """Inputs that all stages share: `metric_weights` [Dc] is w_q, `motion` [S] is d, `ramp` in [0,1] the warm-up."""

    config: CompressorConfig
    weights: Mapping[str, Tensor]
    question: Tensor | None
    metric_weights: Tensor
    motion: Tensor
    ramp: float


def compress_reference(
    config: CompressorConfig,
    weights: Mapping[str, Tensor],
    x: Num[Tensor, "T S D"],
    *,
    question: Num[Tensor, " D"] | None = None,
    relevance: Num[Tensor, " T"] | None = None,
    motion: Num[Tensor, "T S D"] | None = None,
    ratio: float | None = None,
    supports: int | None = None,
    step: int | None = None,
) -> ReferenceResult:
    """Compress T frames to K, each stage's output being the next one's source.

    C^(1) = B^(1), C^(u) = B^(u) C^(u-1) at every patch; loss = the stages' mean of the weighted terms.
    x, motion [T,S,D], question [D], relevance [T] -> features [K,S,D]; eq:supp_progressive_composition,
    eq:supp_stage_objective, eq:supp_total_objective.
    """
    if x.ndim != 3 or x.shape[1:] != (config.patches, config.dim):
        raise ValueError(f"x must be [T,{config.patches},{config.dim}], got {tuple(x.shape)}; pass one video alone")
    path = temporal_path(config, len(x), ratio, supports)
    x, setting = x.double(), _prepare(config, weights, question, x if motion is None else motion, step)
    routed = config.question_allocation and question is not None
    rho = relevance.detach().double() if routed and relevance is not None else None
    if rho is not None and not _is_evidence(config, rho):
        rho = None
    coefficients = torch.eye(len(x), dtype=x.dtype)[:, None].expand(-1, config.patches, -1)
    budgets: list[tuple[int, ...]] = []
    stages: list[ReferenceStage] = []
    terms: list[Tensor] = []
    for target in path[1:]:
        x, budget, stage, stage_terms = _stage(setting, x, rho, target)
        rho = None if rho is None else stage.conditionals[0][0].detach() @ rho
        coefficients = torch.einsum("ksh,hsi->ksi", stage.coefficients, coefficients)
        budgets.append(budget)
        stages.append(stage)
        terms.append(stage_terms)
    mean = torch.stack(terms).mean(dim=0) if terms else x.new_zeros(len(TERMS))
    o = config.objective
    scale = (1.0, o.regional_weight, o.continuity_weight, o.variation_weight, o.balance_weight, o.entropy_weight)
    loss = (mean * mean.new_tensor(scale)).sum()
    named = dict(zip(TERMS, mean.unbind(), strict=True))
    return ReferenceResult(x, path, tuple(budgets), loss, named, tuple(stages), coefficients)


def temporal_path(config: CompressorConfig, total: int, ratio: float | None, supports: int | None) -> tuple[int, ...]:
    """Return the cardinalities from T to K = min(T, max(1, ceil(T / ratio))), by multiples; sec:supp_progressive."""
    if (ratio is None) == (supports is None):
        raise ValueError(f"expected ratio or supports, got ratio={ratio}, supports={supports}; pass exactly one")
    if ratio is not None:
        supports = max(1, math.ceil(total / ratio - RATIO_SLACK))
    if supports is None or supports < 1:
        raise ValueError(f"expected supports of at least 1, got {supports}; pass at least 1")
    target = min(total, supports)
    path = [total]
    for fraction in config.fractions:
        candidate = config.stage_multiple * math.floor(fraction * total / config.stage_multiple + 0.5)
        path += [candidate] if target < candidate < path[-1] else []
    return (*path, target) if target < total else (total,)


def _is_evidence(config: CompressorConfig, rho: Tensor) -> bool:
    """Return True if relevance counts: always as printed, else where max rho - min rho >= theta.  rho [T]."""
    a = config.allocation
    if a.rule == "printed" or a.evidence_threshold is None:
        return True
    return float(rho.max() - rho.min()) >= a.evidence_threshold


def _prepare(
    config: CompressorConfig, weights: Mapping[str, Tensor], question: Tensor | None, u: Tensor, step: int | None
) -> _Setting:
    """Upcast, and compute once w_q, the patch motion d_s = mean_i (1 - cos(U_i,s, U_i-1,s)), and the warm-up's ramp.

    question [D], u [T,S,D]; eq:supp_question_cost, eq:supp_patch_motion.
    """
    w = {name: value.double() for name, value in weights.items()}
    q = None if question is None else question.double()
    metric_weights = torch.ones(config.cost_dim, dtype=torch.float64)
    if q is not None and config.question_cost:
        metric_weights = F.softplus(_linear(w, "metric.weigh.2", F.gelu(_linear(w, "metric.weigh.0", q))))
    if config.cost_normalization == "unit":
        v = metric_weights * w["metric.embed.3.weight"]
        metric_weights = metric_weights * (config.transport.unit_cost / v.square().sum()).sqrt()
    u = u.detach().double()
    motion = (1 - F.cosine_similarity(u[1:], u[:-1], dim=-1)).mean(dim=0)
    ramp = 1.0 if step is None else min(max(step / config.warmup_steps, 0.0), 1.0)
    return _Setting(config, w, q, metric_weights, motion, ramp)


def _linear(w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _layer_norm(w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def _couple(setting: _Setting, x: Tensor, z: Tensor, epsilon: float, *, relaxed: bool = False) -> Tensor:
    """Couple under C_ij = ||w_q * (phi(x_i) - phi(z_j))||^2.  x [N,D], z [k,D] -> [N,k]; eq:supp_question_cost."""
    w, t = setting.weights, setting.config.transport
    hidden = (_linear(w, "metric.embed.2", F.gelu(_linear(w, "metric.embed.0", side))) for side in (x, z))
    phi_x, phi_z = (_layer_norm(w, "metric.embed.3", h) for h in hidden)
    cost = (setting.metric_weights * (phi_x[:, None] - phi_z[None])).square().sum(-1)
    return solve(
        cost, epsilon, updates=t.updates, source_relaxation=t.source_relaxation, target_relaxation=t.target_relaxation,
        relaxed=relaxed, bound=t.cost_bound, stabilizer=t.stabilizer,
    )  # fmt: skip


def _stage(
    setting: _Setting, x: Tensor, rho: Tensor | None, target: int
) -> tuple[Tensor, tuple[int, ...], ReferenceStage, Tensor]:
    """Run one stage: segments and budgets, every level coarse to fine, fusion, and the six terms in `TERMS`' order.

    x [N,S,D], rho [N] -> [K,S,D], M budgets, the plans and gates, [6]; alg:supp_stage, eq:supp_regional_distortion.
    """
    config, levels, n = setting.config, setting.config.active_levels, len(x)
    parts = min(config.segments, n, target)
    sizes = [n // parts + (m < n % parts) for m in range(parts)]  # earlier segments are longer by one
    frames = x.mean(dim=1)
    budgets = _allocate(setting, frames.split(sizes), None if rho is None else rho.split(sizes), target)
    plans: list[Tensor] = []  # A^T [R,K,N] of each level
    distortions: list[Tensor] = []  # [R,M] of each level
    for depth, level in enumerate(levels):
        descriptors = _region_descriptors(setting, level, x) if depth else frames[None]
        parents = plans[-1][parent_regions(levels[depth - 1].regions, level.regions)] if depth else None
        plan, distortion = _solve_level(setting, level, descriptors, parents, sizes, budgets)
        if not (plan.isfinite().all() and distortion.isfinite().all()):
            raise FloatingPointError(f"stage {n} -> {target}, {level.name} level: plans are not finite; check x")
        plans.append(plan)
        distortions.append(distortion)
    fused, gamma, stage = _fuse(setting, x, plans)
    temporal, regional, smooth = distortions[0].sum(), x.new_zeros(()), x.new_zeros(())
    if len(levels) > 1:
        regional = torch.stack([each.mean() for each in distortions[1:]]).mean()
        pairs = zip(levels[1:], plans[1:], strict=True)
        smooth = torch.stack([continuity(config, level, x.detach(), plan) for level, plan in pairs]).mean()
    return fused, budgets, stage, torch.stack([temporal, regional, smooth, *gate_terms(config, setting.motion, gamma)])


def _allocate(
    setting: _Setting, segments: tuple[Tensor, ...], relevance: tuple[Tensor, ...] | None, target: int
) -> tuple[int, ...]:
    """Return the supports per segment, by pi = softmax((N(g) + alpha_q N(r)) / tau) of response and relevance.

    segments [N_m,D] and relevance [N_m] of each -> M integers that sum to K; eq:supp_pilot_profile,
    eq:supp_pilot_deviation, eq:supp_segment_relevance, eq:supp_allocation_probability.
    """
    config, a = setting.config, setting.config.allocation
    responses = []
    for x in segments:
        pilot = _couple(setting, x, x[:1], config.levels[0].epsilon, relaxed=config.pilot == "unbalanced").detach()
        responses.append((source_masses(pilot) / pilot.sum() - 1 / len(x)).abs().mean())
    logits = standardize(torch.stack(responses))
    if relevance is not None:
        prior = standardize(torch.stack([rho.mean() for rho in relevance]))
        logits = logits + setting.ramp * a.relevance_weight * prior
    temperature = a.initial_temperature + setting.ramp * (a.final_temperature - a.initial_temperature)
    return integer_budgets(torch.softmax(logits / temperature, dim=0), [len(x) for x in segments], target)


def standardize(v: Tensor) -> Tensor:
    """Return N(v) = (v - mean v) / std v, population std; zeros for a flat v.  [M]; sec:supp_question_allocation."""
    centred = v - v.mean()
    for spread in (centred.square().mean().sqrt(), centred.abs().max()):
        if spread >= FLAT:
            return centred / spread
    return torch.zeros_like(v)


def integer_budgets(pi: Tensor, sizes: list[int], target: int) -> tuple[int, ...]:
    """Round 1 + pi_m (K - M), cap at the segment's size, repair the sum to K in pi's order; eq:supp_integer_budget."""
    extra = torch.round(pi * (target - len(sizes))).int().tolist()  # half to even
    budgets = [min(1 + more, size) for more, size in zip(extra, sizes, strict=True)]
    order = torch.argsort(pi, descending=True, stable=True).tolist()
    while sum(budgets) != target:
        change = 1 if sum(budgets) < target else -1
        for m in order[::change]:
            if sum(budgets) != target and 1 <= budgets[m] + change <= sizes[m]:
                budgets[m] += change
    return tuple(budgets)


def _solve_level(
    setting: _Setting, level: LevelConfig, x: Tensor, parents: Tensor | None, sizes: list[int], budgets: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Solve every problem of one granularity from z = beta z_par + (1 - beta) z_uni (uniform alone without parents).

    x [R,N,D], parents: A^T [R,K,N] of each region's parent -> A^T [R,K,N], distortions [R,M];
    eq:supp_parent_initialization.
    """
    plans, distortions = [], []
    for r in range(len(x)):
        blocks: list[Tensor] = []
        losses: list[Tensor] = []
        first, row = 0, 0
        for n, k in zip(sizes, budgets, strict=True):
            own = x[r, first : first + n]
            # in float32 on purpose: halves must fall as they do for published weights
            z = own[torch.round(torch.linspace(0, n - 1, k, dtype=torch.float32)).long()]
            if parents is not None:
                inherited = parents[r, row : row + k, first : first + n].detach() @ own
                z = level.parent_weight * inherited + (1 - level.parent_weight) * z
            plan, loss = (torch.eye(n, dtype=x.dtype), x.new_zeros(())) if k == n else _refine(setting, level, own, z)
            blocks.append(plan)
            losses.append(loss)
            first, row = first + n, row + k
        plans.append(torch.block_diag(*blocks))
        distortions.append(torch.stack(losses))
    return torch.stack(plans), torch.stack(distortions)


def _refine(setting: _Setting, level: LevelConfig, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Alternate coupling and barycentre, then measure sum_ij P_ij ||x_i - z_j||^2 / D / sum_ij P_ij.

    x [N,D], z [k,D] -> A^T [k,N], 0-d; eq:supp_barycentric_reconstruction, eq:supp_temporal_distortion.
    """
    for done in range(level.rounds):
        z = z.detach() if done else z  # gradients pass through the last round alone
        coupling = _couple(setting, x, z, level.epsilon)
        z = barycentre(coupling, x, setting.config.transport.stabilizer)
    distance = (x.detach()[:, None] - z[None]).square().mean(-1)
    return conditional(coupling).T, (coupling * distance).sum() / coupling.sum()


def _region_descriptors(setting: _Setting, level: LevelConfig, x: Tensor) -> Tensor:
    """Return LN(mean over r) + W [sin 2 pi f y, cos 2 pi f y, sin 2 pi f x, cos 2 pi f x], (y, x) the region's centre.

    x [N,S,D] -> [R,N,D]; eq:supp_region_descriptor, with the encoding that interop settles.
    """
    rows, columns = level.regions
    centres = [[(r + 0.5) / rows, (c + 0.5) / columns] for r in range(rows) for c in range(columns)]
    frequencies = torch.arange(1, setting.config.position.region_bands + 1)
    angles = 2 * math.pi * x.new_tensor(centres)[:, :, None] * frequencies  # [R,2,F]
    position = torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1) @ setting.weights["region_position.weight"].T
    return F.layer_norm(region_means(setting.config, level, x), x.shape[-1:]) + position[:, None]


def _fuse(setting: _Setting, x: Tensor, plans: list[Tensor]) -> tuple[Tensor, Tensor, ReferenceStage]:
    """Fuse Y^l = A^l X by region: X~ = sum_l gamma^l Y^l, B = sum_l gamma^l A^l, gamma blended from e_G by the warm-up.

    x [N,S,D], plans A^T [R,K,N] -> X~ [K,S,D], gamma before the warm-up [K,S,L], the stage's record;
    eq:supp_spatial_reconstruction, eq:supp_stage_provenance.
    """
    levels = setting.config.active_levels
    regions = [patch_regions(setting.config.grid, level.regions) for level in levels]
    spread = torch.stack([plan[r] for plan, r in zip(plans, regions, strict=True)])  # [L,S,K,N]
    branches = torch.einsum("lskn,nsd->ksld", spread, x)
    entropies = [torch.stack([column_entropy(a.T) for a in plan.detach()]) for plan in plans]  # [R,K] each
    patch_entropies = torch.stack([h[r].T for h, r in zip(entropies, regions, strict=True)], dim=-1)  # [K,S,L]
    gamma = _gate(setting, branches.detach(), patch_entropies / math.log(max(2, len(x))))
    applied = setting.ramp * gamma + (1 - setting.ramp) * _global_only(len(levels))
    record = ReferenceStage(plans, applied, torch.einsum("ksl,lskn->ksn", applied, spread))
    return torch.einsum("ksl,ksld->ksd", applied, branches), gamma, record


def _global_only(levels: int) -> Tensor:
    return torch.eye(levels, dtype=torch.float64)[0]


def _gate(setting: _Setting, y: Tensor, entropies: Tensor) -> Tensor:
    """Return gamma = delta_G e_G + (1 - delta_G) softmax(a / tau_g).  y [K,S,L,D] -> [K,S,L]; eq:supp_gate_floor."""
    levels, w, gate = y.shape[2], setting.weights, setting.config.gate
    if levels == 1 or setting.config.fusion == "equal":
        return torch.full_like(entropies, 1 / levels)
    statistics = _statistics(y, entropies, setting.question).flatten(2)  # [K,S,7L], branch-major
    logits = _linear(w, "gate.3", F.gelu(_linear(w, "gate.1", _layer_norm(w, "gate.0", statistics))))
    p = torch.softmax(logits / gate.temperature, dim=-1)
    return gate.global_floor * _global_only(levels) + (1 - gate.global_floor) * p


def _statistics(y: Tensor, entropies: Tensor, question: Tensor | None) -> Tensor:
    """Return seven statistics of every branch.  y [K,S,L,D], entropies [K,S,L] -> [K,S,L,7]; sec:supp_spatial."""
    rms, mean = _rms(y), y.mean(dim=2, keepdim=True)
    change = torch.zeros_like(rms)
    if len(y) > 1:
        change = _relative_rms(y[1:], y[:-1])[[0, *range(len(y) - 1)]]  # the first takes the second's
    columns = (
        change,
        entropies,
        _relative_rms(y, mean),
        (1 - F.cosine_similarity(y, mean, dim=-1)).clamp(0, 2),
        torch.zeros_like(rms) if question is None else F.cosine_similarity(y, question.detach(), dim=-1).clamp(-1, 1),
        (rms / rms.mean(dim=2, keepdim=True)).log(),
        torch.linspace(-1, 1, y.shape[2], dtype=y.dtype).expand_as(rms),
    )
    return torch.stack(columns, dim=-1).clamp(-CLIP, CLIP)


def _rms(x: Tensor) -> Tensor:
    return x.square().mean(-1).clamp_min(MEAN_SQUARE_FLOOR).sqrt()


def _relative_rms(a: Tensor, b: Tensor) -> Tensor:
    return (_rms(a - b) / ((_rms(a) + _rms(b)) / 2).clamp_min(RMS_FLOOR)).clamp(0, CLIP)


def patch_regions(grid: tuple[int, int], regions: tuple[int, int]) -> Tensor:
    """Return r(s), row-major: of p cells over n patches cell i starts at ceil(i n / p).  -> [S]; sec:supp_spatial."""
    sides = [[max(i for i in range(p) if i * n <= s * p) for s in range(n)] for n, p in zip(grid, regions, strict=True)]
    return torch.tensor([row * regions[1] + column for row in sides[0] for column in sides[1]])


def parent_regions(coarse: tuple[int, int], fine: tuple[int, int]) -> Tensor:
    """Return pa(r), the coarse cell that holds each fine cell's centre.  -> [R]; eq:supp_parent_initialization."""
    sides = [[(2 * c + 1) * p // (2 * n) for c in range(n)] for p, n in zip(coarse, fine, strict=True)]
    return torch.tensor([row * coarse[1] + column for row in sides[0] for column in sides[1]])


def adjacent_pairs(cells: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the two ends of every horizontal and vertical edge between cells, row-major.  -> [E], [E]."""
    index = torch.arange(cells[0] * cells[1]).reshape(cells)
    ends = (index[:, :-1], index[:-1]), (index[:, 1:], index[1:])
    first, second = (torch.cat([across.flatten(), down.flatten()]) for across, down in ends)
    return first, second


def region_means(config: CompressorConfig, level: LevelConfig, x: Tensor) -> Tensor:
    """Average every region's patches.  x [N,S,D] -> [R,N,D]; eq:supp_region_descriptor, inside the LN."""
    regions = patch_regions(config.grid, level.regions)
    return torch.stack([x[:, regions == r].mean(dim=1) for r in range(math.prod(level.regions))])


def _log(p: Tensor) -> Tensor:
    """Return log p, finite at p = 0 so that p log p and its gradient are."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def continuity(config: CompressorConfig, level: LevelConfig, x: Tensor, plan: Tensor) -> Tensor:
    """Return the mean Jensen-Shannon divergence of adjacent plans, weighted by exp(-(1 - cos(mean_r, mean_r')) / 0.2).

    x [N,S,D] (detached), plan [R,K,N] -> 0-d; eq:supp_boundary_weight, eq:supp_continuity.
    """
    first, second = adjacent_pairs(level.regions)
    if not len(first):
        return x.new_zeros(())
    means = region_means(config, level, x).mean(dim=1)  # [R,D], of the features themselves
    distance = 1 - F.cosine_similarity(means[first], means[second], dim=-1)
    weight = torch.exp(-distance / config.objective.continuity_scale)  # [E]
    p, q = plan[first], plan[second]  # [E,K,N]
    log_middle = _log((p + q) / 2)
    divergence = (p * (_log(p) - log_middle) + q * (_log(q) - log_middle)).sum(-1) / 2
    return (weight * divergence.mean(dim=1)).sum() / weight.sum()


def gate_terms(config: CompressorConfig, motion: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return variation, balance and entropy penalties, all zero for a single granularity.

    motion [S], gamma [K,S,L] -> three 0-d; eq:supp_gate_tv, eq:supp_gate_balance, eq:supp_gate_entropy.
    """
    o, levels, zero = config.objective, gamma.shape[-1], gamma.new_zeros(())
    if levels == 1:
        return zero, zero, zero
    first, second = adjacent_pairs(config.grid)
    v = torch.exp(-(motion[first] - motion[second]).abs() / o.motion_scale)  # [E]
    change = (gamma[:, first] - gamma[:, second]).abs().mean(dim=(0, 2))  # [E]
    mean = gamma.mean(dim=(0, 1))  # [L]
    excess = torch.cat([mean[:1] - o.global_ceiling, o.regional_floor - mean[1:]]).clamp_min(0)
    entropy = -(gamma * _log(gamma)).sum(-1).mean() / math.log(levels)
    variation = (v * change).sum() / v.sum() if len(first) else zero
    return variation, excess.square().mean(), (o.entropy_floor - entropy).clamp_min(0).square()
