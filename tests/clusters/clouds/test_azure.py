"""Azure against a Resource Manager that holds groups: look, create, find, extend, delete; a whole launch."""

import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clusters.clouds import azure_api, azure_preflight
from clusters.clouds.azure import AzureCloud, peering
from clusters.clouds.base import Order, Place
from clusters.clouds.marks import Marked
from clusters.clouds.registry import cloud_for
from clusters.faults import CloudFault
from clusters.launch import down, machine
from clusters.launch.nouns import LaunchRequest
from planner.launched import Resource
from tests.clusters import tools
from tests.clusters.clouds.azure_fake import REGION, SIZE, SUBSCRIPTION, FakeArm, error
from tests.clusters.clouds.rest_fake import TOKEN
from tests.clusters.clouds.rest_launch import LAUNCH, clear, launched, order_of
from tests.clusters.clouds.stand_in_rest import RayOverRest, start_at_azure
from tests.clusters.launch.hands import Screen, hands, request

pytestmark = pytest.mark.enable_socket
GROUP = f"plan-{LAUNCH}"
ENVIRONMENT = {"AZURE_ACCESS_TOKEN": TOKEN}
INSIDE = "127.0.0.0/16"  # a private network in which this machine has an address


@pytest.fixture
def arm() -> Iterator[FakeArm]:
    with FakeArm() as fake:
        yield fake


@pytest.fixture
def order(tmp_path: Path) -> Callable[..., Order]:
    def make(zone: str | None = None, market: str = "on-demand", nodes: int = 2, **more: object) -> Order:
        fields = {"subscription": SUBSCRIPTION, "ssh_from": INSIDE, **more}
        return order_of(tmp_path, tools.azure(nodes, market), Place(region=REGION, zone=zone), **fields)

    return make


def backend_of(arm: FakeArm, fault: Exception | None = None, after: int = 0) -> RayOverRest:
    return RayOverRest(start_at_azure(arm.base, SUBSCRIPTION), fault, after)


def cloud_of(arm: FakeArm, backend: RayOverRest | None = None) -> AzureCloud:
    choices = tools.choices(subscription=SUBSCRIPTION)
    return AzureCloud(choices, backend or backend_of(arm), host=arm.base, environment=ENVIRONMENT)


# ---------------------------------------------------------------------------------------- up and down


def test_what_bills_in_the_launchs_group_is_found_and_goes_with_it(
    arm: FakeArm, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(arm)
    launched(cloud, order())
    found = cloud.find(LAUNCH)
    assert [r.kind for r in found if r.bills] == ["volume", "instance", "volume", "instance"]
    assert (found[-1].kind, found[-1].id, found[-1].bills) == ("resource-group", GROUP, False)
    assert all(r.id in r.hint and r.hint.startswith("az ") for r in found)
    assert len(arm.names("networkInterfaces")) == 2
    assert clear(cloud) == ()
    assert (arm.groups, arm.inside) == ({}, {})


def test_a_group_that_is_being_deleted_is_still_named(arm: FakeArm, order: Callable[..., Order]) -> None:
    arm.slow = 3
    cloud = cloud_of(arm)
    (group,) = (r for r in cloud.find(LAUNCH) or _prepared(cloud, order()) if r.kind == "resource-group")
    cloud.delete(group)
    assert [(r.kind, r.state) for r in cloud.find(LAUNCH)] == [("resource-group", "Deleting")]


def _prepared(cloud: AzureCloud, wanted: Order) -> tuple[Resource, ...]:
    cloud.prepare(wanted)
    return cloud.find(LAUNCH)


def test_a_stopped_machine_bills_and_a_deallocated_one_does_not(
    arm: FakeArm, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(arm)
    launched(cloud, order())
    first, second = arm.names("virtualMachines")
    arm.power = {first: "stopped", second: "deallocated"}
    states = {r.id: (r.state, r.bills) for r in cloud.find(LAUNCH) if r.kind == "instance"}
    assert states == {first: ("stopped", True), second: ("deallocated", False)}


def test_deleting_what_is_gone_is_no_error_and_what_is_in_use_is_asked_again(
    arm: FakeArm, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(arm)
    launched(cloud, order(nodes=1))
    found = cloud.find(LAUNCH)
    volume = next(r for r in found if r.kind == "volume")
    with pytest.raises(CloudFault, match="still in use") as caught:
        cloud.delete(volume)
    assert caught.value.kind == "timeout"
    assert clear(cloud) == ()
    for resource in found:
        cloud.delete(resource)


def test_another_launch_of_the_subscription_is_not_touched(arm: FakeArm, order: Callable[..., Order]) -> None:
    cloud = cloud_of(arm)
    launched(cloud, order().model_copy(update={"launch_id": "l-other"}))
    launched(cloud, order())
    assert clear(cloud) == ()
    assert list(arm.groups) == ["plan-l-other"]
    assert {r.launch_id for r in cloud.find(None)} == {"l-other"}


def test_no_machine_has_a_public_address_and_the_key_is_the_launchs_own(
    arm: FakeArm, order: Callable[..., Order], tmp_path: Path
) -> None:
    backend = backend_of(arm)
    cloud = cloud_of(arm, backend)
    ready = launched(cloud, order())
    assert stat.S_IMODE((tmp_path / "launch/key").stat().st_mode) == 0o600
    document = backend.documents[0]
    assert document["provider"]["use_internal_ips"] is True
    assert document["auth"]["ssh_private_key"] == str(tmp_path / "launch/key")
    assert arm.names("publicIPAddresses") == []
    assert arm.groups[GROUP]["tags"]["plan-launch"] == LAUNCH
    assert cloud.prepare(order()) == ready


def test_the_head_is_reached_at_its_private_address(arm: FakeArm, order: Callable[..., Order]) -> None:
    cloud = cloud_of(arm)
    assert cloud.shell(launched(cloud, order()))[-1] == "ubuntu@10.9.0.4"
    arm.power = dict.fromkeys(arm.names("virtualMachines"), "deallocated")
    with pytest.raises(CloudFault) as caught:
        cloud.shell(order())
    assert caught.value.kind == "unreachable"


def test_what_the_tags_of_a_launch_say(arm: FakeArm, order: Callable[..., Order]) -> None:
    cloud = cloud_of(arm)
    assert isinstance(cloud, Marked)
    launched(cloud, order(market="spot"))
    (marks,) = cloud.marks(None)
    assert (marks.launch_id, marks.owner, marks.machine_type) == (LAUNCH, "ada", SIZE)
    assert (marks.market, len(marks.machines)) == ("spot", 2)
    assert marks.deadline == datetime(2026, 12, 3, 9, 0, tzinfo=UTC)


def test_an_extended_launch_moves_timers_and_tag(arm: FakeArm, order: Callable[..., Order]) -> None:
    backend = backend_of(arm)
    cloud = cloud_of(arm, backend)
    ready = launched(cloud, order())
    later = ready.choices.deadline + timedelta(hours=6)
    cloud.extend(ready, later)
    assert (backend.limits[-1].deadline_s, backend.limits[-1].end) == (later.timestamp(), "azure")
    tags = arm.groups[GROUP]["tags"]
    assert (tags["plan-deadline"], tags["plan-launch"]) == ("2026-12-03T15:00:00Z", LAUNCH)


def test_the_network_to_be_peered_has_the_name_that_ray_gives_it() -> None:
    assert "--vnet-name ray-plan-l-4f2a-fdc1-vnet" in peering(GROUP)


# ---------------------------------------------------------------------------------------- before


@pytest.fixture
def rays_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_preflight, "_ray", lambda: (True, "there"))


def failed(cloud: AzureCloud, wanted: Order) -> dict[str, str]:
    return {c.name: c.detail for c in cloud.preflight(wanted, None) if not c.passed}


def test_a_subscription_that_can_do_it_passes_every_check_and_nothing_is_created(
    arm: FakeArm, order: Callable[..., Order], rays_client: None
) -> None:
    checks = cloud_of(arm).preflight(order(), None)
    assert [c.name for c in checks] == [
        "credentials", "ray", "offered", "quota", "image", "way in", "permissions", "no such launch",
    ]  # fmt: skip
    assert failed(cloud_of(arm), order()) == {}
    assert next(c.detail for c in checks if c.name == "quota") == (
        "192 vCPU needed, 0 in use, of 192 (standardNDSH100v5Family); 192 vCPU needed, 0 in use, of 400"
        " (cores)"
    )
    assert all(call.startswith("GET ") for call in arm.calls)


ALL_BUT = {"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (lambda a: a.usages.update(standardNDSH100v5Family=(192, 1)), "quota", "1 in use, of 192"),
        (lambda a: a.usages.pop("standardNDSH100v5Family"), "quota", "unknown: no usage named"),
        (lambda a: a.sizes[0].update(capabilities=[]), "quota", "unknown: Azure does not say the cores"),
        (lambda a: a.sizes.clear(), "offered", "not offered in eastus"),
        (lambda a: a.sizes[0].update(restrictions=[{"type": "Location",
         "reasonCode": "NotAvailableForSubscription"}]), "offered", "NotAvailableForSubscription"),
        (lambda a: a.images.clear(), "image", "is not in eastus"),
        (lambda a: a.actions.__setitem__(0, ALL_BUT), "permissions", "roleAssignments/write"),
        (lambda a: a.actions.clear(), "permissions", "virtualMachines/write"),
        (lambda a: setattr(a, "state", "Warned"), "credentials", "lab: Warned"),
        (lambda a: a.groups.update(old={"name": "old", "tags": {"plan-launch": "l-old", "plan-id":
         "p-0123456789ab"}}), "no such launch", "resource group old"),
        (lambda a: a.refuse.update({f"GET /subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/skus":
         error(403, "AuthorizationFailed")}), "offered", "unknown: GET"),
    ],
)  # fmt: skip
def test_what_is_missing_or_unknown_does_not_pass(
    arm: FakeArm,
    order: Callable[..., Order],
    rays_client: None,
    change: Callable[[FakeArm], object],
    name: str,
    said: str,
) -> None:
    change(arm)
    assert said in failed(cloud_of(arm), order())[name]


def test_spot_machines_count_against_the_one_quota_of_all_of_them(
    arm: FakeArm, order: Callable[..., Order], rays_client: None
) -> None:
    assert failed(cloud_of(arm), order(market="spot"))["quota"] == (
        "192 vCPU needed, 0 in use, of 96 (lowPriorityCores)"
    )


@pytest.mark.parametrize(
    ("ssh_from", "said"),
    [
        (None, "was not said"),
        ("8.8.8.0/24", "is public"),
        ("10.254.253.0/24", "this machine has no address in"),
    ],
)
def test_the_way_to_machines_with_private_addresses_must_be_there(
    arm: FakeArm, order: Callable[..., Order], rays_client: None, ssh_from: str | None, said: str
) -> None:
    assert said in failed(cloud_of(arm), order(ssh_from=ssh_from))["way in"]


def test_a_zone_that_is_barred_is_not_tried(arm: FakeArm, order: Callable[..., Order]) -> None:
    assert [p.zone for p in cloud_of(arm).places(order())] == [None, "1", "2"]
    arm.sizes[0]["restrictions"] = [{"type": "Zone", "restrictionInfo": {"zones": ["1"]}}]
    assert [p.zone for p in cloud_of(arm).places(order(zone="2"))] == ["2", None]


def test_rays_libraries_are_looked_for(arm: FakeArm, order: Callable[..., Order]) -> None:
    check = next(c for c in cloud_of(arm).preflight(order(), None) if c.name == "ray")
    assert (check.passed, "azure.mgmt.compute" in check.detail) == (False, True)
    assert "pip install azure-identity" in check.hint


def test_a_token_that_is_refused_ends_the_checks_and_is_never_shown(
    arm: FakeArm, order: Callable[..., Order]
) -> None:
    arm.token = "another"
    (only,) = cloud_of(arm).preflight(order(), None)
    assert (only.name, only.fault, only.hint) == ("credentials", "credentials", "az login")
    assert TOKEN not in f"{only!r}"


def test_without_az_and_without_a_token_the_fix_is_said(
    arm: FakeArm, order: Callable[..., Order], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cloud = AzureCloud(tools.choices(), host=arm.base, environment={})
    (only,) = cloud.preflight(order(), None)
    assert (only.name, only.fault) == ("credentials", "credentials")
    assert only.hint == "install the Azure CLI, then: az login"


# ---------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(409, "Conflict", inner="SkuNotAvailable"), "capacity"),
        (error(400, "DeploymentFailed", inner="ZonalAllocationFailed"), "capacity"),
        (
            error(409, "OperationNotAllowed", "exceeding approved standardNDSH100v5Family Cores quota"),
            "quota",
        ),
        (error(400, "InvalidTemplateDeployment", inner="QuotaExceeded"), "quota"),
        (error(403, "AuthorizationFailed"), "permission"),
        (error(403, "RequestDisallowedByPolicy"), "permission"),
        (error(429, "TooManyRequests"), "throttling"),
        (error(404, "PlatformImageNotFound"), "image"),
        (error(503, "SomethingNew"), "connection"),
        (error(400, "SomethingNew"), "parameter"),
    ],
)
def test_an_answer_is_sorted(arm: FakeArm, answer: tuple[int, dict], kind: str) -> None:
    arm.refuse = {"GET": answer}
    with pytest.raises(CloudFault) as caught:
        cloud_of(arm).find(LAUNCH)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("HttpResponseError: (SkuNotAvailable) The requested VM size is not available", "capacity"),
        ("(OperationNotAllowed) as it results in exceeding approved Cores quota.", "quota"),
        ("azure.core.exceptions.ClientAuthenticationError: Please run 'az login'", "credentials"),
        ("(OperationNotAllowed) disk is attached", "setup"),
    ],
)
def test_what_ray_prints_is_sorted(said: str, kind: str) -> None:
    assert azure_api.resorted(CloudFault("setup", "ray up failed", log=said)).kind == kind


def test_a_next_page_on_another_host_is_not_asked(arm: FakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm, "answer", lambda *_: (200, {"value": [], "nextLink": "https://elsewhere/x"}))
    with pytest.raises(CloudFault, match="another host"):
        cloud_of(arm).find(LAUNCH)


def test_a_next_page_is_asked(arm: FakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter([{"value": [{"a": 1}], "nextLink": f"{arm.base}/next?api-version=1"}, {"value": [{"a": 2}]}])
    monkeypatch.setattr(arm, "answer", lambda *_: (200, next(pages)))
    assert list(cloud_of(arm).api.listed("x", "1")) == [{"a": 1}, {"a": 2}]


# ---------------------------------------------------------------------------------------- a whole launch


def asked(tmp_path: Path, **more: object) -> LaunchRequest:
    choices = tools.choices(
        launch_id="by-hand", subnet=None, security_group=None, subscription=SUBSCRIPTION, ssh_from=INSIDE
    )
    fields = {"plan": tools.azure(2), "choices": choices, "kind": "azure", "budget_usd": "2000", **more}
    return request(tmp_path, **fields)


def test_a_launch_goes_through_all_states_and_leaves_nothing(
    arm: FakeArm, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    h = hands(tmp_path, cloud_of(arm), screen=(screen := Screen()))
    finished = machine.launch(asked(tmp_path, then="python train.py"), h)
    assert (finished.outcome, finished.exit_code) == ("committed", 0), screen.said
    assert [t.state for t in h.ledger.launch("l-01").transitions] == [
        *("planned", "preflight", "confirmed", "creating", "up", "probing", "verdict", "committed")
    ]
    assert set(tunnels) == {"10.9.0.4"}
    assert [c.tried for c in screen.confirmations] == [False]
    assert "address" not in {item.item for c in screen.confirmations for item in c.items}
    finished = down.down("l-01", h)
    assert (finished.outcome, finished.exit_code) == ("torn_down", 0), screen.said
    assert (arm.groups, arm.inside) == ({}, {})


def test_a_region_without_capacity_is_released_and_a_zone_tried(
    arm: FakeArm, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    backend = backend_of(
        arm, CloudFault("setup", "ray up failed", log="(AllocationFailed) none left"), after=1
    )
    h = hands(tmp_path, cloud_of(arm, backend), screen=(screen := Screen()))
    screen.on_event = lambda e: setattr(backend, "fault", None) if "no capacity in" in e.detail else None
    finished = machine.launch(asked(tmp_path), h)
    assert finished.outcome == "committed", screen.said
    assert [d["provider"]["availability_zone"] for d in backend.documents] == ["none", "1"]
    assert len(arm.names("virtualMachines")) == 2


def test_what_is_not_deleted_may_still_bill(
    arm: FakeArm, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    h = hands(tmp_path, cloud_of(arm))
    machine.launch(asked(tmp_path), h)
    arm.refuse = {"DELETE": error(403, "AuthorizationFailed")}
    finished = down.down("l-01", h)
    assert (finished.outcome, finished.exit_code) == ("may_still_bill", 6)
    assert any(r.hint.startswith("az group delete ") for r in finished.left)


def test_the_registry_knows_it() -> None:
    cloud = cloud_for("azure", tools.choices(subscription=SUBSCRIPTION))
    assert (cloud.kind, cloud.tried) == ("azure", False)
