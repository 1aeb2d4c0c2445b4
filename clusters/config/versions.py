"""The pinned set of software, and which image can run it: ``data/versions.toml``."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.errors import UserError
from planner.hardware.gpus import gpu
from planner.types import Gpu, Record

Arch = Literal["x86_64", "arm64"]
Document = dict[str, object]


class Software(Record):
    """One version of each everywhere. ``torch_cuda``: the CUDA that torch's default wheels carry."""

    python: str
    ray: str
    torch: str
    torch_cuda: str
    oldest_compute_capability: float
    source: str
    date: str


class Image(Record):
    """A machine image: an SSM parameter, a family or a URN, resolved in the region when machines start."""

    parameter: str
    driver: int
    root_device: str
    source: str
    date: str


class Container(Record):
    """The container image for Kubernetes. Its CUDA may differ from torch's: the driver must suit both."""

    image: str
    cpu_image: str
    cuda: str
    source: str
    date: str


class CpuHead(Record):
    """A small machine without GPU that can be the head."""

    instance_type: str
    vcpus: int
    usd_per_hour: Decimal
    source: str
    date: str


@lru_cache(maxsize=1)
def table() -> dict[str, Document]:
    """``versions.toml`` as it stands."""
    text = files("clusters.config").joinpath("data/versions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@lru_cache(maxsize=1)
def software() -> Software:
    """Return the pinned set."""
    return Software.model_validate(table()["software"])


@lru_cache(maxsize=1)
def container() -> Container:
    """Return the container image of the pinned set."""
    return Container.model_validate(table()["container"])


def head_packages(provider: str) -> tuple[str, ...]:
    """Python packages that Ray's autoscaler needs on the head for a provider."""
    listed = table()["head_packages"].get(provider, [])
    return tuple(str(p) for p in listed) if isinstance(listed, list) else ()


def cpu_head(provider: str) -> CpuHead:
    """Return the small head of a provider."""
    return CpuHead.model_validate(table()["cpu_head"][provider])


def arch_of(accelerator: Gpu) -> Arch:
    """Processor architecture of the hosts of a GPU: Grace superchips are arm64."""
    return "arm64" if "Grace" in accelerator.architecture else "x86_64"


def image(provider: str, accelerator: Gpu | None) -> Image:
    """Image of a provider for a GPU, or for a head without one; its driver suits the CUDA of torch."""
    arch = arch_of(accelerator) if accelerator else "x86_64"
    row = table()["image"].get(f"{provider}-{arch}")
    if row is None:
        raise UserError(
            f"no {arch} image of {provider} is known",
            "give your own: plan cluster PLAN --image NAME, or --format kuberay",
        )
    found = Image.model_validate(row)
    check_driver(found, software().torch_cuda, f"the image of {provider}")
    return found


def oldest_driver(cuda: str) -> int:
    """Oldest NVIDIA driver that runs a CUDA release."""
    return int(str(table()["driver_of_cuda"][cuda]))


def check_driver(found: Image, cuda: str, name: str) -> None:
    """Refuse an image whose driver is older than a CUDA needs.

    Raises:
        UserError: with the driver, the CUDA and what it needs.

    """
    needed = oldest_driver(cuda)
    if found.driver < needed:
        raise UserError(
            f"{name} has driver {found.driver}; CUDA {cuda} needs {needed} or newer",
            "plan cluster PLAN --image NAME (one with a newer driver)",
        )


def warnings_for(gpu_id: str) -> tuple[str, ...]:
    """What the pinned set cannot do on a GPU."""
    accelerator, pinned = gpu(gpu_id), software()
    if accelerator.vendor != "nvidia":
        return (
            f"{accelerator.id}: pip's torch {pinned.torch} is built for CUDA; install its ROCm build and a"
            " ROCm image yourself (--image, and the setup command that installs torch)",
        )
    capability = accelerator.compute_capability
    if capability and float(capability) < pinned.oldest_compute_capability:
        return (
            f"{accelerator.id}: torch {pinned.torch} with CUDA {pinned.torch_cuda} has no kernels for compute"
            f" capability {capability}; install its CUDA 12.6 build in the setup command instead",
        )
    return ()
