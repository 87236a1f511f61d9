package commit_test

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenRows holds the bytes of each kind of row that this package writes.
func TestGoldenRows(t *testing.T) {
	w := mustWorld(t)
	apply(t, w, "term 7")
	apply(t, w, "namespace_create acme shop")
	apply(t, w, "namespace_set no_auto_create retain_bytes=1000000")
	apply(t, w, "namespace_set retain_bytes=1000000")
	apply(t, w, "commit request=r\nput ks a 1")
	apply(t, w, "commit session=s seq=1\nput ks a 2 want_prev\ncommit session=s seq=2\nput ks a 3 if_absent")
	got := w.pair.TxA.Dump()
	const path = "testdata/rows.golden"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("stored rows changed: stores written before cannot be read\ngot\n%swant\n%s", got, want)
	}
}

func TestCorruptRowsAreErrorsNotAnswers(t *testing.T) {
	isCorruption := func(err error) bool { _, ok := errors.AsType[*errs.Corruption](err); return ok }
	for name, key := range map[string][]byte{
		"shard time": keys.ShardTime(), "partition state": keys.PartitionState(home), "configuration": keys.NamespaceConfig(home),
	} {
		for _, value := range [][]byte{nil, {0x80}, make([]byte, 50)} {
			w := mustWorld(t)
			apply(t, w, "put ks a 1")
			w.pair.TxA.Set(key, value)
			if err := commit.New(commit.Options{}).Open(w.pair.TxA); !isCorruption(err) {
				t.Errorf("%s of %d bytes: open: %v", name, len(value), err)
			}
		}
	}
	tx := machinetest.NewTxn()
	tx.Set([]byte{1, 2, 0}, nil)
	if err := commit.New(commit.Options{}).Open(tx); !isCorruption(err) {
		t.Errorf("a key of no partition: open: %v", err)
	}
	for name, c := range map[string]struct {
		key    []byte
		script string
	}{
		"request": {keys.Request(home, requestID("r")), "commit request=r\nput ks a 1"},
		"session": {keys.Session(home, sessionID("s")), "commit session=s seq=1\nput ks a 1"},
		"answer":  {keys.SessionAnswer(home, sessionID("s"), 1), "commit session=s seq=1\nput ks a 1"},
		"tenant":  {keys.Tenant("acme"), "namespace_create acme shop"},
		"space":   {keys.Namespace(1, "shop"), "namespace_create acme shop"},
	} {
		w := mustWorld(t)
		apply(t, w, c.script)
		row, _, _ := w.pair.TxA.Get(c.key)
		w.pair.TxA.Set(c.key, append([]byte{}, row[:len(row)-1]...)) // cut by a byte
		e := &core.Entry{Format: 1, Stamp: epoch, Commits: w.parseCommits(c.script)}
		if _, err := w.machine().Apply(w.pair.TxA, 9, e); !isCorruption(err) {
			t.Errorf("%s: apply: %v", name, err)
		}
	}
}

// TestOlderRowsOfShardTimeAreRead: programs of the first format wrote it without the format of the last entry, and the first
// programs after that without what wall clocks show beyond it.
func TestOlderRowsOfShardTimeAreRead(t *testing.T) {
	w := mustWorld(t)
	apply(t, w, "term 7")
	apply(t, w, "shift by=5s")
	row, ok, err := w.pair.TxA.Get(keys.ShardTime())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	whole := commit.New(commit.Options{})
	if err := whole.Open(w.pair.TxA); err != nil {
		t.Fatal(err)
	}
	if whole.Shift() != 5000 {
		t.Errorf("the wall clocks are read as %d ms ahead", whole.Shift())
	}
	for _, lacks := range []int{8, 8 + 2} {
		w.pair.TxA.Set(keys.ShardTime(), row[:len(row)-lacks])
		old := commit.New(commit.Options{})
		if err := old.Open(w.pair.TxA); err != nil || old.TermStart() != whole.TermStart() || old.Shift() != 0 {
			t.Errorf("without %d bytes: term start %v, shift %d, %v; with them %v", lacks, old.TermStart(), old.Shift(), err, whole.TermStart())
		}
	}
}

func TestEntriesOfTheFirstFormatDoNotSayWhatWallClocksShow(t *testing.T) {
	w := mustWorld(t)
	shift := func(format uint16, by core.Millis) core.Fact {
		a, err := w.machine().Apply(w.pair.TxA, 1, &core.Entry{Format: format, Stamp: epoch, Commits: []core.Commit{{Ops: []core.Op{&core.ClockShift{Shift: by}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if r := a.Results[0].Refusal; r != nil {
			return r.Fact
		}
		return nil
	}
	if fact, ok := shift(core.FormatFirst, 5000).(core.Invalid); !ok || fact.Reason != "not_supported" || w.machine().Shift() != 0 {
		t.Errorf("answered %v, and the shift is %d", fact, w.machine().Shift())
	}
	if fact := shift(core.FormatQueues, -5000); fact != nil || w.machine().Shift() != -5000 {
		t.Errorf("answered %v, and the shift is %d", fact, w.machine().Shift())
	}
}
