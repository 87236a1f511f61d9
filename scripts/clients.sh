#!/usr/bin/env bash
# Installs the git clients of other makers that tests drive, beside git itself: libgit2 and dulwich in a virtual environment of
# Python, JGit as jars. All versions are pinned in test/e2e/testdata/clients. They lie in a cache outside of the repository; a
# second run finds them there. It prints the directory.
#
# Debian packages that are missing are installed if this runs as root. It fails if a client cannot be had; the tests of that
# client are then skipped, except where CI is set.
set -euo pipefail
cd "$(dirname "$0")/.."
name=clients pins=$PWD/test/e2e/testdata/clients
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/clients
. scripts/pinned.sh
failed=0

java() {
	need javac default-jdk-headless && need mvn maven || return 1
	rm -rf "$cache/jars"
	mvn -q -B -f "$pins/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/jars" >&2 && made jars "$pins/pom.xml"
}

fresh python "$pins/requirements.txt" || python || { echo "clients: libgit2 and dulwich cannot be installed" >&2; failed=1; }
fresh jars "$pins/pom.xml" || java || { echo "clients: JGit cannot be installed" >&2; failed=1; }
echo "$cache"
exit "$failed"
