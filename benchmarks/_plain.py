"""What processes need that start Spark as a user would, without hotspare's own session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hotspare.runners.spark.jre import find_java


def environment() -> dict[str, str]:
    """This one's, with a Java, and with the benchmarks and the sources on the path from whatever folder, before what is there."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), str(root / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "JAVA_HOME": str(find_java().parents[1]), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
