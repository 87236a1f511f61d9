package e2e

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// smallDisk mounts a file system of its own, of 64 MiB. It needs root and a loop device; without them the test is skipped.
// smallDisk mounts a file system of that many bytes.
func smallDisk(t *testing.T, bytes int64) *proc.SmallDisk {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	disk, err := proc.NewSmallDisk(t.TempDir(), bytes)
	if errors.As(err, new(proc.NotRunError)) {
		t.Skip(err)
	}
	noErr(t, err)
	t.Cleanup(func() { noErr(t, disk.Close()) })
	return disk
}

func TestAFullDiskRefusesNewWorkServesTheRestAndHeals(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<20)
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: disk.At}, "default")
	noErr(t, err)
	ctx := bounded(t, time.Minute)
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	defer s.Kill()
	c, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(),
		millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial))
	noErr(t, err)
	defer c.Close()
	ids := addMany(t, ctx, c, "q", 200)
	_, err = c.KV("cfg").Put(ctx, "k", "v")
	noErr(t, err)
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Max: 20})
	noErr(t, err)
	points := c.Collection("ws")
	_, err = points.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	_, err = points.Upsert(ctx, millrace.Point{ID: "p", Payload: map[string]string{"text": "there"}})
	noErr(t, err)

	noErr(t, disk.Fill())
	acknowledged := untilRefused(t, newRaw(t, s.Address(), s.Tokens[0].Secret))

	if v, err := c.KV("cfg").Get(ctx, "k"); err != nil || v.String() != "v" {
		t.Errorf("read on a full disk: %q, err %v", v, err)
	}
	if info, err := c.Task(ctx, ids[0]); err != nil || info.State == 0 {
		t.Errorf("read on a full disk: %+v, err %v", info, err)
	}
	if found, err := points.Search(ctx, millrace.Search{Text: "there"}); err != nil || len(found.Results) != 1 {
		t.Errorf("search on a full disk: %+v, err %v", found, err)
	}
	for _, h := range held { // they make room later, and cost little now
		if _, err := c.Complete(ctx, h.ID, h.Token, nil); err != nil {
			t.Errorf("complete on a full disk: %v", err)
		}
	}
	if _, err := c.KV("cfg").Delete(ctx, "k"); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	if s.Ended() {
		t.Fatalf("the server ended\n%s", logOf(s))
	}

	noErr(t, disk.Free())
	begin := time.Now()
	h, err := millrace.Job[string, string]("after").Add(ctx, c, "room") // which the client repeats while it is refused
	if err != nil {
		t.Fatalf("after room was made: %v\n%s", err, logOf(s))
	}
	t.Logf("new work %s after room was made", time.Since(begin).Round(time.Millisecond))
	acknowledged = append(acknowledged, h.ID)

	noErr(t, s.Stop())
	noErr(t, s.Doctor(ctx))
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	if got := states(t, ctx, c, ids); got[millrace.Completed] != len(held) || got[millrace.Ready] != len(ids)-len(held) {
		t.Errorf("tasks from before: %v", got)
	}
	if got := states(t, ctx, c, acknowledged); got[millrace.Ready] != len(acknowledged) {
		t.Errorf("of %d tasks acknowledged meanwhile: %v", len(acknowledged), got)
	}
	noErr(t, s.Stop())
}

// untilRefused adds tasks until the server refuses one for its disk, and returns those that it acknowledged. It asks by
// hand: the client would repeat what a limit refuses, in the hope of room.
func untilRefused(t *testing.T, r *raw) (ids []string) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); time.Now().Before(late); {
		id := newID()
		a := r.call(t, "TaskService/Create", &millracev1.CreateRequest{Task: &millracev1.TaskSpec{Id: id, Queue: "more"}})
		if a.status == 0 {
			ids = append(ids, id)
			continue
		}
		e := a.err()
		if e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "disk" || e.GetOutcome() != millracev1.Error_REFUSED || a.status != 8 {
			t.Errorf("a full disk answers %d %s, %v", a.status, a.message, e)
		}
		return ids
	}
	t.Fatal("a full disk refuses nothing")
	return nil
}

// A server that is killed on a full disk starts on it, and serves what a full disk does not hinder.
func TestAServerStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<20)
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Data: filepath.Join(disk.At, "data")}, "default")
	noErr(t, err)
	ctx := bounded(t, time.Minute)
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	defer s.Kill()
	c, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(),
		millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial))
	noErr(t, err)
	defer c.Close()
	_, err = c.KV("cfg").Put(ctx, "k", "v")
	noErr(t, err)
	noErr(t, disk.Fill())
	acknowledged := untilRefused(t, newRaw(t, s.Address(), s.Tokens[0].Secret))
	s.Kill()
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("on a full disk: %v\n%s", err, logOf(s))
	}
	if v, err := c.KV("cfg").Get(ctx, "k"); err != nil || v.String() != "v" {
		t.Fatalf("a read answers %q, err %v", v, err)
	}
	if _, err := c.KV("cfg").Delete(ctx, "k"); err != nil {
		t.Fatalf("a delete: %v", err)
	}
	acknowledged = append(acknowledged, untilRefused(t, newRaw(t, s.Address(), s.Tokens[0].Secret))...)
	noErr(t, disk.Free())
	_, err = millrace.Job[string, string]("after").Add(ctx, c, "room") // which the client repeats while it is refused
	noErr(t, err)
	if got := states(t, ctx, c, acknowledged); got[millrace.Ready] != len(acknowledged) {
		t.Fatalf("of %d acknowledged tasks there are %v", len(acknowledged), got)
	}
	noErr(t, s.Stop())
	noErr(t, s.Doctor(ctx))
}
