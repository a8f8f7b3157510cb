"""The text of metrics: as Prometheus' own parser reads it, within its size, and as the page describes it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hotspare.telemetry.metrics import Histogram, Metric, MetricType, MetricWriter, Samples, exposition
from tests.telemetry import metrics_page

OWN = {"engine": "one", "group": "p.shop"}
LARGE = 1 << 20


def full() -> Samples:
    """Returns a sample of every metric of the engine."""
    samples = Samples(OWN)
    for metric in Metric:
        labels = [f"{name} of {metric.label}" for name in metric.labels]
        if metric in (Metric.OMITTED,) or metric.writer is MetricWriter.PARENT:
            continue
        if metric.type is MetricType.HISTOGRAM:
            samples.add_histogram(metric, Histogram(), *labels)
        else:
            samples.add(metric, 1.5, *labels)
    return samples


def parsed(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Returns the values by name and labels."""
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_the_page_describes_the_metrics() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page(), "run `make docs`"


@given(st.text(), st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_label_and_value_is_read_back(label: str, value: float) -> None:
    samples = Samples({**OWN, "shard": label})
    samples.add(Metric.OUTPUT_SEQUENCE, value, label)
    (found,) = [
        number for (name, labels), number in parsed(exposition([samples], LARGE, OWN)).items()
        if name == "hotspare_output_sequence" and dict(labels) == {**OWN, "shard": label, "stream": label}
    ]  # fmt: skip
    assert found == value


def test_the_samples_of_all_parts_stand_together() -> None:
    parts = [Samples({"engine": "one", "group": name}) for name in ("a", "b")]
    for number, part in enumerate(parts):
        part.add(Metric.EPOCH, number)
        part.add_state(Metric.ROLE, "active", ["standby", "active"])
    text = exposition(parts, LARGE, {"engine": "one"}).decode()
    assert re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) == [
        "hotspare_engine_role",
        "hotspare_engine_epoch",
        "hotspare_metrics_omitted",
    ]
    assert text.count('role="active"} 1\n') == 2 and text.count('role="standby"} 0\n') == 2


def test_buckets_are_cumulative() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.1, 0.5, 0.6, 7.0):
        histogram.observe(value)
    samples = Samples({})
    samples.add_histogram(Metric.EPOCH, histogram)
    lines = [line.strip().rpartition(" ")[::2] for line in samples.lines[Metric.EPOCH]]
    assert [count for _, count in lines] == ["1", "3", "4", "8.2", "4"]
    assert [name.partition("le=")[2].strip('"}') for name, _ in lines[:3]] == ["0.1", "1.0", "+Inf"]


def test_a_text_that_would_be_too_long_lacks_its_last_metrics() -> None:
    whole = exposition([full()], LARGE, OWN)
    for size in range(len(Metric.OMITTED.head) + 100, len(whole), 997):
        text = exposition([full()], size, OWN)
        assert len(text) <= size
        names = [line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE")]
        (omitted,) = [value for (name, _), value in parsed(text).items() if name == Metric.OMITTED.label]
        assert len(names) - 1 + omitted == len(full().lines)
        assert whole.startswith(text[: text.index(Metric.OMITTED.head.encode())])


def test_names_are_those_that_promtool_accepts() -> None:
    """The rules that `promtool check metrics` applies, so that no test depends on it."""
    for metric in Metric:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", metric.label)
        assert metric.label.startswith(("hotspare_", "process_"))
        assert metric.label.endswith("_total") is (metric.type is MetricType.COUNTER)
        assert not re.search(r"_(ms|us|kib|mib|count|sum|bucket)(_|$)", metric.label)
        assert metric.meaning and "|" not in metric.meaning


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_text() -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=exposition([full()], LARGE, OWN), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
