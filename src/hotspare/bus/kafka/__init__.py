"""The bus on Kafka."""

__all__ = ["client"]
