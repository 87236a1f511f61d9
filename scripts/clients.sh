#!/usr/bin/env bash
# Installs the git clients of other makers that tests drive, beside git itself: libgit2 and dulwich in a virtual environment of
# Python, JGit as jars. All versions are pinned in test/e2e/testdata/clients. They lie in a cache outside of the repository; a
# second run finds them there. It prints the directory.
#
# Debian packages that are missing are installed if this runs as root. It fails if a client cannot be had; the tests of that
# client are then skipped, except where CI is set.
set -euo pipefail
cd "$(dirname "$0")/.."
pins=$PWD/test/e2e/testdata/clients
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/clients

need() { # command, Debian package
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
	fi
	command -v "$1" >/dev/null || { echo "clients: install the package $2" >&2; return 1; }
}

# fresh NAME FILE: whether NAME was made from what FILE says now.
fresh() { [ -d "$cache/$1" ] && cmp -s "$2" "$cache/$1.made"; }

made() { cp "$2" "$cache/$1.made"; }

mkdir -p "$cache"
exec 9>"$cache/lock"
if command -v flock >/dev/null; then flock 9; fi # two clones may be set up at once
failed=0

python() {
	need python3 python3 || return 1
	rm -rf "$cache/python"
	if ! python3 -m venv "$cache/python" >/dev/null 2>&1; then # Debian has it in a package of its own
		[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
		python3 -m venv "$cache/python"
	fi
	"$cache/python/bin/pip" install -q --disable-pip-version-check -r "$pins/requirements.txt" && made python "$pins/requirements.txt"
}

java() {
	need javac default-jdk-headless && need mvn maven || return 1
	rm -rf "$cache/jars"
	mvn -q -B -f "$pins/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/jars" >&2 && made jars "$pins/pom.xml"
}

fresh python "$pins/requirements.txt" || python || { echo "clients: libgit2 and dulwich cannot be installed" >&2; failed=1; }
fresh jars "$pins/pom.xml" || java || { echo "clients: JGit cannot be installed" >&2; failed=1; }
echo "$cache"
exit "$failed"
