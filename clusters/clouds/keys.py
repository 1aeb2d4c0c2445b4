"""A launch's own SSH key: made once, in the launch's directory; its private half never leaves it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clusters.faults import CloudFault

KEY = "key"
_KEYGEN_S = 30.0


def make(directory: Path, kind: str = "ed25519") -> str:
    """Make the key unless it is there; returns its public half. Raises ``CloudFault``."""
    private = directory / KEY
    if not private.exists():
        command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "plan", "-f", str(private)]
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=_KEYGEN_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CloudFault(
                "parameter", f"no SSH key could be made: {error}", "install openssh-client"
            ) from None
    return private.with_name(KEY + ".pub").read_text(encoding="utf-8").strip()
