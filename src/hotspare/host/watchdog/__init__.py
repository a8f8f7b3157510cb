"""The watch of an engine's calls of user code, from a process of its own: the parent of `hotspare run` and `hotspare replay`, or a
watcher that the engine starts.

No thread of the engine could watch, because a call may hold the interpreter's lock for ever. What the parent imports stays in its
memory as long as the engine runs, so all modules but `attach` and `record` import only the standard library and a few light
modules.
"""

__all__ = ["attach", "parent", "replay_calls"]
