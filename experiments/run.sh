#!/usr/bin/env bash
# Runs the experiments and brings what they found into their folders: results/study.json and results/summary.csv, the report's
# figures that a folder keeps, expected.json, and what analyze.py computes (results/tables.md, more figures and tables).
#
# usage: experiments/run.sh [NAME]...      (01 or 01-generalization-gap; default: all but 09-critical-batch-cnn,
#                                           which alone takes longer than all others)
#
# Needs: batchlab (or BATCHLAB=path of the program), the data sets in data/ or BATCHLAB_DATA (mnist, fashion-mnist),
# and python3 (or PYTHON=path) with numpy, scipy and matplotlib. Trials run JOBS at a time (default 2), one thread each. Stopped
# and started again, it goes on where it was; runs lie in results/.
set -euo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0"
  exit 0
fi
cd "$(dirname "$0")/.."
batchlab=${BATCHLAB:-batchlab}
python=${PYTHON:-python3}
command -v "$batchlab" >/dev/null || { echo "$batchlab: not found; install batchlab, or set BATCHLAB to the program" >&2; exit 1; }
"$python" -c 'import numpy, scipy, matplotlib' || { echo "$python needs numpy, scipy and matplotlib" >&2; exit 1; }

folders=()
if [ $# -eq 0 ]; then
  for folder in experiments/[0-9]*/; do
    [ "$folder" = experiments/09-critical-batch-cnn/ ] || folders+=("${folder%/}")
  done
fi
for name in "$@"; do
  found=(experiments/"${name%/}"/)
  [ -d "${found[0]}" ] || found=(experiments/"${name%/}"*/)
  if [ ! -f "${found[0]}README.md" ]; then
    echo "no experiment '$name'; there are: $(cd experiments && echo [0-9]*/ | tr -d /)" >&2
    exit 2
  fi
  folders+=("${found[@]%/}")
done

for folder in "${folders[@]}"; do
  run=results/$(basename "$folder")
  start=$SECONDS
  if [ ! -f "$folder/config.toml" ]; then
    # Plans, which train nothing. The figures and tables that the folder keeps are NAME-figure.svg, NAME-table.csv.
    for plan in "$folder"/*.toml; do
      [ -f "$plan" ] || continue
      name=$(basename "$plan" .toml)
      echo "== $plan"
      "$batchlab" plan "$plan" --out "$run/$name"
      for kept in "$folder/figures/$name"-*.svg "$folder/results/$name"-*.csv; do
        made=${kept##*/"$name"-}
        case "$kept" in
          *.svg) cp "$run/$name/figures/plan-$made" "$kept" ;;
          *) cp "$run/$name/$made" "$kept" ;;
        esac
      done
    done
    continue
  fi
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
