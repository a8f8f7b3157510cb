"""Transport configuration files are read unchanged; settings without effect are named (SPEC I8, Z27)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.adapters.esp.transport_config import CONFIG_BYTES_MAX, load_transport_config, read_transport_config
from hotspare.base.errors import UsageError

CONFORMANCE = Path(__file__).parents[3] / "shared" / "conformance" / "ha-kafka"


def config_file(name: str) -> Path:
    path = CONFORMANCE / name
    if not path.exists():
        pytest.skip(f"no conformance file {name} beside the repository")
    return path


def test_the_publisher_file_of_the_sources() -> None:
    """SPEC B5, I8."""
    config = load_transport_config(config_file("kafkapub.cfg"))
    assert config.bus_url == "kafka://iotdemo.na.sas.com:9092?enable.sparse.connections=false"
    assert (config.group, config.coordination_url) == ("", "")  # hotfailover=false
    assert (config.meta_topic, config.partition, config.date_format) == ("ESPAdapterMetapub", 0, "%Y-%m-%d %H:%M:%S")
    assert len(config.notes) == 1
    assert config.notes[0].startswith("line 15: numbufferedmsgs of sas has no effect")


def test_the_subscriber_file_of_the_sources() -> None:
    config = load_transport_config(config_file("kafkasub.cfg"))
    assert (config.meta_topic, config.group, config.notes) == ("ESPAdapterMetasub", "", ())


def test_an_adapter_group() -> None:
    text = 'kafka {hostport="a:1,b:2"}\nsas { hotfailover=true zookeeperhostport = "z:2181"\nfailovergroup="g" } # end\n'
    config = read_transport_config(text, "x.cfg")
    assert (config.bus_url, config.coordination_url, config.group) == ("kafka://a:1,b:2", "zookeeper://z:2181", "g")


def test_what_has_no_effect_is_reported_by_name_and_line() -> None:
    text = 'kafka\n{\n  hostprt = "x"\n  groupid = g\n  initialoffset = "largest"\n}\nsas {\n  dataformat = "%Y"\n}\n'
    config = read_transport_config(text, "x.cfg")
    assert config.date_format == "%Y"
    assert [note.split(" has ")[0].split(" is ")[0] for note in config.notes] == [
        "line 3: hostprt of kafka",
        "line 8: dataformat of sas",
        "line 4: groupid of kafka",
        "line 5: initialoffset of kafka",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka {", "is not closed"),
        ("kafka { hostport }", "cannot be parsed"),
        ("zoo { }", "is not a section"),
        ("{ }", "x.cfg:1: a section has no name"),
        ("}", "cannot be parsed"),
        ("sas { hotfailover = maybe }", "line 1: hotfailover of sas is 'maybe'"),
        ("kafka { partition = x }", "partition of kafka is 'x'"),
        ("kafka { partition = 1 partition = 2 }", "is set twice"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_transport_config(text, "x.cfg")


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    """A file of any size, here 1 TiB without content, is refused at once, and before its bytes are decoded."""
    file = tmp_path / "large.cfg"
    with file.open("wb") as large:
        large.write(b"\xff")
        large.truncate(1 << 40)
    with pytest.raises(UsageError, match=f"has more than {CONFIG_BYTES_MAX} bytes"):
        load_transport_config(file)
