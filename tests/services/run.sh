#!/usr/bin/env bash
# Services of a Debian as its packages and systemd run them, on Ample: in a machine of their own (systemd-nspawn), whose network has nothing but a loopback.
# First by a line in each service's unit, then with each unit confined as far as the services themselves allow, then all of the system by /etc/ld.so.preload, systemd itself among it.
# Each time every process of every service must have the library, and every service must do its work.
#
# usage: run.sh [--install]     as root
#   --install  first install the Debian packages that it needs with apt-get
#
# AMPLE_PACKAGE names the package of Ample; otherwise `cargo xtask package` makes it. The machine is made of packages of DEBIAN_MIRROR (http://deb.debian.org/debian), some 400 MB.
# Prints a line for each service. Exit status: 0 if all are served and work, 1 if not, 77 if it cannot be tried here: the reason is told.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
services=(mariadb memcached nginx postgresql@15-main redis-server rsyslog ssh)
packages=systemd,systemd-sysv,dbus,procps,mariadb-server,memcached,nginx-light,openssh-client,openssh-server,postgresql,redis-server,rsyslog
# Seconds that the machine may take to start, and to stop.
limit=60

fail() { echo "run.sh: $*" >&2; exit 1; }
lacking() { echo "skipped: $*" >&2; exit 77; }

[ "$(id -u)" = 0 ] || lacking "only root can start a machine"
if [ "${1:-}" = --install ]; then
    apt-get update -q && apt-get install -qy --no-install-recommends debootstrap systemd-container || lacking "apt-get cannot install what it takes"
fi
for tool in debootstrap systemd-nspawn nsenter; do
    command -v "$tool" >/dev/null || lacking "$tool is missing: run.sh --install"
done

work=$(mktemp -d /var/tmp/ample-services.XXXXXX)
machine=""
leader=""
cleanup() {
    if [ -n "$machine" ]; then
        # The machine's first process takes all others with it; systemd-nspawn alone would leave it behind.
        kill -KILL ${leader:-$(pgrep -P "$machine" || true)} 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

package=${AMPLE_PACKAGE:-}
if [ -z "$package" ]; then
    (cd "$root" && cargo xtask package) >"$work/made" || fail "no package: $(tail -5 "$work/made")"
    package=$(grep -o '^/.*\.deb' "$work/made") || lacking "no Debian package was made: $(tail -1 "$work/made")"
fi
system="$work/system"
debootstrap --variant=minbase --include="$packages" bookworm "$system" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap" 2>&1 \
    || lacking "there is no Debian to be had: $(tail -5 "$work/debootstrap")"
cp "$package" "$system/root/ample.deb"
chroot "$system" dpkg --install /root/ample.deb >"$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
chroot "$system" bash -c 'ssh-keygen -q -t ed25519 -N "" -f /root/key && mkdir -p /root/.ssh && cp /root/key.pub /root/.ssh/authorized_keys' || fail "no key"
library=$(chroot "$system" dpkg --listfiles ample | grep '/libample\.so\.[0-9]*$') || fail "no library in the package"

# Runs a command in the machine.
inside() { nsenter --target "$leader" --all "$@"; }

# Where the machine does not come up before anything in it is served, it cannot be tried here.
boot() { # boot fail|lacking
    leader=""
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --boot --quiet --directory="$system" --private-network \
        --register=no --keep-unit --console=pipe </dev/null >"$work/console" 2>&1 &
    machine=$!
    local state=
    for _ in $(seq "$limit"); do
        sleep 1
        kill -0 "$machine" 2>/dev/null || "$1" "the machine ended: $(tail -5 "$work/console")"
        leader=$(pgrep -P "$machine" -x systemd) || continue
        state=$(inside systemctl is-system-running 2>/dev/null) || true
        case $state in
        running) return ;;
        degraded) "$1" "services failed: $(inside systemctl --failed --no-legend --plain)" ;;
        esac
    done
    "$1" "the machine does not come up: $state"
}

halt() {
    # What tells systemd to power the machine off.
    kill -s RTMIN+4 "$leader"
    for _ in $(seq "$limit"); do
        kill -0 "$machine" 2>/dev/null || { wait "$machine" || true; machine=; return; }
        sleep 1
    done
    fail "the machine does not stop"
}

restart() {
    inside systemctl daemon-reload
    for service in "${services[@]}"; do
        inside systemctl restart "$service" || fail "$service does not start: $(inside journalctl --no-pager -n 5 -u "$service")"
    done
}

# Adds the standard input to the unit of a service.
add() {
    mkdir -p "$system/etc/systemd/system/$1.service.d"
    cat >"$system/etc/systemd/system/$1.service.d/$2.conf"
}

# What a service answers when it is asked to do something, and what it should answer.
ask() {
    case $1 in
    mariadb)
        inside mariadb -BNe 'CREATE DATABASE IF NOT EXISTS ample; USE ample; CREATE OR REPLACE TABLE numbers (n INT PRIMARY KEY, t TEXT);
            INSERT INTO numbers SELECT seq, repeat("x", 100) FROM seq_1_to_20000; SELECT sum(length(t)) FROM numbers'
        ;;
    memcached) over 11211 'set k 0 0 3\r\nabc\r\nget k\r\nquit\r\n' | tr -d '\r' | tr '\n' ' ' ;;
    nginx) over 80 'GET / HTTP/1.0\r\n\r\n' | head -n 1 | tr -d '\r' ;;
    postgresql@15-main) inside runuser -u postgres -- psql -Atc 'SELECT sum(length(repeat(n::text, 100))) FROM generate_series(1, 20000) n' ;;
    redis-server) inside redis-cli EVAL 'redis.call("FLUSHALL") for n = 1, 20000 do redis.call("SET", n, string.rep("x", 100)) end return redis.call("DBSIZE")' 0 ;;
    rsyslog)
        local message="message $RANDOM$RANDOM"
        inside logger "$message"
        for _ in $(seq 50); do
            if inside grep -q "$message" /var/log/syslog; then
                echo logged
                return
            fi
            sleep 0.1
        done
        ;;
    ssh) inside ssh -q -o StrictHostKeyChecking=no -i /root/key root@127.0.0.1 echo served ;;
    esac
}
answer() {
    case $1 in
    mariadb) echo 2000000 ;;
    memcached) echo 'STORED VALUE k 0 3 abc END ' ;;
    nginx) echo 'HTTP/1.1 200 OK' ;;
    postgresql@15-main) echo 8889400 ;;
    redis-server) echo 20000 ;;
    rsyslog) echo logged ;;
    ssh) echo served ;;
    esac
}
# Sends something to a port, and prints what comes back.
over() { inside timeout 10 bash -c "exec 3<>/dev/tcp/127.0.0.1/$1 && printf '$2' >&3 && cat <&3"; }

# Every service must work, and every process of it must have the library.
check() { # check HOW
    local service got count process
    for service in "${services[@]}"; do
        for _ in $(seq 20); do
            got=$(ask "$service" 2>"$work/said") && [ -n "$got" ] && break
            sleep 0.5
        done
        [ "$got" = "$(answer "$service")" ] || fail "$service $1 answers '$got', not '$(answer "$service")': $(cat "$work/said")"
        count=0
        for process in $(inside cat "/sys/fs/cgroup$(inside systemctl show -P ControlGroup "$service")/cgroup.procs"); do
            # Some have ended by now.
            if ! inside grep -q "$library" "/proc/$process/maps" 2>"$work/said"; then
                inside test -e "/proc/$process/exe" || continue
                fail "$service $1: process $process has not $library $(cat "$work/said")"
            fi
            count=$((count + 1))
        done
        [ "$count" -gt 0 ] || fail "$service $1 has no process"
        echo "$service $1: served and working, processes: $count"
    done
}

boot lacking
for service in "${services[@]}"; do
    add "$service" ample <<<$'[Service]\nEnvironment=LD_PRELOAD=libample.so'
done
# Debian starts PostgreSQL by a script that empties the environment.
echo "LD_PRELOAD = 'libample.so'" >>"$system/etc/postgresql/15/main/environment"
restart
check 'by its unit'

# No more than these services bear on glibc, too: MariaDB and rsyslogd set scheduling policies, which is in @resources; sshd confines its own processes.
for service in "${services[@]}"; do
    [ "$service" != ssh ] || continue
    add "$service" confined <<'END'
[Service]
SystemCallFilter=
SystemCallFilter=@system-service
SystemCallErrorNumber=
SystemCallArchitectures=native
MemoryDenyWriteExecute=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
ProtectSystem=full
ProtectHome=yes
ProtectProc=invisible
ProcSubset=pid
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateTmp=yes
END
done
for service in memcached redis-server; do
    add "$service" more-confined <<<$'[Service]\nSystemCallFilter=~@resources'
done
restart
check 'confined'
seen=$(inside ample observe --pid "$(inside systemctl show -P MainPID mariadb)" --seconds 1) || fail "$seen"
grep -q "^ malloc  *libample.*: $library" <<<"$seen" || fail "the tool does not see who serves a confined service: $seen"
halt

rm -r "$system"/etc/systemd/system/*.service.d
sed -i '/LD_PRELOAD/d' "$system/etc/postgresql/15/main/environment"
echo "$library" >"$system/etc/ld.so.preload"
boot fail
check 'as part of the system'
count=0
for process in $(inside ps -eo pid=); do
    # Some have ended by now.
    maps=$(inside cat "/proc/$process/maps" 2>/dev/null) || continue
    [ -n "$maps" ] || continue
    grep -q "$library" <<<"$maps" || fail "process $process, $(inside cat "/proc/$process/comm"), has not $library"
    count=$((count + 1))
done
[ "$count" -gt 10 ] || fail "only $count processes"
echo "all of the system, systemd among it: served, processes: $count"
halt
