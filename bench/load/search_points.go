package load

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// pointsCollection is the collection of SearchPoints, pointsDim the length of its vectors.
const (
	// pointsCollection is the collection that is filled.
	pointsCollection = "points"
	// pointsDim is the length of a vector.
	pointsDim = 384
	// pointsModel is the model whose vectors clients may bring themselves.
	pointsModel = "lexical-v2"
)

// SearchPoints stores vectors that clients bring, in batches, until there are as many as the row
// wants. Afterwards the server must count as many points as it acknowledged.
func SearchPoints(ctx context.Context, rig *bench.Rig) error {
	total := rig.Shape.Puts
	door := newSearchDoor(rig.Servers[0].HTTP, rig.Token, rig.Namespace)
	if err := door.do(ctx, http.MethodPut, "/v1/collections/"+pointsCollection, []byte("{}"), nil); err != nil {
		return fmt.Errorf("make the collection: %w", err)
	}
	// Bodies are made before the window: what the generator costs is not the server's.
	distinct := min(total/upsertBatch, 64)
	vectors := make([][]string, distinct)
	random := rand.New(rand.NewPCG(rig.Seed, 0x90127))
	for i := range vectors {
		vectors[i] = make([]string, upsertBatch)
		for j := range vectors[i] {
			vectors[i][j] = packedVector(random)
		}
	}
	pumps := max(rig.Concurrency, rig.Shape.Pumps, 1)
	lines := make([]*httpLine, pumps)
	for i := range lines {
		var err error
		if lines[i], err = newHTTPLine(rig.Servers[0].HTTP, rig.Token); err != nil {
			return err
		}
		defer lines[i].close()
	}
	op := rig.Op("upsert")
	// next is the number of the next point, stored the number of points that were acknowledged.
	var next, stored atomic.Int64
	began := time.Now()
	err := rig.MeasureWork(ctx, func(ctx context.Context) error {
		// The clock starts with the window, not before it.
		began = time.Now()
		var wait sync.WaitGroup
		for i := range pumps {
			wait.Go(func() {
				var body []byte
				for ctx.Err() == nil {
					from := int(next.Add(upsertBatch)) - upsertBatch
					if from >= total {
						return
					}
					body = pointsBody(body[:0], vectors[from/upsertBatch%distinct], from)
					at := time.Now()
					status, err := lines[i].post(ctx, "/v1/collections/"+pointsCollection+"/points:upsert"+door.query, body)
					if err == nil && status != http.StatusOK {
						err = &refusedError{status, string(lines[i].body[:min(len(lines[i].body), 500)])}
					}
					op.Record(i, at, upsertBatch, err)
					if err != nil {
						return
					}
					stored.Add(upsertBatch)
				}
			})
		}
		wait.Wait()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	rig.Metric("points_per_s", float64(stored.Load())/time.Since(began).Seconds(), "points/s")
	var count struct{ Count int64 }
	if err := door.do(ctx, http.MethodPost, "/v1/collections/"+pointsCollection+"/points:count", []byte("{}"), &count); err != nil {
		return err
	}
	if count.Count != stored.Load() {
		rig.Fail("upsert", fmt.Errorf("%d points were acknowledged and %d are there", stored.Load(), count.Count))
	}
	return nil
}

// packedVector is a random vector as bodies have it: base64 of 32-bit numbers, little-endian.
func packedVector(r *rand.Rand) string {
	b := make([]byte, 0, 4*pointsDim)
	for range pointsDim {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// pointsBody appends the points of one batch to b. first is the number of the first point, from
// which ids are made.
func pointsBody(b []byte, vectors []string, first int) []byte {
	b = append(b, `{"points":[`...)
	for i, v := range vectors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, `{"id":"p`...), int64(first+i), 10), `","model":"`+pointsModel+`","vector":"`...)
		b = append(append(b, v...), `"}`...)
	}
	return append(b, "]}"...)
}
