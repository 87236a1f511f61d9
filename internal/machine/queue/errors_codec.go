package queue

import "github.com/millrace/millrace/internal/core"

// appendErrorGroup writes a group. Queue and fingerprint are in its key.
func appendErrorGroup(b []byte, g *core.ErrorGroup) []byte {
	b = putUint(append(b, formErrorGroup), g.Count)
	b = putInt(putInt(b, int64(g.First)), int64(g.Last-g.First))
	b = putString(putString(putString(b, g.Kind), g.Code), g.Message)
	for _, n := range g.Trend {
		b = putUint(b, n)
	}
	b = putUint(b, uint64(len(g.Sample)))
	for i := range g.Sample {
		b = append(b, g.Sample[i][:]...)
	}
	return b
}

// decodeErrorGroup reads what appendErrorGroup wrote.
func decodeErrorGroup(b []byte) (g core.ErrorGroup, err error) {
	r := read(b, formErrorGroup)
	g.Count, g.First = r.uint(), core.ShardTime(r.int())
	g.Last = g.First + core.ShardTime(r.int())
	g.Kind, g.Code, g.Message = r.string(), r.string(), r.string()
	for i := range g.Trend {
		g.Trend[i] = r.uint()
	}
	for n := r.uint(); n > 0 && !r.bad; n-- {
		g.Sample = append(g.Sample, r.id())
	}
	return g, r.done("group of errors")
}

// appendErrors writes what is known of the groups of a queue, with its name.
func appendErrors(b []byte, name string, s *errorState) []byte {
	b = putUint(putString(append(b, formErrors), name), uint64(s.groups))
	b = putInt(append(b, boolByte(s.other)), int64(s.due))
	return putInt(putFixed(b, uint64(s.cursor)), int64(s.oldest))
}

// decodeErrors reads what appendErrors wrote.
func decodeErrors(b []byte) (name string, s errorState, err error) {
	r := read(b, formErrors)
	name, s.groups = r.string(), r.u32()
	s.other, s.due = r.byte() != 0, core.ShardTime(r.int())
	s.cursor, s.oldest = core.Fingerprint(r.fixed()), core.ShardTime(r.int())
	return name, s, r.done("groups of errors of a queue")
}
