package api

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestWhatSeveralPartitionsTellOfAQueueIsPutTogether(t *testing.T) {
	held := core.KeyList{
		Unkeyed: core.QueueKey{Tasks: 3, Ready: 2, Running: 1, OldestReady: 50, WaitsFor: core.WhyLaneLimit, HeldBy: []string{"a"}, Owed: -1, Limit: 1, Weight: 1},
		Use:     core.QueueUse{Running: 7, Rate: 1}, All: true, Waiting: 2, Held: 1, Weights: 4,
	}
	idle := core.KeyList{Unkeyed: core.QueueKey{Tasks: 1, Running: 1, Limit: 1, Weight: 1}, Use: core.QueueUse{Running: 2, Rate: 5, Workers: 2}, All: true, Waiting: 1}
	k := showKey(unkeyed([]core.KeyList{held, idle}), 9)
	if k.GetTasks() != 4 || k.GetReady() != 2 || k.GetRunning() != 2 || k.GetWaitsFor() != "concurrency" || !slices.Equal(k.GetHeldBy(), []string{"a"}) {
		t.Errorf("one of two is held up: %v", k)
	}
	if k.Due != nil || k.GetShare() < 0.22 || k.GetShare() > 0.23 {
		t.Errorf("its shares: %v", k)
	}
	if k := showKey(unkeyed([]core.KeyList{held}), 7); k.Due == nil || k.GetDue() != 0.25 {
		t.Errorf("of one partition: %v", k)
	}
	free := idle
	free.Unkeyed.Ready, free.Unkeyed.OldestReady = 1, 40
	if k := unkeyed([]core.KeyList{held, free}); k.WaitsFor != "" || k.HeldBy != nil || k.OldestReady != 40 {
		t.Errorf("one of two is not held up: %+v", k)
	}
	use := showUse([]core.KeyList{held, idle})
	if use.GetRunning() != 7 || use.GetRate() != 5 || use.GetWorkers() != 2 || use.GetWaitingKeys() != 3 || use.GetHeldKeys() != 1 {
		t.Errorf("used: %v", use)
	}
	idle.All = false
	if use := showUse([]core.KeyList{held, idle}); use.WaitingKeys != nil || use.HeldKeys != nil {
		t.Errorf("one partition has not looked at all: %v", use)
	}
}

func TestKeysOfSeveralPartitionsAreInOneOrder(t *testing.T) {
	keys := []listedKey{
		{QueueKey: core.QueueKey{Key: "none"}},
		{QueueKey: core.QueueKey{Key: "old", Ready: 1, OldestReady: 1, Owed: 2}},
		{QueueKey: core.QueueKey{Key: "many", Ready: 9, OldestReady: 5, Owed: 1}},
	}
	for order, want := range map[core.KeyOrder][]string{
		core.KeysByName: {"many", "none", "old"}, core.KeysByBacklog: {"many", "old", "none"},
		core.KeysByOldest: {"old", "many", "none"}, core.KeysByOwed: {"old", "many", "none"},
	} {
		all := slices.Clone(keys)
		sortKeys(all, order)
		var got []string
		for _, k := range all {
			got = append(got, k.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %d: %v, want %v", order, got, want)
		}
	}
}
