"""Options of a Kafka client as configurations of others write them, `name=value;name=value`, as the URL of a bus (SPEC I2, I8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_OPTION = re.compile(r"""\s*([^=;]*)=\s*(?:"([^"]*)"|([^;]*))\s*(?:;|\Z)""")


def client_options(text: str) -> Mapping[str, str]:
    """By name; a value may stand in quotes, and hold `;` there. What has no `=` is passed over."""
    found: dict[str, str] = {}
    for match in _OPTION.finditer(text):
        name, quoted, bare = match.groups()
        if name.strip():
            found[name.strip()] = quoted if quoted is not None else bare.strip()
    return found


def kafka_url(hosts: str, options: Mapping[str, str]) -> str:
    """ "" where no host is named. What it holds may be secret."""
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in options.items())
    url = f"kafka://{hosts.strip()}" if hosts.strip() else ""
    return f"{url}?{pairs}" if url and pairs else url
