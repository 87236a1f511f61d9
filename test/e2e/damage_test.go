package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// entry is one record of a log segment: where it stands, and which entry of shard 0 it holds; 0 for other kinds.
type entry struct {
	at, end int64
	index   uint64
	more    bool // the next record belongs to it: one counts only with the other
}

// segment reads the newest segment of a log by its published format: a header of 48 bytes, then records without gaps,
// each with a header of 40 bytes that begins with the length of what follows.
func segment(t *testing.T, data string) (name string, records []entry) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(data, "wal", "*.wal"))
	noErr(t, err)
	if len(names) == 0 {
		t.Fatal("no segment")
	}
	name = slices.Max(names)
	b, err := os.ReadFile(name)
	noErr(t, err)
	number := binary.LittleEndian.Uint64(b[48+8:])
	for at := 48; at+40 <= len(b) && binary.LittleEndian.Uint64(b[at+8:]) == number; {
		r := entry{at: int64(at), end: int64(at+40) + int64(binary.LittleEndian.Uint32(b[at:]))}
		r.more = b[at+35]&1 != 0
		if kind := b[at+34]; kind == 3 {
			r.index = binary.LittleEndian.Uint64(b[at+40:])
		}
		records = append(records, r)
		at = int(r.end)
	}
	if len(records) < 10 {
		t.Fatalf("only %d records in %s", len(records), name)
	}
	return name, records
}

// created is a task and the entry of the log that made it.
type created struct {
	id    string
	index uint64
}

// writeTasks makes tasks one by one, each in an entry of its own.
func writeTasks(t *testing.T, r *raw, n int) []created {
	t.Helper()
	out := make([]created, n)
	for i := range out {
		id := newID()
		resp := must(t, r, "TaskService/Create", &millracev1.CreateRequest{Task: &millracev1.TaskSpec{
			Id: id, Queue: "q", Payload: fmt.Appendf(nil, "%d", i),
		}}, &millracev1.CreateResponse{})
		out[i] = created{id, resp.At.Index}
	}
	return out
}

func TestAFlippedBitBeforeTheLastSealIsRefusedByFileAndOffset(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	writeTasks(t, newRaw(t, s.Address(), s.Tokens[0].Secret), 60)
	time.Sleep(200 * time.Millisecond) // an idle log is sealed
	s.Kill()
	name, records := segment(t, s.DataDir())
	good, err := os.ReadFile(name)
	noErr(t, err)
	defer os.WriteFile(name, good, 0o600)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	noErr(t, err)
	defer f.Close()
	sealed := records[:len(records)-1] // the last record is the seal itself
	for i := range 8 {
		r := sealed[1+i*(len(sealed)-2)/7]
		at := r.at + (r.end-r.at)*int64(i)/8
		_, err := f.WriteAt([]byte{good[at] ^ 1<<i}, at)
		noErr(t, err)
		where := fmt.Sprintf("%s at offset %d", filepath.Base(name), r.at)
		for _, args := range [][]string{
			{"serve", "--dev", "--data", s.DataDir(), "--listen", "127.0.0.1:0"}, {"doctor", "--data", s.DataDir()},
		} {
			if e := run(t, args...); e.code != 21 || !strings.Contains(e.out, where) {
				t.Errorf("byte %d of the record at %d: %s ended with %d\n%s", at-r.at, r.at, args[0], e.code, e.out)
			}
		}
		_, err = f.WriteAt(good[at:at+1], at)
		noErr(t, err)
	}
	if _, err := s.Start(t.Context()); err != nil {
		t.Errorf("with its bytes restored it does not start: %v\n%s", err, logOf(s))
	}
}

// TestALogCutAnywhereOpensToAPrefix cuts the end of a log byte by byte, from behind: a look finds it whole, and the last
// entry is never one before the cut. Some of the cuts are really started.
func TestALogCutAnywhereOpensToAPrefix(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	tasks := writeTasks(t, newRaw(t, s.Address(), s.Tokens[0].Secret), 120)
	s.Kill()
	name, records := segment(t, s.DataDir())
	end := records[len(records)-1].end
	noErr(t, os.Truncate(name, end))
	// make check cuts at each byte, and starts a server more often; that of the log itself is tried at each byte by its own tests.
	step, count := int64(13), 5
	if checking() {
		step, count = 1, 20
	}
	var starts []int64
	for i := range count {
		starts = append(starts, end-int64(i)*4096/int64(count-1)/step*step)
	}
	for at := end; at >= end-4096; at -= step {
		noErr(t, os.Truncate(name, at))
		var last uint64 // entry that is whole before the cut
		for i, r := range records {
			for r.more && i+1 < len(records) {
				i++
				r.end, r.more = records[i].end, records[i].more
			}
			if r.end <= at {
				last = max(last, r.index)
			}
		}
		x, err := server.Examine(s.DataDir())
		if err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
		if len(x.Findings) > 0 || len(x.Shards) != 1 || x.Shards[0].LogLast < last {
			t.Fatalf("cut at %d, after entry %d: %+v", at, last, x)
		}
		if slices.Contains(starts, at) {
			startCut(t, s.DataDir(), at, last, tasks)
		}
	}
}

// startCut starts a server on a copy of a directory whose log was cut, and wants a prefix that holds all up to last.
func startCut(t *testing.T, data string, at int64, last uint64, tasks []created) {
	t.Helper()
	dir := t.TempDir()
	noErr(t, copyWithoutSpares(filepath.Join(dir, "data"), data))
	defer os.RemoveAll(dir)
	d, err := server.StartDev(server.DevOptions{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatalf("cut at %d: %v", at, err)
	}
	c, err := millrace.Dial(t.Context(), millrace.Address(d.Address), millrace.Token(d.Token))
	noErr(t, err)
	defer c.Close()
	ctx := bounded(t, 30*time.Second)
	gone := false
	for i, task := range tasks {
		info, err := c.Task(ctx, task.id)
		switch {
		case errors.Is(err, millrace.ErrNotFound):
			gone = true
			if task.index <= last {
				t.Errorf("cut at %d: task %d of entry %d is lost, entry %d was whole", at, i, task.index, last)
			}
		case err != nil:
			t.Fatalf("cut at %d: %v", at, err)
		case gone:
			t.Errorf("cut at %d: task %d is there, and one before it is not", at, i)
		case string(info.Payload) != fmt.Sprint(i) || info.State != millrace.Ready:
			t.Errorf("cut at %d: task %d is %+v", at, i, info)
		}
	}
	if _, err := millrace.Job[string, string]("q").Add(ctx, c, "next"); err != nil {
		t.Errorf("cut at %d: the next task: %v", at, err)
	}
	noErr(t, d.Close(time.Second))
}

// copyWithoutSpares copies a data directory but for the log's empty files.
func copyWithoutSpares(to, from string) error {
	// A server that was killed leaves its socket, which is not data.
	if err := os.Remove(filepath.Join(from, "operator.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	spares, err := filepath.Glob(filepath.Join(to, "wal", "*.spare"))
	for _, name := range spares {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
