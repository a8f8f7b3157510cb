"""The environment of processes that start Spark as a user would, without hotspare's own session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hotspare.runners.spark.jre import find_java


def environment() -> dict[str, str]:
    """Returns this environment with a Java, and with the benchmarks and the sources first on the path, for any working folder."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), str(root / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "JAVA_HOME": str(find_java().parents[1]), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
