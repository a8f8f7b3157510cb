"""Qualities of service as projects write them, and the meaning of connectors' failover properties (SPEC D1-D9, D15,
D16, I3, Z27).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from hotspare.base.errors import UsageError
from hotspare.model.project import WindowId
from hotspare.model.quality import BUFFERED, COUNT_MAX, PRECISE, SIMPLE, TRIMMED, Quality, QualityKind, parse_quality
from hotspare.projects.load import LoadedProject, load_project, load_text
from tests.model.marked import assert_only_mistake
from tests.strategies_projects import qualities

CONFORMANCE = Path(__file__).parents[2].parent / "shared" / "conformance"
OUT = WindowId("q", "out")

YAML = """\
project: p
queries:
  q:
    windows:
      in: {type: source, opcodes: any, schema: "id*:int64"}
      out:
        type: copy
        %s
    edges: [in -> out]
"""


def quality_of(line: str) -> Quality:
    return load_text(YAML % line).resolved.quality(OUT)


@given(qualities())
def test_the_text_of_a_quality_is_read_back(quality: Quality) -> None:
    assert parse_quality(str(quality)) == quality


@pytest.mark.parametrize(
    ("text", "quality"),
    [
        ("precise", PRECISE),
        (" simple ", SIMPLE),
        ("buffered", BUFFERED),
        ("buffered 1 event", Quality(QualityKind.BUFFERED, window_events=1)),
        ("buffered  1.5  seconds", Quality(QualityKind.BUFFERED, window_ms=1_500)),
        ("trimmed", TRIMMED),
        ("trimmed 7 events", Quality(QualityKind.TRIMMED, progress_events=7, progress_ms=1_000)),
        ("trimmed 2 seconds", Quality(QualityKind.TRIMMED, progress_events=COUNT_MAX, progress_ms=2_000)),
        ("trimmed 2 seconds or 7 events", Quality(QualityKind.TRIMMED, progress_events=7, progress_ms=2_000)),
    ],
)
def test_texts_and_their_defaults(text: str, quality: Quality) -> None:
    """SPEC D7, D9, Z29."""
    assert parse_quality(text) == quality


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exact",
        "precise 3 events",
        "simple 1 second",
        "buffered 0 events",
        "buffered 3",
        "buffered 3 events or 1 second",
        "buffered 1 microsecond",
        "buffered 2 days",
        "trimmed 3 events or 4 events",
        "trimmed 0 events",
        "trimmed 9999999999 events",
        "trimmed 1 second or",
    ],
)
def test_what_is_no_quality_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_quality(text)
    assert refused.value.hint


def test_parameters_of_another_kind_are_refused() -> None:
    for kind, parameters in (
        (QualityKind.SIMPLE, {"window_ms": 1}),
        (QualityKind.PRECISE, {"progress_events": 1}),
        (QualityKind.BUFFERED, {"window_ms": 1, "window_events": 1}),
        (QualityKind.BUFFERED, {"window_ms": 1, "progress_ms": 1}),
        (QualityKind.TRIMMED, {"progress_events": 1}),
        (QualityKind.BUFFERED, {"window_events": -1}),
    ):
        with pytest.raises(UsageError):
            Quality(kind, **parameters)


def test_a_window_names_its_quality_and_is_precise_without() -> None:
    """SPEC D5, Z11."""
    assert quality_of("quality: simple") == SIMPLE
    assert quality_of("quality: buffered 10 events") == Quality(QualityKind.BUFFERED, window_events=10)
    assert quality_of("quality: {buffered: 10 events}") == Quality(QualityKind.BUFFERED, window_events=10)
    assert quality_of("index: hash") == PRECISE


def test_a_mistaken_quality_is_told_with_its_line() -> None:
    assert_only_mistake(YAML % "quality: exactly # !!", "quality 'exactly' does not exist", "buffered 15 seconds")
    assert_only_mistake(YAML % "quality: {buffered: 1 s} # !!", "not a duration", "buffered 15 seconds")
    assert_only_mistake(
        YAML % "quality: {buffered: 1 second, trimmed: 1 second} # !!", "a quality is not a single kind", "buffered"
    )


def test_a_quality_of_a_window_that_is_not_published_is_warned_about() -> None:
    text = YAML.replace('schema: "id*:int64"', 'schema: "id*:int64", quality: simple') % "index: hash"
    assert [w.message for w in load_text(text).warnings] == [
        "window q/in has the quality simple, but its outputs are not published"
    ]


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason=f"the projects of others are not at {CONFORMANCE}")
def test_the_reference_project_is_precise_without_a_word_about_failover() -> None:
    loaded = load_project(CONFORMANCE / "ha-kafka" / "kafka1.xml")
    assert loaded.resolved.quality(WindowId("cq1", "kafka_outgoing")) == PRECISE
    assert not any("hotfailover" in warning.message or "simple" in warning.message for warning in loaded.warnings)


XML = """\
<project name="p"><contqueries><contquery name="q"><windows>
<window-source name="in" xmlns:hs="urn:hotspare" %(window)s><schema-string>id*:int64</schema-string>
<connectors>%(connectors)s</connectors>
</window-source></windows><edges/></contquery></contqueries></project>
"""


def xml(*connectors: dict[str, str], window: str = "", direction: str = "sub") -> str:
    made = ""
    for number, properties in enumerate(connectors):
        rows = "".join(f'<property name="{name}">{value}</property>' for name, value in properties.items())
        made += f'\n<connector class="kafka" name="c{number}"><properties>'  # one line each, to tell them apart
        made += f'<property name="type">{direction}</property>{rows}</properties></connector>'
    text = XML % {"connectors": made, "window": window}
    return text.replace('name="q"', 'name="q" include-singletons="true"')


def loaded_xml(*connectors: dict[str, str], window: str = "", direction: str = "sub") -> LoadedProject:
    return load_text(xml(*connectors, window=window, direction=direction))


SOURCE = WindowId("q", "in")


@pytest.mark.parametrize(
    ("properties", "window", "quality"),
    [
        ({}, "", PRECISE),
        ({"hotfailover": "true", "numbufferedmsgs": "1000", "snapshot": "false", "zookeeperhostport": "h:1"}, "", PRECISE),
        ({"hotfailover": "false"}, "", SIMPLE),
        ({"hotfailover": "0"}, "", SIMPLE),
        ({"hotfailover": "true"}, 'hs:quality="buffered 10 events"', Quality(QualityKind.BUFFERED, window_events=10)),
        ({"hotfailover": "false"}, 'hs:quality="simple"', SIMPLE),
    ],
)
def test_hotfailover_and_the_windows_own_quality(properties: dict[str, str], window: str, quality: Quality) -> None:
    """SPEC D16, I3."""
    assert loaded_xml(properties, window=window).resolved.quality(SOURCE) == quality


@pytest.mark.parametrize(
    ("properties", "window", "message"),
    [
        ({"hotfailover": "perhaps"}, "", "property hotfailover of connector c0 is 'perhaps'"),
        ({"numbufferedmsgs": "many", "hotfailover": "true"}, "", "property numbufferedmsgs of connector c0 is 'many'"),
        ({"hotfailover": "true", "snapshot": "true"}, "", "connector c0 has hotfailover and snapshot"),
        ({"hotfailover": "true"}, 'hs:quality="simple"', "connector c0 has hotfailover=true, its window in is simple"),
        ({"hotfailover": "false"}, 'hs:quality="precise"', "connector c0 has hotfailover=false, its window in is precise"),
        ({}, 'hs:quality="precisely"', "quality 'precisely' does not exist"),
    ],
)
def test_contradictions_are_mistakes_that_name_the_property(properties: dict[str, str], window: str, message: str) -> None:
    text = xml(properties, window=window)
    line = 2 if "quality" in message else 4
    marked = "\n".join(part + (" <!-- !! -->" if n == line else "") for n, part in enumerate(text.splitlines(), 1))
    assert_only_mistake(marked, message, " ")


def test_two_connectors_of_a_window_that_differ_contradict_each_other() -> None:
    text = xml({"hotfailover": "true"}, {"hotfailover": "false"})
    marked = text.replace("</connector></connectors>", "</connector></connectors><!-- !! -->")
    assert_only_mistake(marked, "connectors c0 and c1 of window in contradict each other in hotfailover", "the same value")


@pytest.mark.parametrize(
    ("properties", "direction", "message"),
    [
        ({"hotfailover": "false"}, "sub", "hotfailover=false makes the stream of window in simple"),
        ({"numbufferedmsgs": "5"}, "sub", "property numbufferedmsgs of connector c0 has no effect without hotfailover=true"),
        ({"zookeeperhostport": "h:1"}, "sub", "property zookeeperhostport of connector c0 has no effect without"),
        ({"snapshot": "true"}, "sub", "snapshot=true of connector c0 has no effect on a topic"),
        ({"useoffsetmsgid": "false"}, "pub", "useoffsetmsgid=false of connector c0 has no effect"),
        ({"urlhostport": "h_1", "kafkatopic": "h_1.p.q.other.O"}, "sub", "kafkatopic 'h_1.p.q.other.O' of connector c0 is not"),
        ({"urlhostport": "h_1", "kafkatopic": "h_1.p.q.in.O"}, "pub", "kafkatopic 'h_1.p.q.in.O' of connector c0 is not"),
        ({"hotfialover": "true"}, "sub", "connector c0 has the unknown property 'hotfialover'"),
    ],
)
def test_what_has_no_effect_is_warned_about_by_name(properties: dict[str, str], direction: str, message: str) -> None:
    (warning,) = loaded_xml(properties, direction=direction).warnings
    assert message in warning.message
    assert warning.place.line == 4
    assert warning.hint


def test_names_that_fit_together_are_not_spoken_of() -> None:
    assert loaded_xml({"urlhostport": "h_1", "kafkatopic": "h_1.p.q.in.O"}).warnings == ()
    assert loaded_xml({"urlhostport": "h_1", "kafkatopic": "h_1.p.q.in.I"}, direction="pub").warnings == ()
