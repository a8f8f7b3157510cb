"""Snapshots in a SQL database: the access with its tables, and the store."""
