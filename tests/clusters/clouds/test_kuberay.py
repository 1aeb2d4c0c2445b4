"""Kubernetes as a cloud, against an API that holds objects: create, watch, reach, extend, find, delete."""

import http.server
import re
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import requests

from clusters.clouds.base import Order, Place
from clusters.clouds.kuberay import KubeRayCloud
from clusters.clouds.registry import cloud_for
from clusters.faults import CloudFault
from tests.clusters import tools
from tests.clusters.clouds.kube_fake import TOKEN, Behaviour, FakeKube

pytestmark = pytest.mark.enable_socket
LAUNCH = "l-0a1b2c3d"


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def kube(behaviour: Behaviour) -> Iterator[FakeKube]:
    with FakeKube(behaviour) as fake:
        for i in range(3):
            fake.add_node(f"node-{i}", 8)
        yield fake


@pytest.fixture
def order(kube: FakeKube, tmp_path: Path) -> Callable[..., Order]:
    config = tmp_path / "kubeconfig"
    config.write_text(kube.kubeconfig())

    def make(**more: object) -> Order:
        fields = {
            "plan": tools.rented(nodes=2),
            "choices": tools.choices(
                launch_id=LAUNCH, namespace="ml", kubeconfig=str(config), **more.pop("choices", {})
            ),
            "launch_id": LAUNCH,
            "place": Place(region="lab"),
            "directory": str(tmp_path),
            "num_nodes": 2,
            "create_timeout_s": 9.0,
            **more,
        }
        return Order.model_validate(fields)

    return make


@pytest.fixture
def cloud(order: Callable[..., Order]) -> KubeRayCloud:
    return KubeRayCloud(order().choices, sleep=lambda _: None)


def failed(cloud: KubeRayCloud, order: Order) -> dict[str, str]:
    return {c.name: c.detail for c in cloud.preflight(order, None) if not c.passed}


# ------------------------------------------------------------------------------------- preflight


def test_preflight_passes_on_a_cluster_that_has_all(cloud: KubeRayCloud, order: Callable[..., Order]) -> None:
    checks = cloud.preflight(order(), None)
    assert [c.name for c in checks] == [
        "credentials", "permissions", "KubeRay", "quota", "nodes", "driver", "no such launch"
    ]  # fmt: skip
    assert failed(cloud, order()) == {}


def test_preflight_creates_nothing(cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]) -> None:
    cloud.preflight(order(), None)
    assert {c for c in kube.calls if c.startswith(("PATCH", "DELETE"))} == set()
    assert kube.kept["rayjobs"] == {}


def test_missing_rights_are_named(
    cloud: KubeRayCloud, behaviour: Behaviour, order: Callable[..., Order]
) -> None:
    behaviour.lacking = ("create rayjobs", "get secrets")
    assert failed(cloud, order()) == {"permissions": "missing: create rayjobs, get secrets"}


def test_a_quota_that_is_used_up_fails(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    kube.add_quota(hard=24, used=9)
    assert "9 of 24" in failed(cloud, order())["quota"]
    kube.add_quota(hard=24, used=8)
    assert failed(cloud, order()) == {}


def test_a_selector_that_no_node_has_fails(cloud: KubeRayCloud, order: Callable[..., Order]) -> None:
    wanted = order(choices={"node_selector": ("nvidia.com/gpu.product=H100",)})
    assert failed(cloud, wanted)["nodes"].startswith("0 of 3 nodes with nvidia.com/gpu.product=H100")


def test_a_driver_too_old_for_the_image_fails(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    kube.kept["nodes"]["node-0"]["metadata"]["labels"]["nvidia.com/cuda.driver.major"] = "470"
    assert "driver 470" in failed(cloud, order())["driver"]


def test_a_driver_that_nobody_says_is_not_ok(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    del kube.kept["nodes"]["node-1"]["metadata"]["labels"]["nvidia.com/cuda.driver.major"]
    assert failed(cloud, order())["driver"].startswith("1 nodes do not say their driver")


def test_nodes_that_may_not_be_listed_are_not_ok(
    cloud: KubeRayCloud, behaviour: Behaviour, order: Callable[..., Order]
) -> None:
    behaviour.refuse = {"GET nodes": (403, "nodes is forbidden")}
    assert failed(cloud, order())["nodes"].startswith("nobody can tell")


def test_a_cluster_without_kuberay_says_how_to_install_it(
    cloud: KubeRayCloud, behaviour: Behaviour, order: Callable[..., Order]
) -> None:
    behaviour.refuse = {"GET rayjobs": (404, "page not found")}
    check = next(c for c in cloud.preflight(order(), None) if c.name == "KubeRay")
    assert (check.passed, check.hint[:12]) == (False, "helm install")


# ------------------------------------------------------------------------------------- create


def test_create_waits_for_all_pods_and_says_how_far_they_are(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    said: list[str] = []
    created = cloud.create(order(), said.append)
    assert (created.num_nodes, created.num_gpus) == (2, 16)
    assert said[0] == f"RayJob plan-{LAUNCH} created in ml"
    assert kube.calls.count("POST rayjobs") == 1


def test_create_that_is_repeated_creates_nothing_new(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    cloud.create(order(), lambda _: None)
    cloud.create(order(), lambda _: None)
    assert list(kube.kept["rayjobs"]) == [f"plan-{LAUNCH}"]
    assert len(kube.kept["pods"]) == 3


def test_a_name_that_another_launch_has_is_refused(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    cloud.create(order(), lambda _: None)
    kube.kept["rayjobs"][f"plan-{LAUNCH}"]["metadata"]["labels"]["plan-launch"] = "l-other"
    with pytest.raises(CloudFault, match="409"):
        cloud.create(order(), lambda _: None)


def test_the_rayjob_ends_with_the_deadline_or_with_the_budget(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    cloud.create(order(budget_usd=Decimal(100), usd_per_hour=Decimal(20)), lambda _: None)
    spec = kube.kept["rayjobs"][f"plan-{LAUNCH}"]["spec"]
    assert spec["activeDeadlineSeconds"] == 5 * 3600
    assert (spec["entrypoint"], spec["shutdownAfterJobFinishes"]) == ("sleep infinity", True)
    kube.kept["rayjobs"].clear()
    cloud.create(order(), lambda _: None)
    assert kube.kept["rayjobs"][f"plan-{LAUNCH}"]["spec"]["activeDeadlineSeconds"] == 48 * 3600


def test_torch_is_installed_unless_an_image_is_named(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    def container() -> dict[str, object]:
        spec = kube.kept["rayjobs"][f"plan-{LAUNCH}"]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
        found: dict[str, object] = spec["template"]["spec"]["containers"][0]
        return found

    cloud.create(order(), lambda _: None)
    assert "pip install --quiet torch==" in str(container()["args"])
    kube.kept["rayjobs"].clear()
    cloud.create(order(choices={"image": "registry.example/own:1"}), lambda _: None)
    assert container()["image"] == "registry.example/own:1"
    assert "args" not in container()


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (Behaviour(workers_ready=1, unschedulable="0/3 nodes are available: Insufficient gpu"), "capacity"),
        (Behaviour(workers_ready=1), "not-joined"),
        (Behaviour(workers_ready=1, waiting="ImagePullBackOff"), "image"),
        (Behaviour(fail_message="pods is forbidden: exceeded quota: team"), "quota"),
        (Behaviour(fail_message="DeadlineExceeded"), "setup"),
        (Behaviour(refuse={"POST rayjobs": (401, "Unauthorized")}), "credentials"),
        (Behaviour(refuse={"POST rayjobs": (403, "rayjobs is forbidden")}), "permission"),
        (Behaviour(refuse={"POST rayjobs": (403, "exceeded quota: team")}), "quota"),
        (Behaviour(refuse={"POST rayjobs": (429, "too many")}), "throttling"),
        (Behaviour(refuse={"POST rayjobs": (500, "etcd")}), "connection"),
    ],
)
def test_what_goes_wrong_is_sorted(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order], told: Behaviour, kind: str
) -> None:
    kube.behaviour = told
    with pytest.raises(CloudFault) as caught:
        cloud.create(order(), lambda _: None)
    assert caught.value.kind == kind


def test_a_server_that_is_not_there_is_a_connection_fault(
    order: Callable[..., Order], tmp_path: Path
) -> None:
    choices = order().choices
    config = tmp_path / "kubeconfig"
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", config.read_text()))
    cloud = KubeRayCloud(choices)
    with pytest.raises(CloudFault) as caught:
        cloud.find(LAUNCH)
    assert caught.value.kind in ("connection", "timeout")


def test_no_kubeconfig_is_missing_credentials(order: Callable[..., Order], tmp_path: Path) -> None:
    choices = order().choices.model_copy(update={"kubeconfig": str(tmp_path / "none")})
    with pytest.raises(CloudFault) as caught:
        KubeRayCloud(choices).find(LAUNCH)
    assert caught.value.kind == "credentials"


# ------------------------------------------------------------------------------------- reach, extend, delete


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def dashboard(behaviour: Behaviour) -> Iterator[None]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    behaviour.forward_to = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_dashboard_is_reached_through_the_api_and_the_token_lies_in_a_private_file(
    cloud: KubeRayCloud, dashboard: None, order: Callable[..., Order]
) -> None:
    cloud.create(order(), lambda _: None)
    with cloud.reach(order()) as way:
        answers = [requests.get(f"{way.address}/api/{i}", timeout=10).text for i in range(3)]
        token = Path(way.auth_token_path or "")
        assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == (TOKEN, 0o600)
    assert answers == ["/api/0", "/api/1", "/api/2"]
    assert not token.exists()
    with pytest.raises(requests.ConnectionError):
        requests.get(way.address, timeout=5)


def test_a_cluster_that_is_gone_cannot_be_reached(cloud: KubeRayCloud, order: Callable[..., Order]) -> None:
    with pytest.raises(CloudFault) as caught, cloud.reach(order()):
        pass
    assert caught.value.kind == "unreachable"


def test_extend_moves_the_deadline_which_counts_from_the_start(
    cloud: KubeRayCloud, kube: FakeKube, order: Callable[..., Order]
) -> None:
    cloud.create(order(), lambda _: None)
    cloud.extend(order(), tools.NOW + timedelta(hours=72))
    spec = kube.kept["rayjobs"][f"plan-{LAUNCH}"]["spec"]
    assert spec["activeDeadlineSeconds"] == 72 * 3600 - 10


def test_find_names_all_objects_of_one_launch_or_of_all(
    cloud: KubeRayCloud, order: Callable[..., Order]
) -> None:
    cloud.create(order(), lambda _: None)
    found = cloud.find(LAUNCH)
    assert [r.kind for r in found] == ["ray-job", "ray-cluster", "pod", "pod", "pod"]
    assert all(r.bills and r.launch_id == LAUNCH for r in found)
    assert found[0].hint == f"kubectl delete rayjob plan-{LAUNCH} --namespace ml"
    assert cloud.find("l-ffffffff") == ()
    assert cloud.find(None) == found


def test_deleting_the_rayjob_leaves_nothing(cloud: KubeRayCloud, order: Callable[..., Order]) -> None:
    cloud.create(order(), lambda _: None)
    cloud.stop_cluster(order(), lambda _: None)
    assert cloud.find(LAUNCH) == ()


def test_pods_that_stay_are_found_and_deleted_one_by_one(
    cloud: KubeRayCloud, behaviour: Behaviour, order: Callable[..., Order]
) -> None:
    behaviour.stuck_pods = True
    cloud.create(order(), lambda _: None)
    cloud.stop_cluster(order(), lambda _: None)
    left = cloud.find(LAUNCH)
    assert [r.kind for r in left] == ["pod"] * 3
    for resource in [*left, *left]:
        cloud.delete(resource)
    assert cloud.find(LAUNCH) == ()


def test_a_launch_on_kubernetes_says_that_it_was_never_tried_on_a_real_cluster(
    order: Callable[..., Order],
) -> None:
    cloud = cloud_for("kuberay", order().choices)
    assert (cloud.kind, cloud.tried) == ("kuberay", False)
