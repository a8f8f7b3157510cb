"""The deterministic core: plan, step, merge, outputs, snapshots, upgrades."""

__all__ = [
    "carry_over",
    "digest_chain",
    "given_order",
    "head",
    "heartbeats",
    "numbering",
    "outputs",
    "pipeline",
    "plan",
    "poison",
    "project_state",
    "semantics",
    "snapshot",
    "snapshot_content",
    "upgrade",
    "warm",
    "window_meter",
]
