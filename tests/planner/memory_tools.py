"""Small builders shared by the memory tests."""

from __future__ import annotations

from typing import Any

from planner import memory
from planner.columns import MemoryColumns
from planner.hardware.links import machine_columns
from planner.layouts import layout_columns
from planner.model import model_columns
from planner.training.numerics import training_columns
from planner.types import Layout, Links, ModelSpec, Shape, TrainingSpec

GIB = 2**30
LINKS = Links(intra="nvlink4-nvswitch", inter="ib-ndr", inter_gbit_per_s=3200.0)


def a_model(**changed: Any) -> ModelSpec:
    plain: dict[str, Any] = {
        "name": "test",
        "num_layers": 16,
        "hidden_size": 2048,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 64,
        "ffn_size": 8192,
        "vocab_size": 128256,
    }
    return ModelSpec(**{**plain, **changed})


def a_training(**changed: Any) -> TrainingSpec:
    return TrainingSpec(**{"seq_len": 2048, "attention": "flash", **changed})


def a_shape(gpu: str = "H100-SXM-80GB", nodes: int = 1) -> Shape:
    return Shape(gpu=gpu, gpus_per_node=8, num_nodes=nodes, links=LINKS)


def memory_of(
    model: ModelSpec, training: TrainingSpec, layout: Layout, shape: Shape | None = None
) -> MemoryColumns:
    return memory.estimate(
        model_columns([model]),
        training_columns([training]),
        layout_columns([layout]),
        machine_columns([shape or a_shape()], ["bf16"]),
    )
