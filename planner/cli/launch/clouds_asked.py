"""Which clouds are asked what is there: this machine, AWS by region, others as launches or plans name them.

A cloud that cannot be asked is named with the reason; "nothing found" is said only of those that answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from clusters.clouds.base import Cloud
from clusters.clouds.marks import Marked, Marks
from clusters.clouds.registry import cloud_for
from clusters.config.choices import Choices
from clusters.faults import CloudFault
from clusters.launch import adopting
from clusters.launch.adopting import Orphan
from clusters.launch.nouns import Hands, Work
from clusters.launch.running import WORK
from planner.cli import store
from planner.cli.launch import request as launch_request
from planner.errors import UserError
from planner.launched import CloudKind, Launch
from planner.types import Record

_AT_ONCE = 8
_NAMED = ("kuberay", "hosts", "gcp", "azure")
_BY_ACCOUNT: dict[CloudKind, str] = {"gcp": "the project of gcloud", "azure": "the subscription of az"}


class Target(Record):
    """One cloud in one place, and by which choices it is reached."""

    kind: CloudKind
    where: str
    choices: Choices
    regions: tuple[str, ...] = ()


class Asked(Record):
    """Whether a cloud answered. ``why``: the reason where it did not."""

    kind: CloudKind
    where: str
    answered: bool
    why: str = ""
    hint: str = ""


class Answers(Record):
    """Orphans of all clouds that answered, and which clouds were asked."""

    orphans: tuple[Orphan, ...]
    asked: tuple[Asked, ...]


def ask(regions: Sequence[str], launches: Sequence[Launch], hands: Hands) -> Answers:
    """Ask every cloud for what carries a tag of ours and that no live row explains. Nothing is changed."""
    targets = _targets(regions, launches, hands)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        answers = list(pool.map(lambda target: _one(target, launches), targets))
    found: dict[tuple[str, str], Orphan] = {}
    for orphans, _ in answers:
        for orphan in orphans:
            old = found.get((orphan.kind, orphan.launch_id))
            found[orphan.kind, orphan.launch_id] = orphan if old is None else _both(old, orphan)
    return Answers(
        orphans=tuple(found[key] for key in sorted(found)),
        asked=(*(asked for _, asked in answers), *_never(targets)),
    )


def cloud_of(orphan: Orphan, hands: Hands) -> Cloud:
    """The cloud on which an orphan is, looking in its own places."""
    places = tuple(dict.fromkeys(r.place for r in orphan.resources if r.place != "global"))
    return cloud_in(orphan.kind, orphan.launch_id, places, hands)


def cloud_in(kind: CloudKind, launch_id: str, places: Sequence[str], hands: Hands) -> Cloud:
    """A cloud by kind: by the choices of a launch that named it, else by none."""
    named = [t for t in _named_by_launches(hands.ledger.launches(), hands) if t.kind == kind]
    if kind not in _BY_ACCOUNT:
        named = [t for t in named if t.where in places]
    elif len(named) > 1:
        named = [t for t in named if _has(t, launch_id)]
    if named:
        return cloud_for(kind, named[0].choices)
    return cloud_for(kind, launch_request.no_choices(), regions=tuple(places))


def _has(target: Target, launch_id: str) -> bool:
    """Whether an account names something of a launch; one that cannot be asked names nothing."""
    try:
        return bool(cloud_for(target.kind, target.choices).find(launch_id))
    except CloudFault:
        return False


def _one(target: Target, launches: Sequence[Launch]) -> tuple[tuple[Orphan, ...], Asked]:
    try:
        cloud = cloud_for(target.kind, target.choices, regions=target.regions)
        found = cloud.find(None)
        marks: tuple[Marks, ...] = cloud.marks(None) if found and isinstance(cloud, Marked) else ()
    except (CloudFault, UserError) as error:
        why = Asked(kind=target.kind, where=target.where, answered=False, why=str(error), hint=error.hint)
        return (), why
    asked = Asked(kind=target.kind, where=target.where, answered=True)
    return adopting.orphans(target.kind, found, marks, launches), asked


def _targets(regions: Sequence[str], launches: Sequence[Launch], hands: Hands) -> list[Target]:
    none = launch_request.no_choices()
    targets = [Target(kind="local", where="this machine", choices=none)]
    for region in regions or _regions(launches):
        targets.append(Target(kind="aws", where=region, choices=none, regions=(region,)))
    named = _named_by_launches(launches, hands)
    plans = {p.candidate.offer.provider for p in store.all_plans()}
    for kind, where in _BY_ACCOUNT.items():
        known = kind in plans or any(x.kind == kind for x in launches)
        if known and all(t.kind != kind for t in named):
            targets.append(Target(kind=kind, where=where, choices=none))
    return [*targets, *named]


def _regions(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Regions of AWS that a launch or a saved plan names."""
    plans = [p.candidate.offer for p in store.all_plans()]
    named = [x.region for x in launches if x.kind == "aws"]
    named += [offer.region for offer in plans if offer.provider == "aws"]
    return tuple(sorted({region for region in named if region}))


def _named_by_launches(launches: Sequence[Launch], hands: Hands) -> list[Target]:
    """Kubernetes clusters, hosts, projects and subscriptions that launches of this ledger were on."""
    found: dict[str, Target] = {}
    for launch in launches:
        text = hands.ledger.note(launch.id, WORK) if launch.kind in _NAMED else None
        if text is None:
            continue
        choices = Work.model_validate_json(text).request.choices
        where = _where(launch.kind, choices)
        key = f"{launch.kind} {choices.kubeconfig} {choices.kube_context} {where}"
        found[key] = Target(kind=launch.kind, where=where, choices=choices)
    return list(found.values())


def _where(kind: CloudKind, choices: Choices) -> str:
    """The place that a launch's choices name."""
    named = {
        "kuberay": choices.namespace,
        "hosts": ",".join(choices.hosts),
        "gcp": choices.project,
        "azure": choices.subscription,
    }[kind]
    return named or _BY_ACCOUNT.get(kind, "")


def _never(targets: Sequence[Target]) -> tuple[Asked, ...]:
    """Clouds that nobody asks: no region is named."""
    if any(t.kind == "aws" for t in targets):
        return ()
    return (
        Asked(
            kind="aws",
            where="any region",
            answered=False,
            why="no launch and no saved plan names a region",
            hint="plan ls --orphans --region us-east-1",
        ),
    )


def _both(a: Orphan, b: Orphan) -> Orphan:
    """One launch that two answers name: things of the whole account come with every region's answer."""
    resources = {(r.kind, r.id, r.place): r for r in (*a.resources, *b.resources)}
    marks = a.marks if a.marks.region is not None else b.marks
    return a.model_copy(update={"resources": tuple(resources.values()), "marks": marks})
