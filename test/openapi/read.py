"""Reads an OpenAPI document as strictly as its readers do: python read.py DOCUMENT

No field may be there twice, the document must be one of OpenAPI 3.1, and every expression must be one of Python too, under
which no example of a good value is refused.
"""

import json
import re
import sys

from openapi_spec_validator import OpenAPIV31SpecValidator


def once(pairs):
    """Makes an object of its fields, and refuses one that is there twice."""
    out = {}
    for name, value in pairs:
        if name in out:
            raise ValueError(f"the field {name} is there twice")
        out[name] = value
    return out


def walk(node, path=""):
    """Yields every object of the document, with the path to it."""
    if isinstance(node, dict):
        yield path, node
        for name, value in node.items():
            yield from walk(value, f"{path}/{name}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from walk(value, f"{path}/{i}")


def wrong(document):
    """Yields what is wrong with a document."""
    for e in OpenAPIV31SpecValidator(document).iter_errors():
        yield f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}"
    for path, node in walk(document):
        if isinstance(node.get("pattern"), str):
            try:
                expression = re.compile(node["pattern"])
            except re.error as e:
                yield f"{path}: {e}"
                continue
            for example in node.get("examples", []):
                if not expression.search(example):
                    yield f"{path}: the example {example} is not of the form"
        low, high = node.get("minLength"), node.get("maxLength")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            yield f"{path}: no text is as long as it must be"


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        document = json.load(f, object_pairs_hook=once)
    found = list(wrong(document))
    for line in found:
        print(line, file=sys.stderr)
    sys.exit(1 if found else 0)


main()
