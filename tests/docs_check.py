#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that C++ blocks of the documents are those of docs/snippets.cpp, that links lead somewhere, and that the
site has a place for everything.

Every ```cpp block of README.md and docs/*.md follows a line `<!-- snippet: name -->` and is the
text between the lines `// [name]` and `// [/name]` of docs/snippets.cpp or .cu, less its common
indentation. Every snippet is shown. Every relative link of a Markdown file names a file that is
there, and its heading. docs/site/index.md names every document, docs/site/reference.toml every
header that documents something; examples begin with a sentence, and public names of the Python
package have docstrings. With --write the blocks are rewritten from the snippets. Exit status 1 if
anything is wrong.
"""
import argparse
import pathlib
import re
import sys
import textwrap

BEGIN = re.compile(r"^\s*// \[([a-z0-9_]+)\]\s*$")
END = re.compile(r"^\s*// \[/([a-z0-9_]+)\]\s*$")
MARKER = re.compile(r"^<!-- snippet: ([a-z0-9_]+) -->$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(\S*)")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*<?([^\s>]+)")
CPP = {"cpp", "c++", "cc", "cxx"}


class Problems:
    def __init__(self, root):
        self.root, self.count = root, 0

    def add(self, path, line, text):
        self.count += 1
        print(f"{path.relative_to(self.root)}:{line}: {text}")


def read_snippets(path, problems):
    """Name -> text of every snippet, in the order of the file."""
    snippets, name, first = {}, None, 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        begin, end = BEGIN.match(line), END.match(line)
        if begin and name:
            problems.add(path, number, f"snippet '{begin[1]}' begins within '{name}'")
        elif begin and begin[1] in snippets:
            problems.add(path, number, f"there is a snippet '{begin[1]}' already")
        elif begin:
            name, first = begin[1], number
        elif end and end[1] != name:
            problems.add(path, number, f"snippet '{end[1]}' ends where it has not begun")
        elif end:
            snippets[name] = textwrap.dedent("\n".join(lines[first:number - 1])).rstrip()
            name = None
    if name:
        problems.add(path, first, f"snippet '{name}' does not end")
    return snippets


def check_blocks(path, lines, snippets, used, problems, compare):
    """The lines with every C++ block replaced by its snippet; with `compare`, reports what differs."""
    result, number = [], 0
    while number < len(lines):
        line = lines[number]
        fence = FENCE.match(line)
        result.append(line)
        number += 1
        marker = MARKER.match(line)
        if marker and not (number < len(lines) and lines[number] == "```cpp"):
            problems.add(path, number, f"no ```cpp line follows the marker of '{marker[1]}'")
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
        if fence[3].lower() in CPP:
            block = check_block(path, start, line, result, block, snippets, used, problems, compare)
        result += block
        if closed:
            result.append(lines[number])
            number += 1
    return result


def check_block(path, start, opening, before, block, snippets, used, problems, compare):
    """The block as it should be."""
    marker = MARKER.match(before[-2]) if len(before) > 1 else None
    if opening != "```cpp" or not marker:
        problems.add(path, start, "a C++ block must be ```cpp, right after <!-- snippet: name -->")
        return block
    name = marker[1]
    if name not in snippets:
        problems.add(path, start - 1, f"docs/snippets.cpp has no snippet '{name}'")
        return block
    used.add(name)
    wanted = snippets[name].splitlines()
    if compare and block != wanted:
        at = next((i for i, (x, y) in enumerate(zip(block, wanted)) if x != y),
                  min(len(block), len(wanted)))
        problems.add(path, start + 1 + at, f"differs from snippet '{name}' of docs/snippets.cpp "
                     "(tests/docs_check.py --write copies it)")
    return wanted


def anchors(path):
    """The names that headings give their places."""
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
                continue  # somewhere else
            place, _, anchor = target.partition("#")
            file = (path.parent / place).resolve() if place else path
            if not file.exists():
                problems.add(path, number, f"link to {target}: there is no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                problems.add(path, number, f"link to {target}: no heading of that name")


def check_site(root, problems):
    """What the site would leave out. Its pages are built by scripts/docs."""
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
    snippets_file = root / "docs" / "snippets.cpp"
    snippets = read_snippets(snippets_file, problems)
    snippets |= read_snippets(snippets_file.with_suffix(".cu"), problems)
    write = arguments.write and problems.count == 0
    used, shown = set(), [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for path in shown:
        text = path.read_text(encoding="utf-8")
        lines = check_blocks(path, text.splitlines(), snippets, used, problems, not write)
        new = "\n".join(lines) + "\n"
        if write and new != text:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {path.relative_to(root)}")
    for name in snippets:
        if name not in used:
            problems.add(snippets_file, 1, f"no document shows snippet '{name}'")
    hidden = re.compile(r"^(\..*|build.*)$")
    for path in sorted(root.rglob("*.md")):
        if not any(hidden.match(part) for part in path.relative_to(root).parts):
            check_links(path, path.read_text(encoding="utf-8").splitlines(), problems)
    check_site(root, problems)
    if problems.count:
        print(f"{problems.count} problem(s)")
        return 1
    print(f"{len(snippets)} snippets in {len(shown)} documents, and their links: right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
