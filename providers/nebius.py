"""Live prices of Nebius: platforms and the price calculator of its gRPC API, through its SDK (an extra).

Read are the platforms of a project in every region (``iam.v2``, ``compute.v1.PlatformService.List``) and, for
every preset with GPUs, what ``billing.v1alpha1.CalculatorService.Estimate`` says, on demand and, where it is
allowed, preemptible (names and fields: github.com/nebius/api; no documentation shows an answer). ``fetch``
writes them down as JSON, one page a region, fields named as there: ``{region, platforms[{name,
gpu_memory_gigabytes, presets[{name, vcpu_count, memory_gibibytes, gpu_count, allow_gpu_clustering}]}],
estimates[{platform, preset, preemptible, hourly_cost}]}``. The cost is of the whole machine without disks, as
text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, UnreadError

TOKEN, CREDENTIALS_FILE = "NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE"
SOURCE = "Nebius API, price calculator"
LIMIT_S = 15.0
PAGE_SIZE = 999


@dataclass(frozen=True, slots=True)
class Nebius:
    """See the module."""

    provider: str = "nebius"
    complete: bool = False

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs the SDK, and an IAM token or the credentials file of a service account."""
        if not environment.get(TOKEN) and not environment.get(CREDENTIALS_FILE):
            hint = f"export {TOKEN}=$(nebius iam get-access-token)   (or {CREDENTIALS_FILE}=FILE)"
            return Unavailable(f"no credentials ({TOKEN})", hint)
        if find_spec("nebius") is None:
            return Unavailable("the Nebius SDK is not installed", "pip install 'plan[nebius]'")
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """One page for every region in which the tenant has a project."""
        logging.getLogger("nebius").setLevel(logging.CRITICAL)  # it writes every retry, with a traceback
        sdk_error = import_module("nebius.base.error").SDKError
        token, file = environment.get(TOKEN), environment.get(CREDENTIALS_FILE)
        try:
            make = import_module("nebius.sdk").SDK
            who = {"credentials": token} if token else {"credentials_file_name": file}
            sdk = make(user_agent_prefix="plan", **who)
            try:
                return [_region(sdk, region, project) for region, project in sorted(_projects(sdk).items())]
            finally:
                sdk.sync_close(timeout=LIMIT_S)
        except (sdk_error, OSError, ValueError, TimeoutError) as error:
            said = (str(error).splitlines() or [""])[0][:160]
            secrets = [token] if token else []
            raise AnswerError(http.clean(f"Nebius SDK: {type(error).__name__} {said}", secrets)) from None

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every preset with GPUs, on demand and preemptible, in every region."""
        found = Collector(self.provider)
        for page in raw:
            answer = http.document(page)
            region, estimates = answer.get("region"), answer.get("estimates")
            if not isinstance(region, str) or not isinstance(estimates, list):
                raise AnswerError("no region or no estimates in the answer")
            found.each(estimates, partial(_offers, found, _presets(answer), region, seen))
        return found.parsed()


ADAPTER = Nebius()


# ---------------------------------------------------------------------------------- asking


def _projects(sdk: Any) -> dict[str, str]:  # noqa: ANN401 - the SDK is not there to type-check
    """Id of a project of the tenant by region."""
    iam = import_module("nebius.api.nebius.iam.v2")
    tenants = iam.TenantServiceClient(sdk).list(iam.ListTenantsRequest(), per_retry_timeout=LIMIT_S).wait()
    found: dict[str, str] = {}
    for tenant in tenants.items:
        request = iam.ListProjectsRequest(parent_id=tenant.metadata.id, page_size=PAGE_SIZE)
        for project in iam.ProjectServiceClient(sdk).list(request, per_retry_timeout=LIMIT_S).wait().items:
            found[project.spec.region] = project.metadata.id
    return found


def _region(sdk: Any, region: str, project: str) -> bytes:  # noqa: ANN401
    """Platforms of a region and the estimate of every preset with GPUs, as JSON."""
    compute = import_module("nebius.api.nebius.compute.v1")
    request = compute.ListPlatformsRequest(page_size=PAGE_SIZE, parent_id=project)
    listed = compute.PlatformServiceClient(sdk).list(request, per_retry_timeout=LIMIT_S).wait()
    platforms, estimates = [], []
    for platform in listed.items:
        presets = [p for p in platform.spec.presets if p.resources.gpu_count]
        if not presets:
            continue
        name = platform.metadata.name
        platforms.append(
            {
                "name": name,
                "gpu_memory_gigabytes": platform.spec.gpu_memory_gigabytes,
                "presets": [_preset(p) for p in presets],
            }
        )
        markets = (False, True) if platform.status.allowed_for_preemptibles else (False,)
        estimates += [_estimate(sdk, project, name, p.name, spot) for p in presets for spot in markets]
    answer = {"region": region, "platforms": platforms, "estimates": estimates}
    return json.dumps(answer).encode()


def _preset(preset: Any) -> dict[str, object]:  # noqa: ANN401
    """Fields of a preset."""
    return {
        "name": preset.name,
        "vcpu_count": preset.resources.vcpu_count,
        "memory_gibibytes": preset.resources.memory_gibibytes,
        "gpu_count": preset.resources.gpu_count,
        "allow_gpu_clustering": preset.allow_gpu_clustering,
    }


def _estimate(sdk: Any, project: str, platform: str, preset: str, spot: bool) -> dict[str, object]:  # noqa: ANN401
    """What the calculator says of a preset."""
    billing = import_module("nebius.api.nebius.billing.v1alpha1")
    common = import_module("nebius.api.nebius.common.v1")
    compute = import_module("nebius.api.nebius.compute.v1")
    machine = compute.CreateInstanceRequest(
        metadata=common.ResourceMetadata(parent_id=project),
        spec=compute.InstanceSpec(
            resources=compute.ResourcesSpec(platform=platform, preset=preset),
            preemptible=compute.PreemptibleSpec() if spot else None,
        ),
    )
    request = billing.EstimateRequest(resource_spec=billing.ResourceSpec(compute_instance_spec=machine))
    general = billing.CalculatorServiceClient(sdk).estimate(request).wait().hourly_cost.general
    cost = None if general is None else general.total.cost
    return {"platform": platform, "preset": preset, "preemptible": spot, "hourly_cost": cost}


# ---------------------------------------------------------------------------------- reading


def _presets(answer: Json) -> dict[tuple[str, str], tuple[Json, Json]]:
    """Platform and preset by their names. Raises ``AnswerError`` where they are not of our form."""
    try:
        return {
            (reading.text(platform, "name"), reading.text(preset, "name")): (platform, preset)
            for platform in reading.rows(answer, "platforms")
            for preset in reading.rows(platform, "presets")
        }
    except UnreadError as error:
        raise AnswerError(f"platforms: {error}") from None


def _offers(
    found: Collector,
    presets: Mapping[tuple[str, str], tuple[Json, Json]],
    region: str,
    seen: datetime,
    estimate: object,
) -> Iterator[Offer]:
    """Offer of one estimate."""
    if not isinstance(estimate, dict):
        raise UnreadError("an estimate is not an object")
    names = (reading.text(estimate, "platform"), reading.text(estimate, "preset"))
    if names not in presets:
        raise UnreadError(f"no preset {names[1]!r}")
    node = _node(found, *presets[names])
    if node is None:
        return
    preemptible = reading.member(estimate, "preemptible")
    if not isinstance(preemptible, bool):
        raise UnreadError("preemptible is neither true nor false")
    yield reading.live_offer(
        found.provider,
        "_".join(names),
        node,
        reading.node_price(reading.member(estimate, "hourly_cost")),
        region=region,
        market="spot" if preemptible else "on-demand",
        seen=seen,
        source=SOURCE,
    )


def _node(found: Collector, platform: Json, preset: Json) -> Node | None:
    """Machine of a preset: that of the catalog, else what the answer says."""
    name = reading.text(platform, "name")
    known = reading.known_node(found.provider, f"{name}_{reading.text(preset, 'name')}")
    if known is not None:
        return known
    count = reading.whole(preset, "gpu_count")
    if count < 1:
        return None
    memory = reading.number(reading.member(platform, "gpu_memory_gigabytes"))
    gpu = found.gpu(name, memory_gb=memory or None)
    if gpu is None:
        return None
    clusters = preset.get("allow_gpu_clustering") is True
    return reading.new_node(
        gpu,
        count,
        vcpus=reading.whole(preset, "vcpu_count"),
        host_memory_bytes=reading.gib_bytes(reading.member(preset, "memory_gibibytes")),
        inter="InfiniBand" if clusters else "ethernet",
        max_nodes=None if clusters else 1,
    )
