package checktest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// someLog is a log of n entries that make queues with one task each.
func someLog(n int) []LogEntry {
	var log []LogEntry
	for i := range n {
		e := &core.Entry{Format: core.FormatCurrent, Stamp: core.ShardTime(1_000_000 + i), Proposer: 1, Seq: uint64(i + 1)}
		e.Commits = []core.Commit{{
			Partition: core.Partition{Tenant: 1, Namespace: 1},
			Ops:       []core.Op{&core.KVPut{Keyspace: "s", Key: []byte{byte(i)}, Value: []byte("v")}},
		}}
		log = append(log, LogEntry{Index: uint64(i + 1), Data: core.AppendEntry(nil, e)})
	}
	return log
}

func TestReplicasThatDifferAreFound(t *testing.T) {
	log := someLog(20)
	whole, err := ReplayCalls(log, nil)
	if err != nil {
		t.Fatal(err)
	}
	short, err := ReplayCalls(log[:15], nil)
	if err != nil {
		t.Fatal(err)
	}
	fine := func() []Replica {
		return []Replica{
			{Node: "a", Log: log, Applied: 20, Hash: whole.Hash},
			{Node: "b", Log: log[:15], Applied: 15, Hash: short.Hash},
			{Node: "c", Log: slices.Clone(log), Applied: 20, Hash: whole.Hash},
		}
	}
	if r := Replicas(fine(), whole); !r.OK() || r.Counts["equal_index"] != 2 {
		t.Errorf("replicas that agree: %s", r)
	}
	for rule, spoil := range map[string]func(r []Replica){
		"hash": func(r []Replica) { r[1].Hash++ },
		"log":  func(r []Replica) { r[1].Applied = 16 },
		"entry": func(r []Replica) {
			r[2].Log[9].Data = append(bytes.Clone(r[2].Log[9].Data), 0)
		},
	} {
		all := fine()
		spoil(all)
		if r := Replicas(all, whole); !r.Broke(rule) {
			t.Errorf("%s is not found: %s", rule, r)
		}
	}
	behind := fine()
	behind[2].Log[19].Data = []byte("never committed")
	behind[2].Applied, behind[2].Hash = 15, short.Hash
	if r := Replicas(behind, whole); !r.OK() {
		t.Errorf("an entry that was not applied is judged: %s", r)
	}
}
