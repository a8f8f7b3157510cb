"""Tries a live project on years of history: payments in Parquet, the project `cards.yaml` over them, its alerts into tables.

    python history.py FOLDER                      five years of 2,000 cards: 3.7 million payments
    python history.py FOLDER --cards 27000        50 million; the tasks need no more memory for them

The first run makes the payments in FOLDER/payments, by year. They are regular, but for cards that are stolen: each time four
payments in another country, of 700 each. So it is known how many alerts there have to be, and the last line compares. The tables of
alerts, FOLDER/too_much and FOLDER/abroad, are made anew by every run; where there is a catalog, `saveAsTable` writes them into it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from hotspare.spark import apply

PROJECT = Path(__file__).parent / "cards.yaml"
FIRST_DAY_S = 1_577_836_800
"""2020-01-01."""
DAY_S = 86_400
DAYS_A_YEAR = 365
OWNERS_AMOUNT_MAX = 300
THEFT = 4
"""Payments of a thief, ten minutes apart, the first one 20 minutes after one of the owner's."""
THEFT_AMOUNT = 700
"""Three are too much for a day, whatever the owner pays; two are not, so as they leave nothing begins again."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--years", type=int, default=5)
    parser.add_argument("--cards", type=int, default=2_000)
    parser.add_argument(
        "--one-stolen-in", type=int, default=5_000, help="payments of every other day, of which one is followed by a thief's"
    )
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    spark = session()
    try:
        if not (folder / "payments").exists():
            made = payments(spark, asked.cards, asked.years * DAYS_A_YEAR, asked.one_stolen_in)
            made.write.partitionBy("year").parquet(str(folder / "payments"))
        kept = spark.read.parquet(str(folder / "payments"))
        stolen = kept.where(f"amount = {THEFT_AMOUNT}").count() // THEFT
        found = alerts(kept)
        for name, table in found.items():
            table.write.mode("overwrite").parquet(str(folder / name))
        return verdict({name: spark.read.parquet(str(folder / name)) for name in found}, kept.count(), stolen)
    finally:
        spark.stop()


def session() -> SparkSession:
    """On all cores of this machine; a job of a cluster has one already."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.master("local[*]").appName("history").config("spark.sql.session.timeZone", "UTC").getOrCreate()


def payments(spark: SparkSession, cards: int, days: int, one_stolen_in: int) -> DataFrame:
    """One of each card on each day, in its first twelve hours, and what thieves add, whose days do not follow one another."""
    card, day = F.expr(f"id % {cards}"), F.expr(f"id div {cards}")
    at_s = FIRST_DAY_S + day * DAY_S + _drawn(1) % (DAY_S // 2)
    owners = spark.range(cards * days).select(
        F.col("id"),
        F.concat(F.lit("card "), card).alias("card"),
        (_drawn(2) % (OWNERS_AMOUNT_MAX * 100) / 100).alias("amount"),
        _country(card).alias("country"),
        F.timestamp_seconds(at_s).alias("paid_at"),
    )
    more = F.explode(F.expr(f"sequence(1, {THEFT})"))
    followed = owners.where((day % 2 == 0) & (_drawn(3) % one_stolen_in == 0)).select("*", more.alias("more"))
    thieves = followed.select(
        (F.lit(cards * days) + F.col("id") * THEFT + F.col("more")).alias("id"),
        "card",
        F.lit(float(THEFT_AMOUNT)).alias("amount"),
        F.lit("elsewhere").alias("country"),
        (F.col("paid_at") + F.expr("make_interval(0, 0, 0, 0, 0, 10 * (more + 1))")).alias("paid_at"),
    )
    return owners.unionByName(thieves).withColumn("year", F.year("paid_at"))


def _drawn(seed: int) -> Column:
    """A number that is any, and always the same for an id."""
    return F.abs(F.xxhash64("id", F.lit(seed)) % 1_000_003)


def _country(card: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, ("DE", "FR", "JP", "US"))), (card % 4 + 1).cast("int"))


def alerts(kept: DataFrame) -> dict[str, DataFrame]:
    """Rows of both windows that say that something began."""
    found = apply(PROJECT, {"watch/payments": kept}, order_by="paid_at", partition_by="card")
    return {
        "too_much": found["watch/too_much"].where("opcode = 'I'").selectExpr("card", "payments", "total", "newest paid_at"),
        "abroad": found["watch/abroad"].selectExpr("card", "first", "second", "paid_at"),
    }


def verdict(tables: dict[str, DataFrame], rows: int, stolen: int) -> int:
    """Alerts by year, and whether there are as many as thefts: the exit status."""
    for name, table in tables.items():
        table.groupBy(F.year("paid_at").alias("year")).agg(F.count("*").alias(name)).orderBy("year").show()
    counts = {name: table.count() for name, table in tables.items()}
    told = " ".join(f"{name} {count}" for name, count in counts.items())
    sys.stdout.write(f"payments {rows} stolen {stolen} {told}\n")
    return 0 if set(counts.values()) == {stolen} else 1


if __name__ == "__main__":
    sys.exit(main())
