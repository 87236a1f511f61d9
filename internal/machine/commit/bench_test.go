package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// A cycle is a create, its grant, and a completion, in entries of a hundred tasks each, with and without an effect.
func BenchmarkCycle(b *testing.B) {
	for name, effect := range map[string]bool{"bare": false, "effect": true} {
		b.Run(name, func(b *testing.B) {
			const n = 100
			tx := machinetest.NewTxn()
			m := commit.New(commit.Options{})
			if err := m.Open(tx); err != nil {
				b.Fatal(err)
			}
			index, payload := uint64(0), make([]byte, 256)
			apply := func(commits []core.Commit) core.Applied {
				index++
				a, err := m.Apply(tx, index, &core.Entry{Format: 1, Stamp: epoch + core.ShardTime(index), Commits: commits})
				if err != nil {
					b.Fatal(err)
				}
				return a
			}
			b.ReportAllocs()
			for b.Loop() {
				var commits []core.Commit
				for i := range byte(n) {
					id := core.NewTaskID(int64(index), 0, [9]byte{i + 1})
					commits = append(commits, core.Commit{Partition: home, Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "q", Payload: payload}}})
				}
				commits = append(commits, core.Commit{Partition: home, Ops: []core.Op{&core.Grant{N: n, Queues: []core.GrantQueue{{Name: "q", Weight: 1}}}}})
				a := apply(commits)
				commits = commits[:0]
				for _, t := range a.Results[n].Ops[0].Assigned {
					ops := []core.Op{&core.TaskComplete{Task: t.Task, Token: t.Token}}
					if effect {
						ops = append(ops, &core.KVPut{Keyspace: "ks", Key: t.Task[:], Value: payload[:16]})
					}
					commits = append(commits, core.Commit{Partition: home, Ops: ops})
				}
				ended := 0
				for _, e := range apply(commits).Events {
					if _, ok := e.(*core.Ended); ok {
						ended++
					}
				}
				if ended != n {
					b.Fatalf("%d tasks ended", ended)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/cycle")
		})
	}
}
