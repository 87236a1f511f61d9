package millrace_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// howMany is a count that the environment may raise.
func howMany(t *testing.T, variable string, small int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEveryReadOfRefsIsOfOneInstant moves refs, all of a set in each transaction, while they are read. MILLRACE_REF_CHANGES
// says how many refs are moved.
func TestEveryReadOfRefsIsOfOneInstant(t *testing.T) {
	_, repo, ids := refRepo(t, way{name: "grpc"}, "instant", 8)
	const width = 24
	names := make([]string, width)
	create := make([]millrace.RefChange, width)
	for i := range names {
		names[i] = fmt.Sprintf("refs/heads/set/%02d", i)
		create[i] = millrace.CreateRef(names[i], ids[0])
	}
	if _, err := repo.Update(t.Context(), create...); err != nil {
		t.Fatal(err)
	}
	s, err := repo.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it never fails
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	in := &instants{t: t, width: width}
	var lists, batches atomic.Int64
	in.read(ctx, &wait, &lists, "a list", func() (millrace.RefSet, error) {
		return repo.List(ctx, millrace.RefQuery{Prefix: "refs/heads/set/"})
	})
	in.read(ctx, &wait, &batches, "a batch", func() (millrace.RefSet, error) { return repo.BatchGet(ctx, names) })
	began := time.Now()
	changes := howMany(t, "MILLRACE_REF_CHANGES", 720)
	at := ids[0]
	for done := 0; done < changes; done += width {
		next := ids[(done/width+1)%len(ids)]
		tx := s.Begin()
		for _, name := range names {
			tx.Update(name, at, next)
		}
		out, err := tx.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in.revs.Store(out.Rev, next)
		at = next
	}
	took := time.Since(began)
	stop()
	wait.Wait()
	t.Logf("%d refs moved, %.0f/s, under %d lists and %d batches", changes, float64(changes)/took.Seconds(), lists.Load(), batches.Load())
	if lists.Load() == 0 || batches.Load() == 0 {
		t.Error("nothing was read meanwhile")
	}
}

// instants judges reads of a set of refs that move together.
type instants struct {
	t     *testing.T
	width int
	revs  sync.Map // the value of all of them at a revision
}

// read reads until ctx ends, and counts.
func (in *instants) read(ctx context.Context, wait *sync.WaitGroup, n *atomic.Int64, what string, read func() (millrace.RefSet, error)) {
	wait.Go(func() {
		for ctx.Err() == nil {
			set, err := read()
			if ctx.Err() != nil {
				return
			}
			if err != nil || !in.alike(what, set) {
				in.t.Errorf("%s: %v", what, err)
				return
			}
			n.Add(1)
		}
	})
}

// alike wants all refs to be as one revision made them.
func (in *instants) alike(what string, set millrace.RefSet) bool {
	if len(set.Refs) != in.width {
		in.t.Errorf("%s of %d refs", what, len(set.Refs))
		return false
	}
	first := set.Refs[0]
	for _, r := range set.Refs {
		if r.ID != first.ID || r.Rev != first.Rev || r.Rev > set.Rev {
			in.t.Errorf("%s of rev %d shows %+v next to %+v", what, set.Rev, r, first)
			return false
		}
	}
	if id, ok := in.revs.Load(first.Rev); ok && id != first.ID {
		in.t.Errorf("%s shows %s at rev %d, where it was %s", what, first.ID, first.Rev, id)
		return false
	}
	return true
}

// TestALoadThatIsCutEndsWithTheSameRefs cuts the connection after frames drawn at random. MILLRACE_LOAD_CUTS says how often.
func TestALoadThatIsCutEndsWithTheSameRefs(t *testing.T) {
	for _, w := range []way{{"grpc", nil}, {"rest", []millrace.Option{millrace.Transport(millrace.TransportREST)}}} {
		t.Run(w.name, func(t *testing.T) {
			_, direct, ids := refRepo(t, way{name: w.name}, "cut", 2)
			p := newProxy(t)
			p.passes.Store(w.name == "grpc")
			var answers atomic.Int64
			p.after = func(r *http.Request, _ *http.Response, _ []byte) bool { // some answers never arrive
				return !strings.Contains(r.URL.Path, "/refs") || answers.Add(1)%3 != 2
			}
			opts := append([]millrace.Option{millrace.Address(p.address()), millrace.RESTAddress(p.address())}, w.opts...)
			c := dial(t, opts...)
			cuts := howMany(t, "MILLRACE_LOAD_CUTS", 3)
			frames := 3 * cuts
			n := 1000 * frames
			out, err := c.Repo("cut-"+w.name).Load(t.Context(), func(yield func(millrace.RefChange) bool) {
				for i := range n {
					if i%3000 == 1700 { // while frames are under way
						p.cut()
					}
					if !yield(millrace.CreateRef(fmt.Sprintf("refs/tags/t%07d", i), ids[i%2])) {
						return
					}
				}
			})
			if err != nil || out.Changed != uint64(n) || len(out.Failures) > 0 {
				t.Fatalf("%d changed of %d, %d failures, %v", out.Changed, n, len(out.Failures), err)
			}
			set, err := direct.List(t.Context(), millrace.RefQuery{Prefix: "refs/tags/"})
			if err != nil || len(set.Refs) != n {
				t.Fatalf("%d refs, %v", len(set.Refs), err)
			}
			for i, r := range set.Refs {
				if r.Name != fmt.Sprintf("refs/tags/t%07d", i) || r.ID != ids[i%2] {
					t.Fatalf("ref %d is %+v", i, r)
				}
			}
		})
	}
}
