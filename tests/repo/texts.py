"""Rules for any text: no secrets, package hosts, machine paths or merge marks; every link in Markdown leads to a target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.repo.tree import ROOT, Violation

_SECRETS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an access key": re.compile(r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{36}|xox[abp]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9]{32,})\b"),
}

_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("maven", "org"),
            ("maven", "apache", "org"),
            ("maven", "google", "com"),
            ("npmjs", "org"),
            ("conda", "anaconda", "org"),
            ("docker", "io"),
            ("ghcr", "io"),
            ("crates", "io"),
            ("proxy", "golang", "org"),
        )
    )
)
"""Package sources are configured on the machine (pip and Ivy), so no file names one."""

_MERGE_MARK = re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def secrets(path: str, text: str) -> Iterator[Violation]:
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in _SECRETS.items():
            if pattern.search(line):
                yield Violation(path, number, what)


def package_hosts(path: str, text: str) -> Iterator[Violation]:
    for number, line in enumerate(text.splitlines(), 1):
        found = _HOSTS.search(line)
        if found:
            yield Violation(path, number, f"names the package host {found[0]}")


def merge_marks(path: str, text: str) -> Iterator[Violation]:
    for number, line in enumerate(text.splitlines(), 1):
        if _MERGE_MARK.match(line):
            yield Violation(path, number, "a mark of a merge that is not done")


def machine_paths(path: str, text: str, root: Path = ROOT) -> Iterator[Violation]:
    """Yields lines that name the folder of this checkout or a home directory: a checkout may be in any folder."""
    for number, line in enumerate(text.splitlines(), 1):
        if str(root) in line or str(Path.home()) + "/" in line:
            yield Violation(path, number, "names a folder of one machine")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a Markdown text's headings."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(path: str, text: str, root: Path = ROOT) -> Iterator[Violation]:
    """Yields relative links without a file of the repository, or whose anchor is not a heading there."""
    body = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for match in _LINK.finditer(body):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        line = body.count("\n", 0, match.start()) + 1
        other = (root / PurePosixPath(path).parent / target) if target else root / path
        if not other.exists():
            yield Violation(path, line, f"link to {target}, which does not exist")
        elif anchor and other.suffix == ".md" and anchor not in anchors(text if not target else other.read_text(encoding="utf-8")):
            yield Violation(path, line, f"link to {target or path}#{anchor}, which has no such heading")
