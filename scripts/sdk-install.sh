#!/usr/bin/env bash
# Builds the wheel of the Python SDK and the package of the TypeScript SDK, installs each into empty environments as users do, and runs the
# example of its README there: Python 3.10, 3.11 and 3.13 as far as they are installed, and a project of ES modules and one of CommonJS on this
# machine's Node, on Node 22 and on Node 24, which npm has as packages and .cache/node keeps. Nothing is compiled, and nothing of a package runs
# while it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
scripts/sdk-setup.sh
work=$(mktemp -d)
server=
end() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
mkdir -p .cache
go build -trimpath -o .cache/millrace-plain ./cmd/millrace
.cache/millrace-plain --json serve --dev --data "$work/data" --listen 127.0.0.1:0 --http off --admin off --token-file "$work/token" >"$work/server" 2>"$work/log" &
server=$!
for _ in $(seq 100); do
	[ ! -s "$work/server" ] || break
	kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
	sleep 0.1
done
MILLRACE_URL=$(sed -n 's/.*"grpc":"\([^"]*\)".*/\1/p' "$work/server")
MILLRACE_TOKEN=$(cat "$work/token")
export MILLRACE_URL MILLRACE_TOKEN
done=0

(cd sdk/python && "$root/.cache/py/bin/uv" build -q --wheel --out-dir "$work/wheel")
sed -n '/^```python$/,/^```$/p' sdk/python/README.md | sed '1d;$d' >"$work/readme.py"
for version in 3.10 3.11 3.13; do
	python=
	for candidate in "$HOME/.pyenv/versions/$version."*/bin/python "python$version"; do
		if "$candidate" -c 'import venv' 2>/dev/null; then
			python=$candidate
			break
		fi
	done
	if [ -z "$python" ]; then
		echo "sdk-install: Python $version is not installed, and is left out"
		continue
	fi
	"$python" -m venv "$work/py$version"
	"$work/py$version/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$work"/wheel/*.whl
	count=$("$work/py$version/bin/pip" list --disable-pip-version-check --format=freeze | grep -cv -e '^pip=' -e '^setuptools=')
	# The worker runs until a signal; the task of the README is done long before.
	timeout -s TERM 6 "$work/py$version/bin/python" "$work/readme.py" >"$work/out" 2>&1 || true
	if ! grep -q 'hello, ada' "$work/out"; then
		cat "$work/out" >&2
		exit 1
	fi
	echo "sdk-install: Python $version: $(cat "$work/out"); $count packages"
	done=$((done + 1))
done

node_dir() { # version: installs that Node, unless it is there, and prints the folder of its program
	local package dir=$root/.cache/node/$1
	package=$(node -p '`node-${process.platform}-${process.arch}`')
	if [ ! -x "$dir/node_modules/$package/bin/node" ]; then
		mkdir -p "$dir"
		echo '{"private":true}' >"$dir/package.json"
		(cd "$dir" && npm install --silent --ignore-scripts --no-audit --no-fund --no-save --no-package-lock "$package@$1") >&2 || return 1
	fi
	echo "$dir/node_modules/$package/bin"
}

if [ -d sdk/typescript/node_modules ]; then
	(cd sdk/typescript && npx tsdown --silent >/dev/null && npm pack --silent --ignore-scripts --pack-destination "$work" >/dev/null)
	sed -n '/^```ts$/,/^```$/p' sdk/typescript/README.md | sed '1d;$d' | sed 's/job<string, string>/job/' >"$work/readme.mjs"
	{
		echo 'const { Client, job, Worker } = require("millrace-sdk");'
		echo '(async () => {'
		sed '/^import /d' "$work/readme.mjs"
		echo '})();'
	} >"$work/readme.cjs"
	for version in own 22.23.3 24.21.0; do
		bin=
		if [ $version != own ] && ! bin=$(node_dir $version); then
			echo "sdk-install: Node $version cannot be installed, and is left out"
			continue
		fi
		for kind in mjs cjs; do
			(
				export PATH=${bin:+$bin:}$PATH # npm runs on the Node that it finds
				mkdir -p "$work/$version/$kind" && cd "$work/$version/$kind"
				echo '{"private":true}' >package.json
				npm install --silent --ignore-scripts --no-audit --no-fund "$work"/millrace-sdk-*.tgz
				cp "$work/readme.$kind" .
				count=$(npm ls --all --parseable | tail -n +2 | wc -l)
				out=$(timeout 20 node "readme.$kind")
				[ "$out" = 'hello, ada' ] || { echo "sdk-install: $kind said: $out" >&2; exit 1; }
				echo "sdk-install: Node $(node --version) $kind: $out; $count packages"
			)
			done=$((done + 1))
		done
	done
fi
echo "sdk-install: $done environments"
[ "$done" -gt 0 ]
