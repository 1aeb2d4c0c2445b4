"""What a launch reads of the user's files and words, all of it before its row is written.

What is found wrong later leaves a launch that is planned and never began.
"""

from __future__ import annotations

import re
from pathlib import Path

from clusters.config.choices import Choices, Format
from clusters.config.emit import documents
from clusters.config.nodes import cluster_of
from clusters.launch.nouns import LaunchRequest
from planner.cli.request import Options
from planner.errors import UserError
from planner.launched import CloudKind

_FORMATS: dict[CloudKind, Format] = {
    "aws": "aws",
    "gcp": "gcp",
    "azure": "azure",
    "hosts": "local",
    "kuberay": "kuberay",
}
_STORAGE = re.compile(r"(?:[a-z][a-z0-9+.-]*://[^/\s]+(?:/\S*)?|[/~]\S*)")


def check(request: LaunchRequest, options: Options) -> None:
    """Read what the options name, and make the documents once. Raises ``UserError``."""
    choices = request.choices
    if options["ssh_key"]:
        _key(choices.ssh_key)
    if request.kind == "kuberay" and choices.kubeconfig:
        _kubeconfig(choices)
    kind = _FORMATS.get(request.kind)
    if kind is not None:
        documents(cluster_of(request.plan, choices, kind), choices, kind)


def storage(text: str | None) -> str | None:
    """Read where checkpoints go: an address with a bucket, or a path that all nodes see."""
    if text is not None and not _STORAGE.fullmatch(text):
        raise UserError(
            f"--storage {text!r:.80} is neither an address nor an absolute path",
            "--storage s3://BUCKET/PREFIX   or   --storage /mnt/shared/runs",
        )
    return text


def _key(path: str) -> None:
    """Refuse a private key that is not there, cannot be read, or is the public half."""
    content = _read(path, "--ssh-key", "--ssh-key ~/.ssh/id_ed25519")
    if "PRIVATE KEY" not in content:
        raise UserError(f"--ssh-key {path!r:.200} is no private key", "--ssh-key ~/.ssh/id_ed25519")


def _kubeconfig(choices: Choices) -> None:
    """Refuse a kubeconfig that cannot be read, or has no context of the name."""
    import yaml  # only where a file is read

    path = choices.kubeconfig or ""
    content = _read(path, "--kubeconfig", "--kubeconfig ~/.kube/config")
    try:
        found = yaml.safe_load(content)
    except yaml.YAMLError:
        found = None
    contexts = found.get("contexts") if isinstance(found, dict) else None
    if not isinstance(contexts, list):
        raise UserError(f"--kubeconfig {path!r:.200} is no kubeconfig", "--kubeconfig ~/.kube/config")
    names = [str(c.get("name")) for c in contexts if isinstance(c, dict)]
    if choices.kube_context is not None and choices.kube_context not in names:
        raise UserError(
            f"--kube-context: {path!r:.200} has no context {choices.kube_context!r:.60}",
            f"--kube-context {names[0] if names else 'NAME'}",
        )


def _read(path: str, option: str, hint: str) -> str:
    """Text of a file that an option names."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: no home for ~
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not text"
        raise UserError(f"{option} {path!r:.200}: {why}", hint) from None
