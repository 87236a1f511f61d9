package rest

import millracev1 "github.com/millrace/millrace/gen/millrace/v1"

func (w *restBody) add(a *millracev1.KVAdd) {
	w.text("keyspace", a.GetKeyspace())
	w.bytes("key", a.GetKey())
	w.anyInt("delta", a.GetDelta())
	w.ifRev(a.IfRev)
	if a.Floor != nil {
		w.anyInt("floor", *a.Floor)
	}
	if a.Ceiling != nil {
		w.anyInt("ceiling", *a.Ceiling)
	}
}

func (w *restBody) deleteRange(r *millracev1.KVDeleteRange) {
	w.text("keyspace", r.GetKeyspace())
	w.bytes("from", r.GetFrom())
	w.bytes("to", r.GetTo())
	w.bytes("prefix", r.GetPrefix())
	w.flag("count", r.GetCount())
}
