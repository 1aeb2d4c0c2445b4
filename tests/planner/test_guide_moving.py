"""What changes from the machine that one has to the plan that was chosen."""

from decimal import Decimal

import pytest

from planner import api
from planner.guide.moving import Change, Moving, Start, moving
from planner.hardware.gpus import gpus
from planner.hardware.toolchains import toolchains
from planner.results import Candidate
from planner.runs import parse_run
from planner.types import Goal, LayoutPins, Links, Offer, TrainingSpec

MODEL = {"params": 1e9}
TOKENS = 2e10


def chosen(gpu: str = "H100-SXM5-80GB", per_node: int = 8, provider: str = "aws", market: str = "on-demand",
           **training: object) -> Candidate:  # fmt: skip
    offer = Offer(
        provider=provider,
        instance_type="big",
        region="us-east-1",
        market=market,
        gpu=gpu,
        gpus_per_node=per_node,
        links=Links(intra="nvlink4-nvswitch" if per_node > 1 else "none", inter="one-node"),
        usd_per_hour=Decimal("20"),
        source="a price list",
    )
    model = parse_run({"model": MODEL, "gpu": gpu, "gpus": 1, "seq_len": 2048}).model
    asked = TrainingSpec(seq_len=2048, num_tokens=TOKENS, **training)
    pins = LayoutPins(dp=per_node, zero_stage=0)
    return api.suggest(model, asked, Goal(max_gpus=per_node), [offer], pins=pins).candidates[0]


def way(start: Start, plan: Candidate, upload_bytes_per_s: float | None = None) -> Moving:
    line = {"model": MODEL, "gpu": start.gpu, "gpus": start.num_gpus, "seq_len": 2048, "tokens": TOKENS}
    (before,) = api.estimate([parse_run({**line, "global_batch": 512})])
    return moving(start, before, plan, upload_bytes_per_s)


@pytest.fixture(scope="module")
def from_home() -> Moving:
    return way(Start(gpu="RTX 4090", num_gpus=1), chosen(), 12.5e6)


def changes(found: Moving, kind: str) -> dict[str, Change]:
    (move,) = (m for m in found.moves if m.kind == kind)
    return {c.what: c for c in move.changes}


def kinds(found: Moving) -> list[str]:
    return [m.kind for m in found.moves]


def test_from_a_card_at_home_to_a_machine_in_the_cloud_three_things_change(from_home: Moving):
    assert kinds(from_home) == ["several-gpus", "gpu-kind", "cloud"]
    assert from_home.hours_before.mid > from_home.hours_after.mid


def test_both_ends_are_compared_without_set_up_and_probe(from_home: Moving):
    plan = chosen()
    set_up = [line.quantity for line in plan.cost_lines if line.name in ("set-up", "probe")]
    assert len(set_up) == 2
    assert from_home.hours_after.mid == pytest.approx(plan.hours.mid - sum(set_up), rel=0.01)


def test_several_gpus_need_a_sharded_loader_and_an_exchange_of_gradients(from_home: Moving):
    found = changes(from_home, "several-gpus")
    assert "8 data-parallel ranks" in found["data loader"].after
    assert found["gradients"].before == "stay on the GPU"
    assert "3.73 GiB by AllReduce once a step (DDP), over NVLink 4" in found["gradients"].after


def test_the_plan_keeps_the_global_batch_so_the_learning_rate_stays(from_home: Moving):
    found = changes(from_home, "several-gpus")
    assert found["global batch"].before.endswith("= 512 sequences")
    assert found["global batch"].after.endswith("= 512 sequences")
    assert found["learning rate"].after == "the same"


def test_a_larger_global_batch_scales_the_learning_rate():
    plan = chosen(global_batch_tokens=4 * 512 * 2048)
    found = changes(way(Start(gpu="RTX 4090", num_gpus=1), plan), "several-gpus")
    assert found["learning rate"].after == "× 2 with Adam"
    assert "2205.10287" in found["learning rate"].do


def test_from_a_consumer_card_driver_cuda_and_compute_capability_change(from_home: Moving):
    found = changes(from_home, "gpu-kind")
    assert found["compute capability"].before == "8.9 (Ada)"
    assert found["compute capability"].after == "9.0 (Hopper)"
    assert "TORCH_CUDA_ARCH_LIST" in found["compute capability"].do
    assert found["CUDA"].after == "11.8 or later"
    assert "fabric manager" in found["driver"].do
    assert (found["ECC"].before, found["ECC"].after) == ("no", "yes")


def test_to_an_amd_card_the_toolkit_is_another_one():
    found = changes(way(Start(gpu="RTX 4090", num_gpus=8), chosen("MI300X")), "gpu-kind")
    assert "CUDA to ROCm" in found
    assert "HIP" in found["compute capability"].do


def test_data_are_sent_as_tokens_at_the_stated_bandwidth(from_home: Moving):
    assert from_home.upload_bytes == 2 * TOKENS
    assert from_home.upload_s == pytest.approx(2 * TOKENS / 12.5e6)
    assert from_home.upload_usd == 0
    assert "37.3 GiB as token ids: 53 min to send, $0.00" in changes(from_home, "cloud")["data"].after


def test_without_a_bandwidth_the_time_is_unknown_and_the_flag_is_named():
    found = way(Start(gpu="RTX 4090", num_gpus=1), chosen())
    assert found.upload_s is None
    assert "unknown to send" in changes(found, "cloud")["data"].after
    assert "--upload-mbit" in changes(found, "cloud")["data"].do


def test_a_provider_whose_price_of_uploads_nobody_says_has_no_cost_of_it():
    found = way(Start(gpu="RTX 4090", num_gpus=1), chosen(provider="acme"), 1e7)
    assert found.upload_usd is None
    assert changes(found, "cloud")["data"].after.endswith(", unknown")


def test_in_the_cloud_mounts_permissions_and_the_end_of_the_machine_are_named(from_home: Moving):
    found = changes(from_home, "cloud")
    assert f"plan cluster {from_home.plan_id} --storage" in found["checkpoints"].do
    assert f"plan cluster {from_home.plan_id} --iam" in found["permissions"].do
    assert "storage mounts" in found
    spot = changes(way(Start(gpu="RTX 4090", num_gpus=1), chosen(market="spot")), "cloud")
    assert "spot takes it away" in spot["checkpoints"].do


def test_an_owned_machine_is_no_move_to_the_cloud():
    found = way(Start(gpu="RTX 4090", num_gpus=1), chosen(provider="own", market="owned"), 1e7)
    assert "cloud" not in kinds(found)
    assert found.upload_bytes is None


def test_the_same_machine_and_precision_change_nothing_but_the_place():
    found = way(Start(gpu="H100-SXM5-80GB", num_gpus=8), chosen())
    assert kinds(found) == ["cloud"]


def test_another_precision_is_to_be_verified():
    found = changes(way(Start(gpu="H100-SXM5-80GB", num_gpus=8, precision="fp32"), chosen()), "precision")
    assert "plan probe --check-precision" in found["numbers"].do


def test_a_card_without_the_precision_of_the_plan_switches_and_drops_the_scaler():
    start = Start(gpu="V100-SXM2-32GB", num_gpus=8)
    found = changes(moving(start, None, chosen(), None), "precision")
    assert (found["numbers"].before, found["numbers"].after) == ("fp16", "bf16")
    assert found["loss scaling"].after == "none"


def test_pure_bf16_warns_of_small_updates():
    plan = chosen(precision="bf16-pure")
    found = changes(way(Start(gpu="H100-SXM5-80GB", num_gpus=8, precision="bf16"), plan), "precision")
    assert "lost to rounding" in found["weights and optimizer states"].do


def test_what_cannot_be_laid_out_at_the_start_is_unknown_there():
    found = moving(Start(gpu="RTX 4090", num_gpus=1), None, chosen(), None)
    assert found.hours_before is None
    assert changes(found, "several-gpus")["learning rate"].after == "unknown"
    assert changes(found, "several-gpus")["gradients"].before == "unknown"


def test_to_fewer_gpus_the_process_group_goes():
    found = changes(way(Start(gpu="H100-SXM5-80GB", num_gpus=8), chosen(per_node=1)), "several-gpus")
    assert found["processes"].after == "one process"


def test_every_gpu_has_a_toolchain_with_a_source():
    assert {g.compute_capability for g in gpus()} <= set(toolchains())
    assert all(t.source and t.source_date for t in toolchains().values())
