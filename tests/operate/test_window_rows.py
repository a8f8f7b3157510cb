"""The rows of a window as a publisher learns of them: from a project file, else from the bus (SPEC B4)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.bus.open import open_bus
from hotspare.operate.inbound import Target, WindowPath
from hotspare.operate.window_rows import ProjectFile, Side, resolve_source_rows, row_prefix, window_schema
from tests.cli.kept import PROJECT
from tests.cli.shop import open_shop


def test_a_file_is_asked_before_the_bus(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path / 'demo.db'}", tmp_path / "shop.yaml"
    open_shop(url)
    file.write_text(PROJECT)
    project, orders = ProjectFile(file, {}), WindowPath("shop", "q", "orders")
    with closing(open_bus(url)) as bus:
        target, known = resolve_source_rows(bus, Target(url, "hotspare", orders), project)
        assert (known.schema and known.schema.names, target.partition_by) == (("id", "item", "price"), "id")
        target, known = resolve_source_rows(bus, Target(url, "hotspare", orders), None)
        assert (known.schema and known.schema.names, target.partition_by) == (("id",), "")
        spent = WindowPath("shop", "q", "spent")
        assert window_schema(bus, "hotspare", project, spent, Side.STREAM) is not None
        with pytest.raises(UsageError, match="has no output stream shop/q/spent"):
            window_schema(bus, "hotspare", None, spent, Side.STREAM)
        with pytest.raises(UsageError, match="has no source window shop/q/spent"):
            window_schema(bus, "hotspare", project, spent, Side.SOURCE)


def test_a_window_without_metadata(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'demo.db'}", WindowPath("other", "q", "all")
    with closing(open_bus(url)) as bus:
        assert window_schema(bus, "hotspare", None, path, Side.STREAM) is None
        with pytest.raises(UsageError, match="no engine has described window other/q/all"):
            row_prefix(bus, "hotspare", None, path)
        with pytest.raises(UsageError, match="no engine of window other/q/all has started here"):
            resolve_source_rows(bus, Target(url, "hotspare", path), None)
