# SPDX-License-Identifier: BSD-3-Clause
"""Write the gallery: a card for every example program, with the first sentence of its file."""

import ast
import re

#: The pictures of the programs that have one, as paths in the repository.
PICTURES = {
    "co2_smoothers": "docs/pictures/co2_smoothers.png",
    "qrnn_text": "docs/pictures/text_learning_curve.png",
    "s5_digits": "docs/pictures/digits_confusion.png",
    "sunspot_biquads": "docs/pictures/sunspot_biquads.png",
}


def description(path):
    """The opening text of a file: its docstring, or the comment below the SPDX line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    opening = re.match(r"// SPDX[^\n]*\n((?://[^\n]*\n)*)", text)
    return (
        "\n".join(line[2:].removeprefix(" ") for line in opening[1].splitlines()) if opening else ""
    )


def sentence(text):
    """The first sentence of the first paragraph, up to a full stop or a formula."""
    first = " ".join(text.split("\n\n")[0].split())
    match = re.match(r".+?\.(?= |$)", first)
    return match[0] if match else first.rstrip(":")


def formula(text):
    """The first indented block that is not a command."""
    for block in re.findall(r"(?:^    ?\S[^\n]*\n?)+|(?:^  \S[^\n]*\n?)+", text + "\n", re.M):
        if not re.search(r"pip install|mpirun|python ", block):
            return re.sub(r"^ {2,4}", "", block, flags=re.M).rstrip()
    return ""


def programs(root):
    found = sorted((root / "examples").glob("*.cpp")) + sorted(
        (root / "python" / "examples").glob("*.py")
    )
    return [p for p in found if re.search(r"\bmain\(", p.read_text(encoding="utf-8"))]


def calls(path):
    """The names of the library calls in a program and in the headers that it includes from its folder."""
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r'#include "(\w+\.hpp)"', text):
        text += (path.parent / name).read_text(encoding="utf-8")
    known = (
        "linear_attention_vjp",
        "linear_attention",
        "linear_scan_vjp",
        "linear_scan",
        "gated_scan",
        "qrnn_pool",
        "qrnn_layer",
        "selective_state_update",
        "selective_scan",
        "mamba_layer",
        "s5_layer",
        "s5",
        "lru",
    )
    return [c for c in known if re.search(rf"(?:scanrec(?:\.\w+|::\w+)*(?:\.|::)){c}\b", text)]


def write(root, out, source_page, escaped):
    lines = [
        "# Gallery\n",
        "Programs that learn, forecast and measure, from [examples](/source/examples/index.md) in C++ "
        "and [python/examples](/source/python/examples/index.md). `scripts/demo` runs the C++ programs that have a "
        "picture here, and draws the pictures.\n",
    ]
    for heading, suffix in (("In C++", ".cpp"), ("In Python", ".py")):
        lines += [f"## {heading}\n", ":::::{grid} 1 1 2 2\n:gutter: 3\n:class-container: gallery\n"]
        for path in programs(root):
            if path.suffix != suffix:
                continue
            name = path.relative_to(root).as_posix()
            about, picture = description(path), PICTURES.get(path.stem)
            lines += [
                "::::{grid-item-card} " + path.name,
                f":link: {source_page(name)[1:-3]}",
                ":link-type: doc",
            ]
            if picture:
                if not (root / picture).exists():
                    raise SystemExit(f"docs/site/gallery.py: {picture} does not exist")
                lines += [
                    f":img-top: /{picture}",
                    f":img-alt: {picture.rpartition('/')[2][:-4].replace('_', ' ')}",
                ]
            lines += ["", escaped(sentence(about)), ""]
            if not picture and formula(about):
                lines += ["```text", formula(about), "```", ""]
            used = calls(path)
            if used:
                lines += [":::{card-footer}", " ".join(f"`{c}`" for c in used), ":::"]
            lines += ["::::", ""]
        lines += [":::::", ""]
    (out / "gallery.md").write_text("\n".join(lines), encoding="utf-8")
