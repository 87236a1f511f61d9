package row

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// searchOwners are clients, each with points of its own that no other client writes.
	searchOwners = 6
	// searchPoints is how many points an owner may have.
	searchPoints = 120
	// pointCall bounds one call.
	pointCall   = 20 * time.Second
	searchSpace = "staff"
)

// SearchUnderKills stores, removes and searches points while the server is killed n times. After each start the first
// answer has every point whose write was acknowledged, no point that was removed, and none that the gate keeps out; what
// was cut off is there wholly or not at all, and may be repeated.
func SearchUnderKills(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	s, err := e.server(ctx, nil, "alpha")
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	r := &searchRow{e: e, o: o, s: s, random: rand.New(rand.NewPCG(e.Seed, 31))}
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	o.fail(r.cycles(ctx, n))
	if s.Address() == "" {
		return o, r.close() // it does not serve any more: that is among the errors
	}
	err = restart(ctx, s)
	if err == nil {
		err = r.audit(ctx)
	}
	o.fail(err)
	total := 0
	for _, w := range r.owners {
		total += w.acked
		o.Figures["unknown"] += float64(w.unknown)
		o.Figures["searches"] += float64(w.searches)
	}
	o.Figures["writes"] = float64(total)
	o.Figures["first_answer_p50_s"], o.Figures["first_answer_p99_s"] = percentile(r.answered, 50), percentile(r.answered, 99)
	if total < 2*n {
		o.Invalid = fmt.Sprintf("%d writes were acknowledged over %d kills", total, n)
	}
	finish(ctx, s, o)
	return o, r.close()
}

// searchRow is one run.
type searchRow struct {
	e      Env
	o      *Outcome
	s      *proc.Server
	random *rand.Rand
	// auditor makes the collection, and searches it while no owner works.
	auditor *client
	owners  []*searchOwner
	// answered has the times from each start of a process to the first answer that was right.
	answered []time.Duration
}

// staffer is a point. The serial tells writes apart.
type staffer struct {
	Text    string   `json:"text"`
	Role    string   `json:"role"`
	Blocked []string `json:"blocked"`
	Certs   []lapse  `json:"certs"`
	Serial  int      `json:"serial"`
}

// lapse is a credential and when it ends.
type lapse struct {
	ID  string `json:"id"`
	End string `json:"expires_at"`
}

// stafferState is what a point may be: without a staffer it is absent.
type stafferState struct {
	*staffer
	// version is the server's name for the write; empty when it is not known.
	version string
}

// searchOwner writes its points one after the other, so that it knows what each is, or may be.
type searchOwner struct {
	r *searchRow
	c *client
	// n is the owner's number, which the ids of its points begin with.
	n      int
	random *rand.Rand
	// points is what each point is, by its place, as far as is acknowledged.
	points []stafferState
	// The write whose end is not known: what it would have made of which point.
	place int
	tried *stafferState
	// serial numbers the writes of points.
	serial int
	// acked and unknown count writes by their ends, and searches those that were answered.
	acked   int
	unknown int

	searches int
}

// What points and gates draw from.
var (
	stafferRoles   = []string{"welder", "driver", "nurse"}
	stafferClients = []string{"acme", "bolt"}
	stafferCerts   = []string{"rn", "cdl"}
)

func (r *searchRow) collection(c *client) millrace.Collection { return c.Collection(searchSpace) }

// setUp makes the collection, whose fields are those that gates ask about, and the owners.
func (r *searchRow) setUp(ctx context.Context) error {
	var err error
	if r.auditor, err = dial(ctx, r.e, one{r.s}, 0, r.s.Tokens[0], ""); err != nil {
		return err
	}
	_, err = r.collection(r.auditor).Create(ctx, millrace.CollectionConfig{Schema: []millrace.SchemaField{
		{Name: "role", Type: "keyword", Gate: "role"},
		{Name: "certs", Type: "credentials", Gate: "credential"},
		{Name: "blocked", Type: "keywords", Gate: "block"},
		{Name: "serial", Type: "int"},
	}})
	if err != nil {
		return fmt.Errorf("make collection: %w", err)
	}
	for i := range searchOwners {
		w := &searchOwner{r: r, n: i, random: rand.New(rand.NewPCG(r.e.Seed, uint64(3100+i))), points: make([]stafferState, searchPoints)}
		if w.c, err = dial(ctx, r.e, one{r.s}, 1+i, r.s.Tokens[0], ""); err != nil {
			return err
		}
		r.owners = append(r.owners, w)
	}
	return nil
}

// close ends all clients.
func (r *searchRow) close() error {
	all := []error{r.auditor.close()}
	for _, w := range r.owners {
		all = append(all, w.c.close())
	}
	return errors.Join(all...)
}

// cycles lets owners write and search, kills the server while they do, starts it, and holds its first answers to what they
// know.
func (r *searchRow) cycles(ctx context.Context, n int) error {
	for r.o.Done < n && ctx.Err() == nil {
		if err := r.cycle(ctx); err != nil {
			return fmt.Errorf("kill %d: %w", r.o.Done, err)
		}
	}
	return ctx.Err()
}

// cycle is one kill: all owners work, the server is killed, starts again, and its first answers are
// audited. One time in ten it is killed once more while it recovers.
func (r *searchRow) cycle(ctx context.Context) error {
	ops, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	faults := make([]error, len(r.owners))
	for i, w := range r.owners {
		wg.Go(func() { faults[i] = w.work(ops) })
	}
	delay := time.Duration(50+r.random.IntN(600)) * time.Millisecond
	if r.random.IntN(6) == 0 {
		delay += time.Second // in which state is written out
	}
	pause(ctx, delay)
	ended := r.s.Ended() || !r.s.Kill()
	stop() // callers that wait for an answer do not get one
	wg.Wait()
	if ended {
		return fmt.Errorf("the server ended by itself, see %s", r.s.LogFile())
	}
	r.o.Faults["kill"]++
	r.o.Done++
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if r.random.IntN(10) == 0 {
		if _, err := r.s.Launch(); err != nil {
			return err
		}
		pause(ctx, time.Duration(r.random.IntN(60))*time.Millisecond)
		if !r.s.Kill() {
			return fmt.Errorf("the server ended by itself while it recovered, see %s", r.s.LogFile())
		}
		r.o.Faults["kill_in_recovery"]++
	}
	began := time.Now()
	if _, err := r.s.Start(ctx); err != nil {
		return fmt.Errorf("restart: %w, see %s", err, r.s.LogFile())
	}
	if err := r.audit(ctx); err != nil {
		return err
	}
	r.answered = append(r.answered, time.Since(began))
	return nil
}

// work writes and searches until ctx ends or something is wrong. It ends with at most one write of unknown end.
func (w *searchOwner) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if w.random.IntN(3) == 0 {
			if err := w.search(ctx); err != nil {
				return err
			}
			continue
		}
		if w.tried == nil {
			w.place = w.random.IntN(searchPoints)
			w.tried = w.next()
		}
		if err := w.write(ctx); err != nil {
			return err
		}
	}
	return nil
}

// id is that of the point at a place.
func (w *searchOwner) id(place int) string { return fmt.Sprintf("o%d-%03d", w.n, place) }

// next is what the next write makes of a point: a removal, one time in three where there is one, or
// new fields.
func (w *searchOwner) next() *stafferState {
	if w.points[w.place].staffer != nil && w.random.IntN(3) == 0 {
		return &stafferState{}
	}
	w.serial++
	s := &staffer{
		Text: fmt.Sprintf("person %d works as number %d", w.random.IntN(50), w.random.IntN(50)), Role: stafferRoles[w.random.IntN(3)],
		Blocked: []string{}, Certs: []lapse{}, Serial: w.serial,
	}
	for _, c := range stafferClients {
		if w.random.IntN(3) == 0 {
			s.Blocked = append(s.Blocked, c)
		}
	}
	for _, c := range stafferCerts {
		// A credential is one that has lapsed, one that holds, or it is not there.
		switch w.random.IntN(3) {
		case 0:
			s.Certs = append(s.Certs, lapse{c, "2020-01-01T00:00:00Z"})
		case 1:
			s.Certs = append(s.Certs, lapse{c, "2199-01-01T00:00:00Z"})
		}
	}
	return &stafferState{staffer: s}
}

// write makes the write that is to be made, or repeats it. With an error of its call its end is not known.
func (w *searchOwner) write(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, pointCall)
	defer cancel()
	k, id := w.r.collection(w.c), w.id(w.place)
	if w.tried.staffer == nil {
		if _, err := k.Remove(call, id); err != nil {
			w.unknown++
			return nil
		}
	} else {
		up, err := k.Upsert(call, millrace.Point{ID: id, Payload: w.tried.staffer})
		if err == nil {
			err = up[0].Err
		}
		if err != nil {
			w.unknown++
			return nil
		}
		w.tried.version = up[0].Version
	}
	w.points[w.place], w.tried = *w.tried, nil
	w.acked++
	return nil
}

// search looks at this owner's points as they are now: it asks for them alone, under a gate that is
// drawn, and expects those that pass.
func (w *searchOwner) search(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, pointCall)
	defer cancel()
	gate := randomStaffGate(w.random)
	for i := range w.points {
		gate.IDsIn = append(gate.IDsIn, w.id(i))
	}
	found, err := w.r.collection(w.c).Search(call, millrace.Search{Text: "person works", K: 1000, Gate: gate})
	if err != nil {
		return nil // a search that gets no answer breaks no promise: the next one is judged
	}
	w.searches++
	rows, err := staffRows(found)
	if err != nil {
		return err
	}
	return w.judge(&gate, rows)
}

// randomStaffGate draws a gate of up to three conditions.
func randomStaffGate(r *rand.Rand) millrace.Gate {
	var g millrace.Gate
	if r.IntN(2) == 0 {
		g.Roles = []string{stafferRoles[r.IntN(3)]}
	}
	if r.IntN(2) == 0 {
		g.Client = stafferClients[r.IntN(2)]
	}
	if r.IntN(2) == 0 {
		g.Credentials = []string{stafferCerts[r.IntN(2)]}
	}
	return g
}

// passes is the gate as this program reads it, without the server's code.
func (s stafferState) passes(g *millrace.Gate) bool {
	if s.staffer == nil {
		return false
	}
	if len(g.Roles) > 0 && s.Role != g.Roles[0] || g.Client != "" && slices.Contains(s.Blocked, g.Client) {
		return false
	}
	// Credentials end in 2020 or in 2199.
	return len(g.Credentials) == 0 || slices.ContainsFunc(s.Certs, func(c lapse) bool {
		return c.ID == g.Credentials[0] && c.End > "2100"
	})
}

// staffRows are the rows of an answer, by id. An error means that a row came twice, or that their
// number is not what the gate let pass.
func staffRows(found *millrace.Found) (map[string]stafferState, error) {
	out := make(map[string]stafferState, len(found.Results))
	for i := range found.Results {
		h := &found.Results[i]
		if _, twice := out[h.ID]; twice {
			return nil, fmt.Errorf("point %s is in one answer twice", h.ID)
		}
		row := stafferState{new(staffer), h.Version}
		if err := json.Unmarshal(h.Payload, row.staffer); err != nil {
			return nil, fmt.Errorf("point %s: %w", h.ID, err)
		}
		out[h.ID] = row
	}
	if uint64(len(out)) != found.Gate.Passed {
		return nil, fmt.Errorf("%d rows are answered, and %d pass", len(out), found.Gate.Passed)
	}
	return out, nil
}

// judge holds this owner's rows of an answer to what it knows. A point whose write has no known end
// may be as it was before that write, or as after it.
func (w *searchOwner) judge(g *millrace.Gate, rows map[string]stafferState) error {
	for i, known := range w.points {
		row, there := rows[w.id(i)]
		open := w.tried != nil && w.place == i
		switch {
		case there && !row.passes(g):
			return fmt.Errorf("point %s is answered, and the gate %+v keeps it out", w.id(i), *g)
		case there && known.is(row) || !there && !known.passes(g):
		case open && there && w.tried.is(row), open && !there && !w.tried.passes(g):
		case there:
			return fmt.Errorf("point %s is answered as write %d in version %s; acknowledged was %s", w.id(i), row.Serial, row.version, known)
		default:
			return fmt.Errorf("point %s is missing; acknowledged was %s", w.id(i), known)
		}
	}
	return nil
}

// is compares by the serial, and by the version if that is known.
func (s stafferState) is(row stafferState) bool {
	return s.staffer != nil && s.Serial == row.Serial && (s.version == "" || s.version == row.version)
}

func (s stafferState) String() string {
	if s.staffer == nil {
		return "its absence"
	}
	return fmt.Sprintf("write %d in version %s", s.Serial, s.version)
}

// audit searches everything under a gate and under none, while no client writes, and compares nearest rows with exact ones.
func (r *searchRow) audit(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	k := r.collection(r.auditor)
	for _, gate := range []millrace.Gate{randomStaffGate(r.random), {}} {
		found, err := k.Search(call, millrace.Search{Text: "person works", K: 1000, Gate: gate})
		// While there are few points, it may be that none has the role.
		if e, ok := errors.AsType[*millrace.Error](err); ok && e.Reason == "unknown_role" && r.count() < 100 {
			continue
		}
		if err != nil {
			return fmt.Errorf("first search: %w", err)
		}
		rows, err := staffRows(found)
		if err != nil {
			return err
		}
		for _, w := range r.owners {
			r.o.fail(w.judge(&gate, rows))
		}
	}
	// The nearest rows may miss some of the exact ones: one in a hundred.
	text := fmt.Sprintf("person %d works as number %d", r.random.IntN(50), r.random.IntN(50))
	var ids [2]map[string]bool
	for i, exact := range []bool{false, true} {
		found, err := k.Search(call, millrace.Search{Text: text, K: 10, Exact: exact, NoFields: true})
		if err != nil {
			return err
		}
		ids[i] = map[string]bool{}
		for _, h := range found.Results {
			ids[i][h.ID] = true
		}
	}
	for id := range ids[1] {
		if r.o.Figures["nearest"]++; !ids[0][id] {
			r.o.Figures["nearest_missed"]++
		}
	}
	if missed := r.o.Figures["nearest_missed"]; missed > 5 && missed*100 > r.o.Figures["nearest"] {
		return fmt.Errorf("%v of %v nearest rows are missed", missed, r.o.Figures["nearest"])
	}
	return nil
}

// count is how many points there are, as far as that is known.
func (r *searchRow) count() (n int) {
	for _, w := range r.owners {
		for _, s := range w.points {
			if s.staffer != nil {
				n++
			}
		}
	}
	return n
}
