#!/usr/bin/env bash
# run.sh [--install] [PAGE…]: looks at pages of the tool in a headless Chromium; see check.mjs for what must hold.
#
# Without pages it makes three: a short run of a workload with all measures, one of a seed's preset, and a comparison of a program.
# Needs node, npm and chromium; --install gets them with apt-get (Debian, root or sudo). npm installs axe-core and playwright-core
# into a folder that is removed at the end.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${1:-}" = --install ]; then
    shift
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    missing=()
    command -v npm >/dev/null || missing+=(npm)
    command -v node >/dev/null || missing+=(nodejs)
    command -v chromium >/dev/null || missing+=(chromium)
    if [ ${#missing[@]} -gt 0 ]; then
        $sudo apt-get update -q
        $sudo apt-get install -qy --no-install-recommends "${missing[@]}"
    fi
fi
for program in node npm chromium; do
    command -v "$program" >/dev/null || { echo "run.sh: $program is not installed; --install gets it" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/check.mjs" "$work"
PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --prefix "$work" --no-audit --no-fund --silent

pages=()
for page in "$@"; do pages+=("$(realpath "$page")"); done
if [ ${#pages[@]} -eq 0 ]; then
    cd "$here/../.."
    cargo ample bench larson server-uptime --preset full --set server-uptime.requests=500 --runs 10 --measures all --threads 1,2 \
        --allocators ample,glibc,glibc:mmap_threshold=131072,single-lock --out "$work/run" >"$work/log" || { cat "$work/log"; exit 1; }
    cargo ample bench --preset seed-004 --runs 2 --allocators ample,glibc,glibc:mmap_threshold=131072 --threads 1,2 \
        --set large-block.iterations=50 --set large-block-compute.iterations=50 --out "$work/seed" >"$work/log" || { cat "$work/log"; exit 1; }
    cargo ample compare --allocators ample,glibc --runs 10 --out "$work/compare" -- \
        sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do sort Cargo.lock; done' >"$work/log" || { cat "$work/log"; exit 1; }
    pages=("$work/run/report.html" "$work/seed/report.html" "$work/compare/report.html")
fi
node "$work/check.mjs" "$(command -v chromium)" "${pages[@]}"
