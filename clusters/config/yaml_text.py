"""YAML that people can read: keys in their own order, scripts as blocks."""

from __future__ import annotations

from collections.abc import Mapping

import yaml


class _Dumper(yaml.SafeDumper):
    """Long scripts as blocks, and no aliases: the file is to be read by people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(document: Mapping[str, object]) -> str:
    """Write a document as YAML, keys in their own order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
