"""Compute Engine on the loopback, as a launch uses it: objects, labels, filters, operations that take time.

A machine is taken only in the closed shape of the discovery document. Deleting one makes it ``STOPPING``; it
is gone, with its boot disk, after as many lists as ``slow`` says. All else is answered 404.
"""

import re
from collections.abc import Iterator

from clusters.config import closed
from tests.clusters.clouds.rest_fake import Answer, Document, FakeRest

PROJECT, REGION = "lab", "us-central1"
_TERM = re.compile(r"\(?(labels\.[a-z-]+|status|name)( = |:)([^)]*)\)?")


def error(status: int, reason: str, message: str = "no") -> Answer:
    """An error as Google writes it."""
    return status, {
        "error": {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    }


class FakeCompute(FakeRest):
    """One project, in which all that a launch needs is there."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = 1
        self.kept: dict[str, dict[tuple[str, str], Document]] = {
            "instances": {},
            "disks": {},
            "addresses": {},
        }
        self.zones = {"a3-megagpu-8g": [f"{REGION}-a", f"{REGION}-c", "europe-west4-b"]}
        self.quotas = {"NVIDIA_H100_MEGA_GPUS": (16.0, 0.0), "PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS": (8.0, 0.0)}
        self.all_regions = 64.0
        self.subnets = {"plan", *(f"plan-gpu-{i}" for i in range(8))}
        self.rules: list[Document] = [
            {"name": "plan-ssh", "network": "projects/lab/global/networks/plan", "targetTags": ["plan"],
             "sourceRanges": ["203.0.113.0/24"], "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]},
            {"name": "plan-inside", "network": "projects/lab/global/networks/plan", "targetTags": ["plan"],
             "sourceTags": ["plan"], "allowed": [{"IPProtocol": "all"}]},
        ]  # fmt: skip
        self.lacking: set[str] = set()
        self.accounts = {"plan-head@lab.iam.gserviceaccount.com"}
        self.unreachable = ""

    def unauthorized(self) -> Answer:
        return error(401, "authError", "Invalid Credentials")

    def answer(self, method: str, path: str, query: dict[str, str], body: Document) -> Answer:
        if path.endswith(":testIamPermissions"):
            return 200, {"permissions": [p for p in body["permissions"] if p not in self.lacking]}
        if not path.startswith(f"/projects/{PROJECT}"):
            return (
                (200, {"name": "image", "status": "READY"}) if "/images/" in path else error(404, "notFound")
            )
        where = path.removeprefix(f"/projects/{PROJECT}").lstrip("/").split("/")
        if where[0] == "aggregated":
            return self._aggregated(where[1], query.get("filter", ""))
        if method == "DELETE" and where[0] == "zones":
            return self._delete(where[2], where[1], where[3])
        if method == "POST" and where[0] == "zones" and where[2:] == ["instances"]:
            return self._insert(where[1], body)
        return self._read(where)

    def _read(self, where: list[str]) -> Answer:
        if where == [""]:
            return 200, {"name": PROJECT, "quotas": [_quota("GPUS_ALL_REGIONS", self.all_regions, 0.0)]}
        if where[0] == "regions" and len(where) == 2:
            quotas = [_quota(name, *both) for name, both in self.quotas.items()]
            return 200, {"name": REGION, "status": "UP", "quotas": quotas}
        if "subnetworks" in where and where[-1] in self.subnets:
            return 200, {
                "name": where[-1],
                "network": "https://c/networks/plan",
                "ipCidrRange": "10.10.0.0/16",
            }
        if where == ["global", "firewalls"]:
            return 200, {"items": self.rules}
        if where[0] == "serviceAccounts" and where[1] in self.accounts:
            return 200, {"email": where[1]}
        return error(404, "notFound", f"{'/'.join(where)} was not found")

    # ------------------------------------------------------------------------------------ machines

    def add(self, plural: str, place: str, name: str, **more: object) -> None:
        """Put an object there."""
        self.kept[plural][place, name] = {"name": name, **more}

    def _insert(self, zone: str, body: Document) -> Answer:
        wrong = closed.problems(body, closed.shapes("gcp_instance.json"), "instance")
        if wrong or not body["machineType"].startswith(f"zones/{zone}/machineTypes/"):
            return error(400, "invalid", "; ".join(wrong) or body["machineType"])
        address = f"203.0.113.{len(self.kept['instances']) + 10}"
        interface = {"networkIP": "10.10.0.2", "accessConfigs": [{"natIP": address}]}
        made = {**body, "status": "RUNNING", "networkInterfaces": [interface]}
        self.kept["instances"][zone, body["name"]] = made
        boot = body["disks"][0]["initializeParams"]
        self.add("disks", zone, body["name"], labels=boot["labels"], status="READY", users=[body["name"]])
        return 200, {"name": "operation-1", "status": "RUNNING"}

    def _delete(self, plural: str, zone: str, name: str) -> Answer:
        found = self.kept[plural].get((zone, name))
        if found is None:
            return error(404, "notFound")
        if plural == "disks" and (zone, name) in self.kept["instances"]:
            return error(400, "resourceInUseByAnotherResource")
        if plural == "instances":
            found["status"] = "STOPPING"
            found.setdefault("looks", self.slow)
        else:
            del self.kept[plural][zone, name]
        return 200, {"name": "operation-2", "status": "RUNNING"}

    def _aggregated(self, plural: str, only: str) -> Answer:
        if self.unreachable:
            return 200, {"items": {f"zones/{self.unreachable}": {"warning": {"code": "UNREACHABLE"}}}}
        if plural == "machineTypes":
            name = only.removeprefix("name = ")
            places = self.zones.get(name, [])
            return 200, {"items": {f"zones/{z}": {plural: [{"name": name}]} for z in places}}
        if plural == "instances":
            self._pass_time()
        items: dict[str, Document] = {"regions/asia-east1": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for (place, _), one in self.kept[plural].items():
            if all(_fits(one, *term) for term in _terms(only)):
                scope = "regions" if place == REGION else "zones"
                items.setdefault(f"{scope}/{place}", {plural: []})[plural].append(one)
        return 200, {"items": items}

    def _pass_time(self) -> None:
        for key, one in list(self.kept["instances"].items()):
            if one["status"] == "STOPPING":
                one["looks"] -= 1
                if one["looks"] < 0:
                    del self.kept["instances"][key]
                    self.kept["disks"].pop(key, None)


def _terms(text: str) -> Iterator[tuple[str, str, str]]:
    for part in filter(None, text.split(" AND ")):
        found = _TERM.fullmatch(part)
        assert found is not None, f"a filter that Compute Engine would not read: {part}"
        yield found.group(1), found.group(2), found.group(3)


def _fits(one: Document, key: str, how: str, value: str) -> bool:
    mine = (
        one.get("labels", {}).get(key.removeprefix("labels.")) if key.startswith("labels.") else one.get(key)
    )
    return mine is not None if how == ":" else mine == value


def _quota(metric: str, limit: float, usage: float) -> Document:
    return {"metric": metric, "limit": limit, "usage": usage}
