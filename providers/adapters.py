"""Which live adapters there are: every module of this package that has an ``ADAPTER``, and entry points.

A new provider is one file here; another package adds one under the entry point group ``plan.prices``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from functools import lru_cache
from importlib.metadata import entry_points

import providers
from planner.errors import UserError, did_you_mean
from providers.base import PriceAdapter

ENTRY_POINTS = "plan.prices"


@lru_cache(maxsize=1)
def adapters() -> dict[str, PriceAdapter]:
    """Return the live adapters by provider. Imports their modules, but none of their SDKs."""
    found: dict[str, PriceAdapter] = {}
    for module in pkgutil.iter_modules(providers.__path__, "providers."):
        adapter = getattr(importlib.import_module(module.name), "ADAPTER", None)
        if isinstance(adapter, PriceAdapter):
            found[adapter.provider] = adapter
    for point in entry_points(group=ENTRY_POINTS):
        adapter = point.load()
        if isinstance(adapter, PriceAdapter):
            found.setdefault(adapter.provider, adapter)
    return dict(sorted(found.items()))


def chosen(names: Collection[str]) -> tuple[PriceAdapter, ...]:
    """Adapters of these providers, all where none is named. Raises ``UserError`` for one without."""
    known = adapters()
    lower = [n.lower() for n in names]
    for name in lower:
        if name not in known:
            raise UserError(
                f"provider {name!r} has no live prices{did_you_mean(name, known)}",
                f"plan prices refresh {' '.join(known)}",
            )
    return tuple(a for p, a in known.items() if not lower or p in lower)
