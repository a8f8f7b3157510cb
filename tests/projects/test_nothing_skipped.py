"""Checks that each part of a project is used, named in a warning, or a mistake, and never skipped silently (SPEC A2, A17, I2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import yaml
from lxml import etree

from hotspare.base.errors import ProjectError
from hotspare.model.connectors import AS_IT_IS, CONNECTOR_PROPERTIES, FALSE_TEXTS, NO_EFFECT, REQUIRED, TOPIC_CLASS, Support
from hotspare.model.project import Project
from hotspare.projects import yaml as yaml_project
from hotspare.projects.esp_xml import SHAPES, WINDOWS
from hotspare.projects.load import load_text
from hotspare.windows.registry import WINDOW_TYPES

FULL = """\
<engine><projects>
<project name="p" heartbeat-interval="2" index="pi_RBTREE" retention-tracking="true" restore="/s" pubsub="none"
         xmlns:hs="urn:hotspare">
  <description>d</description>
  <metadata><meta id="a">b</meta><meta name="c">e</meta></metadata>
  <properties><property name="N">1</property></properties>
  <lua-modules><lua-module name="m"><description>d</description><code>one = 1</code></lua-module></lua-modules>
  <python-modules><python-module name="o"><description>d</description><code>one = 1</code></python-module></python-modules>
  <python-snippets><python-snippet name="o"><description>d</description><code>one = 1</code></python-snippet></python-snippets>
  <lua-snippets>
    <lua-snippet name="ls" init="begin"><description>d</description><code>function begin() end</code></lua-snippet>
  </lua-snippets>
  <contqueries>
    <contquery name="q" trace="a" include-singletons="true" index="pi_HASH">
      <description>d</description>
      <windows>
        <window-source name="a" index="pi_EMPTY" insert-only="true" autogen-key="true" pubsub="false" hs:publish="true"
                       hs:quality="simple"
                       hs:partition-by="x" hs:idle="3 seconds" hs:required="x" output-insert-only="true"
                       produces-only-inserts="true"
                       collapse-updates="true"
                       exp-max-string="9" pulse-interval="5 seconds">
          <description>d</description>
          <schema name="s"><fields><field name="id" type="int64" key="true"/><field name="x" type="double"/></fields></schema>
          <connectors>
            <connector class="fs" name="in" type="pub" active="true">
              <properties><property name="fsname">f</property></properties>
            </connector>
          </connectors>
        </window-source>
        <window-copy name="k" hs:publish="true" hs:beats="included" hs:resident="prefer">
          <schema copy="a" copy-keys="true"/>
          <retention type="bytime_jumping_lookback" unit="hours">2 hours</retention>
        </window-copy>
        <window-copy name="t">
          <splitter-expr>
            <expr-initialize><udfs><udf name="u" type="int32">return 1</udf></udfs></expr-initialize>
            <expression hs:dialect="esp">id</expression>
          </splitter-expr>
          <retention type="bytime_sliding" field="when">2 hours</retention>
        </window-copy>
        <window-copy name="t1"><retention type="bycount_sliding" hs:by="id" hs:evict="before">2</retention></window-copy>
        <window-source name="times" hs:reads="o/q/w"><schema-string name="s">id*:int64,when:stamp</schema-string></window-source>
        <window-filter name="f" hs:emit="new"><expression hs:dialect="esp">x &gt; 1</expression></window-filter>
        <window-functional name="g">
          <schema-string>id*:int64,x:double</schema-string>
          <function-context><functions><function name="x" hs:dialect="esp">$x</function></functions></function-context>
        </window-functional>
        <window-calculate name="s" algorithm="Summary">
          <schema-string>id*:int64,x:double,y:double</schema-string>
          <parameters><properties><property name="windowLength">5</property></properties></parameters>
          <input-map><properties><property name="input">x</property></properties></input-map>
          <output-map><properties><property name="sumOut">y</property></properties></output-map>
        </window-calculate>
        <window-compute name="c">
          <schema-string>id*:int64,x:double</schema-string>
          <expr-initialize>
            <initializer type="int64" hs:dialect="esp">integer k</initializer>
            <udfs><udf name="once" type="int32" hs:dialect="esp">return 1</udf></udfs>
          </expr-initialize>
          <output><field-expr hs:dialect="esp">x</field-expr></output>
        </window-compute>
        <window-functional name="fx">
          <schema-string>id*:int64,x:double,w:string</schema-string>
          <function-context>
            <expressions><expression name="p">[a-z]+</expression></expressions>
            <properties>
              <property-string name="t" hs:dialect="esp">string($id)</property-string>
              <property-list name="l" delimiter=";" hs:dialect="esp">string($id)</property-list>
              <property-set name="s" delimiter=";" hs:dialect="esp">string($id)</property-set>
              <property-map name="m" outer=";" inner="=" hs:dialect="esp">string($id)</property-map>
              <property-xml name="d" hs:dialect="esp">string($id)</property-xml>
              <property-json name="j" hs:dialect="esp">string($id)</property-json>
            </properties>
            <functions><function name="w" hs:dialect="esp">rgx(#p, #t)</function></functions>
          </function-context>
          <event-loops>
            <event-loop-xml name="xl" data="e">
              <use-xml hs:dialect="esp">#d</use-xml><xpath>//a</xpath>
              <function-context><functions><function name="w">$e</function></functions></function-context>
            </event-loop-xml>
            <event-loop-json name="jl" data="e">
              <use-json hs:dialect="esp">#j</use-json><json>a</json>
              <function-context><functions><function name="w">$e</function></functions></function-context>
            </event-loop-json>
            <event-loop-regex name="rl" data="e">
              <use-text hs:dialect="esp">#t</use-text><regex group="0">(a)</regex>
              <function-context><functions><function name="w">$e</function></functions></function-context>
            </event-loop-regex>
            <event-loop-regex name="rm" data="e">
              <use-text hs:dialect="esp">#t</use-text><regex regex_group="1">(a)</regex>
              <function-context><functions><function name="w">$e</function></functions></function-context>
            </event-loop-regex>
          </event-loops>
          <generate hs:dialect="esp">gt($x, 0)</generate>
          <opcode hs:dialect="esp">'insert'</opcode>
        </window-functional>
        <window-union name="u" strict="false"/>
        <window-source name="tagged"><schema-string>id*:int64,by:string,tag:string,v:double</schema-string></window-source>
        <window-transpose name="w" mode="wide" tag-name="tag" tags-included="a,b" tag-values="v" group-by="by"
                          clear-timeout="1 hour"/>
        <window-source name="places">
          <schema-string>id*:int64,x:double,y:double,r:double,d:string,e:string</schema-string>
        </window-source>
        <window-copy name="areas"/>
        <window-geofence name="z">
          <geofence coordinate-type="geographic" geofencing-algorithm="winding" polygon-compute-distance-to="segment"
                    proximity-analysis="true" output-multiple-results="true" output-sorted-results="true"/>
          <geometry x-fieldname="x" y-fieldname="y" radius-fieldname="r" radius="5" data-fieldname="d" desc-fieldname="e"
                    data-separator=","/>
          <position x-fieldname="x" y-fieldname="x" lookupdistance="2" lookupdistance-fieldname="x"/>
          <output geoid-fieldname="g" geotype-fieldname="t" geodesc-fieldname="a" geodistance-fieldname="far"
                  eventnumber-fieldname="no" include-geo-fields="r"/>
        </window-geofence>
        <window-counter name="n" count-interval="2 seconds" clear-interval="1 minute"/>
        <window-filter name="h" func="pass" require="m" init="begin" hs:language="lua" hs:transient="seen" hs:steps-max="9"
                       hs:state-bytes-max="9">
          <use exclude="true">id</use>
          <code>function pass(event) return event.x == 1 end</code>
        </window-filter>
        <window-lua name="l" events="make" require="m" init="begin" hs:transient="seen" hs:steps-max="9" hs:state-bytes-max="9">
          <schema-string>id*:int64,x:double</schema-string>
          <copy exclude="true">x</copy>
          <use exclude="true">id</use>
          <code>function make(event) return {x = event.x} end</code>
          <forwarding><destinations><destination window="lf" contquery="q2" active="true"/></destinations></forwarding>
        </window-lua>
        <window-python name="p" events="make" require="o" init="begin" hs:transient="seen" hs:steps-max="9" hs:state-bytes-max="9">
          <schema-string>id*:int64,x:double</schema-string>
          <copy exclude="true">x</copy>
          <use exclude="true" expand="true">id</use>
          <code>def make(event): return {"x": event["x"]}</code>
        </window-python>
        <window-python-columns name="pc" events="make" require="o" init="begin" hs:transient="seen" hs:steps-max="9"
          hs:state-bytes-max="9">
          <schema-string>id*:int64,x:double</schema-string>
          <copy exclude="true">x</copy>
          <use exclude="true">id</use>
          <code>def make(event): return {"x": event["x"]}</code>
        </window-python-columns>
        <window-custom name="cw" type="Sorted" version="2">
          <schema-string>id*:int64,x:double</schema-string>
          <copy exclude="true">x</copy>
          <plugin require="m" hs:language="lua" hs:transient="seen" hs:steps-max="9" hs:state-bytes-max="9">
            <input-map><properties><property name="number" required="true" esp_type="int64">id</property></properties></input-map>
            <output-map description="d"><properties><property name="value">x</property></properties></output-map>
            <initialization><properties><property name="unit" values="a,b">a</property></properties></initialization>
            <code>function create(event) return {value = event.number} end</code>
          </plugin>
        </window-custom>
        <window-remove-state name="r" remove="updates" add-log-fields="true"/>
        <window-statedb-writer name="sw">
          <statedb type="redis" hostname="h" port="1" username="u" password="p" database="2" cluster="false"/>
          <write prefix="x" ttl="2592000" ttl-offset="86400" hs:time="when">
            <secondary-indexes>
              <secondary-index name="si"><fields><field name="id"/></fields></secondary-index>
            </secondary-indexes>
            <output><field-selection name="id" db-name="w"/><field-selection name="when" db-name="t"/></output>
          </write>
        </window-statedb-writer>
        <window-statedb-writer name="sx"><statedb hs:url="rediss://h/0?password_env=E"/><write prefix="x"/></window-statedb-writer>
        <window-statedb-reader name="sr">
          <schema-string>id*:int64,n:int64</schema-string>
          <statedb type="redis" hostname="h" port="1" username="u" password="p" database="2" cluster="false"/>
          <query prefix="x" query="id==v"/>
          <output>
            <field-selection name="id" source="input"/><field-selection name="v" source="query" aggregate="ESP_aCount"/>
          </output>
        </window-statedb-reader>
        <window-statedb-reader name="ss">
          <schema-string>id*:int64,v*:int64</schema-string><statedb hostname="h"/>
          <query prefix="x" query="id==v" generate-deletes="true"/>
          <output><field-selection name="id" source="input"/><field-selection name="v" source="query"/></output>
        </window-statedb-reader>
        <window-join name="j">
          <join type="leftouter" no-regenerates="true" left-index="pi_EMPTY" right-index="pi_HASH">
            <conditions><fields left="id" right="id"/></conditions>
          </join>
          <output>
            <field-expr name="y" type="double" hs:dialect="esp">l_x + 1</field-expr>
            <field-selection name="z" source="r_x"/>
            <left-select exclude="x">*</left-select><right-select exclude="id">*</right-select>
          </output>
        </window-join>
        <window-pattern name="found" active="true">
          <schema-string>n*:int64,first:double,last:double</schema-string>
          <patterns>
            <pattern name="one" index="id" active="true" hs:after-match="skip past last">
              <events>
                <event name="e1" source="times" hs:dialect="esp">v == when</event>
                <event name="e2" source="times">v &lt; when</event>
              </events>
              <logic>fby{1 second}(e1, e2)</logic>
              <output><field-selection node="e1" name="id"/><field-expr node="e2" hs:dialect="esp">id + 1</field-expr></output>
              <timefields><timefield source="times" field="when"/></timefields>
            </pattern>
            <pattern name="two" require="m" init="begin" hs:transient="seen" hs:steps-max="9" hs:state-bytes-max="9">
              <lua-events><event name="e1" source="times" func="first"/></lua-events>
              <logic>seen:2(e1)</logic>
              <code output="made">function first(event) return true end</code>
              <timefields><timefield source="times" field="when"/></timefields>
            </pattern>
          </patterns>
        </window-pattern>
        <window-aggregate name="m">
          <schema-string>id*:int64,x:double</schema-string>
          <output><field-expr hs:dialect="esp">ESP_aSum(x)</field-expr></output>
        </window-aggregate>
      </windows>
      <edges>
        <edge source="a" target="k f g c r n l h p pc cw fx m" role="data"/><edge source="a" target="s" role="data"/>
        <edge source="times" target="t found sw sx sr ss"/><edge source="tagged" target="w"/><edge source="t" target="t1" slot="1"/>
        <edge source="places" target="areas"/><edge source="a" target="z" role="position"/>
        <edge source="areas" target="z" role="geometry"/>
        <edge source="f g" target="u"/><edge source="f" target="j" role="left"/><edge source="g" target="j" role="right"/>
      </edges>
    </contquery>
    <contquery name="q2"><windows>
      <window-source name="lf"><schema-string>id*:int64,x:double</schema-string></window-source>
    </windows></contquery>
  </contqueries>
  <project-connectors>
    <connector-groups>
      <connector-group name="g"><connector-entry connector="q/a/in" state="finished"/></connector-group>
      <connector-group name="h"/>
    </connector-groups>
    <edges><edge source="g" target="h"/></edges>
  </project-connectors>
</project>
</projects></engine>
"""


def without_places(value: object) -> object:
    """Returns the project as plain data without places in the text, which have no meaning."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.name not in ("place", "places", "schema_place")]
        return type(value).__name__, [(name, without_places(getattr(value, name))) for name in fields]
    return [without_places(each) for each in value] if isinstance(value, tuple | list) else value


def told(text: str) -> tuple[object, frozenset[str]]:
    """Returns the meaning of a text, or its mistakes; and its warnings."""
    try:
        loaded = load_text(text)
    except ProjectError as error:
        return [mistake.message for mistake in error.mistakes], frozenset()
    return without_places(loaded.project), frozenset(w.message for w in loaded.warnings)


def changed(path: str, change: Any) -> str:
    root = etree.fromstring(FULL)
    (element,) = root.getroottree().xpath(path)
    change(element)
    return etree.tostring(root, encoding="unicode")


def everywhere() -> Iterator[tuple[str, Any]]:
    root = etree.fromstring(FULL)
    for element in root.iter():
        yield root.getroottree().getpath(element), element


@cache
def before() -> tuple[object, frozenset[str]]:
    """Returns the meaning of the text, in XML as in YAML, computed once per process."""
    return told(FULL)


KNOWN = [pair for shapes in (SHAPES.common, *SHAPES.windows.values()) for pair in shapes.items() if pair[0] not in WINDOWS]
ELEMENTS = [(name.rpartition("/")[2], shape) for name, shape in KNOWN]
FILES = {("plugin", "code")}
"""The attributes that name a file next to the project, instead of code in this text."""
LABELS = {(tag, name) for tag, shape in (*ELEMENTS, *WINDOWS.items()) for name in shape.labels}


def test_the_text_has_every_attribute_that_is_read() -> None:
    """Otherwise the test below would miss an attribute that no code reads."""
    assert isinstance(load_text(FULL).project, Project)
    found = {(element.tag, name) for _, element in everywhere() for name in element.attrib}
    windows = {("window", name) for tag, name in found if tag in WINDOWS}
    for tag, shape in ELEMENTS:
        assert {(tag, name) for name in shape.read} <= found | FILES, tag
    assert {("window", name) for shape in WINDOWS.values() for name in shape.read} <= windows


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, e in everywhere() for name in e.attrib if (e.tag, name) not in LABELS]
)
def test_every_attribute_that_is_read_matters(path: str, name: str) -> None:
    assert told(changed(path, lambda element: element.set(name, "other"))) != before()


@pytest.mark.parametrize("path", [path for path, element in everywhere() if element.tag not in ("description", "fields")])
def test_an_unknown_attribute_or_child_is_spoken_of_wherever_it_stands(path: str) -> None:
    assert told(changed(path, lambda element: element.set("unheard-of", "1"))) != before()
    assert told(changed(path, lambda element: element.append(etree.Element("unheard-of")))) != before()


@pytest.mark.parametrize("path", [path for path, element in everywhere() if not (element.text or "").strip()])
def test_text_where_none_is_read_is_spoken_of(path: str) -> None:
    def write(element: Any) -> None:
        element.text = "stray" + (element.text or "")

    assert told(changed(path, write)) != before()


@pytest.mark.parametrize(
    ("kind", "direction", "name"),
    [
        (kind, direction, name)
        for kind, directions in CONNECTOR_PROPERTIES.items()
        for direction, table in directions.items()
        for name, support in table.items()
        if support is Support.NO_EFFECT
    ],
)
def test_a_property_without_effect_is_named_unless_it_asks_for_what_is_so(kind: str, direction: Any, name: str) -> None:
    required = "".join(f"{each}: given, " for each in REQUIRED.get(kind, ()))
    if kind == TOPIC_CLASS:
        kind, required = "kafka", "".join(f"{each}: given, " for each in ("kafkahostport", "kafkatopic"))
    text = f"""
project: p
queries:
  q:
    singletons: included
    windows:
      w:
        type: source
        opcodes: any
        schema: id*:int64
        connectors:
          c: {{kind: {kind}, direction: {direction.name.lower()}, properties: {{{required}{name}: "%s"}}}}
"""
    judged = {"useoffsetmsgid": ("false",), "snapshot": ("true",), "numbufferedmsgs": ("5",), "zookeeperhostport": ("h:1",)}
    for value in judged.get(name, ("some text",)) if kind == "kafka" else ("some text",):
        assert any(name in warning.message for warning in load_text(text % value).warnings), value
    assert name in NO_EFFECT or name in judged
    for value in AS_IT_IS.get(name, FALSE_TEXTS) if name not in judged or kind == "fs" else ():
        assert not load_text(text % value).warnings, value


def mappings(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields paths of all mappings of a YAML tree."""
    if isinstance(node, dict):
        yield path
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from mappings(child, (*path, key))


TREE = yaml.load(yaml_project.dump(load_text(FULL).project), yaml.BaseLoader)
"""The text as YAML, read as a tree; tests copy it before they change it."""


@pytest.mark.parametrize("path", list(mappings(TREE)))
def test_an_unknown_key_of_a_yaml_project_is_spoken_of_wherever_it_stands(path: tuple[Any, ...]) -> None:
    """A mistake, or, if users choose the names, another meaning."""
    node = tree = deepcopy(TREE)
    for key in path:
        node = node[key]
    node["unheard"] = "1"
    assert told(yaml.dump(tree, sort_keys=False)) != before()


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields paths of all values of a YAML tree that are neither mappings nor lists."""
    if not isinstance(node, dict | list):
        yield path
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from leaves(child, (*path, key))


def yaml_with(path: tuple[Any, ...], change: Any) -> str:
    node = tree = deepcopy(TREE)
    for key in path[:-1]:
        node = node[key]
    change(node, path[-1])
    return yaml.dump(tree, sort_keys=False)


@pytest.mark.parametrize("path", list(leaves(TREE)))
def test_every_value_of_a_yaml_project_matters(path: tuple[Any, ...]) -> None:
    def change(node: Any, key: Any) -> None:
        node[key] = "other"

    assert told(yaml_with(path, change)) != before()


def held(path: tuple[Any, ...]) -> Any:
    """Returns the value at a path."""
    node = TREE
    for key in path:
        node = node[key]
    return node


@pytest.mark.parametrize("path", [path for path in mappings(TREE) if path and held(path)])
def test_every_mapping_of_a_yaml_project_matters(path: tuple[Any, ...]) -> None:
    def remove(node: Any, key: Any) -> None:
        del node[key]

    assert told(yaml_with(path, remove)) != before()


UNSAID = {"copy", "use", "code-file", "initialize", "arguments"}
"""The keys that the project above replaces by others, or that have their usual values."""
OTHERWISE = {"filter": {"use", "language"}, "source": {"retention"}, "pattern": {"active"}}
OTHERWISE |= {key: {"forward"} for key in ("python", "python-columns")}
"""The same of single types."""


def test_the_yaml_text_has_every_key_that_window_types_read() -> None:
    """Otherwise the tests above would miss a key that no code reads. The unchanged tree has the meaning of the XML text."""
    assert told(yaml.dump(TREE, sort_keys=False)) == before()
    windows = [w for q in TREE["queries"].values() for w in q["windows"].values()]
    for name, window_type in WINDOW_TYPES.items():
        said = {key for window in windows if window["type"] == name for key in window}
        assert set(window_type.yaml_keys) - said - UNSAID <= OTHERWISE.get(name, set()), name


DESCRIBED = {"contquery", "lua-module", "python-module", "python-snippet", "lua-snippet"}
"""The elements whose description is not kept."""


@pytest.mark.parametrize(
    "path",
    [
        path
        for path, element in everywhere()
        if element.getparent() is not None and not (element.tag == "description" and element.getparent().tag in DESCRIBED)
    ],
)
def test_every_element_matters(path: str) -> None:
    assert told(changed(path, lambda element: element.getparent().remove(element))) != before()


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("splitter_initialize: {code: integer n}", "splitter_initialize of window a needs a splitter"),
        ("retention: {bycount_sliding: 3, unit: hours}", "unit"),
    ],
)
def test_what_would_mean_nothing_is_a_mistake(window: str, message: str) -> None:
    text = f'project: p\nqueries: {{q: {{singletons: included, windows: {{a: {{type: source, schema: "id*:int64", {window}}}}}}}}}'
    with pytest.raises(ProjectError) as raised:
        load_text(text)
    assert any(message in mistake.message for mistake in raised.value.mistakes), raised.value.mistakes


def test_a_connector_has_one_type() -> None:
    name = '<property name="fsname">f</property>'
    text = FULL.replace(name, f'{name}<property name="type">sub</property>')
    with pytest.raises(ProjectError) as raised:
        load_text(text)
    assert any("the attribute type='pub'" in mistake.message for mistake in raised.value.mistakes)
    assert load_text(text.replace(">sub<", ">publish<")).project == load_text(FULL).project


def test_a_source_window_that_takes_no_part_is_spoken_of() -> None:
    """SPEC A41."""
    text = """
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64"}
      b: {type: copy}
      alone: {type: source, opcodes: any, schema: "id*:int64"}
    edges: [a -> b]
"""
    (warning,) = load_text(text).warnings
    assert "source window alone takes no part in query q" in warning.message
    assert not load_text(text.replace("  q:\n", "  q:\n    singletons: included\n")).warnings
