"""Tests patch no constant of the sources."""

from __future__ import annotations

import pytest

from tests.repo import constants
from tests.repo.tree import sources, violations, whats

TEST = "tests/base/test_x.py"


def test_no_test_patches_a_constant() -> None:
    assert violations(constants.patched, sources("tests")) == []


def test_exceptions_exist_and_say_why() -> None:
    texts = {source.path: source.text for source in sources("tests")}
    for (path, constant), reason in constants.PATCHED.items():
        assert f'"{constant}"' in texts[path], f"{path} does not patch {constant}"
        assert len(reason) > 10, f"{path} needs a reason"


@pytest.mark.parametrize(
    "text",
    [
        "monkeypatch.setattr(row_pages, 'PAGE_SLOTS', 4)",
        "patch.setattr('hotspare.stores.lazy_pages.RENEW_S', 0.1)",
        "patch.setattr(kafka, '_POLL_S', 0.1, raising=False)",
        "setattr(limits, 'MESSAGE_BYTES_MAX', 9)",
        "for name in ('LOOKS_MIN', 'other'):\n    patch.setattr(module, name, 1)",
        "_ALL = ('hotspare.stores.lazy_pages.RENEW_S',)\nfor name in _ALL:\n    patch.setattr(name, 1)",
        "from hotspare.bus import limits\nlimits.MESSAGE_BYTES_MAX = 9",
    ],
)
def test_patched_bites(text: str) -> None:
    assert len(whats(constants.patched, TEST, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "patch.setattr(Relation, 'mark', marking)",
        "patch.setattr('hotspare.coordination.sqlite.clock_ms', lambda: 5)",
        "patch.setattr(place, method, call)",
        "for method in ('put', 'create'):\n    patch.setattr(Bucket, method, call)",
        "_Hanging.LET_GO = threading.Event()",
    ],
)
def test_patched_allows_what_is_none_of_ours(text: str) -> None:
    assert whats(constants.patched, TEST, text) == []
