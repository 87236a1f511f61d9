package commit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/refs"
)

var refPart = core.Partition{Tenant: 1, Namespace: 1}

func refCommit(ops ...core.Op) core.Commit {
	return core.Commit{Partition: refPart, Principal: "p", Ops: ops}
}

func create(name string, n byte) *core.RefTxn {
	return &core.RefTxn{Repo: "app", Changes: []core.RefChange{
		{Kind: core.OpRefCreate, Name: name, New: core.ObjectID{n}, Type: core.ObjectCommit},
	}}
}

func refPair(t *testing.T) *machinetest.Pair {
	t.Helper()
	p, err := machinetest.NewPair(func() machinetest.Machine { return commit.New(commit.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	applyRefs(t, p, refCommit(&core.RepoCreate{Name: "app", ID: core.RepoID{1}}))
	return p
}

func applyRefs(t *testing.T, p *machinetest.Pair, commits ...core.Commit) []core.Result {
	t.Helper()
	out, err := p.Apply(commits...)
	if err != nil {
		t.Fatal(err)
	}
	return out.Results
}

// Two machines, one of which is opened from its bytes again and again, must go on alike.
func TestRefsGoOnAlikeAfterARestart(t *testing.T) {
	p := refPair(t)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		op := &core.RefTxn{Repo: "app", Partial: r.IntN(3) == 0}
		for range 1 + r.IntN(4) {
			op.Changes = append(op.Changes, core.RefChange{
				Kind: core.OpRefUpdate, Name: fmt.Sprintf("refs/heads/%c", 'a'+r.IntN(5)), New: core.ObjectID{byte(r.IntN(3))},
				Type: core.ObjectCommit,
			})
		}
		switch r.IntN(12) {
		case 0:
			if err := p.Reopen(); err != nil {
				t.Fatal(err)
			}
		case 1:
			applyRefs(t, p, refCommit(&core.RepoDelete{Name: "app", IfVersion: -1}))
			applyRefs(t, p, refCommit(&core.RepoUndelete{Name: "app"}))
		}
		applyRefs(t, p, refCommit(op, &core.KVPut{Keyspace: "k", Key: []byte{byte(i)}}))
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
}

func TestACommitMovesRefsAndKeysOrNeither(t *testing.T) {
	p := refPair(t)
	put := &core.KVPut{Keyspace: "k", Key: []byte("a"), Value: []byte("1"), IfAbsent: true}
	if r := applyRefs(t, p, refCommit(put, create("refs/heads/a", 1)))[0]; r.Refusal != nil || len(r.Ops) != 2 || r.Ops[1].Refs.Rev != 1 {
		t.Fatalf("got %+v", r)
	}
	other := &core.KVPut{Keyspace: "k", Key: []byte("b"), Value: []byte("1")}
	r := applyRefs(t, p, refCommit(other, create("refs/heads/a", 2)))[0]
	if f, ok := r.Refusal.Fact.(core.RefRefused); !ok || r.Refusal.Op != 1 || f.Failures[0].Reason != core.RefExists {
		t.Fatalf("got %+v", r.Refusal)
	}
	again := &core.KVPut{Keyspace: "k", Key: []byte("a"), IfAbsent: true}
	if r := applyRefs(t, p, refCommit(create("refs/heads/b", 1), again))[0]; r.Refusal == nil || r.Refusal.Op != 1 {
		t.Fatalf("got %+v", r)
	}
	info, _, err := refs.Find(p.TxA, refPart, "app")
	if err != nil || info.Stats.Rev != 1 || info.Stats.Refs != 2 {
		t.Errorf("got %+v, %v: a refused commit has moved a ref", info.Stats, err)
	}
	twice := applyRefs(t, p, refCommit(create("refs/heads/c", 1), create("refs/heads/d", 1)))[0]
	if f, ok := twice.Refusal.Fact.(core.Invalid); !ok || f.Reason != "duplicate_repo" {
		t.Errorf("two transactions of one repository: %+v", twice.Refusal)
	}
	partial := create("refs/heads/c", 1)
	partial.Partial = true
	if r := applyRefs(t, p, refCommit(partial, other))[0]; r.Refusal == nil {
		t.Error("a partial transaction is taken together with another op")
	}
}

func TestARequestThatMovedRefsIsAnsweredAgain(t *testing.T) {
	p := refPair(t)
	c := refCommit(create("refs/heads/a", 1))
	c.RequestID = core.RequestID{1}
	first := applyRefs(t, p, c)[0]
	again := applyRefs(t, p, c)[0]
	if !again.Replayed || again.Refusal != nil || again.Ops[0].Refs.Changes[0] != first.Ops[0].Refs.Changes[0] {
		t.Errorf("got %+v, first %+v", again, first)
	}
	s := refCommit(create("refs/heads/b", 1))
	s.Session, s.Seq = core.SessionID{1}, 1
	applyRefs(t, p, s)
	if again := applyRefs(t, p, s)[0]; !again.Replayed || again.Refusal != nil {
		t.Errorf("got %+v", again)
	}
}

func TestLimitsOfRefsRefuseByName(t *testing.T) {
	p, err := machinetest.NewPair(func() machinetest.Machine {
		return commit.New(commit.Options{Refs: refs.Options{MaxRepos: 2, MaxRefs: 3, MaxPacks: 1}})
	})
	if err != nil {
		t.Fatal(err)
	}
	repo := func(n byte) core.Commit {
		return refCommit(&core.RepoCreate{Name: fmt.Sprintf("r%d", n), ID: core.RepoID{n + 1}})
	}
	limit := func(what, want string, c core.Commit) {
		t.Helper()
		r := applyRefs(t, p, c)[0]
		got := ""
		if r.Refusal != nil {
			switch f := r.Refusal.Fact.(type) {
			case core.Exhausted:
				got = f.Limit
			case core.TooLarge:
				got = f.Limit
			case core.RefRefused:
				got = f.Failures[0].Reason.String()
			default:
				got = f.Error()
			}
		}
		if got != want {
			t.Errorf("%s: refused by %q, want %q", what, got, want)
		}
	}
	applyRefs(t, p, refCommit(&core.RepoCreate{Name: "app", ID: core.RepoID{1}}))
	limit("the last repository", "", repo(1))
	limit("one more", "repositories", repo(2))
	limit("a ref", "", refCommit(create("refs/heads/a", 1)))
	limit("the last ref", "", refCommit(create("refs/heads/b", 1)))
	limit("one more", "refs", refCommit(create("refs/heads/c", 1)))
	many := &core.RefTxn{Repo: "app", Changes: make([]core.RefChange, core.MaxRefChanges+1)}
	limit("a long transaction", "ref_changes", refCommit(many))
	long := create("refs/heads/a", 1)
	long.Message = string(make([]byte, core.MaxRefMessage+1))
	limit("a long message", "ref_message_bytes", refCommit(long))
	move := func(to byte, packs ...core.Pack) core.Commit {
		return refCommit(&core.RefTxn{
			Repo: "app", Packs: packs, StagedAt: 1 << 50,
			Changes: []core.RefChange{{Kind: core.OpRefUpdate, Name: "refs/heads/a", New: core.ObjectID{to}, Type: core.ObjectCommit}},
		})
	}
	pack := func(n byte) core.Pack {
		return core.Pack{Digest: core.Digest{n}, Idx: core.Digest{n}, Bytes: 10, IdxBytes: 10, Kind: core.PackPush}
	}
	limit("a pack", "", move(2, pack(1)))
	limit("the same again", "", move(3, pack(1)))
	limit("one more", "packs", move(4, pack(2)))
	limit("a large pack", "", move(4))
}

func TestALimitOfRefsTakesWhatIsAtItAndRefusesWhatIsAbove(t *testing.T) {
	p := refPair(t)
	long := func(n int) string { return strings.Repeat("x", n) }
	named := func(bytes int) string { // components of 100 bytes, and one of the rest
		name := "refs/heads"
		for bytes-len(name) > 201 {
			name += "/" + long(100)
		}
		return name + "/" + long(bytes-len(name)-1)
	}
	parts := func(n int) string { return "refs/tags" + strings.Repeat("/y", n-2) }
	changes := func(n int) *core.RefTxn {
		txn := &core.RefTxn{Repo: "app"}
		for i := range n {
			txn.Changes = append(txn.Changes, core.RefChange{Kind: core.OpRefVerify, Name: fmt.Sprintf("refs/none/%d", i)})
		}
		return txn
	}
	said := func(n int, each bool) *core.RefTxn {
		txn := create(fmt.Sprintf("refs/heads/said/%d%v", n, each), 1)
		if each {
			txn.Changes[0].Message = long(n)
		} else {
			txn.Message = long(n)
		}
		return txn
	}
	options := func(n, bytes int) *core.RefTxn {
		txn := create(fmt.Sprintf("refs/heads/options/%d-%d", n, bytes), 1)
		for range n {
			txn.Options = append(txn.Options, long(bytes))
		}
		return txn
	}
	for _, l := range []struct {
		what      string
		at, above *core.RefTxn
		want      string
	}{
		{"bytes of a name", create(named(1024), 1), create(named(1025), 1), "ref_name"},
		{"bytes of a component", create("refs/heads/"+long(255), 1), create("refs/heads/"+long(256), 1), "ref_name"},
		{"components", create(parts(64), 1), create(parts(65), 1), "ref_name"},
		{"a message", said(1024, false), said(1025, false), "ref_message_bytes"},
		{"a change's message", said(1024, true), said(1025, true), "ref_message_bytes"},
		{"changes", changes(10_000), changes(10_001), "ref_changes"},
		{"options", options(32, 1), options(33, 1), "push_options"},
		{"bytes of an option", options(1, 1024), options(1, 1025), "push_option_bytes"},
	} {
		if r := applyRefs(t, p, refCommit(l.at))[0]; r.Refusal != nil {
			t.Errorf("%s, at the limit: %v", l.what, r.Refusal.Fact)
		}
		r := applyRefs(t, p, refCommit(l.above))[0]
		got := ""
		if r.Refusal != nil {
			switch f := r.Refusal.Fact.(type) {
			case core.TooLarge:
				got = f.Limit
			case core.RefRefused:
				got = f.Failures[0].Reason.String()
			default:
				got = f.Error()
			}
		}
		if got != l.want {
			t.Errorf("%s, one above: refused by %q, want %q", l.what, got, l.want)
		}
	}
}
