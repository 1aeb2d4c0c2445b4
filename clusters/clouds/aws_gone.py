"""Deletes one thing at AWS. Repeatable: what is gone is no error; what is still in use is asked again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from clusters.clouds.aws_errors import GONE, IN_USE, code_of, sorted_faults
from clusters.config.aws_ground import Client
from clusters.faults import CloudFault
from planner.launched import Resource, ResourceKind


def delete(client: Client, resource: Resource) -> None:
    """Ask for one thing to go. ``client``: of EC2 in its region, or of IAM.

    Raises ``CloudFault``; ``timeout`` where something else still uses it: ask again.
    """
    import botocore.exceptions  # type: ignore[import-untyped]

    with sorted_faults(f"deleting {resource.kind} {resource.id}"):
        try:
            _CALLS[resource.kind](client, resource.id)
        except botocore.exceptions.ClientError as error:
            code = code_of(error)
            if code in GONE:
                return
            if code in IN_USE:
                raise CloudFault("timeout", f"still in use ({code})", resource.hint) from None
            raise


def _address(ec2: Client, name: str) -> None:
    found = ec2.describe_addresses(AllocationIds=[name])["Addresses"]
    for one in found:
        if "AssociationId" in one:
            ec2.disassociate_address(AssociationId=one["AssociationId"])
    ec2.release_address(AllocationId=name)


def _interface(ec2: Client, name: str) -> None:
    """Delete an interface; the first one of an instance goes with it and cannot be taken off."""
    for one in ec2.describe_network_interfaces(NetworkInterfaceIds=[name])["NetworkInterfaces"]:
        attached = one.get("Attachment", {})
        if attached.get("AttachmentId") and attached.get("DeviceIndex") != 0:
            ec2.detach_network_interface(AttachmentId=attached["AttachmentId"], Force=True)
    ec2.delete_network_interface(NetworkInterfaceId=name)


def _group(ec2: Client, name: str) -> None:
    """Delete a security group; it holds itself through the rule that lets its members talk."""
    for found in ec2.describe_security_groups(GroupIds=[name])["SecurityGroups"]:
        for rules, revoke in (
            (found["IpPermissions"], ec2.revoke_security_group_ingress),
            (found["IpPermissionsEgress"], ec2.revoke_security_group_egress),
        ):
            own = [r for r in rules if any(p.get("GroupId") == name for p in r.get("UserIdGroupPairs", []))]
            for rule in own:
                pair = [p for p in rule["UserIdGroupPairs"] if p.get("GroupId") == name]
                revoke(
                    GroupId=name, IpPermissions=[{"IpProtocol": rule["IpProtocol"], "UserIdGroupPairs": pair}]
                )
    ec2.delete_security_group(GroupId=name)


def _profile(iam: Client, name: str) -> None:
    for role in iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=name)


def _role(iam: Client, name: str) -> None:
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        iam.delete_role_policy(RoleName=name, PolicyName=policy)
    with suppress(KeyError):
        for profile in iam.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"]:
            iam.remove_role_from_instance_profile(
                InstanceProfileName=profile["InstanceProfileName"], RoleName=name
            )
    iam.delete_role(RoleName=name)


_CALLS: dict[ResourceKind, Callable[[Client, str], object]] = {
    "instance": lambda ec2, name: ec2.terminate_instances(InstanceIds=[name]),
    "address": _address,
    "volume": lambda ec2, name: ec2.delete_volume(VolumeId=name),
    "network-interface": _interface,
    "placement-group": lambda ec2, name: ec2.delete_placement_group(GroupName=name),
    "security-group": _group,
    "key-pair": lambda ec2, name: ec2.delete_key_pair(KeyName=name),
    "instance-profile": _profile,
    "role": _role,
}
