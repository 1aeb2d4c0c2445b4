"""Which cloud a launch stands on: one function makes it, from its kind and the user's choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from clusters.clouds.base import Cloud
from clusters.config.choices import Choices
from planner.errors import UserError
from planner.launched import CloudKind


def cloud_for(kind: CloudKind, choices: Choices, regions: Sequence[str] = ()) -> Cloud:
    """Make the cloud of a kind.

    Args:
        kind: of the cloud.
        choices: of the user: hosts and how they are reached.
        regions: in which a cloud of regions looks for what belongs to a launch.

    """
    if kind == "local":
        from clusters.clouds.local import LocalCloud

        return LocalCloud()
    if kind == "aws":
        from clusters.clouds.aws import AwsCloud

        return AwsCloud(regions)
    if kind == "hosts":
        from clusters.clouds.hosts import HostsCloud

        if not choices.hosts:
            raise UserError(
                "a launch on hosts needs their addresses", "plan launch PLAN --hosts 10.0.0.2,10.0.0.3"
            )
        return HostsCloud(choices.hosts, choices.ssh_user, choices.ssh_key)
    if kind == "kuberay":
        from clusters.clouds.kuberay import KubeRayCloud

        return KubeRayCloud(choices)
    if kind == "gcp":
        from clusters.clouds.gcp import GcpCloud

        return GcpCloud(choices)
    if kind == "azure":
        from clusters.clouds.azure import AzureCloud

        return AzureCloud(choices)
    assert_never(kind)
