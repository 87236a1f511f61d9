package core

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func taskIDs() *rapid.Generator[TaskID] {
	return rapid.Custom(func(t *rapid.T) TaskID {
		var id TaskID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		return id
	})
}

func names() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"", "a", "mail", "thumbs", "node-1"}), rapid.StringN(0, 20, 40))
}

// blobs never gives an empty slice: nil and empty have one encoding.
func blobs() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		b := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")
		if len(b) == 0 {
			return nil
		}
		return b
	})
}

// fill draws every field of *v, whatever its type, so that a field added later is covered without a change here.
func fill(t *rapid.T, v reflect.Value, path string) {
	switch v.Interface().(type) {
	case TaskID:
		v.Set(reflect.ValueOf(taskIDs().Draw(t, path)))
		return
	case SessionID, RequestID, RepoID, ObjectID, Digest:
		if rapid.Bool().Draw(t, path+"?") {
			for i := range v.Len() {
				v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, path)))
			}
		}
		return
	case []byte:
		v.SetBytes(blobs().Draw(t, path))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.String:
		v.SetString(names().Draw(t, path))
	case reflect.Int, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		if v.Kind() == reflect.Int {
			bits = 32
		}
		n := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, path)
		v.SetInt(n >> (64 - bits))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, path)
		v.SetUint(n >> (64 - v.Type().Bits()))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
		if d, ok := v.Addr().Interface().(*DeadlineExceeded); ok {
			d.Stage = "" // it is told, and not stored
		}
		if m, ok := v.Addr().Interface().(*Member); ok {
			m.Drained = false // no op says it of a member: the directory does
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, path+".len"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case reflect.Pointer:
		switch v.Type().Elem() {
		case reflect.TypeFor[RefsAnswer](), reflect.TypeFor[RefFailure](), reflect.TypeFor[TaskCreate]():
			if rapid.Bool().Draw(t, path+"?") {
				v.Set(reflect.New(v.Type().Elem()))
				fill(t, v.Elem(), path)
			}
		}
	case reflect.Array, reflect.Interface:
	default:
		panic("no rule for " + v.Type().String())
	}
}

// allOps has a value of each type of op.
func allOps() []Op {
	return []Op{
		&TaskCreate{}, &TaskComplete{}, &TaskFail{}, &TaskSnooze{}, &TaskRelease{}, &TaskRenew{}, &TaskDelete{},
		&TaskRunNow{}, &QueueSet{}, &QueueDelete{}, &Grant{}, &Tick{}, &TermStart{}, &ClockShift{}, &NamespaceCreate{}, &NamespaceSet{},
		&KVPuts{}, &KVAdd{}, &KVDeleteRange{}, &KeyspaceSet{}, &KeyspaceDelete{}, &KeyspaceUse{}, &TenantSet{}, &TenantUse{}, &TenantQuota{},
		&KVPut{}, &KVDelete{}, &KVCheck{}, &RefTxn{}, &RepoCreate{}, &RepoSet{}, &RepoDelete{}, &RepoUndelete{}, &PackSwap{},
		&VectorUpsert{}, &VectorDelete{}, &CollectionSet{}, &CollectionDelete{}, &RulesetPut{}, &RulesetDelete{}, &RecordingPut{},
		&MembersInit{}, &MemberChange{}, &MemberStep{}, &FormatRaise{}, &NamespaceRemove{}, &PartitionRemove{},
		&TaskCancel{}, &TaskStop{}, &TaskRedrive{}, &TaskUpdate{}, &TaskForceRelease{}, &QueuePause{}, &BulkStart{}, &BulkStop{},
		&SessionLost{}, &TaskReport{}, &SessionKeyAdd{}, &KeySet{}, &CronSet{}, &CronDelete{}, &CronFire{},
		&BatchOpen{}, &BatchSeal{}, &BatchCancel{}, &LimiterSet{}, &LimiterDelete{},
	}
}

func allFacts() []Fact {
	return []Fact{
		NotFound{},
		AlreadyExists{},
		LeaseLost{},
		WrongState{},
		RevMismatch{},
		WrongPartition{},
		QueuePinned{Queue: "mail"},
		Exhausted{},
		TooLarge{},
		Invalid{},
		SessionExpired{},
		Unavailable{},
		DeadlineExceeded{},
		Unauthenticated{},
		Denied{},
		RateLimited{},
		NotLeader{},
		RefRefused{},
		SearchState{},
		DimMismatch{},
		VersionMismatch{},
		WrongMembership{},
		NotEmpty{},
		InUse{Kind: "limiter", ID: "api", By: "queue mail"},
		NotAdded{},
		SearchInvalid{},
		EmbedUnavailable{},
		WrongBatch{},
	}
}

func drawOp(t *rapid.T, label string) Op {
	op := allOps()[rapid.IntRange(0, len(allOps())-1).Draw(t, label)]
	fill(t, reflect.ValueOf(op).Elem(), label)
	return op
}

func drawCommit(t *rapid.T) Commit {
	var c Commit
	fill(t, reflect.ValueOf(&c).Elem(), "commit")
	if rapid.Bool().Draw(t, "fenced") {
		c.Fence = &Fence{}
		fill(t, reflect.ValueOf(c.Fence).Elem(), "fence")
	}
	c.Conditions = nil
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		k := &KVCheck{}
		fill(t, reflect.ValueOf(k).Elem(), "condition")
		c.Conditions = append(c.Conditions, k)
	}
	c.Ops = nil
	for range rapid.IntRange(0, 5).Draw(t, "ops") {
		c.Ops = append(c.Ops, drawOp(t, "op"))
	}
	return c
}

func TestEntryRoundTripsAndSizeIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Entry{Format: 1}
		fill(t, reflect.ValueOf(&e.Stamp).Elem(), "stamp")
		e.Proposer, e.Seq = rapid.Uint64().Draw(t, "proposer"), rapid.Uint64().Draw(t, "seq")
		size := 0
		for range rapid.IntRange(0, 4).Draw(t, "commits") {
			c := drawCommit(t)
			e.Commits = append(e.Commits, c)
			size += c.EncodedSize()
		}
		b := AppendEntry(nil, e)
		got, err := DecodeEntry(b)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("got %+v\nwant %+v", got, e)
		}
		const header = 50
		if len(b) > size+header {
			t.Fatalf("%d bytes, EncodedSize said at most %d", len(b), size)
		}
	})
}

func TestEveryOpRoundTripsAlone(t *testing.T) {
	for i, op := range allOps() {
		t.Run(strings.TrimPrefix(fmt.Sprintf("%T", op), "*core."), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				op := allOps()[i]
				fill(t, reflect.ValueOf(op).Elem(), "op")
				e := &Entry{Format: 1, Commits: []Commit{{Ops: []Op{op}}}}
				got, err := DecodeEntry(AppendEntry(nil, e))
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, e) {
					t.Fatalf("got %+v, want %+v", got.Commits[0].Ops[0], op)
				}
				c := e.Commits[0]
				if n := len(AppendEntry(nil, e)); n > c.EncodedSize()+50 {
					t.Fatalf("%d bytes, EncodedSize said %d", n, c.EncodedSize())
				}
			})
		})
	}
}

func TestResultRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Result{}
		fill(t, reflect.ValueOf(r).Elem(), "result")
		for i := range r.Ops {
			if rapid.Bool().Draw(t, "empty but present") {
				r.Ops[i].Prev = []byte{}
			}
		}
		if rapid.Bool().Draw(t, "refused") {
			f := reflect.New(reflect.TypeOf(allFacts()[rapid.IntRange(0, len(allFacts())-1).Draw(t, "fact")])).Elem()
			fill(t, f, "fact")
			r.Refusal = &Refusal{Op: rapid.IntRange(-1100, 1100).Draw(t, "at"), Fact: f.Interface().(Fact)}
		}
		got, err := DecodeResult(AppendResult(nil, r))
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v\nwant %+v", got, r)
		}
	})
}

func TestDecodedPayloadsAliasTheInput(t *testing.T) {
	e := &Entry{Format: 1, Commits: []Commit{{Ops: []Op{&TaskCreate{Payload: []byte("payload")}}}}}
	b := AppendEntry(nil, e)
	got, err := DecodeEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] = '!'
	if p := got.Commits[0].Ops[0].(*TaskCreate).Payload; string(p) != "payloa!" {
		t.Errorf("payload %q is a copy", p)
	}
}

func TestContentIgnoresWhoAsks(t *testing.T) {
	a := Commit{Principal: "alice", RequestID: RequestID{1}, Ops: []Op{&TaskDelete{Task: TaskID{9}}}}
	b := Commit{Session: SessionID{2}, Seq: 3, Ops: a.Ops}
	if !bytes.Equal(a.AppendContent(nil), b.AppendContent(nil)) {
		t.Error("equal contents have different encodings")
	}
	b.Ops = []Op{&TaskDelete{Task: TaskID{8}}}
	if bytes.Equal(a.AppendContent(nil), b.AppendContent(nil)) {
		t.Error("different contents have one encoding")
	}
}

// sampleEntry holds each op once, with every field set.
func sampleEntry() *Entry {
	id := NewTaskID(1_700_000_000_000, 0, [9]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	retry := Retry{Backoff: BackoffLinear, Base: 100, FactorPercent: 250, Max: 9000}
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	check := &KVCheck{Keyspace: "thumbs", Key: []byte("k"), Target: TargetValue, Compare: CompareEqual, Rev: 3, Value: []byte("v")}
	return &Entry{
		Format: 1, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42,
		Commits: []Commit{
			{Ops: []Op{&TermStart{Term: 9, Leader: 3}, &Tick{Max: 500}}},
			{Principal: "admin", Ops: []Op{&NamespaceCreate{Tenant: "acme", Name: "shop", Partitions: 4, Max: 10}}},
			{Partition: p, Principal: "admin", Ops: []Op{
				&NamespaceSet{Config: NamespaceConfig{Version: 1, NoAutoCreate: true, RetainBytes: 1 << 30}, IfVersion: -1},
				&QueueSet{Queue: "mail", IfVersion: 2, Config: QueueConfig{
					Version: 2, MaxAttempts: 3, MaxCrashes: 4, MaxDeliveries: -1, Lease: 5000, MaxRun: 6000, Retry: retry,
					MaxPayload: 1 << 16, Aging: -1, RetainCompleted: 1, RetainCancelled: 2, RetainDead: -1,
				}},
			}},
			{Partition: p, Principal: "p1", RequestID: RequestID{0xaa, 15: 0xbb}, Ops: []Op{&TaskCreate{
				ID: id, Queue: "mail", TaskKind: "send", Priority: 9, RunAt: 1_700_000_000_500, Delay: 20, MaxAttempts: 1,
				MaxCrashes: 2, MaxDeliveries: 3, Lease: 4000, MaxRun: 5000, Retry: retry,
				Unique: Unique{Key: "u", TTL: 60, Reject: true}, ContentType: "text/plain",
				Headers: []Header{{"traceparent", "00"}}, Payload: []byte("hello"),
			}}},
			{
				Partition: p, Principal: "w1", Fence: &Fence{id, 77}, Conditions: []*KVCheck{check}, FailOnRefusal: true,
				Ops: []Op{
					&TaskComplete{Task: id, Token: 77, Result: []byte("ok"), ResultType: "text/plain"},
					&KVPut{Keyspace: "thumbs", Key: []byte("7"), Value: []byte{0, 0xff}, HasRev: true, IfRev: 3, IfAbsent: true, WantPrev: true},
					&KVDelete{Keyspace: "thumbs", Key: []byte("8"), HasRev: true, IfRev: 900},
					&KVCheck{Keyspace: "other", Key: []byte("9"), Target: TargetRev, Compare: CompareExists},
				},
			},
			{Partition: p, Principal: "w1", Ops: sampleRefOps()},
			{Partition: p, Principal: "w1", Session: SessionID{1, 15: 2}, Seq: 5, Ops: []Op{
				&TaskFail{Task: id, Token: 78, Fatal: true, HasRetry: true, RetryAfter: 9, Error: TaskError{"c", "m", "s"}},
				&TaskSnooze{Task: id, Token: 79, Until: 1_700_000_001_000, Delay: 10},
				&TaskRelease{Task: id, Token: 80, Undelivered: true},
				&TaskRenew{Items: []TaskHold{{id, 81}}, Extend: 60_000},
				&TaskDelete{Task: id},
				&TaskRunNow{Task: id},
				&Grant{
					Session: SessionID{1, 15: 2}, Sub: 1, Worker: "host-1", Queues: []GrantQueue{{Name: "mail", Weight: 1}, {Name: "img", Weight: 2}},
					N: 16, Lease: 30_000, Settles: []TaskHold{{id, 77}},
				},
			}},
		},
	}
}

// sampleResults holds each fact and every field of an op result once.
func sampleResults() []Result {
	id := TaskID{1, 15: 9}
	results := []Result{
		{Replayed: true, Index: 4211, Ops: []OpResult{{
			Kind: OpTaskCreate, Replayed: true, Task: id, PayloadMatches: true, State: Ready, Rev: 913, Prev: []byte("old"),
			Existed: true, Version: 3, Renewed: []Renewed{{Lost: true, Until: 5}}, More: true, Tenant: 1, Namespace: 2,
			Assigned: []Assigned{{
				Task: id, Token: 914, Attempt: 1, Queue: "img", Kind: "thumb", ContentType: "text/plain",
				Headers: []Header{{"a", "b"}}, Payload: []byte("p"), Priority: 9, LeaseUntil: 1_700_000_000_000, Lease: 60_000,
				MaxAttempts: 5, Failures: 1, Crashes: 2, CreatedAt: 1_600_000_000_000,
			}},
		}}},
		{FailedInstead: true},
		sampleRefResult(),
	}
	facts := []Fact{
		NotFound{"task", "x"},
		AlreadyExists{"unique", "k"},
		LeaseLost{id, 76},
		WrongState{id, Dead},
		RevMismatch{913, []byte{}, false, "thumbs", []byte("7")},
		WrongPartition{[]int{0, 3}},
		Exhausted{"sessions", 100_000},
		TooLarge{"payload", "payload", 1 << 20},
		Invalid{"key", "duplicate_key", "twice"},
		SessionExpired{},
		Unavailable{"overload", "proposals", true},
		DeadlineExceeded{Unknown: true},
		Unauthenticated{},
		Denied{"admin"},
		RateLimited{"creates", 100},
		NotLeader{"h:1"},
		sampleRefRefused(),
	}
	for i, f := range facts {
		results = append(results, Result{Refusal: &Refusal{Op: FenceOp + i, Fact: f}})
	}
	return results
}

// What format 2 added: the bound of queues, the removal of a queue, a key that names a request, what wall clocks show
// beyond shard time, and the removal of a namespace.
func TestGoldenBytesOfFormat2(t *testing.T) {
	e := &Entry{Format: FormatQueues, Stamp: 1_700_000_000_000, Proposer: 7, Seq: 8, Queues: 300, Commits: []Commit{
		{Partition: Partition{1, 2, 3}, Principal: "p", Ops: []Op{&QueueDelete{Queue: "mail", Purge: true, IfVersion: -1}}},
		{Partition: Partition{1, 2, 3}, Ops: []Op{&TaskCreate{Queue: "mail", Unique: Unique{Key: "k", Request: true}, Payload: []byte("x")}}},
		{Principal: "p", Ops: []Op{&ClockShift{Shift: -86_400_000}}},
		{Principal: "p", Ops: []Op{&NamespaceRemove{Step: RemovalFinish, Tenant: "acme", Name: "shop", Namespace: 300, ID: 9}}},
		{Partition: Partition{1, 2, 3}, Principal: "p", Ops: []Op{&PartitionRemove{Step: PartitionClose, ID: 9}}},
	}}
	path := filepath.Join("testdata", "format2.golden")
	if *update {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(AppendEntry(nil, e))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(want)))
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendEntry(nil, e); !bytes.Equal(got, raw) {
		t.Errorf("the encoding of format 2 changed: %x, was %x", got, raw)
	}
	if got, err := DecodeEntry(raw); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("entry reads as %+v, %v", got, err)
	}
}

// What format 3 added: the ops by which a queue is operated, its limits, expiries, labels, and renewals that tell of a cancel.
func TestGoldenBytesOfFormat3(t *testing.T) {
	id := TaskID{1, 15: 9}
	e := &Entry{Format: FormatOperate, Stamp: 1_700_000_000_000, Proposer: 7, Seq: 8, Queues: 300, Commits: []Commit{{
		Partition: Partition{1, 2, 3}, Principal: "p", Ops: []Op{
			&TaskCreate{ID: id, Queue: "mail", Payload: []byte("x"), ExpiresAt: 1_700_000_000_001, Labels: []Label{{"env", "prod"}, {"order", ""}}},
			&TaskCancel{Task: id, Reason: "wrong order", Force: true},
			&TaskStop{Task: id, Token: 82, Error: TaskError{"E", "m", "s"}},
			&TaskRedrive{Task: id},
			&TaskForceRelease{Task: id, Attempt: 3},
			&TaskUpdate{
				Task: id, HasPriority: true, Priority: 3, HasRunAt: true, RunAt: 4, Delay: 5, HasPayload: true, Payload: []byte("new"),
				ContentType: "text/plain", HasLabels: true, Labels: []Label{{"env", "prod"}}, HasExpiry: true, ExpiresAt: 6,
			},
			&QueuePause{Queue: "mail", Resume: true, Make: true, Until: 7, Reason: "deploy"},
			&BulkStart{
				ID: id, Action: BulkRetry, Priority: 2, Force: true, Rate: 500, Reason: "outage", Matched: 1000, Exact: true,
				Tasks: TaskFilter{
					Queue: "mail", State: Dead, Kind: "send", Worker: "w", Unique: "u", Labels: []Label{{"env", "prod"}}, From: 1, To: 2,
					Fingerprint: 3,
				},
			},
			&BulkStop{ID: id},
			&TaskReport{
				Task: id, Token: 82, Number: 3, HasProgress: true, Percent: 40, Message: "built", Lines: []string{"one", "two"}, Dropped: 4,
				HasCheckpoint: true, Checkpoint: []byte("at 7"),
			},
			&SessionLost{Session: SessionID{5, 15: 6}, Leases: []SeenLease{{id, 82, 9}, {TaskID{2}, 1, 1_700_000_000_002}}},
			&QueueSet{Queue: "mail", IfVersion: -1, Config: QueueConfig{Limits: QueueLimits{
				CancelGrace: -1, DefaultTTL: 2, MaxTasks: 3, MaxBytes: 4, CeilingAttempts: 5, CeilingCrashes: 6, CeilingDeliveries: 7,
				CeilingLease: 8, CeilingMaxRun: 9, CeilingPriority: 1,
			}}},
		},
	}, {Ops: []Op{&SessionKeyAdd{Secret: []byte("a key of 32 bytes, of a browser's"), End: true}}}}}
	r := &Result{Ops: []OpResult{
		{Kind: OpTaskRenew, Renewed: []Renewed{{Until: 5}, {Cancel: true, Until: 6}, {Lost: true}}},
		{Kind: OpGrant, Assigned: []Assigned{
			{Task: id, Token: 82, Attempt: 1, Queue: "mail", Checkpoint: []byte("half"), Tag: "user/7", MaxRun: 3_600_000, ReadyAt: 1_600_000_060_000},
			{Task: id, Token: 83, Queue: "mail", ReadyAt: 1},
		}},
	}}
	got := hex.EncodeToString(AppendEntry(nil, e)) + " " + hex.EncodeToString(AppendResult(nil, r)) + "\n"
	want := golden(t, "format3.golden", got)
	entry, result, _ := strings.Cut(strings.TrimSpace(want), " ")
	raw, err := hex.DecodeString(entry)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeEntry(raw); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("entry reads as %+v, %v", got, err)
	}
	if raw, err = hex.DecodeString(result); err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeResult(raw); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("result reads as %+v, %v", got, err)
	}
}

// What came with format 4: a create with all of its fields, and a queue that says how it is shared.
func TestGoldenBytesOfFormat4(t *testing.T) {
	id := NewTaskID(1_700_000_000_000, 0, [9]byte{1})
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	e := &Entry{Format: FormatShare, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42, Commits: []Commit{{Partition: p, Ops: []Op{
		&TaskCreate{
			ID: id, Queue: "mail", Key: "customer/7", Cost: 3, Limiters: []string{"api", "gpu"},
			After: []After{{TaskID{1}, true}, {TaskID{2}, false}}, OnDepFailure: DepCancel,
			Unique: Unique{Key: "u", Until: UniqueTerminal, Replace: true},
		},
		&TaskCreate{ID: id, Queue: "mail", Unique: Unique{Key: "u", Until: UniqueStart}},
		&BulkStart{ID: id, Action: BulkRetry, ToQueue: "other", Patch: []byte("{}")},
		&QueueSet{Queue: "mail", IfVersion: -1, Config: QueueConfig{Share: QueueShare{
			NoFairness: true, Strict: true, Concurrency: 2, KeyConcurrency: 3, Rate: Rate{4, 5, 6}, KeyRate: Rate{7, 8, 0}, MaxWorkers: 9,
			DeadLetter: "graves", Limiters: [MaxLimiters]string{"api", "gpu"},
		}}},
		&LimiterSet{Name: "api", Config: LimiterConfig{Concurrency: 2, Rate: Rate{4, 5, 6}}, IfVersion: 3},
		&LimiterSet{Name: "gpu", IfVersion: -1},
		&LimiterDelete{Name: "api", IfVersion: -1},
		&KeySet{
			Queue: "mail", Key: "customer/7", Settings: KeySettings{Weight: 2, Concurrency: 3, Rate: Rate{4, 5, 6}}, KeepSettings: true,
			Pause: KeyPauseStop, Until: 7, Reason: "holiday",
		},
	}}}}
	got := hex.EncodeToString(AppendEntry(nil, e)) + "\n"
	golden(t, "format4.golden", got)
	back, err := DecodeEntry(AppendEntry(nil, e))
	if err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

func TestGoldenBytes(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "entry %s\n", hex.EncodeToString(AppendEntry(nil, sampleEntry())))
	for _, r := range sampleResults() {
		fmt.Fprintf(&b, "result %s\n", hex.EncodeToString(AppendResult(nil, &r)))
	}
	want := golden(t, "format1.golden", b.String())
	// Old bytes are read for ever, whatever is written today.
	results := sampleResults()
	for line := range strings.Lines(want) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		raw, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if kind == "entry" {
			e, err := DecodeEntry(raw)
			if err != nil || !reflect.DeepEqual(e, sampleEntry()) {
				t.Errorf("entry reads as %+v, %v", e, err)
			}
			continue
		}
		r, err := DecodeResult(raw)
		if err != nil || !reflect.DeepEqual(*r, results[0]) {
			t.Errorf("result reads as %+v, %v; want %+v", r, err, results[0])
		}
		results = results[1:]
	}
}

func TestDecodeRefusesWhatIsNotWholeAndExact(t *testing.T) {
	whole := AppendEntry(nil, sampleEntry())
	for n := range whole {
		if _, err := DecodeEntry(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	header := []byte{1, 0, 0, 0}
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"trailing byte":      append(bytes.Clone(whole), 0),
		"format 0":           append([]byte{0}, whole[1:]...),
		"newer format":       append([]byte{byte(FormatCurrent) + 1}, whole[1:]...),
		"huge count":         append(bytes.Clone(header), 0xff, 0xff, 0xff, 0xff, 0x0f),
		"unknown op":         append(bytes.Clone(header), 1, 0, 0, 0, 0, 0, 1, 200, 0),
		"reserved op":        append(bytes.Clone(header), 1, 0, 0, 0, 0, 0, 1, byte(OpRefCreate), 0),
		"unknown flag":       append(bytes.Clone(header), 1, 0x80, 0, 0, 0, 0, 0),
		"name never written": append(bytes.Clone(header), 1, 0, 0, 0, 0, 0, 1, byte(OpQueueSet), 2, 0, 0, 0),
		"not minimal varint": {1, 0x80, 0x00, 0, 0, 0},
	} {
		if _, err := DecodeEntry(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range sampleResults() {
		b := AppendResult(nil, &r)
		for n := range b {
			if _, err := DecodeResult(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%+v cut at %d: %v", r, n, err)
			}
		}
	}
}

// A task's way through the log is one create, a share of a grant, and one completion.
func TestLogBytesOfATaskCycle(t *testing.T) {
	p := Partition{Tenant: 1, Namespace: 1}
	payload, result := bytes.Repeat([]byte("p"), 256), []byte("done")
	cycle := func(i byte) []Commit {
		id := NewTaskID(1_700_000_000_000, 0, [9]byte{i, 2, 3, 4, 5, 6, 7, 8, i})
		return []Commit{
			{Partition: p, Principal: "token-7", Ops: []Op{&TaskCreate{ID: id, Queue: "mail", Payload: payload}}},
			{Partition: p, Principal: "token-7", Ops: []Op{&TaskComplete{Task: id, Token: 1 << 40, Result: result}}},
			{Partition: p, Ops: []Op{&Grant{
				Session: SessionID{i}, Sub: 1, Worker: "host-1", Queues: []GrantQueue{{Name: "mail", Weight: 1}}, N: 1,
				Settles: []TaskHold{{id, 1 << 40}},
			}}},
		}
	}
	alone := len(AppendEntry(nil, &Entry{Format: 1, Stamp: 1_700_000_000_000, Proposer: 1 << 40, Seq: 1 << 30, Commits: cycle(0)}))
	var many []Commit
	for i := range byte(100) {
		many = append(many, cycle(i)...)
	}
	shared := len(AppendEntry(nil, &Entry{Format: 1, Stamp: 1_700_000_000_000, Commits: many})) / 100
	t.Logf("besides payload and result: %d bytes alone, %d in a batch", alone-260, shared-260)
	if alone > 260+350 || shared > 260+350 {
		t.Errorf("a cycle takes %d bytes alone and %d in a batch; at most %d", alone, shared, 260+350)
	}
	var e Entry
	e.Format, e.Commits = 1, many
	before := len(AppendEntry(nil, &e))
	e.Commits = append(e.Commits, Commit{Partition: p, Principal: "token-7", Ops: []Op{&TaskDelete{}}})
	if d := len(AppendEntry(nil, &e)) - before - len(TaskID{}) - 1; d > 6 {
		t.Errorf("a commit's header takes %d bytes, at most 6", d)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(AppendEntry(nil, searchEntry()))
	f.Add(AppendEntry(nil, sampleEntry()))
	f.Add(AppendEntry(nil, sampleKeys()))
	f.Add(AppendEntry(nil, &Entry{Format: 1}))
	f.Add(append([]byte{1, 0, 0, 0, 100}, make([]byte, 300)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e *Entry
		var err error
		if n := allocated(func() { e, err = DecodeEntry(b) }); n > 64*uint64(len(b))+64<<10 {
			t.Errorf("%d bytes allocated for %d of input", n, len(b))
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) || e != nil {
				t.Errorf("decode: %+v, %v", e, err)
			}
			return
		}
		again, err := DecodeEntry(AppendEntry(nil, e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%+v written and read is %+v, %v", e, again, err)
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	for _, r := range append(sampleResults(), searchResults()...) {
		f.Add(AppendResult(nil, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r *Result
		var err error
		if n := allocated(func() { r, err = DecodeResult(b) }); n > 64*uint64(len(b))+64<<10 {
			t.Errorf("%d bytes allocated for %d of input", n, len(b))
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) || r != nil {
				t.Errorf("decode: %+v, %v", r, err)
			}
			return
		}
		again, err := DecodeResult(AppendResult(nil, r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v written and read is %+v, %v", r, again, err)
		}
	})
}

func benchEntry() *Entry {
	e := &Entry{Format: 1, Stamp: 1_700_000_000_000}
	p := Partition{Tenant: 1, Namespace: 1}
	for i := range byte(100) {
		id := NewTaskID(1_700_000_000_000, 0, [9]byte{i})
		e.Commits = append(e.Commits,
			Commit{Partition: p, Principal: "t", Ops: []Op{&TaskCreate{ID: id, Queue: "mail", Payload: make([]byte, 256)}}},
			Commit{Partition: p, Principal: "t", Ops: []Op{&TaskComplete{Task: id, Token: 1 << 20}}})
	}
	return e
}

func BenchmarkAppendEntry(b *testing.B) {
	e := benchEntry()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEntry(buf[:0], e)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/commit")
}

func BenchmarkDecodeEntry(b *testing.B) {
	buf := AppendEntry(nil, benchEntry())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEntry(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/commit")
}
