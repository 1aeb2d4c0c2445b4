"""Prices of Nebius. The SDK is not installed here: what ``fetch`` writes down is what ``parse`` reads."""

import json
import sys
from decimal import Decimal
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from providers import nebius
from providers.base import AnswerError
from tests.providers.contract import SECRET, SEEN, AdapterContract


class TestNebius(AdapterContract):
    module = "nebius"

    def test_the_calculator_gives_the_price_of_the_machine(self):
        assert self.offer("gpu-h100-sxm_8gpu-128vcpu-1600gb").usd_per_hour == Decimal(36)

    def test_preemptible_machines_are_the_spot_market(self):
        assert self.offer("gpu-h100-sxm_1gpu-16vcpu-200gb", "spot").usd_per_hour == Decimal("2.1")

    def test_an_estimate_without_a_cost_is_unknown(self):
        assert self.offer("gpu-b300-sxm_8gpu-192vcpu-2768gb", "spot").usd_per_hour is None

    def test_presets_that_can_cluster_have_a_fabric_and_others_are_single(self):
        cluster, single = (
            self.offer("gpu-b300-sxm_8gpu-192vcpu-2768gb"),
            self.offer("gpu-l40s-a_1gpu-8vcpu-32gb"),
        )
        assert cluster.links.inter.startswith("ib")
        assert cluster.max_nodes is None
        assert single.max_nodes == 1

    def test_an_estimate_of_no_preset_is_not_read(self):
        page = json.loads(self.recorded()[0])
        page["estimates"][0]["preset"] = "9gpu"
        assert self.adapter.parse([json.dumps(page).encode()], SEEN).num_unread == 1

    def test_an_estimate_that_does_not_say_its_market_is_not_read(self):
        page = json.loads(self.recorded()[0])
        page["estimates"][0]["preemptible"] = "no"
        assert self.adapter.parse([json.dumps(page).encode()], SEEN).num_unread == 1

    def test_platforms_of_another_form_are_an_error(self):
        page = json.loads(self.recorded()[0])
        page["platforms"][0]["presets"] = "none"
        with pytest.raises(AnswerError, match="presets is not a list"):
            self.adapter.parse([json.dumps(page).encode()], SEEN)

    def test_missing_credentials_are_named_with_a_hint(self):
        missing = self.adapter.unavailable({})
        assert missing is not None
        assert "NEBIUS_IAM_TOKEN" in missing.reason
        assert "export NEBIUS_IAM_TOKEN=" in missing.hint

    def test_a_missing_sdk_is_named_with_the_extra_that_brings_it(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(nebius, "find_spec", lambda name: None)
        missing = self.adapter.unavailable({"NEBIUS_IAM_TOKEN": SECRET})
        assert missing is not None
        assert "not installed" in missing.reason
        assert "plan[nebius]" in missing.hint
        monkeypatch.setattr(nebius, "find_spec", lambda name: ModuleSpec(name, None))
        assert self.adapter.unavailable({"NEBIUS_CREDENTIALS_FILE": "key.json"}) is None

    def test_what_the_sdk_answers_is_written_down_and_read(self, sdk: list[str]):
        raw = self.adapter.fetch({"NEBIUS_IAM_TOKEN": SECRET})
        (first, spot) = self.adapter.parse(raw, SEEN).offers
        assert (first.instance_type, first.region, first.usd_per_hour) == (
            "gpu-h100-sxm_8gpu-128vcpu-1600gb",
            "eu-north1",
            Decimal("36.0"),
        )
        assert (spot.market, spot.usd_per_hour) == ("spot", Decimal("18.0"))
        assert sdk == ["closed"]

    def test_an_error_of_the_sdk_repeats_no_token(self, sdk: list[str], monkeypatch: pytest.MonkeyPatch):
        def fail(*_: object) -> None:
            raise TimeoutError(SECRET)

        monkeypatch.setattr(nebius, "_projects", fail)
        with pytest.raises(AnswerError, match="TimeoutError") as caught:
            self.adapter.fetch({"NEBIUS_IAM_TOKEN": SECRET})
        assert SECRET not in str(caught.value)
        assert sdk == ["closed"]


def answers(value: object) -> object:
    """What a call of the SDK gives: something to wait for."""
    return SimpleNamespace(wait=lambda: value)


def service(**calls: object) -> object:
    """A client class of the SDK whose methods give fixed answers."""
    return lambda _: SimpleNamespace(**calls)


def request(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def estimate(asked: SimpleNamespace) -> object:
    """Half the price for a preemptible machine."""
    spot = asked.resource_spec.compute_instance_spec.spec.preemptible is not None
    total = SimpleNamespace(cost="18.0" if spot else "36.0")
    return answers(SimpleNamespace(hourly_cost=SimpleNamespace(general=SimpleNamespace(total=total))))


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules of the SDK with one region, one platform and one preset; notes when it is closed."""
    closed: list[str] = []
    project = SimpleNamespace(
        metadata=SimpleNamespace(id="project-1"), spec=SimpleNamespace(region="eu-north1")
    )
    preset = SimpleNamespace(
        name="8gpu-128vcpu-1600gb",
        allow_gpu_clustering=True,
        resources=SimpleNamespace(vcpu_count=128, memory_gibibytes=1600, gpu_count=8),
    )
    platform = SimpleNamespace(
        metadata=SimpleNamespace(name="gpu-h100-sxm"),
        spec=SimpleNamespace(presets=[preset], gpu_memory_gigabytes=80),
        status=SimpleNamespace(allowed_for_preemptibles=True),
    )
    processors = SimpleNamespace(
        metadata=SimpleNamespace(name="cpu-d3"),
        spec=SimpleNamespace(presets=[SimpleNamespace(resources=SimpleNamespace(gpu_count=0))]),
    )

    def listing(items: list[object]) -> object:
        return lambda request, per_retry_timeout: answers(SimpleNamespace(items=items))

    names = {
        "nebius.base.error": {"SDKError": type("SDKError", (Exception,), {})},
        "nebius.sdk": {
            "SDK": lambda credentials, user_agent_prefix: SimpleNamespace(
                sync_close=lambda timeout: closed.append("closed")
            )
        },
        "nebius.api.nebius.iam.v2": {
            "TenantServiceClient": service(list=listing([project])),
            "ProjectServiceClient": service(list=listing([project])),
            "ListTenantsRequest": request,
            "ListProjectsRequest": request,
        },
        "nebius.api.nebius.compute.v1": {
            "PlatformServiceClient": service(list=listing([platform, processors])),
            **dict.fromkeys(
                (
                    "ListPlatformsRequest",
                    "CreateInstanceRequest",
                    "InstanceSpec",
                    "PreemptibleSpec",
                    "ResourcesSpec",
                ),
                request,
            ),
        },
        "nebius.api.nebius.billing.v1alpha1": {
            "CalculatorServiceClient": service(estimate=estimate),
            "EstimateRequest": request,
            "ResourceSpec": request,
        },
        "nebius.api.nebius.common.v1": {"ResourceMetadata": request},
    }
    for name in names:
        parts = name.split(".")
        for i in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
    for name, members in names.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return closed
