"""Batches, chunks, changelogs and routing, and the compiler of kernels."""

__all__ = [
    "arrays",
    "bad_reasons",
    "batch",
    "changelog",
    "chunk",
    "compile",
    "elementwise",
    "event_texts",
    "kernel_files",
    "letters",
    "machine_code",
    "merged",
    "ordering",
    "partition_clock",
    "refusals",
    "routing",
    "runs",
    "times",
    "tuning",
    "values",
]
