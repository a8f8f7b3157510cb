"""Masters of Spark, as a command line names them."""

from __future__ import annotations

import os

import pytest

from hotspare.errors import UsageError
from hotspare.runners.spark.partitioned.cluster import Master, parse_master


@pytest.mark.parametrize(
    ("text", "master"),
    [
        ("local", Master("local[1,1000000]", 1, has_executors=False)),
        ("local[3]", Master("local[3,1000000]", 3, has_executors=False)),
        ("local[3,1]", Master("local[3,1000000]", 3, has_executors=False)),
        ("local[*]", Master(f"local[{os.cpu_count()},1000000]", os.cpu_count(), has_executors=False)),
        ("local-cluster[2,3,1024]", Master("local-cluster[2,3,1024]", 6, 1024)),
        ("spark://a:7077", Master("spark://a:7077", is_here=False)),
        ("yarn", Master("yarn", is_here=False)),
        ("k8s://https://a:6443", Master("k8s://https://a:6443", is_here=False)),
    ],
)
def test_master(text: str, master: Master) -> None:
    assert parse_master(text) == master


@pytest.mark.parametrize("text", ["", "local[]", "local[x]", "local-cluster[2,1]", "mesos://a", "spark://", "yarn-client"])
def test_what_is_no_master_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no master of Spark"):
        parse_master(text)
