"""What the kernel kills first when memory runs out, by annotation (docs/reference/hooks.md 2.8)."""

from __future__ import annotations

from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError

NAME = "oom-score-adj"


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    """A score for the container's name wins over one for all. The sandbox has neither."""
    pod, container = subject.pod, subject.container
    if pod is None or container is None:
        return Adjustment()
    try:
        of_names, fault = keys.OOM_SCORE_ADJ_SPEC.read(pod.annotations) or {}, None
    except AnnotationError as error:
        of_names, fault = {}, error
    if not container.name:
        if not of_names and keys.OOM_SCORE_ADJ.name not in pod.annotations:
            return Adjustment()
        text = f"{pod.title}: the name of container {container.id} is not known yet"
        return Adjustment(notes=(Why("oom-score-adj.unnamed", text),))
    key, value = keys.OOM_SCORE_ADJ_SPEC.name, of_names.get(container.name)
    if value is None:
        key, value = keys.OOM_SCORE_ADJ.name, keys.OOM_SCORE_ADJ.read(pod.annotations)
    if value is None:
        if fault is not None:
            raise fault
        return Adjustment()
    notes = []
    if fault is not None:
        text = f"{pod.title}: {fault}; {keys.OOM_SCORE_ADJ.name} applies to all containers"
        notes.append(Why("oom-score-adj.bad-annotation", text))
    why = Why("oom-score-adj.annotation", f"annotation {key}", (Input(key, value),))
    return Adjustment(((Resource.OOM_SCORE_ADJ, value, why),), tuple(notes))


HOOK = Hook(
    name=NAME,
    help="Out-of-memory score by annotation.",
    options=DEFAULTS,
    levels=(Level.CONTAINER,),
    function=_evaluate,
    writes=(Resource.OOM_SCORE_ADJ,),
    stages=(Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER),
)
