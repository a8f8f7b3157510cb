"""Option texts of other systems' adapters are parsed unchanged (SPEC I7, Z27)."""

from __future__ import annotations

import pytest

from hotspare.adapters.esp.adapter_line import read_adapter_line
from hotspare.base.errors import UsageError
from hotspare.model.project import ConnectorDirection

URL = "dfESP://iotdemo.example.com:61001/kafka1/cq1"


def test_a_publisher_as_in_the_sources() -> None:
    """SPEC B2, I7."""
    line = read_adapter_line(
        f'type=pub,url="{URL}/kafka_incoming",fsname=/tmp/dstat_in.csv,fstype=csv,dateformat=%Y-%m-%d %H:%M:%S,header=2,'
        "growinginputfile=true,loglevel=trace,transport=kafka,transportconfigfile=/home/sas/kafka/kafkapub.cfg"
    )
    assert line.connector.direction is ConnectorDirection.PUBLISH
    assert (line.url, line.file) == (f"{URL}/kafka_incoming", "/tmp/dstat_in.csv")
    assert line.transport_config == "/home/sas/kafka/kafkapub.cfg"
    assert dict(line.connector.properties) == {
        "fsname": "/tmp/dstat_in.csv",
        "fstype": "csv",
        "dateformat": "%Y-%m-%d %H:%M:%S",
        "header": "2",
        "growinginputfile": "true",
    }
    assert line.notes == ()


def test_what_the_url_asks_for_counts() -> None:
    line = read_adapter_line(f"type=sub,url={URL}/out?snapshot=true&collapse=true,fsname='a,b.csv'")
    assert line.connector.direction is ConnectorDirection.SUBSCRIBE
    assert (line.url, line.file) == (f"{URL}/out", "a,b.csv")
    assert (line.connector.get("snapshot"), line.connector.get("collapse")) == ("true", "true")


@pytest.mark.parametrize(
    ("fsname", "file"),
    [
        (":7000", "tcp://:7000"),
        ("far.example.com:7000", "tcp-connect://far.example.com:7000"),
        ("a:b.csv", "a:b.csv"),
    ],
)
def test_a_socket_in_place_of_a_file(fsname: str, file: str) -> None:
    assert read_adapter_line(f"type=pub,url={URL}/w,fsname={fsname}").file == file


def test_commas_and_spaces() -> None:
    line = read_adapter_line(f" type = sub , url={URL}/w,dateformat=%d.%m.,%Y, fsname=out.csv,")
    assert (line.connector.get("dateformat"), line.file) == ("%d.%m.,%Y", "out.csv")


def test_what_has_no_effect_is_said_by_name() -> None:
    line = read_adapter_line(f"type=pub,url={URL}/w,fsname=a.csv,heder=2,dataformat=%Y")
    assert line.connector.get("dateformat") == "%Y"
    assert any("'heder'" in note and "header" in note for note in line.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "type"),
        ("type=both", "type 'both'"),
        ("type=pub,fsname=a.csv", "has no url"),
        (f"type=pub,url={URL}/w", "has no fsname"),
        ("type=pub,url=project/query/window,fsname=a.csv", "url 'project/query/window'"),
        (f"type=pub,url={URL}/w,fsname=a.csv,fsname=b.csv", "fsname twice"),
        (f"type=pub,url={URL}/w,fsname=a.csv,transport=solace", "transport 'solace'"),
        (f"type=pub,url={URL}/w,fsname=a.log,fstype=syslog", "fstype 'syslog'"),
        (f"type=pub,url={URL}/w,fsname=a.log,fstype=hdat", "its layout is not published"),
        ("type=pub,nonsense", "type 'pub,nonsense'"),
        ("hello", "cannot be parsed from 'hello' on"),
    ],
)
def test_what_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_adapter_line(text)
    assert said in str(error.value)
