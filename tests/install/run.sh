#!/usr/bin/env bash
# run.sh: `cargo xtask package`, then what is in the packages: the tool in an empty folder, without an environment and without a clone beside it;
# programs that are linked with the library; the Debian package in a system of its own, which is an empty folder. Takes pkg-config, and dpkg for the last.
#
# AMPLE_INSTALLED names a tool that is installed already: then it alone is tried.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "run.sh: $*" >&2; exit 1; }

ample=${AMPLE_INSTALLED:-}
if [ -z "$ample" ]; then
    (cd "$repository" && cargo xtask package) | tee "$work/packages"
    archive=$(grep -o '^/.*\.tar\.gz' "$work/packages")
    prefix="$work/a prefix"
    mkdir "$prefix"
    tar -xzf "$archive" --strip-components=1 -C "$prefix"
    ample="$prefix/bin/ample"
fi
cp "$ample" "$work/ample"
mkdir "$work/empty"
cd "$work/empty"
tool() { env -i XDG_CACHE_HOME="$work/cache" "$work/ample" "$@"; }

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
[ -z "${AMPLE_INSTALLED:-}" ] || exit 0

# Linked programs, by what pkg-config tells; the prefix has a space in its name.
version=$("$ample" --version)
version=${version#ample }
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
[ "$(pkg-config --modversion ample)" = "$version" ] || fail "pkg-config has another version than $version"
link() { # link FILE OPTION…: a program that is linked so
    local file=$1
    shift
    eval "set -- \"\$@\" $(pkg-config --cflags --libs ample)"
    "${CC:-cc}" -o "$file" "$repository/tests/install/linked.c" "$@" || fail "$file does not link"
}
link shared
[ "$(LD_LIBRARY_PATH="$prefix/lib" ./shared)" = "$version served" ] || fail "a linked program is not served"
if ./shared 2>missing; then fail "a linked program runs without the library"; fi
grep -q 'libample\.so\.[0-9]' missing || fail "$(cat missing)"
"${CC:-cc}" -o archive "$repository/tests/install/linked.c" -I"$prefix/include" -L"$prefix/lib" -l:libample.a || fail "the archive does not link"
[ "$(./archive)" = "$version served" ] || fail "a program with the archive in it is not served"
link alone -static
[ "$(./alone)" = "$version served" ] || fail "a static program is not served"
[ "$(LD_PRELOAD=libample.so LD_LIBRARY_PATH="$prefix/lib" grep -c libample.so.0 /proc/self/maps)" -gt 0 ] || fail "not preloaded by its name"
echo "programs link with the library and with the archive: $(pkg-config --cflags --libs ample)"

# The package: installed, found by the linker and dpkg, removed.
package=$(grep -o '^/.*\.deb' "$work/packages") || { echo "no Debian package was made: $(tail -1 "$work/packages")"; exit 0; }
system="$work/system"
mkdir -p "$system/var/lib/dpkg/"{info,updates,triggers}
: >"$system/var/lib/dpkg/status"
dpkg() { PATH="$PATH:/usr/sbin:/sbin" command dpkg --root="$system" --force-not-root --force-depends --log="$work/dpkg.log" "$@"; }
dpkg --install "$package" >installed 2>&1 || fail "$(cat installed)"
"$system/usr/bin/ample" --version | grep -qx "ample $version" || fail "the packaged tool is not $version"
triplet=$("${CC:-cc}" -print-multiarch)
[ -e "$system/usr/lib/$triplet/libample.so" ] && [ -e "$system/usr/share/man/man1/ample-compare.1" ] \
    && grep -q "^clap " "$system/usr/share/doc/ample/third-party-notices.txt" || fail "$(dpkg --listfiles ample)"
PKG_CONFIG_PATH="$system/usr/lib/$triplet/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$system" link packaged
[ "$(LD_LIBRARY_PATH="$system/usr/lib/$triplet" ./packaged)" = "$version served" ] || fail "a program linked with the package is not served"
needed=$(dpkg-deb --field "$package" Depends)
case $needed in
"libc6 (>= "*) ;;
*) fail "it depends on: $needed" ;;
esac
dpkg --remove ample >removed 2>&1 || fail "$(cat removed)"
left=$(find "$system" -path "$system/var" -prune -o \( -type f -o -type l \) -print)
[ -z "$left" ] || fail "left behind: $left"
echo "the Debian package is installed and removed; it depends on $needed"
