package session

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the vectors again")

// shareVector is one division of a worker's slots: the streams as they are, and the targets and times that the division leaves. Times are
// milliseconds; 0 is never.
type shareVector struct {
	Call    string        `json:"call"` // divide or roam
	Total   int           `json:"total"`
	Now     int64         `json:"now"`
	Streams []shareStream `json:"streams"`
	After   []shareStream `json:"after"`
}

type shareStream struct {
	Slots  int   `json:"slots"`
	Target int   `json:"target"`
	Used   int   `json:"used"`
	Up     bool  `json:"up"`
	Wanted bool  `json:"wanted"`
	Filled int64 `json:"filled"`
	Looked int64 `json:"looked"`
	Opened int64 `json:"opened"`
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOfMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func (s shareStream) share() *share {
	return &share{
		slots: s.Slots, target: s.Target, used: s.Used, up: s.Up, wanted: s.Wanted,
		filled: timeOfMillis(s.Filled), looked: timeOfMillis(s.Looked), opened: timeOfMillis(s.Opened),
	}
}

func showShare(s *share) shareStream {
	return shareStream{s.slots, s.target, s.used, s.up, s.wanted, millisOf(s.filled), millisOf(s.looked), millisOf(s.opened)}
}

// run carries out the division of v.
func (v *shareVector) run() (after []shareStream) {
	streams := make([]*share, len(v.Streams))
	for i, s := range v.Streams {
		streams[i] = s.share()
	}
	if v.Call == "divide" {
		divide(v.Total, streams, timeOfMillis(v.Now))
	} else {
		roam(v.Total, streams, timeOfMillis(v.Now))
	}
	for _, s := range streams {
		after = append(after, showShare(s))
	}
	return after
}

// drawVector draws streams whose targets are no more than the slots, as they are in a worker.
func drawVector(r *rand.Rand) shareVector {
	v := shareVector{Call: "divide", Now: 1_000_000}
	n := 1 + r.IntN(6)
	v.Total = n + r.IntN(20)
	if r.IntN(2) == 0 && n > 1 {
		v.Call, v.Total = "roam", 1+r.IntN(n-1)
	}
	ago := func() int64 { return v.Now - []int64{0, 1, 10, 30, 100, 249, 250, 260, 999, 1000, 5000}[r.IntN(11)] }
	left := v.Total
	for range n {
		s := shareStream{Up: r.IntN(8) > 0, Filled: ago(), Looked: ago()}
		s.Target = r.IntN(left + 1)
		left -= s.Target
		s.Slots = min(s.Target, v.Total)
		s.Used = r.IntN(s.Slots + 1)
		if s.Slots > s.Used && r.IntN(2) == 0 {
			s.Opened = ago()
		}
		s.Wanted = s.Slots == 0 && r.IntN(2) == 0
		v.Streams = append(v.Streams, s)
	}
	v.After = v.run()
	return v
}

// TestSlotsAreDividedAsTheVectorsSay holds the division to the vectors that workers in all languages read.
func TestSlotsAreDividedAsTheVectorsSay(t *testing.T) {
	path := filepath.Join("..", "..", "..", "..", "proto", "conformance", "share.json")
	if *update {
		r := rand.New(rand.NewPCG(1, 2))
		var b bytes.Buffer
		b.WriteString("{\"vectors\": [\n")
		for i := range 120 {
			line, err := json.Marshal(drawVector(r))
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				b.WriteString(",\n")
			}
			b.Write(line)
		}
		b.WriteString("\n]}\n")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []shareVector }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("the file has no vectors")
	}
	for i, v := range file.Vectors {
		got, want := v.run(), v.After
		for k := range got {
			if got[k] != want[k] {
				t.Errorf("vector %d, stream %d: %+v, want %+v", i, k, got[k], want[k])
			}
		}
	}
}
