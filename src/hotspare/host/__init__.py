"""The engine process: puts a group, a runner, connectors and liveness together. Decides nothing itself."""
