package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/search"
	"github.com/millrace/millrace/internal/retrieval"
	"github.com/millrace/millrace/internal/rules"
)

// fresh returns the shard of a partition once its index shows what o asks for.
func (n *Node) fresh(ctx context.Context, p core.Partition, o core.ReadOptions) (*shard, core.At, error) {
	s, err := n.shardOf(p)
	if err != nil {
		return nil, core.At{}, err
	}
	if err := s.barrier(ctx, o); err != nil {
		return nil, core.At{}, err
	}
	s.applier.machineMu.RLock() // an entry that is being applied may have been answered in part: it is waited for
	defer s.applier.machineMu.RUnlock()
	return s, s.at(p), nil
}

// noSuchCollection is what calls about a collection that is not there are refused with.
func noSuchCollection(name string) error { return core.NotFound{Kind: "collection", ID: name} }

// Definition finds a collection in this node's copy of a partition. It does not wait for other nodes. When the collection is
// not there, it looks again after the entry that is being applied: its creator may have been answered already.
func (n *Node) Definition(p core.Partition, name string) (core.Collection, bool) {
	s, err := n.shardOf(p)
	if err != nil {
		return core.Collection{}, false
	}
	c := s.points.byName(p, name)
	if c == nil {
		s.applier.machineMu.RLock()
		c = s.points.byName(p, name)
		s.applier.machineMu.RUnlock()
	}
	if c == nil {
		return core.Collection{}, false
	}
	return c.def, true
}

// Collection reads a collection.
func (n *Node) Collection(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (info core.CollectionInfo, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		var ok bool
		info, ok, err = search.Collection(v, p, name)
		if err == nil && !ok {
			err = noSuchCollection(name)
		}
		return err
	})
	return info, at, err
}

// Collections lists the collections of a partition by name.
func (n *Node) Collections(ctx context.Context, p core.Partition, o core.ReadOptions) (list []core.CollectionInfo, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		list, err = search.Collections(v, p)
		return err
	})
	return list, at, err
}

// CheckDefinition refuses a definition with which no index can be made, or whose fields are to be read by expressions and cannot be:
// their names mean something else there.
func (n *Node) CheckDefinition(def *core.Collection) core.Fact {
	for i, f := range def.Fields { // one by one, to name the one that is wrong
		if f.Type == core.FieldText || !f.Index || f.Protected {
			continue
		}
		one, err := retrieval.NewSchema([]core.SchemaField{f})
		if err == nil && !rules.Reserved(f.Name) {
			_, err = one.Rules().Filter("has(" + f.Name + ")")
		}
		if err != nil || rules.Reserved(f.Name) {
			return core.Invalid{
				Field: fmt.Sprintf("schema[%d].name", i), Reason: "bad_name", Message: "is a word of expressions: take another one, or set index to false",
			}
		}
	}
	if _, err := retrieval.NewSchema(def.Fields); err != nil {
		return core.Invalid{Field: "schema", Reason: "bad_name", Message: "makes no sense to expressions"}
	}
	return nil
}

// CheckPayload holds a payload to a definition, and returns the text of it that is embedded: that of each text field, as
// often as its weight says, and once at least.
func (n *Node) CheckPayload(def *core.Collection, payload []byte) (string, core.Fact) {
	schema, err := n.schemaOf(def)
	if err != nil {
		return "", core.Invalid{Field: "payload", Reason: "field_type", Message: "the schema of the collection is of a newer build"}
	}
	if err := schema.Check(payload); err != nil {
		f, _ := errors.AsType[*retrieval.FieldError](err)
		if f == nil {
			return "", core.Invalid{Field: "payload", Reason: "field_type", Message: "makes no sense"}
		}
		return "", core.Invalid{Field: f.Path, Reason: "field_type", Message: "want " + f.Want}
	}
	var out strings.Builder
	for _, t := range def.Texts {
		text := retrieval.Text(payload, t.Name)
		if text == "" {
			continue
		}
		if len(text) > retrieval.MaxText {
			return "", core.TooLarge{Field: "payload." + t.Name, Limit: "point_text_bytes", Max: retrieval.MaxText}
		}
		for range max(1, (t.Weight+50)/100) {
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(text)
		}
	}
	return out.String(), nil
}

// schemas keeps the schemas of definitions, by uid: compiling one costs more than a write.
type schemas struct {
	// Guards byUID.
	mu sync.Mutex
	// At most maxSchemas; when there are more, all are dropped and compiled again as they are needed.
	byUID map[uint64]*retrieval.Schema
}

// maxSchemas bounds the schemas that are kept.
const maxSchemas = 1024

// schemaOf returns the compiled schema of a definition. Two callers may compile the same one: the later one is kept.
func (n *Node) schemaOf(def *core.Collection) (*retrieval.Schema, error) {
	n.schemas.mu.Lock()
	known := n.schemas.byUID[def.UID]
	n.schemas.mu.Unlock()
	if known != nil {
		return known, nil
	}
	made, err := retrieval.NewSchema(def.Fields)
	if err != nil {
		return nil, err
	}
	n.schemas.mu.Lock()
	defer n.schemas.mu.Unlock()
	if n.schemas.byUID == nil || len(n.schemas.byUID) >= maxSchemas {
		n.schemas.byUID = make(map[uint64]*retrieval.Schema)
	}
	n.schemas.byUID[def.UID] = made
	return made, nil
}

// RoomFor refuses points for which this node has no memory. It is asked before they are proposed, and never in Apply: how
// much memory there is, is a node's own affair.
func (n *Node) RoomFor(p core.Partition, def *core.Collection, more int) core.Fact {
	s, err := n.shardOf(p)
	if err != nil {
		return nil
	}
	c := s.points.byName(p, def.Name)
	if c == nil {
		return nil
	}
	if n.o.SearchBytes > 0 {
		used := int64(more) * c.index.PointBytes(0)
		for _, other := range n.shards {
			used += other.points.bytes()
		}
		if used > n.o.SearchBytes {
			return core.Exhausted{Limit: "search_memory", Max: n.o.SearchBytes}
		}
	}
	if c.index.Distinct() > retrieval.MaxDistinct {
		return core.Exhausted{Limit: "distinct_keywords", Max: retrieval.MaxDistinct}
	}
	return nil
}

// Points reads points by id, in their order.
func (n *Node) Points(ctx context.Context, p core.Partition, collection string, ids []string, o core.ReadOptions) (list []core.StoredPoint, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		if _, ok, err := search.Collection(v, p, collection); err != nil || !ok {
			return errors.Join(err, noSuchCollection(collection))
		}
		for _, id := range ids {
			one, ok, err := search.Point(v, p, collection, id)
			if err != nil {
				return err
			}
			if ok {
				list = append(list, one)
			}
		}
		return nil
	})
	return list, at, err
}

// SearchStats tells of the index that this node has of a collection.
func (n *Node) SearchStats(p core.Partition, collection string) core.SearchStats {
	s, err := n.shardOf(p)
	if err != nil {
		return core.SearchStats{}
	}
	c := s.points.byName(p, collection)
	if c == nil {
		return core.SearchStats{}
	}
	st := c.index.Stats()
	return core.SearchStats{Rows: uint64(st.Rows), Memory: st.Bytes, GraphRows: uint64(st.Graph), TailRows: uint64(st.Tail)}
}

// ruleList makes of stored rules what compiles.
func ruleList(in []core.Rule) []rules.Rule {
	out := make([]rules.Rule, len(in))
	for i, r := range in {
		out[i] = rules.Rule{
			ID: r.ID, When: r.When, Severity: rules.Severity(r.Severity), Weight: r.Weight, Reason: r.Reason, OnMissing: rules.OnMissing(r.OnMissing),
		}
	}
	return out
}

// CheckRules compiles rules against the fields of a collection.
func (n *Node) CheckRules(def *core.Collection, list []core.Rule) core.Fact {
	schema, err := n.schemaOf(def)
	if err != nil {
		return core.SearchState{Reason: "ruleset_unsupported", Want: n.o.Name}
	}
	_, err = schema.Rules().Ruleset(ruleList(list))
	return ruleFact("rules", err)
}

// ruleFact tells what is wrong with an expression, or with what it is given.
func ruleFact(field string, err error) core.Fact {
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*rules.Error](err)
	if !ok {
		return core.SearchInvalid{Field: field, Reason: rules.ExpressionInvalid, Message: "makes no sense"}
	}
	message := f.Message
	if f.Rule != "" {
		message = "rule " + f.Rule + ": " + message
	}
	return core.SearchInvalid{Field: field, Reason: f.Reason, Message: message, Line: f.Line, Column: f.Column}
}

// Ruleset reads a version of a ruleset.
func (n *Node) Ruleset(ctx context.Context, p core.Partition, name string, version uint32, o core.ReadOptions) (r core.Ruleset, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		var ok bool
		r, ok, err = search.Ruleset(v, p, name, version)
		if err == nil && !ok {
			err = core.NotFound{Kind: "ruleset", ID: name}
		}
		return err
	})
	return r, at, err
}

// Rulesets lists rulesets by name, each in its newest version.
func (n *Node) Rulesets(ctx context.Context, p core.Partition, o core.ReadOptions) (list []core.Ruleset, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		list, err = search.Rulesets(v, p)
		return err
	})
	return list, at, err
}

// Recording reads a recording.
func (n *Node) Recording(ctx context.Context, p core.Partition, uid, id uint64, o core.ReadOptions) (r core.Recording, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		var ok bool
		r, _, ok, err = search.ReadRecording(v, p, uid, id, n.Now(p))
		if err == nil && !ok {
			err = core.NotFound{Kind: "recording", ID: "search_id"}
		}
		return err
	})
	return r, at, err
}

// compiledRules keeps the rulesets that a collection's searches named lately. A version never changes, and its number does
// not come again after the ruleset was removed; whether it is still there is asked each time.
type compiledRules struct {
	// Guards known.
	mu sync.Mutex
	// At most maxCompiled; when there are more, all are dropped.
	known map[rulesetKey]*rules.Ruleset
}

// rulesetKey names a version of a ruleset, within a namespace.
type rulesetKey struct {
	name    string
	version uint32
}

// maxCompiled bounds the rulesets that are kept compiled of a collection.
const maxCompiled = 64

// rulesetVersion returns the number of a version of a ruleset that is kept, the newest one for 0.
func (s *shard) rulesetVersion(p core.Partition, name string, version uint32) (kept uint32, ok bool) {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	m := s.applier.machine.Search(p)
	if m == nil {
		return 0, false
	}
	return m.Version(name, version)
}

// compiled returns the version of a ruleset that a search names, as it is at the index that the search reads.
func (n *Node) compiled(ctx context.Context, s *shard, p core.Partition, c *indexed, q *core.SearchQuery) (*rules.Ruleset, uint32, error) {
	home := p
	home.Index = 0 // rulesets live in the namespace's first partition
	owner := s
	if home != p {
		var err error
		if owner, err = n.shardOf(home); err != nil {
			return nil, 0, err
		}
		read := q.Read
		if owner != s {
			read.MinIndex = 0 // it counts entries of the other shard
		}
		if _, _, err = n.fresh(ctx, home, read); err != nil {
			return nil, 0, err
		}
	}
	version, ok := owner.rulesetVersion(home, q.Ruleset, q.Version)
	if !ok {
		return nil, 0, core.NotFound{Kind: "ruleset", ID: q.Ruleset}
	}
	key := rulesetKey{q.Ruleset, version}
	c.rules.mu.Lock()
	rs := c.rules.known[key]
	c.rules.mu.Unlock()
	if rs != nil {
		return rs, version, nil
	}
	stored, _, err := n.Ruleset(ctx, home, q.Ruleset, version, core.ReadOptions{Stale: q.Read.Stale})
	if err != nil {
		return nil, 0, err
	}
	decoded, err := core.DecodeRules(stored.Rules)
	if err == nil {
		rs, err = c.index.Schema().Rules().Ruleset(ruleList(decoded.Rules))
	}
	if err != nil { // written by a newer build, or for a collection with other fields: no rule is skipped
		return nil, 0, core.SearchState{Reason: "ruleset_unsupported", Field: "judge.ruleset", Want: n.o.Name}
	}
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	if c.rules.known == nil || len(c.rules.known) >= maxCompiled {
		c.rules.known = make(map[rulesetKey]*rules.Ruleset)
	}
	c.rules.known[rulesetKey{q.Ruleset, stored.Version}] = rs
	return rs, stored.Version, nil
}
