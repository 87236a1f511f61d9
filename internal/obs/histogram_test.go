package obs

import (
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/env"
)

func TestEachNumberFallsIntoTheBucketThatHoldsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(0, 1000).Draw(t, "first")
		h := NewHistogram(first, rapid.IntRange(1, 20).Draw(t, "buckets"))
		values := rapid.SliceOf(rapid.Uint64Range(0, 1<<40)).Draw(t, "values")
		sum := 0.0
		want := make([]uint64, len(h.counts))
		bounds := h.Read(1).Bounds
		for _, v := range values {
			h.Observe(v)
			sum += float64(v)
			i := 0
			for i < len(bounds) && float64(v) > bounds[i] {
				i++
			}
			want[i]++
		}
		d := h.Read(1)
		for i := range want {
			if d.Counts[i] != want[i] {
				t.Fatalf("bucket %d of %v has %d, want %d", i, bounds, d.Counts[i], want[i])
			}
		}
		if d.Count() != uint64(len(values)) || d.Sum != sum {
			t.Fatalf("count %d, sum %v; want %d, %v", d.Count(), d.Sum, len(values), sum)
		}
	})
}

func TestManyMayObserveAtOnce(t *testing.T) {
	h := NewHistogram(1, 4)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range uint64(1000) {
				h.Observe(i % 20)
			}
		})
	}
	all.Wait()
	if d := h.Read(1); d.Count() != 8000 || d.Sum != 8*50*190 {
		t.Errorf("count %d, sum %v", d.Count(), d.Sum)
	}
}

// slowDisk is a file system whose syncs take as long as a test says.
type slowDisk struct {
	env.FS
	env.Clock
	now, next time.Duration
	err       error
}

func (d *slowDisk) Boot() time.Duration                    { return d.now }
func (d *slowDisk) Create(string) (env.File, error)        { return slowFile{d: d}, d.err }
func (d *slowDisk) OpenReadWrite(string) (env.File, error) { return slowFile{d: d}, d.err }
func (d *slowDisk) Open(string) (env.File, error)          { return slowFile{d: d}, d.err }
func (f slowFile) SyncData() error                         { f.d.now += f.d.next; return f.d.err }

func (f slowFile) Sync() error { f.d.now += f.d.next; return f.d.err }

type slowFile struct {
	env.File
	d *slowDisk
}

func TestOnlySyncsThatSucceedAreTimed(t *testing.T) {
	d := &slowDisk{next: 100 * time.Microsecond}
	h := NewSyncTimes()
	fs := TimeSyncs(d, d, h)
	for _, open := range []func(string) (env.File, error){fs.Create, fs.OpenReadWrite} {
		f, err := open("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.SyncData(), f.Sync()); err != nil {
			t.Fatal(err)
		}
		d.err = errors.New("broken")
		if f.SyncData() == nil {
			t.Error("the error is lost")
		}
		if f, err := open("f"); err == nil || f != nil {
			t.Errorf("file %v, err %v", f, err)
		}
		d.err = nil
	}
	got := h.Read(1e-6)
	if got.Count() != 2 || got.Sum < 0.000199 || got.Sum > 0.000201 || got.Counts[2] != 2 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := NewSyncTimes()
	for v := uint64(0); b.Loop(); v++ {
		h.Observe(v % 5000)
	}
}
