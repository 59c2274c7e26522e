"""Modules and names that have moved, importable under their old names with a deprecation warning."""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

MOVED = {
    "aviot.backbones.checkpoints.documents": "aviot.backbones.checkpoints.folder",
    "aviot.backbones.checkpoints.errors": "aviot.backbones.checkpoints.folder",
    "aviot.backbones.checkpoints.hub": "aviot.backbones.checkpoints.folder",
    "aviot.backbones.llava_video.conversation": "aviot.backbones.llava_video.prompt",
    "aviot.backbones.llava_video.generation_settings": "aviot.backbones.llava_video.auxiliary_files",
    "aviot.backbones.llava_video.grouping": "aviot.backbones.llava_video.prompt_batch",
    "aviot.backbones.llava_video.sequence": "aviot.backbones.llava_video.prompt_batch",
    "aviot.backbones.llava_video.sizes": "aviot.backbones.llava_video.checkpoint",
    "aviot.backbones.llava_video.tokenizer_files": "aviot.backbones.llava_video.auxiliary_files",
    "aviot.backbones.llava_video.variant": "aviot.backbones.llava_video.modeling",
    "aviot.backbones.llava_video.video_path": "aviot.backbones.llava_video.features_to_tokens",
    "aviot.bench.alone": "aviot.bench.compressor",
    "aviot.bench.bandwidth": "aviot.bench.timing",
    "aviot.bench.decoding": "aviot.bench.workload",
    "aviot.bench.explanation": "aviot.bench.result",
    "aviot.bench.measured": "aviot.bench.sizes",
    "aviot.bench.options": "aviot.bench.run",
    "aviot.bench.scaling": "aviot.bench.compressor",
    "aviot.bench.write": "aviot.bench.report",
    "aviot.commands.described": "aviot.commands.options",
    "aviot.compressor": "aviot.methods.aviot",
    "aviot.data.batches": "aviot.data.order",
    "aviot.data.content": "aviot.data.conversation",
    "aviot.data.cost": "aviot.data.order",
    "aviot.data.errors": "aviot.data.checks",
    "aviot.data.failures": "aviot.data.dataset",
    "aviot.data.feature_key": "aviot.data.feature_cache",
    "aviot.data.json_values": "aviot.data.checks",
    "aviot.data.manifest": "aviot.data.corpus",
    "aviot.data.paths": "aviot.data.checks",
    "aviot.data.selection": "aviot.data.shuffle",
    "aviot.data.turns": "aviot.data.conversation",
    "aviot.data.unique_keys": "aviot.data.checks",
    "aviot.deadline": "aviot.utils.deadline",
    "aviot.deferred": "aviot.utils.lazy_names",
    "aviot.evaluation.answers": "aviot.evaluation.options",
    "aviot.evaluation.asking": "aviot.evaluation.prediction",
    "aviot.evaluation.benchmarks.folder": "aviot.evaluation.benchmarks.benchmark",
    "aviot.evaluation.benchmarks.ten": "aviot.evaluation.benchmarks.definitions",
    "aviot.evaluation.errors": "aviot.evaluation.fields",
    "aviot.evaluation.exact": "aviot.evaluation.text",
    "aviot.evaluation.export": "aviot.evaluation.report",
    "aviot.evaluation.forms": "aviot.evaluation.schema",
    "aviot.evaluation.grouping": "aviot.evaluation.measures",
    "aviot.evaluation.judging": "aviot.evaluation.judge",
    "aviot.evaluation.keys": "aviot.evaluation.fields",
    "aviot.evaluation.plan": "aviot.evaluation.batching",
    "aviot.evaluation.prompts": "aviot.evaluation.item",
    "aviot.evaluation.replies.letters": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.mention": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.numbers": "aviot.evaluation.replies.option_texts",
    "aviot.evaluation.replies.places": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.scores": "aviot.evaluation.replies.verdicts",
    "aviot.evaluation.replies.small_words": "aviot.evaluation.replies.common_words",
    "aviot.evaluation.row_checks": "aviot.evaluation.results",
    "aviot.evaluation.rows": "aviot.evaluation.results",
    "aviot.evaluation.scoring": "aviot.evaluation.results",
    "aviot.evaluation.span": "aviot.evaluation.lmms.requests",
    "aviot.evaluation.suite.files": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.markdown": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.model": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.plots": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.reference": "aviot.evaluation.suite.comparison",
    "aviot.evaluation.tables": "aviot.evaluation.reading",
    "aviot.explain.access": "aviot.web.access",
    "aviot.explain.build": "aviot.explain.outputs",
    "aviot.explain.export": "aviot.explain.outputs",
    "aviot.explain.fading": "aviot.explain.maps",
    "aviot.explain.fields": "aviot.explain.maps",
    "aviot.explain.model_info": "aviot.explain.study",
    "aviot.explain.report": "aviot.explain.page",
    "aviot.files": "aviot.utils.files",
    "aviot.journal": "aviot.utils.journal",
    "aviot.launcher": "aviot.utils.launcher",
    "aviot.machine": "aviot.utils.machine",
    "aviot.methods.aviot.agreement": "aviot.methods.aviot.analysis",
    "aviot.methods.aviot.fast": "aviot.methods.aviot.kernel_backend",
    "aviot.methods.aviot.intervention": "aviot.methods.aviot.analysis",
    "aviot.methods.aviot.kernels.aside": "aviot.methods.aviot.kernels.common",
    "aviot.methods.aviot.kernels.distances": "aviot.methods.aviot.kernels.squared_distances",
    "aviot.methods.aviot.kernels.divergence": "aviot.methods.aviot.kernels.continuity",
    "aviot.methods.aviot.kernels.features": "aviot.methods.aviot.kernel_backend",
    "aviot.methods.aviot.kernels.halves": "aviot.methods.aviot.kernels.split_half_matmul",
    "aviot.methods.aviot.kernels.kept": "aviot.methods.aviot.kernels.common",
    "aviot.methods.aviot.kernels.lattice": "aviot.methods.aviot.kernels.device_functions",
    "aviot.methods.aviot.kernels.means": "aviot.methods.aviot.kernels.region_means",
    "aviot.methods.aviot.kernels.mixing": "aviot.methods.aviot.kernels.fusion",
    "aviot.methods.aviot.kernels.moments": "aviot.methods.aviot.kernels.branch_moments",
    "aviot.methods.aviot.kernels.motion": "aviot.methods.aviot.kernels.patch_motion",
    "aviot.methods.aviot.kernels.places": "aviot.methods.aviot.kernels.device_functions",
    "aviot.methods.aviot.kernels.plans": "aviot.methods.aviot.kernels.transport",
    "aviot.methods.aviot.kernels.position": "aviot.methods.aviot.kernels.position_residual",
    "aviot.methods.aviot.kernels.products": "aviot.methods.aviot.kernels.gram",
    "aviot.methods.aviot.kernels.record": "aviot.methods.aviot.kernels.common",
    "aviot.methods.aviot.kernels.reverse_coupling": "aviot.methods.aviot.kernels.transport",
    "aviot.methods.aviot.kernels.reverse_embedding": "aviot.methods.aviot.kernels.transport",
    "aviot.methods.aviot.kernels.reverse_gate": "aviot.methods.aviot.kernels.gate",
    "aviot.methods.aviot.kernels.reverse_mixing": "aviot.methods.aviot.kernels.fusion",
    "aviot.methods.aviot.kernels.rounds": "aviot.methods.aviot.kernels.transport",
    "aviot.methods.aviot.kernels.tables": "aviot.methods.aviot.kernels.common",
    "aviot.methods.aviot.layers": "aviot.methods.aviot.metric",
    "aviot.methods.aviot.layout": "aviot.methods.aviot.segments",
    "aviot.methods.aviot.reference_regions": "aviot.methods.aviot.reference",
    "aviot.methods.aviot.reference_terms": "aviot.methods.aviot.reference",
    "aviot.methods.aviot.usage": "aviot.methods.aviot.analysis",
    "aviot.models.answering": "aviot.legacy",
    "aviot.models.backbone": "aviot.backbones.llava_video.model",
    "aviot.models.checkpoint": "aviot.backbones.llava_video.checkpoint",
    "aviot.models.config_fields": "aviot.backbones.checkpoints.config_fields",
    "aviot.models.configuration": "aviot.backbones.llava_video.configuration",
    "aviot.models.connector": "aviot.backbones.llava_video.connector",
    "aviot.models.conversation": "aviot.backbones.llava_video.prompt",
    "aviot.models.conversion": "aviot.backbones.llava_video.conversion",
    "aviot.models.documents": "aviot.backbones.checkpoints.folder",
    "aviot.models.errors": "aviot.backbones.checkpoints.folder",
    "aviot.models.foreign_code": "aviot.backbones.checkpoints.foreign_code",
    "aviot.models.generation_settings": "aviot.backbones.llava_video.auxiliary_files",
    "aviot.models.grouping": "aviot.backbones.llava_video.prompt_batch",
    "aviot.models.guard": "aviot.engine.guard",
    "aviot.models.hub": "aviot.backbones.checkpoints.folder",
    "aviot.models.kernels": "aviot.backbones.llava_video.kernels",
    "aviot.models.modeling": "aviot.backbones.llava_video.modeling",
    "aviot.models.path": "aviot.backbones.llava_video.features_to_tokens",
    "aviot.models.processing": "aviot.backbones.llava_video.processing",
    "aviot.models.prompt": "aviot.backbones.llava_video.prompt",
    "aviot.models.sequence": "aviot.backbones.llava_video.prompt_batch",
    "aviot.models.session": "aviot.legacy",
    "aviot.models.shards": "aviot.backbones.checkpoints.shards",
    "aviot.models.sizes": "aviot.backbones.llava_video.checkpoint",
    "aviot.models.tokenizer_files": "aviot.backbones.llava_video.auxiliary_files",
    "aviot.models.variant": "aviot.backbones.llava_video.modeling",
    "aviot.printing": "aviot.utils.printing",
    "aviot.reproduce": "aviot_lab.reproduce",
    "aviot.reproduce.examiner": "aviot_lab.reproduce.evaluator",
    "aviot.scatter": "aviot.utils.splitmix64",
    "aviot.scenes.ground_truth": "aviot.scenes.scene",
    "aviot.scenes.stored": "aviot.scenes.files",
    "aviot.sending": "aviot.utils.to_device",
    "aviot.small": "aviot_lab.demo_model",
    "aviot.small.embedded": "aviot.bundled",
    "aviot.small.lessons": "aviot_lab.demo_model.batches",
    "aviot.small.means": "aviot_lab.demo_model.masks",
    "aviot.small.muon": "aviot_lab.demo_model.optimizers",
    "aviot.small.options": "aviot_lab.demo_model.answer_tasks",
    "aviot.small.pupil": "aviot_lab.demo_model.training_model",
    "aviot.small.recall": "aviot_lab.demo_model.answer_tasks",
    "aviot.small.spans": "aviot_lab.demo_model.masks",
    "aviot.synthetic": "aviot_lab.world",
    "aviot.synthetic.chance": "aviot.scenes.draws",
    "aviot.synthetic.config": "aviot_lab.world.world",
    "aviot.synthetic.families": "aviot_lab.world.questions",
    "aviot.synthetic.layers": "aviot.scenes.layers",
    "aviot.synthetic.mp4": "aviot.scenes.files",
    "aviot.synthetic.paths": "aviot.scenes.scene",
    "aviot.synthetic.patterns": "aviot.scenes.textures",
    "aviot.synthetic.question": "aviot_lab.world.questions",
    "aviot.synthetic.render": "aviot.scenes.rendering",
    "aviot.synthetic.scene": "aviot.scenes.scene",
    "aviot.synthetic.split": "aviot_lab.world.words",
    "aviot.synthetic.sprites": "aviot.scenes.textures",
    "aviot.synthetic.stage": "aviot_lab.world.layout",
    "aviot.synthetic.tracks": "aviot.scenes.scene",
    "aviot.terminal": "aviot.commands.terminal",
    "aviot.training.adapters": "aviot.training.model_setup",
    "aviot.training.arguments": "aviot.training.run",
    "aviot.training.ending": "aviot.training.shutdown",
    "aviot.training.engine": "aviot.training.config_files",
    "aviot.training.held_out": "aviot.training.loss",
    "aviot.training.interruption": "aviot.training.shutdown",
    "aviot.training.ledger": "aviot.training.manifest",
    "aviot.training.meters": "aviot.training.progress",
    "aviot.training.parts": "aviot.training.inspection",
    "aviot.training.reading": "aviot.training.config_files",
    "aviot.training.record": "aviot.training.identity",
    "aviot.training.reporting": "aviot.training.config",
    "aviot.training.sharding": "aviot.training.distributed",
    "aviot.training.source": "aviot.training.datasets",
    "aviot.training.stages": "aviot.training.model_setup",
    "aviot.training.start": "aviot.training.model_setup",
    "aviot.training.together": "aviot.training.distributed",
    "aviot.values": "aviot.utils.values",
    "aviot.video.arrays": "aviot.video.read",
    "aviot.video.claims": "aviot.video.mp4_tables",
    "aviot.video.errors": "aviot.video.checks",
    "aviot.video.images": "aviot.video.read",
    "aviot.video.limits": "aviot.video.checks",
    "aviot.video.messages": "aviot.video.worker",
    "aviot.video.paths": "aviot.video.checks",
    "aviot.video.picture": "aviot.video.decode",
    "aviot.video.result": "aviot.video.frames",
    "aviot.video.sample": "aviot.video.sampling",
    "aviot.video.scaling": "aviot.video.frames",
    "aviot.video.shelf": "aviot.video.frames",
    "aviot.video.timeline": "aviot.video.sampling",
}
"""Old and new names of modules and packages; modules inside a package move with it."""

RENAMED = {
    "aviot.corpus.config": {"BatchConfig": "CorpusConfig"},
    "aviot.data": {"EncodedVideo": "CachedVideo"},
    "aviot.data.feature_cache": {"EncodedVideo": "CachedVideo"},
    "aviot.video": {"Source": "VideoSource"},
    "aviot.video.read": {"Source": "VideoSource"},
    "aviot_lab.world": {"Batch": "WorldBatch"},
}
"""Old and new names of what a module or package exports."""


def new_name(name: str) -> str | None:
    """Return where a module has moved to, or None; the longest entry of the table decides."""
    for old in sorted(MOVED, key=len, reverse=True):
        if name == old or name.startswith(f"{old}."):
            return MOVED[old] + name[len(old) :]
    return None


def renamed(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module in `RENAMED`."""

    def attribute(name: str) -> Any:
        new = RENAMED[module].get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is called {new} now", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), new)

    return attribute


class MovedModules(MetaPathFinder, Loader):
    """Imports a moved module from its new place, so that both names mean the same module."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a specification for old names only."""
        return None if new_name(fullname) is None else spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module from its new place."""
        moved_to = new_name(spec.name) or spec.name
        warnings.warn(f"{spec.name} has moved to {moved_to}", DeprecationWarning, stacklevel=_importing_frame())
        module = import_module(moved_to)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own specification back, which the import system has replaced."""
        assert module.__spec__ is not None  # set by the import system
        module.__spec__ = self._specs.pop(module.__spec__.name)


def install() -> None:
    """Make old names importable; a second call does nothing."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())


def _importing_frame() -> int:
    """Return the stack level of the import statement: the first frame outside of the import system."""
    level = 2
    while sys._getframe(level).f_code.co_filename.startswith("<frozen importlib"):
        level += 1
    return level
