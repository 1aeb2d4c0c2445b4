"""Emitted documents: golden files, and what must hold for each of them."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from clusters.config import check, closed, emit, iam, versions
from clusters.config.choices import Choices, Format, format_of
from clusters.config.nodes import Cluster, cluster_of
from planner.api import suggest
from planner.errors import UserError
from planner.model.presets import preset
from planner.results import Candidate, Plan
from planner.types import Goal, TrainingSpec
from providers.catalog import shipped
from tests.clusters import tools

EVERY_CASE = pytest.mark.parametrize("name", tools.CASES)


class File(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


def of(name: str) -> tuple[Cluster, Choices, Format]:
    plan, choices, kind = tools.CASES[name]
    return cluster_of(plan, choices, kind), choices, kind


def documents(name: str) -> dict[str, dict]:
    return emit.documents(*of(name))


@EVERY_CASE
def test_files_stay_as_they_were(name: str, snapshot: SnapshotAssertion):
    plan, choices, kind = tools.CASES[name]
    files = {f.name: f.text for f in emit.emit(plan, choices, kind)}
    text = "\n".join(f"=== {n}\n{t}" for n, t in files.items() if n != "plan.json")
    assert text == snapshot.use_extension(File)


@EVERY_CASE
def test_every_misspelt_key_is_caught(name: str):
    cluster, _, kind = of(name)
    for document in documents(name).values():
        tried = list(tools.misspelt(document))
        assert len(tried) > 30
        passed = [place for place, wrong in tried if not check.problems(wrong, kind, cluster)]
        assert not passed


@EVERY_CASE
def test_what_is_written_is_what_was_checked(name: str):
    plan, choices, kind = tools.CASES[name]
    texts = {f.name: f.text for f in emit.emit(plan, choices, kind)}
    for file, document in documents(name).items():
        assert yaml.safe_load(texts[file]) == document


@pytest.mark.parametrize("name", [n for n in tools.CASES if n not in ("local", "kuberay")])
def test_a_cluster_has_a_fixed_size_and_the_gpus_of_the_plan(name: str):
    plan = tools.CASES[name][0]
    (document,) = documents(name).values()
    assert check.num_gpus(document) == plan.candidate.num_nodes * plan.candidate.offer.gpus_per_node
    for node in document["available_node_types"].values():
        assert node["min_workers"] == node["max_workers"]


def test_ec2_and_compute_engine_catch_what_ray_lets_pass():
    (good,) = documents("aws-on-demand").values()
    wrong = {**good, "available_node_types": json.loads(json.dumps(good["available_node_types"]))}
    config = wrong["available_node_types"]["head"]["node_config"]
    config["EbsOptimised"] = True
    config["InstanceType"] = "p9.huge"
    assert not check.ray_problems(wrong)
    assert len(check.aws_problems(wrong)) == 2
    (good,) = documents("gcp-on-demand").values()
    good["available_node_types"]["head"]["node_config"]["schedulingg"] = {}
    assert not check.ray_problems(good)
    assert check.gcp_problems(good)


def test_ray_refuses_a_document_before_us_where_its_schema_says_so():
    (document,) = documents("aws-spot").values()
    document["idle_timeout_minuts"] = 5
    assert check.ray_problems(document)


@pytest.mark.parametrize("name", [n for n in tools.CASES if n.startswith("aws")])
def test_aws_machines_end_themselves_and_leave_nothing(name: str):
    (document,) = documents(name).values()
    assert document["provider"]["cache_stopped_nodes"] is False
    for config in check.node_configs(document).values():
        assert config["InstanceInitiatedShutdownBehavior"] == "terminate"
        assert all(
            d["Ebs"]["DeleteOnTermination"] and d["Ebs"]["Encrypted"] for d in config["BlockDeviceMappings"]
        )
        assert all(i["DeleteOnTermination"] for i in config["NetworkInterfaces"])
        assert config["MetadataOptions"]["HttpTokens"] == "required"
        assert config["UserData"].startswith("#cloud-config\nbootcmd:")
        tagged = {t["ResourceType"]: {p["Key"] for p in t["Tags"]} for t in config["TagSpecifications"]}
        assert set(tagged) == {"instance", "volume", "network-interface"}
        assert all(
            {"plan-id", "plan-launch", "plan-owner", "plan-deadline"} <= keys for keys in tagged.values()
        )


@pytest.mark.parametrize(("name", "num_efa"), [("aws-capacity-block-efa", 32), ("aws-on-demand", 1)])
def test_nodes_that_talk_have_all_their_efa_interfaces(name: str, num_efa: int):
    (document,) = documents(name).values()
    interfaces = check.node_configs(document)["workers"]["NetworkInterfaces"]
    assert sum(i["InterfaceType"].startswith("efa") for i in interfaces) == num_efa
    assert len({(i["NetworkCardIndex"], i["DeviceIndex"]) for i in interfaces}) == len(interfaces)
    assert len({i["SubnetId"] for i in interfaces}) == 1


@pytest.mark.parametrize(
    ("instance", "gpu", "num_efa"),
    [
        ("p4d.24xlarge", "A100-SXM4-40GB", 4),
        ("p4de.24xlarge", "A100-SXM4-80GB", 4),
        ("p5e.48xlarge", "H200-SXM-141GB", 32),
        ("p5en.48xlarge", "H200-SXM-141GB", 16),
        ("p6-b200.48xlarge", "B200-SXM-180GB", 8),
        ("p6-b300.48xlarge", "B300-SXM-288GB", 16),
    ],
)
def test_several_interfaces_need_a_head_with_one(instance: str, gpu: str, num_efa: int):
    plan = tools.plan("aws", instance, gpu, 8, 2)
    cluster = cluster_of(plan, tools.choices(), "aws")
    (document,) = emit.documents(cluster, tools.choices(), "aws").values()
    configs = check.node_configs(document)
    assert cluster.separate_head
    assert configs["head"]["NetworkInterfaces"][0]["AssociatePublicIpAddress"]
    assert "AssociatePublicIpAddress" not in configs["workers"]["NetworkInterfaces"][0]
    kinds = [i["InterfaceType"] for i in configs["workers"]["NetworkInterfaces"]]
    assert kinds.count("efa-only") == num_efa
    assert configs["workers"]["Placement"] == {"GroupName": cluster.name}
    assert "tinyproxy" in " ".join(document["head_setup_commands"])


def test_session_manager_opens_no_port_and_no_address():
    (document,) = documents("aws-reservation-session-manager").values()
    assert document["provider"]["use_internal_ips"]
    assert "aws ssm start-session" in document["auth"]["ssh_proxy_command"]
    for config in check.node_configs(document).values():
        assert not any(i.get("AssociatePublicIpAddress") for i in config["NetworkInterfaces"])


@pytest.mark.parametrize(
    ("name", "market"),
    [
        ("aws-spot", {"MarketType": "spot"}),
        ("aws-capacity-block-efa", {"MarketType": "capacity-block"}),
        ("aws-on-demand", {}),
    ],
)
def test_markets_of_aws_are_said_to_ec2(name: str, market: dict):
    (document,) = documents(name).values()
    config = check.node_configs(document).get("workers") or check.node_configs(document)["head"]
    said = config.get("InstanceMarketOptions", {})
    assert said.get("MarketType") == market.get("MarketType")
    if market == {"MarketType": "spot"}:
        assert said["SpotOptions"]["MaxPrice"] == "12.000"


def test_spot_of_google_and_azure_is_said_too():
    (google,) = documents("gcp-spot-tcpxo").values()
    assert check.node_configs(google)["workers"]["scheduling"]["provisioningModel"] == "SPOT"
    (microsoft,) = documents("azure-spot").values()
    parameters = check.node_configs(microsoft)["workers"]["azure_arm_parameters"]
    assert parameters["priority"] == "Spot"
    assert parameters["billingProfile"] == {"maxPrice": 40.0}


def test_google_deletes_machines_by_its_own_clock_and_gives_workers_no_credentials():
    (document,) = documents("gcp-spot-tcpxo").values()
    for config in check.node_configs(document).values():
        assert config["scheduling"]["terminationTime"] == "2026-12-03T09:00:00Z"
        assert config["scheduling"]["instanceTerminationAction"] == "DELETE"
        assert all(disk["autoDelete"] for disk in config["disks"])
    assert check.node_configs(document)["workers"]["serviceAccounts"] == []
    assert len(check.node_configs(document)["workers"]["networkInterfaces"]) == 9


def test_a_job_on_kubernetes_ends_and_takes_its_pods_along():
    job = documents("kuberay")["rayjob.yaml"]["spec"]
    assert job["activeDeadlineSeconds"] == 48 * 3600
    assert job["shutdownAfterJobFinishes"] is True
    pod = job["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}


@pytest.mark.skipif(
    "KUBERAY_SCHEMAS" not in os.environ,
    reason="KUBERAY_SCHEMAS names no directory with KubeRay's schemas",
)
@pytest.mark.parametrize("file", ["raycluster", "rayjob"])
def test_kubernetes_documents_fit_the_schemas_of_kuberay(file: str):
    from openapi_schema_validator import OAS30Validator

    path = Path(os.environ["KUBERAY_SCHEMAS"]) / f"{file}s.schema.json"
    validator = OAS30Validator(shut(json.loads(path.read_text())["schema"]))
    document = documents("kuberay")[f"{file}.yaml"]
    assert not list(validator.iter_errors(document))
    opaque = re.compile(r"metadata\.|rayStartParams\.|limits\.|requests\.")  # free keys in KubeRay's schema
    for place, wrong in tools.misspelt(document):
        if not opaque.search(place):
            assert list(validator.iter_errors(wrong)), place


def shut(schema: object) -> object:
    """The schema with every object closed that names its keys."""
    if isinstance(schema, list):
        return [shut(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    done = {k: (v if k == "metadata" and "spec" in schema else shut(v)) for k, v in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        done["additionalProperties"] = False
    return done


@EVERY_CASE
def test_no_port_is_for_everyone_and_no_secret_is_written(name: str):
    plan, choices, kind = tools.CASES[name]
    for file in emit.emit(plan, choices, kind):
        assert "0.0.0.0/0" not in file.text
        assert not re.search(r"(AKIA|ASIA)[A-Z0-9]{12}|BEGIN [A-Z ]*PRIVATE KEY", file.text)


@pytest.mark.parametrize("name", [n for n in tools.CASES if n != "kuberay"])
def test_ray_asks_for_a_token_and_keeps_its_dashboard_to_itself(name: str):
    (document,) = documents(name).values()
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "RAY_AUTH_MODE=token" in document[key][-1]
    assert "--dashboard-host=127.0.0.1" in document["head_start_ray_commands"][-1]
    assert document["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}


def test_the_same_versions_are_installed_everywhere():
    pinned = versions.software()
    for name in ("aws-on-demand", "gcp-on-demand", "azure-on-demand", "local"):
        (document,) = documents(name).values()
        said = " ".join(document["setup_commands"])
        assert f"ray[default,train]=={pinned.ray}" in said
        assert f"torch=={pinned.torch}" in said
        assert f"python{pinned.python} -m venv" in said
    job = documents("kuberay")["rayjob.yaml"]["spec"]
    assert job["rayClusterSpec"]["rayVersion"] == pinned.ray
    assert f":{pinned.ray}-py{pinned.python.replace('.', '')}-" in versions.container().image


def test_an_image_with_an_old_driver_is_refused():
    image = versions.Image(parameter="x", driver=470, root_device="", source="s", date="d")
    with pytest.raises(UserError, match=r"driver 470; CUDA 13\.0 needs 580"):
        versions.check_driver(image, "13.0", "an image")
    assert versions.oldest_driver(versions.container().cuda) <= min(
        versions.Image.model_validate(row).driver for row in versions.table()["image"].values()
    )


def test_every_fact_has_a_source_and_a_date():
    for name, rows in versions.table().items():
        many = name in ("image", "cpu_head", "extra")
        for row in rows.values() if many else [rows]:
            assert row["source"]
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["date"])


def test_a_gpu_that_the_pinned_torch_cannot_use_is_said():
    assert "no kernels" in versions.warnings_for("V100-SXM2-16GB")[0]
    assert "ROCm" in versions.warnings_for("MI300X")[0]
    assert not versions.warnings_for("H100-SXM5-80GB")


def test_rights_hold_only_what_is_used():
    cluster, choices, kind = of("aws-on-demand")
    plain = json.dumps(iam.rights(cluster, choices, kind))
    assert "s3:" not in plain
    assert "ssmmessages" not in plain
    assert "PassRole" not in plain
    assert not re.search(r'"(ec2|s3|iam|ssm):\*"|"Action": "\*"', plain)
    cluster, choices, kind = of("aws-reservation-session-manager")
    full = iam.rights(cluster, choices, kind)
    assert "arn:aws:s3:::bucket/runs*" in json.dumps(full["node"])
    assert "ssmmessages:CreateDataChannel" in json.dumps(full["head"])


def test_rights_over_machines_are_bound_to_this_cluster():
    cluster, choices, kind = of("aws-on-demand")
    (head,) = iam.rights(cluster, choices, kind)["head"]
    for statement in head["Statement"]:
        actions = statement["Action"]
        if "ec2:TerminateInstances" in actions:
            assert statement["Condition"]["StringEquals"] == {
                "ec2:ResourceTag/ray-cluster-name": cluster.name
            }


def test_local_wants_as_many_hosts_as_the_plan_has_nodes():
    with pytest.raises(UserError, match="names 1 hosts; p-0123456789ab needs 2"):
        emit.emit(tools.rented(), tools.choices(hosts=("10.0.0.1",)), "local")
    with pytest.raises(UserError, match="a head without GPU and"):
        emit.emit(tools.rented(), tools.choices(hosts=tools.HOSTS, cpu_head=True), "local")


def test_a_plan_of_one_cloud_is_not_emitted_for_another():
    assert format_of(tools.azure(), None) == "azure"
    assert format_of(tools.rented(), None) == "local"
    assert format_of(tools.azure(), "local") == "local"
    with pytest.raises(UserError, match="is on azure"):
        format_of(tools.azure(), "aws")


def test_plan_json_says_what_ray_train_is_to_start():
    files = {f.name: f.text for f in emit.emit(*tools.CASES["aws-on-demand"])}
    said = json.loads(files["plan.json"])
    assert said["scaling_config"]["num_workers"] == 8
    assert said["run"]["layout"]["dp"] == 8


def test_closed_shapes_name_the_place_of_a_mistake():
    shape = {"a": "int", "b?": ["$c"], "x:*?": "int"}
    assert closed.problems({"a": 1, "b": [{"k": "s"}], "x:y": 2}, shape, "", {"c": {"k": "str"}}) == []
    assert closed.problems({"a": True}, shape) == [".a: int is expected, not bool"]
    assert closed.problems({"aa": 1}, shape) == [".aa: unknown key (did you mean a?)", ".a: missing"]


# ------------------------------------------------------------------ whatever the search can produce


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    """Candidates of three searches over the whole shipped catalog."""
    found: list[Candidate] = []
    for model, budget, top in (("gpt2", 2_000, 400), ("llama-3.1-8b", 2_000_000, 400)):
        goal = Goal(budget_usd=budget, max_gpus=64)
        training = TrainingSpec(seq_len=1024, num_tokens=2e9)
        found += suggest(preset(model), training, goal, shipped(), top=top).candidates
    return found


@settings(max_examples=60, deadline=None)
@given(
    pick=st.integers(min_value=0, max_value=10_000),
    wanted=st.sampled_from([None, "local", "kuberay"]),
    cpu_head=st.booleans(),
    session_manager=st.booleans(),
)
def test_whatever_the_search_finds_can_be_emitted_with_exactly_its_gpus(
    candidates: list[Candidate], pick: int, wanted: str | None, cpu_head: bool, session_manager: bool
):
    chosen = candidates[pick % len(candidates)]
    plan = Plan(id=chosen.id, created=tools.NOW, command="plan suggest", candidate=chosen)
    kind = format_of(plan, wanted)
    choices = tools.choices(cpu_head=cpu_head, session_manager=session_manager, project="lab")
    hosts = cluster_of(plan, choices, kind).num_workers + 1
    choices = choices.model_copy(update={"hosts": tuple(f"10.0.0.{i}" for i in range(hosts))})
    cluster = cluster_of(plan, choices, kind)
    layout = chosen.run.layout
    assert cluster.num_gpus == layout.dp * layout.tp * layout.pp * layout.cp
    for document in emit.documents(cluster, choices, kind).values():  # raises where a check fails
        if "available_node_types" in document:
            assert check.num_gpus(document) == cluster.num_gpus


def test_the_searches_reach_every_provider_with_a_node_provider(candidates: list[Candidate]):
    assert {"aws", "gcp", "azure", "lambda", "runpod"} <= {c.offer.provider for c in candidates}
