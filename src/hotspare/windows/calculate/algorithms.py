"""The parameters, inputs and outputs of the algorithms of calculate windows (SPEC A39). Validation and the operator both read these
tables.
"""

from __future__ import annotations

from hotspare.model.types import FieldType

SUMMARY = "Summary"

ALGORITHMS: tuple[str, ...] = (SUMMARY,)

SUMMARY_WINDOW_LENGTH = "windowLength"
"""Parameter for the number of newest observations that statistics cover; if absent, they cover all."""

SUMMARY_INPUT = "input"
"""Name in the input map of the one field that is observed."""

SUMMARY_OUTPUTS: dict[str, str] = {
    "nOut": "observations that are not null",
    "nMissOut": "observations that are null",
    "minOut": "smallest value",
    "maxOut": "greatest value",
    "sumOut": "sum",
    "meanOut": "sum divided by `nOut`",
    "stdOut": "square root of the variance",
    "varOut": "variance of a sample: `cssOut` divided by `nOut` - 1",
    "stderrOut": "standard deviation divided by the square root of `nOut`",
    "cvOut": "standard deviation in percent of the mean",
    "ussOut": "sum of squares",
    "cssOut": "sum of squared differences from the mean",
}
"""Names of the output map, with their meaning. A value that is not defined (no observation, `nOut` - 1 = 0, mean 0) is null."""

SPELLINGS: dict[str, str] = {"nmissOut": "nMissOut"}
"""Other spellings of output map names, which external projects use, with the names that replace them."""

WINDOW_LENGTH_MAX = 1_000_000

SUMMARY_TYPES: frozenset[FieldType] = frozenset({FieldType.INT32, FieldType.INT64, FieldType.DOUBLE})
"""Allowed types of the observed field and of the fields that outputs are written to."""
