# Functions for scripts that install pinned programs into a cache outside of the repository. To be sourced, with name, which
# messages begin with, pins, the folder of the pins, and cache, the folder of what is installed.

need() { # command, Debian package
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
	fi
	command -v "$1" >/dev/null || { echo "$name: install the package $2" >&2; return 1; }
}

# fresh NAME FILE: whether NAME was made from what FILE says now.
fresh() { [ -d "$cache/$1" ] && cmp -s "$2" "$cache/$1.made"; }

made() { cp "$2" "$cache/$1.made"; }

# python makes an environment of Python with what requirements.txt of the pins names.
python() {
	need python3 python3 || return 1
	rm -rf "$cache/python"
	if ! python3 -m venv "$cache/python" >/dev/null 2>&1; then # Debian has it in a package of its own
		[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
		python3 -m venv "$cache/python" >/dev/null || return 1
	fi
	"$cache/python/bin/pip" install -q --disable-pip-version-check -r "$pins/requirements.txt" && made python "$pins/requirements.txt"
}

mkdir -p "$cache"
exec 9>"$cache/lock"
if command -v flock >/dev/null; then flock 9; fi # two clones may install at once
