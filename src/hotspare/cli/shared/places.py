"""Options that take a path or a URL: it becomes absolute where it enters. Arguments take the same parsers."""

from __future__ import annotations

from typing import Any

from hotspare.base.places import absolute_path, absolute_place, absolute_url

PATH: dict[str, Any] = {"parser": absolute_path, "metavar": "PATH"}
URL: dict[str, Any] = {"parser": absolute_url, "metavar": "URL"}
PATH_OR_URL: dict[str, Any] = {"parser": absolute_place, "metavar": "PATH-OR-URL"}
