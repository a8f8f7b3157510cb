"""Each name of Spark's private interface that hotspare uses exists and does what hotspare needs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from hotspare.runners.spark import private
from hotspare.runners.spark.session import Session
from tests.spark_sessions import quick_options

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(quick_options(cores=2))
    yield session
    session.stop()
    assert (SparkContext._active_spark_context, SparkSession._instantiatedSession) == (None, None)
    assert (SparkContext._gateway, SparkContext._jvm, SparkSession._activeSession) == (None, None, None)


def test_the_slots_of_a_local_master_are_its_cores(session: Session) -> None:
    assert private.slots(session.spark.sparkContext) == 2


def test_the_attempts_of_a_stage_are_recorded(session: Session) -> None:
    context = session.spark.sparkContext

    def where(_: Iterator[object]) -> Iterator[int]:
        task = TaskContext.get()
        assert task is not None
        yield task.stageId()

    (stage,) = context.parallelize([0], 1).mapPartitions(where).collect()
    assert [attempt.taskId() >= 0 for attempt in private.attempts(context, stage)] == [True]


def test_arrow_batches_are_mapped_by_the_drivers_python(session: Session) -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [2 * value for value in batch.column(0).to_pylist()]})

    private.run_this_python(session.spark)
    rows = private.map_in_arrow(session.spark.range(3), doubled, "id bigint").toArrow()
    assert sorted(rows.column("id").to_pylist()) == [0, 2, 4]


def test_a_master_without_executors_replaces_none(session: Session) -> None:
    assert private.replace_executor(session.spark.sparkContext, "none") is False


def test_the_resolver_of_jars_exists(session: Session) -> None:
    """`hotspare.testing.kafka_jars` calls it with missing jars only."""
    resolver = session.spark.sparkContext._jvm.org.apache.spark.util.DependencyUtils
    assert callable(resolver.resolveMavenDependencies)
    with pytest.raises(Py4JError):
        resolver.resolveNothing(1)
