"""Spending guards that live in the configuration itself: deadline, idle shutdown, tags.

They must work when everything of ours is gone: no SSH, no Ray, no laptop. So they run from cloud-init's
``bootcmd``, on the host, before sshd starts; the instance terminates when it shuts itself down.
"""

from __future__ import annotations

from clusters.config.choices import Choices
from clusters.config.nodes import Cluster
from clusters.config.yaml_text import to_yaml
from clusters.watchdog import TIMER

# Both run as root. Without systemd (a container, a chroot) a detached sleep does the same.
# The deadline lies in a file, read at every tick: who extends a launch writes it anew on every machine.
_DEADLINE = """\
[ -s {timer} ] || echo {deadline} >{timer}
{start} plan-deadline 'sleep {least}
while left=$(( $(cat {timer} 2>/dev/null || echo {deadline}) - $(date +%s) )); [ "$left" -gt 0 ]; do
  sleep $(( left < {tick} ? left : {tick} ))
done
{end}'
"""
_IDLE = """\
{start} plan-idle '
idle=0
while sleep {tick}; do
  busy=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null
         pgrep -af "^ray::" | grep -v "ray::IDLE")
  if [ -n "$busy" ]; then idle=0; else idle=$((idle + 1)); fi
  if [ "$idle" -ge {ticks} ]; then {end}; fi
done'
"""
_START = """\
in_background() {
  if [ -d /run/systemd/system ]; then
    systemctl is-active --quiet "$1" || systemd-run --quiet --unit="$1" /bin/bash -c "$2"
  else
    setsid nohup /bin/bash -c "$2" </dev/null >/dev/null 2>&1 &
  fi
}
"""
SHUT_DOWN = "shutdown -P now"
LAUNCH_TAG = "plan-launch"


def tags(cluster: Cluster, choices: Choices) -> dict[str, str]:
    """Return the tags of everything that is created: by them it is found again, and deleted."""
    return {
        "plan-id": cluster.plan_id,
        LAUNCH_TAG: choices.launch_id,
        "plan-owner": choices.owner,
        "plan-deadline": choices.deadline_utc(),
    }


def label_tags(cluster: Cluster, choices: Choices) -> dict[str, str]:
    """Tags as labels of GCP and Kubernetes: lower case letters, digits, dash and underscore."""
    return {key: _label(value) for key, value in tags(cluster, choices).items()}


def _label(value: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in value.lower())
    return kept[:63].strip("-_") or "unknown"


def guard_script(
    choices: Choices, end: str = SHUT_DOWN, tick_s: int = 60, least_s: int = 60, timer: str = TIMER
) -> str:
    """Shell script that starts both guards in the background and returns at once.

    Args:
        choices: deadline and idle minutes.
        end: the command that ends the machine.
        tick_s: seconds between two looks for work; tests make it short.
        least_s: seconds that a machine has at least, were its deadline over when it boots.
        timer: file of the deadline, seconds since 1970; the machine keeps it when it boots again.

    """
    deadline = _DEADLINE.format(
        deadline=round(choices.deadline.timestamp()),
        start="in_background",
        end=end,
        least=least_s,
        tick=tick_s,
        timer=timer,
    )
    idle = _IDLE.format(start="in_background", tick=tick_s, ticks=choices.idle_minutes, end=end)
    return _START + deadline + idle


def cloud_init(choices: Choices) -> str:
    """Return user data for cloud-init: the guards as ``bootcmd``, which runs at every boot before sshd."""
    script = guard_script(choices)
    return "#cloud-config\n" + to_yaml({"bootcmd": [["/bin/bash", "-c", script]]})
