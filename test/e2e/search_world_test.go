package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// noon is when random searches are: credentials end around it.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// nurse is a point as it is sent. Nil fields are absent.
type nurse struct {
	Role    *string   `json:"role,omitempty"`
	Also    []string  `json:"also,omitempty"`
	Certs   []license `json:"certs,omitempty"`
	Blocked []string  `json:"blocked,omitempty"`
	Status  *string   `json:"status,omitempty"`
	Shifts  []string  `json:"shifts,omitempty"`
	Years   *int      `json:"years,omitempty"`
	Pay     *float64  `json:"pay,omitempty"`
	Text    string    `json:"text,omitempty"`

	id      string
	vector  []float32
	version string
}

type license struct {
	ID  string `json:"id"`
	End string `json:"expires_at,omitempty"`
}

func nurses(c *millrace.Client, name string) (millrace.Collection, millrace.CollectionConfig) {
	return c.Collection(name), millrace.CollectionConfig{Schema: []millrace.SchemaField{
		{Name: "role", Type: "keyword", Gate: "role"},
		{Name: "also", Type: "keywords", Gate: "role"},
		{Name: "certs", Type: "credentials", Gate: "credential"},
		{Name: "blocked", Type: "keywords", Gate: "block"},
		{Name: "status", Type: "keyword"},
		{Name: "shifts", Type: "keywords"},
		{Name: "years", Type: "int"},
		{Name: "pay", Type: "float"},
	}}
}

var (
	nurseRoles   = []string{"icu", "er", "ward", "home"}
	nurseCerts   = []string{"rn", "acls", "bls"}
	nurseClients = []string{"north", "south", "east"}
	nurseStates  = []string{"free", "busy", "away"}
	nurseShifts  = []string{"day", "late", "night"}
)

func some[T any](r *rand.Rand, from []T, oneIn int) (out []T) {
	for _, v := range from {
		if r.IntN(oneIn) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// mostly is a value, or in one of four cases none.
func mostly[T any](r *rand.Rand, v T) *T {
	if r.IntN(4) == 0 {
		return nil
	}
	return &v
}

const lexicalDim = 384 // of the built-in model, whose vectors clients may bring themselves

func unitVector(r *rand.Rand) []float32 {
	v := make([]float32, lexicalDim)
	var sum float64
	for i := range v {
		v[i] = float32(r.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func randomNurse(r *rand.Rand, id string) *nurse {
	n := &nurse{
		id: id, vector: unitVector(r), Role: mostly(r, nurseRoles[r.IntN(4)]), Also: some(r, nurseRoles, 6), Blocked: some(r, nurseClients, 4),
		Status: mostly(r, nurseStates[r.IntN(3)]), Shifts: some(r, nurseShifts, 2), Years: mostly(r, r.IntN(12)), Pay: mostly(r, float64(r.IntN(400))/10),
	}
	for _, c := range nurseCerts {
		for range r.IntN(3) { // held twice at times, and the later end counts
			l := license{ID: c}
			if r.IntN(2) == 0 {
				l.End = noon.Add(time.Duration(r.IntN(5)-2) * time.Second).Format(time.RFC3339)
			}
			n.Certs = append(n.Certs, l)
		}
	}
	return n
}

func (n *nurse) point() millrace.Point {
	return millrace.Point{ID: n.id, Vector: n.vector, Model: "lexical-v2", Payload: n}
}

// holds says whether a license is valid at noon: at the instant of its end it is not.
func (n *nurse) holds(id string) bool {
	return slices.ContainsFunc(n.Certs, func(l license) bool {
		if l.ID != id {
			return false
		}
		end, err := time.Parse(time.RFC3339, l.End)
		return l.End == "" || err == nil && noon.Before(end)
	})
}

func equals[T comparable](p *T, v T) bool { return p != nil && *p == v }

// wish is a filter, as the server and as this program reads it. It names p.least, which is 5.
type wish struct {
	filter string
	fits   func(n *nurse) bool
}

var wishes = []wish{
	{"status == 'free'", func(n *nurse) bool { return equals(n.Status, "free") }},
	{"status != 'free'", func(n *nurse) bool { return n.Status != nil && *n.Status != "free" }},
	{"status in ['busy', 'away']", func(n *nurse) bool { return equals(n.Status, "busy") || equals(n.Status, "away") }},
	{"'day' in shifts", func(n *nurse) bool { return slices.Contains(n.Shifts, "day") }},
	{"years >= p.least", func(n *nurse) bool { return n.Years != nil && *n.Years >= 5 }},
	{"pay < 20.5", func(n *nurse) bool { return n.Pay != nil && *n.Pay < 20.5 }},
	{"'rn' in certs", func(n *nurse) bool { return n.holds("rn") }},
	{"status == 'free' && years > 2", func(n *nurse) bool { return equals(n.Status, "free") && n.Years != nil && *n.Years > 2 }},
	{"!has(pay) || pay > 30.0", func(n *nurse) bool { return n.Pay == nil || *n.Pay > 30 }},
}

// stopped is the first condition of a gate that a point fails.
func (n *nurse) stopped(g *millrace.Gate, w *wish) string {
	roles := append(slices.Clone(n.Also), "")
	if n.Role != nil {
		roles = append(roles, *n.Role)
	}
	shares := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
	}
	switch {
	case len(g.IDsIn) > 0 && !slices.Contains(g.IDsIn, n.id), slices.Contains(g.IDsNotIn, n.id):
		return "ids"
	case len(g.Roles) > 0 && !g.AnyRole && !shares(g.Roles, roles):
		return "role"
	case slices.ContainsFunc(g.Credentials, func(id string) bool { return !n.holds(id) }):
		return "credential"
	case g.Client != "" && slices.Contains(n.Blocked, g.Client):
		return "block"
	case w != nil && !w.fits(n):
		return "filter"
	}
	return ""
}

// nurseRules are judged by judged.
var nurseRules = []millrace.Rule{
	{ID: "dear", When: "pay > 38.0", Severity: "block"}, // without pay: conditional
	{ID: "away", When: "status == 'away'", Severity: "conditional"},
	{ID: "new", When: "years < params.least", Severity: "penalty", Weight: 0.25},
	{ID: "day", When: "'day' in shifts", Severity: "bonus", Weight: 0.125},
}

// judged is the verdict of nurseRules, whose params.least is 3.
func (n *nurse) judged() (blocked, eligible bool, score float64) {
	score = 1
	if n.Years != nil && *n.Years < 3 {
		score -= 0.25
	}
	if slices.Contains(n.Shifts, "day") {
		score += 0.125
	}
	return n.Pay != nil && *n.Pay > 38, n.Pay != nil && !equals(n.Status, "away"), score
}

// nurseWorld is a collection of a server, and what this program knows of it.
type nurseWorld struct {
	r      *rand.Rand
	doors  []millrace.Collection // the same, by several transports
	nurses map[string]*nurse
	ids    int // that there may be
	plans  map[string]int
}

func (w *nurseWorld) id() string { return fmt.Sprintf("n%05d", w.r.IntN(w.ids)) }

func (w *nurseWorld) door() millrace.Collection { return w.doors[w.r.IntN(len(w.doors))] }

// change stores and removes points at random.
func (w *nurseWorld) change(ctx context.Context, n int) error {
	var points []millrace.Point
	var gone []string
	seen := map[string]bool{}
	for range n {
		id := w.id()
		if seen[id] {
			continue
		}
		seen[id] = true
		if w.r.IntN(4) == 0 {
			gone = append(gone, id)
			delete(w.nurses, id)
			continue
		}
		one := randomNurse(w.r, id)
		w.nurses[id] = one
		points = append(points, one.point())
	}
	for batch := range slices.Chunk(points, 100) {
		done, err := w.door().Upsert(ctx, batch...)
		if err != nil {
			return err
		}
		for i := range done {
			if done[i].Err != nil {
				return done[i].Err
			}
			w.nurses[batch[i].ID].version = done[i].Version
		}
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := w.door().Remove(ctx, gone...)
	return err
}

// ask makes a search at random.
func (w *nurseWorld) ask() (s millrace.Search, also *wish) {
	r := w.r
	s = millrace.Search{Vector: unitVector(r), Model: "lexical-v2", K: 1 + r.IntN(40), Exact: r.IntN(3) == 0, Explain: true}
	if r.IntN(10) == 0 {
		s.K = 1 + r.IntN(1000)
	}
	g := &s.Gate
	g.ValidAt, g.Params, g.AnyRole = noon, map[string]any{"least": 5}, r.IntN(8) == 0
	if r.IntN(2) == 0 {
		g.Roles = some(r, nurseRoles, 2)
	}
	if r.IntN(3) == 0 {
		g.Credentials = some(r, nurseCerts, 2)
	}
	if r.IntN(3) == 0 {
		g.Client = nurseClients[r.IntN(3)]
	}
	for range r.IntN(8) / 7 * 100 {
		g.IDsNotIn = append(g.IDsNotIn, w.id())
	}
	for range r.IntN(8) / 7 * w.ids / 2 {
		g.IDsIn = append(g.IDsIn, w.id())
	}
	if r.IntN(2) == 0 {
		also = &wishes[r.IntN(len(wishes))]
		g.Filter = also.filter
	}
	if r.IntN(2) == 0 {
		s.Ruleset, s.Params, s.OnlyEligible = "nurses", map[string]any{"least": 3}, r.IntN(3) == 0
	}
	return s, also
}

// judge says what is wrong with an answer.
func (w *nurseWorld) judge(s *millrace.Search, also *wish, found *millrace.Found) error {
	want := millrace.GateCounts{Considered: uint64(len(w.nurses)), ValidAt: noon}
	fit := map[string]float64{}
	for id, n := range w.nurses {
		count := map[string]*uint64{
			"ids": &want.IDs, "role": &want.Role, "credential": &want.Credential, "block": &want.Block, "filter": &want.Filter, "": &want.Passed,
		}[n.stopped(&s.Gate, also)]
		if *count++; count != &want.Passed {
			continue
		}
		score := 1.0
		if s.Ruleset != "" {
			blocked, eligible, judged := n.judged()
			if blocked || s.OnlyEligible && !eligible {
				continue
			}
			score = judged
		}
		var dot float64
		for i := range n.vector {
			dot += float64(n.vector[i]) * float64(s.Vector[i])
		}
		fit[id] = dot * score
	}
	if found.Gate != want {
		return fmt.Errorf("gate %+v, want %+v", found.Gate, want)
	}
	if len(found.Results) != min(s.K, len(fit)) {
		return fmt.Errorf("%d rows of %d that fit, k %d", len(found.Results), len(fit), s.K)
	}
	seen := map[string]bool{}
	for i := range found.Results {
		h := &found.Results[i]
		score, fits := fit[h.ID]
		if !fits || seen[h.ID] {
			return fmt.Errorf("%s is returned, and does not fit or is there twice", h.ID)
		}
		seen[h.ID] = true
		var back nurse
		if err := json.Unmarshal(h.Payload, &back); err != nil || !equalOr(back.Pay, w.nurses[h.ID].Pay) || h.Version != w.nurses[h.ID].version {
			return fmt.Errorf("%s is %s in version %s, want %s", h.ID, h.Payload, h.Version, w.nurses[h.ID].version)
		}
		if math.Abs(score-h.Score) > 3e-6 {
			return fmt.Errorf("%s scores %v, want %v", h.ID, h.Score, score)
		}
		if i > 0 && (h.Score > found.Results[i-1].Score || h.Score == found.Results[i-1].Score && h.ID < found.Results[i-1].ID) {
			return fmt.Errorf("rows %d and %d are out of order", i-1, i)
		}
	}
	if s.Exact && s.Ruleset == "" {
		return w.best(found, fit)
	}
	return nil
}

func equalOr[T comparable](a, b *T) bool { return a == nil && b == nil || a != nil && equals(b, *a) }

// best wants nothing better to be left out.
func (w *nurseWorld) best(found *millrace.Found, fit map[string]float64) error {
	if len(found.Results) == 0 {
		return nil
	}
	least, better := found.Results[len(found.Results)-1].Score, 0
	for _, score := range fit {
		if score > least+1e-5 {
			better++
		}
	}
	if better >= len(found.Results) {
		return fmt.Errorf("%d rows are better than the last of %d", better, len(found.Results))
	}
	return nil
}

// narrower repeats a search with one more condition: what remains keeps its order and score.
func (w *nurseWorld) narrower(ctx context.Context, s millrace.Search, found *millrace.Found) error {
	switch {
	case s.Gate.Filter == "":
		s.Gate.Filter = wishes[w.r.IntN(len(wishes))].filter
	case s.Gate.Client == "":
		s.Gate.Client = nurseClients[w.r.IntN(3)]
	default:
		for range 100 {
			s.Gate.IDsNotIn = append(s.Gate.IDsNotIn, w.id())
		}
	}
	again, err := w.door().Search(ctx, s)
	if err != nil {
		return err
	}
	place, last := map[string]int{}, -1
	for i := range again.Results {
		place[again.Results[i].ID] = i
	}
	for i := range found.Results {
		h := &found.Results[i]
		at, still := place[h.ID]
		if !still {
			continue
		}
		if at < last || again.Results[at].Score != h.Score || again.Results[at].Dense != h.Dense {
			return fmt.Errorf("with one more condition %s is at %d with %v, and was at %d with %v", h.ID, at, again.Results[at].Score, i, h.Score)
		}
		last = at
	}
	return nil
}
