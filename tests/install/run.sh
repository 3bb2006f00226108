#!/usr/bin/env bash
# run.sh: `cargo install --profile tool --path tool`, then the tool in an empty folder, without an environment and without a clone beside it.
#
# AMPLE_INSTALLED names a tool that is installed already.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ample=${AMPLE_INSTALLED:-}
if [ -z "$ample" ]; then
    cargo install --quiet --locked --profile tool --path "$repository/tool" --root "$work/root"
    ample="$work/root/bin/ample"
fi
cp "$ample" "$work/ample"
mkdir "$work/empty"
cd "$work/empty"
tool() { env -i XDG_CACHE_HOME="$work/cache" "$work/ample" "$@"; }
fail() { echo "run.sh: $*" >&2; exit 1; }

tool run -- /bin/sh -c 'grep -m1 -o "[^ ]*libample.so" /proc/self/maps' >served
carried=$(cat served)
case $carried in
"$work"/cache/ample/*/libample.so) ;;
*) fail "malloc is served by '$carried', not by a library in the cache" ;;
esac
# A damaged file is mended before it is used.
printf damaged >"$carried"
tool run --check -- /bin/true 2>checked || fail "$(cat checked)"
tool bench --quick --runs 3 --threads 1,2 --allocators ample,glibc,floor --out run >summary || fail "$(cat summary)"
[ -s run/report.html ] && [ -s run/report.md ] || fail "no report"
grep -q '"found": "carried by the tool"' run/run.json || fail "the library is not the one that the tool carries"
# Without a cache that takes files, one line says what to do.
if env -i XDG_CACHE_HOME=/proc/nothing "$work/ample" run -- /bin/true 2>refused; then fail "a cache in /proc"; fi
[ "$(wc -l <refused)" = 1 ] && grep -q 'set XDG_CACHE_HOME' refused || fail "$(cat refused)"
# What needs no cache is listed all the same, with advice that needs no clone.
env -i XDG_CACHE_HOME=/proc/nothing "$work/ample" allocators >listed || fail "no list without a cache"
grep -q '^ *glibc ' listed && grep -q 'set XDG_CACHE_HOME' listed || fail "$(cat listed)"
grep -q 'ample allocators' listed && ! grep -q 'cargo ample allocators' listed || fail "$(cat listed)"
echo "an installed tool serves, measures and reports without a clone: $(ls "$work"/cache/ample/*)"
