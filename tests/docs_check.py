#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check the documents: code blocks against tested sources, links, paths and the site.

A code block that follows a line `<!-- snippet: name -->` in README.md or docs/*.md must be equal to
the snippet of that name. A snippet is the text between the lines `// [name]` and `// [/name]` of
docs/snippets.cpp, docs/snippets.cu or a C++ file in examples, or between `# [name]` and `# [/name]`
of a program in python/examples, without its common indentation. Every ```cpp block must be a
snippet; a ```python block may be one. Every snippet must be shown.

Every relative link of a Markdown file must name an existing file and heading. Paths in Markdown
files and in comments must name files or folders of the repository. docs/site/index.md must list
every document and docs/site/reference.toml every documented header. Examples must begin with a
sentence, and public names of the Python package must have docstrings.

--write rewrites the blocks from the snippets. The exit status is 1 if a check fails.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import sys
import textwrap
import typing

BEGIN = re.compile(r"^\s*(?://|#) \[([a-z0-9_]+)\]\s*$")
END = re.compile(r"^\s*(?://|#) \[/([a-z0-9_]+)\]\s*$")
MARKER = re.compile(r"^<!-- snippet: ([a-z0-9_]+) -->$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(\S*)")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*<?([^\s>]+)")
CPP = {"cpp", "c++", "cc", "cxx"}
# A word that should name a file or a folder, by its extension or by its first folder.
PATH = re.compile(
    r"(?:\./)?[\w./{},*-]+\.(?:[ch]pp|h|cuh?|py|pyi|md|sh|json|tsv|png|cmake|toml)"
    r"|(?:\./)?(?:bench|cmake|data|detail|docs|examples|include|packaging|python"
    r"|scanrec|scripts|tests)/[\w./{},*-]*"
)
# Paths outside the repository: outputs, files of packages, and programs of the reader.
ELSEWHERE = re.compile(
    r"(?:build|OUT|statsmodels|sklearn|scanrec/include)/.*|(?:app|kernels)\.cpp"
    r"|(?:contents|first|four|out|TARGET)\.json"
)
COMMENT = re.compile(r"(?:^|\s)(?://+|#+)[!<]?\s(.*)")


class Snippet(typing.NamedTuple):
    language: str  # of the block that shows it: "cpp" or "python"
    source: str  # path of its file in the repository
    lines: list[str]


class Problems:
    def __init__(self, root):
        self.root, self.count = root, 0

    def add(self, path, line, text):
        self.count += 1
        print(f"{path.relative_to(self.root)}:{line}: {text}")


def snippet_files(root):
    """Yield the files that may contain snippets."""
    yield from (root / "docs" / "snippets.cpp", root / "docs" / "snippets.cu")
    yield from sorted((root / "examples").glob("*.[ch]pp"))
    yield from sorted((root / "python" / "examples").glob("*.py"))


def read_snippets(path, snippets, problems):
    """Add the snippets of a file to `snippets`, by name."""
    language = "python" if path.suffix == ".py" else "cpp"
    source, name, first = path.relative_to(problems.root).as_posix(), None, 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        begin, end = BEGIN.match(line), END.match(line)
        if begin and name:
            problems.add(path, number, f"snippet '{begin[1]}' begins within '{name}'")
        elif begin and begin[1] in snippets:
            problems.add(path, number, f"snippet '{begin[1]}' exists already")
        elif begin:
            name, first = begin[1], number
        elif end and end[1] != name:
            problems.add(path, number, f"snippet '{end[1]}' ends but has not begun")
        elif end:
            text = textwrap.dedent("\n".join(lines[first : number - 1])).rstrip()
            snippets[name] = Snippet(language, source, text.splitlines())
            name = None
    if name:
        problems.add(path, first, f"snippet '{name}' does not end")


def check_blocks(path, lines, snippets, used, problems, compare):
    """Return the lines with every marked block replaced by its snippet.

    With `compare`, report differences."""
    result, number = [], 0
    while number < len(lines):
        line = lines[number]
        fence = FENCE.match(line)
        result.append(line)
        number += 1
        marker = MARKER.match(line)
        if marker and not (number < len(lines) and lines[number] in ("```cpp", "```python")):
            problems.add(path, number, f"no ```cpp or ```python follows the marker '{marker[1]}'")
        if not fence:
            continue
        start = number  # of the opening line, counted from 1
        block = []
        while number < len(lines) and lines[number].strip() != fence[2]:
            block.append(lines[number])
            number += 1
        closed = number < len(lines)
        if not closed:
            problems.add(path, start, "a code block does not end")
        marker = MARKER.match(result[-2]) if len(result) > 1 else None
        if marker:
            name = marker[1]
            block = check_block(path, start, line, name, block, snippets, problems, compare)
            used.add(name)
        elif fence[3].lower() in CPP:
            problems.add(path, start, "no line <!-- snippet: name --> precedes this C++ block")
        result += block
        if closed:
            result.append(lines[number])
            number += 1
    return result


def check_block(path, start, opening, name, block, snippets, problems, compare):
    """Return the lines that the block should have."""
    if name not in snippets:
        problems.add(path, start - 1, f"there is no snippet '{name}'")
        return block
    language, source, wanted = snippets[name]
    if opening != f"```{language}":
        problems.add(path, start, f"snippet '{name}' of {source} must be in a ```{language} block")
        return block
    if compare and block != wanted:
        at = next(
            (i for i, (x, y) in enumerate(zip(block, wanted)) if x != y),
            min(len(block), len(wanted)),
        )
        problems.add(
            path,
            start + 1 + at,
            f"differs from snippet '{name}' of {source} (tests/docs_check.py --write copies it)",
        )
    return wanted


def anchors(path):
    """Return the anchors of all headings."""
    names, fence = set(), None
    for line in path.read_text(encoding="utf-8").splitlines():
        mark = FENCE.match(line)
        if mark:
            fence = None if fence == mark[2] else fence or mark[2]
        elif not fence and re.match(r"^#{1,6} ", line):
            text = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            names.add(text.replace(" ", "-"))
    return names


def check_links(path, lines, problems):
    fence = None
    for number, line in enumerate(lines, 1):
        mark = FENCE.match(line)
        if mark:
            fence = None if fence == mark[2] else fence or mark[2]
        if mark or fence:
            continue
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match[1] or match[2]
            if re.match(r"^[a-z][a-z0-9+.-]*:", target):
                continue  # an external link
            page, _, anchor = target.partition("#")
            file = (path.parent / page).resolve() if page else path
            if not file.exists():
                problems.add(path, number, f"link to {target}: no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                problems.add(path, number, f"link to {target}: no heading of that name")


def visible(root):
    """Yield every file outside hidden folders and build folders."""
    hidden = re.compile(r"\..*|build.*|.*\.egg-info|__pycache__")
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not hidden.fullmatch(name))
        yield from (pathlib.Path(folder, name) for name in sorted(names))


def parts_of_paths(paths):
    """Return all runs of path components: tests/cuda/x.cpp gives tests/cuda, cuda/x.cpp, ..."""
    parts = set()
    for path in paths:
        names = path.parts
        parts |= {"/".join(names[i:j]) for j in range(len(names) + 1) for i in range(j)}
    return parts


def alternatives(word):
    """Expand braces as a shell does: x{,_cuda}.cpp gives x.cpp and x_cuda.cpp."""
    braces = re.search(r"\{([^{}]*)\}", word)
    if not braces:
        return [word]
    return [
        one
        for part in braces[1].split(",")
        for one in alternatives(word[: braces.start()] + part + word[braces.end() :])
    ]


def words_with_paths(path, lines):
    """Yield (line number, word) of comments, and of code spans and indented blocks in Markdown."""
    fence = None
    for number, line in enumerate(lines, 1):
        if path.suffix == ".md":
            mark = FENCE.match(line)
            if mark:
                fence = None if fence == mark[2] else fence or mark[2]
            if mark or fence:
                continue
            text = line if line.startswith("    ") else " ".join(re.findall(r"`([^`]+)`", line))
        else:
            comment = COMMENT.search(line)
            text = comment[1] if comment else ""
        for word in text.split():
            yield number, re.sub(r"^<(.*)>$", r"\1", word.strip(".,:;()`\"'")).strip(".,:;()`\"'")


def check_paths(path, lines, known, problems):
    for number, word in words_with_paths(path, lines):
        if not PATH.fullmatch(word) or ELSEWHERE.fullmatch(word):
            continue
        for one in alternatives(word):
            name = one.removeprefix("./").strip("/")
            if not (fnmatch.filter(known, name) if "*" in name else name in known):
                problems.add(path, number, f"{one}: the repository has no such file or folder")


def check_site(root, problems):
    """Check that the site, which scripts/docs builds, leaves out no document or header."""
    sys.path.insert(0, str(root / "docs" / "site"))
    sys.dont_write_bytecode = True
    import cpp_reference
    import gallery
    import python_reference

    index = root / "docs" / "site" / "index.md"
    named = set(re.findall(r"^(?:.*<)?(docs/\w+)>?$", index.read_text(encoding="utf-8"), re.M))
    for path in sorted((root / "docs").glob("*.md")):
        if f"docs/{path.stem}" not in named:
            problems.add(index, 1, f"no table of contents names docs/{path.stem}")
    for path in gallery.programs(root):
        if not gallery.sentence(gallery.description(path)):
            problems.add(path, 1, "begins with no sentence for the gallery")
    for error in (*cpp_reference.problems(root), *python_reference.problems(root)):
        problems.add(index.with_name("reference.toml"), 1, error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="rewrite the blocks from the snippets")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    problems = Problems(root)
    snippets = {}
    for path in snippet_files(root):
        read_snippets(path, snippets, problems)
    write = arguments.write and problems.count == 0
    used, shown = set(), [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for path in shown:
        text = path.read_text(encoding="utf-8")
        lines = check_blocks(path, text.splitlines(), snippets, used, problems, not write)
        new = "\n".join(lines) + "\n"
        if write and new != text:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {path.relative_to(root)}")
    for name, snippet in snippets.items():
        if name not in used:
            problems.add(root / snippet.source, 1, f"no document shows snippet '{name}'")
    files = list(visible(root))
    known = parts_of_paths(path.relative_to(root) for path in files)
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        if path.suffix == ".md":
            check_links(path, lines, problems)
        check_paths(path, lines, known, problems)
    check_site(root, problems)
    if problems.count:
        print(f"{problems.count} problem(s)")
        return 1
    print(f"{len(snippets)} snippets in {len(shown)} documents and all links and paths are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
