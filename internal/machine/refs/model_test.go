package refs_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/refs"
)

var part = core.Partition{Tenant: 1, Namespace: 2}

func oid(n int) core.ObjectID { return core.ObjectID{byte(n), 19: 1} }

// model keeps refs in plain maps and decides by looking at all of them.
type model struct {
	ids     map[string]core.ObjectID
	targets map[string]string
	logs    map[string][]core.ObjectID // what each ref was moved to, in order; zero = deleted
	rev     uint64
	hide    string
	protect string // no updates
}

func newModel() *model {
	return &model{
		ids: map[string]core.ObjectID{}, targets: map[string]string{"HEAD": "refs/heads/main"}, logs: map[string][]core.ObjectID{},
	}
}

func (m *model) clone() *model {
	c := *m
	c.ids, c.targets, c.logs = maps.Clone(m.ids), maps.Clone(m.targets), maps.Clone(m.logs)
	return &c
}

func (m *model) has(name string) bool {
	_, id := m.ids[name]
	_, target := m.targets[name]
	return id || target
}

func (m *model) names() []string {
	return append(slices.Collect(maps.Keys(m.ids)), slices.Collect(maps.Keys(m.targets))...)
}

// value follows symbolic refs.
func (m *model) value(name string) core.ObjectID {
	for range 6 {
		target, ok := m.targets[name]
		if !ok {
			return m.ids[name]
		}
		name = target
	}
	return core.ObjectID{}
}

// following is value of a ref that another one is to point to: a circle has none.
func (m *model) following(name, from string) core.ObjectID {
	for range 6 {
		if name == from {
			return core.ObjectID{}
		}
		target, ok := m.targets[name]
		if !ok {
			return m.ids[name]
		}
		name = target
	}
	return core.ObjectID{}
}

// resolved is a change of the model: the ref it is finally about, and all names it takes.
type resolved struct {
	name  string
	takes []string
	links []string
	bad   bool
}

func (m *model) resolve(c *core.RefChange) (r resolved) {
	r = resolved{name: c.Name, takes: []string{c.Name}}
	if core.CheckRefName(c.Name) != "" {
		r.bad = true
		return r
	}
	if c.Kind < core.OpSymrefUpdate && !c.NoDeref {
		for m.targets[r.name] != "" {
			if len(r.links) == 5 {
				r.bad = true
				return r
			}
			r.links = append(r.links, r.name)
			r.name = m.targets[r.name]
			r.takes = append(r.takes, r.name)
		}
	}
	if m.targets["HEAD"] == r.name && !slices.Contains(r.takes, "HEAD") {
		r.takes, r.links = append(r.takes, "HEAD"), append(r.links, "HEAD")
	}
	return r
}

// allows judges one change against the state.
func (m *model) allows(c *core.RefChange, r resolved) bool {
	if r.bad {
		return false
	}
	exists, old := m.has(r.name), m.value(r.name)
	target := m.targets[r.name]
	absent := c.Kind == core.OpRefCreate || c.Kind == core.OpSymrefCreate || c.HasOld && c.Old.IsZero() || c.HasOldTarget && c.OldTarget == "" ||
		(c.Kind == core.OpRefVerify || c.Kind == core.OpSymrefVerify) && !c.HasOld && !c.HasOldTarget
	switch {
	case m.hide != "" && (strings.HasPrefix(c.Name, m.hide) || strings.HasPrefix(r.name, m.hide)):
		return false
	case absent && exists:
		return false
	case !absent && c.HasOld && (!exists || old != c.Old):
		return false
	case c.Kind == core.OpRefDelete && !exists && !c.MissingOK:
		return false
	case !absent && (c.Kind == core.OpSymrefDelete || c.HasOldTarget) && target == "":
		return false
	case !absent && c.HasOldTarget && target != c.OldTarget:
		return false
	}
	if !exists {
		for _, name := range m.names() {
			if strings.HasPrefix(name, r.name+"/") || strings.HasPrefix(r.name, name+"/") {
				return false
			}
		}
	}
	changes := m.changes(c, r)
	if changes && !c.New.IsZero() && c.Kind <= core.OpRefVerify {
		if c.Type == core.ObjectMissing || c.Type != core.ObjectCommit && core.IsBranch(r.name) {
			return false
		}
	}
	return !(changes && exists && m.protect != "" && strings.HasPrefix(r.name, m.protect) && !m.deletes(c))
}

func (m *model) deletes(c *core.RefChange) bool {
	return c.Kind == core.OpSymrefDelete || c.Kind == core.OpRefDelete || c.Kind == core.OpRefUpdate && c.New.IsZero()
}

func (m *model) changes(c *core.RefChange, r resolved) bool {
	switch {
	case c.Kind == core.OpRefVerify || c.Kind == core.OpSymrefVerify:
		return false
	case m.deletes(c):
		return m.has(r.name)
	case c.Kind >= core.OpSymrefUpdate:
		return m.targets[r.name] != c.Target
	}
	_, plain := m.ids[r.name]
	return !plain || m.ids[r.name] != c.New
}

// apply applies a change that was judged on the state before.
func (m *model) apply(before *model, c *core.RefChange, r resolved) (changed bool) {
	if !before.changes(c, r) {
		return false
	}
	value := c.New
	if c.Kind == core.OpSymrefUpdate || c.Kind == core.OpSymrefCreate {
		value = before.following(c.Target, r.name)
	}
	delete(m.ids, r.name)
	delete(m.targets, r.name)
	switch {
	case m.deletes(c):
	case c.Kind >= core.OpSymrefUpdate:
		m.targets[r.name] = c.Target
	default:
		m.ids[r.name] = c.New
	}
	for _, name := range append(r.links, r.name) {
		m.logs[name] = append(slices.Clip(m.logs[name]), value)
	}
	return true
}

// transact returns which changes were applied; nil when the transaction is refused.
func (m *model) transact(op *core.RefTxn) (applied []bool) {
	var all []resolved
	applied = make([]bool, len(op.Changes))
	taken := map[string]bool{}
	changed := false
	if op.Partial {
		for i := range op.Changes {
			r := m.resolve(&op.Changes[i])
			clash := slices.ContainsFunc(r.takes, func(name string) bool { return taken[name] })
			if clash || !m.allows(&op.Changes[i], r) {
				continue
			}
			for _, name := range r.takes {
				taken[name] = true
			}
			applied[i] = true
			changed = m.apply(m.clone(), &op.Changes[i], r) || changed
		}
	} else {
		for i := range op.Changes {
			r := m.resolve(&op.Changes[i])
			if r.bad || !m.allows(&op.Changes[i], r) || slices.ContainsFunc(r.takes, func(name string) bool { return taken[name] }) {
				return nil
			}
			for _, name := range r.takes {
				taken[name] = true
			}
			all = append(all, r)
		}
		for i := range all {
			for name := range taken {
				if !m.has(all[i].name) && (strings.HasPrefix(name, all[i].name+"/") || strings.HasPrefix(all[i].name, name+"/")) {
					return nil
				}
			}
		}
		before := m.clone()
		for i := range all {
			applied[i] = true
			changed = m.apply(before, &op.Changes[i], all[i]) || changed
		}
	}
	if changed {
		m.rev++
	}
	return applied
}

// rig is a machine together with the model.
type rig struct {
	t     *rapid.T
	tx    *machinetest.Txn
	m     *refs.Machine
	model *model
	stamp core.ShardTime
	index uint64
}

func newRig(t *rapid.T) *rig {
	r := &rig{t: t, tx: machinetest.NewTxn(), m: refs.New(part, refs.Options{}), model: newModel(), stamp: 1_700_000_000_000}
	if _, fact := r.do(&core.RepoCreate{Name: "app", ID: core.RepoID{1}}); fact != nil {
		t.Fatal(fact)
	}
	return r
}

func (r *rig) do(op core.Op) (core.OpResult, core.Fact) {
	r.index++
	r.stamp++
	out, fact, err := r.m.Apply(r.tx, &core.ApplyContext{Stamp: r.stamp, Index: r.index, Principal: "p"}, op)
	if err != nil {
		r.t.Fatalf("%+v: %v", op, err)
	}
	return out, fact
}

var someNames = []string{
	"refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/main", "refs/tags/a", "refs/tags/a/b", "HEAD", "refs/l/x",
	"refs/l/y", "refs/heads", "refs/bad..name", "refs/hidden/a", "refs/safe/a",
}

func drawChange(t *rapid.T) core.RefChange {
	c := core.RefChange{Kind: core.OpRefCreate + core.OpKind(rapid.IntRange(0, 7).Draw(t, "kind")), Name: rapid.SampledFrom(someNames).Draw(t, "name")}
	id := func(label string) core.ObjectID { return oid(rapid.IntRange(1, 3).Draw(t, label)) }
	old := func(zero bool) {
		if c.HasOld = rapid.Bool().Draw(t, "has old"); c.HasOld && !(zero && rapid.IntRange(0, 3).Draw(t, "zero") == 0) {
			c.Old = id("old")
		}
	}
	target := func() string {
		return rapid.SampledFrom([]string{"refs/heads/main", "refs/heads/a", "refs/l/x", "refs/l/y"}).Draw(t, "target")
	}
	if c.Kind < core.OpSymrefUpdate {
		c.NoDeref = rapid.IntRange(0, 3).Draw(t, "no deref") == 0
	}
	switch c.Kind {
	case core.OpRefCreate:
		c.New = id("new")
	case core.OpRefUpdate:
		old(true)
		if rapid.IntRange(0, 5).Draw(t, "delete") > 0 {
			c.New = id("new")
		}
	case core.OpRefDelete:
		old(false)
		c.MissingOK = rapid.Bool().Draw(t, "missing ok")
	case core.OpRefVerify:
		old(true)
	case core.OpSymrefUpdate, core.OpSymrefCreate:
		c.Target = target()
		if c.Kind == core.OpSymrefUpdate && rapid.Bool().Draw(t, "has old target") {
			if c.HasOldTarget = true; rapid.IntRange(0, 3).Draw(t, "none") > 0 {
				c.OldTarget = target()
			}
		}
	case core.OpSymrefDelete, core.OpSymrefVerify:
		if c.HasOldTarget = rapid.Bool().Draw(t, "has old target"); c.HasOldTarget {
			c.OldTarget = target()
		}
	}
	if !c.New.IsZero() {
		c.Type = core.ObjectCommit
		switch rapid.IntRange(0, 12).Draw(t, "type") {
		case 0:
			c.Type = core.ObjectMissing
		case 1:
			c.Type = core.ObjectTag
		}
	}
	return c
}

// check compares all that can be read.
func (r *rig) check() {
	r.t.Helper()
	got, want := map[string]string{}, map[string]string{}
	if err := refs.Scan(r.tx, part, core.RepoID{1}, "", "", func(ref core.Ref) bool {
		got[ref.Name] = ref.Target
		if ref.Target == "" {
			got[ref.Name] = ref.ID.String()
		}
		return true
	}); err != nil {
		r.t.Fatal(err)
	}
	for name, id := range r.model.ids {
		want[name] = id.String()
	}
	maps.Copy(want, r.model.targets)
	if !maps.Equal(got, want) {
		r.t.Fatalf("refs are %v, want %v", got, want)
	}
	info, ok, err := refs.Find(r.tx, part, "app")
	if err != nil || !ok {
		r.t.Fatalf("find: %v, %v", ok, err)
	}
	if info.Stats.Rev != r.model.rev || info.Stats.Refs != int64(len(want)) || info.Head != r.model.targets["HEAD"] {
		r.t.Fatalf("got %+v, head %q; want rev %d, %d refs", info.Stats, info.Head, r.model.rev, len(want))
	}
	for name, moves := range r.model.logs {
		log, err := refs.Log(r.tx, part, &info, name, 0, 1000, r.stamp)
		if err != nil {
			r.t.Fatal(err)
		}
		var news []core.ObjectID
		for i, e := range log {
			news = append(news, e.New)
			if i > 0 && log[i-1].Seq <= e.Seq {
				r.t.Fatalf("log of %s is not newest first: %+v", name, log)
			}
		}
		slices.Reverse(news)
		if !slices.Equal(news, moves) {
			r.t.Fatalf("log of %s is %v, want %v", name, news, moves)
		}
	}
}

func (r *rig) transact() {
	op := &core.RefTxn{Repo: "app", Partial: rapid.IntRange(0, 3).Draw(r.t, "partial") == 0}
	for range rapid.IntRange(1, 5).Draw(r.t, "changes") {
		op.Changes = append(op.Changes, drawChange(r.t))
	}
	undo := rapid.IntRange(0, 5).Draw(r.t, "undo") == 0
	model := r.model.clone()
	if undo {
		r.tx.Mark()
		r.m.Mark()
	}
	applied := r.model.transact(op)
	out, fact := r.do(op)
	if (fact != nil) != (applied == nil) {
		r.t.Fatalf("%+v: got %v, want %v", op.Changes, fact, applied)
	}
	if fact == nil {
		for i, c := range out.Refs.Changes {
			if (c.Failure == nil) != applied[i] {
				r.t.Fatalf("change %d of %+v: got %v, want %v", i, op.Changes, c.Failure, applied[i])
			}
		}
	}
	if undo {
		r.tx.Undo()
		r.m.Undo()
		r.model = model
	}
}

func TestTransactionsAreWhatPlainMapsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		t.Repeat(map[string]func(*rapid.T){
			"transact": func(*rapid.T) { r.transact() },
			"reopen": func(t *rapid.T) {
				r.m = refs.New(part, refs.Options{})
				if err := r.m.Open(r.tx); err != nil {
					t.Fatal(err)
				}
			},
			"set": func(t *rapid.T) {
				c := core.RepoConfig{}
				if r.model.hide, r.model.protect = "", ""; rapid.Bool().Draw(t, "hide") {
					r.model.hide, c.Hide = "refs/hidden/", []string{"refs/hidden/**"}
				}
				if rapid.Bool().Draw(t, "protect") {
					r.model.protect = "refs/safe/"
					c.Rules = []core.RefRule{{Refs: "refs/safe/*", Deny: core.DenyUpdate}}
				}
				if _, fact := r.do(&core.RepoSet{Name: "app", Config: c, IfVersion: -1}); fact != nil {
					t.Fatal(fact)
				}
			},
			"tick": func(t *rapid.T) {
				r.stamp += core.ShardTime(rapid.IntRange(0, 3*3_600_000).Draw(t, "step"))
				if _, _, err := r.m.Tick(r.tx, &core.ApplyContext{Stamp: r.stamp}, 100); err != nil {
					t.Fatal(err)
				}
			},
			"": func(*rapid.T) { r.check() },
		})
	})
}

// Each ref's log, read back, chains old to new up to the ref.
func TestLogsChainUpToTheirRefs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		for range 60 {
			r.transact()
		}
		info, _, err := refs.Find(r.tx, part, "app")
		if err != nil {
			t.Fatal(err)
		}
		var all []core.RefLog
		for _, name := range someNames {
			log, err := refs.Log(r.tx, part, &info, name, 0, 10_000, r.stamp)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, log...)
			for i := 1; i < len(log); i++ {
				if log[i].Stamp > log[i-1].Stamp || log[i].Rev >= log[i-1].Rev {
					t.Fatalf("records of %s are out of order: %+v", name, log)
				}
			}
			if _, plain := r.model.ids[name]; plain && len(log) > 0 && log[0].New != r.model.ids[name] {
				t.Fatalf("%s is at %s, its log ends at %s", name, r.model.ids[name], log[0].New)
			}
		}
		// All of them together, page by page.
		slices.SortFunc(all, func(a, b core.RefLog) int { return cmp.Or(cmp.Compare(b.Rev, a.Rev), cmp.Compare(a.Name, b.Name)) })
		q := core.ActivityQuery{Limit: rapid.IntRange(1, 9).Draw(t, "limit")}
		var got []core.RefLog
		for {
			page, partial, err := refs.Activity(r.tx, part, &info, q, r.stamp)
			if err != nil || partial {
				t.Fatal(partial, err)
			}
			if got = append(got, page...); len(page) < q.Limit {
				break
			}
			q.Rev, q.Name = page[len(page)-1].Rev, page[len(page)-1].Name
		}
		got = slices.DeleteFunc(got, func(e core.RefLog) bool { return !slices.Contains(someNames, e.Name) })
		if !reflect.DeepEqual(got, all) {
			t.Fatalf("by %d the activity is\n%+v, want\n%+v", q.Limit, got, all)
		}
	})
}

func TestNamesGetTheVerdictOfGit(t *testing.T) {
	for name, ok := range map[string]bool{
		"HEAD": true, "refs/heads/main": true, "refs/heads/a.b": true, "refs/heads/@": true, "refs/heads/-x": true, "refs/heads/ü": true,
		"": false, "main": false, "refs/": false, "refs//a": false, "refs/a/": false, "refs/a.": false, "refs/.a": false, "refs/a.lock": false,
		"refs/a.lock/b": false, "refs/a..b": false, "refs/a@{b": false, "refs/a b": false, "refs/a~b": false, "refs/a^b": false,
		"refs/a:b": false, "refs/a?b": false, "refs/a*b": false, "refs/a[b": false, "refs/a\\b": false, "refs/a\x7fb": false, "refs/a\x01b": false,
		"refs/\xff": false, "refs/" + strings.Repeat("a", 256): false, "refs/" + strings.Repeat("a", 255): true,
		"refs" + strings.Repeat("/a", 64): false, "refs" + strings.Repeat("/a", 63): true,
	} {
		if got := core.CheckRefName(name); (got == "") != ok {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestGlobsMatchWithinAndAcrossComponents(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"refs/heads/*", "refs/heads/a", true},
		{"refs/heads/*", "refs/heads/a/b", false},
		{"refs/heads/**", "refs/heads/a/b", true},
		{"refs/heads/**/x", "refs/heads/a/b/x", true},
		{"refs/heads/**/x", "refs/heads/x", false},
		{"refs/*/a*c", "refs/heads/abc", true},
		{"refs/*/a*c", "refs/heads/ab/c", false},
		{"**", "HEAD", true},
		{"refs/heads/a", "refs/heads/ab", false},
		{"*a*b", "xaxxab", true},
		{strings.Repeat("a*", 16), strings.Repeat("a", 1000) + "/b", false},
	} {
		if got := refs.Matches([]string{c.glob}, c.name); got != c.want {
			t.Errorf("%s against %s: %v", c.glob, c.name, got)
		}
	}
}

func BenchmarkTransaction(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			tx, m := machinetest.NewTxn(), refs.New(part, refs.Options{})
			stamp := core.ShardTime(1_700_000_000_000)
			do := func(op core.Op) {
				stamp++
				if _, fact, err := m.Apply(tx, &core.ApplyContext{Stamp: stamp, Index: uint64(stamp), Principal: "p"}, op); fact != nil || err != nil {
					b.Fatal(fact, err)
				}
			}
			do(&core.RepoCreate{Name: "app", ID: core.RepoID{1}})
			ops := [2]*core.RefTxn{{Repo: "app"}, {Repo: "app"}}
			for i := range size {
				name := fmt.Sprintf("refs/heads/branch-%d", i)
				for n := range ops {
					ops[n].Changes = append(ops[n].Changes, core.RefChange{
						Kind: core.OpRefUpdate, Name: name, New: oid(n + 1), Type: core.ObjectCommit,
					})
				}
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				do(ops[n%2])
			}
		})
	}
}
