"""Takes secrets out of texts: values of the environment that are named like one, and forms known by sight."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

HIDDEN = "***"
_NAMED = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH", re.IGNORECASE)
_PLACES = re.compile(r"(?:_PATH|_FILE|_DIR|_MODE|_SOCK|_URL|_URI|_ID|_COMMAND)$", re.IGNORECASE)
_FORMS = re.compile(
    r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"  # access key ids of AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bhf_[A-Za-z0-9]{20,}\b"  # GitHub, Hugging Face
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_SHORTEST = 8


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that are to be hidden, the longest first (one may hold another)."""
    found = {
        value
        for name, value in environment.items()
        if (_NAMED.search(name) and (not _PLACES.search(name) or "ACCESS_KEY" in name.upper()))
        and len(value) >= _SHORTEST
    }
    return tuple(sorted(found, key=lambda v: (-len(v), v)))


def scrubber(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Make a function that hides secrets, also inside JSON texts."""
    values = secrets_of(environment)
    written = [v for value in values for v in dict.fromkeys((value, json.dumps(value)[1:-1]))]

    def scrub(text: str) -> str:
        for value in written:
            text = text.replace(value, HIDDEN)
        return _FORMS.sub(HIDDEN, text)

    return scrub
