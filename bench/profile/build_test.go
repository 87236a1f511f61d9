package profile

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pb "github.com/google/pprof/profile"

	"github.com/millrace/millrace/bench"
)

// builder makes profiles in memory. A stack is written innermost first, frames parted by spaces.
type builder struct {
	p         *pb.Profile
	functions map[string]*pb.Location
}

func newBuilder(columns ...string) *builder {
	b := &builder{p: &pb.Profile{PeriodType: &pb.ValueType{}}, functions: make(map[string]*pb.Location)}
	for _, c := range columns {
		b.p.SampleType = append(b.p.SampleType, &pb.ValueType{Type: c, Unit: "count"})
	}
	return b
}

func (b *builder) add(stack string, values ...int64) *builder {
	s := &pb.Sample{Value: values}
	for _, name := range strings.Fields(stack) {
		loc := b.functions[name]
		if loc == nil {
			f := &pb.Function{ID: uint64(len(b.functions) + 1), Name: name}
			loc = &pb.Location{ID: f.ID, Line: []pb.Line{{Function: f, Line: 1}}}
			b.functions[name] = loc
			b.p.Function = append(b.p.Function, f)
			b.p.Location = append(b.p.Location, loc)
		}
		s.Location = append(s.Location, loc)
	}
	b.p.Sample = append(b.p.Sample, s)
	return b
}

func (b *builder) bytes(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := b.p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// cpu adds n CPU samples of 10 ms.
func (b *builder) cpu(stack string, n int64) *builder {
	return b.add(stack, n, n*int64(10*time.Millisecond))
}

func cpuProfile() *builder { return newBuilder("samples", "cpu") }

func waitProfile() *builder { return newBuilder("contentions", "delay") }

func allocProfile() *builder { return newBuilder("alloc_objects", "alloc_space") }

func goroutineProfile() *builder { return newBuilder("goroutine") }

// calm is a set of 10 s on 2 cores in which nothing is wrong; with replaces some of its profiles.
func calm(t *testing.T, with map[Kind]*builder) *Set {
	t.Helper()
	all := map[Kind]*builder{
		CPU: cpuProfile(), Alloc: allocProfile(), Heap: newBuilder("inuse_objects", "inuse_space"),
		Block: waitProfile(), Mutex: waitProfile(), Goroutine: goroutineProfile().add("runtime.gopark a.loop", 10),
	}
	for i := range 20 {
		all[CPU].cpu("a.f"+string(rune('a'+i)), 50)
	}
	s := &Set{Process: "server-1", Window: 10 * time.Second, Procs: 2, Start: 10, Files: make(map[Kind][]byte)}
	for k, b := range all {
		if with[k] != nil {
			b = with[k]
		}
		s.Files[k] = b.bytes(t)
	}
	return s
}

func diagnose(t *testing.T, s *Set) *Diagnosis {
	t.Helper()
	d, err := Diagnose(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantFindings compares the findings above a limit as "level kind name".
func wantFindings(t *testing.T, d *Diagnosis, want ...string) {
	t.Helper()
	var got []string
	for _, f := range d.Findings() {
		if f.Level != bench.Info {
			got = append(got, f.Level+" "+f.Kind+" "+f.Name)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func failed(d *Diagnosis) bool {
	report := &bench.Diagnosis{Findings: d.Findings()}
	return len(report.Failing()) > 0
}
