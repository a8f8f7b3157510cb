"""Compiles the core's kernels into their cache, so that the first engines on a machine need not: `make setup` runs this once."""

from __future__ import annotations

import importlib.resources
import time

from hotspare.engine.head import Head
from hotspare.engine.plan import compile_plan
from hotspare.engine.warm import warm_up
from hotspare.model.load import load_text


def main() -> None:
    started = time.monotonic()
    text = importlib.resources.files("hotspare.demo").joinpath("memory.yaml").read_text()
    plan = compile_plan(load_text(text, "memory.yaml").resolved)
    warm_up(plan, Head.of(plan))
    print(f"kernels: ready after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
