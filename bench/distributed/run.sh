#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run both programs of this directory on this machine, and write their results to one file.
# bench_distributed runs with 1, 2 and 4 processes, bench_distributed_fold with one.
# Use: bench/distributed/run.sh [--quick] BUILD TARGET.json [MACHINE]   BUILD is the folder with both programs
set -euo pipefail

python=${python:-python3}
quick=() fold=()
if [[ ${1:-} == --quick ]]; then
  quick=(--quick) fold=(--parts 256 --group 16 --lanes 1 64 --runs 2)
  shift
fi
if (($# < 2)); then
  echo 'use: bench/distributed/run.sh [--quick] BUILD TARGET.json [MACHINE]' >&2
  exit 2
fi
programs=$1 target=$2 machine=${3:-unknown}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# Settings of Open MPI 4 and 5 and of OpenMP: run as root in containers, allow more processes than cores,
# do not bind the threads of a process to cores, and let waiting processes and threads yield their core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
  PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMP_PROC_BIND=false \
  OMP_WAIT_POLICY=passive
for processes in 1 2 4; do
  mpirun -n "$processes" "$programs/bench_distributed" "${quick[@]}" --json "$parts/$processes.json"
done
"$programs/bench_distributed_fold" "${fold[@]}" --json "$parts/fold.json"
"$python" - "$parts" "$target" "$machine" <<'PYTHON'
import json, pathlib, sys
parts, target, machine = sys.argv[1:]
read = {name: json.loads(pathlib.Path(parts, f"{name}.json").read_text())
        for name in ("1", "2", "4", "fold")}
context = {**read["fold"]["context"], **read["1"]["context"], **read["2"]["context"],
           "machine": machine, "processes": [1, 2, 4]}
lines = ",\n".join(f' "{name}": [\n  ' + ",\n  ".join(json.dumps(row) for row in rows) + "\n ]"
                   for name, rows in (("phases", sum((read[p]["rows"] for p in "124"), [])),
                                      ("fold", read["fold"]["rows"])))
pathlib.Path(target).write_text(f'{{\n "context": {json.dumps(context)},\n{lines}\n}}\n')
PYTHON
