"""Writes docs/metrics.md from the list of metrics: `make docs`. A test compares the page with its output."""

from __future__ import annotations

from pathlib import Path

from hotspare.telemetry.metrics import Metric, MetricWriter

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

_HEAD = """# Metrics and health

After this page you can scrape an engine with Prometheus, route requests to the active engine, and look up a metric.

    hotspare run shop.yaml --bus kafka://broker1:9092 --http 127.0.0.1:9108

The parent of the engine answers at this address, also while user code computes for ever. There is no authentication: bind it to
an address that only the monitoring reaches. GET, HEAD and OPTIONS are answered.

| path | 200 | 503 |
|---|---|---|
| `/livez` | always; the JSON names the call of user code that runs | never |
| `/readyz` | every group of the process is active, or a spare that has caught up | otherwise |
| `/active` | at least one group of the process is active | otherwise |
| `/standby` | every group of the process is a spare; with `?lag=N`, at most N messages behind | otherwise |
| `/status` | always; JSON with the role, epoch, lag and age of each group's facts | never |
| `/metrics` | always | never |

- An answer of 503 says why, as JSON: `{"why": ["group p.shop is standby"]}`.
- A process of a divided project hosts a group for each shard. `?group=NAME` asks about one of them.
- The engine publishes its metrics and facts about once a second, and at each change of its role. If they are older than 5 s,
  because a step or a call of user code lasts that long, or the process is frozen, `/readyz`, `/active` and `/standby` answer 503,
  and `hotspare_metrics_age_seconds` shows the age of the other metrics.
- A scrape takes no time of the engine. Without `--http` nothing is measured or published.
- With `--runner partitioned` engines run in tasks of Spark, and the process that answers has none of their metrics.

## As a check of HAProxy

```
backend shop
    option httpchk GET /active
    server one 10.0.0.1:8080 check port 9108 inter 500ms fall 1 rise 1
    server two 10.0.0.2:8080 check port 9108 inter 500ms fall 1 rise 1
```

## Metrics of the engine

All have the labels `engine` and `group`, and `shard` if the project is divided; `hotspare_metrics_omitted` has `engine` alone.
Counters begin at 0 with each start of the engine. If a process has more than 500 windows, the busiest ones of its first seconds
have samples of their own, and all others are added as `window="other"`.

This page is written by `make docs` from `src/hotspare/telemetry/metrics.py`; change the text there.

| metric | type | labels | meaning |
|---|---|---|---|
"""
_PARENT_HEAD = """
## Metrics of the parent

The parent reads them when it is asked, so they are fresh even if the engine hangs.

| metric | type | meaning |
|---|---|---|
"""


def page() -> str:
    """Returns the whole page."""
    own = [m for m in Metric if m.writer is MetricWriter.ENGINE]
    rows = (f"| `{m.label}` | {m.type.value} | {', '.join(f'`{each}`' for each in m.labels)} | {m.meaning} |\n" for m in own)
    parents = (f"| `{m.label}` | {m.type.value} | {m.meaning} |\n" for m in Metric if m.writer is MetricWriter.PARENT)
    return _HEAD + "".join(rows) + _PARENT_HEAD + "".join(parents)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
