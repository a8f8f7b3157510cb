"""Publishers in user code: their events are published once, whichever engine continues (SPEC I11)."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.adapters.esp.generated_options import code_source_factory
from hotspare.adapters.generated.publisher import publish_generated
from hotspare.adapters.generated.steps import GeneratedPosition, StepOutcome
from hotspare.base.errors import ProjectError, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.ha.rules.roles import Role
from hotspare.host.project import checked_project
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.load import load_text
from hotspare.testing.cluster import wait_until
from tests.adapters.test_generated import FragileBus, Killed
from tests.examples import examples

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("name", FieldType.STRING), Field("x", FieldType.DOUBLE)))
TOPIC = Partition("t")
COUNTER = """
local id, sum = 0, {}
function publish()
  for i = 1, id % 3 do
    local event = {}
    id = id + 1
    event.id = id
    event.name = "n" .. id
    event.x = math.random(1, 1000) / 8
    sum[#sum + 1] = id
    esp_inject(event)
    event.id = -1 -- what was given stays as it was
  end
  if id % 3 == 0 then id = id + 1 end
  return id > 40
end
"""


PYTHON_COUNTER = """
import random
import esp

last = 0
seen = []

def publish():
    global last
    events = []
    for _ in range(last % 3):
        last += 1
        events.append({"id": last, "name": f"n{last}", "x": random.randint(1, 1000) / 8})
        seen.append(last)
    if last % 3 == 0:
        last += 1
    return {"events": events, "done": last > 40}
"""
COUNTERS = {"lua": COUNTER, "python": PYTHON_COUNTER}


def connector(code: str, kind: str = "lua", **properties: str) -> Connector:
    given_properties = {"code": code, "interval": "1 microsecond", **properties}
    return Connector("c", kind, ConnectorDirection.PUBLISH, tuple(sorted(given_properties.items())))


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC.topic)
    return bus


def rows(bus: MemoryBusClient, partition: Partition = TOPIC) -> list[str]:
    messages = bus.read(partition, 0, messages_max=10_000, bytes_max=1 << 26)
    return [row for message in messages for row in message.value.decode().split("\n")]


def made(code: str, home: Path = Path(), kind: str = "lua", **properties: str) -> list[str]:
    source = code_source_factory(connector(code, kind, **properties), SCHEMA, home)()
    source.resume(GeneratedPosition(began_us=1_000_000))
    found, course = [], StepOutcome.GOES_ON
    while course is StepOutcome.GOES_ON:
        step = source.next_step()
        found += [row.decode(errors="surrogatepass") for row in step.rows]
        course = step.step_outcome
    return found


EXPECTED = {kind: made(code, kind=kind) for kind, code in COUNTERS.items()}


def test_what_code_gives_are_events() -> None:
    for expected in EXPECTED.values():
        assert [row.split(",")[:4] for row in expected[:2]] == [["i", "n", "2", '"n2"'], ["i", "n", "3", '"n3"']]
    assert made("function publish() esp_inject({{id=1}, {id=2, _opcode='upsert'}}, {opcode='delete'}) return true end") == [
        "d,n,1,,",
        "p,n,2,,",
    ]
    assert made("function publish() esp_inject({}) esp_inject(nil) return true end") == []
    assert made("function publish() esp_injectCsv('\\n 1,a,2\\n  2,\"b\\n,\",3\\n', {opcode='i'}) return true end") == [
        "i,n, 1,a,2",
        'i,n,  2,"b\n,",3',
    ]
    half = "def publish():\n return {'events': {'id': 1, 'name': '\\ud800'}, 'done': True}"
    assert made(half, kind="python") == ['i,n,1,"\ud800",'], "it is not UTF-8, so a bad event"
    schema = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("a", FieldType.DOUBLE_ARRAY)))
    arrays = code_source_factory(
        connector("function publish() esp_inject({id = 1, a = {1.5, 2}}) return true end"), schema, Path()
    )()
    assert arrays.next_step().rows == [b"i,n,1,[1.5;2]"]
    commented = "-- esp_getGuids()\n--[[ esp_a()\nesp_b() ]] function publish() esp_inject({id = 1}) return true end"
    assert made(commented) == ["i,n,1,,"]
    text = "function go() esp_inject({id = count}) count = count + 1 end function begin() count = 5 end"
    assert made(text, publish="go", init="begin", maxevents="3") == ["i,n,5,,", "i,n,6,,", "i,n,7,,"]


@pytest.mark.parametrize("kind", COUNTERS)
@examples(0.4)
@given(kills=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6))
def test_each_call_is_published_once_through_any_number_of_kills(kind: str, kills: list[tuple[int, bool]]) -> None:
    """Variables and random numbers continue; the code is not called again for published events."""
    bus, make = new_bus(), code_source_factory(connector(COUNTERS[kind], kind), SCHEMA, Path())
    clock = iter(range(10**9, 10**12, 3))
    for at, after in kills:
        with contextlib.suppress(Killed):
            fragile = FragileBus(bus, at, after)
            publish_generated(fragile, TOPIC, "s", make, threading.Event(), clock_us=lambda: next(clock))  # type: ignore[arg-type]
    publish_generated(bus, TOPIC, "s", make, threading.Event())
    assert rows(bus) == EXPECTED[kind]


def test_python_gives_one_event_or_a_list_and_says_whether_it_is_done() -> None:
    one = "count = 1\ndef go():\n    global count\n    count += 1\n    return {'events': {'id': count, 'x': None}}\n"
    assert made(one, kind="python", publish="go", maxevents="2") == ["i,n,2,,", "i,n,3,,"]
    many = "def publish():\n    return {'events': [{'id': 1}, {'id': 1, '_opcode': 'delete'}], 'done': True}\n"
    assert made(many, kind="python") == ["i,n,1,,", "d,n,1,,"]
    assert made("def publish():\n    return {'done': True}\n", kind="python") == []


@pytest.mark.parametrize(
    ("returned", "words"),
    [("[1]", "not its events"), ("{'events': 7}", "invalid events"), ("{'events': [1]}", "invalid events")],
)
def test_python_that_returns_something_else_is_told_so(returned: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(f"def publish():\n    return {returned}\n", kind="python")


READER = """
local f = io.open("@HOME@/people.csv", "r")
local header = f:read("*l")
function publish()
  local line = f:read("*l")
  if not line then f:close() return true end
  local id, name = string.match(line, "([^,]+),([^,]+)")
  esp_inject({id = tonumber(id), name = name})
end
"""


def test_files_of_the_project_are_read_on_where_one_stopped(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text('id,name\n1,é\n2,"q"\n3,\\\n')
    code = READER.replace("@HOME@", str(tmp_path))
    expected = ['i,n,1,"é",', 'i,n,2,"""q""",', 'i,n,3,"\\\\",']
    assert made(code, tmp_path) == expected
    first = code_source_factory(connector(code), SCHEMA, tmp_path)()
    first.resume(GeneratedPosition())
    assert first.next_step().rows == [expected[0].encode()]
    second = code_source_factory(connector(code), SCHEMA, tmp_path)()
    second.resume(GeneratedPosition(1, 1, 0, generator_state=first.save_state()))
    assert second.next_step().rows == [expected[1].encode()]
    (tmp_path / "people.csv").write_text("id,name\n7,other\n")
    third = code_source_factory(connector(code), SCHEMA, tmp_path)()
    with pytest.raises(UsageError, match="have changed"):
        third.resume(GeneratedPosition(1, 1, 0, generator_state=first.save_state()))


PYTHON_READER = """
import esp
import os

rest = []

def init():
    global rest
    with open(f"{os.environ['ESP_PROJECT_HOME']}/files/é.csv", "r") as file:
        rest = file.readlines()

def publish():
    id_, name = rest.pop(0).strip().split(",")
    return {"events": {"id": id_, "name": name}, "done": not rest}
"""


PYTHON_PATH = "f\"{os.environ['ESP_PROJECT_HOME']}/files/é.csv\""


def folder_with_people(folder: Path) -> Path:
    (folder / "files").mkdir()
    (folder / "files" / "é.csv").write_text("1,ä\n2,b")
    return folder


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("file.readlines()", "[line for line in file]"),
        ("file.readlines()", "file.read().split()"),
        ("file.readlines()", "[file.readline(), file.readline()]"),
        (PYTHON_PATH, "os.path.join('.', 'files/é.csv')"),
    ],
)
def test_files_are_read_by_python_too(old: str, new: str, tmp_path: Path) -> None:
    code = PYTHON_READER.replace(old, new)
    assert made(code, folder_with_people(tmp_path), "python", init="init") == ['i,n,"1","ä",', 'i,n,"2","b",']


@pytest.mark.parametrize(("old", "new"), [('"r"', '"w"'), (PYTHON_PATH, '"/etc/passwd"'), (PYTHON_PATH, '"files/other.csv"')])
def test_python_writes_no_files_and_reads_none_of_others(old: str, new: str, tmp_path: Path) -> None:
    assert old in PYTHON_READER
    with pytest.raises(ProjectError):
        made(PYTHON_READER.replace(old, new), folder_with_people(tmp_path), "python", init="init")


@pytest.mark.parametrize(
    "code",
    [
        'function publish() esp_inject({name = tostring(io.open("/etc/passwd", "r"))}) return true end',
        'function publish() esp_inject({name = tostring(io.open("../x", "r"))}) return true end',
    ],
)
def test_files_elsewhere_are_not_there(code: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("secret")
    assert made(code, tmp_path / "home") == ['i,n,,"nil",']


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("function publish() return 1 + nil end", "call 1 of a publisher's code failed"),
        ("function publish() while true do end end", "steps"),
        ("local f = {} function publish() f[1] = coroutine.create(publish) end", "cannot be kept"),
        ('function publish() io.open("x", "w") end', "writes no files"),
    ],
)
def test_code_that_fails_ends_its_connector_and_says_why(code: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        publish_generated(new_bus(), TOPIC, "s", code_source_factory(connector(code), SCHEMA, Path()), threading.Event())


PROJECT = """
project: p
queries:
  q:
    singletons: included
    windows:
      made:
        type: source
        opcodes: any
        schema: id*:int64,name:string,x:double
        connectors:
          own:
            kind: lua
            direction: pub
            properties:
              interval: 1 millisecond
              code: |
                local id = 0
                function publish()
                  id = id + 1
                  esp_inject({id = id})
                  return id == 4
                end
"""


def test_code_of_a_project_goes_on_elsewhere(tmp_path: Path) -> None:
    """SPEC I11."""
    bus = MemoryBus().client("engine")
    bus.create_topic("x.p.q.made.I")
    for _ in range(2):
        engine = ConnectorSet(load_text(PROJECT, connectors=connector_mistakes).resolved, bus, "x", tmp_path)
        engine.follow_role(Role.ACTIVE)
        wait_until(lambda engine=engine: engine.states()["q/made/own"] is ConnectorState.FINISHED, "all is made")  # type: ignore[misc]
        engine.stop()
        assert rows(bus, Partition("x.p.q.made.I")) == [f"i,n,{i},," for i in range(1, 5)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("function publish()", "function other()", "publish"),
        ("id = id + 1", "id = = 1", "cannot be loaded"),
        ("id = id + 1", "id = esp_sendHttp({url = 1})", "calls esp_sendHttp: not defined"),
        ("interval: 1 millisecond", "interval: soon", "interval"),
        ("interval: 1 millisecond", "publish: a b", "publish"),
        ("direction: pub", "direction: sub", "only publish"),
        ("              interval: 1 millisecond\n", "              codefile: x.lua\n", "codefile"),
    ],
)
def test_mistakes_of_code_are_told_when_the_project_is_loaded(old: str, new: str, words: str) -> None:
    assert PROJECT.count(old) == 1
    with pytest.raises(ProjectError) as error:
        load_text(PROJECT.replace(old, new), connectors=connector_mistakes)
    (mistake,) = error.value.mistakes
    assert words in mistake.message


def test_code_that_reads_at_load_what_lies_beside_the_project(tmp_path: Path) -> None:
    code = 'local f = io.open("people.csv", "r") f:read("*l") function publish() return true end'
    file = tmp_path / "project.yaml"
    file.write_text(re.sub(r"code: \|.*", "code: " + json.dumps(code), PROJECT, flags=re.DOTALL))
    checked_project(file, {})  # the file is missing: that is reported when the connector starts
    (tmp_path / "people.csv").write_text("id\n1\n")
    checked_project(file, {})
    with pytest.raises(ProjectError, match=r"cannot be loaded"):
        made(code, tmp_path / "elsewhere")
