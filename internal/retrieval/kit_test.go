package retrieval

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/vector"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

const testDim = 24

var testFields = []core.SchemaField{
	{Name: "role", Type: core.FieldKeyword, Index: true, Gate: core.GateRole},
	{Name: "also", Type: core.FieldKeywords, Index: true, Gate: core.GateRole},
	{Name: "certs", Type: core.FieldCredential, Index: true, Gate: core.GateCredential},
	{Name: "blocked", Type: core.FieldKeywords, Gate: core.GateBlock},
	{Name: "status", Type: core.FieldKeyword, Index: true},
	{Name: "shifts", Type: core.FieldKeywords, Index: true},
	{Name: "years", Type: core.FieldInt, Index: true},
	{Name: "pay", Type: core.FieldFloat, Index: true},
	{Name: "night", Type: core.FieldBool, Index: true},
	{Name: "last_seen", Type: core.FieldTime, Index: true},
	{Name: "home", Type: core.FieldGeo, Index: true},
	{Name: "bio", Type: core.FieldText},
	{Name: "age", Type: core.FieldInt, Index: true, Protected: true},
}

func newTestIndex(t testing.TB, kernel *vector.Kernel) *Index {
	t.Helper()
	x, err := NewIndex(&core.Collection{Name: "workers", Dim: testDim, Fields: testFields}, kernel)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// person is a point as the oracle knows it. Nil pointers are fields that it does not have.
type person struct {
	ID       string
	Version  uint64
	vector   []float32
	bytes    []byte          // the payload
	at       time.Time       // of LastSeen
	valid    map[string]bool // credentials that are held beyond noon
	Role     *string         `json:"role,omitempty"`
	Also     []string        `json:"also,omitempty"`
	Certs    []cert          `json:"certs,omitempty"`
	Blocked  []string        `json:"blocked,omitempty"`
	Status   *string         `json:"status,omitempty"`
	Shifts   *[]string       `json:"shifts,omitempty"`
	Years    *int64          `json:"years,omitempty"`
	Pay      *float64        `json:"pay,omitempty"`
	Night    *bool           `json:"night,omitempty"`
	LastSeen *string         `json:"last_seen,omitempty"`
	Home     []float64       `json:"home,omitempty"`
}

type cert struct {
	ID      string  `json:"id"`
	Expires *string `json:"expires_at,omitempty"`
}

var (
	roleNames   = []string{"welder.mig", "welder.tig", "nurse.icu", "driver.cdl", "picker"}
	certNames   = []string{"aws_d1.1", "osha10", "rn"}
	clientNames = []string{"acme", "bolt", "core"}
	statusNames = []string{"available", "busy", "away"}
	shiftNames  = []string{"day", "swing", "night"}
)

func oneOf[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func maybe[T any](r *rand.Rand, v T) *T {
	if r.IntN(4) == 0 {
		return nil
	}
	return &v
}

func someOf(r *rand.Rand, from []string, odds int) []string {
	out := []string{}
	for _, s := range from {
		if r.IntN(odds) == 0 {
			out = append(out, s)
		}
	}
	return out
}

// hours is a time by hours from noon, at which searches are.
func hours(n int) string { return noon.Add(time.Duration(n) * time.Hour).Format(time.RFC3339) }

func randomVector(r *rand.Rand) []float32 {
	v := make([]float32, testDim)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	vector.Normalize(v)
	return v
}

func randomPerson(r *rand.Rand, id string, version uint64) *person {
	p := &person{
		ID: id, Version: version, vector: randomVector(r), Role: maybe(r, oneOf(r, roleNames)), Also: someOf(r, roleNames, 8),
		Blocked: someOf(r, clientNames, 4), Status: maybe(r, oneOf(r, statusNames)), Years: maybe(r, int64(r.IntN(12))),
		Pay: maybe(r, float64(r.IntN(400))/10), Night: maybe(r, r.IntN(2) == 0), LastSeen: maybe(r, hours(-r.IntN(3000))),
	}
	if s := someOf(r, shiftNames, 2); r.IntN(4) > 0 {
		p.Shifts = &s
	}
	if r.IntN(4) > 0 {
		p.Home = []float64{41 + r.Float64(), -88 - r.Float64()}
	}
	for _, c := range certNames {
		for range r.IntN(3) {
			k := cert{ID: c}
			if r.IntN(2) == 0 {
				at := hours(r.IntN(7) - 3)
				k.Expires = &at
			}
			p.Certs = append(p.Certs, k)
		}
	}
	p.prepare()
	return p
}

// prepare computes once what searches look at often.
func (p *person) prepare() {
	when := func(s string) time.Time {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			panic(err)
		}
		return t
	}
	p.bytes, p.valid = p.payload(), make(map[string]bool)
	if p.LastSeen != nil {
		p.at = when(*p.LastSeen)
	}
	for _, c := range p.Certs {
		if c.Expires == nil || when(*c.Expires).After(noon) {
			p.valid[c.ID] = true
		}
	}
}

func (p *person) payload() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	var doc map[string]json.RawMessage
	_ = json.Unmarshal(b, &doc)
	delete(doc, "ID")
	delete(doc, "Version")
	b, _ = json.Marshal(doc)
	return b
}

func (p *person) change() Change {
	return Change{ID: p.ID, Version: p.Version, Vector: packed(p.vector), Payload: p.bytes}
}

func packed(v []float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// searches is how many random ones a test makes.
func searches(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_SEARCHES")); err == nil {
		return n
	}
	if testing.Short() {
		return 1000
	}
	return 10_000
}

func apply(t *testing.T, x *Index, changes ...Change) {
	t.Helper()
	if err := x.Apply(changes); err != nil {
		t.Fatal(err)
	}
}

func ruleset(t testing.TB, x *Index, list ...rules.Rule) *rules.Ruleset {
	t.Helper()
	rs, err := x.Schema().Rules().Ruleset(list)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s%05d", prefix, i) }
