#!/usr/bin/env bash
# Runs the experiments and brings what they found into their folders: results/study.json and results/summary.csv, the report's
# figures that a folder keeps, expected.json, and what analyze.py computes (results/tables.md, more figures and tables).
#
# usage: experiments/run.sh [NAME]...      (01 or 01-generalization-gap; default: all)
#
# Needs: batchlab (or BATCHLAB=path of the program), the data sets in data/ or BATCHLAB_DATA (mnist, fashion-mnist),
# and python3 (or PYTHON=path) with numpy, scipy and matplotlib. Trials run JOBS at a time (default 2), one thread each. Stopped
# and started again, it goes on where it was; runs lie in results/.
set -euo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  exit 0
fi
cd "$(dirname "$0")/.."
batchlab=${BATCHLAB:-batchlab}
python=${PYTHON:-python3}
command -v "$batchlab" >/dev/null || { echo "$batchlab: not found; install batchlab, or set BATCHLAB to the program" >&2; exit 1; }
"$python" -c 'import numpy, scipy, matplotlib' || { echo "$python needs numpy, scipy and matplotlib" >&2; exit 1; }

folders=()
for name in "${@:-}"; do
  found=(experiments/"${name%/}"*/)
  if [ ! -f "${found[0]}config.toml" ]; then
    echo "no experiment '$name'; there are: $(cd experiments && echo [0-9]*/ | tr -d /)" >&2
    exit 2
  fi
  folders+=("${found[@]%/}")
done

for folder in "${folders[@]}"; do
  [ -f "$folder/config.toml" ] || continue
  run=results/$(basename "$folder")
  start=$SECONDS
  echo "== $folder"
  command=run
  if grep -q '^\[critical_batch\]' "$folder/config.toml"; then
    command=critical-batch
  fi
  "$batchlab" "$command" "$folder/config.toml" --results results --jobs "${JOBS:-2}" --threads 1 -q
  mkdir -p "$folder/results" "$folder/figures"
  cp "$run/study.json" "$run/summary.csv" "$folder/results/"
  for figure in "$folder"/figures/*.svg; do
    # Those that analyze.py draws are not in the run's folder.
    [ ! -f "$run/figures/${figure##*/}" ] || cp "$run/figures/${figure##*/}" "$figure"
  done
  if [ "$command" = critical-batch ]; then
    cp "$run/steps_to_target.csv" "$run/critical_batch.csv" "$folder/results/"
  else
    "$python" experiments/expected.py "$folder"
  fi
  if [ -f "$folder/analyze.py" ]; then
    "$python" "$folder/analyze.py" "$run" > "$folder/results/tables.md"
  fi
  echo "== $folder: $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
done
