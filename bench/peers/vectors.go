package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/load"
	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// nearest is the number of rows of an answer.
	nearest = 10
	// embedBatch is the number of texts of one call that embeds.
	embedBatch = 128
	// storeBatch is the number of points of one call that stores them.
	storeBatch = 100
	// collection is the collection of Millrace that holds the vectors.
	collection = "bench"
	// indexWithin is how long Millrace may take to bring all rows into its graph.
	indexWithin = 2 * time.Minute
)

// vectors are what both systems hold, and what is searched for: texts of the seeded data of searches, embedded by Millrace.
// All have length 1.
type vectors struct {
	// model is what embedded the texts. Millrace stores a vector and searches with one under its model's name.
	model string
	// rows are the vectors that are stored, by number, which is the row's id.
	rows [][]float32
	// queries are the vectors that are searched for.
	queries [][]float32
	// least is, for each query, its product with the last of the rows that an exact answer has.
	least []float32
}

// newVectors embeds the texts and finds the exact answers, by a product of each query with each row.
func newVectors(ctx context.Context, rig *bench.Rig) (*vectors, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to millrace: %w", err)
	}
	defer c.Close() //nolint:errcheck // it only asked
	data := load.NewSearchData(load.SearchDataOptions{Seed: rig.Seed, Workers: rig.Shape.Puts})
	d := &vectors{}
	texts := make([]string, len(data.Workers))
	for i := range data.Workers {
		texts[i] = data.Workers[i].Text
	}
	if d.rows, err = d.embed(ctx, c, texts); err != nil {
		return nil, err
	}
	texts = nil
	for _, q := range data.Queries(load.SearchBodies{}) {
		texts = append(texts, q.Text)
	}
	if d.queries, err = d.embed(ctx, c, texts); err != nil {
		return nil, err
	}
	for _, q := range d.queries {
		products := make([]float32, len(d.rows))
		for i, r := range d.rows {
			products[i] = dot(q, r)
		}
		slices.SortFunc(products, func(a, b float32) int { return cmp.Compare(b, a) })
		d.least = append(d.least, products[min(nearest, len(products))-1])
	}
	return d, nil
}

// embed turns texts into vectors of length 1, in order, and notes the model.
func (d *vectors) embed(ctx context.Context, c *millrace.Client, texts []string) (out [][]float32, err error) {
	for chunk := range slices.Chunk(texts, embedBatch) {
		list, model, err := c.Embed(ctx, "", chunk...)
		if err != nil {
			return nil, fmt.Errorf("embed texts: %w", err)
		}
		d.model = model
		for _, e := range list {
			out = append(out, unit(e.Vector))
		}
	}
	return out, nil
}

// dot is the inner product of two vectors of the same length.
func dot(a, b []float32) (sum float32) {
	b = b[:len(a)]
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// unit brings a vector to length 1, in place. One of length 0 stays as it is.
func unit(v []float32) []float32 {
	length := math.Sqrt(float64(dot(v, v)))
	if length == 0 {
		return v
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / length)
	}
	return v
}

// recall is the share of the rows of exact answers that answers have. Texts are alike: a row that is as near as the last of an
// exact answer is as good. Error: an answer is short, or has a row twice or one that is not there.
func (d *vectors) recall(ctx context.Context, search func(ctx context.Context, caller, query int) ([]int, error)) (float64, error) {
	// rounding is what two products of the same vectors may differ by, since both systems add up in another order.
	const rounding = 1e-5
	good := 0
	for i, q := range d.queries {
		ids, err := search(ctx, 0, i)
		if err != nil {
			return 0, err
		}
		seen := make(map[int]bool)
		for _, id := range ids {
			if id < 0 || id >= len(d.rows) || seen[id] {
				return 0, fmt.Errorf("the answer to query %d has row %d, which is not there or is there twice", i, id)
			}
			seen[id] = true
			if dot(q, d.rows[id]) >= d.least[i]-rounding {
				good++
			}
		}
		if len(ids) != nearest {
			return 0, fmt.Errorf("the answer to query %d has %d rows, and there are enough for %d", i, len(ids), nearest)
		}
	}
	return float64(good) / float64(nearest*len(d.queries)), nil
}

// ourVectors is Millrace: searches over HTTP, on a connection for each caller. It does not change after it was opened.
type ourVectors struct {
	// lines are the connections, by the caller's number.
	lines []*load.SearchLine
	// bodies are the requests, by the query's number. They are made once, so that the window measures no encoding of
	// them.
	bodies [][]byte
}

// openVectors stores the vectors in Millrace, and opens its connections. A walk over its graph keeps ef rows in sight, as the
// peer's does: the recall of both is about the same.
func openVectors(ctx context.Context, rig *bench.Rig, d *vectors, ef int) (*ourVectors, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to millrace: %w", err)
	}
	defer c.Close() //nolint:errcheck // what it was asked for was answered
	points := c.Collection(collection)
	if _, err := points.Create(ctx, millrace.CollectionConfig{}); err != nil {
		return nil, fmt.Errorf("make the collection: %w", err)
	}
	batch := make([]millrace.Point, 0, storeBatch)
	for i, v := range d.rows {
		batch = append(batch, millrace.Point{ID: strconv.Itoa(i), Vector: v, Model: d.model})
		if len(batch) < storeBatch && i < len(d.rows)-1 {
			continue
		}
		if _, err := points.UpsertAll(ctx, batch...); err != nil {
			return nil, fmt.Errorf("store vectors: %w", err)
		}
		batch = batch[:0]
	}
	if err := indexed(ctx, points); err != nil {
		return nil, err
	}
	m := &ourVectors{}
	for _, q := range d.queries {
		b, err := json.Marshal(map[string]any{
			"collection": collection, "vector": vectorBase64(q), "model": d.model, "k": nearest, "ef": ef, "payload": false,
		})
		if err != nil {
			return nil, err
		}
		m.bodies = append(m.bodies, b)
	}
	for range rig.Shape.Callers {
		l, err := load.NewSearchLine(rig.Servers[0].HTTP, rig.Token, rig.Namespace)
		if err != nil {
			m.close()
			return nil, err
		}
		m.lines = append(m.lines, l)
	}
	return m, nil
}

// indexed waits until the graph has all rows, if there are enough for one: the peer's index is whole too before it is asked.
func indexed(ctx context.Context, points millrace.Collection) error {
	until := time.Now().Add(indexWithin)
	for {
		st, err := points.Stats(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("ask for the state of the graph: %w", err)
		case st.TailRows == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("the graph lacks %d rows after %s", st.TailRows, indexWithin)
		}
		if err := bench.Pause(ctx, lookAgain); err != nil {
			return err
		}
	}
}

// vectorBase64 is a vector as bodies have it: numbers of 32 bits, little-endian.
func vectorBase64(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// search returns what is nearest to a query, best first. It reads ids alone out of the answer.
func (m *ourVectors) search(ctx context.Context, caller, query int) ([]int, error) {
	b, err := m.lines[caller].Search(ctx, m.bodies[query])
	if err != nil {
		return nil, err
	}
	// The answer is not decoded as JSON: that would cost the client CPU that it shares with the servers.
	label := []byte(`"id":"`)
	var out []int
	for {
		i := bytes.Index(b, label)
		if i < 0 {
			return out, nil
		}
		b = b[i+len(label):]
		id, err := strconv.Atoi(string(b[:max(bytes.IndexByte(b, '"'), 0)]))
		if err != nil {
			return nil, fmt.Errorf("read an answer: %w", err)
		}
		out = append(out, id)
	}
}

// close closes all connections.
func (m *ourVectors) close() {
	for _, l := range m.lines {
		l.Close()
	}
}
