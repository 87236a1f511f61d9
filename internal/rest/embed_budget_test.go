package rest

import (
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// The vectors of calls for vectors are bounded in all and by tenant while they are made, and one call alone is not; what a call
// took is free again when it ends, however it does.
func TestVectorsOfCallsAreBoundedWhileTheyAreMade(t *testing.T) {
	r := newRESTRig(t, edge.Limits{EmbedNumbers: 8}) // of the fake model's vectors of two numbers: four
	e := r.embedder
	hold, held := make(chan struct{}), make(chan struct{})
	e.Asked = func() {
		held <- struct{}{}
		<-hold
	}
	bodies := map[string]string{"/v1/embed": `{"texts":["a","b"]}`, "/v1/embeddings": `{"input":["a","b"]}`}
	ask := func(tenant, path string) chan int {
		out := make(chan int, 1)
		go func() { out <- r.send(r.request("POST", path, tenant+"/all", bodies[path])).status }()
		return out
	}
	first := ask("acme", "/v1/embed")
	<-held
	for path := range bodies {
		if got := <-ask("acme", path); got != 503 {
			t.Errorf("%s of a tenant that has its half: %d", path, got)
		}
	}
	second := ask("rival", "/v1/embeddings")
	<-held
	if got := <-ask("third", "/v1/embed"); got != 503 {
		t.Errorf("beyond what all may have: %d", got)
	}
	close(hold)
	for _, one := range []chan int{first, second} {
		if got := <-one; got != 200 {
			t.Errorf("one that was let in: %d", got)
		}
	}
	e.Asked = nil
	many := `{"texts":[` + strings.TrimSuffix(strings.Repeat(`"t",`, 100), ",") + `]}`
	for range 2 {
		r.send(r.request("POST", "/v1/embed", "acme/all", many)).expect(t, "alone", 200)
		r.send(r.request("POST", "/v1/embed", "acme/all", `{"text":"down"}`)).expect(t, "a failure", 503)
		r.send(r.request("POST", "/v1/embeddings", "acme/all", `{"input":"a","dimensions":3}`)).expect(t, "refused later", 400)
		if _, err := pb.NewSearchServiceClient(r.conn).Embed(apitest.As("acme/all"), &pb.EmbedRequest{Texts: []string{"a", "b"}}); err != nil {
			t.Errorf("gRPC: %v", err)
		}
	}
	if st := r.s.SearchStats(); st.Embedding != 0 || st.EmbeddingTenants != 0 {
		t.Errorf("%d numbers are held by %d tenants", st.Embedding, st.EmbeddingTenants)
	}
}
