#!/usr/bin/env bash
# The slow checks of the types of the SDKs: pyright over the source of Python, its strict mode over the guide and over wrong uses, and
# TypeScript 5.9. The fast ones, mypy and TypeScript 7, are in scripts/sdk.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
scripts/sdk-setup.sh
if [ ! -x sdk/typescript/node_modules/.bin/tsc ]; then
	echo 'sdk-types: npm is missing, from which TypeScript and pyright come: both are left out'
	exit 0
fi
sdk/typescript/scripts/types.sh typescript || status=1
if [ -x .cache/py/bin/pytest ]; then
	(
		cd sdk/python
		node ../typescript/node_modules/pyright/index.js && MILLRACE_SDK_LONG=1 ../../.cache/py/bin/pytest -p no:cacheprovider tests/test_types.py
	) || status=1
fi
exit "$status"
