package check

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// history builds a ledger with one call after the other.
type history struct{ calls []Call }

func (h *history) add(c Call) *history {
	at := int64(10 * (len(h.calls) + 1))
	if c.Invoke == 0 {
		c.Invoke, c.Return = at, at+5
	}
	if c.Outcome == "" {
		c.Outcome = OK
	}
	c.Partition, c.Clock = "p0", "clock"
	h.calls = append(h.calls, c)
	return h
}

func (h *history) with(more ...Call) []Call {
	out := &history{calls: slices.Clone(h.calls)}
	for _, c := range more {
		out.add(c)
	}
	return out.calls
}

func tasksIn(state core.State, ids ...string) []TaskState {
	var out []TaskState
	for _, id := range ids {
		out = append(out, TaskState{ID: id, Queue: "q", State: state})
	}
	return out
}

// planted is a history that breaks one rule, next to a good one that differs as little as possible.
type planted struct {
	name   string
	report *Report
	rule   string // empty: good
}

func judge(t *testing.T, cases []planted) {
	t.Helper()
	for _, c := range cases {
		switch {
		case c.rule == "" && !c.report.OK():
			t.Errorf("%s: a good history is refused:\n%s", c.name, c.report)
		case c.rule != "" && !c.report.Broke(c.rule):
			t.Errorf("%s: rule %s was not found broken:\n%s", c.name, c.rule, c.report)
		}
	}
}

func drained() *history {
	h := &history{}
	h.add(Call{Op: OpCreate, ID: "a", Index: 1}).add(Call{Op: OpCreate, ID: "b", Index: 2, Outcome: Unknown})
	h.add(Call{Op: OpCreate, ID: "c", Outcome: Refused})
	h.add(Call{Op: OpDeliver, ID: "a", Token: 1}).add(Call{Op: OpComplete, ID: "a", Token: 1, Index: 4})
	h.add(Call{Op: OpDeliver, ID: "b", Token: 2}).add(Call{Op: OpDeliver, ID: "b", Token: 3})
	h.add(Call{Op: OpComplete, ID: "b", Token: 2, Outcome: Refused, Code: "LEASE_LOST"})
	h.add(Call{Op: OpComplete, ID: "b", Token: 3, Index: 7, Outcome: Unknown})
	return h
}

func TestTotalQueueFindsWhatIsLostAddedOrDoneTwice(t *testing.T) {
	h, o := drained(), TotalOptions{}
	both := tasksIn(core.Completed, "a", "b")
	total := func(calls []Call, final []TaskState) *Report { return TotalQueue(calls, final, o) }
	judge(t, []planted{
		{"good", total(h.calls, both), ""},
		{"an unknown create may be absent", total(h.calls[:5], tasksIn(core.Completed, "a")), ""},
		{"a completion sent again", total(h.with(Call{Op: OpComplete, ID: "a", Token: 1, Replayed: true}), both), ""},
		{"acknowledged create absent", total(h.calls, tasksIn(core.Completed, "b")), "lost"},
		{"refused create there", total(h.calls, append(tasksIn(core.Completed, "c"), both...)), "unexpected"},
		{"created by no client", total(h.calls, append(tasksIn(core.Completed, "x"), both...)), "unexpected"},
		{"listed twice", total(h.calls, append(tasksIn(core.Completed, "a"), both...)), "unexpected"},
		{"not ended", total(h.calls, append(tasksIn(core.Scheduled, "b"), both[0])), "stuck"},
		{"ended dead", total(h.calls, append(tasksIn(core.Dead, "b"), both[0])), "dead"},
		{"completed under two tokens", total(h.with(Call{Op: OpComplete, ID: "a", Token: 9}), both), "completed_twice"},
		{"completed twice under one token", total(h.with(Call{Op: OpComplete, ID: "a", Token: 1}), both), "completed_twice"},
		{"completion gone", total(h.calls, append(tasksIn(core.Ready, "a"), both[1])), "completion_lost"},
		{"completed without a completion", total(h.calls[:8], both), "completed_by_nobody"},
		{"delivered after completion", total(h.with(Call{Op: OpDeliver, ID: "a", Token: 1}), both), "delivered_after_completion"},
	})
	r := total(h.calls, both)
	if r.Counts["recovered"] != 2 || r.Counts["repeated"] != 1 || r.Counts["deliveries"] != 3 {
		t.Errorf("counts %v, want 2 recovered, 1 repeated, 3 deliveries", r.Counts)
	}
	if r := TotalQueue(h.calls, append(tasksIn(core.Dead, "b"), both[0]), TotalOptions{AllowDead: true}); !r.OK() {
		t.Errorf("a dead task that is allowed: %s", r)
	}
}

func TestACheckerWithNothingToJudgeIsInvalidNotGreen(t *testing.T) {
	for _, r := range []*Report{
		TotalQueue(nil, nil, TotalOptions{}), LeaseExclusivity(nil), EffectsOnce(nil, EffectsRead{}), Bank(BankRun{}),
		Idempotency(nil, nil), RequestsOnce(nil, nil), NonInterference(nil, nil), IndexOrder(nil), StatsRecount(nil, nil),
		Registers(nil, nil),
	} {
		if r.OK() || r.Invalid == "" {
			t.Errorf("%s", r)
		}
	}
}

func TestLeaseExclusivityFindsTwoTokensGoodAtOnce(t *testing.T) {
	h := &history{}
	h.add(Call{Op: OpDeliver, ID: "a", Token: 1}).add(Call{Op: OpRenew, ID: "a", Token: 1, Index: 10, Stamp: 100})
	h.add(Call{Op: OpDeliver, ID: "a", Token: 5}).add(Call{Op: OpCommit, ID: "a", Token: 5, Index: 20, Stamp: 200})
	h.add(Call{Op: OpComplete, ID: "a", Token: 1, Outcome: Refused, Code: "LEASE_LOST"})
	h.add(Call{Op: OpComplete, ID: "a", Token: 5, Index: 21, Stamp: 201})
	judge(t, []planted{
		{"good", LeaseExclusivity(h.calls), ""},
		{"settle answered again", LeaseExclusivity(h.with(Call{Op: OpComplete, ID: "a", Token: 5, Index: 30, Replayed: true})), ""},
		{"old token accepted later", LeaseExclusivity(h.with(Call{Op: OpRenew, ID: "a", Token: 1, Index: 22, Stamp: 202})), "overlap"},
		{"old token accepted at a later stamp", LeaseExclusivity(h.with(Call{Op: OpRenew, ID: "a", Token: 1, Index: 19, Stamp: 202})), "overlap"},
		{"old token accepted by a later call", LeaseExclusivity(h.with(Call{Op: OpRenew, ID: "a", Token: 1})), "stale_token"},
		{"renewed after its settle", LeaseExclusivity(h.with(Call{Op: OpRenew, ID: "a", Token: 5, Index: 25})), "used_after_settle"},
		{"settled twice", LeaseExclusivity(h.with(Call{Op: OpFail, ID: "a", Token: 5, Index: 25})), "used_after_settle"},
		{"one token for two tasks", LeaseExclusivity(h.with(Call{Op: OpComplete, ID: "b", Token: 5, Index: 25})), "token_of_two_tasks"},
	})
	if r := LeaseExclusivity(h.calls); r.Counts["lease_lost"] != 1 || r.Counts["tokens"] != 2 {
		t.Errorf("counts %v", r.Counts)
	}
}

func TestEffectsOnceFindsTornAndRepeatedEffects(t *testing.T) {
	final := append(tasksIn(core.Completed, "a", "b"), tasksIn(core.Dead, "d")...)
	read := func(ids []string, n int64) *Report {
		return EffectsOnce(final, EffectsRead{Lists: map[string][]string{"l": ids}, Counters: map[string]int64{"l": n}})
	}
	own := func(byTask map[string]int) *Report {
		return EffectsOnce(final, EffectsRead{
			Lists: map[string][]string{"l": {"a", "b"}}, Counters: map[string]int64{"l": 2}, ByTask: byTask,
		})
	}
	judge(t, []planted{
		{"good", read([]string{"b", "a"}, 2), ""},
		{"effect missing", read([]string{"a"}, 1), "missing"},
		{"effect twice", read([]string{"a", "b", "a"}, 3), "repeated"},
		{"effect of a dead task", read([]string{"a", "b", "d"}, 3), "without_completion"},
		{"counter apart from its list", read([]string{"a", "b"}, 3), "counter"},
		{"counter without a list", EffectsOnce(nil, EffectsRead{Counters: map[string]int64{"l": 1}}), "counter"},
		{"own key good", own(map[string]int{"a": 1, "b": 1}), ""},
		{"own key missing", own(map[string]int{"a": 1}), "missing"},
		{"own key of a dead task", own(map[string]int{"a": 1, "b": 1, "d": 1}), "without_completion"},
	})
}

func TestSumsFindsCompletionsCountedTwiceOrNot(t *testing.T) {
	final := append(tasksIn(core.Completed, "a", "b"), tasksIn(core.Dead, "d")...)
	for i := range final {
		final[i].Queue = "q"
	}
	judge(t, []planted{
		{"good", Sums(final, map[string]int64{"q": 2, "unused": 0}), ""},
		{"counted twice", Sums(final, map[string]int64{"q": 3}), "sum"},
		{"not counted", Sums(final, nil), "sum"},
		{"of a queue without completions", Sums(final, map[string]int64{"q": 2, "other": 1}), "sum"},
	})
}

func TestBankFindsMoneyMadeOrLost(t *testing.T) {
	run := func(snapshot, closing map[string]int64) *Report {
		return Bank(BankRun{
			Opening:   map[string]int64{"x": 10, "y": 10},
			Snapshots: []Snapshot{{Index: 5, Accounts: snapshot}},
			Transfers: map[string]Transfer{"a": {"x", "y", 3}, "d": {"y", "x", 5}},
			Final:     append(tasksIn(core.Completed, "a"), tasksIn(core.Dead, "d")...),
			Closing:   closing,
		})
	}
	good, end := map[string]int64{"x": 9, "y": 11}, map[string]int64{"x": 7, "y": 13}
	judge(t, []planted{
		{"good", run(good, end), ""},
		{"snapshot loses", run(map[string]int64{"x": 7, "y": 10}, end), "sum"},
		{"end loses", run(good, map[string]int64{"x": 7, "y": 12}), "sum"},
		{"a transfer without its task", run(good, map[string]int64{"x": 12, "y": 8}), "balance"},
		{"a task without its transfer", run(good, map[string]int64{"x": 10, "y": 10}), "balance"},
	})
}

func TestIdempotencyFindsASecondTaskUnderOneKey(t *testing.T) {
	h := &history{}
	create := func(tenant, answer string, o Outcome, replayed bool) Call {
		return Call{Op: OpCreate, Tenant: tenant, Queue: "q", Key: "k", Answer: answer, Outcome: o, Replayed: replayed}
	}
	h.add(create("A", "a1", OK, false)).add(create("A", "a1", OK, true)).add(create("A", "", Unknown, false))
	h.add(create("B", "b1", OK, false))
	h.add(Call{Op: OpCreate, Tenant: "A", Queue: "q", Key: "never", Outcome: Refused})
	final := []TaskState{{ID: "a1", Tenant: "A", Queue: "q", Unique: "k"}, {ID: "b1", Tenant: "B", Queue: "q", Unique: "k"}}
	extra := func(s TaskState) []TaskState { return append(slices.Clone(final), s) }
	judge(t, []planted{
		{"good", Idempotency(h.calls, final), ""},
		{"two answers", Idempotency(h.with(create("A", "a2", OK, true)), final), "two_answers"},
		{"made twice", Idempotency(h.with(create("A", "a1", OK, false)), final), "made_twice"},
		{"two tasks hold it", Idempotency(h.calls, extra(TaskState{ID: "a2", Tenant: "A", Queue: "q", Unique: "k"})), "two_tasks"},
		{"answered with what is absent", Idempotency(h.calls, final[1:]), "answer_absent"},
		{"refused and there", Idempotency(h.calls, extra(TaskState{ID: "n", Tenant: "A", Queue: "q", Unique: "never"})), "none_created"},
		{"answered with another tenant's", Idempotency(h.with(create("B", "a1", OK, true)), final), "foreign"},
		{"answered with a task read as another tenant's", Idempotency(h.calls, []TaskState{
			{ID: "a1", Tenant: "B", Queue: "q", Unique: "k"}, final[1],
		}), "foreign"},
	})
}

func TestRequestsOnceFindsARepeatedCommit(t *testing.T) {
	h := &history{}
	h.add(Call{Op: OpCommit, RequestID: "r1", Index: 4}).add(Call{Op: OpCommit, RequestID: "r1", Index: 4, Replayed: true})
	h.add(Call{Op: OpCommit, RequestID: "r2", Outcome: Unknown}).add(Call{Op: OpCommit, RequestID: "r3", Outcome: Refused})
	judge(t, []planted{
		{"good", RequestsOnce(h.calls, map[string]int{"r1": 1, "r2": 1}), ""},
		{"unknown may be absent", RequestsOnce(h.calls, map[string]int{"r1": 1}), ""},
		{"lost", RequestsOnce(h.calls, map[string]int{"r2": 1}), "effect_lost"},
		{"twice", RequestsOnce(h.calls, map[string]int{"r1": 2}), "effect_repeated"},
		{"by no client", RequestsOnce(h.calls, map[string]int{"r1": 1, "x": 1}), "effect_repeated"},
		{"refused", RequestsOnce(h.calls, map[string]int{"r1": 1, "r3": 1}), "effect_of_refused"},
		{"two places", RequestsOnce(h.with(Call{Op: OpCommit, RequestID: "r1", Index: 9}), map[string]int{"r1": 1}), "two_indexes"},
	})
}

func TestNonInterferenceFindsAnyDifferenceASecondTenantMakes(t *testing.T) {
	h := &history{}
	h.add(Call{Op: OpGet, ID: "a", Outcome: Refused, Code: "NOT_FOUND"}).add(Call{Op: OpCreate, ID: "b", Index: 3})
	moved := slices.Clone(h.calls)
	for i := range moved {
		moved[i].Index, moved[i].Invoke, moved[i].Return, moved[i].Stamp = 99, 1, 2, 77
	}
	denied, existing := slices.Clone(h.calls), slices.Clone(h.calls)
	denied[0].Code = "PERMISSION_DENIED"
	existing[1].Replayed = true
	judge(t, []planted{
		{"good", NonInterference(h.calls, moved), ""},
		{"another code", NonInterference(h.calls, denied), "differs"},
		{"another tenant's key found", NonInterference(h.calls, existing), "differs"},
		{"a call missing", NonInterference(h.calls, moved[:1]), "length"},
	})
}

func TestIndexOrderFindsReadsAndWritesFromThePast(t *testing.T) {
	h := &history{}
	h.add(Call{Op: OpPut, Index: 5}).add(Call{Op: OpKVGet, Index: 5}).add(Call{Op: OpCreate, Index: 6})
	judge(t, []planted{
		{"good", IndexOrder(h.calls), ""},
		{"writes that overlap may share an entry", IndexOrder(h.with(Call{Op: OpPut, Index: 6, Invoke: 30, Return: 60})), ""},
		{"a replay answers its first index", IndexOrder(h.with(Call{Op: OpPut, Index: 5, Replayed: true})), ""},
		{"write at an old index", IndexOrder(h.with(Call{Op: OpPut, Index: 6})), "write_order"},
		{"read at an old index", IndexOrder(h.with(Call{Op: OpGet, Index: 5})), "read_order"},
	})
}

func TestStatsRecountFindsACounterThatDrifted(t *testing.T) {
	final := append(tasksIn(core.Completed, "a", "b"), tasksIn(core.Ready, "c")...)
	stats := func(ready, created uint64) []QueueCount {
		return []QueueCount{{
			Queue: "q", Created: created, Purged: 1,
			States: map[string]uint64{"completed": 2, "ready": ready},
		}}
	}
	judge(t, []planted{
		{"good", StatsRecount(stats(1, 4), final), ""},
		{"counts one too many", StatsRecount(stats(2, 5), final), "state"},
		{"created is not a sum", StatsRecount(stats(1, 5), final), "created"},
	})
}

func TestRegistersFindStaleReadsAndLostWrites(t *testing.T) {
	h := &history{}
	h.add(Call{Op: OpKVGet, Key: "k"}).add(Call{Op: OpPut, Key: "k", Value: "1"}).add(Call{Op: OpKVGet, Key: "k", Value: "1"})
	h.add(Call{Op: OpPut, Key: "k", Value: "2", Outcome: Unknown}).add(Call{Op: OpKVGet, Key: "k", Value: "1"})
	h.add(Call{Op: OpPut, Key: "k", Value: "3", Outcome: Refused})
	end := func(v string) map[string]string { return map[string]string{"k": v} }
	read := func(v string) []Call { return h.with(Call{Op: OpKVGet, Key: "k", Value: v}) }
	judge(t, []planted{
		{"good", Registers(h.calls, end("1")), ""},
		{"an unknown write may be there", Registers(read("2"), end("2")), ""},
		{"a write under way may be read", Registers(h.with(
			Call{Op: OpPut, Key: "k", Value: "4", Invoke: 100, Return: 120}, Call{Op: OpKVGet, Key: "k", Value: "4", Invoke: 105, Return: 110},
		), end("4")), ""},
		{"absent after a write", Registers(read(""), end("1")), "stale_read"},
		{"older than the last write", Registers(h.with(Call{Op: OpPut, Key: "k", Value: "4"}, Call{Op: OpKVGet, Key: "k", Value: "1"}), end("4")), "stale_read"},
		{"refused", Registers(read("3"), end("1")), "of_refused"},
		{"from nowhere", Registers(read("9"), end("1")), "never_written"},
		{"lost at the end", Registers(h.calls, end("")), "lost_write"},
		{"refused at the end", Registers(h.calls, end("3")), "of_refused"},
	})
}

func TestACreateAnsweredWithTheHolderOfItsKeyMakesNoTaskOfItsOwn(t *testing.T) {
	h := drained()
	answered := Call{Op: OpCreate, ID: "n", Key: "k", Answer: "a", Replayed: true}
	judge(t, []planted{
		{"good", TotalQueue(h.with(answered), tasksIn(core.Completed, "a", "b"), TotalOptions{}), ""},
		{"a second task", TotalQueue(h.with(answered), tasksIn(core.Completed, "a", "b", "n"), TotalOptions{}), "unexpected"},
	})
}

func TestBothOrNeitherWantsWhatIsReadLaterToBeThereToo(t *testing.T) {
	for _, c := range []struct {
		read PairRead
		rule string
	}{
		{PairRead{TaskFirst: true, Completed: true, Put: true}, ""},
		{PairRead{TaskFirst: true, Completed: false, Put: true}, ""}, // the commit came between
		{PairRead{TaskFirst: true}, ""},
		{PairRead{TaskFirst: true, Completed: true}, "completed_without_key"},
		{PairRead{Completed: true, Put: true}, ""},
		{PairRead{Completed: true}, ""}, // the commit came between
		{PairRead{}, ""},
		{PairRead{Put: true}, "key_without_completion"},
	} {
		r := BothOrNeither([]PairRead{c.read})
		if (c.rule == "") != r.OK() || c.rule != "" && !r.Broke(c.rule) {
			t.Errorf("%+v: %s, want %q", c.read, r, c.rule)
		}
	}
	if BothOrNeither(nil).OK() {
		t.Error("a run without a read proves something")
	}
}
