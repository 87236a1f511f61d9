package frame

import (
	"google.golang.org/protobuf/encoding/protowire"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// PutBytes is what an item of a frame of puts takes besides key and value, in bytes, at most.
const PutBytes = 32

// AppendPut appends an item of a PutsFrame as it stands on the wire, field 4 of the frame. op holds the conditions of the put, nil
// for none; its key and value are not looked at.
func AppendPut(b []byte, key string, value []byte, op *millracev1.KVPut) []byte {
	// Size first, as the item is a message with its length before it.
	size := textSize(key) + textSize(value)
	if op != nil {
		if op.IfRev != nil {
			size += 1 + protowire.SizeVarint(*op.IfRev)
		}
		size += 2 * flag(op.IfAbsent)
	}
	// Fields of the item: key, value, if_rev, if_absent, under the numbers 1 to 4.
	b = appendText(appendText(appendHead(b, 4, size), 1, key), 2, value)
	// Without conditions that is all.
	if op == nil {
		return b
	}
	if op.IfRev != nil {
		b = protowire.AppendVarint(append(b, 3<<3|byte(protowire.VarintType)), *op.IfRev)
	}
	if op.IfAbsent {
		b = append(b, 4<<3|byte(protowire.VarintType), 1)
	}
	return b
}
