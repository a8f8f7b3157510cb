"""Jobs, cluster and executors of an application whose tasks are engines."""

__all__ = ["cluster", "jobs", "place"]
