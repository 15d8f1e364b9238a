# SPDX-License-Identifier: BSD-3-Clause
"""What a header declares for its users: each declaration without its body, and the `///` above it.

Reads the text and no more than its brackets, so it knows C++ as clang-format writes it here. What
is in a namespace `detail`, private, or without a comment is nobody's business.
"""

import re
from dataclasses import dataclass, field

NOISE = re.compile(r"\b(SCANREC_INLINE|SCANREC_HD|SCANREC_C_API)\b ?")
OPEN, CLOSE = "([{", ")]}"
HIDDEN_WORDS = {"requires", "noexcept", "decltype", "alignas", "explicit", "sizeof"}


@dataclass
class Declaration:
    name: str  # qualified, without scanrec::
    kind: str  # function, type, concept, alias, constant
    comment: list[str]
    texts: list[str] = field(default_factory=list)  # it, and overloads that share its comment


def blanked(text):
    """The text with comments, literals and preprocessor lines as spaces, character by character."""
    pattern = re.compile(
        r"//[^\n]*|/\*.*?\*/|^SCANREC_[A-Z_]+\([^\n]*\)$|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|^[ \t]*#(?:\\\n|[^\n])*",
        re.S | re.M,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def closing(code, start):
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] in OPEN) - (code[at] in CLOSE)
        if depth == 0:
            return at
    raise ValueError(f"a bracket does not close: {code[start : start + 60]!r}")


def extent(code, at, end):
    """(where the signature ends, where the body begins or None, where all of it ends)."""
    start = at
    while at < end:
        letter = code[at]
        if letter == ";":
            return at, None, at + 1
        if letter in "([":
            at = closing(code, at)
        elif letter == "{":
            last = closing(code, at)
            before, after = code[start:at], code[last + 1 : end].lstrip()
            if code.startswith("typedef", start):
                at = last + 1
                continue
            value = re.search(r"(=|\brequires(\s*\([^{]*\))?)\s*$", before) is not None
            initialises = re.search(r"\)\s*:[^:]", before) and after[:1] in "{,"
            if not value and not initialises and not after.startswith((";", ",", "&&", "||", ")")):
                return at, at, last + 1
            if re.match(r"(template\s*<.*>\s*)?(struct|class|enum|union)\b", before.strip(), re.S):
                return (
                    at,
                    at,
                    last + 1 + after.index(";") + len(code[last + 1 : end]) - len(after) + 1,
                )
            at = last
        at += 1
    raise ValueError(f"a declaration does not end: {code[start : start + 80]!r}")


def without_template(code):
    """A declaration less its template heads, attributes and noise."""
    code = re.sub(r"\[\[.*?\]\]", "", NOISE.sub("", code)).strip()
    while (head := re.match(r"template\s*<", code)) is not None:
        depth, at = 1, head.end()
        while depth:
            depth += {"<": 1, ">": -1}.get(code[at], 0) if code[at - 1 : at + 1] != "->" else 0
            at += 1
        code = code[at:].strip()
    return code


def name_of(code):
    """(kind, name) of a declaration, or (None, None)."""
    code = without_template(code)
    for kind, pattern in (
        ("namespace", r"(?:inline\s+)?namespace\b\s*(.*)"),
        ("concept", r"concept\s+(\w+)"),
        ("alias", r"typedef[^({]*\(\*(\w+)\)"),
        (
            "type",
            r"(?:typedef\s+)?(?:struct|class|enum(?:\s+class)?|union)\s+(\w+)\s*(?:final\s*)?(?::[^:]|\{|$)",
        ),
        ("alias", r"using\s+(\w+)\s*="),
        ("block", r"extern\s*$"),
    ):
        if (match := re.match(pattern, code, re.S)) is not None:
            return kind, match[1].strip() if match.groups() else ""
    for match in re.finditer(r"(\boperator\s*(?:\(\)|[^\s\w(]+)|\w+)\s*\(", code):
        if match[1] not in HIDDEN_WORDS:
            return "function", match[1]
    match = re.search(r"(\w+)\s*(?:\{|=|\[|$)", code)
    return ("constant", match[1]) if match else (None, None)


def tidy(text):
    """A declaration as it is shown: no macros, continuation lines moved as their bracket was."""
    lines, depth, shift = [], 0, 0
    for line in text.splitlines():
        kept = NOISE.sub("", line)
        if depth > 0 and shift:
            kept = kept[min(shift, len(kept) - len(kept.lstrip())) :]
        code = blanked(line)
        if depth == 0:
            shift = len(line) - len(NOISE.sub("", line))
        depth += sum(code.count(c) for c in "([") - sum(code.count(c) for c in ")]")
        lines.append(re.sub(r"///<?", "//", kept).rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


class Header:
    """A header's declarations, in its order, and its opening comment."""

    def __init__(self, text):
        self.text, self.code = text, blanked(text)
        opening = re.match(r"(?://[^\n]*SPDX[^\n]*\n)((?://[^\n]*\n)*)", text)
        self.opening = (
            [line[2:].removeprefix(" ") for line in opening[1].splitlines()] if opening else []
        )
        self.declarations = []
        self._scan(0, len(text), "")

    def _comment(self, start):
        """The `///` lines right above, without their marks."""
        lines = []
        above = self.text[: self.text.rfind("\n", 0, start) + 1].splitlines()
        while above and above[-1].lstrip().startswith("///") and "///<" not in above[-1]:
            lines.insert(0, above.pop().strip()[3:].removeprefix(" "))
        return lines

    def _scan(self, at, end, prefix):
        while True:
            at += len(self.code[at:end]) - len(self.code[at:end].lstrip("; \n\t}"))
            if at >= end:
                return
            signature, body, last = extent(self.code, at, end)
            kind, name = name_of(self.code[at:signature])
            if kind == "namespace":
                names = [
                    n
                    for n in re.findall(r"\w+", name)
                    if n not in ("inline", "scanrec") and not n.startswith("SCANREC_")
                ]
                if "detail" not in names:
                    self._scan(body + 1, last - 1, prefix + "".join(n + "::" for n in names))
            elif kind == "block":
                self._scan(body + 1, last - 1, prefix)
            elif name is not None:
                self._add(prefix + name, kind, at, signature, body, last)
            at = last

    def _add(self, name, kind, at, signature, body, last):
        comment, known = self._comment(at), self.declarations
        overload = known and known[-1].name == name and not comment
        if not comment and not overload:
            return
        opens = self.code.find("{", at, last) if body is None else body
        if kind == "type" and opens >= 0:
            text = self._type(at, opens, last)
        elif body is not None:
            text = self.text[at : self._before_initialisers(at, signature)].rstrip() + ";"
        else:
            text = self.text[at:last]
        line = self.text.rfind("\n", 0, at) + 1
        text = re.sub(r"\s*// NOLINT[^\n;]*(;?)", r"\1", text)
        text = tidy(self.text[line:at] + text if not self.text[line:at].strip() else text)
        if overload:
            known[-1].texts.append(text)
        else:
            known.append(Declaration(name, kind, comment, [text]))

    def _before_initialisers(self, at, signature):
        """Where the signature of a constructor ends, before what it initialises."""
        code, depth = self.code, 0
        for i in range(at, signature):
            depth += (code[i] in OPEN) - (code[i] in CLOSE)
            if code[i] == ":" and depth == 0 and ":" not in (code[i - 1], code[i + 1]):
                return i
        return signature

    def _type(self, at, body, last):
        """A type without the bodies of its functions and without what is private."""
        end = closing(self.code, body)
        cuts = []  # (from, to, what stands there instead)
        if not re.match(r"enum\b", without_template(self.code[at:body])):
            self._cut(body + 1, end, cuts)
        text, done = "", at
        for first, to, instead in cuts:
            text, done = text + self.text[done:first] + instead, to
        text += self.text[done:last]
        return re.sub(r"\n\s*\n(\s*\})", r"\n\1", text)

    def _cut(self, at, end, cuts):
        hidden = None
        while True:
            at += len(self.code[at:end]) - len(self.code[at:end].lstrip("; \n\t"))
            access = re.compile(r"(public|private|protected)\s*:(?!:)").match(self.code, at, end)
            if access:
                line = self.text.rfind("\n", 0, at) + 1
                if hidden is not None:
                    cuts.append((hidden, line, ""))
                    hidden = None
                if access[1] != "public":
                    hidden = line
                at = access.end()
                continue
            if at >= end:
                if hidden is not None:
                    cuts.append((hidden, self.text.rfind("\n", 0, end) + 1 or end, ""))
                return
            signature, body, last = extent(self.code, at, end)
            if hidden is None and body is not None:
                kind, _ = name_of(self.code[at:signature])
                if kind == "type":
                    if not re.match(r"enum\b", without_template(self.code[at:body])):
                        self._cut(body + 1, closing(self.code, body), cuts)
                else:
                    stop = self._before_initialisers(at, signature)
                    stop -= len(self.text[at:stop]) - len(self.text[at:stop].rstrip())
                    cuts.append((stop, last, ";"))
            at = last
