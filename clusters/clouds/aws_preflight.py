"""What can be looked at in an AWS account before anything bills. What cannot be looked at does not pass."""

from __future__ import annotations

import csv
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

from clusters.clouds import aws_reservations
from clusters.clouds.aws_errors import code_of, sorted_faults
from clusters.clouds.base import Order, PreflightCheck
from clusters.config import aws as aws_documents
from clusters.config import aws_ground, versions
from clusters.config.aws_ground import Answer, Client
from clusters.config.nodes import Cluster
from clusters.faults import CloudFault

WOULD_SUCCEED = "DryRunOperation"
LARGEST_SKEW_S = 60.0
_FREE_MARKETS = ("capacity-block",)  # bought beforehand: no quota of running instances counts
_ENABLED = ("opt-in-not-required", "opted-in")
_ALIVE = ["pending", "running", "stopping", "stopped"]
Clients = Callable[[str, str], Client]


def checks(client: Clients, order: Order, cluster: Cluster) -> tuple[PreflightCheck, ...]:
    """All checks, in the order in which they are worth reading; without credentials only the first."""
    region = order.place.region
    who = _checked("credentials", "aws configure", lambda: _who(client("sts", region)))
    if not who.passed:
        return (who,)
    ec2 = client("ec2", region)
    looks: tuple[tuple[str, str, Callable[[], tuple[bool, str]]], ...] = (
        ("clock", "set the clock: timedatectl set-ntp true", lambda: _clock(client("sts", region))),
        ("region", f"aws account enable-region --region-name {region}", lambda: _region(ec2, region)),
        ("offered", "plan launch PLAN --zone ZONE", lambda: _offered(ec2, cluster)),
        ("quota", _quota_hint(cluster), lambda: _quota(client, ec2, cluster)),
        ("image", "plan launch PLAN --image NAME", lambda: _image(client, ec2, order, cluster)),
        ("subnet", "plan launch PLAN --subnet ID", lambda: _subnet(ec2, order, cluster)),
        ("ssh", "plan launch PLAN --ssh-from 203.0.113.7/32", lambda: _ssh(order)),
        ("permissions", f"plan cluster {cluster.plan_id} --iam", lambda: _permissions(ec2, order, cluster)),
        ("no such launch", "plan ls", lambda: _none_alive(ec2, order, cluster)),
    )
    if order.choices.reservation is not None:
        hint = "plan launch PLAN --reservation ID --expire 12h"
        looks = (*looks, ("reservation", hint, lambda: aws_reservations.look(ec2, order, cluster)))
    return (who, *(_checked(name, hint, look) for name, hint, look in looks))


def _checked(name: str, hint: str, look: Callable[[], tuple[bool, str]]) -> PreflightCheck:
    """Make one check; a look that fails is a check that did not pass."""
    try:
        with sorted_faults(name):
            passed, detail = look()
    except CloudFault as fault:
        return PreflightCheck(
            name=name, passed=False, detail=f"unknown: {fault}", hint=fault.hint or hint, fault=fault.kind
        )
    return PreflightCheck(name=name, passed=passed, detail=detail, hint="" if passed else hint)


def _who(sts: Client) -> tuple[bool, str]:
    answer = sts.get_caller_identity()
    return True, f"account {answer['Account']}, {answer['Arn']}"


def _clock(sts: Client) -> tuple[bool, str]:
    before = time.time()
    said = sts.get_caller_identity()["ResponseMetadata"]["HTTPHeaders"].get("date")
    if said is None:
        return False, "AWS did not say its time"
    theirs = parsedate_to_datetime(said).timestamp()
    skew = max(before - 1.0 - theirs, theirs - time.time(), 0.0)  # theirs has whole seconds
    return skew <= LARGEST_SKEW_S, f"{skew:.0f} s off AWS's"


def _region(ec2: Client, region: str) -> tuple[bool, str]:
    (found,) = ec2.describe_regions(RegionNames=[region], AllRegions=True)["Regions"]
    state = str(found.get("OptInStatus", "unknown"))
    return state in _ENABLED, f"{region}: {state}"


def zones_that_offer(ec2: Client, instance_type: str) -> tuple[str, ...]:
    """Zones of the client's region in which a type is offered, sorted."""
    answer = ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [instance_type]}]
    )
    return tuple(sorted(str(o["Location"]) for o in answer["InstanceTypeOfferings"]))


def _offered(ec2: Client, cluster: Cluster) -> tuple[bool, str]:
    zones = zones_that_offer(ec2, cluster.instance_type)
    said = f"{cluster.instance_type} in {', '.join(zones) or 'no zone of ' + cluster.region}"
    if cluster.zone is not None:
        return cluster.zone in zones, f"{said}; wanted in {cluster.zone}"
    return bool(zones), said


# ---------------------------------------------------------------------------------------------- quota


@lru_cache(maxsize=1)
def _quota_codes() -> dict[tuple[str, str], tuple[str, str]]:
    """Family and quota code, by prefix of an instance type and market."""
    text = files("clusters.backend").joinpath("data/aws_quotas.csv").read_text(encoding="utf-8")
    return {
        (prefix, row["market"]): (row["family"], row["code"])
        for row in csv.DictReader(text.splitlines())
        for prefix in row["prefixes"].split()
    }


def quota_of(instance_type: str, market: str) -> tuple[str, str] | None:
    """Family and quota code that a running instance counts against; ``None`` = not known.

    The letters of a type are its family (``g6e.xlarge``: g), where a listed prefix does not have its number.
    """
    bought = "spot" if market == "spot" else "on-demand"
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    if found is None:
        return None
    letters, number = found.groups()
    codes = _quota_codes()
    return codes.get((letters + number, bought)) or codes.get((letters, bought))


def _quota_hint(cluster: Cluster) -> str:
    found = quota_of(cluster.instance_type, cluster.market)
    if found is None:
        return "console of Service Quotas, Amazon EC2"
    return (
        f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {found[1]}"
        f" --region {cluster.region} --desired-value N"
    )


def _quota(client: Clients, ec2: Client, cluster: Cluster) -> tuple[bool, str]:
    if cluster.market in _FREE_MARKETS:
        return True, "a capacity block has been bought with its capacity"
    found = quota_of(cluster.instance_type, cluster.market)
    if found is None:
        return False, f"unknown: no quota code is known for {cluster.instance_type}, {cluster.market}"
    family, code = found
    answer = client("service-quotas", cluster.region).get_service_quota(ServiceCode="ec2", QuotaCode=code)
    limit = float(answer["Quota"]["Value"])
    running = Counter(_running_types(ec2, code, cluster.market))
    vcpus = _vcpus(ec2, {cluster.instance_type, *running})
    needed = vcpus[cluster.instance_type] * cluster.num_nodes
    used = sum(vcpus[name] * number for name, number in running.items())
    said = f"{needed} vCPU needed, {used} in use, of {limit:.0f} ({family}, {code})"
    return used + needed <= limit, said


def _running_types(ec2: Client, code: str, market: str) -> Iterator[str]:
    """Type of every instance that counts against the same quota."""
    spot = market == "spot"
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    paginator: Any = ec2.get_paginator("describe_instances")
    for page in paginator.paginate(Filters=states):
        for found in (i for r in page["Reservations"] for i in r["Instances"]):
            theirs = quota_of(str(found["InstanceType"]), market)
            if theirs and theirs[1] == code and (found.get("InstanceLifecycle") == "spot") == spot:
                yield str(found["InstanceType"])


def _vcpus(ec2: Client, types: set[str]) -> dict[str, int]:
    """VCPUs of each type."""
    answer = ec2.describe_instance_types(InstanceTypes=sorted(types))
    return {str(t["InstanceType"]): int(t["VCpuInfo"]["DefaultVCpus"]) for t in answer["InstanceTypes"]}


# ------------------------------------------------------------------------------------ image and network


def _image(client: Clients, ec2: Client, order: Order, cluster: Cluster) -> tuple[bool, str]:
    name, where = order.choices.image, "given"
    if name is None:
        parameter = versions.image("aws", cluster.gpu).parameter
        answer = client("ssm", cluster.region).get_parameter(Name=parameter)
        name, where = str(answer["Parameter"]["Value"]), "latest of " + parameter.split("/")[-3]
    found = ec2.describe_images(ImageIds=[name])["Images"]
    return bool(found), f"{name}, {where}" + ("" if found else f", is not in {cluster.region}")


def _subnet(ec2: Client, order: Order, cluster: Cluster) -> tuple[bool, str]:
    subnet = aws_ground.subnet_of(ec2, cluster, order.choices)
    free, needed = int(subnet["AvailableIpAddressCount"]), cluster.num_workers + 1
    said = f"{subnet['SubnetId']} in {subnet['AvailabilityZone']}, {free} addresses free, {needed} needed"
    return free >= needed, said


def _ssh(order: Order) -> tuple[bool, str]:
    if order.choices.session_manager:
        return True, "through Session Manager, no port is opened"
    if order.choices.ssh_from is None:
        return False, "who may reach port 22 was not said"
    return True, f"port 22 from {aws_ground.checked_range(order.choices.ssh_from)} alone"


def dry_run(ec2: Client, config: Answer) -> tuple[str, str]:
    """Ask EC2 whether RunInstances would succeed; returns its code and its words."""
    import botocore.exceptions  # type: ignore[import-untyped]

    plain = {key: value for key, value in config.items() if key != "ClientToken"}
    try:
        ec2.run_instances(**plain, MinCount=1, MaxCount=1, DryRun=True)
    except botocore.exceptions.ClientError as error:
        return code_of(error), str(error.response["Error"].get("Message", ""))
    return WOULD_SUCCEED, ""


def _permissions(ec2: Client, order: Order, cluster: Cluster) -> tuple[bool, str]:
    """Rights at EC2, by dry runs; those at IAM are used in ``prepare``, still before anything bills."""
    name = f"{cluster.name}-dry-run"
    image = order.choices.image or f"resolve:ssm:{versions.image('aws', cluster.gpu).parameter}"
    calls: dict[str, Callable[[], object]] = {
        "CreateSecurityGroup": lambda: ec2.create_security_group(
            GroupName=name, Description="dry run", DryRun=True
        ),
        "RunInstances": lambda: ec2.run_instances(
            ImageId=image, InstanceType=cluster.instance_type, MinCount=1, MaxCount=1, DryRun=True
        ),
        "ImportKeyPair": lambda: ec2.import_key_pair(KeyName=name, PublicKeyMaterial=b"x", DryRun=True),
    }
    if aws_documents.uses_placement_group(cluster):
        calls["CreatePlacementGroup"] = lambda: ec2.create_placement_group(
            GroupName=name, Strategy="cluster", DryRun=True
        )
    refused = [call for call, act in calls.items() if not _would(act)]
    return not refused, (f"not allowed: {', '.join(refused)}" if refused else f"may call {', '.join(calls)}")


def _would(act: Callable[[], object]) -> bool:
    """Make a dry run; says whether it is allowed. What is wrong besides, others look at."""
    import botocore.exceptions

    try:
        act()
    except botocore.exceptions.ClientError as error:
        return code_of(error) not in ("UnauthorizedOperation", "AccessDenied")
    return True


def _none_alive(ec2: Client, order: Order, cluster: Cluster) -> tuple[bool, str]:
    """No machine of this launch, nor of another one of the same plan."""
    filters = [
        {"Name": "tag:plan-id", "Values": [cluster.plan_id]},
        {"Name": "instance-state-name", "Values": _ALIVE},
    ]
    answer = ec2.describe_instances(Filters=filters)
    found = [i["InstanceId"] for r in answer["Reservations"] for i in r["Instances"]]
    said = (
        f"{', '.join(found)} of {cluster.plan_id} in {cluster.region}" if found else "no machine of this plan"
    )
    return not found, said
