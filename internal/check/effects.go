package check

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// EffectsRead is what effects left behind: each task that completes appends its id to one list and adds one to the
// counter of that list, in the commit that completes it.
type EffectsRead struct {
	Lists    map[string][]string
	Counters map[string]int64
	// ByTask are effects that stand under a key of their own, such as a marker or a follow-up task: what was found for
	// each task id, how often. Leave nil when the workload has none.
	ByTask map[string]int
	// OwnOnly says that the workload has no lists and counters, only what ByTask holds.
	OwnOnly bool
}

// EffectsOnce judges that effects happen exactly with completions: the lists hold the ids of the completed tasks of
// final, each once, and each counter is its list's length. Rules: repeated, missing, without_completion, counter.
func EffectsOnce(final []TaskState, read EffectsRead) *Report {
	r := NewReport("effects_once")
	times := map[string]int{}
	for _, list := range slices.Sorted(maps.Keys(read.Lists)) {
		ids := read.Lists[list]
		for _, id := range ids {
			times[id]++
		}
		if n := read.Counters[list]; n != int64(len(ids)) {
			r.Violate("counter", "list %s has %d ids, its counter is %d", list, len(ids), n)
		}
	}
	for _, list := range slices.Sorted(maps.Keys(read.Counters)) {
		if _, ok := read.Lists[list]; !ok && read.Counters[list] != 0 {
			r.Violate("counter", "list %s is absent, its counter is %d", list, read.Counters[list])
		}
	}
	if !read.OwnOnly {
		onceEach(r, "lists", final, times)
	}
	if read.ByTask != nil {
		onceEach(r, "own key", final, read.ByTask)
	}
	return r.Done()
}

func onceEach(r *Report, where string, final []TaskState, times map[string]int) {
	completed := map[string]bool{}
	for _, t := range final {
		r.Checked++
		if t.State != core.Completed {
			continue
		}
		completed[t.ID] = true
		r.Counts["completed"]++
		if times[t.ID] == 0 {
			r.Violate("missing", "task %s is completed, its effect is absent (%s)", t.ID, where)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(times)) {
		switch n := times[id]; {
		case n == 0:
		case !completed[id]:
			r.Violate("without_completion", "task %s is not completed, its effect is there (%s)", id, where)
		case n > 1:
			r.Violate("repeated", "task %s: its effect is there %d times (%s)", id, n, where)
		}
	}
}

// Sums judges numbers that completions add one to, each task to that of its queue: at the end they are how many tasks of the
// queue are completed. Rule: sum. Counts: completed.
func Sums(final []TaskState, sums map[string]int64) *Report {
	r := NewReport("sums")
	completed := map[string]int64{}
	for _, t := range final {
		if t.State == core.Completed {
			r.Checked++
			r.Counts["completed"]++
			completed[t.Queue]++
		}
	}
	queues := maps.Clone(completed)
	maps.Copy(queues, sums)
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		if got, want := sums[queue], completed[queue]; got != want {
			r.Violate("sum", "the completions of queue %s have added up to %d, %d of its tasks are completed", queue, got, want)
		}
	}
	return r.Done()
}

// Transfer is the money that one task moves when it completes.
type Transfer struct {
	From, To string
	Amount   int64
}

// Snapshot is one linearizable read of all accounts at one instant.
type Snapshot struct {
	Index    uint64
	Accounts map[string]int64
	// Pending is money that tasks carry which are not completed, when the workload takes it from an account first.
	Pending int64
}

// BankRun is what a run that moves money between keys leaves to judge.
type BankRun struct {
	Opening   map[string]int64
	Snapshots []Snapshot
	Transfers map[string]Transfer // by task id
	Final     []TaskState
	Closing   map[string]int64
}

// Bank judges that money is neither made nor lost: every snapshot has the opening sum, and the closing balances are
// the opening ones plus the transfers of exactly the completed tasks. Rules: sum, balance.
func Bank(run BankRun) *Report {
	r := NewReport("bank")
	want := total(run.Opening)
	for _, s := range run.Snapshots {
		r.Checked++
		if got := total(s.Accounts) + s.Pending; got != want {
			r.Violate("sum", "at index %d the accounts hold %d, not %d", s.Index, got, want)
		}
	}
	if len(run.Snapshots) == 0 {
		r.Invalid = "no snapshot was read"
	}
	r.Counts["snapshots"] = len(run.Snapshots)
	if got := total(run.Closing); got != want {
		r.Violate("sum", "at the end the accounts hold %d, not %d", got, want)
	}
	balance := maps.Clone(run.Opening)
	for _, t := range run.Final {
		if move, ok := run.Transfers[t.ID]; ok && t.State == core.Completed {
			r.Checked++
			r.Counts["transfers"]++
			balance[move.From] -= move.Amount
			balance[move.To] += move.Amount
		}
	}
	for _, account := range slices.Sorted(maps.Keys(balance)) {
		if got := run.Closing[account]; got != balance[account] {
			r.Violate("balance", "account %s holds %d, the completed transfers make %d", account, got, balance[account])
		}
	}
	return r.Done()
}

func total(accounts map[string]int64) int64 {
	var sum int64
	for _, v := range accounts {
		sum += v
	}
	return sum
}
