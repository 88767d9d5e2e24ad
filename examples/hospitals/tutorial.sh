#!/usr/bin/env bash
# All of docs/tutorial-hospitals.md in one go: three hospitals and a coordinator on this machine, from tables to
# predictions. Each line that begins with "$" is a command of the tutorial; what follows is what it said.
#
#   TUTORIAL_FOLDER   where everything is written (else a new temporary folder); its path should be short, since the
#                     sockets of the kits lie in it
#   TUTORIAL_PORT     the coordinator's port (else the one in federation.yaml)
#
# `graphsilo` and `python` must be found, as they are in an environment that is active.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${TUTORIAL_FOLDER:-$(mktemp -d "${TMPDIR:-/tmp}/hospitals.XXXXXX")}
mkdir -p "$folder"
cp -R "$here"/{make_tables.py,*.yaml,north,south,west} "$folder"
cd "$folder"
if [ -n "${TUTORIAL_PORT:-}" ]; then
    sed -i.before "s/port: [0-9]*/port: $TUTORIAL_PORT/" federation.yaml
fi

running="" # names of what runs in the background; the process of NAME is $pid_NAME

run() {
    printf '\n$ %s\n' "$*"
    eval "$*"
}

# What a person would leave running in a terminal of its own; what it says goes to NAME.log.
start() {
    local name=$1
    shift
    printf '\n$ %s\n' "$*"
    eval "$* >$name.log 2>&1 &"
    eval "pid_$name=$!"
    running="$running $name"
}

pid() { eval "echo \$pid_$1"; }

finish() {
    local code=$? name
    trap - EXIT
    for name in $running; do
        kill "$(pid "$name")" 2>/dev/null || true
    done
    wait || true
    if [ "$code" -ne 0 ]; then
        printf '\nThe tutorial stopped (exit code %s). What was said last:\n' "$code" >&2
        tail -n 5 ./*.log >&2 || true
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Waits until a command succeeds. A process of the federation that ends by itself ends the tutorial, and so does a job
# that fails.
until_so() {
    local name
    while ! "$@"; do
        if grep -s 'job .* failed:' coordinator.log >&2; then
            exit 1
        fi
        for name in $running; do
            if ! kill -0 "$(pid "$name")" 2>/dev/null; then
                echo "$name has ended by itself." >&2
                exit 1
            fi
        done
        sleep 0.2
    done
}
serves() { grep -q 'waiting for' coordinator.log 2>/dev/null; }
first_is_done() { grep -q '0001-fedridge is done' coordinator.log; }
second_trains() { grep -q 'FedAvg, seed 0 .* round' coordinator.log; }
second_is_done() { grep -q '0002-fedavg is done' coordinator.log; }

# Every hospital: its tables, and what it will tell of them.
run python make_tables.py
run head -n 2 north/stay.csv south/stay.csv
run graphsilo silo check north/silo.yaml
run graphsilo silo check south/silo.yaml
run graphsilo silo check west/silo.yaml

# The coordinator: a kit for everybody.
run graphsilo federation init federation.yaml --out kits

# Every hospital: take part. The order does not matter, and the coordinator may come later.
start north graphsilo join kits/north --silo north/silo.yaml
start south graphsilo join kits/south --silo south/silo.yaml
start west graphsilo join kits/west --silo west/silo.yaml

# The coordinator: takes jobs until it is stopped. The first one is FedRidge.
start coordinator graphsilo serve kits/coordinator
until_so serves
run graphsilo federation submit config.yaml --out result
until_so first_is_done
run graphsilo federation status

# A hospital: what left it, and its own predictions.
run 'graphsilo silo log kits/south/sent/south.jsonl --run "$(basename kits/south/results/*)"'
run 'graphsilo predict --run kits/south/results/*/south --unlabelled --top 10 --out south/predictions.csv'
run head -4 south/predictions.csv

# The coordinator: a second job, FedAvg.
run graphsilo federation submit fedavg.yaml --out fedavg
until_so second_trains
run graphsilo federation status
until_so second_is_done
kill "$(pid coordinator)"
wait "$(pid coordinator)" || true
running=" north south west"
cat coordinator.log

# For comparison, what no federation can do: all three in one process; and every hospital alone.
tables="--data north/tables.yaml --data south/tables.yaml --data west/tables.yaml"
time="--set partition.split=time --set partition.train_until=2025-07-31 --set partition.val_until=2025-09-30"
run "graphsilo run fedavg.yaml $tables $time --reference alone --reference fedridge --out together"

for name in north south west; do
    kill "$(pid "$name")"
    wait "$(pid "$name")" || true
    printf '\nWhat was to be read in the terminal of %s:\n' "$name"
    cat "$name.log"
done
running=""
printf '\nEverything is in %s\n' "$folder"
