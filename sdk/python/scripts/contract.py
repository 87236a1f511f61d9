"""Write src/millrace_sdk/_core/contract.binpb: the messages of proto/ without their documentation and options.

buf build proto -o full.binpb && python sdk/python/scripts/contract.py full.binpb
"""

import pathlib
import sys

from google.protobuf import descriptor_pb2

TARGET = pathlib.Path(__file__).parent.parent / "src/millrace_sdk/_core/contract.binpb"


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


def main() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
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
