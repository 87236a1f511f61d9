package millrace_test

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// sums makes a task whose handler adds one to a number, adds times, each in a commit in mid-task. It returns the number in the
// end and how many commits were answered as repetitions. before is called ahead of each commit.
func sums(t *testing.T, c *millrace.Client, adds int, before func(add int)) (sum string, replayed int) {
	t.Helper()
	job := millrace.Job[int, int]("adds")
	w := c.Worker()
	job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
		replayed := 0
		for i := range n {
			before(i)
			out, err := c.CommitResult(ctx, func(tx *millrace.Tx) {
				tx.Fence(task)
				tx.KV("sums").Add("total", 1)
			})
			if err != nil {
				return 0, millrace.Fatal(err)
			}
			if out.Sums[0] != int64(i+1) {
				t.Errorf("add %d was answered with %d", i, out.Sums[0])
			}
			if out.Replayed {
				replayed++
			}
		}
		return replayed, nil
	})
	run(t, w)
	ctx := bounded(t)
	h, err := job.Add(ctx, c, adds)
	if err != nil {
		t.Fatal(err)
	}
	if replayed, err = h.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	v, err := c.KV("sums").Get(ctx, "total")
	if err != nil {
		t.Fatal(err)
	}
	return v.String(), replayed
}

func TestFencedCommitsWhoseAnswersAreCutAddUpOverREST(t *testing.T) {
	p := newProxy(t)
	var answers atomic.Int32
	p.after = func(r *http.Request, _ *http.Response, _ []byte) bool { // each first answer is cut, and with it the connection
		return r.URL.Path != "/v1/commit" || answers.Add(1)%2 == 0
	}
	const adds = 30 // each is repeated after a pause
	sum, replayed := sums(t, p.dial(millrace.Transport(millrace.TransportREST)), adds, func(int) {})
	if sum != strconv.Itoa(adds) || replayed != adds || answers.Load() != 2*adds {
		t.Errorf("the sum is %s after %d adds, of which %d were repeated, and %d answers", sum, adds, replayed, answers.Load())
	}
}

func TestFencedCommitsAddUpOverAStreamThatIsCut(t *testing.T) {
	p := newProxy(t)
	p.passes.Store(true)
	const adds = 1000
	sum, _ := sums(t, p.dial(millrace.Transport(millrace.TransportStream)), adds, func(i int) {
		if i%50 == 25 {
			go p.cut() // while the commit is on its way
		}
	})
	if sum != strconv.Itoa(adds) {
		t.Errorf("the sum is %s after %d adds", sum, adds)
	}
}

// The stream is gone for good while a commit is on its way, and the client goes over to REST with it.
func TestFencedCommitsAddUpWhenTheClientGoesOverToREST(t *testing.T) {
	p := newProxy(t)
	p.passes.Store(true)
	c := p.dial()
	const adds = 60
	sum, _ := sums(t, c, adds, func(i int) {
		switch i {
		case 20:
			p.passes.Store(false)
			go p.cut()
		case 40:
			p.passes.Store(true)
		}
	})
	if sum != strconv.Itoa(adds) {
		t.Errorf("the sum is %s after %d adds", sum, adds)
	}
}
