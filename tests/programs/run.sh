#!/usr/bin/env bash
# Runs real programs with a preloaded allocator, and compares what they do with a run without it.
#
# usage: run.sh [--install] [--allow-missing] [--only NAME]… [LIBRARY]
#   LIBRARY          default: target/release/libample.so of this repository
#   --install        first install the Debian packages of all programs with apt-get (needs root)
#   --allow-missing  a missing program is no failure
#   --only NAME      run just this program; may be repeated
#
# Each program runs twice, in a folder of its own: without the library, then with it. Both runs must end
# well and print the same. Which library serves malloc, free, calloc and realloc in each process of the
# second run is taken from the dynamic linker's own record (LD_DEBUG=bindings).
#
# One line a program: ok or FAILED, the library that served, in how many processes of which programs,
# seconds of both runs. Exit status: 0 if nothing failed, 1 if something did, 2 for wrong usage.
set -u -o pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# Servers may lie where a user's PATH does not lead.
PATH=$PATH:/usr/sbin:/sbin
. "$here/programs.sh"

# Seconds that one command of a program may take.
limit=100

# Name; Debian packages; command, or function, that finds it; programs that must be seen in the record; the
# one of them that brings a malloc of its own, which a preload cannot replace.
table=(
    "python-import    python3,libpython3-testsuite find_python  python3                       -"
    "python-json      python3,libpython3-testsuite find_python  python3                       -"
    "python-list      python3,libpython3-testsuite find_python  python3                       -"
    "python-threading python3,libpython3-testsuite find_python  python3                       -"
    "python-malloc    python3,libpython3-testsuite find_python  python3                       -"
    "gcc              gcc                          gcc          gcc,cc1,as,collect2,ld        -"
    "g++              g++                          g++          g++,cc1plus,as,collect2,ld    -"
    "rustc            rustc                        find_rustc   rustc,cc,collect2             rustc"
    "git              git                          git          git                           -"
    "sqlite3          sqlite3                      sqlite3      sqlite3                       -"
    "redis            redis-server                 redis-server redis-server,redis-benchmark  -"
    "slapd            slapd,ldap-utils             find_ldap    slapd,slapadd,ldapmodify      -"
    "ldapsearch       slapd,ldap-utils             find_ldap    slapd,ldapsearch              -"
    "node             nodejs                       node         node                          -"
    "java             default-jdk-headless         javac        java,javac                    -"
    "ruby-prefork     ruby                         ruby         ruby                          -"
    "python-prefork   python3                      python3      python3                       -"
)

usage() {
    echo "run.sh: $1; usage: run.sh [--install] [--allow-missing] [--only NAME]... [LIBRARY]" >&2
    exit 2
}

install=no allow_missing=no library='' only=' '
while [ $# -gt 0 ]; do
    case $1 in
        --install) install=yes ;;
        --allow-missing) allow_missing=yes ;;
        --only)
            [ $# -ge 2 ] || usage "--only needs a name"
            printf '%s\n' "${table[@]}" | awk -v name="$2" '$1 == name { found = 1 } END { exit !found }' ||
                usage "there is no program '$2' among: $(printf '%s\n' "${table[@]}" | awk '{ printf $1 " " }')"
            only+="$2 "
            shift
            ;;
        -*) usage "unknown option $1" ;;
        *)
            [ -z "$library" ] || usage "more than one library"
            library=$1
            ;;
    esac
    shift
done
library=${library:-$root/target/release/libample.so}
[ -r "$library" ] || usage "no library $library (cargo build --release -p ample-abi makes Ample's)"
library=$(readlink -f "$library")
case $library in *[[:space:]:]*) usage "a path with spaces or colons cannot be preloaded: $library" ;; esac

if [ "$install" = yes ]; then
    mapfile -t packages < <(printf '%s\n' "${table[@]}" | awk '$2 != "rustc" { print $2 }' | tr , '\n' | sort -u)
    DEBIAN_FRONTEND=noninteractive apt-get install -y "${packages[@]}" || exit 1
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# audit FILE…: for each process recorded, a line "PROGRAM,… LIBRARY,…": what it executed, and the libraries
# to which malloc, free, calloc and realloc were bound.
# A program that takes a function's address and was linked for a fixed address of its own offers all
# libraries a stub; a binding to a stub that leads to the preloaded library counts as one to that library.
audit() {
    awk -v library="$library" '
        function finish(    key, part, seen, targets) {
            for (key in bound) {
                split(key, part, SUBSEP)
                if (part[1] != library && (key in onward)) part[1] = library
                if (!(part[1] in seen)) targets = targets (targets == "" ? "" : ",") part[1]
                seen[part[1]]
            }
            if (programs != "") print programs, targets == "" ? "none" : targets
            programs = ""
            delete bound
            delete onward
        }
        FNR == 1 { finish() }
        $2 == "binding" && $11 ~ /^`(malloc|free|calloc|realloc)'\''$/ && $4 != library {
            bound[$7, $11]
            if ($7 == library) onward[$4, $11]
        }
        $2 == "transferring" {
            sub(/.*\//, "", $4)
            if (index("," programs ",", "," $4 ",") == 0) programs = programs (programs == "" ? "" : ",") $4
        }
        END { finish() }
    ' "$@"
}

# judge_audit REQUIRED OWN: reads audit lines; prints what served as one phrase, and fails with the reason
# in place of it unless every process was served by the library.
judge_audit() {
    awk -v library="$library" -v required="$1" -v own="$2" '
        function name(path) { sub(/.*\//, "", path); return path }
        {
            count++
            split($1, programs, ",")
            for (i in programs) executed[programs[i]]
            if ($2 == library) served++
            else if ($1 == own && name($2) == own) owned++
            else if (wrong == "") wrong = $1 " was served by " $2
        }
        END {
            if (wrong != "") { print wrong; exit 1 }
            split(required, needed, ",")
            for (i in needed) if (!(needed[i] in executed)) { print "no record of " needed[i]; exit 1 }
            for (program in executed) list = list (list == "" ? "" : " ") program
            phrase = name(library) " in " served + 0 " of " count " processes"
            if (owned) phrase = phrase ", " own "'\''s own malloc in " owned
            print phrase " (" list ")"
        }
    '
}

# run_arm FUNCTION FOLDER [SETTING…]: runs a program function in a new folder, its commands with these
# environment settings.
run_arm() {
    local function=$1 folder=$2
    settings=("${@:3}")
    mkdir -p "$folder/files" "$folder/record"
    (
        trap stop_servers EXIT
        set -e
        cd "$folder/files"
        "$function"
    ) >"$folder/output" 2>"$folder/errors"
}

# run_program NAME REQUIRED OWN: both arms; prints what served, or why it failed.
run_program() {
    local name=$1 without=$work/$1/without with=$work/$1/with
    if ! run_arm "run_$name" "$without"; then
        echo "fails without the library, too: $(last_words "$without")"
        return 1
    fi
    if ! run_arm "run_$name" "$with" "LD_PRELOAD=$library" LD_DEBUG=bindings,libs \
        "LD_DEBUG_OUTPUT=$with/record/process"; then
        last_words "$with"
        return 1
    fi
    if ! cmp -s "$without/output" "$with/output"; then
        echo "behaves differently: $(diff "$without/output" "$with/output" | sed -n '2,5p' | on_one_line)"
        return 1
    fi
    audit "$with"/record/process.* | judge_audit "$2" "$3"
}

# The end of what an arm printed.
last_words() {
    cat "$1/output" "$1/errors" | tail -n 3 | on_one_line
}

on_one_line() {
    cut -c 1-200 | tr '\n' ' '
}

passed=0 failed=0 missing=0
for row in "${table[@]}"; do
    read -r name package finder required own <<<"$row"
    if [ "$only" != ' ' ] && [[ $only != *" $name "* ]]; then
        continue
    fi
    if ! type "$finder" >/dev/null 2>&1 || { [[ $finder == find_* ]] && ! "$finder"; }; then
        printf '%-8s %-17s %s\n' missing "$name" "$(how_to_install "$package")"
        missing=$((missing + 1))
        [ "$allow_missing" = yes ] || failed=$((failed + 1))
        continue
    fi
    begin=$(date +%s%N)
    if phrase=$(run_program "$name" "$required" "$own"); then
        verdict=ok
        passed=$((passed + 1))
    else
        verdict=FAILED
        failed=$((failed + 1))
    fi
    tenths=$((($(date +%s%N) - begin) / 100000000))
    printf '%-8s %-17s %s, %d.%d s\n' "$verdict" "$name" "$phrase" $((tenths / 10)) $((tenths % 10))
done
echo "$passed passed, $failed failed$([ $missing -eq 0 ] || echo ", $missing missing")"
[ $failed -eq 0 ]
