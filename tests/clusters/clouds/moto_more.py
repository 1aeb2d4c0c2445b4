"""What moto does not have and a launch meets: placement groups, reservations, quotas, zones without capacity.

``install()`` adds them to moto in this process;
``python -m tests.clusters.clouds.moto_more HOST PORT ZONE...`` runs moto's server with them, and with zones
that refuse as ``refuse_in`` says. ``CALLS`` in its environment names a file to which every call is written,
with the address that it came from.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

QUOTAS: dict[str, float] = defaultdict(lambda: 384.0)  # by code; a test may say other values

RESERVATIONS: dict[str, dict] = {}  # by id; a test says which there are


def install() -> None:
    from moto.core.responses import ActionResult
    from moto.ec2.responses import EC2Response
    from moto.servicequotas.models import ServiceQuotasBackend

    groups: dict[tuple[str, str], dict[str, dict]] = defaultdict(dict)

    def here(self: EC2Response) -> dict[str, dict]:
        return groups[self.current_account, self.region]

    def create(self: EC2Response) -> ActionResult:
        name = self._get_param("GroupName")
        self.error_on_dryrun()
        tags = self._parse_tag_specification("placement-group").get("placement-group", {})
        here(self)[name] = {
            "GroupName": name,
            "State": "available",
            "Strategy": self._get_param("Strategy"),
            "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
        }
        return ActionResult({"PlacementGroup": here(self)[name]})

    def describe(self: EC2Response) -> ActionResult:
        found = [g for g in here(self).values() if _matches(g, self._filters_from_querystring())]
        return ActionResult({"PlacementGroups": found})

    def delete(self: EC2Response) -> ActionResult:
        here(self).pop(self._get_param("GroupName"), None)
        return ActionResult({})

    def reservations(self: EC2Response) -> ActionResult:
        wanted = [v for v in self._get_param("CapacityReservationIds", []) if v in RESERVATIONS]
        return ActionResult({"CapacityReservations": [RESERVATIONS[name] for name in wanted]})

    def quota(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict:
        return {"ServiceCode": service_code, "QuotaCode": quota_code, "Value": QUOTAS[quota_code]}

    EC2Response.create_placement_group = create
    EC2Response.describe_placement_groups = describe
    EC2Response.delete_placement_group = delete
    EC2Response.describe_capacity_reservations = reservations
    ServiceQuotasBackend.get_service_quota = quota


def refuse_in(zones: list[str]) -> None:
    """Let RunInstances fail in these zones as EC2 does; a dry run does not look at them.

    ``ZONE`` has no capacity, ``ZONE=1`` has room for one machine, ``ZONE=CODE`` answers with this error, and
    ``ZONE=503x2`` throttles the first two calls.
    """
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses import EC2Response

    real = EC2Response.run_instances
    rules = {zone: rule or "0" for zone, _, rule in (told.partition("=") for told in zones)}
    throttled: Counter[str] = Counter()

    def run(self: EC2Response) -> ActionResult:
        if self._get_param("DryRun"):
            return real(self)
        (first, *_) = self._get_param("NetworkInterfaces")
        zone = self.ec2_backend.get_subnet(first["SubnetId"]).availability_zone
        rule = rules.get(zone, str(sys.maxsize))
        if rule.startswith("503x"):
            throttled[zone] += 1
            if throttled[zone] <= int(rule.removeprefix("503x")):
                raise _throttling()
        elif not rule.isdigit():
            raise EC2ClientError(rule, f"{rule} in {zone}.")
        elif _running(self, zone) >= int(rule):
            said = f"We currently do not have sufficient capacity in the zone you requested ({zone})."
            raise EC2ClientError("InsufficientInstanceCapacity", said)
        return real(self)

    EC2Response.run_instances = run


def _running(ec2: object, zone: str) -> int:
    known = [i for i in ec2.ec2_backend.all_instances() if i.placement.zone == zone]
    return sum(i._state.name == "running" for i in known)


def _throttling() -> Exception:
    """EC2's answer to too many calls, which clients know by its status."""
    from werkzeug.exceptions import ServiceUnavailable

    error = "<Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error>"
    return ServiceUnavailable(f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>")


def record_calls(path: Path) -> None:
    """Write every call as a line: who made it, what it was, and what EC2 asks of it besides its own right."""
    from moto.core.responses import BaseResponse

    real = BaseResponse.call_action

    def call(self: BaseResponse) -> object:
        asks = [f"{self.boto3_service_name}:{self._get_action()}"]
        if asks == ["ec2:RunInstances"]:  # EC2 user guide, "Required permissions" of tags and of parameters
            asks += ["ec2:CreateTags"] if self._get_param("TagSpecifications") else []
            asks += ["ssm:GetParameters"] if "resolve:ssm:" in self._get_param("ImageId", "") else []
        line = {"from": self.normalized_request.remote_addr, "asks": asks, "region": self.region}
        with path.open("a") as file:
            file.write(f"{json.dumps(line)}\n")
        return real(self)

    BaseResponse.call_action = call


def image_of_the_parameters() -> None:
    """Answer every parameter of AWS's own images with the image that the region has."""
    from moto.ec2.models import ec2_backends
    from moto.ssm.models import Parameter, SimpleSystemManagerBackend

    real = SimpleSystemManagerBackend.get_parameter

    def get(self: SimpleSystemManagerBackend, name: str) -> Parameter | None:
        if not name.startswith("/aws/service/deeplearning/"):
            return real(self, name)
        (image, *_) = ec2_backends[self.account_id][self.region_name].amis
        return Parameter(
            account_id=self.account_id, name=name, value=image, parameter_type="String", description="",
            allowed_pattern=None, keyid=None, last_modified_date=0, version=1, data_type="text",
        )  # fmt: skip

    SimpleSystemManagerBackend.get_parameter = get


def _matches(group: dict, filters: dict[str, list[str]]) -> bool:
    tags = {t["Key"]: t["Value"] for t in group["Tags"]}
    for name, values in filters.items():
        if name == "tag-key" and not set(values) & set(tags):
            return False
        if name.startswith("tag:") and tags.get(name.removeprefix("tag:")) not in values:
            return False
    return True


if __name__ == "__main__":
    from moto.server import main

    install()
    image_of_the_parameters()
    refuse_in(sys.argv[3:])
    if "CALLS" in os.environ:
        record_calls(Path(os.environ["CALLS"]))
    main(["-H", sys.argv[1], "-p", sys.argv[2]])
