# SPDX-License-Identifier: BSD-3-Clause
"""Write the pages of the Python reference from signatures and docstrings in the sources.

The sources are parsed, so neither the built library nor JAX nor PyTorch is needed. Only the package's file
_op/doc.py is run. It composes the docstrings of functions with the decorator `documented`.

A module is public if it has an `__all__`, and neither its name nor that of a parent package begins with an
underscore. Names in `__all__` are followed to their definitions.
"""

import ast
import copy
import re
import runpy

SECTION = re.compile(r"^-{3,}$")
LISTS = {"Parameters", "Raises", "Attributes", "Other Parameters"}


class Module:
    def __init__(self, package, name):
        path = package.joinpath(*name.split(".")[1:])
        self.is_package = path.is_dir()
        self.path = path / "__init__.py" if self.is_package else path.with_suffix(".py")
        self.name, self.tree = name, ast.parse(self.path.read_text(encoding="utf-8"))

    def exported(self):
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
        return None


def public_modules(package):
    names = []
    for path in sorted(package.rglob("*.py")):
        parts = ["scanrec", *path.relative_to(package).with_suffix("").parts]
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            names.append(".".join(parts))
    return sorted(names)


def is_overload(node):
    """Whether a node is only a signature for type checkers; the function itself has all arguments."""
    return any(ast.unparse(each).endswith("overload") for each in node.decorator_list)


def made(module, call):
    """The definition of the function that ``named(name, body, **options)`` of ``scanrec.compat``
    makes."""
    name, body = (ast.unparse(x).strip("'") for x in call.args)
    definitions = {node.name: node for node in module.tree.body if hasattr(node, "name")}
    function = copy.deepcopy(definitions[body])
    function.name, given = name, function.args
    options = {option.arg: option.value for option in call.keywords}
    keyword_only = ast.literal_eval(options.pop("keyword_only", ast.Constant("")))
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    kept = [x for x in zip(given.args[1:], defaults[1:]) if x[0].arg not in options]
    by_name = [x for x in kept if x[0].arg == keyword_only]
    given.kwonlyargs += [argument for argument, _ in by_name]
    given.kw_defaults += [default for _, default in by_name]
    by_position = [x for x in kept if x[0].arg != keyword_only]
    given.args = [argument for argument, _ in by_position]
    given.defaults = [default for _, default in by_position if default is not None]
    return function


def with_members(module, namespace):
    """A class with the members of its private bases, and the definitions of functions that ``named`` makes."""
    private = {b.id for b in namespace.bases if isinstance(b, ast.Name) and b.id.startswith("_")}
    inherited = [m for n in module.tree.body if getattr(n, "name", "") in private for m in n.body]
    whole = copy.copy(namespace)
    whole.body = [
        made(module, member.value.args[0])
        if isinstance(member, ast.AnnAssign) and "named(" in ast.unparse(member.value or member)
        else member
        for member in [*namespace.body, *inherited]
    ]
    return whole


def find(package, module, name, depth=0):
    """(the module that defines a name, its node), or (None, None) if the name is a module or
    comes from another package."""
    for node in module.tree.body:
        is_named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
        if is_named and isinstance(node, ast.ClassDef):
            return module, with_members(module, node)
        if is_named and not is_overload(node):
            return module, node
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            if ast.unparse(node.value or node).startswith("named("):
                return module, made(module, node.value)
    origin, imported = source(package, module, name)
    if origin is None or depth == 8:
        return None, None
    return find(package, origin, imported, depth + 1)


def source(package, module, name):
    """The module of this package that a name is imported from, and its name there, or
    (None, None)."""
    for node in module.tree.body:
        if not (isinstance(node, ast.ImportFrom) and node.level and node.module):
            continue
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                above = module.name.split(".")
                above = above[: len(above) - node.level + module.is_package]
                return Module(package, ".".join([*above, node.module])), alias.name
    return None, None


def text_of(package, module, name):
    """The string assigned to a name, in a module or in the module it is imported from."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return text_of(package, *source(package, module, name))


def compose(package, module, function):
    """Replace the docstring of a function by the one that ``documented`` composes."""
    for each in function.decorator_list:
        if not ast.unparse(each).startswith("documented("):
            continue
        texts = [text_of(package, module, ast.unparse(argument)) for argument in each.args]
        given = function.args
        parameters = [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        rule = runpy.run_path(str(package / "_op" / "doc.py"))["compose"]
        doc = rule(parameters, *texts, ast.get_docstring(function) or "")
        function.body.insert(0, ast.Expr(ast.Constant(doc)))


def describe(package, module, node):
    """Add the description and the public members that a layer inherits from scanrec._layers."""
    for base in getattr(node, "bases", ()):
        where, spec = find(package, module, ast.unparse(base).partition("[")[0])
        if where is None or not where.name.startswith("scanrec._layers."):
            continue
        if spec.name != "Spec":  # the base class of descriptions
            doc = f"{ast.get_docstring(node)}\n\n{ast.get_docstring(spec)}"
            node.body[0].value.value = doc
        node.body += [each for each in spec.body if getattr(each, "name", "_")[0] != "_"]


def signature(function, method=False):
    arguments = ast.unparse(function.args)
    if method:
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    return f"({arguments}){returns}"


def indented(text, by=3):
    return "\n".join(" " * by + line if line else "" for line in text.splitlines())


def converted(doc, documents):
    """Convert a numpydoc docstring to reStructuredText: sections become field lists, and parameters
    become definitions."""
    lines, out = doc.splitlines(), []
    heads = [i for i in range(len(lines) - 1) if SECTION.match(lines[i + 1]) and lines[i].strip()]
    out.append("\n".join(lines[: heads[0] if heads else len(lines)]).strip())
    for head, after in zip(heads, [*heads[1:], len(lines)]):
        title, body = lines[head].strip(), lines[head + 2 : after]
        if title in LISTS:
            entries = []
            for line, below in zip(body, [*body[1:], ""]):
                names, _, kind = line.partition(" : ")
                described = below[:1] == " "
                is_name = re.fullmatch(r"[\w*., ]+:?", names) and names[0] != " "
                if is_name and (kind or described):
                    each = (
                        name.strip().replace("*", "\\*") for name in names.rstrip(":").split(",")
                    )
                    words = ", ".join(f"**{name}**" for name in each)
                    if described:
                        entries.append(f"{words} : {kind.rstrip(':')}" if kind else words)
                    else:
                        entries += [words, f"    {kind}"]
                else:  # the description of an entry, or text after all entries
                    entries.append(line)
            out.append(f":{title}:\n" + indented("\n".join(entries).strip("\n")))
        else:
            out.append(f":{title}:\n" + indented("\n".join(body).strip("\n")))
    text = "\n\n".join(out)
    return re.sub(
        r"``(docs/\w+\.md)``",
        lambda m: f":doc:`{m[1]} </{m[1][:-3]}>`" if m[1] in documents else m[0],
        text,
    )


def entry(node, documents, method=False):
    doc = converted(ast.get_docstring(node) or "", documents)
    if isinstance(node, ast.FunctionDef):
        kind = "method" if method else "function"
        shown = signature(node, method)
        for decorator in node.decorator_list:
            if ast.unparse(decorator) == "property":
                kind, shown = "property", ""
        return f".. py:{kind}:: {node.name}{shown}\n\n{indented(doc)}\n"
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and not is_overload(n)]
    initial = next((n for n in methods if n.name == "__init__"), None)
    shown = signature(initial, True).split(" -> ")[0] if initial else ""
    # Bare names are not shown, except NamedTuple: they are internal classes or belong to the language.
    bases = ", ".join(
        f"``{b}``"
        for b in map(ast.unparse, node.bases)
        if "." in b.partition("[")[0] or b == "NamedTuple"
    )
    parts = [f".. py:class:: {node.name}{shown}\n"]
    if bases:
        parts.append(indented(f"Bases: {bases}.") + "\n")
    parts.append(indented(doc) + "\n")
    if initial and ast.get_docstring(initial):
        parts.append(indented(converted(ast.get_docstring(initial), documents)) + "\n")
    for member in node.body:
        if (
            isinstance(member, ast.FunctionDef)
            and not member.name.startswith("_")
            and ast.get_docstring(member)
        ):
            parts.append(indented(entry(member, documents, True)) + "\n")
        if (
            isinstance(member, ast.AnnAssign)
            and not initial
            and isinstance(member.target, ast.Name)
            and member.target.id[0] != "_"
        ):
            parts.append(
                indented(
                    f".. py:attribute:: {member.target.id}\n   :type: {ast.unparse(member.annotation)}\n"
                )
            )
    return "\n".join(parts)


def exports(package):
    """(module, [(name, its node)]) of every public module. Leaves out names that are modules or
    come from other packages."""
    for name in public_modules(package):
        module = Module(package, name)
        found = []
        for item in module.exported() or []:
            where, node = find(package, module, item)
            if node is not None:
                describe(package, where, node)
                compose(package, where, node)
                found.append((item, node))
        if found:
            yield module, found


def problems(root):
    """Messages about public names without a docstring."""
    return [
        f"{module.name}.{item} has no docstring"
        for module, found in exports(root / "python" / "src" / "scanrec")
        for item, node in found
        if not ast.get_docstring(node)
    ]


def headed(title):
    return [title, "=" * len(title), ""]


def module_page(module, found, documents):
    """The lines of a module's page: its docstring, a table of names, an entry for each."""
    lines = [*headed(module.name), f".. py:module:: {module.name}", ""]
    # Indented text is code, even without a preceding double colon.
    doc = re.sub(r"(?<!::)\n\n(?=    \S)", "\n\n::\n\n", ast.get_docstring(module.tree) or "")
    lines += [doc, "", f".. py:currentmodule:: {module.name}", ""]
    table, entries = [], []
    for item, node in found:
        summary = ast.get_docstring(node).split("\n\n")[0].replace("\n", " ")
        role = "class" if isinstance(node, ast.ClassDef) else "func"
        table += [f"   :py:{role}:`{item}`", f"      {summary.removesuffix('::')}"]
        entries.append(entry(node, documents))
    return [*lines, ".. container:: summary", "", *table, "", *entries]


def overview_page(title, about, modules, contents):
    """The lines of a page that lists modules and their names; `contents` lists the pages below it."""
    lines = [*headed(title), about, ""]
    for module, found in modules:
        words = (ast.get_docstring(module.tree) or "").split("\n\n")[0].replace("\n", " ")
        names = ", ".join(f":py:obj:`{item} <{module.name}.{item}>`" for item, _ in found)
        lines += [f":doc:`{module.name}`", f"   {words}", "", f"   {names}", ""]
    shown = [f"   {name.removeprefix('scanrec.compat.')} <{name}>" for name in contents]
    return [*lines, ".. toctree::", "   :hidden:", "", *shown, ""]


def write(root, out, documents):
    """Write a page for each public module, and overviews. Return the documented names."""
    package, folder = root / "python" / "src" / "scanrec", out / "reference" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    if found := problems(root):
        raise SystemExit("\n".join(found))

    def save(name, lines):
        (folder / f"{name}.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")

    own, others = (
        [],
        [],
    )  # `others` has the many modules that replace other packages; their overview is separate
    for module, names in exports(package):
        save(module.name, module_page(module, names, documents))
        (others if module.name.startswith("scanrec.compat.") else own).append((module, names))
    about = (
        "These pages are made from the docstrings. :doc:`/docs/python_derivatives` describes how calls "
        "behave in JAX and PyTorch, with tables of derivatives, batching and compilation."
    )
    contents = [module.name for module, _ in own]
    if others:
        compat = Module(package, "scanrec.compat")
        words = f"{ast.get_docstring(compat.tree)}\n\nDifferences: :doc:`/docs/compat`."
        save(
            "scanrec.compat",
            overview_page("scanrec.compat", words, others, [m.name for m, _ in others]),
        )
        about += " :doc:`scanrec.compat` has the scan functions of other packages."
        contents.append("scanrec.compat")
    save("index", overview_page("Python reference", about, own, contents))
    return {f"{module.name}.{name}" for module, names in (*own, *others) for name, _ in names}
