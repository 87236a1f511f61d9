package check

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// searches is what a partition knows of search: definitions, versions of points, rulesets, recordings.
type searches struct {
	collections map[string]*collected
	rules       map[string]*published
	removed     uint64 // highest number of a version that was removed with its ruleset
}

type collected struct {
	def        core.Collection
	points     map[string]uint64 // version; laterRev when it is not known
	recordings map[uint64]bool
}

type published struct {
	newest uint64
	rules  []byte
}

func newSearches() searches {
	return searches{collections: map[string]*collected{}, rules: map[string]*published{}}
}

// ofSearch reports whether an op is of the search service.
func ofSearch(op core.Op) bool {
	switch op.(type) {
	case *core.VectorUpsert, *core.VectorDelete, *core.CollectionSet, *core.CollectionDelete, *core.RulesetPut,
		*core.RulesetDelete, *core.RecordingPut:
		return true
	}
	return false
}

func (m *Model) searchOp(p *part, op core.Op, a answer, before uint64) error {
	if op, removes := op.(*core.RulesetDelete); removes && m.rules < core.FormatQueues {
		if f, ok := a.fact.(core.Invalid); ok && f.Reason == "not_supported" {
			return nil
		}
		return fmt.Errorf("ruleset %q was removed by an entry of format %d: answered %s", op.Name, m.rules, a)
	}
	if a.fact != nil {
		return m.searchRefused(p, op, a.fact)
	}
	if want := searchMisfit(op); want != "" {
		return fmt.Errorf("%T was applied, its %s is out of bounds", op, want)
	}
	switch op := op.(type) {
	case *core.VectorUpsert:
		return m.upsertPoint(p, op, a, before)
	case *core.VectorDelete:
		return m.deletePoint(p, op, a)
	case *core.CollectionSet:
		return m.collectionSet(p, op, a)
	case *core.CollectionDelete:
		c := p.search.collections[op.Name]
		if !a.blind && a.result.Existed != (c != nil) {
			return fmt.Errorf("collection %q existed=%v: answered %v", op.Name, c != nil, a.result.Existed)
		}
		drop(m, p.search.collections, op.Name)
		return nil
	case *core.RulesetPut:
		return m.rulesetPut(p, op, a)
	case *core.RulesetDelete:
		return m.rulesetDelete(p, op, a)
	case *core.RecordingPut:
		c := p.search.collections[op.Collection]
		if c == nil || c.recordings[op.ID] {
			return fmt.Errorf("a recording of collection %q was kept, which stands against it", op.Collection)
		}
		set(m, c.recordings, op.ID, true)
		return nil
	}
	return fmt.Errorf("%T is not an op of search", op)
}

// pointOf is the one point that an op writes.
func pointOf(op core.Op) (collection, id string, one bool) {
	switch op := op.(type) {
	case *core.VectorUpsert:
		return op.Collection, op.ID, true
	case *core.VectorDelete:
		return op.Collection, op.ID, true
	}
	return "", "", false
}

// searchRefused judges whether a refusal has a ground.
func (m *Model) searchRefused(p *part, op core.Op, fact core.Fact) error {
	ok := false
	switch f := fact.(type) {
	case core.NotFound:
		name, _, needs := collectionOf(op)
		ok = f.Kind == "collection" && f.ID == name && needs && p.search.collections[name] == nil
	case core.Unavailable:
		name, uid, _ := collectionOf(op)
		c := p.search.collections[name]
		ok = f.Reason == "collection_not_ready" && c != nil && uid != 0 && uid != c.def.UID
	case core.SearchState:
		u, is := op.(*core.VectorUpsert)
		ok = is && p.search.collections[u.Collection] != nil && u.Model != "" && u.Model != p.search.collections[u.Collection].def.Model
	case core.DimMismatch:
		u, is := op.(*core.VectorUpsert)
		ok = is && p.search.collections[u.Collection] != nil && len(u.Vector) != 4*int(p.search.collections[u.Collection].def.Dim)
	case core.VersionMismatch:
		ok = m.versionRefused(p, op, f)
	case core.AlreadyExists:
		ok = existsAlready(p, op)
	case core.Exhausted:
		ok = f.Max > 0 // a count is reached: how many there may be is an option of the machine
	case core.Invalid:
		_, defines := op.(*core.CollectionSet)
		r, publishes := op.(*core.RulesetPut)
		ok = searchMisfit(op) != "" || publishes && r.Version != 0 && f.Field == "version" ||
			defines && (strings.HasPrefix(f.Field, "schema[") || strings.HasPrefix(f.Field, "text_fields["))
	case core.TooLarge:
		ok = searchMisfit(op) != ""
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%T refused with %s, which nothing explains", op, named(fact))
}

func collectionOf(op core.Op) (name string, uid uint64, needs bool) {
	switch op := op.(type) {
	case *core.VectorUpsert:
		return op.Collection, op.UID, true
	case *core.VectorDelete:
		return op.Collection, 0, true
	case *core.RecordingPut:
		return op.Collection, op.UID, true
	}
	return "", 0, false
}

// versionRefused: the point's version is not the one asked for, and it is the one that is named.
func (m *Model) versionRefused(p *part, op core.Op, f core.VersionMismatch) bool {
	name, _, _ := collectionOf(op)
	c := p.search.collections[name]
	if c == nil || f.Collection != name {
		return false
	}
	has, want, absent, id := false, uint64(0), false, ""
	switch op := op.(type) {
	case *core.VectorUpsert:
		has, want, absent, id = op.HasVersion, op.IfVersion, op.IfAbsent, op.ID
	case *core.VectorDelete:
		has, want, id = op.HasVersion, op.IfVersion, op.ID
	}
	now := c.points[id]
	if f.ID != id || now != laterRev && f.Version != now {
		return false
	}
	return has && (now == laterRev || want != now) || absent && now != 0
}

func existsAlready(p *part, op core.Op) bool {
	switch op := op.(type) {
	case *core.CollectionSet:
		c := p.search.collections[op.Collection.Name]
		return c != nil && !sameDefinition(c.def, op.Collection)
	case *core.RulesetPut:
		r := p.search.rules[op.Name]
		return r != nil && op.Version != 0 && uint64(op.Version) <= r.newest
	case *core.RecordingPut:
		c := p.search.collections[op.Collection]
		return c != nil && c.recordings[op.ID]
	}
	return false
}

func sameDefinition(a, b core.Collection) bool {
	a.UID, b.UID = 0, 0
	return reflect.DeepEqual(a, b)
}

func (m *Model) upsertPoint(p *part, op *core.VectorUpsert, a answer, before uint64) error {
	c := p.search.collections[op.Collection]
	if c == nil {
		return fmt.Errorf("a point of collection %q was stored, which does not exist", op.Collection)
	}
	now := c.points[op.ID]
	switch {
	case op.UID != 0 && op.UID != c.def.UID, op.Model != "" && op.Model != c.def.Model, len(op.Vector) != 4*int(c.def.Dim):
		return fmt.Errorf("point %q does not fit collection %q and was stored", op.ID, op.Collection)
	case now != laterRev && (op.IfAbsent && now != 0 || op.HasVersion && op.IfVersion != now):
		return fmt.Errorf("point %q has version %d, which the upsert excludes", op.ID, now)
	}
	version := uint64(laterRev)
	if !a.blind {
		version = a.result.Rev
		if version <= before || p.rev > before && version != p.rev {
			return fmt.Errorf("point %q: version %d, the last commit had %d, this one %d", op.ID, version, before, p.rev)
		}
		if a.result.Existed != (now != 0) {
			return fmt.Errorf("point %q existed=%v: answered %v", op.ID, now != 0, a.result.Existed)
		}
		last := p.rev
		m.change(func() { p.rev = last })
		p.rev = max(p.rev, version)
	}
	set(m, c.points, op.ID, version)
	return nil
}

func (m *Model) deletePoint(p *part, op *core.VectorDelete, a answer) error {
	c := p.search.collections[op.Collection]
	if c == nil {
		return fmt.Errorf("a point of collection %q was deleted, which does not exist", op.Collection)
	}
	now := c.points[op.ID]
	if op.HasVersion && now != laterRev && op.IfVersion != now {
		return fmt.Errorf("point %q has version %d and was deleted as %d", op.ID, now, op.IfVersion)
	}
	if !a.blind && a.result.Existed != (now != 0) {
		return fmt.Errorf("point %q existed=%v: answered %v", op.ID, now != 0, a.result.Existed)
	}
	drop(m, c.points, op.ID)
	return nil
}

func (m *Model) collectionSet(p *part, op *core.CollectionSet, a answer) error {
	name := op.Collection.Name
	if c := p.search.collections[name]; c != nil {
		if !sameDefinition(c.def, op.Collection) || !a.blind && !a.result.Replayed {
			return fmt.Errorf("collection %q exists and was made", name)
		}
		return nil
	}
	if !a.blind && a.result.Replayed {
		return fmt.Errorf("collection %q is new: answered as a replay", name)
	}
	set(m, p.search.collections, name, &collected{
		def: op.Collection, points: map[string]uint64{}, recordings: map[uint64]bool{},
	})
	return nil
}

func (m *Model) rulesetPut(p *part, op *core.RulesetPut, a answer) error {
	r, known := p.search.rules[op.Name]
	if !known {
		r = &published{newest: p.search.removed}
	}
	again := known && bytes.Equal(r.rules, op.Rules) && (op.Version == 0 || uint64(op.Version) == r.newest)
	want := r.newest
	if !again {
		want++
	}
	if op.Version != 0 && uint64(op.Version) != want {
		return fmt.Errorf("ruleset %q: version %d was published after %d", op.Name, op.Version, r.newest)
	}
	if !a.blind && (a.result.Version != want || a.result.Replayed != again) {
		return fmt.Errorf("ruleset %q: answered version %d, expected %d", op.Name, a.result.Version, want)
	}
	set(m, p.search.rules, op.Name, &published{want, op.Rules})
	return nil
}

// rulesetDelete: no number that the ruleset had comes again in its partition.
func (m *Model) rulesetDelete(p *part, op *core.RulesetDelete, a answer) error {
	r, known := p.search.rules[op.Name]
	if !a.blind && a.result.Existed != known {
		return fmt.Errorf("ruleset %q existed=%v: answered %v", op.Name, known, a.result.Existed)
	}
	if !known {
		return nil
	}
	last := p.search.removed
	m.change(func() { p.search.removed = last })
	p.search.removed = max(last, r.newest)
	drop(m, p.search.rules, op.Name)
	return nil
}

// searchMisfit names what an op may not say whatever the state, as the documentation bounds it; empty for nothing.
func searchMisfit(op core.Op) string {
	switch op := op.(type) {
	case *core.VectorUpsert:
		switch {
		case op.ID == "" || len(op.ID) > 128 || bytes.ContainsFunc([]byte(op.ID), func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return "id"
		case len(op.Payload) > 64<<10:
			return "payload"
		case op.IfAbsent && op.HasVersion && op.IfVersion != 0:
			return "if_absent"
		}
	case *core.VectorDelete:
		if op.ID == "" || len(op.ID) > 128 || bytes.ContainsFunc([]byte(op.ID), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return "id"
		}
	case *core.CollectionSet:
		return definitionMisfit(&op.Collection)
	case *core.CollectionDelete:
		if misfitsOfName("name", op.Name) != nil {
			return "name"
		}
	case *core.RulesetDelete:
		if misfitsOfName("name", op.Name) != nil {
			return "name"
		}
	case *core.RulesetPut:
		if misfitsOfName("name", op.Name) != nil || len(op.Rules) > 64<<10 {
			return "name or size"
		}
	case *core.RecordingPut:
		if op.ID == 0 || op.TTL < 0 || len(op.Data) > 1<<20 {
			return "number, time or size"
		}
	}
	return ""
}

func definitionMisfit(c *core.Collection) string {
	switch {
	case misfitsOfName("name", c.Name) != nil:
		return "name"
	case c.UID == 0:
		return "uid"
	case c.Dim < 2 || c.Dim > 4096:
		return "dim"
	case c.Metric != core.MetricCosine && c.Metric != core.MetricDot:
		return "metric"
	case len(c.Fields) > 64 || len(c.Texts) > 16:
		return "schema"
	case c.Model == "" || len(c.Model) > 256 || len(c.Embedder) > 256:
		return "embedder"
	case c.MaxPoints < 0:
		return "limits.points"
	case c.OnFailure != core.EmbedFail:
		return "on_embed_failure"
	}
	return ""
}
