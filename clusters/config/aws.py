"""AWS: a Ray cluster document. Machines are tagged, encrypted, reached from one address, and end themselves.

Ray's own security group lets the whole internet reach port 22 and its own role has full EC2 and S3 rights
(``ray/autoscaler/_private/aws/config.py``), so the document names a group and a profile that exist already:
without them Ray stops, and opens nothing. ``aws_ground.py`` makes them.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal

from clusters.config import aws_network, guards, ray_yaml, versions
from clusters.config.choices import BY_HAND, Choices
from clusters.config.commands import commands, efa_env
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document

FILL_SUBNET, FILL_GROUP, FILL_RESERVATION = "subnet-FILL-IN", "sg-FILL-IN", "cr-FILL-IN"
HEAD_PROFILE, NODE_PROFILE = "plan-head", "plan-node"
_CAP_OVER_PLANNED = Decimal("1.2")
_TAGGED = ("instance", "volume", "network-interface")
_SSM_PROXY = (
    "aws ssm start-session --target %h --document-name AWS-StartSSHSession"
    " --parameters portNumber=%p --region "
)


def document(cluster: Cluster, choices: Choices) -> Document:
    """Return the Ray cluster document of a plan on AWS."""
    efa = uses_efa(cluster)
    run = commands(
        cluster, choices, "aws", efa_env() if efa else "", via_head=workers_need_proxy(cluster, choices)
    )
    gpu_config = _node_config(cluster, choices, gpu_node=True, head=not cluster.separate_head)
    worker_config = _node_config(cluster, choices, gpu_node=True, head=False)
    head_config = (
        _node_config(cluster, choices, gpu_node=False, head=True) if cluster.separate_head else gpu_config
    )
    return ray_yaml.document(
        cluster,
        choices,
        _provider(cluster, choices),
        _auth(cluster, choices),
        ray_yaml.node_types(cluster, head_config, worker_config),
        run,
    )


def uses_efa(cluster: Cluster) -> bool:
    """Say whether nodes talk over EFA: several nodes, and the type has it."""
    return cluster.num_nodes > 1 and aws_network.efa_interfaces(cluster.instance_type) > 0


def workers_need_proxy(cluster: Cluster, choices: Choices) -> bool:
    """Say whether workers have several interfaces, so no public address, in a subnet without a way out."""
    several = cluster.num_nodes > 1 and aws_network.efa_interfaces(cluster.instance_type) > 1
    return several and not choices.session_manager


def needs_reservation(cluster: Cluster, choices: Choices) -> bool:
    """Say whether the machines come out of a reservation or a capacity block."""
    return choices.reservation is not None or cluster.market in ("capacity-block", "reserved")


def uses_placement_group(cluster: Cluster) -> bool:
    """Say whether nodes stand in a cluster placement group; a capacity block has its own place."""
    return cluster.num_nodes > 1 and cluster.market != "capacity-block"


def _provider(cluster: Cluster, choices: Choices) -> Document:
    zone: Document = {"availability_zone": cluster.zone} if cluster.zone else {}
    return {
        "type": "aws",
        "region": cluster.region,
        **zone,
        "cache_stopped_nodes": False,
        "use_internal_ips": choices.session_manager,
        "key_pair": {"key_name": cluster.name},
    }


def _auth(cluster: Cluster, choices: Choices) -> Document:
    auth: Document = {"ssh_user": "ubuntu"}
    if choices.session_manager:
        auth |= {"ssh_proxy_command": session_proxy(cluster.region), "ssh_proxy_use_node_id": True}
    return auth


def session_proxy(region: str) -> str:
    """``ProxyCommand`` of OpenSSH that goes through Session Manager; the host's name is the instance's id."""
    return _SSM_PROXY + region


def _node_config(cluster: Cluster, choices: Choices, gpu_node: bool, head: bool) -> Document:
    """Arguments of RunInstances for one kind of machine."""
    image = versions.image("aws", cluster.gpu if gpu_node else None)
    instance_type = cluster.instance_type if gpu_node else cluster.head_type
    config: Document = {
        "InstanceType": instance_type,
        "ImageId": choices.image or f"resolve:ssm:{image.parameter}",
        "NetworkInterfaces": aws_network.interfaces(
            cluster.instance_type if gpu_node and cluster.num_nodes > 1 else None,
            choices.subnet or FILL_SUBNET,
            choices.security_group or FILL_GROUP,
            public=not choices.session_manager,
        ),
        "BlockDeviceMappings": [_disk(image.root_device, choices.disk_gib)],
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": _tags(cluster, choices),
        "UserData": guards.cloud_init(choices),
    }
    if head or needs_storage_profile(choices):
        config["IamInstanceProfile"] = {"Name": profile(cluster, choices, head)}
    return {**config, **(_market(cluster, choices) if gpu_node else {})}


def profile(cluster: Cluster, choices: Choices, head: bool) -> str:
    """Name of the role, and of its instance profile. A launch has its own, which goes when it goes."""
    if choices.launch_id == BY_HAND:
        return HEAD_PROFILE if head else NODE_PROFILE
    return f"{cluster.name}-{'head' if head else 'node'}"


def needs_storage_profile(choices: Choices) -> bool:
    """Say whether training reads or writes a bucket."""
    return choices.storage is not None and choices.storage.startswith("s3://")


def _disk(device: str, gib: int) -> Document:
    ebs = {"VolumeSize": gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {"DeviceName": device, "Ebs": ebs}


def _tags(cluster: Cluster, choices: Choices) -> list[Document]:
    pairs = [{"Key": key, "Value": value} for key, value in guards.tags(cluster, choices).items()]
    return [{"ResourceType": kind, "Tags": pairs} for kind in _TAGGED]


def _market(cluster: Cluster, choices: Choices) -> Document:
    """How GPU nodes are bought, and where they stand."""
    config: Document = {}
    if uses_placement_group(cluster):
        config["Placement"] = {"GroupName": cluster.name}
    if cluster.market == "spot":
        config["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": _spot(cluster, choices)}
    if needs_reservation(cluster, choices):
        target = {"CapacityReservationId": choices.reservation or FILL_RESERVATION}
        config["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    if cluster.market == "capacity-block":
        config["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    return config


def spot_cap(cluster: Cluster, choices: Choices) -> Decimal | None:
    """Most that one spot node may cost in an hour, USD: as told, else a fifth over the planned price."""
    if choices.spot_cap_usd_per_hour is not None:
        return choices.spot_cap_usd_per_hour
    if cluster.node_usd_per_hour is None:
        return None
    return (cluster.node_usd_per_hour * _CAP_OVER_PLANNED).quantize(Decimal("0.001"), ROUND_UP)


def _spot(cluster: Cluster, choices: Choices) -> Document:
    cap = spot_cap(cluster, choices)
    most: Document = {} if cap is None else {"MaxPrice": str(cap)}
    return {**most, "SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
