"""Google Cloud against a Compute Engine that holds objects: look, create, find, delete; a whole launch."""

import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clusters.clouds import codes, gcp_api, gcp_preflight, rest
from clusters.clouds.base import Order, Place
from clusters.clouds.gcp import GcpCloud
from clusters.clouds.gcp_api import Hosts
from clusters.clouds.marks import Marked
from clusters.clouds.registry import cloud_for
from clusters.faults import CloudFault
from clusters.launch import down, machine
from tests.clusters import tools
from tests.clusters.clouds.gcp_fake import PROJECT, REGION, FakeCompute, error
from tests.clusters.clouds.rest_fake import TOKEN
from tests.clusters.clouds.rest_launch import LAUNCH, clear, launched, order_of
from tests.clusters.clouds.stand_in_rest import RayOverRest, start_at_gcp
from tests.clusters.launch.hands import Proving, Screen, hands, request

pytestmark = pytest.mark.enable_socket
ZONE = f"{REGION}-a"
ENVIRONMENT = {"GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN}


@pytest.fixture
def compute() -> Iterator[FakeCompute]:
    with FakeCompute() as fake:
        yield fake


@pytest.fixture
def order(tmp_path: Path) -> Callable[..., Order]:
    def make(zone: str | None = ZONE, market: str = "on-demand", nodes: int = 2, **more: object) -> Order:
        fields = {"project": PROJECT, **more}
        return order_of(tmp_path, tools.gcp(nodes, market), Place(region=REGION, zone=zone), **fields)

    return make


def cloud_of(compute: FakeCompute, backend: RayOverRest | None = None, **more: object) -> GcpCloud:
    hosts = Hosts(compute=compute.base, iam=compute.base, projects=compute.base)
    choices = tools.choices(**{"project": PROJECT, **more})
    backend = backend or RayOverRest(start_at_gcp(compute.base))
    return GcpCloud(choices, backend=backend, hosts=hosts, environment=ENVIRONMENT)


# ---------------------------------------------------------------------------------------- up and down


def test_everything_that_a_launch_makes_is_found_by_its_label_and_goes(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(compute)
    launched(cloud, order())
    found = cloud.find(LAUNCH)
    assert [r.kind for r in found] == ["instance", "instance", "volume", "volume"]
    assert {r.place for r in found} == {ZONE}
    assert all(r.bills and r.launch_id == LAUNCH for r in found)
    assert clear(cloud) == ()
    assert compute.kept == {"instances": {}, "disks": {}, "addresses": {}}


def test_a_machine_that_is_still_stopping_is_still_named(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    compute.slow = 3
    cloud = cloud_of(compute)
    launched(cloud, order(nodes=1))
    (instance, _) = cloud.find(LAUNCH)
    cloud.delete(instance)
    assert [r.state for r in cloud.find(LAUNCH) if r.kind == "instance"] == ["STOPPING"]


def test_a_stopped_machine_is_found_and_a_disk_that_outlives_its_machine_goes(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(compute)
    launched(cloud, order(nodes=1))
    compute.kept["instances"][next(iter(compute.kept["instances"]))]["status"] = "TERMINATED"
    compute.add("disks", f"{REGION}-c", "left", labels={"plan-launch": LAUNCH}, status="READY")
    compute.add("addresses", REGION, "ip", labels={"plan-launch": LAUNCH}, status="RESERVED")
    found = {r.id: r for r in reversed(cloud.find(LAUNCH))}
    stopped = next(r for r in found.values() if r.kind == "instance")
    assert (stopped.state, stopped.bills) == ("TERMINATED", False)
    assert (found["left"].bills, found["ip"].bills) == (True, True)
    assert cloud.by_hand(found["ip"]) == (
        "gcloud compute addresses delete ip --region us-central1 --project lab --quiet"
    )
    cloud.delete(found["left"])
    assert "left" not in {r.id for r in cloud.find(LAUNCH)}


def test_deleting_what_is_gone_is_no_error_and_what_is_in_use_is_asked_again(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    cloud = cloud_of(compute)
    launched(cloud, order(nodes=1))
    instance, volume = cloud.find(LAUNCH)
    with pytest.raises(CloudFault, match="still in use") as caught:
        cloud.delete(volume)
    assert caught.value.kind == "timeout"
    assert clear(cloud) == ()
    cloud.delete(instance)
    cloud.delete(volume)


def test_another_launch_of_the_project_is_not_touched(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    compute.add("instances", ZONE, "theirs", labels={"plan-launch": "l-other"}, status="RUNNING")
    compute.add("instances", ZONE, "nobodys", labels={}, status="RUNNING")
    cloud = cloud_of(compute)
    launched(cloud, order(nodes=1))
    clear(cloud)
    assert {name for _, name in compute.kept["instances"]} == {"theirs", "nobodys"}
    assert [r.id for r in cloud.find(None)] == ["theirs"]


def test_a_zone_that_does_not_answer_is_no_empty_answer(compute: FakeCompute) -> None:
    compute.unreachable = f"{REGION}-f"
    with pytest.raises(CloudFault, match="UNREACHABLE"):
        cloud_of(compute).find(LAUNCH)


def test_machines_have_the_launchs_own_key_and_no_keys_of_the_project(
    compute: FakeCompute, order: Callable[..., Order], tmp_path: Path
) -> None:
    cloud = cloud_of(compute, backend := RayOverRest(start_at_gcp(compute.base)))
    ready = launched(cloud, order())
    key = tmp_path / "launch/key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    document = backend.documents[0]
    assert document["auth"]["ssh_private_key"] == str(key)
    for one in compute.kept["instances"].values():
        metadata = {i["key"]: i["value"] for i in one["metadata"]["items"]}
        assert metadata["ssh-keys"] == f"ubuntu:{key.with_name('key.pub').read_text().strip()}"
        assert metadata["block-project-ssh-keys"] == "TRUE"
        assert one["scheduling"]["terminationTime"] == ready.choices.deadline_utc()
        own_timer = round(ready.choices.deadline.timestamp()) + 300
        assert f"echo {own_timer}" in metadata["user-data"]
    assert cloud.prepare(order()) == ready


def test_the_head_is_reached_at_its_public_address(
    compute: FakeCompute, order: Callable[..., Order], tmp_path: Path
) -> None:
    cloud = cloud_of(compute)
    words = cloud.shell(launched(cloud, order()))
    assert words[-1] == "ubuntu@203.0.113.10"
    assert f"UserKnownHostsFile={tmp_path}/launch/known_hosts" in words


def test_a_launch_without_a_running_head_cannot_be_reached(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    with pytest.raises(CloudFault) as caught:
        cloud_of(compute).shell(order())
    assert caught.value.kind == "unreachable"


def test_what_the_labels_of_a_launch_say(compute: FakeCompute, order: Callable[..., Order]) -> None:
    cloud = cloud_of(compute)
    assert isinstance(cloud, Marked)
    launched(cloud, order(market="spot"))
    (marks,) = cloud.marks(None)
    assert (marks.launch_id, marks.owner, marks.zone, marks.market) == (LAUNCH, "ada", ZONE, "spot")
    assert marks.deadline == datetime(2026, 12, 3, 9, 0, tzinfo=UTC)
    assert len(marks.machines) == 2


def test_the_time_of_the_end_cannot_be_moved(compute: FakeCompute, order: Callable[..., Order]) -> None:
    with pytest.raises(CloudFault, match="cannot be moved"):
        cloud_of(compute).extend(order(), tools.NOW + timedelta(hours=72))


# ---------------------------------------------------------------------------------------- before


@pytest.fixture
def rays_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp_preflight, "_ray", lambda environment: (True, "there"))


def failed(cloud: GcpCloud, wanted: Order) -> dict[str, str]:
    return {c.name: c.detail for c in cloud.preflight(wanted, None) if not c.passed}


def test_a_project_that_can_do_it_passes_every_check_and_nothing_is_created(
    compute: FakeCompute, order: Callable[..., Order], rays_client: None
) -> None:
    cloud = cloud_of(compute)
    checks = cloud.preflight(order(), None)
    assert [c.name for c in checks] == [
        "credentials", "ray", "region", "offered", "quota", "image", "subnet", "ssh", "head account",
        "permissions", "no such launch",
    ]  # fmt: skip
    assert failed(cloud, order()) == {}
    assert next(c.detail for c in checks if c.name == "quota") == (
        "16 GPUs needed, 0 in use, of 16 (NVIDIA_H100_MEGA_GPUS); 16 GPUs needed, 0 in use, of 64"
        " (GPUS_ALL_REGIONS)"
    )
    writes = {c for c in compute.calls if not c.startswith("GET") and not c.endswith(":testIamPermissions")}
    assert writes == set()


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (lambda c: c.quotas.update(NVIDIA_H100_MEGA_GPUS=(16.0, 1.0)), "quota", "1 in use, of 16"),
        (lambda c: c.quotas.clear(), "quota", "unknown: us-central1 does not say"),
        (lambda c: setattr(c, "all_regions", 8.0), "quota", "of 8 (GPUS_ALL_REGIONS)"),
        (lambda c: c.zones.clear(), "offered", "no zone of us-central1"),
        (lambda c: c.subnets.discard("plan-gpu-3"), "subnet", "no subnet plan-gpu-3"),
        (lambda c: c.rules[0].update(sourceRanges=["0.0.0.0/0"]), "ssh", "open to everyone by plan-ssh"),
        (lambda c: c.rules[0].update(sourceRanges=["198.51.100.0/24"]), "ssh", "no firewall rule lets"),
        (lambda c: c.rules[0].update(disabled=True), "ssh", "no firewall rule lets 203.0.113.7/32"),
        (lambda c: c.rules.pop(), "ssh", "talk to each other"),
        (lambda c: c.accounts.clear(), "head account", "no service account plan-head@lab"),
        (lambda c: c.lacking.add("compute.instances.delete"), "permissions", "compute.instances.delete"),
        (lambda c: c.refuse.update({"GET /projects/ubuntu": error(404, "notFound")}), "image", "not there"),
        (lambda c: c.refuse.update({"GET /projects/lab/regions": error(403, "forbidden")}), "quota",
         "unknown: GET /projects/lab/regions/us-central1: (403)"),
        (lambda c: c.add("instances", ZONE, "old", labels={"plan-id": "p-0123456789ab"}, status="RUNNING"),
         "no such launch", "instance old of p-0123456789ab"),
    ],
)  # fmt: skip
def test_what_is_missing_or_unknown_does_not_pass(
    compute: FakeCompute,
    order: Callable[..., Order],
    rays_client: None,
    change: Callable[[FakeCompute], object],
    name: str,
    said: str,
) -> None:
    change(compute)
    assert said in failed(cloud_of(compute), order())[name]


def test_who_may_reach_port_22_must_be_said(
    compute: FakeCompute, order: Callable[..., Order], rays_client: None
) -> None:
    assert set(failed(cloud_of(compute), order(ssh_from=None))) == {"ssh"}


def test_ray_has_credentials_of_its_own(
    tmp_path: Path, compute: FakeCompute, order: Callable[..., Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "google-api-python-client" in failed(cloud_of(compute), order())["ray"]
    monkeypatch.setattr(gcp_preflight.importlib.util, "find_spec", lambda name: object())
    there = tmp_path / "application_default_credentials.json"
    said = {"CLOUDSDK_CONFIG": str(tmp_path)}
    assert gcp_preflight._ray(said) == (False, f"application default credentials in {there}: none")
    there.write_text("{}")
    assert gcp_preflight._ray(said) == (True, f"application default credentials in {there}")


def test_a_token_that_is_refused_ends_the_checks_and_is_never_shown(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    compute.token = "another"
    (only,) = cloud_of(compute).preflight(order(), None)
    assert (only.name, only.fault) == ("credentials", "credentials")
    assert "gcloud auth login" in only.hint
    assert TOKEN not in f"{only!r}"


def test_without_gcloud_and_without_a_token_the_fix_is_said(
    compute: FakeCompute, order: Callable[..., Order], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cloud = GcpCloud(tools.choices(project=PROJECT), hosts=Hosts(compute=compute.base), environment={})
    (only,) = cloud.preflight(order(), None)
    assert "gcloud was not found" in only.detail
    assert "install the Google Cloud CLI" in only.hint


def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "gcloud"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_the_token_and_the_project_come_from_the_users_own_tool(
    compute: FakeCompute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, f'[ "$1" = auth ] && echo {TOKEN} || echo {PROJECT}')
    cloud = GcpCloud(tools.choices(), hosts=Hosts(compute=compute.base), environment={})
    assert cloud.find(LAUNCH) == ()
    assert compute.calls[0] == f"GET /projects/{PROJECT}/aggregated/instances"


def test_a_tool_that_fails_shows_its_error_and_not_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, f"echo {TOKEN}; echo 'login expired' >&2; exit 1")
    with pytest.raises(CloudFault, match="login expired") as caught:
        rest.Token(gcp_api.TOOL, {}).text()
    assert TOKEN not in str(caught.value)


def test_zones_are_those_that_offer_the_type_the_wanted_one_first(
    compute: FakeCompute, order: Callable[..., Order]
) -> None:
    places = cloud_of(compute).places(order(zone=f"{REGION}-c"))
    assert [p.zone for p in places] == [f"{REGION}-c", f"{REGION}-a"]


@pytest.mark.parametrize(
    ("machine_type", "market", "metric"),
    [
        ("a3-highgpu-8g", "on-demand", "NVIDIA_H100_GPUS"),
        ("a3-megagpu-8g", "spot", "PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS"),
        ("a2-ultragpu-4g", "on-demand", "NVIDIA_A100_80GB_GPUS"),
        ("g2-standard-48", "spot", "PREEMPTIBLE_NVIDIA_L4_GPUS"),
        ("n2-standard-4", "on-demand", None),
    ],
)
def test_a_type_counts_against_the_quota_of_its_gpus(
    machine_type: str, market: str, metric: str | None
) -> None:
    assert gcp_preflight.metric_of(machine_type, market) == metric


# ---------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "quotaExceeded", "quota"),
        (403, "rateLimitExceeded", "throttling"),
        (403, "insufficientPermissions", "permission"),
        (403, "somethingNew", "permission"),
        (401, "authError", "credentials"),
        (404, "notFound", "parameter"),
        (400, "resourceNotReady", "timeout"),
        (503, "somethingNew", "connection"),
        (400, "somethingNew", "parameter"),
    ],
)
def test_an_answer_is_sorted(compute: FakeCompute, status: int, reason: str, kind: str) -> None:
    compute.refuse = {"GET /projects/lab/aggregated": error(status, reason, "why")}
    with pytest.raises(CloudFault, match="why") as caught:
        cloud_of(compute).find(LAUNCH)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Exception: {'errors': [{'code': 'ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS'}]}", "capacity"),
        ("{'code': 'QUOTA_EXCEEDED', 'message': \"Quota 'NVIDIA_H100_GPUS' exceeded.\"}", "quota"),
        ("google.auth.exceptions.DefaultCredentialsError: not found", "credentials"),
        ("HttpError 403 ... 'reason': 'insufficientPermissions'", "permission"),
        ("the request was forbidden by conflict", "setup"),
    ],
)
def test_what_ray_prints_is_sorted_by_its_code(said: str, kind: str) -> None:
    fault = codes.resorted("gcp", CloudFault("setup", "ray up failed", log=f"line\n{said}"), {})
    assert (fault.kind, fault.log) == (kind, f"line\n{said}")


def test_every_code_has_its_source_and_one_row() -> None:
    for cloud in ("gcp", "azure"):
        found = codes.rows(f"{cloud}_faults.csv")
        assert all(row["source"] and row["date"] for row in found)
        assert len({row["code"] for row in found}) == len(found) == len(codes.table(cloud))


def test_a_dead_host_is_a_connection_fault() -> None:
    hosts = Hosts(compute="http://127.0.0.1:9")
    cloud = GcpCloud(tools.choices(project=PROJECT), hosts=hosts, environment=ENVIRONMENT)
    with pytest.raises(CloudFault) as caught:
        cloud.find(LAUNCH)
    assert caught.value.kind == "connection"


def test_a_page_leads_to_the_next(compute: FakeCompute, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter(
        [{"items": {}, "nextPageToken": "2"}, {"items": {"zones/z-a": {"instances": [{"name": "i"}]}}}]
    )
    monkeypatch.setattr(compute, "answer", lambda *_: (200, next(pages)))
    api = cloud_of(compute).api
    assert list(api.everywhere("instances", "")) == [("z-a", {"name": "i"})]


# ---------------------------------------------------------------------------------------- a whole launch


def asked(tmp_path: Path, **more: object) -> object:
    choices = tools.choices(launch_id="by-hand", subnet=None, security_group=None, project=PROJECT)
    return request(tmp_path, plan=tools.gcp(2), choices=choices, kind="gcp", budget_usd="2000", **more)


def test_a_launch_goes_through_all_states_and_leaves_nothing(
    compute: FakeCompute, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    backend = RayOverRest(start_at_gcp(compute.base))
    h = hands(
        tmp_path, cloud_of(compute, backend), screen=(screen := Screen()), proving=(proving := Proving())
    )
    finished = machine.launch(asked(tmp_path, then="python train.py"), h)
    assert (finished.outcome, finished.exit_code) == ("committed", 0), screen.said
    assert [t.state for t in h.ledger.launch("l-01").transitions] == [
        *("planned", "preflight", "confirmed", "creating", "up", "probing", "verdict", "committed")
    ]
    assert (proving.probes, proving.jobs) == (1, ["l-01"])
    assert set(tunnels) == {"203.0.113.10"}
    assert [c.tried for c in screen.confirmations] == [False]
    assert backend.documents[0]["provider"]["availability_zone"] == f"{REGION}-a"
    finished = down.down("l-01", h)
    assert (finished.outcome, finished.exit_code) == ("torn_down", 0)
    assert backend.downs == 1
    assert compute.kept == {"instances": {}, "disks": {}, "addresses": {}}


def test_a_zone_without_capacity_is_released_and_the_next_one_tried(
    compute: FakeCompute, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    full = CloudFault("setup", "ray up failed", log="{'code': 'ZONE_RESOURCE_POOL_EXHAUSTED'}")
    backend = RayOverRest(start_at_gcp(compute.base), full, after=1)

    h = hands(tmp_path, cloud_of(compute, backend), screen=(screen := Screen()))
    screen.on_event = lambda e: setattr(backend, "fault", None) if "no capacity in" in e.detail else None
    finished = machine.launch(asked(tmp_path), h)
    assert finished.outcome == "committed", screen.said
    zones = [d["provider"]["availability_zone"] for d in backend.documents]
    assert zones == [f"{REGION}-a", f"{REGION}-c"]
    assert {zone for zone, _ in compute.kept["instances"]} == {f"{REGION}-c"}
    assert len(compute.kept["instances"]) == 2


def test_a_quota_that_the_head_runs_into_ends_the_launch_with_nothing_left(
    compute: FakeCompute, tmp_path: Path, rays_client: None
) -> None:
    over = CloudFault("setup", "ray up failed", log="{'code': 'QUOTA_EXCEEDED'}")
    h = hands(tmp_path, cloud_of(compute, RayOverRest(start_at_gcp(compute.base), over, after=1)))
    finished = machine.launch(asked(tmp_path), h)
    assert (finished.outcome, finished.elsewhere) == ("torn_down", "region")
    assert compute.kept == {"instances": {}, "disks": {}, "addresses": {}}


def test_what_is_not_deleted_may_still_bill(
    compute: FakeCompute, tmp_path: Path, rays_client: None, tunnels: list[str]
) -> None:
    h = hands(tmp_path, cloud_of(compute))
    machine.launch(asked(tmp_path), h)
    compute.refuse = {"DELETE": error(403, "forbidden")}
    finished = down.down("l-01", h)
    assert (finished.outcome, finished.exit_code) == ("may_still_bill", 6)
    assert all(r.hint.startswith("gcloud compute ") for r in finished.left)


def test_the_registry_knows_it() -> None:
    cloud = cloud_for("gcp", tools.choices(project=PROJECT))
    assert (cloud.kind, cloud.tried) == ("gcp", False)
