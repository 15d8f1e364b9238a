# SPDX-License-Identifier: BSD-3-Clause
"""Command line options and records of results, for benchmarks with and without JAX."""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import subprocess
import time


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for results")
    parser.add_argument(
        "--machine", default=platform.machine(), help="name of the machine in the record"
    )
    return parser


def commit():
    """The commit of the repository, or "unknown" outside of a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.check_output(command, cwd=pathlib.Path(__file__).parent, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.strip()


def write(args, name, rows, context):
    """Write rows, the machine, the commit and the entries of `context` to args.out/name.json. Does
    nothing without args.out."""
    if args.out is None:
        return
    args.out.mkdir(parents=True, exist_ok=True)
    about = {
        "machine": args.machine,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        **context,
    }
    (args.out / f"{name}.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
