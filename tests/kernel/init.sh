#!/bin/busybox sh
# The first process of the emulated machine: runs each case of each program in /programs under the library, and switches the machine off.
PATH=/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
ifconfig lo 127.0.0.1 up
# As Debian has it; and what looks for memory to make huge pages of does so all the time.
echo always >/sys/kernel/mm/transparent_hugepage/enabled
echo 100 >/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
echo 40960 >/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan
echo "Linux $(uname -r)"
cd /programs || poweroff -f
export CONFORMANCE_LIBRARY=/libample.so
for program in *-c; do
    cases=$("./$program" --list 2>/tmp/said)
    [ -n "$cases" ] || echo "FAILED $program: no cases: $(tail -n 3 /tmp/said | tr '\n' ' ')"
    for case in $cases; do
        # This one is to be tried where the system promises no more memory than it has.
        [ "$case" != strict_overcommit ] || echo 2 >/proc/sys/vm/overcommit_memory
        LD_PRELOAD=/libample.so timeout -s KILL 300 "./$program" "$case" >/tmp/said 2>&1
        code=$?
        echo 0 >/proc/sys/vm/overcommit_memory
        case $code in
        0) echo "ok $program $case" ;;
        77) echo "skipped $program $case: $(tail -n 1 /tmp/said)" ;;
        *) echo "FAILED $program $case: exit code $code: $(tail -n 3 /tmp/said | tr '\n' ' ')" ;;
        esac
    done
done
echo "all done"
poweroff -f
