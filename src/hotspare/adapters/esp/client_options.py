"""Converts options of a Kafka client, `name=value;name=value` in existing configurations, to the URL of a bus (SPEC I2, I8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from hotspare.base.places import absolute_path, is_relative_option

_OPTION = re.compile(r"""\s*([^=;]*)=\s*(?:"([^"]*)"|([^;]*))\s*(?:;|\Z)""")


def client_options(text: str) -> Mapping[str, str]:
    """Returns the options by name. A value may be quoted, and then contain `;`. Parts without `=` are ignored."""
    found: dict[str, str] = {}
    for match in _OPTION.finditer(text):
        name, quoted, bare = match.groups()
        if name.strip():
            found[name.strip()] = quoted if quoted is not None else bare.strip()
    return found


def absolute_options(text: str, folder: Path) -> str:
    """Returns the text with absolute paths in options that name files; a relative path begins at `folder`."""

    def absolute(match: re.Match[str]) -> str:
        name, quoted, bare = match.groups()
        value = quoted if quoted is not None else bare.strip()
        if not is_relative_option(name.strip(), value):
            return match[0]
        return f'{name}="{absolute_path(value, folder)}";'

    return _OPTION.sub(absolute, text)


def kafka_url(hosts: str, options: Mapping[str, str]) -> str:
    """Returns the URL of a Kafka cluster, which may contain secrets; "" if no host is named."""
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in options.items())
    url = f"kafka://{hosts.strip()}" if hosts.strip() else ""
    return f"{url}?{pairs}" if url and pairs else url
