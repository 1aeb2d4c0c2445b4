"""A cluster of hosts out of one machine: network, process and mount namespaces, each with its own sshd.

For root in a network namespace of its own, which has no way out: ``lab_hosts`` and ``lab_aws`` run in it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PYTHON_DIR = Path(sys.executable).parent
GATEWAY, PREFIX = "10.77.0.1", 24
NEEDED = ("ip", "unshare", "nsenter", "sshd", "ssh-keygen", "ssh", "rsync", "mount", "setsid")
SSHD_CONFIG = """\
Port 22
ListenAddress 0.0.0.0
HostKey {lab}/host_key
PidFile none
AuthorizedKeysFile /root/.ssh/authorized_keys
StrictModes no
PasswordAuthentication no
UsePAM no
PermitRootLogin prohibit-password
MaxSessions 100
MaxStartups 100:30:200
"""
INSIDE = """\
mount --make-rprivate / && mount -t proc proc /proc && hostname {name}
{binds}
cp /etc/passwd {home}/passwd && echo 'ubuntu:x:0:0::/root:/bin/bash' >> {home}/passwd
mount --bind {home}/passwd /etc/passwd
mount --rbind {home} /root
mkdir -p /tmp/ray /run/sshd
mount --bind {home}/tmp_ray /tmp/ray && mount -t tmpfs -o size=2g tmpfs /dev/shm
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {sshd} -f {home}/sshd_config -E {home}/sshd.log
exec sleep infinity
"""


PATIENT = "export RAY_raylet_start_wait_time_s=120\n"  # two cores start two hosts' Ray, and run other tests


def why_not() -> str | None:
    """What keeps the lab from running here, or ``None``."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the lab needs root on Linux"
    missing = [name for name in NEEDED if shutil.which(name, path=search_path()) is None]
    if missing:
        return f"the lab needs {', '.join(missing)} (apt-get install openssh-server rsync iproute2)"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True
    )
    return None if probe.returncode == 0 else "no namespaces may be made here"


def search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def sh(command: str, check: bool = True) -> str:
    done = subprocess.run(command, shell=True, check=check, capture_output=True, text=True)
    return done.stdout


class Host:
    """One host: it has an address on the bridge, a home, an sshd, and processes that only it sees."""

    def __init__(
        self, lab: Path, number: int, ip: str, gpus: int, keys: str, env: str = "", prefix: int = PREFIX
    ) -> None:
        self.ip, self.ns, self.home = ip, f"lab{number}", lab / f"host{number}"
        self.down = self.home / "down"
        self._files(lab, gpus, keys, env)
        ns = self.ns
        sh(
            f"ip netns add {ns}; ip link add {ns}h type veth peer name {ns}n;"
            f" ip link set {ns}n netns {ns} name eth0; ip link set {ns}h master labbr up;"
            f" ip -n {ns} addr add {ip}/{prefix} dev eth0;"
            f" ip -n {ns} link set eth0 up; ip -n {ns} link set lo up; ip -n {ns} route add default dev eth0"
        )
        inside = INSIDE.format(
            name=ns, home=self.home, binds=self._binds(), sshd=shutil.which("sshd", path=search_path())
        )
        isolated = "unshare --pid --fork --kill-child --mount --uts bash -ec"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", ns, *isolated.split(), inside],
            stdin=subprocess.DEVNULL,
            stdout=(self.home / "init.log").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _files(self, lab: Path, gpus: int, keys: str, env: str) -> None:
        for part in (".ssh", "tmp_ray", "bin"):
            (self.home / part).mkdir(parents=True)
        (self.home / ".ssh/authorized_keys").write_text(keys)
        (self.home / "sshd_config").write_text(SSHD_CONFIG.format(lab=lab))
        path = (
            f"export PATH={self.home}/bin:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin\n" + env
        )
        (self.home / ".bashrc").write_text(path)
        (self.home / ".bash_profile").write_text(path)
        tools = {  # eight GPUs that are not there, and an off switch that leaves a mark
            "nvidia-smi": f'case "$1" in -L) seq {gpus};; *driver*) echo 595.91;; esac\n',
            "shutdown": f"touch {self.down}\n",
            # the pinned Python, Ray and torch: what this test runs on, wherever a setup command installs them
            "apt-get": "true\n",
            "cloud-init": "true\n",
            "python3.12": f'mkdir -p "$3/bin"; ln -sf {PYTHON_DIR}/ray "$3/bin/"\n'
            # a link to a Python of another environment would not find what is installed in that
            f'printf "#!/bin/bash\\nexec {PYTHON_DIR}/python \\"\\$@\\"\\n" > "$3/bin/python"\n'
            'chmod +x "$3/bin/python"\n'
            'printf "#!/bin/bash\\necho pip >> ~/setup.log\\n" > "$3/bin/pip"; chmod +x "$3/bin/pip"\n',
        }
        for name, body in tools.items():
            (self.home / "bin" / name).write_text(f"#!/bin/bash\n{body}")
            (self.home / "bin" / name).chmod(0o755)

    def _binds(self) -> str:
        """Keep Python and this repository in sight, should they lie under the home that is hidden."""
        wanted = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, Path(__file__).parents[2])}
        hidden = [p for p in wanted if Path("/root") in p.parents]
        lines = []
        for path in hidden:
            target = self.home / path.relative_to("/root")
            target.mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind {path} {target}")
        return "\n".join(lines) or "true"

    def run(self, script: str) -> None:
        """Run a script on the host without SSH, as cloud-init would: from its first process's namespaces."""
        first = sh(f"pgrep -P {self.process.pid} | head -1").strip() or str(self.process.pid)
        inner = sh(f"pgrep -P {first} | head -1").strip() or first
        path = f"PATH={self.home}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        subprocess.run(
            ["nsenter", "-t", inner, "-p", "-m", "-n", "env", "-i", path, "/bin/bash", "-c", script],
            check=True,
        )

    def kill(self) -> None:
        """Take its power, and its place on the network: the next host may have the same address."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        sh(f"ip netns del {self.ns}; ip link del {self.ns}h; ip neigh flush dev labbr", check=False)


def hosts_of(lab: Path, addresses: list[str], gpus_per_node: int) -> list[Host]:
    """Make a bridge, keys, and a host for each address."""
    sh("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
    sh(
        f"ip link set lo up; ip link add labbr type bridge; ip addr add {GATEWAY}/{PREFIX} dev labbr;"
        " ip link set labbr up"
    )
    sh(f"ssh-keygen -q -t ed25519 -N '' -f {lab}/host_key; ssh-keygen -q -t ed25519 -N '' -f {lab}/key")
    keys = (lab / "key.pub").read_text()
    return [Host(lab, i, ip, gpus_per_node, keys, PATIENT) for i, ip in enumerate(addresses)]


def deadline_without_ssh(guard: str, host: Host) -> bool:
    """Boot the guards of a host, take its sshd away, and see whether it still ends itself."""
    host.run(guard.replace("DEADLINE", str(int(time.time()) + 4)))
    host.run("kill $(pgrep -x sshd)")
    reached = sh(f"ssh -o ConnectTimeout=1 -o StrictHostKeyChecking=no root@{host.ip} echo yes", check=False)
    assert "yes" not in reached, "sshd still answers"
    assert not host.down.exists(), "ended before its deadline"
    until = time.monotonic() + 10
    while not host.down.exists() and time.monotonic() < until:
        time.sleep(0.1)
    return host.down.exists()
