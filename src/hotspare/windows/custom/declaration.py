"""Custom window: reusable code in Lua or Python, with its own names for fields, and settings (SPEC A36).

The code defines `create`, which makes events from an event as in a Lua or Python window. `init`, if defined, receives the settings
once, before any event; `heartbeat`, if defined, makes events at each heartbeat. The project maps fields to its inputs and outputs.
In ESP XML it is `<window-custom>` with a `<plugin>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hotspare.model import scripts
from hotspare.model.code import ALL_FIELDS, LANGUAGES, Arguments, Code, Language, Script
from hotspare.model.code_files import code_from_file
from hotspare.model.code_windows import CodeType, CodeWindow
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, properties
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import FIELD_NAME, nearest_names_hint, repeated
from hotspare.model.project import Window
from hotspare.model.types import Schema
from hotspare.model.window_type import WindowInput

CREATE, INIT, HEARTBEAT = "create", "init", "heartbeat"
"""Names of the functions of the code; only `create` is mandatory."""
_SUFFIXES = {".lua": Language.LUA, ".py": Language.PYTHON}
_KEYS = ("code", "code-file", "modules", "transient", "steps-max", "state-bytes-max")
_MAPS = {"input-map": "inputs", "output-map": "outputs", "initialization": "settings"}
"""Elements of a plugin in ESP XML, with their names in YAML."""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomWindow(CodeWindow):
    """A custom window as declared. `inputs`: names in the code, each with the input field that it maps to; if empty, the code sees
    all fields by their own names. `outputs`: names in the events that the code makes, each with its field. `settings`: the argument
    of `init`.
    """

    inputs: Pairs = ()
    outputs: Pairs = ()
    settings: Pairs = ()


class CustomType(CodeType[CustomWindow]):
    name = "custom"
    declared = CustomWindow
    yaml_keys = ("language", "inputs", "outputs", "settings", "copy", "copy-except", *_KEYS)
    xml = replace(window_shape("", "plugin copy"), labels=frozenset({"type", "version"}))
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "plugin": shape(
            f"code require {scripts.LANGUAGE} {scripts.TRANSIENT} {scripts.STEPS} {scripts.STATE_BYTES}",
            "input-map output-map initialization code",
        ),
        **{name: shape(children="properties", labels="description") for name in _MAPS},
        "properties/property": shape("name", labels="description required esp_type values"),
        "copy": shape("exclude"),
        **scripts.XML_ELEMENTS,
    }
    xml_texts = frozenset({"code", "copy"})
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  late:
    type: custom
    index: empty
    schema: "id*:string,x:double,word:string"
    language: lua
    inputs: {name: id, value: x}
    outputs: {name: id, text: word}
    settings: {greatest: "2", word: late}
    copy-except: [id]
    transient: [asked]
    steps-max: 10000
    state-bytes-max: 65536
    code: |
      local settings, waiting = {}, {}
      function init(given) settings = given end
      function create(data, context)
        asked = context.opcode
        waiting[#waiting + 1] = {name = data.name, x = data.value, text = settings.word}
        if #waiting > tonumber(settings.greatest) then return table.remove(waiting, 1) end
      end
      function heartbeat(context)
        local made = waiting
        waiting = {}
        if #made > 0 then return made end
      end
  named:
    type: custom
    index: empty
    schema: "id*:string,sum:double"
    language: python
    inputs: {x: x, id: id}
    outputs: {total: sum}
    code: |
      sums = {}

      def create(x, id):
          sums[id] = sums.get(id, 0.0) + (0.0 if x is None else x)
          return {"total": sums[id]}

      _espconfig_ = {"settings": {"expand_parms": True}, "inputVariables": {"fields": [{"name": "x", "optional": False}]}}
edges: [given -> late, given -> named]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> CustomWindow:
        usual = _language_of(values.text(node, "code-file").strip()) or Language.LUA
        script = scripts.script_from_yaml(values, node, values.option(node, "language", LANGUAGES, "language:", usual), CREATE)
        maps: dict[str, Any] = {name: values.pairs(node, name) for name in _MAPS.values()}
        return CustomWindow(**common, script=script, copy=scripts.fields_from_yaml(values, node, "copy"), **maps)

    def write_yaml(self, window: CustomWindow, writer: YamlWriter) -> Written:
        written: Written = {"language": window.script.language.value}
        written |= {name: dict(pairs) for name in _MAPS.values() if (pairs := getattr(window, name))}
        return written | scripts.fields_to_yaml(window.copy, "copy") | scripts.script_to_yaml(window.script)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> CustomWindow:
        plugin = values.tree.only_child(element, "plugin")
        if plugin is None:
            values.missing(element, "<plugin>")
            return CustomWindow(**common, script=Script(Language.LUA, Code("", common["place"]), CREATE))
        maps: dict[str, Any] = {name: _pairs(values, plugin, tag) for tag, name in _MAPS.items()}
        copied = scripts.fields_from_xml(values, element, "copy")
        return CustomWindow(**common, script=_script_from_xml(values, plugin), copy=copied, **maps)

    def write_xml(self, window: CustomWindow) -> XmlElement:
        script = scripts.script_to_xml(window.script)
        attributes = {scripts.LANGUAGE: window.script.language.value, **script.attributes}
        maps = [XmlElement(tag, children=(properties(pairs),)) for tag, name in _MAPS.items() if (pairs := getattr(window, name))]
        plugin = XmlElement("plugin", attributes=attributes, children=(*maps, *script.children))
        return XmlElement("", children=(*scripts.fields_to_xml(window.copy, "copy"), plugin))

    def check(self, window: CustomWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        super().check(window, given, found)
        if window.script.use != ALL_FIELDS or window.script.arguments is not Arguments.EVENT:
            found.add(window.place, f"window {window.name} chooses fields in addition to its inputs", "name them under inputs only")
        _check_map(window, "inputs", window.inputs, given[0].schema, found)
        _check_map(window, "outputs", window.outputs, window.schema, found)
        for field in repeated(field for _, field in window.outputs):
            found.add(window.place, f"window {window.name} makes the field {field} of two outputs", "leave one of them out")

    def meaning(self, window: CustomWindow, schema: Schema) -> dict[str, str]:
        maps = {f"{name} {key}": value for name in _MAPS.values() for key, value in getattr(window, name)}
        return super().meaning(window, schema) | maps


def _script_from_xml(values: EspValues, plugin: Any) -> Script:
    """Reads code from the XML text of the plugin, or from the file that it names, whose suffix decides the language. Reports if the
    plugin has neither or both.
    """
    file, codes = values.attribute(plugin, "code"), values.tree.children(plugin, "code")
    if bool(file) is bool(codes):
        values.missing(plugin, "code" if not file else "single code: a file, or a text")
    if codes or not file:
        return scripts.script_from_xml(values, plugin, scripts.language_from_xml(values, plugin), CREATE)
    place = values.tree.place(plugin)
    language = _language_of(file)
    if language is None:
        values.found.add(place, f"code of a custom window is {file!r}, which is neither Lua nor Python", "name a file .lua or .py")
    code = code_from_file(file, place, values.tree.substitution.home, values.found)
    return scripts.script_with_code(values, plugin, language or Language.LUA, CREATE, code)


def _pairs(values: EspValues, plugin: Any, tag: str) -> Pairs:
    """Returns the properties below `tag` as (name, text), sorted. Empty texts are omitted, except those of settings."""
    pairs = [
        (values.attribute(each, "name"), values.tree.text(each).strip())
        for each in values.elements_at(plugin, f"{tag}/properties/property")
    ]
    return tuple(sorted((name, text) for name, text in pairs if text or tag == "initialization"))


def _language_of(file: str) -> Language | None:
    return next((language for suffix, language in _SUFFIXES.items() if file.endswith(suffix)), None)


def _check_map(window: Window, what: str, pairs: Pairs, schema: Schema | None, found: Mistakes) -> None:
    for name in repeated(name for name, _ in pairs):
        found.add(window.place, f"window {window.name} has {name} twice under {what}", "leave one of them out")
    for name, field in pairs:
        if not FIELD_NAME.fullmatch(name):
            found.add(window.place, f"window {window.name} has the name {name!r} under {what}", "use a name of the code")
        if schema is not None and field not in schema.index:
            message = f"window {window.name} maps {name} to the unknown field {field!r} under {what}"
            found.add(window.place, message, nearest_names_hint(field, schema.names))
