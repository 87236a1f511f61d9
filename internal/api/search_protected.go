package api

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// mayReadProtected is what a caller needs to see protected fields.
const mayReadProtected = auth.SearchProtected

// deniedProtected refuses what would tell a caller of protected fields.
var deniedProtected = core.Denied{Scope: "search:protected"}

// protectsTexts says whether words and vectors of a collection are made of a protected field. Then they tell of it: who searches
// learns by the score whether a word stands there, and a vector can be turned back into words.
func protectsTexts(def *core.Collection) bool {
	return slices.ContainsFunc(def.Fields, func(f core.SchemaField) bool {
		return f.Protected && slices.ContainsFunc(def.Texts, func(t core.TextField) bool { return t.Name == f.Name })
	})
}

// protects says whether a gate of a kind reads a protected field.
func protects(def *core.Collection, gate core.Gate) bool {
	return slices.ContainsFunc(def.Fields, func(f core.SchemaField) bool { return f.Protected && f.Gate == gate })
}

// mayGate refuses a gate that would count by protected fields, or name what is near to what they hold, for a caller who may not see
// them. Filters, rules and decay are refused for everyone where they are compiled.
func (c *call) mayGate(def *core.Collection, g *core.SearchGate) core.Fact {
	if c.who.Scopes.Has(mayReadProtected) {
		return nil
	}
	// A gate that is not asked for tells nothing.
	for gate, asked := range map[core.Gate]bool{
		core.GateRole: len(g.Roles) > 0, core.GateCredential: len(g.Credentials) > 0, core.GateBlock: g.Client != "",
	} {
		if asked && protects(def, gate) {
			return deniedProtected
		}
	}
	return nil
}

// maySearch refuses a search, by text or vector, that would rank by protected texts.
func (c *call) maySearch(def *core.Collection, g *core.SearchGate) core.Fact {
	if protectsTexts(def) && !c.who.Scopes.Has(mayReadProtected) {
		return deniedProtected
	}
	return c.mayGate(def, g)
}

// mayReadRecording refuses the scores and counts of a search that the caller could not have made.
func (c *call) mayReadRecording(ctx context.Context, uid uint64) error {
	if c.who.Scopes.Has(mayReadProtected) {
		return nil
	}
	// By the uid of the collection as it was recorded: a collection that was removed since protects
	// nothing any more.
	all, _, err := c.s.node.search.Collections(ctx, c.t.part, core.ReadOptions{})
	if err != nil {
		return err
	}
	for i := range all {
		def := &all[i].Collection
		if def.UID != uid {
			continue
		}
		if protectsTexts(def) || protects(def, core.GateRole) || protects(def, core.GateCredential) || protects(def, core.GateBlock) {
			return deniedProtected
		}
	}
	return nil
}

// visible is a payload without the fields that the caller may not see.
func (c *call) visible(def *core.Collection, payload []byte) []byte {
	if len(payload) == 0 || c.who.Scopes.Has(mayReadProtected) {
		return payload
	}
	for i := range def.Fields {
		if def.Fields[i].Protected {
			return withoutProtected(def, payload, &c.s.Limits)
		}
	}
	return payload
}

// withoutProtected writes a JSON object without the fields that are protected. What cannot be read is not shown.
func withoutProtected(def *core.Collection, payload []byte, l *edge.Limits) []byte {
	// The fields of a payload are few, so the definition is searched for each.
	hidden := func(name []byte) bool {
		return slices.ContainsFunc(def.Fields, func(f core.SchemaField) bool { return f.Protected && f.Name == string(name) })
	}
	d := strictjson.NewReader(payload, l.JSONDepth)
	out := append(make([]byte, 0, len(payload)), '{')
	if d.Enter('{', "must be an object") {
		for first := true; d.Next('}', first); first = false {
			name := d.Name()
			if d.Fact() != nil {
				break
			}
			hide := hidden(name)
			// The value is copied as it stands, so that what is left is byte for byte what was stored.
			value := d.Raw()
			if hide || d.Fact() != nil {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			w := strictjson.Writer{B: out}
			w.Quote(string(name))
			out = append(append(w.B, ':'), value...)
		}
	}
	if d.Fact() != nil {
		return []byte("{}")
	}
	return append(out, '}')
}
