package commit_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// taskID names tasks of scripts: t7 is a task of partition 0, t7@1 one of partition 1.
func taskID(name string) core.TaskID {
	text, at, _ := strings.Cut(name, "@")
	n, err := strconv.Atoi(strings.TrimPrefix(text, "t"))
	if err != nil {
		panic("not a task: " + name)
	}
	partition := 0
	if at != "" {
		partition = number(at)
	}
	return core.NewTaskID(int64(n), uint16(partition), [9]byte{})
}

func taskName(id core.TaskID) string {
	if id.Partition() != 0 {
		return fmt.Sprintf("t%d@%d", id.Millis(), id.Partition())
	}
	return fmt.Sprintf("t%d", id.Millis())
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// words splits a line of an op into its plain words and its name=value pairs.
type words struct {
	plain []string
	named map[string]string
}

func split(line string) words {
	w := words{named: map[string]string{}}
	for f := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(f, "="); ok {
			w.named[name] = value
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w words) number(name string) int {
	if v, ok := w.named[name]; ok {
		return number(v)
	}
	return 0
}

func (w words) millis(name string) core.Millis { return millis(w.named[name]) }

func (w words) has(plain string) bool { return slices.Contains(w.plain, plain) }

// millis reads 10ms, 5s, 9m, 24h.
func millis(s string) core.Millis {
	units := []struct {
		unit string
		ms   int
	}{{"ms", 1}, {"s", 1000}, {"m", 60_000}, {"h", 3_600_000}}
	for _, u := range units {
		if text, ok := strings.CutSuffix(s, u.unit); ok {
			return core.Millis(number(text) * u.ms)
		}
	}
	if s == "" {
		return 0
	}
	panic("not a duration: " + s)
}

func sessionID(name string) (id core.SessionID) { copy(id[:], name); return id }

func requestID(name string) (id core.RequestID) { copy(id[:], name); return id }

// repeated expands x*100 to a hundred times x.
func repeated(s string) string {
	if text, n, ok := strings.Cut(s, "*"); ok {
		return strings.Repeat(text, number(n))
	}
	return s
}

func parseOp(line string) core.Op {
	a := split(line)
	token := core.Token(a.number("token"))
	arg := func(i int) string { return repeated(a.plain[i]) }
	switch verb := a.plain[0]; verb {
	case "create":
		op := &core.TaskCreate{
			ID: taskID(arg(1)), Queue: a.named["queue"], Payload: []byte(repeated(a.named["payload"])), Delay: a.millis("delay"),
			Unique: core.Unique{Key: a.named["unique"], Reject: a.has("reject")}, MaxAttempts: int32(a.number("max_attempts")),
		}
		if after, ok := a.named["run_at"]; ok {
			op.RunAt = epoch.Add(millis(after))
		}
		return op
	case "complete":
		return &core.TaskComplete{Task: taskID(arg(1)), Token: token, Result: []byte(repeated(a.named["result"]))}
	case "fail":
		return &core.TaskFail{Task: taskID(arg(1)), Token: token, Fatal: a.has("fatal"), Error: core.TaskError{Code: a.named["code"]}}
	case "snooze":
		return &core.TaskSnooze{Task: taskID(arg(1)), Token: token, Delay: a.millis("delay")}
	case "release":
		return &core.TaskRelease{Task: taskID(arg(1)), Token: token}
	case "renew":
		return &core.TaskRenew{Items: []core.TaskHold{{Task: taskID(arg(1)), Token: token}}, Extend: a.millis("extend")}
	case "delete_task":
		return &core.TaskDelete{Task: taskID(arg(1))}
	case "run_now":
		return &core.TaskRunNow{Task: taskID(arg(1))}
	case "queue_set":
		return &core.QueueSet{Queue: arg(1), IfVersion: -1, Config: core.QueueConfig{
			MaxAttempts: int32(a.number("max_attempts")), RetainCompleted: a.millis("retain_completed"),
		}}
	case "grant":
		return parseGrant(a)
	case "tick":
		return &core.Tick{Max: uint32(a.number("max"))}
	case "term":
		return &core.TermStart{Term: uint64(number(arg(1))), Leader: 1}
	case "shift":
		return &core.ClockShift{Shift: a.millis("by")}
	case "namespace_create":
		return &core.NamespaceCreate{Tenant: arg(1), Name: arg(2), Partitions: uint16(max(1, a.number("partitions"))), Shards: uint16(a.number("shards")), Max: int32(a.number("max"))}
	case "remove":
		return &core.NamespaceRemove{
			Step:   map[string]core.NamespaceStep{"begin": core.RemovalBegin, "finish": core.RemovalFinish, "abort": core.RemovalAbort, "forget": core.RemovalForget}[arg(1)],
			Tenant: arg(2), Name: arg(3), Namespace: core.NamespaceID(a.number("namespace")), ID: uint64(a.number("id")),
		}
	case "partition":
		return &core.PartitionRemove{
			Step: map[string]core.PartitionStep{"close": core.PartitionClose, "open": core.PartitionOpen, "clear": core.PartitionClear}[arg(1)], ID: uint64(a.number("id")),
		}
	case "namespace_set":
		op := &core.NamespaceSet{IfVersion: -1, Config: core.NamespaceConfig{NoAutoCreate: a.has("no_auto_create"), RetainBytes: int64(a.number("retain_bytes"))}}
		if _, ok := a.named["if_version"]; ok {
			op.IfVersion = int64(a.number("if_version"))
		}
		return op
	case "collection":
		return &core.CollectionSet{Collection: core.Collection{Name: arg(1), UID: 7, Model: "m", Dim: 2, Metric: core.MetricCosine}}
	case "collection_delete":
		return &core.CollectionDelete{Name: arg(1)}
	case "upsert":
		op := &core.VectorUpsert{Collection: arg(1), ID: arg(2), Vector: []byte{0, 0, 128, 63, 0, 0, 0, byte(len(arg(2)))}, IfAbsent: a.has("if_absent")}
		_, op.HasVersion = a.named["if_version"]
		op.IfVersion = uint64(a.number("if_version"))
		return op
	case "upsert_delete":
		return &core.VectorDelete{Collection: arg(1), ID: arg(2)}
	case "ruleset":
		return &core.RulesetPut{Name: arg(1), Rules: []byte(arg(2))}
	case "ruleset_delete":
		return &core.RulesetDelete{Name: arg(1)}
	case "recording":
		return &core.RecordingPut{Collection: arg(1), ID: uint64(number(arg(2))), TTL: a.millis("ttl"), Data: []byte("d")}
	default:
		return parseKV(a)
	}
}

func parseGrant(a words) core.Op {
	g := &core.Grant{N: uint32(max(1, a.number("n"))), Worker: a.named["worker"], Session: sessionID(a.named["session"]), Lease: a.millis("lease")}
	for q := range strings.SplitSeq(a.named["queue"], ",") {
		g.Queues = append(g.Queues, core.GrantQueue{Name: q, Weight: 1})
	}
	for _, hold := range strings.FieldsFunc(a.named["settles"], func(r rune) bool { return r == ',' }) {
		task, token, _ := strings.Cut(hold, "/")
		g.Settles = append(g.Settles, core.TaskHold{Task: taskID(task), Token: core.Token(number(token))})
	}
	return g
}

// parseKV reads put, delete and check: their words are keyspace, key, and value or comparison.
func parseKV(a words) core.Op {
	arg := func(i int) string {
		if i >= len(a.plain) {
			return ""
		}
		return repeated(a.plain[i])
	}
	rev := uint64(a.number("if_rev"))
	_, hasRev := a.named["if_rev"]
	switch a.plain[0] {
	case "put":
		return &core.KVPut{
			Keyspace: arg(1), Key: []byte(arg(2)), Value: []byte(arg(3)), HasRev: hasRev, IfRev: rev,
			IfAbsent: a.has("if_absent"), WantPrev: a.has("want_prev"),
		}
	case "add":
		return &core.KVAdd{Keyspace: arg(1), Key: []byte(arg(2)), Delta: int64(number(arg(3)))}
	case "delete":
		return &core.KVDelete{Keyspace: arg(1), Key: []byte(arg(2)), HasRev: hasRev, IfRev: rev}
	case "check":
		c := &core.KVCheck{Keyspace: arg(1), Key: []byte(arg(2))}
		switch {
		case a.has("exists"):
			c.Compare = core.CompareExists
		case a.has("absent"):
			c.Compare = core.CompareAbsent
		case a.named["rev"] != "":
			c.Target, c.Compare, c.Rev = core.TargetRev, core.CompareEqual, uint64(a.number("rev"))
		case a.named["value"] != "":
			c.Target, c.Compare, c.Value = core.TargetValue, core.CompareEqual, []byte(a.named["value"])
		}
		return c
	}
	panic("unknown op " + a.plain[0])
}

// parseCommits reads the commits of an entry: each begins with a line "commit", the first may leave it out.
func (w *world) parseCommits(input string) []core.Commit {
	var out []core.Commit
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if line == "commit" || strings.HasPrefix(line, "commit ") {
			out = append(out, w.parseHeader(line))
			continue
		}
		if len(out) == 0 {
			out = append(out, core.Commit{Partition: w.part, Principal: "tester"})
		}
		c := &out[len(out)-1]
		if text, ok := strings.CutPrefix(line, "if "); ok {
			c.Conditions = append(c.Conditions, parseOp(text).(*core.KVCheck))
			continue
		}
		op := parseOp(line)
		switch op.Kind() {
		case core.OpTick, core.OpTermStart, core.OpClockShift, core.OpNamespaceCreate, core.OpNamespaceRemove:
			if len(c.Ops) == 0 {
				c.Partition = core.Partition{}
			}
		}
		c.Ops = append(c.Ops, op)
	}
	return out
}

func (w *world) parseHeader(line string) core.Commit {
	a := split(line)
	c := core.Commit{
		Partition: w.part, Principal: "tester", FailOnRefusal: a.has("fail_on_refusal"),
		RequestID: requestID(a.named["request"]), Session: sessionID(a.named["session"]), Seq: uint64(a.number("seq")),
	}
	if a.named["principal"] != "" {
		c.Principal = a.named["principal"]
	}
	if f := a.named["fence"]; f != "" {
		task, token, _ := strings.Cut(f, "/")
		c.Fence = &core.Fence{Task: taskID(task), Token: core.Token(number(token))}
	}
	return c
}
