#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""List the error messages of the headers and of the Python package, so that they can be compared.

tests/error_messages.txt holds the list. Values that a message prints stand in braces: `expected
{count} taps, got {shape}`. --write rewrites the list. The exit status is 1 if the list differs from
the sources, or if the words after "expected" are not a noun phrase.
"""

import argparse
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "error_messages.txt"
#: Calls whose last two arguments are the expectation and the value received.
REFUSES = {"argument_error", "refuse", "_refuse", "check"}
#: Other calls that end in an error, and the index of the argument that is their message.
OTHERS = {
    "static_assert": -1,
    "error": -1,
    "runtime_error": -1,
    "logic_error": -1,
    "SCANREC_HAS": 0,
}
CPP_CALL = re.compile(rf"\b({'|'.join([*REFUSES, *OTHERS])})\s*\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
NOT_A_NOUN = re.compile(r"(?:what|who|whoever|that|which|of|not|is|are|to)\b")


def closing(text, begin):
    """The index after the parenthesis that closes the one before `begin`."""
    depth, i = 1, begin
    while depth:
        found = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'|[()\[\]{}]').search(text, i)
        depth += {"(": 1, "[": 1, "{": 1}.get(found[0], -1 if found[0] in ")]}" else 0)
        i = found.end()
    return i


def split(text, at=","):
    """Split a text at the commas, or at another character, outside of brackets and strings."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'|[()\[\]{},+]', text):
        if found[0] in "([{":
            depth += 1
        elif found[0] in ")]}":
            depth -= 1
        elif found[0] == at and depth == 0:
            parts.append(text[begin : found.start()])
            begin = found.end()
    return [p.strip() for p in [*parts, text[begin:]]]


def cpp_text(argument):
    """A C++ expression as a reader sees it: strings as they are, the rest in braces."""
    inner = len(split(argument, "+")) == 1 and re.fullmatch(
        r"(?:\w+::)*text\((.*)\)|std::(?:to_)?string\((.*)\)", argument, re.S
    )
    if inner:
        return "".join(cpp_text(p) for p in split(inner[1] or inner[2]))
    pieces = split(argument, "+")
    if len(pieces) > 1 and STRING.search(argument):
        return "".join(map(cpp_text, pieces))
    if re.fullmatch(rf"(?:{STRING.pattern}\s*)+", argument):
        return "".join(STRING.findall(argument)).replace('\\"', '"')
    return "{" + re.sub(r"\s+", " ", argument) + "}"


def cpp_messages(text):
    text = re.sub(r"//[^\n]*", "", text)
    for found in CPP_CALL.finditer(text):
        name, arguments = found[1], split(text[found.end() : closing(text, found.end()) - 1])
        if not STRING.search("".join(arguments)):
            continue  # a declaration, or a call that passes on what it was given
        if name in OTHERS:
            message = cpp_text(arguments[OTHERS[name]])
            if STRING.search(arguments[OTHERS[name]]):
                yield message.removeprefix("scanrec: "), None
        elif len(arguments) >= 3:
            named = next((cpp_text(a) for a in arguments[:-2] if STRING.search(a)), "{argument}")
            expected, got = map(cpp_text, arguments[-2:])
            yield f"'{named}': expected {expected}, got {got}", expected
        else:
            yield ", got ".join(map(cpp_text, arguments)), None


def python_text(node):
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            v.value if isinstance(v, ast.Constant) else f"{{{ast.unparse(v.value)}}}"
            for v in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return python_text(node.left) + python_text(node.right)
    return f"{{{ast.unparse(node)}}}"


def python_messages(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield node.lineno, python_text(node.exc.args[0]), None
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in REFUSES and len(node.args) >= 4:
                _, argument, expected, got = map(python_text, node.args[:4])
                yield node.lineno, f"'{argument}': expected {expected}, got {got}", expected


def collected():
    """{file: [(message, what was expected or None)]}, in the order of the sources."""
    found = {}
    for folder in ("include", "python/native"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in {".hpp", ".cuh", ".cpp", ".h"}:
                found[path] = list(cpp_messages(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "python/src").rglob("*.py")):
        listed = sorted(python_messages(path.read_text(encoding="utf-8")))
        found[path] = [(message, expected) for _, message, expected in listed]
    return {path.relative_to(ROOT): list(dict.fromkeys(m)) for path, m in found.items() if m}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="write tests/error_messages.txt")
    arguments = parser.parse_args()
    found = collected()
    wrong = [
        f"{path}: expected a noun phrase after 'expected', got '{expected}'"
        for path, messages in found.items()
        for _, expected in messages
        if expected and NOT_A_NOUN.match(expected)
    ]
    lines = [f"{p}\n" + "".join(f"    {m}\n" for m, _ in messages) for p, messages in found.items()]
    if arguments.write:
        LIST.write_text("\n".join(lines), encoding="utf-8")
    elif LIST.read_text(encoding="utf-8") != "\n".join(lines):
        wrong.append(f"{LIST.name}: differs from the sources (tests/error_messages.py --write)")
    print(*wrong, f"{sum(map(len, found.values()))} messages, {len(wrong)} problems", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
