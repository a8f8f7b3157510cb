"""ESP XML, read into trees with places."""

__all__ = ["connector_groups", "elements", "pubsub", "text", "tree", "values", "xml_writer"]
