"""Decodes messages of all formats to rows, and encodes rows to messages."""

__all__ = ["arrow_block", "avro_block", "avro_datum", "csv", "json", "outputs", "topic_format", "utf8", "xml"]
