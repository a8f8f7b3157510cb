"""Reads and writes user code in both texts of a project: the part that all windows with code share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotspare.base.errors import Place
from hotspare.model.code import LANGUAGES, Arguments, Choice, Code, CodeLimits, FieldChoice, Language, Module, ModuleUse, Script
from hotspare.model.code_files import code_from_file
from hotspare.model.frontends.esp_xml.elements import EXTENSION, ElementShape, shape
from hotspare.model.frontends.esp_xml.tree import Tree
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written
from hotspare.model.mistakes import Mistakes

TRANSIENT = f"{{{EXTENSION}}}transient"
STEPS = f"{{{EXTENSION}}}steps-max"
STATE_BYTES = f"{{{EXTENSION}}}state-bytes-max"

LANGUAGE = f"{{{EXTENSION}}}language"

YAML_KEYS = ("code", "code-file", "modules", "use", "use-except", "arguments", "init", "transient", "steps-max", "state-bytes-max")
XML_ATTRIBUTES = f"require init {TRANSIENT} {STEPS} {STATE_BYTES}"
XML_IDLE: Mapping[str, str] = {"destroy": "an engine keeps no resource open that needs closing"}
XML_CHILDREN = "use code code-file"
XML_ELEMENTS: Mapping[str, ElementShape] = {"use": shape("exclude expand"), "code": shape(), "code-file": shape()}
XML_TEXTS = frozenset({"use", "code", "code-file"})

_LIMITS = {"steps_max": "steps-max", "state_bytes_max": "state-bytes-max"}
_XML_LIMITS = {"steps_max": STEPS, "state_bytes_max": STATE_BYTES}
_ARGUMENTS = {each.value: each for each in Arguments}
_SEPARATOR = re.compile(r"[\s,]+")
_WHOLE = re.compile(r"[0-9]{1,18}")
_PYTHON_FUNCTION = re.compile(r"^[ \t]*def[ \t]+\w+[ \t]*\(", re.MULTILINE)


def script_from_yaml(values: YamlValues, node: MappingNode, language: Language, function: str) -> Script:
    if ("code" in node.values) is ("code-file" in node.values):
        message = "a window has neither code nor code-file" if "code" not in node.values else "a window has both code and code-file"
        values.found.add(node.place, message, "add code: |, and the text indented below it, or name a file in code-file")
    limits = {name: values.text(node, key) for name, key in _LIMITS.items() if key in node.values}
    return Script(
        language,
        _code_from_yaml(values, node),
        function,
        use=fields_from_yaml(values, node, "use"),
        modules=_names(text.value for text in values.text_list(node.values.get("modules"), "modules")),
        init=values.text(node, "init").strip(),
        transient=_names(text.value for text in values.text_list(node.values.get("transient"), "transient")),
        limits=_limits(limits, node.place, values.found),
        arguments=values.option(node, "arguments", _ARGUMENTS, "arguments:", Arguments.EVENT),
    )


def _code_from_yaml(values: YamlValues, node: MappingNode) -> Code:
    if "code-file" in node.values:
        place = node.values["code-file"].place
        return code_from_file(values.text(node, "code-file").strip(), place, values.substitution.home, values.found)
    return Code.from_source_text(values.text(node, "code"), node.values["code"].place if "code" in node.values else node.place)


def script_to_yaml(script: Script) -> Written:
    written: Written = {"code": script.code.text} | fields_to_yaml(script.use, "use")
    if script.arguments is not Arguments.EVENT:
        written["arguments"] = script.arguments.value
    if script.modules:
        written["modules"] = list(script.modules)
    if script.init:
        written["init"] = script.init
    if script.transient:
        written["transient"] = list(script.transient)
    return written | {_LIMITS[name]: value for name, value in script.limits.changed_limits()}


def script_from_xml(values: EspValues, element: Any, language: Language, function: str) -> Script:
    codes, place = [*values.elements_at(element, "code"), *values.elements_at(element, "code-file")], values.tree.place(element)
    if len(codes) != 1:
        values.missing(element, "<code>" if not codes else "single <code>")
    return script_with_code(values, element, language, function, _code_from_xml(values, codes[0]) if codes else Code("", place))


def script_with_code(values: EspValues, element: Any, language: Language, function: str, code: Code) -> Script:
    """Returns the script of an element whose code is already read."""
    place = values.tree.place(element)
    limits = {name: values.attribute(element, key) for name, key in _XML_LIMITS.items() if element.get(key) is not None}
    return Script(
        language,
        code,
        function,
        use=fields_from_xml(values, element, "use"),
        modules=_names(_SEPARATOR.split(values.attribute(element, "require"))),
        init=values.attribute(element, "init"),
        transient=_names(values.attribute(element, TRANSIENT).split()),
        limits=_limits(limits, place, values.found),
        arguments=_arguments_from_xml(values, element),
    )


def _code_from_xml(values: EspValues, element: Any) -> Code:
    text, place = values.tree.text(element), values.tree.place(element)
    if element.tag == "code":
        return Code.from_source_text(text, place)
    return code_from_file(text.strip(), place, values.tree.substitution.home, values.found)


def _arguments_from_xml(values: EspValues, element: Any) -> Arguments:
    use = values.tree.only_child(element, "use")
    return Arguments.FIELDS if use is not None and values.truth(use, "expand") else Arguments.EVENT


def script_to_xml(script: Script) -> XmlElement:
    """Returns the attributes and children of the script, in an element with an empty tag."""
    attributes = {"init": script.init} if script.init else {}
    if script.modules:
        attributes["require"] = " ".join(script.modules)
    if script.transient:
        attributes[TRANSIENT] = " ".join(script.transient)
    attributes |= {_XML_LIMITS[name]: str(value) for name, value in script.limits.changed_limits()}
    use = fields_to_xml(script.use, "use")
    if script.arguments is Arguments.FIELDS:
        found = use[0] if use else XmlElement("use", attributes={"exclude": "true"})
        use = (replace(found, attributes={**found.attributes, "expand": "true"}),)
    return XmlElement("", attributes=attributes, children=(*use, XmlElement("code", script.code.text)))


def language_from_xml(values: EspValues, element: Any) -> Language:
    """Returns the language that the window's attribute names; without a valid attribute, guesses it from the code or from the name
    of the code file."""
    text = values.attribute(element, LANGUAGE)
    found = parse_option(text, LANGUAGES, "language", values.tree.place(element), values.found) if text else None
    if found is not None:
        return found
    codes = [values.tree.text(each) for each in element.findall("code")]
    files = [values.tree.text(each).strip() for each in element.findall("code-file")]
    is_python = any(language_of(each) is Language.PYTHON for each in codes) or any(each.endswith(".py") for each in files)
    return Language.PYTHON if is_python else Language.LUA


def language_of(code: str) -> Language:
    """Guesses the language of code: Python if a line begins a function by `def`, else Lua."""
    return Language.PYTHON if _PYTHON_FUNCTION.search(code) else Language.LUA


def refuse_without_code(values: EspValues, element: Any, more: Sequence[str]) -> None:
    """Adds a mistake for each attribute (also those named in `more`) and each child that has a meaning only together with code."""
    place = values.tree.place(element)
    for name in (*XML_ATTRIBUTES.split(), *more):
        if element.get(name) is not None:
            shown = name.rpartition("}")[2]
            values.found.add(place, f"attribute {shown} of <{element.tag}> needs code", "leave it out, or add <code>")
    for tag in XML_CHILDREN.split():
        if element.find(tag) is not None:
            values.found.add(place, f"<{tag}> in <{element.tag}> needs code", "leave it out, or add <code>")


_MODULE_KEYS = {"modules": (ModuleUse.MODULE, Language.LUA), "snippets": (ModuleUse.SNIPPET, Language.PYTHON)}
"""By key of a project in YAML: the use of its modules, and the language of modules that name none."""


def modules_from_yaml(values: YamlValues, root: MappingNode) -> tuple[Module, ...]:
    """Returns the modules under the keys `modules` and `snippets` of a project: each name maps to code, or to language and code."""
    modules = []
    for key, (use, usual) in _MODULE_KEYS.items():
        for name, node in (values.entries(root, key).values if key in root.values else {}).items():
            language, entries = usual, MappingNode(node.place, {"code": node})
            if isinstance(node, MappingNode):
                values.reject_unknown_keys(
                    node, ("language", "code", *(("init",) if use is ModuleUse.SNIPPET else ())), f"{use.value} {name}"
                )
                language, entries = values.option(node, "language", LANGUAGES, "language:", language), node
            place = entries.values["code"].place if "code" in entries.values else node.place
            init = values.text(entries, "init").strip()
            modules.append(Module(name, language, Code.from_source_text(values.text(entries, "code"), place), use, init))
    return tuple(modules)


def modules_to_yaml(modules: Sequence[Module]) -> Written:
    """Returns the entries `modules` and `snippets` of a project, without empty ones."""
    written: Written = {}
    for key, (use, _) in _MODULE_KEYS.items():
        if own := {each.name: _module_to_yaml(each) for each in modules if each.use is use}:
            written[key] = own
    return written


def _module_to_yaml(module: Module) -> Written:
    init: Written = {"init": module.init} if module.init else {}
    return {"language": module.language.value, **init, "code": module.code.text}


_WRAPPERS = {f"{language.value}-{use.value}": (language, use) for use in ModuleUse for language in Language}
"""The tags of the elements for one module, each with language and use; the parent's tag has an additional s."""
_THREAD = "an engine has no threads that run concurrently with events: keep data that is read at intervals in a window"
_LUA_SNIPPET = f"{Language.LUA.value}-{ModuleUse.SNIPPET.value}"
MODULES_ELEMENTS = frozenset(f"{name}s" for name in _WRAPPERS)

MODULES_SHAPES: Mapping[str, ElementShape] = {
    **{f"{name}s": shape(children=name) for name in _WRAPPERS},
    **{
        name: shape("name", "code", label_children="description", idle=XML_IDLE if use is ModuleUse.SNIPPET else {})
        for name, (_, use) in _WRAPPERS.items()
    },
    _LUA_SNIPPET: shape("name init", "code", label_children="description", idle=XML_IDLE, refused={"lua-thread": _THREAD}),
    "code": shape(),
}
"""The elements that hold modules and snippets."""


def modules_from_xml(tree: Tree, project: Any) -> tuple[Module, ...]:
    """Returns the modules in `<lua-modules>`, `<python-modules>`, `<lua-snippets>` and `<python-snippets>` of a project."""
    modules = []
    for name, (language, use) in _WRAPPERS.items():
        for wrapper in tree.children(project, f"{name}s"):
            tree.check(wrapper)
            for element in tree.children(wrapper, name):
                tree.check(element)
                code = tree.only_child(element, "code")
                if code is None:
                    tree.found.add(tree.place(element), f"<{element.tag}> has no <code>", "add <code>")
                text, place = (tree.text(code), tree.place(code)) if code is not None else ("", tree.place(element))
                init = tree.attribute(element, "init") if name == _LUA_SNIPPET else ""
                modules.append(Module(tree.attribute(element, "name"), language, Code.from_source_text(text, place), use, init))
    return tuple(modules)


def modules_to_xml(modules: Sequence[Module]) -> tuple[XmlElement, ...]:
    written = []
    for name, (language, use) in _WRAPPERS.items():
        own = [each for each in modules if each.language is language and each.use is use]
        children = [
            XmlElement(name, attributes=_module_attributes(each), children=(XmlElement("code", each.code.text),)) for each in own
        ]
        if own:
            written.append(XmlElement(f"{name}s", children=tuple(children)))
    return tuple(written)


def _module_attributes(module: Module) -> dict[str, str]:
    return {"name": module.name} | ({"init": module.init} if module.init else {})


def fields_from_yaml(values: YamlValues, node: MappingNode, key: str) -> FieldChoice:
    """Returns the choice of fields under `key`, or of all fields but those under `key-except`; all fields without either key."""
    others = f"{key}-except"
    if key in node.values and others in node.values:
        values.found.add(node.places[others], f"{key} and {others} exclude each other", "leave one of them out")
    if key in node.values:
        return FieldChoice.from_names(Choice.LISTED, _names(text.value for text in values.text_list(node.values[key], key)))
    return FieldChoice.from_names(Choice.OTHERS, _names(text.value for text in values.text_list(node.values.get(others), others)))


def fields_to_yaml(fields: FieldChoice, key: str) -> Written:
    if fields.choice is Choice.ALL:
        return {}
    return {key if fields.choice is Choice.LISTED else f"{key}-except": list(fields.names)}


def fields_from_xml(values: EspValues, window: Any, tag: str) -> FieldChoice:
    element = values.tree.only_child(window, tag)
    if element is None:
        return FieldChoice()
    choice = Choice.OTHERS if values.truth(element, "exclude") else Choice.LISTED
    return FieldChoice.from_names(choice, _names(_SEPARATOR.split(values.tree.text(element))))


def fields_to_xml(fields: FieldChoice, tag: str) -> tuple[XmlElement, ...]:
    if fields.choice is Choice.ALL:
        return ()
    return (XmlElement(tag, ",".join(fields.names), {"exclude": "true"} if fields.choice is Choice.OTHERS else {}),)


def _limits(written: Mapping[str, str], place: Place, found: Mistakes) -> CodeLimits:
    numbers: dict[str, int] = {}
    for name, text in written.items():
        if _WHOLE.fullmatch(text.strip()):
            numbers[name] = int(text)
        else:
            found.add(place, f"{_LIMITS[name]} {text.strip()!r}: not a whole number of at most 18 digits", "write a whole number")
    return CodeLimits(**numbers)


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for text in texts if (name := text.strip()))
