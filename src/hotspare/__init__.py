"""hotspare: 1+N hot-standby event processing on Apache Spark."""

__version__ = "0.1.0"
