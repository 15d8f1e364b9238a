# SPDX-License-Identifier: BSD-3-Clause
"""Read the documented declarations of a header, without function bodies, and the `///` comment above each.

Namespaces `detail` and members that are not public are left out. A declaration without a comment is left
out too, unless it is an overload of the declaration before it.
"""

import re
from dataclasses import dataclass, field

import tree_sitter
import tree_sitter_cpp

NOISE = re.compile(r"\b(SCANREC_INLINE|SCANREC_HD|SCANREC_C_API)\b ?")
#: Text that the parser's grammar lacks: our macros, preprocessor lines, nested inline namespaces, `= {}`.
UNPARSED = re.compile(
    r"\b(?:SCANREC_INLINE|SCANREC_HD|SCANREC_C_API)\b|^SCANREC_[A-Z_]+\([^\n]*\)$"
    r"|^[ \t]*#(?:\\\n|[^\n])*|(?<=::)inline(?= )|(?<== )\{\}(?=[,)])",
    re.M,
)
TYPES = {"struct_specifier", "class_specifier", "enum_specifier", "union_specifier"}
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


@dataclass
class Declaration:
    name: str  # qualified, without scanrec::
    kind: str  # function, type, concept, alias, constant
    comment: list[str]
    texts: list[str] = field(
        default_factory=list
    )  # the declaration, and overloads that share its comment


def parsed(text):
    """The syntax tree of a text, with the text's byte positions: UNPARSED parts are blanked, not removed."""

    def instead(match):
        fill = "0" if match[0] == "{}" else " "
        return re.sub(r"[^\n]", fill, match[0])

    code = UNPARSED.sub(instead, text)
    code = re.sub(r"::( +)(\w+)", r"\1::\2", code)
    return PARSER.parse(code.encode()).root_node


def name_of(node):
    """(kind, name) of a declaration."""
    while node.type == "template_declaration":
        node = [c for c in node.named_children if c.type != "comment"][-1]
    if node.type in ("concept_definition", "alias_declaration"):
        return node.type.split("_")[0], node.child_by_field_name("name").text.decode()
    kind = "alias" if node.type == "type_definition" else "constant"
    inner = node.child_by_field_name("type") if node.type == "type_definition" else node
    if inner is not None and inner.type in TYPES:
        return "type", inner.child_by_field_name("name").text.decode()
    while below := [
        c for c in node.named_children if "declarator" in c.type
    ] or node.children_by_field_name("declarator"):
        node = below[0]
        if node.type == "function_declarator" and kind != "alias":
            kind = "function"
    return kind, node.text.decode()


def understood(node):
    """Raise ValueError if the parser failed at a node, since declarations may be lost there."""
    if node.type == "ERROR":
        raise ValueError(
            f"line {node.start_point[0] + 1}: expected a declaration, got {node.text!r}"
        )


def hidden(node, elided):
    """Append (from, to, replacement) for function bodies, and for members that are not public."""
    if node.type == "function_definition":
        body = node.child_by_field_name("body")
        if body is not None:
            lists = [c for c in node.children if c.type == "field_initializer_list"]
            elided.append(((lists or [body])[0].start_byte, body.end_byte, ";"))
        return
    shown = not (node.type == "field_declaration_list" and node.parent.type == "class_specifier")
    begin = node.start_byte + 1
    for child in node.children:
        understood(child)
        if child.type == "access_specifier":
            if not shown:
                elided.append((begin, child.start_byte, "\n "))
            shown, begin = child.text == b"public", child.start_byte
        elif shown:
            hidden(child, elided)
    if not shown:
        elided.append((begin, node.end_byte - 1, "\n"))


def tidy(text):
    """Return a declaration for display: without macros, and with continuation lines still aligned."""
    lines, depth, shift = [], 0, 0
    for line in text.splitlines():
        kept = NOISE.sub("", line)
        if depth > 0 and shift:
            kept = kept[min(shift, len(kept) - len(kept.lstrip())) :]
        code = line.partition("//")[0]
        if depth == 0:
            shift = len(line) - len(NOISE.sub("", line))
        depth += sum(code.count(c) for c in "([") - sum(code.count(c) for c in ")]")
        if kept.strip() or not line.strip():  # drop a line with only a macro
            lines.append(re.sub(r"///<?", "//", kept).rstrip())
    text = re.sub(r"\n\s*\n(\s*\})", r"\n\1", "\n".join(lines))
    return re.sub(r"\s*// NOLINT[^\n;]*(;?)", r"\1", re.sub(r"\n{3,}", "\n\n", text))


class Header:
    """The declarations of a header, in order, and its opening comment."""

    def __init__(self, text):
        self.text = text
        opening = re.match(r"(?://[^\n]*SPDX[^\n]*\n)((?://[^\n]*\n)*)", text)
        self.opening = re.findall(r"// ?(.*)", opening[1]) if opening else []
        self.declarations = []
        self._scan(parsed(text), "")

    def _comment(self, row):
        """The `///` lines directly above a row, without their slashes."""
        lines, above = [], self.text.splitlines()[:row]
        while above and re.match(r"\s*///(?!<)", above[-1]):
            lines.insert(0, above.pop().strip()[3:].removeprefix(" "))
        return lines

    def _scan(self, node, prefix):
        for child in node.named_children:
            understood(child)
            if child.type == "namespace_definition":
                name = child.child_by_field_name("name").text.decode()
                names = re.findall(r"\b(?!SCANREC_|scanrec\b)\w+", name)
                if "detail" not in names:
                    inner = prefix + "".join(f"{each}::" for each in names)
                    self._scan(child.child_by_field_name("body"), inner)
            elif child.type == "linkage_specification":
                self._scan(child.child_by_field_name("body"), prefix)
            elif child.type != "comment" and not child.type.startswith("preproc"):
                self._add(child, prefix)

    def _add(self, node, prefix):
        comment, known = self._comment(node.start_point[0]), self.declarations
        kind, name = name_of(node)
        overload = known and known[-1].name == prefix + name and not comment
        if not comment and not overload:
            return
        source, elided, text = self.text.encode(), [], ""
        done = source.rfind(b"\n", 0, node.start_byte) + 1  # a macro may precede the node
        hidden(node, elided)
        for first, to, instead in elided:
            text, done = text + source[done:first].decode().rstrip() + instead, to
        text = tidy(text + source[done : node.end_byte].decode()).removesuffix(";") + ";"
        if overload:
            known[-1].texts.append(text)
        else:
            known.append(Declaration(prefix + name, kind, comment, [text]))
