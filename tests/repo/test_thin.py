"""Few modules have one sibling as their only importer, and each of them has a reason (CONTRIBUTING.md)."""

from __future__ import annotations

from tests.repo.thin import KEPT, KEPT_MAX, thin_modules
from tests.repo.tree import Source, sources


def test_each_module_that_one_sibling_alone_imports_has_a_reason() -> None:
    assert set(thin_modules(sources("src"))) == set(KEPT)
    assert [module for module, reason in KEPT.items() if len(reason) < 20] == []
    assert len(KEPT) <= KEPT_MAX


def test_a_module_is_thin_if_one_sibling_alone_imports_it() -> None:
    texts = {"a": "from hotspare.p import b\nfrom hotspare.p.c import x", "b": "", "c": "", "d": "from hotspare.p import c"}
    files = [Source.of(f"src/hotspare/p/{name}.py", text) for name, text in texts.items()]
    assert thin_modules(files) == {"p.b": "p.a"}
    elsewhere = Source.of("src/hotspare/q/a.py", "import hotspare.p.b")
    assert thin_modules([*files, elsewhere]) == {}
