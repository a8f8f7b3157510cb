"""The bus: ordered topics, and outputs that are committed together with progress under a fencing epoch."""

__all__ = ["contract", "kafka", "limits", "memory", "naming", "open", "sqlite", "tail", "topic_reader", "topic_writer"]
