package frame

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

const wireRuns = 20_000

// wireID is a task's id as far as the codec looks at it: 26 bytes of ASCII.
func wireID(r *rand.Rand) string {
	b := make([]byte, wireIDBytes)
	for i := range b {
		b[i] = 'A' + byte(r.IntN(26))
	}
	return string(b)
}

func wireBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, r.IntN(n+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func wireSpec(r *rand.Rand) *millracev1.TaskSpec {
	s := &millracev1.TaskSpec{Id: wireID(r), Queue: "q", Kind: "k", Payload: wireBytes(r, 300), ContentType: "application/json"}
	s.Priority = r.Uint32N(10)
	if r.IntN(2) == 0 {
		s.Lease = &durationpb.Duration{Seconds: r.Int64N(100), Nanos: r.Int32N(1000)}
	}
	if r.IntN(2) == 0 {
		s.Unique = &millracev1.Unique{Key: "u", Until: millracev1.Unique_Until(r.Int32N(4) - 1), OnConflict: millracev1.Unique_OnConflict(r.Int32N(3))}
		if r.IntN(2) == 0 {
			s.Unique.Ttl = &durationpb.Duration{Seconds: r.Int64N(1000)}
		}
	}
	if r.IntN(2) == 0 {
		s.Key, s.Tag, s.Cost = "customer-7", "t", r.Uint32()
	}
	for range r.IntN(3) {
		s.After = append(s.After, &millracev1.After{Id: wireID(r), On: millracev1.After_On(r.Int32N(2))})
	}
	switch r.IntN(15) {
	case 11:
		s.Unique, s.After = &millracev1.Unique{}, []*millracev1.After{{}}
	case 0:
		s.Headers = []*millracev1.Header{{Name: "n", Value: "v"}}
	case 1:
		s.RunAt = timestamppb.Now()
	case 2:
		s.Delay = durationpb.New(5)
	case 3:
		s.MaxAttempts, s.MaxCrashes, s.MaxRun = 3, 4, durationpb.New(9)
	case 4:
		s.MaxDeliveries = proto.Int32(0)
	case 5:
		s.Retry, s.Unique = &millracev1.Retry{}, &millracev1.Unique{Key: "ü"}
	case 6:
		s.Labels, s.Key, s.Tag = map[string]string{"a": "b"}, "k", "t"
	case 7:
		s.Cost, s.ExpiresAt, s.After, s.Webhook = 1, timestamppb.Now(), []*millracev1.After{{Id: "x"}}, "w"
	case 8:
		s.ContentType = "ä"
	case 10:
		s.OnDepFailure = millracev1.OnDepFailure_RUN
	case 12:
		s.Batch = "b"
	case 9:
		s.Lease = &durationpb.Duration{Seconds: -1, Nanos: -5}
	}
	return s
}

func wireSettleItem(r *rand.Rand) *millracev1.SettleItem {
	it := &millracev1.SettleItem{Id: wireID(r), Token: r.Uint64()}
	it.Outcome = &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: wireBytes(r, 200), ResultType: "t"}}
	switch r.IntN(8) {
	case 0:
		it.Outcome = &millracev1.SettleItem_Fail{Fail: &millracev1.Fail{Fatal: true}}
	case 1:
		it.Effects = &millracev1.Effects{FailOnRefusal: true}
	case 2:
		it.Outcome = &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{}}
	}
	return it
}

// TestFramesAreWrittenAsTheGeneratedCodeWritesThem compares what the server reads, not bytes: fields may come in another
// order.
func TestFramesAreWrittenAsTheGeneratedCodeWritesThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := New()
	for range wireRuns {
		f := &millracev1.ClientFrame{}
		if r.IntN(2) == 0 {
			create := &millracev1.CreateFrame{Seq: r.Uint64(), Atomic: r.IntN(2) == 0}
			for range r.IntN(5) {
				create.Tasks = append(create.Tasks, wireSpec(r))
			}
			f.Frame = &millracev1.ClientFrame_Create{Create: create}
		} else {
			settle := &millracev1.SettleFrame{Seq: r.Uint64()}
			for range r.IntN(5) {
				settle.Items = append(settle.Items, wireSettleItem(r))
			}
			f.Frame = &millracev1.ClientFrame_Settle{Settle: settle}
		}
		data, err := c.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		got := new(millracev1.ClientFrame)
		if err := proto.Unmarshal(data.Materialize(), got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, f) {
			t.Fatalf("wrote %v, want %v", got, f)
		}
		data.Free()
	}
}

func TestTextThatIsNotUTF8IsNotSent(t *testing.T) {
	f := &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Create{Create: &millracev1.CreateFrame{
		Tasks: []*millracev1.TaskSpec{{Queue: "\xff"}},
	}}}
	if _, err := New().Marshal(f); err == nil {
		t.Fatal("it was encoded")
	}
}

func wireServerFrame(r *rand.Rand) *millracev1.ServerFrame {
	if r.IntN(2) == 0 {
		a := &millracev1.Assign{Sub: r.Uint32()}
		for range r.IntN(5) {
			x := &millracev1.Assignment{
				Id: wireID(r), Token: r.Uint64(), Attempt: 1, Queue: "q", Kind: "k", Payload: wireBytes(r, 300),
				ContentType: "application/json", Priority: r.Uint32N(10), LeaseMs: r.Uint64(), LeaseLeftMs: r.Uint64(),
				MaxAttempts: r.Int32() - 1<<30, Failures: r.Uint32(), Crashes: r.Uint32(), CreatedMs: r.Int64(),
			}
			switch r.IntN(16) {
			case 0:
				x.Headers = []*millracev1.Header{{Name: "n", Value: "v"}}
			case 1:
				x.Queue = "ü"
			case 2:
				x.Id = "short"
			case 3:
				x.Id = ""
			case 4, 5:
				x.Tag, x.MaxRunMs, x.ReadyMs, x.Checkpoint = "t", r.Uint64(), r.Int64(), wireBytes(r, 30)
			}
			a.Tasks = append(a.Tasks, x)
		}
		return &millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Assign{Assign: a}}
	}
	a := &millracev1.Ack{Seq: r.Uint64(), At: &millracev1.At{Partition: r.Uint32N(3), Index: r.Uint64(), Stamp: timestamppb.Now()}}
	for range r.IntN(5) {
		if r.IntN(2) == 0 {
			a.Created = append(a.Created, &millracev1.CreateResult{Id: wireID(r), Replayed: r.IntN(2) == 0, PayloadMatches: r.IntN(2) == 0})
		} else {
			a.Settled = append(a.Settled, &millracev1.SettleResult{Replayed: r.IntN(2) == 0, State: millracev1.State(r.IntN(8))})
		}
	}
	switch r.IntN(16) {
	case 0:
		a.Error = &millracev1.Error{Code: "X"}
	case 1:
		a.Renewed = []*millracev1.HeartbeatResult{{Lost: true}}
	case 2:
		a.At = nil
	case 3:
		a.Created = append(a.Created, &millracev1.CreateResult{Error: &millracev1.Error{Code: "X"}})
	case 4:
		a.Settled = append(a.Settled, &millracev1.SettleResult{Effects: []*millracev1.OpResult{{}}, FailedInstead: true})
	}
	return &millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Ack{Ack: a}}
}

// Such a task would be read twice: tasks that waited for others, or are tried again, are common.
func TestTasksThatWaitedAreReadByHand(t *testing.T) {
	for name, task := range map[string]*millracev1.Assignment{
		"it was not ready at first": {ReadyMs: 1}, "its attempts have an end": {MaxRunMs: 1},
		"it has a tag": {Tag: "t"}, "it was tried": {Checkpoint: []byte("half"), Failures: 1},
	} {
		task.Id = wireID(rand.New(rand.NewPCG(1, 2)))
		b, err := proto.Marshal(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Assign{Assign: &millracev1.Assign{Tasks: []*millracev1.Assignment{task}}}})
		if err != nil {
			t.Fatal(err)
		}
		got := new(millracev1.ServerFrame)
		if !readServerFrame(got, b) || !proto.Equal(got.GetAssign().GetTasks()[0], task) {
			t.Errorf("%s: read %v", name, got)
		}
	}
}

// What the hand-written code does not know of one item does not make it read the others twice.
func TestOneOtherItemLeavesItsFrameReadByHand(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	plain := func() *millracev1.Assignment { return &millracev1.Assignment{Id: wireID(r), Queue: "q"} }
	fault := &millracev1.Error{Code: "X"}
	for name, frame := range map[string]*millracev1.ServerFrame{
		"a task with headers": {Frame: &millracev1.ServerFrame_Assign{Assign: &millracev1.Assign{Tasks: []*millracev1.Assignment{
			plain(), {Id: wireID(r), Queue: "ü", Headers: []*millracev1.Header{{Name: "n", Value: "v"}}}, plain(),
		}}}},
		"a task of another id": {Frame: &millracev1.ServerFrame_Assign{Assign: &millracev1.Assign{Tasks: []*millracev1.Assignment{
			plain(), {Id: "short"}, {}, plain(),
		}}}},
		"a create that was refused": {Frame: &millracev1.ServerFrame_Ack{Ack: &millracev1.Ack{Created: []*millracev1.CreateResult{
			{Id: wireID(r)}, {Id: wireID(r), Error: fault}, {Error: fault}, {Id: wireID(r), Replayed: true},
		}}}},
		"a settle with effects": {Frame: &millracev1.ServerFrame_Ack{Ack: &millracev1.Ack{Settled: []*millracev1.SettleResult{
			{Replayed: true}, {Effects: []*millracev1.OpResult{{}}}, {Error: fault}, {State: 3},
		}}}},
	} {
		b, err := proto.Marshal(frame)
		if err != nil {
			t.Fatal(err)
		}
		got := new(millracev1.ServerFrame)
		if !readServerFrame(got, b) || !proto.Equal(got, frame) {
			t.Errorf("%s: read %v, want %v", name, got, frame)
		}
	}
}

// TestFramesAreReadAsTheGeneratedCodeReadsThem damages every second frame: what the hand-written code takes, the
// generated code takes too, and finds the same in it, but for fields and repetitions that it passes over.
func TestFramesAreReadAsTheGeneratedCodeReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	c := New()
	short := 0
	for i := range wireRuns {
		want := wireServerFrame(r)
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 && len(b) > 0 {
			for range 1 + r.IntN(3) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		}
		want.Reset()
		wantErr := proto.Unmarshal(b, want)
		if readServerFrame(new(millracev1.ServerFrame), b) {
			short++
			if wantErr != nil {
				t.Fatalf("taken, but the generated code says %v", wantErr)
			}
		}
		got := new(millracev1.ServerFrame)
		err = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	}
	if short < wireRuns/3 {
		t.Errorf("only %d of %d frames were read by hand", short, wireRuns)
	}
}
