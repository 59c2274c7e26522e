"""The exact coefficients as a safetensors file, with the times of the frames and the boxes of the patches."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.backbones.checkpoints.shards import write_tensors
from aviot.explain.study import Study
from aviot.explain.view import View


@dataclass(frozen=True)
class ExportViews:
    """Takes the coefficients of each view as it comes."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    told: dict[str, dict[str, object]] = field(default_factory=dict)

    def keep(self, view: View) -> None:
        """Keep one view's numbers: `question0.coefficients` [K,S,T] and `question0.path_shares` [L,K,S]."""
        name = label_of(view.heard)
        self.tensors[f"{name}.coefficients"] = view.coefficients
        self.tensors[f"{name}.path_shares"] = view.mass.sum(-1)
        self.told[name] = {"path": view.path, "budgets": view.budgets, "paths": view.names}


def label_of(heard: int | None) -> str:
    """The name of a view in a file: the question that the compressor heard, by its number, or none."""
    return "none" if heard is None else f"question{heard}"


def write_export(path: Path, study: Study, views: ExportViews) -> None:
    """Coefficients, `times` [T] in seconds, `boxes` [S,4] as shares of a frame; the rest as metadata."""
    video = study.video
    told = {
        "model": study.model.name,
        "notice": study.notice,
        "name": video.name,
        "duration": video.duration,
        "size": study.pictures.size,
        "grid": study.grid,
        "questions": study.questions,
        "ratio": study.ratio,
        "compressor": study.method,
        "views": views.told,
        "answers": [[each.question, each.kind, each.answer] for each in study.conditions],
    }
    beside = {
        "times": torch.tensor(video.times, dtype=torch.float64),
        "boxes": patch_boxes(study.grid, study.cover),
    }
    write_tensors(path, views.tensors | beside, {"aviot": json.dumps(told)})


def patch_boxes(grid: tuple[int, int], cover: float) -> Float[Tensor, "S 4"]:
    """Left, top, right and bottom of every patch, row by row, as shares of the frame's width and height."""
    rows, columns = grid
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    sides = torch.tensor([columns, rows, columns, rows], dtype=torch.float64)
    return torch.stack((x, y, x + 1, y + 1), -1).reshape(-1, 4) * cover / sides
