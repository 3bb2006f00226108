#!/usr/bin/env bash
# Runs conformance programs on another kernel, in an emulated machine: what a system call does where it fails differs from kernel to kernel.
# (Without KVM: on a machine that is itself virtual, that may be there and not work.)
#
# usage: run.sh [--install] [PROGRAM]…
#   PROGRAM    conformance programs without their ending; default: those that meet the kernel most
#   --install  first install the Debian packages that it needs with apt-get (needs root)
#
# AMPLE_KERNEL names a kernel's image (vmlinuz); otherwise Debian's own for virtual machines is downloaded, which on Debian 12 is Linux 6.1.
# Prints a line for each case. Exit status: 0 if none failed, 1 if one did or the machine did not come to the end, 2 if something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# Seconds after which the machine is switched off; those that it may take to start.
limit=900
start=120

if [ "${1:-}" = --install ]; then
    shift
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -q
    $sudo apt-get install -qy --no-install-recommends qemu-system-x86 busybox-static cpio
fi
for tool in qemu-system-x86_64 busybox cpio; do
    command -v "$tool" >/dev/null || { echo "run.sh: $tool is missing: run.sh --install" >&2; exit 2; }
done
programs=("$@")
[ $# -gt 0 ] || programs=(filters glibc helper hostile limits purging)

work=$(mktemp -d)
machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT
kernel=${AMPLE_KERNEL:-}
if [ -z "$kernel" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
    [ -n "$package" ] || { echo "run.sh: apt knows no kernel to download: name one by AMPLE_KERNEL" >&2; exit 2; }
    mkdir "$work/package"
    # As apt's own user cannot write there, it says so; it downloads all the same.
    (cd "$work/package" && apt-get download -q "$package" 2>"$work/said") || { cat "$work/said" >&2; exit 2; }
    dpkg-deb -x "$work/package/"*.deb "$work/package"
    kernel=$(echo "$work/package/boot/vmlinuz-"*)
fi

cargo build --quiet --release --package ample-abi --manifest-path "$root/Cargo.toml"
disk=$work/disk
mkdir -p "$disk"/{bin,dev,proc,sys,tmp,programs}
cp "$root/target/release/libample.so" "$disk/"
cp "$(command -v busybox)" "$disk/bin/busybox"
install -m 755 "$here/init.sh" "$disk/init"
flags=(-O2 -Wall -Wextra -fno-builtin -D_GNU_SOURCE -pthread)
for program in "${programs[@]}"; do
    cc "${flags[@]}" -o "$disk/programs/$program-c" "$root/tests/conformance/programs/$program.c" -ldl
done
cc "${flags[@]}" -shared -fPIC -o "$disk/programs/hostile_library-c.so" "$root/tests/conformance/programs/hostile_library.c"
# What they need of the system, each in its own place; the last is what a thread needs to end before its function does.
{
    ldd "$disk"/libample.so "$disk"/programs/*-c | grep -o '/[^ :]*' | grep -v "^$disk"
    realpath "$(cc -print-file-name=libgcc_s.so.1)"
} | sort -u | while read -r library; do
    mkdir -p "$disk$(dirname "$library")"
    cp -L "$library" "$disk$library"
done
(cd "$disk" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/disk.gz"

echo "an emulated machine with $(basename "$kernel"), at most $limit seconds"
# Now and then a processor of the emulated machine loses its timer as the kernel starts, which then waits for ever: the machine is started anew.
for attempt in 1 2 3; do
    : >"$work/console"
    timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3000 -nographic -no-reboot \
        -kernel "$kernel" -initrd "$work/disk.gz" -append "console=ttyS0 quiet panic=-1" </dev/null >"$work/console" 2>"$work/errors" &
    machine=$!
    for ((second = 0; second < start; second++)); do
        ! grep -qa 'Linux [0-9]' "$work/console" || break 2
        kill -0 "$machine" 2>/dev/null || break
        sleep 1
    done
    echo "run.sh: the machine did not start (attempt $attempt of 3, $second seconds); its last words: $(tail -n 3 "$work/console" "$work/errors" | tr -d '\r' | tr '\n' ' ')" >&2
    kill "$machine" 2>/dev/null || true
    wait "$machine" || true
    machine=
done
[ -n "$machine" ] || exit 1
tail -n +1 -f --pid="$machine" "$work/console" | stdbuf -oL tr -d '\r' |
    grep --line-buffered -aoE '(Linux [0-9]|ok |skipped |FAILED |all done).*' | tee "$work/said" || true
if ! grep -q '^all done$' "$work/said"; then
    cat "$work/errors" >&2
    echo "run.sh: the machine did not come to the end" >&2
    exit 1
fi
echo "$(grep -c '^ok ' "$work/said") cases hold, $(grep -c '^skipped ' "$work/said") skipped, $(grep -c '^FAILED ' "$work/said") failed"
! grep -q '^FAILED ' "$work/said"
