"""Shell commands of a cluster: set up once, idempotent (Ray runs worker setup twice), then start Ray.

Python, Ray and torch go into one virtual environment of the pinned versions on every host. Ray starts with
token authentication, without usage statistics, its dashboard on the head's loopback only.
"""

from __future__ import annotations

from clusters.config import versions
from clusters.config.choices import Choices, Format
from clusters.config.nodes import Cluster
from planner.types import Record

ENV_DIR = "$HOME/plan-env"
PROXY_PORT = 8888
_PATH = f"export PATH={ENV_DIR}/bin:$PATH"
_RAY_ENV = "export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0"
_VIA_HEAD = (
    f'[ -z "$RAY_HEAD_IP" ] || export http_proxy=http://$RAY_HEAD_IP:{PROXY_PORT}'
    f" https_proxy=http://$RAY_HEAD_IP:{PROXY_PORT}; "
)
_ROOT = '$([ "$(id -u)" = 0 ] || echo sudo -E)'
_APT = f"{_ROOT} apt-get update -qq && {_ROOT} env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq"
_PROXY_CONFIG = (
    f"User tinyproxy\\nGroup tinyproxy\\nPort {PROXY_PORT}\\nTimeout 600\\nAllow 10.0.0.0/8\\n"
    "Allow 172.16.0.0/12\\nAllow 192.168.0.0/16\\nConnectPort 443\\n"
)
_EFA_ENV = (
    "export FI_PROVIDER=efa NCCL_SOCKET_IFNAME=^docker,lo"
    " LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:$LD_LIBRARY_PATH"
)
_IB_ENV = "export NCCL_IB_PCI_RELAXED_ORDERING=1 NCCL_SOCKET_IFNAME=eth0 UCX_NET_DEVICES=eth0"


class Commands(Record):
    """Commands in Ray's own groups; ``setup`` runs before ``head_setup`` or ``worker_setup``."""

    initialization: tuple[str, ...]
    setup: tuple[str, ...]
    head_setup: tuple[str, ...]
    worker_setup: tuple[str, ...]
    head_start: tuple[str, ...]
    worker_start: tuple[str, ...]


def commands(
    cluster: Cluster, choices: Choices, kind: Format, network_env: str = "", via_head: bool = False
) -> Commands:
    """Write the commands of a cluster.

    Args:
        cluster: its machines.
        choices: of the user; ``preinstalled`` leaves the hosts' own Python, Ray and torch.
        kind: which provider, for what the head's autoscaler needs.
        network_env: shell that sets NCCL up for the network, before Ray starts.
        via_head: workers have no way to the internet but a proxy on the head.

    """
    gpu_checks = _gpu_checks(cluster)
    return Commands(
        initialization=() if kind == "local" else ("cloud-init status --wait >/dev/null 2>&1 || true",),
        setup=_preinstalled() if choices.preinstalled else _install(via_head),
        head_setup=(
            *(_head_install(kind) if not choices.preinstalled else ()),
            *(_proxy() if via_head else ()),
            *(() if cluster.separate_head else gpu_checks),
        ),
        worker_setup=gpu_checks,
        head_start=("ray stop", _start(cluster, kind, network_env, head=True)),
        worker_start=("ray stop", _start(cluster, kind, network_env, head=False)),
    )


def _install(via_head: bool) -> tuple[str, ...]:
    """Install the pinned set; what is there already is left alone."""
    pinned, proxy = versions.software(), _VIA_HEAD if via_head else ""
    python = f"python{pinned.python}"
    return (
        # where the host's Ubuntu has another Python, uv brings the pinned one
        f"test -x {ENV_DIR}/bin/pip || {{ {proxy}{_APT} {python}-venv && {python} -m venv {ENV_DIR}; }} ||"
        f" {{ python3 -m pip install --quiet --user uv &&"
        f" python3 -m uv venv --quiet --seed --python {pinned.python} {ENV_DIR}; }}",
        f"{proxy}{ENV_DIR}/bin/pip install --quiet"
        f" 'ray[default,train]=={pinned.ray}' 'torch=={pinned.torch}'",
        f"grep -q plan-env ~/.bashrc || sed -i '1i {_PATH}' ~/.bashrc",
    )


def _preinstalled() -> tuple[str, ...]:
    """Check that the host's own Ray is the pinned one."""
    ray = versions.software().ray
    return (f"python -c 'import ray; assert ray.__version__ == \"{ray}\", ray.__version__'",)


def _head_install(kind: Format) -> tuple[str, ...]:
    packages = versions.head_packages(kind)
    return (f"{ENV_DIR}/bin/pip install --quiet {' '.join(packages)}",) if packages else ()


def _proxy() -> tuple[str, ...]:
    """Install a proxy on the head, for workers without a public address."""
    return (
        f"command -v tinyproxy >/dev/null || {{ {_APT} tinyproxy; }}",
        f"printf '{_PROXY_CONFIG}' | sudo tee /etc/tinyproxy/tinyproxy.conf >/dev/null"
        " && sudo systemctl restart tinyproxy",
    )


def _gpu_checks(cluster: Cluster) -> tuple[str, ...]:
    """Fail on a host whose GPUs or driver are not the plan's, before it costs a run."""
    if cluster.gpu.vendor != "nvidia":
        return ()
    driver = versions.oldest_driver(versions.software().torch_cuda)
    count = cluster.gpus_per_node
    return (
        f'test "$(nvidia-smi -L | wc -l)" -eq {count} ||'
        f" {{ echo 'plan: {count} GPUs expected on this host' >&2; exit 1; }}",
        'test "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1 | cut -d. -f1)"'
        f" -ge {driver} || {{ echo 'plan: driver {driver} or newer expected' >&2; exit 1; }}",
    )


def _start(cluster: Cluster, kind: Format, network_env: str, head: bool) -> str:
    """Start Ray on one host. ``local`` states its resources here, elsewhere the autoscaler does."""
    parts = [_PATH, _RAY_ENV]
    if network_env and not (head and cluster.separate_head):
        parts.append(network_env)
    if kind == "local" and head:
        # autoscaler v2 takes the head of a local cluster for a worker and never starts the last one
        parts.append("export RAY_enable_autoscaler_v2=0")
    where = (
        "--head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
        if head
        else "--address=$RAY_HEAD_IP:6379"
    )
    resources = _stated(cluster.head_resources() if head else cluster.resources()) if kind == "local" else ""
    return "; ".join([*parts, f"ulimit -n 65536; ray start {where}{resources}"])


def _stated(resources: dict[str, int]) -> str:
    """``ray start`` flags of resources."""
    named = {k: v for k, v in resources.items() if k not in ("CPU", "GPU")}
    flags = f" --num-gpus={resources['GPU']}"
    if "CPU" in resources:
        flags += f" --num-cpus={resources['CPU']}"
    if named:
        inner = ", ".join(f'"{k}": {v}' for k, v in named.items())
        flags += f" --resources='{{{inner}}}'"
    return flags


def efa_env() -> str:
    """NCCL over EFA through the plugin of the Deep Learning AMI."""
    return _EFA_ENV


def infiniband_env() -> str:
    """NCCL over InfiniBand on Azure ND."""
    return _IB_ENV


def script_env(path: str) -> str:
    """Read the environment that a GPUDirect plug-in brings, where it is installed."""
    return f"[ ! -f {path} ] || . {path}"
