package commit_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// drawOps draws the lines of one commit, valid and not.
func drawOps(t *rapid.T, index uint16) string {
	task := func() string { return fmt.Sprintf("t%d@%d", rapid.IntRange(1, 6).Draw(t, "task"), index) }
	token := func() int { return rapid.IntRange(1, 12).Draw(t, "token") }
	one := func() string {
		key := rapid.SampledFrom([]string{"ks a", "ks b", "other a"}).Draw(t, "key")
		q := rapid.SampledFrom([]string{"q", "r", "q,r"}).Draw(t, "queue")
		switch rapid.IntRange(0, 18).Draw(t, "op") {
		case 0, 1, 2:
			return "create " + task() + " queue=" + q[:1] + rapid.SampledFrom([]string{"", " delay=7s", " unique=u", " payload=x*40"}).Draw(t, "how")
		case 3, 4:
			return fmt.Sprintf("grant queue=%s n=%d lease=5s session=w%d", q, rapid.IntRange(1, 3).Draw(t, "n"), rapid.IntRange(1, 2).Draw(t, "worker"))
		case 5, 6, 7:
			return fmt.Sprintf("complete %s token=%d result=r", task(), token())
		case 8:
			return fmt.Sprintf("fail %s token=%d code=E%s", task(), token(), rapid.SampledFrom([]string{"", " fatal"}).Draw(t, "fatal"))
		case 9:
			return fmt.Sprintf("snooze %s token=%d delay=3s", task(), token())
		case 10:
			return fmt.Sprintf("release %s token=%d", task(), token())
		case 11:
			return fmt.Sprintf("renew %s token=%d", task(), token())
		case 12:
			return rapid.SampledFrom([]string{"delete_task ", "run_now "}).Draw(t, "verb") + task()
		case 13:
			return "put " + key + " v" + rapid.SampledFrom([]string{"", " if_absent", " if_rev=3", " want_prev"}).Draw(t, "how")
		case 14:
			return "delete " + key
		case 15, 16:
			return rapid.SampledFrom([]string{"collection ws", "upsert ws a", "upsert ws b if_version=3", "upsert ws c if_absent", "upsert_delete ws a"}).Draw(t, "point")
		case 17:
			return rapid.SampledFrom([]string{"collection ws", "collection_delete ws", "ruleset r x", "ruleset r y", "recording ws 1 ttl=3s", "recording ws 2"}).Draw(t, "search")
		default:
			return rapid.SampledFrom([]string{
				"queue_set q max_attempts=2", "queue_set r retain_completed=1s", "namespace_set retain_bytes=50", "check ks a exists",
			}).Draw(t, "rare")
		}
	}
	text := ""
	for range rapid.IntRange(1, 4).Draw(t, "ops") {
		text += one() + "\n"
	}
	return text
}

func drawHeader(t *rapid.T, index uint16) string {
	text := "commit"
	switch rapid.IntRange(0, 9).Draw(t, "header") {
	case 0, 1:
		text += fmt.Sprintf(" request=r%d", rapid.IntRange(1, 4).Draw(t, "request"))
		if rapid.Bool().Draw(t, "fenced") {
			text += fmt.Sprintf(" fence=t%d@%d/%d", rapid.IntRange(1, 6).Draw(t, "task"), index, rapid.IntRange(1, 12).Draw(t, "token"))
		}
	case 2, 3:
		text += fmt.Sprintf(" session=s%d seq=%d", rapid.IntRange(1, 2).Draw(t, "session"), rapid.IntRange(1, 4).Draw(t, "seq"))
	case 4:
		text += fmt.Sprintf(" fence=t%d@%d/%d", rapid.IntRange(1, 6).Draw(t, "task"), index, rapid.IntRange(1, 12).Draw(t, "token"))
	case 5:
		text += " fail_on_refusal"
	}
	return text + "\n"
}

// Replicas of which one decodes its entries, and is opened again at random points, agree in every result and byte, and
// a commit touches its own partition only.
func TestReplicasAgreeOnRandomEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := newWorld(commit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		parts := []core.Partition{home, {Tenant: 2, Namespace: 1}, {Tenant: 2, Namespace: 1, Index: 1}}
		for range rapid.IntRange(1, 50).Draw(t, "entries") {
			switch rapid.IntRange(0, 9).Draw(t, "time") {
			case 0, 1:
				w.pair.Stamp += core.ShardTime(rapid.SampledFrom([]int{1, 3000, 6000, 400_000, 90_000_000}).Draw(t, "advance"))
			case 2:
				if err := w.pair.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			var commits []core.Commit
			if rapid.IntRange(0, 5).Draw(t, "tick") == 0 {
				commits = w.parseCommits(fmt.Sprintf("tick max=%d", rapid.SampledFrom([]int{1, 2, 5, 100}).Draw(t, "max")))
			}
			for range rapid.IntRange(0, 3).Draw(t, "commits") {
				w.part = parts[rapid.IntRange(0, len(parts)-1).Draw(t, "partition")]
				commits = append(commits, w.parseCommits(drawHeader(t, w.part.Index)+drawOps(t, w.part.Index))...)
			}
			if _, err := w.pair.Apply(commits...); err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				if err := countsAddUp(w, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := fullRestart(w); err != nil {
			t.Fatal(err)
		}
	})
}

// fullRestart opens both replicas again and drains what is due later, so that what was derived meets what was stored.
func fullRestart(w *world) error {
	for range 3 {
		if err := w.pair.Restart(); err != nil {
			return err
		}
		w.pair.Stamp += 100_000_000
		for range 20 {
			a, err := w.pair.Apply(w.parseCommits("tick max=50")...)
			if err != nil {
				return err
			}
			if !a.Results[0].Ops[0].More {
				break
			}
		}
	}
	return nil
}

func countsAddUp(w *world, p core.Partition) error {
	list, err := queue.Queues(w.pair.TxA, p, "", 10)
	if err != nil {
		return err
	}
	for _, q := range list {
		sum := q.Purged
		for _, n := range q.States {
			sum += n
		}
		if sum != q.Created {
			return fmt.Errorf("queue %s of %s: created %d, states and purged %d", q.Queue, p, q.Created, sum)
		}
	}
	return nil
}

// repeatsSurviveARestart applies a commit under a request id, opens the machines again and repeats it.
func repeatsSurviveARestart(o commit.Options) error {
	w, err := newWorld(o)
	if err != nil {
		return err
	}
	const text = "commit request=r\ncreate t1 queue=q\nput ks a 1"
	for i, script := range []string{text, "put ks a 2", text} {
		a, err := w.pair.Apply(w.parseCommits(script)...)
		if err != nil {
			return err
		}
		if r := a.Results[0]; r.Refusal != nil || r.Replayed != (i == 2) {
			return fmt.Errorf("entry %d: %+v", i, r)
		}
		if err := w.pair.Restart(); err != nil {
			return err
		}
	}
	return nil
}

// tenantsHaveRequestIDsOfTheirOwn uses one request id for the same content in two tenants.
func tenantsHaveRequestIDsOfTheirOwn(o commit.Options) error {
	w, err := newWorld(o)
	if err != nil {
		return err
	}
	for tenant := range core.TenantID(2) {
		w.part = core.Partition{Tenant: tenant + 1, Namespace: 1}
		a, err := w.pair.Apply(w.parseCommits("commit request=r\nput ks a 1")...)
		if err != nil {
			return err
		}
		if r := a.Results[0]; r.Refusal != nil || r.Replayed {
			return errors.New("another tenant's request was answered")
		}
	}
	return nil
}

// fencedRequestsAreAppliedOnce repeats a commit in mid-task under its request id: while the lease is held, after it was lost
// and given to another worker, and after the task has ended. Another commit under the lost lease is refused.
func fencedRequestsAreAppliedOnce(o commit.Options) error {
	w, err := newWorld(o)
	if err != nil {
		return err
	}
	const text = "commit request=r fence=t1/1\nadd ks sum 1"
	for i, step := range []struct {
		script  string
		advance core.ShardTime
		want    string // of the first commit: "" applied, replayed, or the type of its refusal
	}{
		{script: "create t1 queue=q"},
		{script: "grant queue=q lease=5s session=w1"},
		{script: text},
		{script: text, want: "replayed"},
		{script: "tick max=10", advance: 60_000},
		{script: "grant queue=q lease=5s session=w2"},
		{script: text, want: "replayed"},
		{script: "commit request=s fence=t1/1\nadd ks sum 1", want: "core.LeaseLost"},
		{script: "commit request=s fence=t1/1\nadd ks sum 1", want: "core.LeaseLost"},
		{script: "commit request=u fence=t1/2\nadd ks sum 1\ncomplete t1 token=2"},
		{script: "commit request=u fence=t1/2\nadd ks sum 1\ncomplete t1 token=2", want: "replayed"},
		{script: "commit fence=t1/2\nadd ks sum 1\ncomplete t1 token=2", want: "replayed"},
		{script: text, want: "replayed"},
	} {
		w.pair.Stamp += step.advance
		a, err := w.pair.Apply(w.parseCommits(step.script)...)
		if err != nil {
			return err
		}
		got := ""
		switch r := a.Results[0]; {
		case r.Refusal != nil:
			got = fmt.Sprintf("%T", r.Refusal.Fact)
		case r.Replayed:
			got = "replayed"
		}
		if got != step.want {
			return fmt.Errorf("entry %d, %q: %q, want %q: %+v", i, step.script, got, step.want, a.Results[0])
		}
	}
	if value, _, _, err := kv.Get(w.pair.TxA, home, "ks", []byte("sum")); err != nil || string(value) != "2" {
		return fmt.Errorf("the sum is %s, want 2; %w", value, err)
	}
	return nil
}

func TestFencedRequestsAreAppliedOnce(t *testing.T) {
	if err := fencedRequestsAreAppliedOnce(commit.Options{}); err != nil {
		t.Error(err)
	}
}

func TestRequestIDsSurviveARestart(t *testing.T) {
	if err := repeatsSurviveARestart(commit.Options{}); err != nil {
		t.Error(err)
	}
}

func TestTenantsHaveRequestIDsOfTheirOwn(t *testing.T) {
	if err := tenantsHaveRequestIDsOfTheirOwn(commit.Options{}); err != nil {
		t.Error(err)
	}
}
