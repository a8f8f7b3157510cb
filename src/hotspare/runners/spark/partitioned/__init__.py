"""The cluster, jobs and executors of a Spark application whose tasks are engines."""

__all__ = ["cluster", "jobs", "place"]
