# SPDX-License-Identifier: BSD-3-Clause
"""Write the pages of the C++ reference from the headers and reference.toml."""

import re

import tomllib

FIELDS = (
    "Aliasing Backends Bits Blocking Cost Determinism Error Gradients Law Memory Needs Order Output Precision Range Returns "
    "Shapes Source Sources Stream Synchronisation Threads Throws Traffic Types Units Waits"
).split()
LABEL = re.compile(rf"({'|'.join(FIELDS)})((?:, [a-z]+)*)( +)(?=\S)")
KINDS = {
    "function": "function",
    "type": "type",
    "concept": "concept",
    "alias": "alias",
    "constant": "constant",
}


def target(name):
    return "cpp-" + re.sub(r"\W+", "-", name.replace("operator()", "call")).strip("-").lower()


def escaped(text):
    return re.sub(r"([\\*_<>\[\]#|~$&{}])", r"\\\1", text)


class Prose:
    """Converts comments to Markdown, with links for documented names and for paths of documents."""

    def __init__(self, names, documents):
        self.names, self.documents = names, documents

    def line(self, text, own=""):
        parts = re.split(r"(`[^`]*`)", text)
        return "".join(
            self._code(part, own) if part.startswith("`") else self._words(part, own)
            for part in parts
        )

    def _code(self, part, own):
        name = part.strip("`")
        return f"[{part}](#{target(name)})" if name in self.names and name != own else part

    def _words(self, part, own):
        done, at = "", 0
        for match in re.finditer(
            r"docs/\w+\.md|\b(?:scanrec::)?([a-z]\w*(?:(?:::|\.)\w+)*)(\(\))?", part
        ):
            if match[0] in self.documents:
                new = f"[{match[0]}](/{match[0]})"
            elif match[1] in self.names and match[1] != own and re.search(r"_|::|\(\)", match[0]):
                new = f"[`{match[1]}{match[2] or ''}`](#{target(match[1])})"
            elif re.search(r"_|::", match[0]):
                new = f"`{match[0]}`"
            else:
                continue
            done, at = done + escaped(part[at : match.start()]) + new, match.end()
        return done + escaped(part[at:])

    def block(self, lines, own=""):
        """Convert a comment: paragraphs, lists, formulas (indented by four) and labelled fields."""
        out, paragraph, fields, column = [], [], [], 0

        def flush():
            if paragraph:
                out.append(self.line(" ".join(paragraph), own) + "\n")
                paragraph.clear()
            if fields:
                rows = [f":{label}: {self.line(' '.join(words), own)}" for label, words in fields]
                out.append("\n".join(rows) + "\n")
                fields.clear()

        at = 0
        while at < len(lines):
            line = lines[at]
            label = LABEL.match(line)
            if not line.strip():
                flush()
            elif label and (len(label[3]) > 1 or fields or label[1] in ("Aliasing", "Backends")):
                if paragraph:
                    flush()
                fields.append((label[1] + label[2], [line[label.end() :].strip()]))
                column = label.end()
            elif fields and (line.startswith(" ") or column):
                fields[-1][1].append(line.strip())
            elif line.startswith("    ") and not paragraph:
                formula = []
                while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                    formula.append(lines[at][4:])
                    at += 1
                while formula and not formula[-1].strip():
                    formula.pop()
                out.append("```text\n" + "\n".join(formula) + "\n```\n")
                continue
            elif re.match(r"- |\d+\. ", line):
                if paragraph and not re.match(r"- |\d+\. ", paragraph[0]):
                    flush()
                out.append(line[:2] + self.line(line[2:], own) + "\n")
            else:
                paragraph.append(line.strip())
            at += 1
        flush()
        return "\n".join(out)


def listed(root):
    """The pages of reference.toml."""
    with open(root / "docs" / "site" / "reference.toml", "rb") as file:
        return tomllib.load(file)["page"]


def problems(root):
    """Messages about headers that reference.toml lacks or should not name. Needs no parser."""
    include = root / "include" / "scanrec"
    named = {name for page in listed(root) for name in page["headers"]}
    documented = {
        path.relative_to(include).as_posix()
        for path in include.rglob("*.*")
        if "detail" not in path.relative_to(include).parts
        and re.search(r"^ *///(?!<).*\n(?! *(?:///|#))", path.read_text(encoding="utf-8"), re.M)
    }
    return [
        *(
            f"include/scanrec/{name} is documented but is on no page"
            for name in sorted(documented - named)
        ),
        *(f"include/scanrec/{name} documents nothing" for name in sorted(named - documented)),
    ]


def read(root):
    """[(page, [(header's name, its Header, the declarations to show)])]."""
    from cpp_headers import Header  # needs the tools of scripts/docs

    pages, found = [], problems(root)

    def section(name, wanted=None):
        header = Header("")
        try:
            header = Header((root / "include" / "scanrec" / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            found.append(f"include/scanrec/{name}: {error}")
        shown = [d for d in header.declarations if wanted is None or d.name in wanted]
        if missing := set(wanted or ()) - {d.name for d in shown}:
            found.append(f"include/scanrec/{name} documents no {', '.join(sorted(missing))}")
        return name, header, shown

    for page in listed(root):
        sections = [section(name) for name in page["headers"]]
        parts = [section(part["header"], part["names"]) for part in page.get("parts", [])]
        pages.append((page, parts + sections if page.get("parts_first") else sections + parts))
    if found:
        raise SystemExit("docs/site/reference.toml: " + "\n".join(found))
    return pages


def write(root, out, documents, source_page):
    """Write the pages and an overview. source_page(path) returns the address of a source file's page.
    Returns the documented names."""
    pages = read(root)
    names = {d.name for _, sections in pages for _, _, shown in sections for d in shown}
    prose, given = Prose(names, documents), set()
    folder = out / "reference" / "cpp"
    folder.mkdir(parents=True, exist_ok=True)
    overview = [
        "# C++ reference\n",
        "These pages are made from the comments of the headers. `#include <scanrec/scan.hpp>` has linear and "
        "prefix scans; each page names the headers of its calls. All names are in `namespace scanrec`.\n",
    ]
    toctree = []
    for page, sections in pages:
        lines = [f"{{.cpp}}\n# {page['title']}\n", page["about"] + "\n"]
        overview.append(f"## [{page['title']}]({page['name']}.md)\n\n{page['about']}\n")
        table = []
        for name, header, shown in sections:
            private = name.startswith("detail/")
            if not private:
                lines.append(f"## scanrec/{name}\n")
                lines.append(prose.line(" ".join(header.opening).split("    ")[0].strip()) + "\n")
            elif shown[0].name == page["parts"][0]["names"][0]:
                lines.append(f"## {page['parts_title']}\n")
            for d in shown:
                again = d.name in given
                if not again:
                    lines.append(f"({target(d.name)})=\n")
                    given.add(d.name)
                    table.append((d.name, prose.line(first_sentence(d.comment), d.name)))
                above = shown[shown.index(d) - 1] if d is not shown[0] else None
                if above is None or above.name != d.name:  # otherwise it is another overload
                    lines.append(f"### {escaped(d.name)}\n")
                if not again:
                    lines.append(f"```{{index}} single: {d.name} (C++ {KINDS[d.kind]})\n```\n")
                lines.append("```cpp\n" + "\n\n".join(d.texts) + "\n```\n")
                lines.append(prose.block(d.comment, d.name))
            source = f"include/scanrec/{name}"
            lines.append(f"{{.source-link}}\n[{escaped(source)}]({source_page(source)})\n")
        overview.append(
            ":::{div} summary\n"
            + "\n".join(f"[`{name}`](#{target(name)})\n: {words or ' '}\n" for name, words in table)
            + ":::\n"
        )
        (folder / f"{page['name']}.md").write_text("\n".join(lines), encoding="utf-8")
        toctree.append(f"{page['title']} <{page['name']}>")
    overview.append("```{toctree}\n:hidden:\n\n" + "\n".join(toctree) + "\n```\n")
    (folder / "index.md").write_text("\n".join(overview), encoding="utf-8")
    return names


def first_sentence(lines):
    """The first sentence of a comment, or the text before its formula."""
    words = []
    for line in lines:
        if not line.strip() or line.startswith("    ") or LABEL.match(line):
            break
        words.append(line.strip())
    text = " ".join(words)
    match = re.match(r".*?[a-z0-9)\]`][.:](?= [A-Z`(]|$)", text)
    return (match[0] if match else text).rstrip(":") if text else ""
