package refs_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/refs"
)

func TestHeadLeadsToTheFirstBranchWhileItsTargetIsMissing(t *testing.T) {
	heads := func(names ...string) (ops []core.Op) {
		txn := &core.RefTxn{Repo: "app"}
		for _, name := range names {
			kind, id := core.OpRefCreate, oid(1)
			if name[0] == '-' {
				kind, id, name = core.OpRefDelete, core.ObjectID{}, name[1:]
			}
			txn.Changes = append(txn.Changes, core.RefChange{Kind: kind, Name: "refs/" + name, New: id, Type: core.ObjectCommit})
		}
		return []core.Op{txn}
	}
	moved := &core.RefTxn{Repo: "app", Changes: []core.RefChange{{Kind: core.OpRefUpdate, Name: "refs/heads/trunk", New: oid(2), Type: core.ObjectCommit}}}
	link := &core.RefTxn{Repo: "app", Changes: []core.RefChange{{Kind: core.OpSymrefCreate, Name: "refs/heads/a", Target: "refs/heads/b"}}}
	detached := &core.RefTxn{Repo: "app", Changes: []core.RefChange{{Kind: core.OpRefUpdate, NoDeref: true, Name: "HEAD", New: oid(1), Type: core.ObjectCommit}}}
	for i, c := range []struct {
		ops  [][]core.Op
		want string
	}{
		{nil, "refs/heads/main"},
		{[][]core.Op{heads("tags/v1")}, "refs/heads/main"},
		{[][]core.Op{heads("heads/master")}, "refs/heads/master"},
		{[][]core.Op{heads("heads/trunk"), heads("heads/master"), heads("heads/a")}, "refs/heads/trunk"},
		{[][]core.Op{heads("heads/trunk"), heads("heads/master"), {moved}}, "refs/heads/trunk"},
		{[][]core.Op{heads("heads/a", "heads/trunk", "heads/master", "heads/z")}, "refs/heads/master"},
		{[][]core.Op{heads("heads/b/x", "heads/a", "heads/z")}, "refs/heads/a"},
		{[][]core.Op{heads("heads/z"), heads("heads/a"), heads("-heads/z")}, "refs/heads/a"},
		{[][]core.Op{heads("heads/z"), heads("heads/a"), heads("-heads/z"), heads("heads/z")}, "refs/heads/a"},
		{[][]core.Op{heads("heads/z"), heads("heads/main")}, "refs/heads/main"},
		{[][]core.Op{heads("heads/main"), heads("heads/z"), heads("-heads/main")}, "refs/heads/z"},
		{[][]core.Op{heads("heads/secret/a"), heads("heads/z")}, "refs/heads/z"},
		{[][]core.Op{heads("heads/secret/a")}, "refs/heads/main"},
		{[][]core.Op{{link}}, "refs/heads/main"},
		{[][]core.Op{{link}, heads("heads/b")}, "refs/heads/b"},
		{[][]core.Op{heads("heads/z"), {&core.RepoSet{Name: "app", Branch: "other", IfVersion: -1}}}, "refs/heads/z"},
		{[][]core.Op{heads("heads/z"), {detached}}, ""},
	} {
		tx, m := machinetest.NewTxn(), refs.New(part, refs.Options{})
		config := core.RepoConfig{Hide: []string{"refs/heads/secret/**"}}
		all := []core.Op{&core.RepoCreate{Name: "app", ID: core.RepoID{1}, Config: config}}
		for _, ops := range c.ops {
			all = append(all, ops...)
		}
		for n, op := range all {
			if txn, ok := op.(*core.RefTxn); ok {
				txn.Admin = true
			}
			if _, fact, err := m.Apply(tx, &core.ApplyContext{Stamp: core.ShardTime(n + 1), Index: uint64(n + 1), Principal: "p"}, op); fact != nil || err != nil {
				t.Fatalf("case %d, op %d: %v, %v", i, n, fact, err)
			}
		}
		info, ok, err := refs.Find(tx, part, "app")
		if err != nil || !ok {
			t.Fatal(err)
		}
		if got, err := refs.Head(tx, part, &info); got != c.want || err != nil {
			t.Errorf("case %d: %q, %v; want %q", i, got, err, c.want)
		}
	}
}

func TestHeadOfManyBranchesIsThatOfTheFirst(t *testing.T) {
	tx, m := machinetest.NewTxn(), refs.New(part, refs.Options{})
	ops := []core.Op{&core.RepoCreate{Name: "app", ID: core.RepoID{1}}}
	for i := range 50 {
		ops = append(ops, &core.RefTxn{Repo: "app", Changes: []core.RefChange{
			{Kind: core.OpRefCreate, Name: fmt.Sprintf("refs/heads/%d", 99-i), New: oid(1), Type: core.ObjectCommit},
		}})
	}
	for n, op := range ops {
		if _, fact, err := m.Apply(tx, &core.ApplyContext{Stamp: core.ShardTime(n + 1), Index: uint64(n + 1), Principal: "p"}, op); fact != nil || err != nil {
			t.Fatal(fact, err)
		}
	}
	info, _, err := refs.Find(tx, part, "app")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := refs.Head(tx, part, &info); got != "refs/heads/99" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
