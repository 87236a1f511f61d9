package check

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func op(c core.Op, s core.State) core.Result {
	return did(core.OpResult{Kind: c.Kind(), State: s})
}

// asked is a history after which the cancel of the running task 1 was asked for, at 3 s.
func asked(more ...said) []said {
	cancel := &core.TaskCancel{Task: taskID(1)}
	return append(running(said{3, ops(cancel), op(cancel, core.Running)}), more...)
}

func TestModelKnowsWhatACancelledTaskMayDo(t *testing.T) {
	fail := &core.TaskFail{Task: taskID(1), Token: 7, HasRetry: true}
	stop := &core.TaskStop{Task: taskID(1), Token: 7}
	force := &core.TaskCancel{Task: taskID(1), Force: true}
	cancel := &core.TaskCancel{Task: taskID(1)}
	release := &core.TaskForceRelease{Task: taskID(1)}
	renew := &core.TaskRenew{Items: []core.TaskHold{{Task: taskID(1), Token: 7}}, Extend: 60_000}
	renewed := func(cancel bool, until core.ShardTime) core.Result {
		return did(core.OpResult{Kind: core.OpTaskRenew, Renewed: []core.Renewed{{Cancel: cancel, Until: until}}})
	}
	again := did(core.OpResult{Kind: core.OpTaskCancel, State: core.Running, Replayed: true})
	for name, c := range map[string]struct {
		list []said
		says string // empty: it is allowed
	}{
		"a completion wins":                   {asked(said{4, ops(complete(7)), did(done)}), ""},
		"a completion is refused":             {asked(said{4, ops(complete(7)), refused(0, lost1)}), "allowed"},
		"a failure cancels":                   {asked(said{4, ops(fail), op(fail, core.Cancelled)}), ""},
		"a failure is tried again":            {asked(said{4, ops(fail), op(fail, core.Ready)}), "allowed"},
		"its holder stops":                    {asked(said{4, ops(stop), op(stop, core.Cancelled)}), ""},
		"its holder stops without request":    {running(said{4, ops(stop), op(stop, core.Cancelled)}), "allowed"},
		"the request is repeated":             {asked(said{4, ops(cancel), again}), ""},
		"the request is done twice":           {asked(said{4, ops(cancel), op(cancel, core.Running)}), "allowed"},
		"force ends the lease":                {asked(said{4, ops(force), op(force, core.Cancelled)}, said{4, ops(complete(7)), refused(0, lost1)}), ""},
		"force leaves the lease":              {asked(said{4, ops(force), op(force, core.Cancelled)}, said{4, ops(complete(7)), did(done)}), "allowed"},
		"the holder is told":                  {asked(said{4, ops(renew), renewed(true, 33_000)}), ""},
		"the holder is not told":              {asked(said{4, ops(renew), renewed(false, 33_000)}), "renewals"},
		"the lease outlives the grace":        {asked(said{4, ops(renew), renewed(true, 64_000)}), "renewals"},
		"the grace is over":                   {asked(said{4, ops(renew), renewed(true, 33_000)}, tick(33, false), said{33, ops(complete(7)), refused(0, lost1)}), ""},
		"the grace is not kept":               {asked(said{4, ops(renew), renewed(true, 33_000)}, tick(32, false), said{32, ops(complete(7)), refused(0, lost1)}), "allowed"},
		"a forced release cancels":            {asked(said{4, ops(release), op(release, core.Cancelled)}), ""},
		"a forced release brings it back":     {asked(said{4, ops(release), op(release, core.Ready)}), "allowed"},
		"a forced release keeps the token":    {running(said{4, ops(release), op(release, core.Ready)}, said{4, ops(complete(7)), did(done)}), "allowed"},
		"a forced release of another attempt": {running(said{4, ops(&core.TaskForceRelease{Task: taskID(1), Attempt: 2}), op(release, core.Ready)}), "allowed"},
	} {
		judgeSaid(t, name, core.FormatOperate, c.list, c.says)
	}
	for name, c := range map[string]struct {
		op   core.Op
		says string
	}{
		"a cancel":         {cancel, ""},
		"a forced release": {release, ""},
	} {
		no := refused(0, core.Invalid{Field: "op", Reason: "not_supported"})
		judgeSaid(t, name+" before its format", core.FormatQueues, running(said{3, ops(c.op), no}), c.says)
		judgeSaid(t, name+" in its format", core.FormatOperate, running(said{3, ops(c.op), no}), "allowed")
		judgeSaid(t, name+" applied before its format", core.FormatQueues, running(said{3, ops(c.op), op(c.op, core.Cancelled)}), "in an entry of format 2")
	}
}

func judgeSaid(t *testing.T, name string, format uint16, list []said, says string) {
	t.Helper()
	err := replayIn(format, list)
	if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
		t.Errorf("%s: err = %v, want a mismatch that says %q", name, err, says)
	}
}

func TestModelKnowsRedrivesAndExpiries(t *testing.T) {
	fatal := &core.TaskFail{Task: taskID(1), Token: 7, Fatal: true}
	redrive := &core.TaskRedrive{Task: taskID(1)}
	second := given(1, 8, 3)
	second.Attempt = 2
	counted := second
	counted.Failures = 1
	gone := func(more ...said) []said {
		return running(append([]said{{3, ops(fatal), op(fatal, core.Dead)}, {3, ops(redrive), op(redrive, core.Ready)}}, more...)...)
	}
	first := second
	first.Attempt = 1
	two := given(2, 9, 3)
	expiring := makeTask(3)
	expiring.ExpiresAt = 5000
	made := said{1, ops(expiring), did(created(taskID(3)))}
	late := given(3, 7, 6)
	for name, c := range map[string]struct {
		list []said
		says string
	}{
		"redriven":                     {gone(said{3, ops(give(2)), grants(func() core.Assigned { a := two; a.Token = 8; return a }(), func() core.Assigned { a := second; a.Token = 9; return a }())}), ""},
		"failures are kept":            {gone(said{3, ops(give(1)), grants(counted)}), "stands as"},
		"numbers begin again":          {gone(said{3, ops(give(1)), grants(first)}), "stands as"},
		"redriven while it waits":      {running(said{3, ops(&core.TaskRedrive{Task: taskID(2)}), op(redrive, core.Ready)}), "allowed"},
		"expired, and given out":       {[]said{made, tick(6, false), {6, ops(give(1)), grants(late)}}, "stands as"},
		"given out before the tick":    {[]said{made, tick(4, false), {6, ops(give(1)), grants(late)}}, ""},
		"dead before it expires":       {[]said{made, tick(4, false), {4, ops(give(1)), grants()}}, "is ready"},
		"started, and does not expire": {[]said{made, {2, ops(give(1)), grants(given(3, 7, 2))}, tick(6, false), {6, ops(&core.TaskComplete{Task: taskID(3), Token: 7}), did(done)}}, ""},
		"started, and dead all the same": {[]said{
			made,
			{2, ops(give(1)), grants(given(3, 7, 2))},
			tick(6, false),
			{6, ops(&core.TaskComplete{Task: taskID(3), Token: 7}), refused(0, core.LeaseLost{Task: taskID(3), Given: 7})},
		}, "allowed"},
	} {
		judgeSaid(t, name, core.FormatOperate, c.list, c.says)
	}
}

func TestModelKnowsPausesEditsAndLimits(t *testing.T) {
	pause := &core.QueuePause{Queue: "q", Until: 5000}
	limit := func(l core.QueueLimits) said {
		return said{1, ops(&core.QueueSet{Queue: "q", Config: core.QueueConfig{Limits: l}, IfVersion: -1}), did(core.OpResult{Kind: core.OpQueueSet, Version: 1})}
	}
	one, makes := said{1, ops(makeTask(1)), did(created(taskID(1)))}, said{1, ops(makeTask(2)), did(created(taskID(2)))}
	paused := said{2, ops(pause), did(core.OpResult{Kind: core.OpQueuePause})}
	edit := &core.TaskUpdate{Task: taskID(1), HasPayload: true, Payload: []byte("new"), HasLabels: true, Labels: []core.Label{{Name: "a", Value: "b"}}}
	edited := said{2, ops(edit), op(edit, core.Ready)}
	after := given(1, 7, 3)
	after.Payload = []byte("new")
	again := said{3, ops(makeTask(1)), did(core.OpResult{Kind: core.OpTaskCreate, Task: taskID(1), State: core.Ready, Replayed: true, PayloadMatches: true})}
	other := makeTask(1)
	other.Payload = []byte("new")
	for name, c := range map[string]struct {
		list []said
		says string
	}{
		"a paused queue gives nothing":     {[]said{one, paused, {3, ops(give(1)), grants()}}, ""},
		"a paused queue gives":             {[]said{one, paused, {3, ops(give(1)), grants(given(1, 7, 3))}}, "paused"},
		"it goes on when its time comes":   {[]said{one, paused, tick(6, false), {6, ops(give(1)), grants(given(1, 7, 6))}}, ""},
		"it does not go on":                {[]said{one, paused, tick(6, false), {6, ops(give(1)), grants()}}, "is ready"},
		"it goes on too early":             {[]said{one, paused, tick(4, false), {4, ops(give(1)), grants(given(1, 7, 4))}}, "paused"},
		"a queue that is not there":        {[]said{paused}, "answered"},
		"an edit is given out":             {[]said{one, edited, {3, ops(give(1)), grants(after)}}, ""},
		"an edit is lost":                  {[]said{one, edited, {3, ops(give(1)), grants(given(1, 7, 3))}}, "payload"},
		"a create is told by its original": {[]said{one, edited, again}, ""},
		"a create is told by the edit":     {[]said{one, edited, {3, ops(other), again.result}}, "other content"},
		"room for one task":                {[]said{limit(core.QueueLimits{MaxTasks: 1}), one, {1, makes.commit, refused(0, core.Exhausted{Limit: "max_tasks", Max: 1})}}, ""},
		"one task too many":                {[]said{limit(core.QueueLimits{MaxTasks: 1}), one, makes}, "has 1 tasks of 1"},
		"refused where there is room":      {[]said{limit(core.QueueLimits{MaxTasks: 2}), one, {1, makes.commit, refused(0, core.Exhausted{Limit: "max_tasks", Max: 2})}}, "could be made"},
		"one byte too many":                {[]said{limit(core.QueueLimits{MaxBytes: 1}), one, makes}, "has 1 bytes of 1"},
		"beyond a ceiling":                 {[]said{limit(core.QueueLimits{CeilingLease: 4000}), one}, "asks for more"},
		"refused by a ceiling":             {[]said{limit(core.QueueLimits{CeilingLease: 4000}), {1, one.commit, refused(0, core.Invalid{Field: "lease", Reason: "ceiling"})}}, ""},
		"refused below a ceiling":          {[]said{limit(core.QueueLimits{CeilingLease: 5000}), {1, one.commit, refused(0, core.Invalid{Field: "lease", Reason: "ceiling"})}}, "could be made"},
	} {
		judgeSaid(t, name, core.FormatOperate, c.list, c.says)
	}
}

// What is read back must be what the ops of this format left.
func TestAuditFindsWhatOperatorsDidNotDo(t *testing.T) {
	m := NewModel()
	labelled := makeTask(1)
	labelled.Labels, labelled.ExpiresAt = []core.Label{{Name: "a", Value: "b"}}, 90_000
	pause := core.QueuePaused{Since: 2000, By: "p", Reason: "r"}
	stop := ops(&core.QueuePause{Queue: "q", Reason: "r"})
	stop.Principal = "p"
	for i, s := range []said{{1, ops(labelled), did(created(taskID(1)))}, {2, stop, did(core.OpResult{Kind: core.OpQueuePause})}} {
		e := &core.Entry{Format: core.FormatOperate, Stamp: core.ShardTime(s.at * 1000), Commits: []core.Commit{s.commit}}
		if err := m.Judge(uint64(i+1), e, []core.Result{s.result}); err != nil {
			t.Fatal(err)
		}
	}
	good := core.Task{ID: taskID(1), Queue: "q", State: core.Ready, Payload: []byte{1}, ContentType: "application/json", Labels: labelled.Labels, ExpiresAt: 90_000}
	if err := m.AuditTask(testPart, taskID(1), good, true); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*core.Task){
		"labels":   func(t *core.Task) { t.Labels = nil },
		"expiry":   func(t *core.Task) { t.ExpiresAt = 0 },
		"redrives": func(t *core.Task) { t.Redrives = 1 },
		"cancel":   func(t *core.Task) { t.Cancel.At = 2000 },
	} {
		bad := good
		if spoil(&bad); m.AuditTask(testPart, taskID(1), bad, true) == nil {
			t.Errorf("an audit passed wrong %s", name)
		}
	}
	stats := core.QueueStats{Queue: "q", Created: 1, Paused: pause}
	stats.States[core.Ready] = 1
	if err := m.AuditStats(testPart, stats); err != nil {
		t.Error(err)
	}
	if stats.Paused = (core.QueuePaused{}); m.AuditStats(testPart, stats) == nil {
		t.Error("an audit passed a queue that is paused and reads as if it was not")
	}
}
