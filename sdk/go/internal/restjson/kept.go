package restjson

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// keptField is where a message that is to be written back has what its object says and the contract does not: members as they stand in
// JSON, one for each field of this number. No contract has a field of it, since protobuf keeps the numbers from 19,000 to 19,999 for itself.
// A server that gets one over gRPC refuses it, as all fields that it does not know.
const keptField protowire.Number = 19999

// keep notes a member.
func keep(m protoreflect.Message, name, value []byte) {
	member, _ := json.Marshal(string(name)) // strings always encode
	member = append(append(member, ':'), value...)
	b := protowire.AppendTag(slices.Clip(m.GetUnknown()), keptField, protowire.BytesType)
	m.SetUnknown(protowire.AppendBytes(b, member))
}

// eachUnknown calls f for each field of a message that the contract does not have, with its bytes; of what keep noted also with the member
// and its name.
func eachUnknown(m protoreflect.Message, f func(field, member []byte, name string)) {
	for b := m.GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return // protobuf has read it before
		}
		field := b[:n]
		b = b[n:]
		if number != keptField || kind != protowire.BytesType {
			f(field, nil, "")
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		member, _ := protowire.ConsumeBytes(field[tag:])
		d := &decoder{b: member}
		f(field, member, string(d.text()))
	}
}

// Kept returns the members of an object that were kept, as they stand in JSON. A word that was replaced since is not among them. whole is
// false where the message has other fields that are not known: they came over gRPC, and have no form in JSON.
func Kept(m protoreflect.Message) (members [][]byte, whole bool) {
	if len(m.GetUnknown()) == 0 {
		return nil, true
	}
	whole = true
	p := planOf(m.Descriptor())
	eachUnknown(m, func(_, member []byte, name string) {
		f := p.byName[name]
		switch {
		case member == nil:
			whole = false
		case f == nil || !m.Has(f.of):
			members = append(members, member)
		}
	})
	return members, whole
}

// Forget drops a member that was kept.
func Forget(m protoreflect.Message, name string) {
	var left []byte
	eachUnknown(m, func(field, member []byte, of string) {
		if member == nil || of != name {
			left = append(left, field...)
		}
	})
	m.SetUnknown(left)
}
