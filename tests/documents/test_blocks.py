"""Every block of commands on a page is run by a test, or is listed here with what runs it, or why nothing does."""

from __future__ import annotations

import importlib

import pytest

from tests.documents.blocks import ROOT, SHOWN, all_blocks, block, blocks_of

_DEMO = "make demo and its like take minutes; tests/e2e runs what they run"
_BENCHMARK = "a measurement, whose sizes tests/benchmarks has small"
ELSEWHERE = {
    ("README.md", "git clone"): _DEMO,
    ("docs/simulation.md", "make sim"): "tests/simulation/",
    ("docs/simulation.md", "python -m tests.simulation.hang_model --bug all"): "tests/simulation/test_hang_model.py",
    ("docs/design/stores-measured.md", "make store-kills"): "tests/contract/test_store_kills.py",
    ("docs/design/scale-measured.md", "python -m benchmarks.scale_out"): _BENCHMARK,
    ("docs/design/scale-measured.md", "python -m benchmarks.kafka_streams"): _BENCHMARK,
    ("docs/scale.md", 'hotspare run shop.yaml --runner partitioned --master "local[2]"'): "tests/e2e/test_partitioned.py",
    ("docs/dataframes.md", "python examples/history/history.py"): "tests/integration/spark/test_history_example.py",
    ("examples/README.md", "../.venv/bin/python history/history.py"): "tests/integration/spark/test_history_example.py",
    ("docs/metrics.md", "hotspare run shop.yaml --bus kafka://"): "tests/e2e/test_metrics.py",
    ("docs/kafka.md", "kafka-console-consumer.sh"): "a command of Kafka's own distribution, which is not here",
    ("docs/topics.md", "kafka-console-consumer.sh"): "a command of Kafka's own distribution, which is not here",
    ("docs/topics.md", "hotspare publish --bus sqlite:///ours.db"): "tests/cli/test_external_topics.py",
    ("docs/topics.md", "hotspare subscribe --bus sqlite:///ours.db"): "tests/cli/test_external_topics.py",
}
"""By page and beginning of the first command, the tests that run the block, or why it is not run."""

_PAGE = """
# A page

    hotspare validate a.yaml      # says what is wrong
    hotspare adapter -C 'a=b,
                         c=d'

    i,n,1,0.75

Text.

    select 1

```yaml
hotspare: {python: make}
```

```sh
BUS=$(hotspare dev kafka up)
hotspare run a.yaml --bus "$BUS" \\
    --engine a
```

```console
$ hotspare status --window "q/w # 1"
```
"""


def test_every_block_is_run() -> None:
    for module in ("test_pages", "test_pages_on_servers", "test_pages_on_spark"):
        importlib.import_module(f"tests.documents.{module}")
    told = [*SHOWN, *(block(page, begin) for page, begin in ELSEWHERE)]
    assert sorted(map(str, told)) == sorted(map(str, all_blocks()))


@pytest.mark.parametrize("runs", sorted({each for each in ELSEWHERE.values() if each.startswith("tests/")}))
def test_what_runs_a_block_elsewhere_is_there(runs: str) -> None:
    assert (ROOT / runs).exists()


def test_blocks_of_commands_are_found() -> None:
    found = list(blocks_of("a.md", _PAGE))
    assert [(each.line, each.commands()) for each in found] == [
        (4, ["hotspare validate a.yaml", "hotspare adapter -C 'a=b,                     c=d'", "i,n,1,0.75"]),
        (19, ["BUS=$(hotspare dev kafka up)", 'hotspare run a.yaml --bus "$BUS"     --engine a']),
        (25, ['hotspare status --window "q/w # 1"']),
    ]
