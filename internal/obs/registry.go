// Package obs turns the counters that other packages keep into metrics. It is the one place that knows Prometheus.
//
// A package counts for itself, in a plain struct that it hands out. Code that does the work does not call this package,
// except for a Histogram, which is a few atomic additions. The code that wires a process gives a Registry one table of rows
// for each such struct. It is read when the metrics are requested and at no other time: no goroutine, no timer.
//
// Promised: names follow one form, and a metric has no more series than its row allows, whatever labels come. Labels
// are the product's own words and numbers of shards. What users name (tenants, namespaces, queues, keys) is not a
// label: it has no bound, and these figures are served to every client that reaches the port. Only names of keyspaces are
// labels, when an operator asks for it.
package obs

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metric is one row of a table over the counters S: a name, and where its value is. One of Value, Values and Spread is
// set.
type Metric[S any] struct {
	Name string // millrace_<package>_<noun>_<unit>; one that ends in _total only grows
	Help string // a sentence without its full stop
	// Value reads a metric without labels.
	Value func(S) float64
	// Values reads one with labels: it calls put once for each set of label values, in the order of Labels.
	Values func(s S, put func(v float64, labels ...string))
	Labels []string
	Bound  int // sets of label values that get a series; what comes beyond them is added up under the value "other"
	// Spread reads a histogram.
	Spread func(S) Distribution
}

// Row tells about one metric, for a reference.
type Row struct {
	Name, Help string
	Type       string // counter, gauge or histogram
	Labels     []string
	Bound      int // most series
}

// Other is the label value of what is beyond a metric's bound.
const Other = "other"

// maxBound bounds the series of one metric: a scrape stays small.
const maxBound = 2000

// units are how names may end: what the figure counts, or what it is measured in.
var units = []string{
	"bytes", "calls", "claims", "collections", "commits", "connections", "deliveries", "descriptors", "entries", "index", "info",
	"layers", "limit", "members", "namespaces", "packs", "points", "proposals", "queues", "refs", "rows", "seconds",
	"segments", "sessions", "shards", "state", "streams", "sublevels", "tasks", "term", "tokens", "total", "waits",
}

// nameForm is the form of a metric's name before its unit is checked.
var nameForm = regexp.MustCompile(`^millrace_[a-z]+(_[a-z][a-z0-9]*)+$`)

// Registry holds the tables of one process.
type Registry struct {
	registry *prometheus.Registry
	rows     []Row
}

// NewRegistry makes a registry that knows the figures of the Go runtime and of the process, and no others.
func NewRegistry() *Registry {
	r := &Registry{registry: prometheus.NewRegistry()}
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Add puts a table into r. read is called for each scrape, once; while it reports false the table has no values. A name
// against the rules, or one that r has already, is an error.
func Add[S any](r *Registry, read func() (S, bool), table []Metric[S]) error {
	c := &collector[S]{read: read, known: make([]map[string]bool, len(table))}
	var all []error
	for i := range table {
		m := &table[i]
		row, err := m.row()
		if slices.ContainsFunc(r.rows, func(have Row) bool { return have.Name == row.Name }) {
			err = errors.Join(err, fmt.Errorf("metric %s is there twice", m.Name))
		}
		all = append(all, err)
		r.rows = append(r.rows, row)
		c.rows = append(c.rows, *m)
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help+".", m.Labels, nil))
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	return r.registry.Register(c)
}

// row checks a metric's rules.
func (m *Metric[S]) row() (Row, error) {
	row := Row{Name: m.Name, Help: m.Help, Type: "gauge", Labels: m.Labels, Bound: 1}
	readers := 0
	for _, set := range []bool{m.Value != nil, m.Values != nil, m.Spread != nil} {
		if set {
			readers++
		}
	}
	last := m.Name[strings.LastIndexByte(m.Name, '_')+1:]
	if last == "total" {
		row.Type = "counter"
	}
	if m.Spread != nil {
		row.Type = "histogram"
	}
	if m.Values != nil {
		row.Bound = m.Bound
	}
	switch {
	case !nameForm.MatchString(m.Name) || !slices.Contains(units, last):
		return row, fmt.Errorf("metric %q is not named millrace_<package>_<noun>_<unit>", m.Name)
	case m.Help == "" || strings.HasSuffix(m.Help, "."):
		return row, fmt.Errorf("metric %s: help %q must be a sentence without its full stop", m.Name, m.Help)
	case readers != 1 || m.Spread != nil && last == "total":
		return row, fmt.Errorf("metric %s has to have one reader, for its type", m.Name)
	case (m.Values != nil) != (len(m.Labels) > 0) || row.Bound < 1 || row.Bound > maxBound:
		return row, fmt.Errorf("metric %s: labels and a bound of 1 to %d belong to Values", m.Name, maxBound)
	}
	return row, nil
}

// Rows lists what was added, by name.
func (r *Registry) Rows() []Row {
	return slices.SortedFunc(slices.Values(r.rows), func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
}

// scrapes bounds how many are served at once: each reads every counter.
const scrapes = 4

// Handler serves the metrics as text.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
}

// collector reads one table.
type collector[S any] struct {
	read  func() (S, bool)
	rows  []Metric[S]
	descs []*prometheus.Desc

	mu    sync.Mutex        // guards known
	known []map[string]bool // of each row: the sets of label values that have a series, from then on
}

// Describe implements prometheus.Collector.
func (c *collector[S]) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector[S]) Collect(out chan<- prometheus.Metric) {
	s, ok := c.read()
	if !ok {
		return
	}
	for i := range c.rows {
		m, d := &c.rows[i], c.descs[i]
		switch {
		case m.Spread != nil:
			out <- m.Spread(s).metric(d)
		case m.Value != nil:
			out <- constant(d, m.valueType(), m.Value(s))
		default:
			c.collectLabelled(i, s, out)
		}
	}
}

// valueType returns counter for a name that ends in _total, else gauge.
func (m *Metric[S]) valueType() prometheus.ValueType {
	if strings.HasSuffix(m.Name, "_total") {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// collectLabelled adds up what has the same labels: Prometheus takes no series twice.
func (c *collector[S]) collectLabelled(i int, s S, out chan<- prometheus.Metric) {
	m, d := &c.rows[i], c.descs[i]
	sums := make(map[string]float64)
	labels := make(map[string][]string)
	var order []string
	c.mu.Lock()
	m.Values(s, func(v float64, values ...string) {
		for i := range values {
			values[i] = strings.ToValidUTF8(values[i], "�")
		}
		key := strings.Join(values, "\x00")
		if !c.admit(i, key) {
			values = slices.Repeat([]string{Other}, len(m.Labels))
			key = strings.Join(values, "\x00")
		}
		if labels[key] == nil {
			labels[key] = values
			order = append(order, key)
		}
		sums[key] += v
	})
	c.mu.Unlock()
	for _, key := range order {
		out <- constant(d, m.valueType(), sums[key], labels[key]...)
	}
}

// admit says whether a set of label values has a series of its own. One of the bound is kept for the others. c.mu is
// held.
func (c *collector[S]) admit(i int, key string) bool {
	if c.known[i] == nil {
		c.known[i] = make(map[string]bool)
	}
	if !c.known[i][key] && len(c.known[i]) < c.rows[i].Bound-1 {
		c.known[i][key] = true
	}
	return c.known[i][key]
}

// constant makes a sample. An error appears as an invalid metric, which fails the scrape with the
// reason.
func constant(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}
