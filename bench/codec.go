package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// codecCase is one codec under test: encode appends one task to dst, and decode reads it again.
// Neither may keep the buffer.
type codecCase struct {
	encode func(dst []byte) ([]byte, error)
	decode func(b []byte) error
}

// codecTask is the task as encoding/json sees it, with the same fields as the other codecs encode.
type codecTask struct {
	ID      string `json:"id"`
	Queue   string `json:"queue"`
	Kind    string `json:"kind"`
	LeaseMS int64  `json:"lease_ms"`
	Type    string `json:"content_type"`
	Payload []byte `json:"payload"`
}

// codecID is any valid task id; its length is what matters here.
const codecID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// newCodecCase makes the case of one kind: ours is a log entry with one create, protobuf a task of a frame, json a struct.
func newCodecCase(kind string, payload []byte) (codecCase, error) {
	const leaseMS = 300_000
	switch kind {
	case "ours":
		id, err := core.ParseTaskID(codecID)
		if err != nil {
			return codecCase{}, err
		}
		e := &core.Entry{Format: core.FormatCurrent, Stamp: 1, Commits: []core.Commit{{
			Partition: core.Partition{Tenant: 1, Namespace: 1}, Principal: "bench",
			Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "bench", TaskKind: "bench", Lease: leaseMS, ContentType: "application/json", Payload: payload}},
		}}}
		return codecCase{
			encode: func(dst []byte) ([]byte, error) { return core.AppendEntry(dst, e), nil },
			decode: func(b []byte) error { _, err := core.DecodeEntry(b); return err },
		}, nil
	case "protobuf":
		m := &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Create{Create: &millracev1.CreateFrame{
			Seq: 1, Tasks: []*millracev1.TaskSpec{{Id: codecID, Queue: "bench", Kind: "bench", ContentType: "application/json", Payload: payload}},
		}}}
		return codecCase{
			encode: func(dst []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(dst, m) },
			decode: func(b []byte) error { return proto.Unmarshal(b, new(millracev1.ClientFrame)) },
		}, nil
	case "json":
		t := codecTask{codecID, "bench", "bench", leaseMS, "application/json", payload}
		return codecCase{
			encode: func([]byte) ([]byte, error) { return json.Marshal(&t) },
			decode: func(b []byte) error { return json.Unmarshal(b, new(codecTask)) },
		}, nil
	}
	return codecCase{}, fmt.Errorf("no codec %q", kind)
}

// Codec drives queue.codec: one goroutine encodes and decodes one task in turn for the length of
// the window. No server takes part.
func Codec(ctx context.Context, r *Rig) error {
	c, err := newCodecCase(r.Shape.Kind, payload(r.Shape.Payload))
	if err != nil {
		return err
	}
	sample, err := c.encode(nil)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	var failed error
	err = r.Work(ctx, func(over func() bool) { failed = r.codec(c, over) })
	if err == nil {
		err = failed
	}
	r.Metric("encoded_bytes", float64(len(sample)), "B")
	return err
}

// codec runs the case until the window is over. It reads the clock per round of many operations,
// not per operation: a reading would take as long as the operation. Allocations are of the whole
// process, in which nothing else runs.
func (r *Rig) codec(c codecCase, over func() bool) error {
	const round = 512
	var buf []byte
	var err error
	var n uint64
	var encode, decode time.Duration
	var from, to runtime.MemStats
	<-r.begin
	runtime.ReadMemStats(&from)
	for !over() {
		start := time.Now()
		for range round {
			if buf, err = c.encode(buf[:0]); err != nil {
				return fmt.Errorf("encode: %w", err)
			}
		}
		mid := time.Now()
		for range round {
			if err := c.decode(buf); err != nil {
				return fmt.Errorf("decode: %w", err)
			}
		}
		encode, decode, n = encode+mid.Sub(start), decode+time.Since(mid), n+round
	}
	runtime.ReadMemStats(&to)
	if n == 0 {
		return fmt.Errorf("the window ended before %d operations", round)
	}
	ops := float64(n)
	r.Metric("ns_per_op", float64(encode+decode)/ops, "ns/op")
	r.Metric("encode_ns_per_op", float64(encode)/ops, "ns/op")
	r.Metric("decode_ns_per_op", float64(decode)/ops, "ns/op")
	r.Metric("alloc_bytes_per_op", float64(to.TotalAlloc-from.TotalAlloc)/ops, "B/op")
	r.Metric("allocs_per_op", float64(to.Mallocs-from.Mallocs)/ops, "allocs/op")
	r.Op("roundtrip").Count(0, int(n))
	return nil
}
