"""Ordered topics, and outputs committed together with progress under an epoch."""

__all__ = ["contract", "kafka", "limits", "memory", "naming", "open", "sqlite", "tail", "topic_reader", "topic_writer"]
