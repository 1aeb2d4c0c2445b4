"""Azure Resource Manager on the loopback, as a launch uses it: groups with tags, and what stands in them.

A deployment is taken only with parameters that Ray's own template of a machine has. Deleting a group makes it
``Deleting``; it is gone, with all in it, after as many lists as ``slow`` says. All else is answered 404.
"""

import json
import re
from pathlib import Path

from tests.clusters.clouds.rest_fake import Answer, Document, FakeRest

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
REGION, SIZE = "eastus", "Standard_ND96isr_H100_v5"
_FILTER = re.compile(r"tagName eq '([^']+)'(?: and tagValue eq '([^']+)')?")
_MACHINES = "Microsoft.Compute/virtualMachines"


def error(status: int, code: str, message: str = "no", inner: str = "") -> Answer:
    """An error as Azure writes it."""
    details = [{"code": inner, "message": message}] if inner else []
    return status, {"error": {"code": code, "message": message, "details": details}}


class FakeArm(FakeRest):
    """One subscription, in which all that a launch needs may be made."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = 1
        self.state = "Enabled"
        self.groups: dict[str, Document] = {}
        self.inside: dict[str, dict[tuple[str, str], Document]] = {}
        self.power: dict[str, str] = {}
        self.sizes = [
            {
                "resourceType": "virtualMachines",
                "name": SIZE,
                "family": "standardNDSH100v5Family",
                "locationInfo": [{"location": REGION, "zones": ["1", "2"]}],
                "capabilities": [{"name": "vCPUs", "value": "96"}],
                "restrictions": [],
            }
        ]
        self.usages = {"standardNDSH100v5Family": (192, 0), "cores": (400, 0), "lowPriorityCores": (96, 0)}
        self.images = ["24.4.1"]
        self.actions = [{"actions": ["*"], "notActions": []}]

    def unauthorized(self) -> Answer:
        return error(401, "InvalidAuthenticationToken")

    def answer(self, method: str, path: str, query: dict[str, str], body: Document) -> Answer:
        root = f"/subscriptions/{SUBSCRIPTION}"
        assert "api-version" in query, f"Azure refuses a call without a version: {path}"
        if not path.startswith(root):
            return error(404, "SubscriptionNotFound")
        where = path.removeprefix(root).lstrip("/").split("/")
        if where == [""]:
            return 200, {"displayName": "lab", "state": self.state}
        if where[0].lower() == "resourcegroups":
            return self._groups(method, where[1:], query, body)
        return self._offers(where)

    def _offers(self, where: list[str]) -> Answer:
        if where[-1] == "permissions":
            return 200, {"value": self.actions}
        if where[-1] == "skus":
            return 200, {"value": self.sizes}
        if where[-1] == "usages":
            return 200, {
                "value": [
                    {"name": {"value": name}, "limit": limit, "currentValue": used}
                    for name, (limit, used) in self.usages.items()
                ]
            }
        if where[-1] == "versions":
            return 200, [{"name": name} for name in self.images]  # type: ignore[return-value]
        return error(404, "NotFound", "/".join(where))

    # ------------------------------------------------------------------------------------ groups

    def _groups(self, method: str, where: list[str], query: dict[str, str], body: Document) -> Answer:
        if not where:
            self._pass_time()
            found = _FILTER.fullmatch(query.get("$filter", ""))
            assert found is not None, "a filter that Azure would not read"
            key, value = found.groups()
            return 200, {"value": [g for g in self.groups.values() if _tagged(g, key, value)]}
        name, rest = where[0], where[1:]
        if not rest:
            return self._group(method, name, body)
        if name not in self.groups:
            return error(404, "ResourceGroupNotFound")
        if rest == ["resources"]:
            items = self.inside[name].items()
            return 200, {"value": [{"type": kind, "name": one, **more} for (kind, one), more in items]}
        if rest[:3] == ["providers", "Microsoft.Resources", "deployments"]:
            return self._deploy(name, body["properties"]["parameters"])
        return self._thing(method, name, "/".join(rest[1:3]), rest[3:])

    def _group(self, method: str, name: str, body: Document) -> Answer:
        if method == "PUT":
            self.groups[name] = {"name": name, "properties": {"provisioningState": "Succeeded"}, **body}
            self.inside.setdefault(name, {})
            return 201, self.groups[name]
        if name not in self.groups:
            return error(404, "ResourceGroupNotFound")
        if method == "PATCH":
            self.groups[name] |= body
        if method == "DELETE":
            self.groups[name]["properties"]["provisioningState"] = "Deleting"
            self.groups[name].setdefault("looks", self.slow)
            return 202, None
        return 200, self.groups[name]

    def _pass_time(self) -> None:
        for name, group in list(self.groups.items()):
            if "looks" in group:
                group["looks"] -= 1
                if group["looks"] < 0:
                    del self.groups[name], self.inside[name]

    def _thing(self, method: str, group: str, kind: str, where: list[str]) -> Answer:
        key = (kind, where[0])
        if key not in self.inside[group]:
            return error(404, "ResourceNotFound")
        if where[1:] == ["instanceView"]:
            power = self.power.get(where[0], "running")
            return 200, {
                "statuses": [{"code": "ProvisioningState/succeeded"}, {"code": f"PowerState/{power}"}]
            }
        if method == "DELETE":
            used = kind.endswith("/disks") and (_MACHINES, where[0].removesuffix("-os")) in self.inside[group]
            if used:
                return error(409, "OperationNotAllowed", "disk is attached to a machine")
            del self.inside[group][key]
            return 202, None
        return 200, {"name": where[0], **self.inside[group][key]}

    def _deploy(self, group: str, parameters: Document) -> Answer:
        import ray.autoscaler

        template = Path(ray.autoscaler.__file__).parent / "_private/_azure/azure-vm-template.json"
        known = json.loads(template.read_text(encoding="utf-8"))["parameters"]
        if unknown := sorted(set(parameters) - set(known)):
            return error(400, "InvalidTemplate", f"no parameter {unknown}")
        said = {name: one["value"] for name, one in parameters.items()}
        assert said["provisionPublicIp"] is False, "the template's port 22 is open to everyone"
        for i in range(said["vmCount"]):
            self._machine(group, f"{said['vmName']}{i}", said)
        return 201, {"properties": {"provisioningState": "Succeeded"}}

    def _machine(self, group: str, name: str, said: Document) -> None:
        things = self.inside[group]
        number = sum(kind == _MACHINES for kind, _ in things)
        address = {"ipConfigurations": [{"properties": {"privateIPAddress": f"10.9.0.{number + 4}"}}]}
        things["Microsoft.Network/networkInterfaces", f"{name}-nic"] = {"properties": address}
        things["Microsoft.Compute/disks", f"{name}-os"] = {}
        things[_MACHINES, name] = {
            "tags": said["vmTags"],
            "properties": {
                "hardwareProfile": {"vmSize": said["vmSize"]},
                "priority": said.get("priority", "Regular"),
                "networkProfile": {"networkInterfaces": [{"id": f"/any/networkInterfaces/{name}-nic"}]},
            },
        }

    def names(self, kind: str) -> list[str]:
        """Names of all things of a type, in any group."""
        return [name for things in self.inside.values() for (t, name) in things if t.endswith(kind)]


def _tagged(group: Document, key: str, value: str | None) -> bool:
    tags = group.get("tags", {})
    return key in tags and value in (None, tags[key])
