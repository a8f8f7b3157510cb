"""Packages are imported only through their public modules (ARCHITECTURE.md)."""

from __future__ import annotations

from tests.repo.faces import hidden, needless
from tests.repo.tree import Source, sources


def test_other_packages_import_only_what_a_package_shows() -> None:
    assert [str(violation) for violation in hidden(sources("src"))] == []


def test_what_a_package_shows_is_imported_elsewhere() -> None:
    assert needless(sources("src")) == []


def package(shows: str) -> list[Source]:
    texts = {
        "p/__init__": shows,
        "p/a": "from hotspare.p import b",
        "p/b": "",
        "q/__init__": "",
        "q/a": "from hotspare.p.b import f",
    }
    return [Source.of(f"src/hotspare/{path}.py", text) for path, text in texts.items()]


def test_a_module_that_is_not_shown_is_for_its_own_package() -> None:
    assert [found.what for found in hidden(package("__all__ = ['a']"))] == ["hotspare.p does not show b (`__all__`)"]
    assert needless(package("__all__ = ['a', 'b']")) == ["hotspare.p.a"]
    assert list(hidden(package("__all__ = ['b']"))) == []
    assert needless(package("__all__ = ['b', 'gone', 'f']\n\ndef f(): ...")) == ["hotspare.p.gone"]
