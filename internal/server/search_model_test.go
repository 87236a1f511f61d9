package server

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// modelRig asks a server with the built-in embedder alone.
type modelRig struct {
	*searchPeer
}

// vector is a point's, and best the first result of a search by its vectors alone.
func (r *modelRig) vector(collection, id string) (v []float32) {
	r.t.Helper()
	_, _, answer := r.do("POST", "/v1/collections/"+collection+"/points:get", `{"ids":["`+id+`"],"vectors":true}`)
	var out struct{ Points []struct{ Vector []float32 } }
	if err := json.Unmarshal(answer, &out); err != nil || len(out.Points) != 1 {
		r.t.Fatalf("%s: %v", answer, err)
	}
	return out.Points[0].Vector
}

func (r *modelRig) best(collection, text string) (id string, dense float64) {
	r.t.Helper()
	status, _, answer := r.do("POST", "/v1/matrix/search", `{"collection":"`+collection+`","query_text":"`+text+`","explain":true,"merge":{"dense":1,"lexical":0}}`)
	var out struct {
		Results []struct {
			ID    string
			Parts struct{ Dense float64 }
		}
	}
	if err := json.Unmarshal(answer, &out); err != nil || status != http.StatusOK || len(out.Results) == 0 {
		r.t.Fatalf("%d %s: %v", status, answer, err)
	}
	return out.Results[0].ID, out.Results[0].Parts.Dense
}

// A collection that was made with the model before keeps it: what is stored and what is asked are embedded by one model, whatever
// new collections get.
func TestACollectionKeepsTheModelThatItWasMadeWith(t *testing.T) {
	p, r := searchServer(t, filepath.Join(t.TempDir(), "data"), "embedders: []")
	defer r.Close(time.Second)
	rig := &modelRig{p}
	p.must("PUT", "/v1/collections/old", `{"model":"lexical-v1"}`)
	p.must("PUT", "/v1/collections/new", `{}`)
	for _, c := range [][2]string{{"old", "{}"}, {"new", "{}"}, {"old", `{"model":"lexical-v1"}`}, {"new", `{"model":"lexical-v2"}`}} {
		if status, _, answer := p.do("PUT", "/v1/collections/"+c[0], c[1]); status != http.StatusOK {
			t.Errorf("%s again, %s: %d %s", c[0], c[1], status, answer)
		}
	}
	for _, c := range [][2]string{{"old", `{"model":"lexical-v2"}`}, {"new", `{"model":"lexical-v1"}`}} {
		if status, _, answer := p.do("PUT", "/v1/collections/"+c[0], c[1]); status/100 != 4 {
			t.Errorf("%s as another one, %s: %d %s", c[0], c[1], status, answer)
		}
	}
	for _, collection := range []string{"old", "new"} {
		p.must("POST", "/v1/collections/"+collection+"/points:upsert", `{"points":[{"id":"a","payload":{"text":"Straße"}}]}`)
		p.must("POST", "/v1/commit", `{"ops":[{"vector_upsert":{"collection":"`+collection+`","point":{"id":"b","payload":{"text":"Straße"}}}}]}`)
		if id, dense := rig.best(collection, "Straße"); id != "a" || dense < 0.999 {
			t.Errorf("%s: %s is %v near to its own text", collection, id, dense)
		}
		if a, b := rig.vector(collection, "a"), rig.vector(collection, "b"); !equalVectors(a, b) {
			t.Errorf("%s: one text has two vectors", collection)
		}
	}
	if equalVectors(rig.vector("old", "a"), rig.vector("new", "a")) {
		t.Error("the models give one vector")
	}
	if _, dense := rig.best("new", "STRASSE"); dense < 0.999 {
		t.Errorf("by the new model STRASSE is %v near to Straße", dense)
	}
	if _, dense := rig.best("old", "STRASSE"); dense > 0.9 {
		t.Errorf("by the old model STRASSE is %v near to Straße", dense)
	}
	for _, model := range []string{"lexical-v1", "lexical-v2", "default"} {
		status, _, answer := p.do("POST", "/v1/embeddings", `{"model":"`+model+`","input":"Straße"}`)
		var out struct {
			Model string
			Data  []struct{ Embedding []float32 }
		}
		if err := json.Unmarshal(answer, &out); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, answer, err)
		}
		of, want := "new", "lexical-v2"
		if model == "lexical-v1" {
			of, want = "old", model
		}
		if out.Model != want || !equalVectors(out.Data[0].Embedding, rig.vector(of, "a")) {
			t.Errorf("%s: vectors of model %s, want those of %s", model, out.Model, of)
		}
	}
}

func equalVectors(a, b []float32) bool {
	for i := range a {
		if i >= len(b) || a[i]-b[i] > 1e-6 || b[i]-a[i] > 1e-6 {
			return false
		}
	}
	return len(a) == len(b)
}
