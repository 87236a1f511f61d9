package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// The collection and ruleset of the bench, and the points of one request that stores them.
const (
	// searchCollection holds the workers.
	searchCollection = "workers"
	// searchRuleset is the ruleset by which answers are judged.
	searchRuleset = "staffing"
	// upsertBatch is the number of points of one request.
	upsertBatch = 100
)

// SearchRoute is the route of searches.
const SearchRoute = "/v1/matrix/search"

// searchDoor is a server's search by REST, as a client with a token uses it.
type searchDoor struct {
	// base is the server's address, and query names the namespace; empty: that of the token.
	base, token, query string
	// http is the client of all its requests.
	http *http.Client
}

// newSearchDoor returns a door; an empty namespace is that of the token.
func newSearchDoor(base, token, namespace string) *searchDoor {
	d := &searchDoor{base: strings.TrimSuffix(base, "/"), token: token, http: &http.Client{Timeout: time.Minute}}
	if namespace != "" {
		d.query = "?ns=" + url.QueryEscape(namespace)
	}
	return d
}

// do sends one request that prepares or checks, and reads its answer into out; nil: it is not
// needed. Searches that are timed go over an httpLine.
func (d *searchDoor) do(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path+d.query, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or the connection is given up
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return &refusedError{resp.StatusCode, string(b[:min(len(b), 1000)])}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// PrepareSearch makes the collection, its ruleset and its workers in a namespace of a server. With
// drop it removes an older collection first. It returns how many points were stored, and how long
// that took, also with an error.
func PrepareSearch(ctx context.Context, base, token, namespace string, d *SearchData, drop bool) (points int, took time.Duration, err error) {
	door := newSearchDoor(base, token, namespace)
	if drop {
		if err := door.do(ctx, http.MethodDelete, "/v1/collections/"+searchCollection, nil, nil); err != nil {
			return 0, 0, fmt.Errorf("drop the collection: %w", err)
		}
	}
	if err := door.do(ctx, http.MethodPut, "/v1/collections/"+searchCollection, SearchCollection(), nil); err != nil {
		return 0, 0, fmt.Errorf("make the collection: %w", err)
	}
	if err := door.do(ctx, http.MethodPut, "/v1/rulesets/"+searchRuleset, SearchRules(searchCollection), nil); err != nil {
		return 0, 0, fmt.Errorf("publish the ruleset: %w", err)
	}
	began := time.Now()
	for from := 0; from < len(d.Workers); from += upsertBatch {
		batch := d.Workers[from:min(from+upsertBatch, len(d.Workers))]
		// list are the points of one request, with their payloads as JSON.
		list := make([]map[string]any, len(batch))
		for i := range batch {
			list[i] = map[string]any{"id": batch[i].ID, "payload": &batch[i]}
		}
		var out struct {
			Results []struct{ Error json.RawMessage }
		}
		if err := door.do(ctx, http.MethodPost, "/v1/collections/"+searchCollection+"/points:upsert", mustJSON(map[string]any{"points": list}), &out); err != nil {
			return points, time.Since(began), fmt.Errorf("store workers: %w", err)
		}
		for i := range out.Results {
			// One point of a batch can fail alone; the first failure ends the preparation.
			if e := out.Results[i].Error; e != nil {
				return points, time.Since(began), fmt.Errorf("store worker %s: %s", batch[i].ID, e)
			}
			points++
		}
	}
	return points, time.Since(began), nil
}

// SearchBodiesOn prepares a server as PrepareSearch does, and returns bodies of gated and judged searches on it.
func SearchBodiesOn(ctx context.Context, base, token string, d *SearchData) ([][]byte, error) {
	if _, _, err := PrepareSearch(ctx, base, token, "", d, false); err != nil {
		return nil, err
	}
	queries := d.Queries(SearchBodies{Collection: searchCollection, Ruleset: searchRuleset, Gated: true})
	out := make([][]byte, len(queries))
	for i, q := range queries {
		out[i] = q.Body
	}
	return out, nil
}

// searchRun is one run of a suite of searches. Each goroutine that posts has a line of its own.
type searchRun struct {
	rig *bench.Rig
	// door prepares and checks, on connections of its own.
	door *searchDoor
	// data is what the server was given, made from the seed of the run.
	data *SearchData
	// bodies are searches, sent in turn.
	bodies [][]byte
	// embeds are requests to embed the same texts.
	embeds [][]byte
	// lines are the connections of the pumps, one for each.
	lines []*httpLine
	// next counts the bodies that were sent.
	next atomic.Uint64
	// orders has the order that each body was made from, in the same order.
	orders []*SearchOrder
	// sheds says that arrivals do not wait for answers, so that a server may send some away.
	sheds bool
	// shed counts those that it sent away in the window.
	shed atomic.Uint64
}

// newSearchRun prepares the server and makes the bodies, gated or not, and as many lines as are asked for.
func newSearchRun(ctx context.Context, rig *bench.Rig, gated bool, lines int) (*searchRun, error) {
	if rig.Servers[0].HTTP == "" {
		return nil, errors.New("the server has no REST door")
	}
	r := &searchRun{rig: rig, data: NewSearchData(SearchDataOptions{Seed: rig.Seed})}
	r.door = newSearchDoor(rig.Servers[0].HTTP, rig.Token, rig.Namespace)
	if _, _, err := PrepareSearch(ctx, rig.Servers[0].HTTP, rig.Token, rig.Namespace, r.data, false); err != nil {
		return nil, err
	}
	queries := r.data.Queries(SearchBodies{Collection: searchCollection, Ruleset: searchRuleset, Gated: gated})
	for _, q := range queries {
		r.bodies = append(r.bodies, q.Body)
		r.orders = append(r.orders, &r.data.Orders[q.Order])
	}
	r.embeds = EmbedBodies(queries)
	r.lines = make([]*httpLine, lines)
	for i := range r.lines {
		var err error
		if r.lines[i], err = newHTTPLine(rig.Servers[0].HTTP, rig.Token); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// close closes the lines.
func (r *searchRun) close() {
	for _, l := range r.lines {
		l.close()
	}
}

// post sends the next body of a list over a line, and records what came of it. A refusal by an
// overloaded server is counted apart where the run allows it.
func (r *searchRun) post(ctx context.Context, line int, op *bench.Op, intended time.Time, path string, bodies [][]byte) {
	// The bodies go round over all lines, so that each is sent about equally often.
	body := bodies[r.next.Add(1)%uint64(len(bodies))]
	status, err := r.lines[line].post(ctx, path+r.door.query, body)
	if err == nil && status != http.StatusOK {
		if r.sheds && r.lines[line].overloaded(status) {
			if r.rig.Measuring() {
				r.shed.Add(1)
			}
			return
		}
		err = &refusedError{status, string(r.lines[line].body[:min(len(r.lines[line].body), 500)])}
	}
	op.Record(line, intended, 1, err)
}

// SearchSweep posts searches by a number of clients. Rows whose names begin with ungated search
// without a gate.
func SearchSweep(ctx context.Context, rig *bench.Rig) error {
	n := max(rig.Concurrency, rig.Shape.Loops(), rig.Shape.Pumps)
	if rig.Rate > 0 { // each call under way has a line of its own
		n = max(n, rig.InFlight)
	}
	r, err := newSearchRun(ctx, rig, !strings.HasPrefix(rig.Row, "ungated"), n)
	if err != nil {
		return err
	}
	defer r.close()
	return r.search(ctx, n, r.bodies)
}

// SearchMixed posts searches and texts to embed: clients with an even number search, the others embed.
func SearchMixed(ctx context.Context, rig *bench.Rig) error {
	n := max(rig.Concurrency, rig.Shape.Pumps)
	if rig.Rate > 0 {
		n = max(n, rig.InFlight)
	}
	r, err := newSearchRun(ctx, rig, true, n)
	if err != nil {
		return err
	}
	defer r.close()
	search, embed := rig.Op("search"), rig.Op("embed")
	done := rig.Generate(ctx, n, func(ctx context.Context, p *bench.Pump) {
		line := p.Number % len(r.lines)
		if line%2 == 0 {
			r.post(ctx, line, search, p.Intended, SearchRoute, r.bodies)
		} else {
			r.post(ctx, line, embed, p.Intended, "/v1/embed", r.embeds)
		}
	})
	err = rig.Measure(ctx)
	<-done
	if err != nil {
		return err
	}
	return r.finish(ctx, search)
}

// finish compares answers with exact ones after the window: no rate is printed without its recall,
// nor with a gate that was broken.
func (r *searchRun) finish(ctx context.Context, _ *bench.Op) error {
	q, err := r.check(ctx, r.bodies)
	if err != nil {
		return err
	}
	q.report(r.rig)
	if after, ok := r.cache(ctx); ok && after.hits+after.misses > 0 {
		r.rig.Metric("embed_hit_rate", after.hits/(after.hits+after.misses), "share")
	}
	return nil
}

// searchAnswer is what the bench reads of an answer to a search.
type searchAnswer struct {
	// Results are the rows, best first.
	Results []struct {
		ID      string
		Score   float64
		Payload SearchWorker
	}
	// Passed is the number of rows that the gate let through.
	Gate struct{ Passed int }
	// Judged is the number of rows that the rules were applied to.
	Judge struct{ Judged float64 }
	// Took is how long the judge took by the server's clock, in microseconds.
	Took struct{ Judge float64 } `json:"took_us"`
	// Plan names how the server found the rows.
	Plan string
}

// searchQuality is how good the answers to a list of bodies are.
type searchQuality struct {
	// recall is the share of the ten best exact answers that were found.
	recall float64
	// gain is the mean nDCG at 10, by what the orders ask for. 1 is the best order that the workers allow.
	gain float64
	// violations counts rows that the gate excludes.
	violations int
	// plans counts the bodies by the plan that their answer names.
	plans map[string]int
}

// report sets the metrics, and fails the run for a broken gate.
func (q *searchQuality) report(rig *bench.Rig) {
	rig.Metric("recall_at_10", q.recall, "share")
	rig.Metric("ndcg_at_10", q.gain, "share")
	rig.Metric("gate_violations", float64(q.violations), "rows")
	bodies := 0
	for _, n := range q.plans {
		bodies += n
	}
	for plan, n := range q.plans {
		rig.Metric("plan_"+strings.ReplaceAll(plan, "+", "_")+"_share", float64(n)/float64(bodies), "share")
	}
	if q.violations > 0 {
		rig.Fail("search", fmt.Errorf("%d rows were returned that the gate excludes", q.violations))
	}
}

// check searches each body as it is and as exact, and judges the gate of each row by itself, as the
// orders are known.
func (r *searchRun) check(ctx context.Context, bodies [][]byte) (searchQuality, error) {
	return r.door.check(ctx, SearchRoute, bodies, func(i int, a *searchAnswer) float64 { return r.data.gainOf(r.orders[i], a) })
}

// check does the same with any bodies. gain says how good an answer to the i-th one is; nil: that
// is not known.
func (d *searchDoor) check(ctx context.Context, path string, bodies [][]byte, gain func(i int, a *searchAnswer) float64) (q searchQuality, err error) {
	// found and wanted count rows over all bodies.
	found, wanted := 0, 0
	q.plans = make(map[string]int)
	for i, body := range bodies {
		var got, want searchAnswer
		if err := d.do(ctx, http.MethodPost, path, body, &got); err != nil {
			return q, err
		}
		if gain != nil {
			q.gain += gain(i, &got) / float64(len(bodies))
		}
		q.plans[got.Plan]++
		// The same body with exact set gives the true answer, since it looks at every row.
		exact := append(bytes.TrimSuffix(bytes.Clone(body), []byte("}")), `,"exact":true}`...)
		if err := d.do(ctx, http.MethodPost, path, exact, &want); err != nil {
			return q, err
		}
		in := make(map[string]bool)
		for _, h := range want.Results {
			in[h.ID] = true
		}
		wanted += len(want.Results)
		for _, h := range got.Results {
			if in[h.ID] {
				found++
			}
			if gateBroken(body, &h.Payload) {
				q.violations++
			}
		}
	}
	if q.recall = 1; wanted > 0 {
		q.recall = float64(found) / float64(wanted)
	}
	return q, nil
}

// gainOf is the nDCG at 10 of an answer: the sum of 2^relevance − 1 by the logarithm of the rank,
// as a share of the best order of all workers. Source: Järvelin and Kekäläinen 2002.
func (d *SearchData) gainOf(o *SearchOrder, a *searchAnswer) float64 {
	// counts are the workers by relevance, for the best order that there can be.
	var counts [4]int
	for i := range d.Workers {
		counts[d.Relevance(o, &d.Workers[i])]++
	}
	var got, best float64
	for rank := range 10 {
		discount := 1 / math.Log2(float64(rank+2))
		if rank < len(a.Results) {
			got += (math.Exp2(float64(d.Relevance(o, &a.Results[rank].Payload))) - 1) * discount
		}
		// The best worker that is left takes the next rank.
		for relevance := 3; relevance > 0; relevance-- {
			if counts[relevance] > 0 {
				counts[relevance]--
				best += (math.Exp2(float64(relevance)) - 1) * discount
				break
			}
		}
	}
	// Without a relevant worker no order is better than another.
	if best == 0 {
		return 1
	}
	return got / best
}

// gateBroken judges a returned row by the gate of its body, without the server's help. A body that
// cannot be read has no gate.
func gateBroken(body []byte, w *SearchWorker) bool {
	var doc searchBody
	if json.Unmarshal(body, &doc) != nil || doc.Gate == nil {
		return false
	}
	g := doc.Gate
	if len(g.Roles) > 0 && w.Role != g.Roles[0] {
		return true
	}
	for _, c := range w.Blocked {
		if c == g.Client {
			return true
		}
	}
	// A gate without a time has no condition on certificates.
	at, err := time.Parse(time.RFC3339, g.ValidAt)
	if err != nil {
		return false
	}
	for _, need := range g.Credentials {
		holds := false
		for _, c := range w.Certs {
			end, err := time.Parse(time.RFC3339, c.Expires)
			holds = holds || c.ID == need && (c.Expires == "" || err == nil && end.After(at))
		}
		if !holds {
			return true
		}
	}
	return g.Filter != "" && strings.Contains(g.Filter, "status == 'available'") && w.Status != "available"
}

// SearchRecall measures recall under a filter that lets a share of the rows through. The row's kind
// names the share in percent.
func SearchRecall(ctx context.Context, rig *bench.Rig) error {
	r, err := newSearchRun(ctx, rig, false, 1)
	if err != nil {
		return err
	}
	defer r.close()
	share, err := strconv.Atoi(strings.TrimPrefix(rig.Shape.Kind, "filter-"))
	if err != nil {
		return fmt.Errorf("row %s: %w", rig.Row, err)
	}
	bodies := make([][]byte, len(r.bodies))
	for i, b := range r.bodies {
		bodies[i] = b
		if share < 100 { // ids are numbered, so their ends let a share of them through
			var ids []string
			for j, w := range r.data.Workers {
				if j%100 < share {
					ids = append(ids, w.ID)
				}
			}
			bodies[i] = append(bytes.TrimSuffix(bytes.Clone(b), []byte("}")), `,"gate":{"ids_in":`+string(mustJSON(ids))+`}}`...)
		}
	}
	search := rig.Op("search")
	var wait sync.WaitGroup
	// fault is that of the check, read after the wait.
	var fault error
	wait.Go(func() {
		<-rig.Began()
		began := time.Now()
		q, err := r.check(ctx, bodies)
		search.Record(0, began, 1, err)
		fault = err
		q.report(rig)
	})
	err = rig.Measure(ctx)
	wait.Wait()
	return errors.Join(err, fault)
}
