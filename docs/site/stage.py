# SPDX-License-Identifier: BSD-3-Clause
"""Assemble the sources of the site: documents at their repository paths, generated pages, and a page for
every file that documents link to.

    python docs/site/stage.py build/docs-source
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import cpp_reference
import figures
import gallery
import python_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A code block, a code span, or a link with its address; whichever begins first matches.
CODE_OR_LINK = re.compile(
    r"^ *(```+|~~~+).*?^ *\1 *$|(`+)(?!`).*?(?<!`)\2(?!`)|"
    r"(!?\[(?:[^\]`]|`[^`]*`)*\]\()\s*<?([^)\s>]+)>?\)",
    re.S | re.M,
)
LANGUAGES = {
    ".hpp": "cpp",
    ".cpp": "cpp",
    ".cuh": "cpp",
    ".cu": "cpp",
    ".h": "c",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".txt": "text",
}
PICTURES = (".png", ".svg")


def escaped(text):
    return cpp_reference.escaped(text)


class Site:
    def __init__(self, out):
        self.out, self.pages, self.sources = out, set(), set()
        self.index = (ROOT / "docs" / "site" / "index.md").read_text(encoding="utf-8")
        tracked = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        self.files = {name for name in tracked if (ROOT / name).is_file()}

    def source_page(self, name):
        """Return the address of the page that shows a file or lists a folder, and request that page."""
        self.sources.add(name)
        return f"/source/{name}/index.md" if (ROOT / name).is_dir() else f"/source/{name}.md"

    def document(self, name):
        """Copy a document and everything it links to, so that the links work."""
        if name in self.pages:
            return
        self.pages.add(name)
        text = (ROOT / name).read_text(encoding="utf-8")
        if not re.search(rf"^(?:.*<)?{name[:-3]}>?$", self.index, re.M):
            text = f"---\norphan: true\n---\n\n{text}"  # reached only by links
        self.write(name, CODE_OR_LINK.sub(lambda m: self._link(name, m) if m[4] else m[0], text))

    def which_call(self, cpp, python):
        """Link the calls in the tables of docs/which_call.md to the reference of their column's
        language or framework."""
        heads = {"NumPy": "scanrec", "JAX": "scanrec.jax", "PyTorch": "scanrec.torch"}
        lines, columns = [], []
        for line in (self.out / "docs" / "which_call.md").read_text(encoding="utf-8").splitlines():
            cells = (
                [cell.strip() for cell in line.strip("|").split("|")]
                if line.startswith("| ")
                else []
            )
            if cells and cells[0] in ("I have", "I want"):
                columns = cells[:]
            for at in range(1, len(cells)):

                def link(code, module=heads.get(columns[at])):  # noqa: B008
                    if module is None:
                        return (
                            f"[{code[0]}](#{cpp_reference.target(code[1])})"
                            if code[1] in cpp
                            else code[0]
                        )
                    full = f"{module}.{code[1]}"
                    return f"{{py:obj}}`{code[1]} <{full}>`" if full in python else code[0]

                cells[at] = re.sub(r"`([\w:.]+)`", link, cells[at])
            lines.append(f"| {' | '.join(cells)} |" if cells else line)
        self.write("docs/which_call.md", "{.calls}\n" + "\n".join(lines) + "\n")

    def _link(self, name, match):
        link = match[4].partition("#")[0]
        if re.match(r"[a-z][a-z0-9+.-]*:", link) or not link:
            return match[0]
        goal = os.path.normpath((pathlib.PurePosixPath(name).parent / link).as_posix())
        if goal.endswith(".md") and goal in self.files:
            self.document(goal)
            return match[0]
        if goal.endswith(PICTURES):
            self.copy(goal)
            return match[0]
        if not (ROOT / goal).exists():
            return match[0]  # Sphinx reports the broken link
        return f"{match[3]}{self.source_page(goal)})"

    def write(self, name, text):
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy(self, name):
        (self.out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, self.out / name)

    def show_sources(self):
        """Write pages of the linked files; a linked folder includes its files."""
        for name in sorted(self.sources):
            if (ROOT / name).is_dir():
                self._folder(name)
        for name in sorted(self.sources):
            if (ROOT / name).is_file():
                language = LANGUAGES.get(pathlib.PurePosixPath(name).suffix, "text")
                text = (ROOT / name).read_text(encoding="utf-8").rstrip("\n")
                self.write(
                    f"source/{name}.md",
                    "---\norphan: true\nnosearch: true\n---\n\n"
                    f"# {escaped(name)}\n\n``````{{code-block}} {language}\n{text}\n``````\n",
                )

    def _folder(self, name):
        lines = [
            "---\norphan: true\nnosearch: true\n---\n",
            f"# {escaped(name)}\n",
            "| | |\n|---|---|",
        ]
        for path in sorted(self.files):
            if pathlib.PurePosixPath(path).parent.as_posix() != name:
                continue
            words = ""
            if path.endswith((".py", ".hpp", ".cpp", ".cuh", ".cu", ".h")):
                words = escaped(gallery.sentence(gallery.description(ROOT / path)))
            if pathlib.PurePosixPath(path).suffix in LANGUAGES:
                page = self.source_page(path)
                lines.append(f"| [{escaped(pathlib.PurePosixPath(path).name)}]({page}) | {words} |")
        self.write(f"source/{name}/index.md", "\n".join(lines) + "\n")


def landing():
    """Return index.md with its @names@ replaced by the C++ snippets of README.md and
    docs/which_call.md, and by the parts of README.md's first Python block."""
    text = (ROOT / "docs" / "site" / "index.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    which_call = (ROOT / "docs" / "which_call.md").read_text(encoding="utf-8")
    snippet = re.compile(r"<!-- snippet: (\w+) -->\n```cpp\n(.*?)```", re.S)
    blocks = {m[1]: m[2] for m in snippet.finditer(readme + which_call)}
    python = re.search(r"```python\n(.*?)```", readme, re.S)[1].strip().split("\n\n")
    blocks |= dict(zip(("numpy", "jax", "torch"), python))
    return re.sub(r"^@(\w+)@$", lambda m: blocks[m[1]].strip(), text, flags=re.M)


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    site = Site(out)
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ):
        site.document(name)
    for folder in ("docs/pictures", "bench/results"):
        for path in sorted((ROOT / folder).iterdir()):
            if path.suffix in PICTURES:
                site.copy(f"{folder}/{path.name}")
    for folder in ("examples", "python/examples"):
        site.source_page(folder)
    site.write("index.md", landing())
    cpp = cpp_reference.write(ROOT, out, site.pages, site.source_page)
    site.which_call(cpp, python_reference.write(ROOT, out, site.pages))
    gallery.write(ROOT, out, site.source_page, escaped)
    figures.write(ROOT, out)
    site.show_sources()
    print(f"{len(site.pages)} documents, {len(site.sources)} files shown")


if __name__ == "__main__":
    main()
