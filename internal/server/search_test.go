package server

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env"
	millrace "github.com/millrace/millrace/sdk/go"
)

// lateClock is the system's clock, whose wall clock was put forward.
type lateClock struct {
	env.SystemClock
	late atomic.Int64 // in nanoseconds
}

func (c *lateClock) Wall() time.Time {
	return c.SystemClock.Wall().Add(time.Duration(c.late.Load()))
}

// Shard time stands still without writes. A row whose credential ends meanwhile does not pass.
func TestACredentialThatEndsWhileNobodyWritesBlocksItsRowAtOnce(t *testing.T) {
	clock := &lateClock{}
	o, token := Options{Dir: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Clock: clock}, NewToken()
	o, err := Dev(o, token)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(time.Second)
	c, err := millrace.Dial(t.Context(), millrace.Address(r.Address), millrace.Token(token))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := c.Collection("ws")
	if _, err := k.Create(t.Context(), millrace.CollectionConfig{Schema: []millrace.SchemaField{{Name: "certs", Type: "credentials", Gate: "credential"}}}); err != nil {
		t.Fatal(err)
	}
	certs := []map[string]string{{"id": "rn", "expires_at": clock.Wall().Add(30 * time.Minute).UTC().Format(time.RFC3339)}}
	up, err := k.Upsert(t.Context(), millrace.Point{ID: "w1", Payload: map[string]any{"text": "nurse", "certs": certs}})
	if err != nil || up[0].Err != nil {
		t.Fatal(up, err)
	}
	ask := millrace.Search{Text: "nurse", Gate: millrace.Gate{Credentials: []string{"rn"}}}
	if found, err := k.Search(t.Context(), ask); err != nil || len(found.Results) != 1 {
		t.Fatalf("while it is valid: %+v, %v", found, err)
	}
	clock.late.Store(int64(time.Hour))
	for range 2 { // the second once more reads what the first has asked for
		found, err := k.Search(t.Context(), ask)
		if err != nil || len(found.Results) != 0 || found.Gate.Credential != 1 || found.Gate.ValidAt.Before(clock.Wall().Add(-time.Minute)) {
			t.Errorf("an hour later: %+v, %v", found, err)
		}
	}
	scrape := httptest.NewRecorder()
	r.admin.registry.Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`millrace_api_searches_total{plan="scan"} 3`, `millrace_api_searches_total{plan="hnsw"} 0`, "millrace_api_search_passed_rows_total 1",
		"millrace_node_search_points 1", "millrace_node_search_collections 1", "millrace_embed_cache_hits_total 3", "millrace_embed_cache_misses_total 1",
		"millrace_api_search_running_calls 0",
	} {
		if !strings.Contains(scrape.Body.String(), "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if counts, err := k.Count(t.Context(), ask.Gate); err != nil || counts.Passed != 0 {
		t.Errorf("counted an hour later: %+v, %v", counts, err)
	}
}
