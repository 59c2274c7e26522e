"""Where precision matters, in numbers. OMP_NUM_THREADS=1 python benchmarks/precision.py (CPU, under a minute)

Behind the statements of docs/log.md: the pilot's noise, rounding in published gradients, recurring scenes, and
gradients of the objective at large magnitudes.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from aviot import Compressor, CompressorConfig
from aviot.config import TransportConfig
from aviot.convert import compressor_weights
from aviot.methods.aviot.reference import compress_reference
from aviot.ot import solve

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "compressor"


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def pilot_noise() -> None:
    """The largest response g of one-column problems whose costs reach the bound; silence means under 1e-6."""
    for dtype in (torch.float32, torch.float64):
        for size in (3, 6, 14, 56):
            cost = torch.rand(2000, size, 1, generator=torch.Generator().manual_seed(size)).to(dtype) * 40
            mass = solve(cost, 0.1, TransportConfig()).source_mass
            response = (mass / mass.sum(-1, keepdim=True) - 1 / size).abs().mean(-1)
            print(json.dumps({"pilot": str(dtype), "sources": size, "largest_response": float(response.max())}))


def published_rounding() -> None:
    """Gradients of the metric on the golden case past the cost bound: golden, ours in float32, float64 reference."""
    t = load_file(GOLDEN / "t21_r3_cap.safetensors")
    compressor = Compressor(CompressorConfig(dim=6, cost_dim=16))
    compressor.load_state_dict(compressor_weights({k[8:]: v for k, v in t.items() if k.startswith("weights.")}))
    golden = compressor_weights({k[13:]: v for k, v in t.items() if k.startswith("grad.weights.")})
    given = {"question": t["q"], "relevance": t.get("relevance"), "motion": t["u"], "ratio": 3.0, "step": 10000}

    def gradient(double: bool) -> dict[str, torch.Tensor]:
        weights = {k: v.detach().clone().requires_grad_() for k, v in compressor.named_parameters()}
        if double:
            out = compress_reference(compressor.config, weights, t["x"], **given)
        else:
            out = torch.func.functional_call(compressor, weights, (t["x"],), given)
        (out.features.square().mean() + out.loss).backward()
        return {k: v.grad for k, v in weights.items()}

    single, exact = gradient(False), gradient(True)
    for name in ("metric.embed.0.weight", "metric.weigh.0.weight"):
        row = {"golden_to_float64": relative(golden[name], exact[name])}
        row["ours_to_float64"] = relative(single[name], exact[name])
        print(json.dumps({"gradient": name} | row))


@torch.no_grad()
def recurring_scenes() -> None:
    """Three scenes in turn plus noise, 40 frames to 13: float32 and float64 against the looped reference."""
    torch.manual_seed(0)
    compressor = Compressor(CompressorConfig(dim=1152, cost_dim=256, grid=(3, 3), regions=((1, 1), (3, 3))))
    for noise in (1e-1, 1e-2, 1e-3):
        g = torch.Generator().manual_seed(1)
        scenes = torch.randn(3, 9, 1152, generator=g)[torch.arange(40) % 3]
        x = scenes + noise * torch.randn(40, 9, 1152, generator=g)
        exact = compress_reference(compressor.config, dict(compressor.named_parameters()), x, supports=13).features
        row = {"float32": relative(compressor(x, supports=13).features, exact)}
        row["float64"] = relative(compressor(x.double(), supports=13).features, exact)
        print(json.dumps({"recurring_scenes_noise": noise} | row))


def large_magnitudes() -> None:
    """Error of the objective's float32 gradient against the reference, by the features' magnitude."""
    torch.manual_seed(0)
    compressor = Compressor(CompressorConfig(dim=8, cost_dim=16, grid=(2, 2), regions=((1, 1), (1, 2), (2, 2))))
    for scale in (1.0, 1e2, 1e4):
        x = (scale * torch.randn(13, 4, 8, generator=torch.Generator().manual_seed(2))).requires_grad_()
        (found,) = torch.autograd.grad(compressor(x, supports=7).loss, x)
        weights = dict(compressor.named_parameters())
        (exact,) = torch.autograd.grad(compress_reference(compressor.config, weights, x, supports=7).loss, x)
        print(json.dumps({"gradient_at_magnitude": scale, "error": relative(found, exact)}))


if __name__ == "__main__":
    pilot_noise()
    published_rounding()
    recurring_scenes()
    large_magnitudes()
