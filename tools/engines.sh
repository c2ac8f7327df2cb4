#!/bin/sh
# Container engines for builds and tests: what a person would type, with its reasons.
#
#   tools/engines.sh setup [--tests]     install an engine where none is (Debian, as root; says so first);
#                                        --tests: both engines, which the tests need
#   tools/engines.sh start-docker DIR    start a private Docker daemon with its data under DIR, unless one
#                                        answers already; prints DOCKER_HOST=...
#   tools/engines.sh stop-docker DIR     end the daemon that start-docker started there
set -eu

say() { printf '%s\n' "engines: $*" >&2; }
fail() { say "$*"; exit 4; }
have() { command -v "$1" >/dev/null 2>&1; }

# Whether an HTTP server at a Unix socket answers Docker's ping.
pings() {
    "${PYTHON:-python3}" - "$1" <<'PYTHON' 2>/dev/null
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
    asking.settimeout(10)
    asking.connect(sys.argv[1])
    asking.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
    sys.exit(0 if b" 200 " in asking.recv(64) else 1)
PYTHON
}

# One hard limit for the daemon's containers: a low one makes compilers fail, a higher one isn't permitted.
files_limit() { n=$(ulimit -Hn); [ "$n" != unlimited ] || n=$(cat /proc/sys/fs/nr_open); echo "$n"; }

setup() {
    wanted=""
    if [ "${1:-}" = --tests ]; then
        have podman || wanted="$wanted podman"
        have dockerd || wanted="$wanted docker.io"
    elif ! have podman && ! pings "$(docker_socket)"; then
        wanted=" podman"
    fi
    # Podman's usual runtime (crun) refuses hybrid cgroups, and a Podman that is there may lack runc.
    case "$wanted" in
        *podman*) have runc || wanted="$wanted runc" ;;
        *) if [ -e /sys/fs/cgroup/unified/cgroup.procs ] && have podman && ! have runc; then wanted="$wanted runc"; fi ;;
    esac
    [ -n "$wanted" ] || return 0
    [ -r /etc/debian_version ] || fail "needed:$wanted. Install them with this system's package manager."
    [ "$(id -u)" = 0 ] || fail "needed:$wanted. Run: sudo apt-get install --no-install-recommends$wanted"
    say "installing$wanted (apt-get, from the mirror that this machine knows)"
    # No package may start a daemon behind the user's back; what is needed is started when it is.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of package names
    { apt-get -q update && apt-get -q install --yes --no-install-recommends $wanted; } >&2 ||
        fail "apt-get couldn't install$wanted; what it printed says why."
}

docker_socket() {
    case "${DOCKER_HOST:-}" in
        unix://*) printf '%s\n' "${DOCKER_HOST#unix://}" ;;
        *) echo /var/run/docker.sock ;;
    esac
}

start_docker() {
    dir=$1
    if pings "$(docker_socket)"; then
        echo "DOCKER_HOST=unix://$(docker_socket)"
        return
    fi
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd -P)
    socket="$dir/docker.sock"
    if ! pings "$socket"; then
        have dockerd || fail "dockerd is not installed: tools/engines.sh setup --tests"
        [ "$(id -u)" = 0 ] || fail "dockerd has to be started as root; or start Docker's own service."
        # A daemon that was killed leaves its pid file, and a new one then refuses to start.
        daemon_of "$dir" >/dev/null || rm -f "$dir/docker.pid"
        n=$(files_limit)
        # No bridge and no packet filter: the networks "none" and "host" need neither.
        setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/docker.pid" \
            --host "unix://$socket" --iptables=false --ip6tables=false --bridge=none \
            --default-ulimit "nofile=$n:$n" >"$dir/docker.log" 2>&1 </dev/null &
        started=$!
        waited=0
        until pings "$socket"; do
            if ! kill -0 "$started" 2>/dev/null; then
                tail -n 20 "$dir/docker.log" >&2
                fail "dockerd ended; its log is $dir/docker.log"
            fi
            waited=$((waited + 1))
            [ "$waited" -lt 240 ] || fail "dockerd didn't answer within 60 s; its log is $dir/docker.log"
            sleep 0.25
        done
    fi
    echo "DOCKER_HOST=unix://$socket"
}

# The pid of the daemon whose data lies under a folder, only if it is one.
daemon_of() {
    [ -r "$1/docker.pid" ] || return 1
    pid=$(cat "$1/docker.pid")
    tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF "$1/docker.pid" || return 1
    echo "$pid"
}

stop_docker() {
    [ -d "$1" ] || return 0
    dir=$(cd "$1" && pwd -P)
    pid=$(daemon_of "$dir") || return 0
    kill -TERM "$pid"
    waited=0
    while daemon_of "$dir" >/dev/null; do
        waited=$((waited + 1))
        [ "$waited" -lt 120 ] || { say "dockerd ($pid) doesn't end within 30 s: killed"; kill -KILL "$pid"; break; }
        sleep 0.25
    done
}

case "${1:-}" in
    setup) setup "${2:-}" ;;
    start-docker) start_docker "${2:?a folder for the daemon\'s data}" ;;
    stop-docker) stop_docker "${2:?the folder that start-docker was given}" ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
