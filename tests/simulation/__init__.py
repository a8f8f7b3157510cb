"""The deterministic simulation: the real rules of failover over simulated bus, coordination, time and faults, from one seed."""
