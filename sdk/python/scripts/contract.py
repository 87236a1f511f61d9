"""Write what src/millrace_sdk/_core has of proto/.

contract.binpb has the messages without their documentation and options; rest.json has what the options say of REST: the
routes of each method, and the fields that JSON has in a form of their own.

buf build proto -o full.binpb && python sdk/python/scripts/contract.py full.binpb
"""

import json
import pathlib
import re
import sys
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TARGET = pathlib.Path(__file__).parent.parent / "src/millrace_sdk/_core/contract.binpb"
REST = TARGET.with_name("rest.json")


def strip(message: descriptor_pb2.DescriptorProto) -> None:
    """Drop the options of a message that only REST reads."""
    keep = message.options.map_entry
    message.ClearField("options")
    if keep:
        message.options.map_entry = True
    for f in message.field:
        packed = f.options.packed if f.options.HasField("packed") else None
        f.ClearField("options")
        f.ClearField("json_name")
        if packed is not None:
            f.options.packed = packed
    for o in message.oneof_decl:
        o.ClearField("options")
    for e in message.enum_type:
        e.ClearField("options")
    for m in message.nested_type:
        strip(m)


class Rest:
    """What the options of the contract say of REST."""

    SEGMENT = re.compile(r"\{(\w+)(?:=([\w.]+))?\}")  # {name}, or {name=field}

    def __init__(self, files: descriptor_pb2.FileDescriptorSet) -> None:
        pool = descriptor_pool.DescriptorPool()
        for f in files.file:
            pool.Add(f)
        self._pool = pool
        self._files = [pool.FindFileByName(f.name) for f in files.file if f.package == "millrace.v1"]
        self._params: dict[str, Any] = {}
        for f in self._files:
            for p in self._option("File", "param", f):
                self._params[p.id] = p

    def _option(self, kind: str, name: str, of: Any) -> Any:
        """Read an option of a file, a field or a method: the classes of protobuf itself do not know it."""
        options = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"google.protobuf.{kind}Options"))
        extension = self._pool.FindExtensionByName("millrace.rest." + name)
        return options.FromString(of.GetOptions().SerializeToString()).Extensions[extension]

    def tables(self) -> dict[str, Any]:
        """Return the fields, the messages of which a client keeps what it does not know, and the routes, by name."""
        fields: dict[str, Any] = {}
        kept: dict[str, Any] = {}
        routes: dict[str, Any] = {}
        for f in self._files:
            for m in f.message_types_by_name.values():
                self._fields(m, fields)
                if self._option("Message", "message", m).keep:
                    kept[m.name] = True
            for service in f.services_by_name.values():
                for method in service.methods:
                    rows = [r for o in self._option("Method", "route", method) if (r := self._route(method, o))]
                    # A path that needs less of the request would fit a request that has more, so it comes last.
                    rows.sort(key=lambda r: -sum(isinstance(part, list) for part in r["path"]))
                    if rows:
                        routes[f"{service.name}/{method.name}"] = rows
        parts = {"fields": fields, "kept": kept, "routes": routes}
        return {name: dict(sorted(rows.items())) for name, rows in parts.items()}

    def _fields(self, m: Any, out: dict[str, Any]) -> None:
        for f in m.fields:
            o = self._option("Field", "field", f)
            row: dict[str, Any] = {k: True for k in ("absent", "reserved", "inline") if getattr(o, k)}
            if o.form:
                row["form"] = o.DESCRIPTOR.fields_by_name["form"].enum_type.values_by_number[o.form].name.lower()
            if o.mend:
                row["form"] = "prose"
            if o.other:
                row["other"] = o.other[0]
            if row:
                out[f.full_name.removeprefix("millrace.v1.")] = row
        for nested in m.nested_types:
            self._fields(nested, out)

    def _route(self, method: Any, o: Any) -> dict[str, Any] | None:
        """Return one route; None for one that does a part of what another one does."""
        verb = next(v for v in ("get", "put", "post", "delete", "patch") if getattr(o, v))
        path: list[str | list[str]] = []
        rest = getattr(o, verb)
        outside: set[str] = set()
        while found := self.SEGMENT.search(rest):
            name, field = found[1], found[2] or found[1]
            head, below, _ = field.partition(".")
            if below and self._many(method.input_type.fields_by_name[head]):
                return None  # of one element of a list, which the batch does as well
            outside.add(field)
            path += [rest[: found.start()], [name, field]]
            rest = rest[found.end() :]
        if rest:
            path.append(rest)
        if "." in o.answer:
            return None  # a part of what another route of the method answers as a whole
        row: dict[str, Any] = {"verb": verb.upper(), "path": path}
        query = []
        for q in o.query:
            name, field, type_ = self._param(q)
            outside.add(field)
            f = self._find(method.input_type, field)
            if f is not None:
                query.append([name, field, self._words(f, type_)])
        if query:
            row["query"] = query
        for h in o.header:
            name, field, _ = self._param(h)
            outside.add(field)
            if name == "If-Match":
                row["match"] = field
        body = o.body and self._find(method.input_type, o.body)
        if o.body == "*":
            row["body"] = "*"
            skip = sorted(n for n in outside if n in method.input_type.fields_by_name)
            if skip:
                row["skip"] = skip
        elif body and body.message_type is not None:
            row["body"] = o.body
        answer = self._find(method.output_type, o.answer)
        if answer is not None and answer.message_type is not None:
            row["answer"] = o.answer
        if 204 in o.status:
            row["empty"] = True
        return row

    def _param(self, p: Any) -> tuple[str, str, str]:
        """Return the name, the field and the type of a parameter, which may be defined elsewhere."""
        known = self._params[p.id] if p.id else p
        return known.name, p.field or known.field or known.name, known.type

    def _find(self, m: Any, path: str) -> Any:
        head, below, rest = path.partition(".")
        f = m.fields_by_name.get(head)
        return f if f is None or not below else self._find(f.message_type, rest)

    @staticmethod
    def _many(f: Any) -> bool:
        return bool(f.is_repeated if hasattr(f, "is_repeated") else f.label == f.LABEL_REPEATED)

    @staticmethod
    def _words(f: Any, type_: str) -> list[str] | None:
        """Return the word of a flag, or those of an enumeration by number.

        The type of a flag is true|false, or two words of which the last means yes.
        """
        words = type_.split("|")
        if f.type == f.TYPE_ENUM:
            values = f.enum_type.values
            prefix = f.enum_type.name.upper() + "_"
            if values[0].name.endswith("_UNSPECIFIED"):
                prefix = values[0].name.removesuffix("UNSPECIFIED")
            return [v.name.removeprefix(prefix).lower().replace("unspecified", "") for v in values]
        if f.type == f.TYPE_BOOL:
            return words[:1] if words[0] == "true" else words[-1:]
        return None


def main() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
    tables = Rest(files).tables()
    lines = ",\n".join(
        f"{json.dumps(part)}: {{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}"
        for part, rows in tables.items()
    )
    REST.write_text("{\n" + lines + "\n}\n")
    out = descriptor_pb2.FileDescriptorSet()
    for f in files.file:
        if f.name.startswith("millrace/rest/") or f.name == "google/protobuf/descriptor.proto":
            continue
        f.ClearField("source_code_info")
        f.ClearField("options")
        f.ClearField("extension")
        kept = [d for d in f.dependency if not d.startswith("millrace/rest/")]
        del f.dependency[:]
        f.dependency.extend(kept)
        for m in f.message_type:
            strip(m)
        for s in f.service:
            for rpc in s.method:
                rpc.ClearField("options")
        out.file.append(f)
    TARGET.write_bytes(out.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
