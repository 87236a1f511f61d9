package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

const (
	// MaxBounds is how many bounds are counted each by itself, of all tenants together, at about 300 bytes each. What others refuse
	// is counted together.
	MaxBounds = 4096
	// RefusalStep is the length of a step of the counts of refusals: of a day the oldest step counts as a whole.
	RefusalStep = 30 * time.Minute

	refusalSteps = int64(24*time.Hour/RefusalStep) + 1 // the one that is not over is kept besides
)

// Refusals counts what bounds refused in the last day, in steps of half an hour. It is safe for use by several goroutines. Times are of the
// boot clock, but for those that are only shown.
type Refusals struct {
	// mu guards the fields below.
	mu   sync.Mutex
	rows map[core.Bound]*refusals
	// rest is of bounds beyond MaxBounds.
	rest refusals
	// swept is the step in which rows without a refusal in the last day were looked for.
	swept int64
}

// refusals are those of one bound.
type refusals struct {
	steps [refusalSteps]uint32 // by step modulo their number
	step  int64                // of the last refusal
	last  time.Time            // of the last refusal, by the wall clock
}

// NewRefusals makes counts that begin at 0.
func NewRefusals() *Refusals { return &Refusals{rows: make(map[core.Bound]*refusals), swept: -1} }

// Add counts a refusal. wall is only shown.
func (r *Refusals) Add(b core.Bound, at time.Duration, wall time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := int64(at / RefusalStep)
	row := r.rows[b]
	if row == nil {
		row = r.place(b, step)
	}
	row.advance(step)
	if n := &row.steps[step%refusalSteps]; *n < math.MaxUint32 {
		*n++
	}
	row.last = wall
}

// place makes the row of a bound, or returns that of the rest where there is no room. The mutex is held.
func (r *Refusals) place(b core.Bound, step int64) *refusals {
	if len(r.rows) >= MaxBounds && r.swept != step {
		r.swept = step
		for k, row := range r.rows {
			if row.sum(step) == 0 {
				delete(r.rows, k)
			}
		}
	}
	if len(r.rows) >= MaxBounds {
		return &r.rest
	}
	b.Name = strings.Clone(b.Name) // the caller's may lie in a frame
	row := &refusals{step: step}
	r.rows[b] = row
	return row
}

// advance empties the steps after the last refusal, up to step.
func (row *refusals) advance(step int64) {
	for s := max(row.step, step-refusalSteps) + 1; s <= step; s++ {
		row.steps[s%refusalSteps] = 0
	}
	row.step = max(row.step, step)
}

// sum is what was refused in the day up to step.
func (row *refusals) sum(step int64) (n uint64) {
	for s := max(step-refusalSteps+1, 0); s <= row.step; s++ {
		n += uint64(row.steps[s%refusalSteps])
	}
	return n
}

// Of returns what the bounds of a namespace, or of a tenant where namespace is 0, refused in the last day, sorted by name. partial says
// that there were more bounds than are counted by themselves.
func (r *Refusals) Of(tenant core.TenantID, namespace core.NamespaceID, at time.Duration) (list []core.Refused, partial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := int64(at / RefusalStep)
	for b, row := range r.rows {
		if b.Tenant != tenant || b.Namespace != namespace {
			continue
		}
		if n := row.sum(step); n > 0 {
			list = append(list, core.Refused{Name: b.Name, Count: n, Last: row.last})
		}
	}
	slices.SortFunc(list, func(a, b core.Refused) int { return cmp.Compare(a.Name, b.Name) })
	return list, r.rest.sum(step) > 0
}
