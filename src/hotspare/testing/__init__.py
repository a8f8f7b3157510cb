"""The public test kit: real servers, clusters of engines, faults."""

__all__ = [
    "applications",
    "cluster",
    "dev_servers",
    "hosts",
    "kafka_server",
    "recorder",
    "spark_cluster",
    "verify",
    "zookeeper_server",
]
