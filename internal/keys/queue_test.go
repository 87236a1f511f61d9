package keys

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

var (
	queuePartition = core.Partition{Tenant: 1, Namespace: 2, Index: 3}
	queueTask      = core.TaskID{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
)

const (
	queueGoldenHead = "00000001" + "00000002" + "0003" + "02"
	queueGoldenTask = "a00102030405060708090a0b0c0d0e0f"
)

func TestQueueKeysKeepTheirBytes(t *testing.T) {
	p, id := queuePartition, queueTask
	for _, c := range []struct {
		name string
		key  []byte
		want string // after partition and service
	}{
		{"meta", AppendQueueMeta(nil, p), "01" + "00"},
		{"config", AppendQueueConfig(nil, p, "mail"), "02" + "6d61696c" + "00"},
		{"counters", AppendQueueCounters(nil, p, 7), "03" + "00000007" + "00"},
		{"payload", AppendTaskPayload(nil, p, id), "04" + queueGoldenTask + "00"},
		{"state", AppendTaskState(nil, p, id), "05" + queueGoldenTask + "00"},
		{"result", AppendTaskResult(nil, p, id), "06" + queueGoldenTask + "00"},
		{"attempt", AppendTaskAttempt(nil, p, id, 9), "07" + queueGoldenTask + "00000009" + "00"},
		{"holder", AppendTaskHolder(nil, p, id), "08" + queueGoldenTask + "00"},
		{"ready", AppendReady(nil, p, 7, 5, 6), "09" + "00000007" + "0000000000000005" + "0000000000000006" + "00"},
		{"scheduled", AppendTaskTimer(nil, p, 5, TimerScheduled, id), "0a" + "8000000000000005" + "01" + queueGoldenTask + "00"},
		{"unique timer", AppendUniqueTimer(nil, p, 5, 7, "k"), "0a" + "8000000000000005" + "02" + "00000007" + "6b" + "00"},
		{"tombstone timer", AppendTaskTimer(nil, p, -1, TimerTombstone, id), "0a" + "7fffffffffffffff" + "03" + queueGoldenTask + "00"},
		{"running", AppendRunning(nil, p, 9), "0b" + "0000000000000009" + "00"},
		{"terminal", AppendTerminal(nil, p, 7, core.Dead, 5, id), "0c" + "00000007" + "06" + "8000000000000005" + queueGoldenTask + "00"},
		{"unique", AppendUnique(nil, p, 7, "k"), "0d" + "00000007" + "6b" + "00"},
		{"window", AppendWindow(nil, p, "mail", SpaceRequest, "k"), "0e" + "04" + "6d61696c" + "02" + "6b" + "00"},
		{"window timer", AppendWindowTimer(nil, p, 5, "mail", SpaceUnique, "k"), "0a" + "8000000000000005" + "04" + "04" + "6d61696c" + "01" + "6b" + "00"},
		{"wall timer", AppendWallTimer(nil, p, 5, id), "10" + "8000000000000005" + queueGoldenTask + "00"},
		{"error group", AppendErrorGroup(nil, p, 7, 5), "16" + "00000007" + "0000000000000005" + "00"},
		{"errors", AppendErrors(nil, p, 7), "17" + "00000007" + "00"},
		{"error timer", AppendErrorTimer(nil, p, 5, 7), "0a" + "8000000000000005" + "16" + "00000007" + "00"},
		{"cron", AppendCron(nil, p, "n"), "1e" + "6e" + "00"},
		{"template of a cron", AppendCronTemplate(nil, p, "n"), "1f" + "6e" + "00"},
		{"batch", AppendBatch(nil, p, id), "27" + queueGoldenTask + "00"},
		{"counts of a batch", AppendBatchCounts(nil, p, 9), "28" + "0000000000000009" + "00"},
		{"task of a batch", AppendBatchTask(nil, p, 9, id), "29" + "0000000000000009" + queueGoldenTask + "00"},
		{"end of a batch", AppendBatchEnd(nil, p, 5, 9), "2a" + "8000000000000005" + "0000000000000009" + "00"},
		{"number of batches", Batches(p), "2b" + "00"},
		{"timer of a batch", AppendBatchTimer(nil, p, 5, 9), "0a" + "8000000000000005" + "27" + "0000000000000009" + "00"},
		{"limiter", AppendLimiter(nil, p, "n"), "23" + "6e" + "00"},
		{"run of a cron", AppendCronRun(nil, p, "n", 5), "20" + "6e" + "00" + "0000000000000005" + "00"},
		{"removed", AppendRemoved(nil, p, 7), "0f" + "00000007" + "00"},
		{"after", AppendAfter(nil, p, id, id), "21" + queueGoldenTask + queueGoldenTask + "00"},
		{"after timer", AppendAfterTimer(nil, p, 5, id, 9), "0a" + "8000000000000005" + "21" + queueGoldenTask + "0000000000000009" + "00"},
		{"blocked", AppendBlocked(nil, p, 7, id), "22" + "00000007" + queueGoldenTask + "00"},
	} {
		if got, want := hex.EncodeToString(c.key), queueGoldenHead+c.want; got != want {
			t.Errorf("%s is\n%s, want\n%s", c.name, got, want)
		}
		if Split(c.key) != len(c.key) {
			t.Errorf("%s reads as a key with a revision", c.name)
		}
		row, ok := DecodeQueue(c.key)
		if !ok || row.Record != QueueRecord(c.key[PartitionLen+1]) {
			t.Errorf("%s reads as %+v, %v", c.name, row, ok)
		}
		if _, ok := DecodeQueue(c.key[:len(c.key)-2]); ok && row.Name == "" && row.Record != RecordTimer {
			t.Errorf("%s reads although it was cut", c.name)
		}
	}
}

func TestQueueKeysReadBack(t *testing.T) {
	p, id := queuePartition, queueTask
	if got := DecodeQueueConfig(AppendQueueConfig(nil, p, "mail")); got != "mail" {
		t.Errorf("name %q", got)
	}
	if sort, seq, ok := DecodeReady(AppendReady(nil, p, 7, 5, 6)); sort != 5 || seq != 6 || !ok {
		t.Errorf("place %d %d %v", sort, seq, ok)
	}
	if token, ok := DecodeRunning(AppendRunning(nil, p, 9)); token != 9 || !ok {
		t.Errorf("token %d %v", token, ok)
	}
	if at, task, ok := DecodeTerminal(AppendTerminal(nil, p, 7, core.Dead, -5, id)); at != -5 || task != id || !ok {
		t.Errorf("end %d %s %v", at, task, ok)
	}
	if due, kind, rest, ok := DecodeTimer(AppendTaskTimer(nil, p, 5, TimerTombstone, id)); due != 5 || kind != TimerTombstone || !bytes.Equal(rest, id[:]) || !ok {
		t.Errorf("timer %d %d %x %v", due, kind, rest, ok)
	}
	if at, task, ok := DecodeWallTimer(AppendWallTimer(nil, p, -5, id)); at != -5 || task != id || !ok {
		t.Errorf("wall timer %d %s %v", at, task, ok)
	}
	if n := DecodeTaskAttempt(AppendTaskAttempt(nil, p, id, 9)); n != 9 {
		t.Errorf("attempt %d", n)
	}
	if of, waits, ok := DecodeAfter(AppendAfter(nil, p, id, core.TaskID{1})); of != id || waits != (core.TaskID{1}) || !ok {
		t.Errorf("waits %s for %s %v", waits, of, ok)
	}
	if task, ok := DecodeBlocked(AppendBlocked(nil, p, 7, id)); task != id || !ok {
		t.Errorf("blocked %s %v", task, ok)
	}
	if _, _, rest, _ := DecodeTimer(AppendAfterTimer(nil, p, 5, id, 9)); true {
		if of, place, ok := DecodeAfterTimer(rest); of != id || place != 9 || !ok {
			t.Errorf("timer of %s at %d %v", of, place, ok)
		}
	}
	key := AppendReady(nil, p, 7, 5, 6)
	if after := QueueAfter(p, QueueTail(key)); Compare(after, key) <= 0 || Compare(after, AppendReady(nil, p, 7, 5, 7)) > 0 {
		t.Errorf("the key after %x is %x", key, after)
	}
	if _, _, ok := DecodeWallTimer(AppendTaskTimer(nil, p, 5, TimerScheduled, id)); ok {
		t.Error("a timer by shard time reads as one by the wall clocks")
	}
	for _, bad := range [][]byte{nil, {0}, AppendQueueMeta(nil, p)} {
		if _, _, ok := DecodeWallTimer(bad); ok {
			t.Errorf("%x reads as a wall timer", bad)
		}
		if _, _, ok := DecodeReady(bad); ok {
			t.Errorf("%x reads as a place", bad)
		}
		if _, _, ok := DecodeAfter(bad); ok {
			t.Errorf("%x reads as a task that waits", bad)
		}
		if _, ok := DecodeBlocked(bad); ok {
			t.Errorf("%x reads as a blocked task", bad)
		}
		if _, ok := DecodeRunning(bad); ok {
			t.Errorf("%x reads as a token", bad)
		}
		if _, _, ok := DecodeTerminal(bad); ok {
			t.Errorf("%x reads as an end", bad)
		}
		if _, _, _, ok := DecodeTimer(bad); ok {
			t.Errorf("%x reads as a timer", bad)
		}
	}
}

func TestQueueKeysSortByWhatTheyMean(t *testing.T) {
	p, id := queuePartition, queueTask
	next := p
	next.Index++
	ordered := [][]byte{
		AppendQueueMeta(nil, p),
		AppendQueueConfig(nil, p, "a"),
		AppendQueueConfig(nil, p, "a.b"),
		AppendQueueConfig(nil, p, "b"),
		AppendReady(nil, p, 7, 5, 6),
		AppendReady(nil, p, 7, 5, 7),
		AppendReady(nil, p, 7, 6, 1),
		AppendReady(nil, p, 8, 0, 0),
		AppendTaskTimer(nil, p, -1, TimerScheduled, id),
		AppendTaskTimer(nil, p, 0, TimerTombstone, id),
		AppendUniqueTimer(nil, p, 1, 7, "k"),
		AppendTerminal(nil, p, 7, core.Completed, 9, id),
		AppendTerminal(nil, p, 7, core.Dead, 1, id),
		AppendTerminal(nil, p, 7, core.Dead, 2, core.TaskID{}),
		AppendUnique(nil, p, 7, "k"),
		AppendUnique(nil, p, 7, "k\x00"),
		AppendUnique(nil, p, 7, "kk"),
		AppendQueueMeta(nil, next),
	}
	if !slices.IsSortedFunc(ordered, Compare) {
		t.Error("keys are out of order")
	}
	within := func(what string, from, to []byte, first, last int) {
		for i, k := range ordered {
			in := Compare(k, from) >= 0 && Compare(k, to) < 0
			if want := i >= first && i <= last; in != want {
				t.Errorf("%s: key %d is within: %v, want %v", what, i, in, want)
			}
		}
	}
	from, to := QueueRange(p)
	within("all", from, to, 0, 16)
	from, to = QueueConfigRange(p)
	within("queues", from, to, 1, 3)
	from, to = ReadyRange(p, 7)
	within("ready", from, to, 4, 6)
	from, to = TimerRangeAll(p, 0)
	within("timers", from, to, 9, 10)
	from, to = TimerRange(p, -5, 1)
	within("timers due", from, to, 8, 9)
	from, to = TerminalRange(p, 7, core.Dead, 2)
	within("ended", from, to, 13, 13)
}

func TestWallTimersSortByTimeAndLieInTheirRanges(t *testing.T) {
	p, id := queuePartition, queueTask
	ordered := [][]byte{
		AppendRemoved(nil, p, 1<<32-1), AppendWallTimer(nil, p, -1, id), AppendWallTimer(nil, p, 0, core.TaskID{}), AppendWallTimer(nil, p, 0, id),
		AppendWallTimer(nil, p, core.Never, id),
	}
	if !slices.IsSortedFunc(ordered, Compare) {
		t.Error("keys are out of order")
	}
	from, to := WallTimerRange(p, -1, 0)
	all, end := WallTimerRangeAll(p, 0)
	for i, key := range ordered {
		if in := Compare(key, from) >= 0 && Compare(key, to) < 0; in != (i == 1) {
			t.Errorf("key %d is due before 0: %v", i, in)
		}
		if in := Compare(key, all) >= 0 && Compare(key, end) < 0; in != (i >= 2) {
			t.Errorf("key %d is due at 0 or later: %v", i, in)
		}
	}
}
