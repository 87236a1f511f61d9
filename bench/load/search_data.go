package load

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// SearchData is a made-up staffing pool: workers, job orders, and queries whose best answers are known from the orders.
// Equal options give equal data, byte for byte. All people in it are made up.
type SearchData struct {
	// Options are those that the data was made with, with their defaults.
	Options SearchDataOptions
	// Workers are numbered from 0, and their ids are made of the number.
	Workers []SearchWorker
	// Orders are what queries are made from.
	Orders []SearchOrder
}

// SearchDataOptions say how much data there is. A zero field means its default.
type SearchDataOptions struct {
	Seed    uint64 // default 1
	Workers int    // default 5,000
	// Orders is the number of job orders; each gives a query per style. Default 50.
	Orders int
	// Now is the time around which certificates and visits are dated. It is fixed by default, so
	// that data does not change from day to day.
	Now time.Time
}

// withDefaults returns the options with every field set.
func (o SearchDataOptions) withDefaults() SearchDataOptions {
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Workers == 0 {
		o.Workers = 5000
	}
	if o.Orders == 0 {
		o.Orders = 50
	}
	if o.Now.IsZero() {
		o.Now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	}
	return o
}

// SearchWorker is one point: its id and the fields of its payload.
type SearchWorker struct {
	ID string `json:"-"`

	// Role is a trade and a kind of work with a point between.
	Role string `json:"role"`
	// Family is the part of the role before its point.
	Family string `json:"family"`
	// Years is the experience in years.
	Years int64 `json:"years"`
	// City is the town, and Home the place as latitude and longitude.
	City string     `json:"city"`
	Home [2]float64 `json:"home"`
	// Shift is the shift that the worker wants.
	Shift string `json:"shift"`
	// Pay is what the worker wants per hour.
	Pay float64 `json:"pay"`
	// Certs are the certificates, also those that have ended.
	Certs []SearchCredential `json:"certs"`
	// Reliability is from 0 to 1.
	Reliability float64 `json:"reliability"`
	// Blocked are the clients that do not take this worker.
	Blocked []string `json:"blocked"`
	// Status is available, assigned or away.
	Status string `json:"status"`
	// LastSeen is a time in RFC 3339.
	LastSeen string `json:"last_seen"`
	// Synthetic is always true: no person is described.
	Synthetic bool `json:"synthetic"`
	// Text is what is embedded and searched.
	Text string `json:"text"`
}

// SearchCredential is a certificate of a worker.
type SearchCredential struct {
	// ID is one of the certificates that trades have.
	ID string `json:"id"`
	// Expires is a time in RFC 3339; empty: it never ends.
	Expires string `json:"expires_at,omitempty"`
}

// SearchOrder is what a client asks for. It is known to the bench alone; the server sees its text.
type SearchOrder struct {
	// Role is what every worker of the order must have.
	Role string
	// Count is the number of workers that the client wants; only texts tell it.
	Count int
	// City is the town of the site, and Site its latitude and longitude.
	City string
	Site [2]float64
	// Shift is the shift of the work.
	Shift string
	// Cert is the certificate that is asked for; empty: none is.
	Cert string
	// Client is the company that orders.
	Client string
	// Years is the experience that is asked for, in years.
	Years int64
}

// NewSearchData makes the data.
func NewSearchData(o SearchDataOptions) *SearchData {
	o = o.withDefaults()
	d := &SearchData{Options: o}
	// The second number keeps this sequence apart from others with the same seed.
	r := rand.New(rand.NewPCG(o.Seed, 0x5ea4c4))
	for i := range o.Workers {
		d.Workers = append(d.Workers, newWorker(r, i, o.Now))
	}
	for range o.Orders {
		d.Orders = append(d.Orders, d.newOrder(r))
	}
	return d
}

// pick draws one element.
func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// newWorker draws worker i. The order of draws is part of the data: a change of it changes all that follows.
func newWorker(r *rand.Rand, i int, now time.Time) SearchWorker {
	trade := pick(r, searchTrades)
	role := pick(r, trade.roles)
	city := pick(r, searchCities)
	w := SearchWorker{
		ID: fmt.Sprintf("w%05d", i), Role: role.id, Family: trade.family, Years: int64(r.ExpFloat64()*6) + int64(r.IntN(2)),
		City: city.name, Home: near(r, city.at, 25), Shift: pick(r, searchShifts).id, Synthetic: true,
		Pay: math.Round((trade.pay+r.NormFloat64()*4)*4) / 4, Reliability: math.Round((1-r.Float64()*r.Float64()*0.6)*100) / 100,
		Status: []string{"available", "available", "available", "assigned", "away"}[r.IntN(5)], Blocked: []string{}, Certs: []SearchCredential{},
		LastSeen: now.Add(-time.Duration(r.ExpFloat64()*400) * time.Hour).Format(time.RFC3339),
	}
	// Draws have no bounds of their own, so they are cut to what people have.
	w.Years, w.Pay = min(w.Years, 40), max(w.Pay, 12)
	for _, c := range trade.certs {
		if r.IntN(100) < 45 {
			w.Certs = append(w.Certs, newCredential(r, c, now))
		}
	}
	// One in three also has a certificate that any trade may have.
	if r.IntN(3) == 0 {
		w.Certs = append(w.Certs, newCredential(r, pick(r, searchGeneralCerts), now))
	}
	for _, c := range searchClients {
		if r.IntN(40) == 0 {
			w.Blocked = append(w.Blocked, c)
		}
	}
	w.Text = w.describe(r, role)
	return w
}

// newCredential draws a certificate. One in five never ends; of the others one in eight has ended already.
func newCredential(r *rand.Rand, id string, now time.Time) SearchCredential {
	c := SearchCredential{ID: id}
	if r.IntN(5) > 0 {
		days := r.IntN(700)
		if r.IntN(8) == 0 {
			days = -r.IntN(300)
		}
		c.Expires = now.AddDate(0, 0, days).Format(time.RFC3339)
	}
	return c
}

// near draws a place some kilometres from another, rounded to about 10 m.
func near(r *rand.Rand, at [2]float64, km float64) [2]float64 {
	// perDegree is the length of a degree of latitude in kilometres.
	const perDegree = 111.2
	round := func(x float64) float64 { return math.Round(x*1e4) / 1e4 }
	north, east := r.NormFloat64()*km/2, r.NormFloat64()*km/2
	return [2]float64{round(at[0] + north/perDegree), round(at[1] + east/(perDegree*math.Cos(at[0]*math.Pi/180)))}
}

// describe writes the text of a worker, which searches find it by.
func (w *SearchWorker) describe(r *rand.Rand, role searchRole) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s with %d years of experience in %s, %s. ", role.names[0], w.Years, pick(r, searchFields[w.Family]), w.City)
	fmt.Fprintf(&b, "%s. ", pick(r, role.skills))
	if len(w.Certs) > 0 {
		names := make([]string, len(w.Certs))
		for i, c := range w.Certs {
			names[i] = searchCertNames[c.ID]
		}
		fmt.Fprintf(&b, "Holds %s. ", strings.Join(names, ", "))
	}
	for _, s := range searchShifts {
		if s.id == w.Shift {
			fmt.Fprintf(&b, "Prefers %s. ", s.names[0])
		}
	}
	b.WriteString(pick(r, searchTraits))
	return b.String()
}

// newOrder draws an order.
func (d *SearchData) newOrder(r *rand.Rand) SearchOrder {
	trade := pick(r, searchTrades)
	city := pick(r, searchCities)
	o := SearchOrder{
		Role: pick(r, trade.roles).id, Count: 1 + r.IntN(6), City: city.name, Site: near(r, city.at, 10),
		Shift: pick(r, searchShifts).id, Client: pick(r, searchClients), Years: int64(r.IntN(4)),
	}
	// One order in three asks for no certificate.
	if r.IntN(3) > 0 {
		o.Cert = pick(r, trade.certs)
	}
	return o
}

// Relevance of a worker to an order, from 0 to 3, by their fields alone: 1 for the family, 2 for the role with
// the certificate that is asked for, 3 if shift, distance and years fit as well. A worker who may not be sent
// has 0. No text takes part, so that it judges what the search made of the text.
func (d *SearchData) Relevance(o *SearchOrder, w *SearchWorker) int {
	family, _, _ := strings.Cut(o.Role, ".")
	switch {
	case w.Family != family || w.Status != "available" || slices.Contains(w.Blocked, o.Client):
		return 0
	case w.Role != o.Role || o.Cert != "" && !d.holds(w, o.Cert):
		return 1
	case w.Shift != o.Shift || kilometres(w.Home, o.Site) > searchRadius || w.Years < o.Years:
		return 2
	}
	return 3
}

// searchRadius is how far, in kilometres, a worker of an order may live.
const searchRadius = 60

// holds reports whether a worker has a certificate that has not ended.
func (d *SearchData) holds(w *SearchWorker, cert string) bool {
	for _, c := range w.Certs {
		if c.ID != cert {
			continue
		}
		if c.Expires == "" {
			return true
		}
		if t, err := time.Parse(time.RFC3339, c.Expires); err == nil && t.After(d.Options.Now) {
			return true
		}
	}
	return false
}

// kilometres is the distance of two places, near enough for places of one region.
func kilometres(a, b [2]float64) float64 {
	const perDegree = 111.2
	// East and west are shorter away from the equator, by the cosine of the latitude.
	x := (a[1] - b[1]) * math.Cos((a[0]+b[0])/2*math.Pi/180)
	return perDegree * math.Hypot(a[0]-b[0], x)
}

// Payload returns a worker's payload as JSON.
func (w *SearchWorker) Payload() []byte { return mustJSON(w) }

// mustJSON writes a value of this package as JSON. No input can make it fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of this package that JSON cannot write
	}
	return b
}
