package rest

import (
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// Ops on keys other than puts, deletes and checks.

var kvAddFields = []jsonField[pb.KVAdd]{
	{"keyspace", func(d *jsonReader, m *pb.KVAdd) { m.Keyspace = d.Text() }},
	{"key", func(d *jsonReader, m *pb.KVAdd) { d.anyBytes(&m.Key, false) }},
	{"key_base64", func(d *jsonReader, m *pb.KVAdd) { d.anyBytes(&m.Key, true) }},
	{"delta", func(d *jsonReader, m *pb.KVAdd) { m.Delta = d.Integer(math.MinInt64, math.MaxInt64) }},
	{"if_rev", func(d *jsonReader, m *pb.KVAdd) { m.IfRev = new(d.Unsigned()) }},
	{"floor", func(d *jsonReader, m *pb.KVAdd) { m.Floor = new(d.Integer(math.MinInt64, math.MaxInt64)) }},
	{"ceiling", func(d *jsonReader, m *pb.KVAdd) { m.Ceiling = new(d.Integer(math.MinInt64, math.MaxInt64)) }},
}

var kvDeleteRangeFields = []jsonField[pb.KVDeleteRange]{
	{"keyspace", func(d *jsonReader, m *pb.KVDeleteRange) { m.Keyspace = d.Text() }},
	{"from", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.From, false) }},
	{"from_base64", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.From, true) }},
	{"to", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.To, false) }},
	{"to_base64", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.To, true) }},
	{"prefix", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.Prefix, false) }},
	{"prefix_base64", func(d *jsonReader, m *pb.KVDeleteRange) { d.anyBytes(&m.Prefix, true) }},
	{"count", func(d *jsonReader, m *pb.KVDeleteRange) { m.Count = d.Boolean() }},
}
