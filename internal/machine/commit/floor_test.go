package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// brokenOff is a machine whose history is broken off in between.
type brokenOff struct {
	t     *testing.T
	tx    *machinetest.Txn
	m     *commit.Machine
	index uint64
}

func (b *brokenOff) open() {
	b.t.Helper()
	b.m = commit.New(commit.Options{})
	if err := b.m.Open(b.tx); err != nil {
		b.t.Fatal(err)
	}
}

// apply applies one commit, which must not be refused.
func (b *brokenOff) apply(p core.Partition, ops ...core.Op) []core.OpResult {
	b.t.Helper()
	b.index++
	a, err := b.m.Apply(b.tx, b.index, &core.Entry{Format: 1, Stamp: epoch, Commits: []core.Commit{{Partition: p, Ops: ops}}})
	if err != nil {
		b.t.Fatal(err)
	}
	if r := a.Results[0].Refusal; r != nil {
		b.t.Fatalf("refused: %v", r.Fact)
	}
	return a.Results[0].Ops
}

// lease makes a task and has it handed out.
func (b *brokenOff) lease(p core.Partition, n byte) (core.TaskID, core.Token) {
	b.t.Helper()
	id := core.NewTaskID(int64(epoch), 0, [9]byte{n})
	got := b.apply(p, &core.TaskCreate{ID: id, Queue: "q"}, &core.Grant{N: 1, Queues: []core.GrantQueue{{Name: "q", Weight: 1}}})
	return id, got[1].Assigned[0].Token
}

func (b *brokenOff) put(p core.Partition, key string) uint64 {
	b.t.Helper()
	return b.apply(p, &core.KVPut{Keyspace: "ks", Key: []byte(key), Value: []byte("v")})[0].Rev
}

func TestWhatIsGivenOutAfterAHistoryWasBrokenOffIsAboveWhatMayHaveBeenBefore(t *testing.T) {
	b := &brokenOff{t: t, tx: machinetest.NewTxn()}
	b.open()
	task, held := b.lease(home, 1)
	rev := b.put(home, "a")
	const least = 1 << 50
	b.tx.Set(keys.ShardConf(), []byte("who votes"))
	b.tx.Set(keys.Members(), []byte("who is there"))
	b.m.BreakOff(b.tx, least)
	for _, key := range [][]byte{keys.ShardConf(), keys.Members()} {
		if value, ok, err := b.tx.Get(key); ok || err != nil {
			t.Errorf("key %x is still %q, %v", key, value, err)
		}
	}
	for range 2 { // the second time nothing was given out since
		b.open()
		if got := b.m.Floor(); got != least {
			t.Fatalf("the floor is %d, want %d", got, least)
		}
	}
	b.apply(home, &core.TaskComplete{Task: task, Token: held}) // what was handed out before is held still
	if _, token := b.lease(home, 2); token != least+1 {
		t.Errorf("the next token is %d, want %d", token, least+1)
	}
	if got := b.put(home, "b"); got != least+1 {
		t.Errorf("the next revision is %d, want %d", got, least+1)
	}
	if got := b.apply(home, &core.KVPut{Keyspace: "ks", Key: []byte("a"), HasRev: true, IfRev: rev})[0].Rev; got != least+2 {
		t.Errorf("a key that was there is written at %d, want %d", got, least+2)
	}
	later := core.Partition{Tenant: 9, Namespace: 9}
	if _, token := b.lease(later, 3); token != least+1 {
		t.Errorf("the first token of a partition made later is %d, want %d", token, least+1)
	}
	b.open()
	if _, token := b.lease(home, 4); token != least+2 {
		t.Errorf("after it was opened again the next token is %d, want %d", token, least+2)
	}
	b.m.BreakOff(b.tx, 1) // a clock that is wrong takes nothing back
	b.open()
	if got, want := b.m.Floor(), uint64(least+2+1<<32); got != want {
		t.Errorf("the floor is %d, want %d", got, want)
	}
}
