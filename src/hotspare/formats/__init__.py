"""Bytes to rows and back."""

__all__ = ["arrow_block", "avro_block", "avro_datum", "csv", "json", "outputs", "topic_format", "utf8", "xml"]
