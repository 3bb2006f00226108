# The programs of run.sh: one function each, run_NAME, that works in the current folder, prints what must
# not depend on the allocator, and fails if the program does. It is run with `set -e`, twice.
#
# What must be found out is on top; then come the tools for all; then the programs.

# An interpreter that has its own tests, in $python. Its own environment is empty: packages that others
# have installed make some of the tests fail.
find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        "$candidate" -c 'import sqlite3, test.test_json, test.test_threading' 2>/dev/null || continue
        python=$work/python/bin/python3
        [ -x "$python" ] || "$candidate" -m venv --without-pip "$work/python" && return 0
    done
    return 1
}

# The compiler behind rustup's front, in $rustc.
find_rustc() {
    rustc=$(cd "$root" && rustc --print sysroot 2>/dev/null)/bin/rustc && [ -x "$rustc" ]
}

find_ldap() {
    type slapd ldapsearch >/dev/null 2>&1
}

# how_to_install PACKAGE,…: what to do about a missing program.
how_to_install() {
    if [ "$1" = rustc ]; then
        echo "install Rust: https://rustup.rs"
    else
        echo "apt-get install ${1//,/ }"
    fi
}

# with COMMAND…: runs it in the arm's environment, for $limit seconds at most. `env` makes the settings, so
# that they hold for the command only.
with() {
    timeout --kill-after=5 "$limit" env "${settings[@]}" "$@"
}

servers=()

# A TCP port of the loopback interface that nobody listens on, in $port.
find_port() {
    for port in $(shuf -i 20000-32000 -n 50); do
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    done
    echo "no free port" >&2
    return 1
}

# serve COMMAND…: starts a server in the background and waits until it answers on $port. The library must be
# mapped in it if the arm preloads one.
serve() {
    timeout --kill-after=5 "$limit" env "${settings[@]}" "$@" >server.log 2>&1 &
    local timer=$! tries
    servers+=("$timer")
    for tries in $(seq 200); do
        if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            local server
            read -r server <"/proc/$timer/task/$timer/children"
            [ ${#settings[@]} -eq 0 ] || grep -qF " $library" "/proc/$server/maps" ||
                { echo "$library is not in /proc/$server/maps"; return 1; }
            return 0
        fi
        kill -0 "$timer" 2>/dev/null || break
        sleep 0.1
    done
    echo "$1 does not answer: $(tail -n 2 server.log | tr '\n' ' ')"
    return 1
}

# Ends the servers by their process numbers (`timeout` passes the signal on) and waits for them.
stop_servers() {
    local server
    for server in "${servers[@]}"; do
        kill "$server" 2>/dev/null || true
        wait "$server" || true
    done
    servers=()
}

run_python-import() {
    with "$python" -c 'import json, sqlite3, threading
print(json.loads("[1]"), sqlite3.sqlite_version, threading.active_count())'
}

# python_tests MODULE…: the verdicts of CPython's own tests, without their times.
python_tests() {
    local status=0
    TMPDIR=$PWD with "$python" -m test -v "$@" >tests.log 2>&1 || status=$?
    sed -n -E 's/^(Ran [0-9]+ tests?) in .*/\1/p; /^(OK|FAILED)/p; s/^(ERROR|FAIL): .*/&/p' tests.log
    return $status
}

run_python-json() { python_tests test_json; }
run_python-list() { python_tests test_list; }
run_python-threading() { python_tests test_threading; }

# Without Python's own pools, every object comes from malloc.
run_python-malloc() {
    export PYTHONMALLOC=malloc
    python_tests test_json test_list
}

# Objects are the same, byte by byte; so is what the linked program prints.
run_gcc() {
    awk 'BEGIN {
        for (i = 0; i < 500; i++) {
            printf "struct s%d { int a[%d]; double b; };\n", i, i % 7 + 1
            printf "int f%d(struct s%d *s, int n) { int t = %d; for (int i = 0; i < n; i++) ", i, i, i
            printf "switch (s->a[i %% %d] & 3) { case 0: t += i; break; case 1: t ^= n; break; ", i % 7 + 1
            printf "default: t = t * 31 + s->a[0]; } return t; }\n"
        }
        print "#include <stdio.h>"
        print "int main(void) { struct s9 s = { {1, 2, 3}, 0 }; return !printf(\"%d\\n\", f9(&s, 1000)); }"
    }' >generated.c
    with gcc -O2 -c generated.c -o generated.o
    with gcc generated.o -o generated
    sha256sum generated.o generated
    with ./generated
    with gcc -O2 "$here/handover.c" -o handover -pthread
    with ./handover 3 1000 1000 4000
}

run_g++() {
    with g++ -std=c++17 -O2 -c "$here/words.cc" -o words.o
    with g++ words.o -o words
    sha256sum words.o words
    with ./words <"$here/words.cc"
    with g++ -std=c++17 -O2 "$here/exchange.cc" -o exchange -pthread
    with ./exchange 8 40
    with g++ -std=c++17 -O2 "$here/trees.cc" -o trees -pthread
    with ./trees 4 40 15 10
}

# The project's own Rust: a library of the standard library's types, then linked.
run_rustc() {
    local source=$root/tests/conformance/src/lib.rs kind
    export CARGO_MANIFEST_DIR=$root/tests/conformance
    for kind in rlib cdylib; do
        with "$rustc" --edition 2024 --crate-name compiled --crate-type $kind -O \
            --remap-path-prefix "$PWD=." -o "compiled.$kind" "$source"
    done
    sha256sum compiled.rlib compiled.cdylib
}

# A history of 400 commits beside this repository's own.
run_git() {
    with git clone -q --no-hardlinks "$root" clone
    awk 'BEGIN {
        for (i = 1; i <= 400; i++) {
            text = ""
            for (line = 0; line < 60; line++) text = text "line " line " of version " i % (line + 2) "\n"
            printf "commit refs/heads/generated\ncommitter A <a@example.org> %d +0000\n", 1000000000 + i
            printf "data 2\n%s\n", "c"
            printf "M 100644 inline file%d\ndata %d\n%s\n", i % 20, length(text), text
        }
    }' >history
    with git -C clone fast-import --quiet <history
    with git -C clone gc -q --aggressive --prune=now
    with git -C clone fsck --full --strict --no-progress
    with git -C clone log --all --stat --format=%H | sha256sum
    with git -C clone count-objects -v | grep -v size-pack
}

run_sqlite3() {
    with sqlite3 data.db "
        CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city TEXT, score REAL);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
        INSERT INTO person
            SELECT i, printf('name %d', i * 7919 % 100003), 'city ' || i % 997, i * 0.5 FROM n;
        CREATE INDEX by_name ON person(name);
        CREATE INDEX by_city ON person(city, score);
        SELECT city, count(*), sum(score), group_concat(name)
            FROM person GROUP BY city ORDER BY city LIMIT 50;
        SELECT count(*) FROM person p JOIN person q ON p.name = q.name WHERE p.city = 'city 5';
        DELETE FROM person WHERE id % 3 = 0;
        VACUUM;
        PRAGMA integrity_check;"
    sha256sum data.db
}

# Whether the data are the same tells Redis's own digest; the background save forks.
run_redis() {
    find_port
    serve redis-server --port "$port" --bind 127.0.0.1 --dir "$PWD" --save '' --enable-debug-command local
    local reply=(with redis-cli -p "$port")
    with redis-benchmark -p "$port" -q -n 20000 -c 20 -d 300 -r 10000 \
        -t set,get,incr,lpush,lpop,sadd,hset,zadd,lrange_100 >benchmark.log
    tr '\r' '\n' <benchmark.log | grep -c 'requests per second, p50='
    "${reply[@]}" flushall
    "${reply[@]}" eval "for i = 1, 20000 do
        redis.call('set', 's' .. i, string.rep('v', i % 500))
        redis.call('rpush', 'l' .. i % 50, i)
        redis.call('zadd', 'z' .. i % 9, i, 'm' .. i)
        redis.call('hset', 'h' .. i % 200, 'f' .. i, i)
        if i % 3 == 0 then redis.call('del', 's' .. (i - 1)) end
    end return redis.call('dbsize')" 0
    "${reply[@]}" debug digest
    "${reply[@]}" bgsave
    local tries
    for tries in $(seq 100); do
        "${reply[@]}" info persistence >persistence
        grep -q 'rdb_bgsave_in_progress:0' persistence && break
        sleep 0.1
    done
    grep -o 'rdb_last_bgsave_status:[a-z]*' persistence
    "${reply[@]}" debug reload
    "${reply[@]}" debug digest
}

# A directory of 3000 people in slapd's mdb backend, made by slapadd; slapd answers on $port.
start_directory() {
    local schema
    mkdir data
    {
        for schema in core cosine inetorgperson; do
            echo "include /etc/ldap/schema/$schema.schema"
        done
        printf '%s\n' "pidfile $PWD/pid" "modulepath /usr/lib/ldap" "moduleload back_mdb" \
            "sizelimit unlimited" "database mdb" "suffix dc=example,dc=org" \
            "rootdn cn=admin,dc=example,dc=org" "rootpw secret" "directory $PWD/data" \
            "maxsize 268435456" dbnosync "index objectClass,uid eq"
    } >slapd.conf
    {
        printf 'dn: dc=example,dc=org\nobjectClass: domain\ndc: example\n\n'
        awk 'BEGIN {
            for (i = 1; i <= 3000; i++) {
                printf "dn: uid=user%d,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: user%d\n", i, i
                printf "cn: User %d\nsn: Number %d\nmail: user%d@example.org\n", i, i % 100, i
                printf "description: %0" i % 400 + 1 "d\n\n", i
            }
        }'
    } >people.ldif
    with slapadd -q -f slapd.conf -l people.ldif
    find_port
    serve slapd -d 0 -f slapd.conf -h "ldap://127.0.0.1:$port"
    directory=(-x -LLL -H "ldap://127.0.0.1:$port")
}

# What slapd serves, as the client sees it, also while entries change.
run_slapd() {
    start_directory
    with ldapsearch "${directory[@]}" -b dc=example,dc=org '(objectClass=inetOrgPerson)' >before
    grep -c '^dn: ' before
    awk 'BEGIN {
        for (i = 1; i <= 500; i++) {
            printf "dn: uid=user%d,dc=example,dc=org\nchangetype: modify\nreplace: description\n", i * 3
            printf "description: changed %0" i % 300 + 1 "d\n\n", i
        }
        for (i = 1; i <= 200; i++) printf "dn: uid=user%d,dc=example,dc=org\nchangetype: delete\n\n", i * 7
    }' >changes.ldif
    with ldapmodify -x -H "ldap://127.0.0.1:$port" -D cn=admin,dc=example,dc=org -w secret \
        -f changes.ldif >/dev/null
    with ldapsearch "${directory[@]}" -b dc=example,dc=org >after
    sort before | sha256sum
    sort after | sha256sum
}

# Many clients, four at a time.
run_ldapsearch() {
    start_directory
    local client
    for client in 1 2 3 4; do
        {
            with ldapsearch "${directory[@]}" -b dc=example,dc=org "(sn=Number $client)" uid
            with ldapsearch "${directory[@]}" -b dc=example,dc=org '(&(cn=User 1*)(!(sn=Number 5)))'
            with ldapsearch "${directory[@]}" -b dc=example,dc=org "(uid=user$client)"
        } >"client$client" &
        clients[client]=$!
    done
    for client in 1 2 3 4; do
        wait "${clients[client]}"
        grep -c '^dn: ' "client$client"
        sort "client$client" | sha256sum
    done
}

run_node() {
    with node "$here/buffers.js"
}

run_java() {
    with javac -d . "$here/Blocks.java"
    with java -Xmx256m Blocks
}

run_ruby-prefork() {
    with ruby "$here/prefork.rb" 2>/dev/null
}

run_python-prefork() {
    with python3 "$here/prefork.py" 2>/dev/null
}
