package api

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// drawOp draws an op, and what it says of where it belongs: a partition, or anywhere, nowhere or torn.
func drawOp(t *rapid.T) (core.Op, int) {
	key := []byte(rapid.SampledFrom([]string{"a", "b", "{a}x", "{b}x", "{}a", "c{", "d{}", "e"}).Draw(t, "key"))
	id := core.PlacedID(1e12, rapid.Uint16Range(0, 3).Draw(t, "id in"), 4, [9]byte{1})
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		return &core.KVPut{Key: key}, int(core.PlaceKey(key, 4))
	case 1:
		return &core.KVDelete{Key: key}, int(core.PlaceKey(key, 4))
	case 2:
		return &core.KVCheck{Key: key}, int(core.PlaceKey(key, 4))
	case 3:
		if rapid.IntRange(0, 4).Draw(t, "nowhere") == 0 {
			return &core.TaskComplete{Task: id.WithPartition(9)}, nowhere
		}
		return &core.TaskComplete{Task: id}, int(id.Partition())
	case 4:
		if rapid.IntRange(0, 4).Draw(t, "nowhere") == 0 {
			return &core.BatchSeal{ID: id.WithPartition(9)}, nowhere
		}
		return &core.BatchSeal{ID: id}, int(id.Partition())
	case 5:
		return &core.BatchOpen{}, anywhere
	}
	op := &core.TaskCreate{Tag: rapid.SampledFrom([]string{"", "", "t", "u"}).Draw(t, "tag")}
	op.Unique.Key = rapid.SampledFrom([]string{"", "", "v", "w"}).Draw(t, "unique")
	place := anywhere
	switch {
	case op.Tag != "":
		place = int(core.PlaceText([]byte(op.Tag), 4))
	case op.Unique.Key != "":
		place = int(core.PlaceText([]byte(op.Unique.Key), 4))
	}
	if rapid.Bool().Draw(t, "with an id") {
		op.ID = id
		switch {
		case place == anywhere:
			place = int(id.Partition())
		case place != int(id.Partition()):
			place = torn
		}
	}
	return op, place
}

func TestACommitGoesWhereItsFirstOpThatSaysAPlaceGoes(t *testing.T) {
	limits, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		tr := Translator{l: &limits, part: core.Partition{Tenant: 3, Namespace: 2}, parts: 4, now: 1e12, rand: env.NewSeededRand(1)}
		if tr.bound = rapid.Bool().Draw(t, "stream"); tr.bound {
			tr.part.Index = rapid.Uint16Range(0, 3).Draw(t, "of")
		}
		c := core.Commit{Partition: tr.part}
		home := anywhere
		if tr.bound {
			home = int(tr.part.Index)
		}
		if rapid.IntRange(0, 3).Draw(t, "fenced") == 0 {
			c.Fence = &core.Fence{Task: core.PlacedID(1e12, rapid.Uint16Range(0, 3).Draw(t, "fence in"), 4, [9]byte{7}), Token: 1}
			if tr.bound && int(c.Fence.Task.Partition()) != home {
				if f, ok := tr.place(&c, 0).(edge.Misplaced); !ok || f.Field != "fence.task" {
					t.Fatalf("a fence elsewhere: %v", f)
				}
				return
			}
			home = int(c.Fence.Task.Partition())
		}
		var places []int
		for range rapid.IntRange(1, 5).Draw(t, "ops") {
			op, place := drawOp(t)
			c.Ops, places = append(c.Ops, op), append(places, place)
			if home == anywhere && place >= 0 {
				home = place
			}
		}
		var strays []int
		for i, p := range places {
			if p != anywhere && p != nowhere && p != home {
				strays = append(strays, i)
			}
		}
		fact := tr.place(&c, 0)
		if len(strays) > 0 {
			if f, ok := fact.(core.WrongPartition); !ok || !slices.Equal(f.Ops, strays) {
				t.Fatalf("ops %v at home in %d: %v, want %v", places, home, fact, strays)
			}
			return
		}
		if i := slices.Index(places, nowhere); i >= 0 {
			if f, ok := fact.(edge.AtOp); !ok || f.Op != i || !edge.Is[core.NotFound](f) {
				t.Fatalf("op %d is of no task: %v", i, fact)
			}
			return
		}
		if fact != nil || home != anywhere && int(c.Partition.Index) != home || c.Partition.Index > 3 {
			t.Fatalf("ops %v at home in %d: in %v, %v", places, home, c.Partition, fact)
		}
		for _, op := range c.Ops {
			if create, ok := op.(*core.TaskCreate); ok && create.ID.Partition() != c.Partition.Index {
				t.Fatalf("a task of partition %v has the id of %d", c.Partition, create.ID.Partition())
			}
			if batch, ok := core.BatchOf(op); ok && batch.Partition() != c.Partition.Index {
				t.Fatalf("a batch of partition %v has the id of %d", c.Partition, batch.Partition())
			}
		}
	})
}
