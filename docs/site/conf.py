# SPDX-License-Identifier: BSD-3-Clause
"""Settings of Sphinx. stage.py writes the source pages. Built pages load nothing from other sites."""

import pathlib
import re

_root = pathlib.Path(__file__).resolve().parents[2]
_version = (_root / "include" / "scanrec" / "version.hpp").read_text(encoding="utf-8")

project = "scanrec"
author = "the scanrec authors"
copyright = "the scanrec authors, BSD-3-Clause"
release = version = ".".join(re.findall(r"VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", _version))

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
highlight_language = "text"
python_maximum_signature_line_length = 72
toc_object_entries = True
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp"

html_theme = "furo"
html_title = f"scanrec {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/mark.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_domain_indices = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
_light, _dark = "#1f5f99", "#7db8ec"
html_theme_options = {
    "light_logo": "mark.svg",
    "dark_logo": "mark.svg",
    "light_css_variables": {
        "color-brand-primary": _light,
        "color-brand-content": _light,
        "color-brand-visited": _light,
    },
    "dark_css_variables": {
        "color-brand-primary": _dark,
        "color-brand-content": _dark,
        "color-brand-visited": _dark,
    },
}
