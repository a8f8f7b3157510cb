"""Snapshots in a database: tables, how it is reached, and the store."""
