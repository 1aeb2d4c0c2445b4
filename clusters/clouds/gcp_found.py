"""Everything at Google Cloud that carries a launch's label: machines, disks, reserved addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from clusters.clouds.gcp_api import Api
from clusters.clouds.marks import Marks, merged, moment
from clusters.clouds.rest import Document
from clusters.config.guards import LAUNCH_TAG
from planner.launched import Resource, ResourceKind

_STOPPED = ("TERMINATED", "SUSPENDED")  # still listed, with their disks; gone is what is not listed
PLURALS: dict[ResourceKind, str] = {"instance": "instances", "volume": "disks", "address": "addresses"}
_COMMANDS: dict[ResourceKind, str] = {"instance": "instances", "volume": "disks", "address": "addresses"}
_ZONE = re.compile(r"[a-z0-9-]+-[a-z]")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)t(\d\d)-(\d\d)-(\d\d)z")


def only(launch_id: str | None) -> str:
    """Filter of a list: the label of a launch, or of any launch."""
    return f"labels.{LAUNCH_TAG}:*" if launch_id is None else f"labels.{LAUNCH_TAG} = {launch_id}"


def everything(api: Api, launch_id: str | None) -> Iterator[Resource]:
    """All that carries the label, in any zone and region of the project, in any state."""
    for kind, plural in PLURALS.items():
        for place, one in api.everywhere(plural, only(launch_id)):
            state = str(one.get("status", "there"))
            bills = kind != "instance" or state not in _STOPPED
            made = Resource(
                kind=kind, id=str(one["name"]), state=state, place=place, bills=bills,
                launch_id=one.get("labels", {}).get(LAUNCH_TAG),
            )  # fmt: skip
            yield made.model_copy(update={"hint": by_hand(made, api.project)})


def path_of(api: Api, resource: Resource) -> str:
    """Path of one thing: of its zone, or of its region."""
    plural = PLURALS[resource.kind]
    if resource.place == "global":
        return api.path(f"global/{plural}/{resource.id}")
    scope = "zones" if _ZONE.fullmatch(resource.place) else "regions"
    return api.path(f"{scope}/{resource.place}/{plural}/{resource.id}")


def by_hand(resource: Resource, project: str) -> str:
    """Command of Google's own client that deletes a thing."""
    flag = f"--zone {resource.place}" if _ZONE.fullmatch(resource.place) else f"--region {resource.place}"
    where = "--global" if resource.place == "global" else flag
    command = f"gcloud compute {_COMMANDS[resource.kind]} delete {resource.id}"
    return f"{command} {where} --project {project} --quiet"


def head(api: Api, launch_id: str) -> Document | None:
    """The head of a launch, if it runs."""
    wanted = f"({only(launch_id)}) AND (labels.ray-node-type = head) AND (status = RUNNING)"
    return next((one for _, one in api.everywhere("instances", wanted)), None)


def marks(api: Api, launch_id: str | None) -> tuple[Marks, ...]:
    """What the labels of launches say, from machines and disks."""
    found = []
    for zone, one in api.everywhere("instances", only(launch_id)):
        bills = one.get("status") not in _STOPPED
        model = one.get("scheduling", {}).get("provisioningModel", "STANDARD")
        found.append(
            _of_labels(one, zone).model_copy(
                update={
                    "market": "spot" if model == "SPOT" else "on-demand",
                    "machine_type": str(one.get("machineType", "")).rpartition("/")[2] or None,
                    "machines": (str(one["name"]),) if bills else (),
                    "since": moment(one.get("creationTimestamp")),
                }
            )
        )
    found += [_of_labels(one, place) for place, one in api.everywhere("disks", only(launch_id))]
    return merged(found)


def _of_labels(one: Document, place: str) -> Marks:
    labels = one["labels"]
    zone = place if _ZONE.fullmatch(place) else None
    return Marks(
        launch_id=labels[LAUNCH_TAG],
        plan_id=labels.get("plan-id"),
        owner=labels.get("plan-owner"),
        deadline=_deadline(labels.get("plan-deadline", "")),
        region=place.rpartition("-")[0] if zone else place,
        zone=zone,
    )


def _deadline(label: str) -> datetime | None:
    """Read the deadline of a label, which holds neither capitals nor colons."""
    found = _MOMENT.fullmatch(label)
    if found is None:
        return None
    day, hour, minute, second = found.groups()
    return moment(f"{day}T{hour}:{minute}:{second}+00:00")
