package millrace_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A client of a server with a certificate authority of its own. Without options the environment says where the server is:
// MILLRACE_URL, MILLRACE_TOKEN, MILLRACE_NAMESPACE.
func ExampleDial() {
	pem := must(os.ReadFile("/etc/millrace/ca.crt"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := must(millrace.Dial(context.Background(),
		millrace.Address("a.example:7081,b.example:7081,c.example:7081"), // some nodes of one cluster
		millrace.TLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}),
		millrace.Token(string(must(os.ReadFile("/run/secrets/millrace")))),
		millrace.Namespace("shop"),
	))
	defer func() { _ = c.Close() }()
}

// A token that is about to end is replaced while the client is in use, for its open streams too.
func ExampleClient_SetToken() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Token("not-a-token")))
	defer func() { _ = c.Close() }()
	_, err := c.KV("k").Put(ctx, "a", "1")
	var refused *millrace.Error
	fmt.Println(errors.As(err, &refused) && refused.Code == millrace.CodeUnauthenticated)

	c.SetToken(os.Getenv("MILLRACE_TOKEN"))
	_, err = c.KV("k").Put(ctx, "a", "1")
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// Run returns when its context has ended and all that was taken is settled or given back. Close does the same for all
// workers of a client, and waits for its calls.
func ExampleWorker_Run() {
	c := must(millrace.Dial(context.Background()))
	slow := millrace.Job[string, string]("slow")
	w := c.Worker(millrace.DrainTimeout(20 * time.Second))
	ctx, stop := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	slow.Handle(w, func(context.Context, *millrace.Task, string) (string, error) {
		stop() // while this handler runs
		return "finished all the same", nil
	})
	h := must(slow.Add(context.Background(), c, "x"))
	fmt.Println(w.Run(ctx))
	fmt.Println(must(h.Wait(context.Background())))
	fmt.Println(c.Close())
	// Output:
	// <nil>
	// finished all the same
	// <nil>
}

// Calls after Close are refused.
func ExampleClient_Close() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	must(c.KV("k").Put(ctx, "a", "1"))
	fmt.Println(c.Close())
	_, err := c.KV("k").Put(ctx, "a", "2")
	fmt.Println(errors.Is(err, millrace.ErrClosed), millrace.OutcomeOf(err))
	// Output:
	// <nil>
	// true refused
}

// A namespace is made with its partitions, and is empty of what others have.
func ExampleClient_CreateNamespace() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("tenant-7")))
	defer func() { _ = c.Close() }()
	existed := must(c.CreateNamespace(ctx, 2))
	fmt.Println(existed, len(must(c.Namespace(ctx)).Partitions))
	fmt.Println(must(c.DeleteNamespace(ctx)))
	// Output:
	// false 2
	// true
}

// An error says its code, what it is about, and whether anything may have happened.
func ExampleError() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	_, err := millrace.Job[string, string]("mail").Add(ctx, c, "x", millrace.Priority(17))
	var refused *millrace.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Field, refused.Outcome)
	}
	fmt.Println(errors.Is(err, millrace.ErrInvalid)) // the codes that programs ask for most have a sentinel
	// Output:
	// INVALID_ARGUMENT priority refused
	// true
}

// After an error the outcome says what to do: what was refused changed nothing; what is unknown is safely done again under
// the same id.
func ExampleOutcomeOf() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	pay := millrace.Job[int, string]("pay")
	id := must(c.NewID(ctx))
	add := func(ctx context.Context) error {
		_, err := pay.Add(ctx, c, 5, millrace.ID(id))
		return err
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	switch err := add(gone); millrace.OutcomeOf(err) {
	case millrace.OK:
		fmt.Println("added")
	case millrace.Refused:
		fmt.Println("nothing was changed:", errors.Is(err, context.Canceled))
	case millrace.Unknown:
		fmt.Println(add(ctx)) // the same id: it is not added twice
	}
	// Output: nothing was changed: true
}

// Refs of a git repository move together or not at all, and only from where they are expected.
func ExampleRepo_Update() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	repo := c.Repo("app")
	must(repo.Create(ctx, millrace.RepoSettings{}))
	must(repo.Update(ctx, millrace.PointRef("refs/heads/current", "refs/heads/v1")))

	// Someone else may have made refs/heads/main meanwhile: then current stays as it is. CreateRef and MoveRef move refs to
	// objects that were pushed by git.
	const pushed = "1111111111111111111111111111111111111111"
	_, err := repo.Update(ctx, millrace.VerifyRef("refs/heads/main", pushed), millrace.PointRef("refs/heads/current", "refs/heads/main"))
	fmt.Println(errors.Is(err, millrace.ErrPrecondition), must(repo.Get(ctx, "refs/heads/current")).Target)
	// Output: true refs/heads/v1
}

// A receiver checks the bytes of the body as they came, before they are parsed.
func ExampleVerifyWebhook() {
	secrets := []string{"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="} // two of them while the sender changes its secret
	receive := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = millrace.VerifyWebhook(r.Header, body, secrets...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent) // the header webhook-id tells whether it was here before
	}

	w := httptest.NewRecorder()
	receive(w, httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader("{}")))
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	// Output: 400 HEADER_MISSING: webhook-id: the header is missing
}

// Points are vectors with a payload. A search finds the nearest ones of those that pass its gate and its filter.
func ExampleCollection_Search() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	people := c.Collection("people")
	must(people.Create(ctx, millrace.CollectionConfig{Schema: []millrace.SchemaField{
		{Name: "years", Type: "int"},
		{Name: "role", Type: "keywords", Gate: "role"},
	}}))
	vectors, model := must2(c.Embed(ctx, "", "mig welder", "tig welder", "forklift driver")) // or of a model of your own
	point := func(i int, id string, years int, role string) millrace.Point {
		return millrace.Point{ID: id, Vector: vectors[i].Vector, Model: model, Payload: map[string]any{"years": years, "role": []string{role}}}
	}
	for _, u := range must(people.Upsert(ctx, point(0, "ada", 9, "welder"), point(1, "bob", 1, "welder"), point(2, "cid", 9, "driver"))) {
		if u.Err != nil {
			log.Panic(u.Err)
		}
	}

	found := must(people.Search(ctx, millrace.Search{
		Vector: vectors[0].Vector, Model: model, K: 10,
		Gate: millrace.Gate{Roles: []string{"welder"}, Filter: "years >= p.least", Params: map[string]any{"least": 5}},
	}))
	for _, r := range found.Results {
		fmt.Println(r.ID, string(r.Payload))
	}
	fmt.Println(found.Gate.Considered, found.Gate.Role, found.Gate.Filter)
	// Output:
	// ada {"role":["welder"],"years":9}
	// 3 1 1
}

// A point is an effect like any other: it is found exactly when its task has completed.
func ExampleTx_Collection() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	pages := c.Collection("pages")
	must(pages.Create(ctx, millrace.CollectionConfig{TextFields: []millrace.TextField{{Name: "title", Weight: 1}}}))
	index := millrace.Job[string, string]("index")
	w := c.Worker()
	index.Handle(w, func(_ context.Context, t *millrace.Task, page string) (string, error) {
		t.Effects().Collection("pages").Upsert(millrace.Point{ID: page, Payload: map[string]string{"title": "the " + page + " page"}})
		return "indexed", nil
	})
	defer start(w)()
	fmt.Println(must(must(index.Add(ctx, c, "home")).Wait(ctx)), len(must(pages.Points(ctx, []string{"home"}))))
	// Output: indexed 1
}
