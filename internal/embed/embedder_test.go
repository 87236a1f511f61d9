package embed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
)

// bubbleClock is the clock of a synctest bubble; boot time runs with it.
type bubbleClock struct {
	env.SystemClock
	start time.Time
}

func (c bubbleClock) Boot() time.Duration { return time.Since(c.start) }

// rig is a provider on a network in memory and an embedder that asks it.
type rig struct {
	*Embedder
	net    *envtest.Net
	server *http.Server
	calls  atomic.Int64
	texts  atomic.Int64

	mu     sync.Mutex // guards the fields below
	answer http.HandlerFunc
	whole  http.HandlerFunc // as answer, but reads the request itself
}

const rigAddress = "10.0.0.1:80"

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := &rig{net: envtest.NewNet()}
	o := Options{
		Kind: KindOpenAI, URL: "http://" + rigAddress, Model: "mini", Net: r.net, Rand: env.NewSeededRand(1),
		Clock: bubbleClock{start: time.Now()},
	}
	if change != nil {
		change(&o)
	}
	r.serve(t)
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Embedder = e
	t.Cleanup(func() {
		e.Close()
		r.stop()
	})
	return r
}

func (r *rig) serve(t *testing.T) {
	t.Helper()
	l, err := r.net.Listen(rigAddress)
	if err != nil {
		t.Fatal(err)
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.handle)}
	go func() { _ = r.server.Serve(l) }()
}

func (r *rig) stop() { _ = r.server.Close() }

func (r *rig) set(h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = h
}

// answerAs sets what answers, which reads the request itself.
func (r *rig) answerAs(h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = h
}

func (r *rig) handle(w http.ResponseWriter, req *http.Request) {
	r.calls.Add(1)
	r.mu.Lock()
	h, whole := r.answer, r.whole
	r.mu.Unlock()
	if whole != nil {
		whole(w, req)
		return
	}
	if h != nil {
		_, _ = io.Copy(io.Discard, req.Body) // a server sees that its client left only when it has read all
		h(w, req)
		return
	}
	var doc struct{ Input, Inputs []string }
	if err := json.NewDecoder(req.Body).Decode(&doc); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list := slices.Concat(doc.Input, doc.Inputs)
	r.texts.Add(int64(len(list)))
	vectors := make([][]float32, len(list))
	for i, text := range list {
		vectors[i] = fake(text)
	}
	writeVectors(w, req.URL.Path, vectors)
}

// fake is the provider's model: three numbers that depend on the text.
func fake(text string) []float32 {
	v := []float32{1, 2, 3}
	for i, c := range []byte(text) {
		v[i%3] += float32(c)
	}
	return v
}

// writeVectors answers in the protocol of the path; of OpenAI's in another order, as it may.
func writeVectors(w http.ResponseWriter, path string, vectors [][]float32) {
	var doc any
	switch path {
	case "/api/embed":
		doc = map[string]any{"embeddings": vectors, "prompt_eval_count": 10 * len(vectors)}
	case "/embed":
		doc = vectors
	default:
		var data []map[string]any
		for i := len(vectors) - 1; i >= 0; i-- {
			data = append(data, map[string]any{"index": i, "embedding": vectors[i]})
		}
		doc = map[string]any{"data": data, "usage": map[string]any{"prompt_tokens": 10 * len(vectors)}}
	}
	_ = json.NewEncoder(w).Encode(doc)
}

func (r *rig) one(text string) (Result, error) {
	out, err := r.Embed(context.Background(), Request{Tenant: "t", Texts: []string{text}, Query: true})
	if err != nil {
		return Result{}, err
	}
	return out[0], nil
}

// same says whether v is what the fake model gives, at length 1.
func same(v []float32, text string) bool {
	want := fake(text)
	var sum float64
	for _, x := range want {
		sum += float64(x) * float64(x)
	}
	for i := range want {
		if math.Abs(float64(v[i])-float64(want[i])/math.Sqrt(sum)) > 1e-6 {
			return false
		}
	}
	return len(v) == len(want)
}

func TestEachProviderGivesTheVectorsOfItsTextsInOrder(t *testing.T) {
	for _, kind := range []string{KindOllama, KindOpenAI, KindTEI} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Kind, o.QueryPrefix, o.DocumentPrefix = kind, "q: ", "d: " })
				if d, err := r.Dim(t.Context(), "t"); d != 3 || err != nil {
					t.Fatalf("dimension %d, %v", d, err)
				}
				var texts []string
				for i := range 70 {
					texts = append(texts, fmt.Sprint("text ", i))
				}
				out, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: texts})
				if err != nil {
					t.Fatal(err)
				}
				for i := range out {
					if !same(out[i].Floats, "d: "+texts[i]) || out[i].Cached || kind != KindTEI && out[i].Tokens < 9 {
						t.Fatalf("text %d: %v, %d tokens", i, out[i].Floats, out[i].Tokens)
					}
				}
				if n := r.calls.Load(); n != 4 { // one for the dimension, and 32 + 32 + 6
					t.Errorf("%d requests for 70 texts", n)
				}
				if q, err := r.one("text 1"); err != nil || q.Cached || !same(q.Floats, "q: text 1") {
					t.Errorf("a query got %+v, %v", q, err)
				}
				if !strings.HasPrefix(r.Model(), kind+"/mini#") || !r.Semantic() {
					t.Errorf("model %q", r.Model())
				}
			})
		})
	}
}

func TestFaultsOfAProviderGiveTheirErrors(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		invalid bool // else unavailable
		calls   int64
	}{
		{"hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, 1},
		{"500", status(500), false, 3},
		{"429", status(429), false, 3},
		{"401", status(401), false, 1},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.9.9.9/", http.StatusFound)
		}, true, 1},
		{"wrong dimension", body(`{"data":[{"index":0,"embedding":[1,2]}]}`), true, 1},
		{"wrong count", body(`{"data":[]}`), true, 1},
		{"one vector twice", body(`{"data":[{"index":1,"embedding":[1,2,3]}]}`), true, 1},
		{"NaN", body(`{"data":[{"index":0,"embedding":[1,NaN,3]}]}`), true, 1},
		{"null", body(`{"data":[{"index":0,"embedding":[1,null,3]}]}`), true, 1},
		{"infinite", body(`{"data":[{"index":0,"embedding":[1,1e39,3]}]}`), true, 1},
		{"zeros", body(`{"data":[{"index":0,"embedding":[0,0,0]}]}`), true, 1},
		{"no JSON", body(`<html>`), true, 1},
		{"cut body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"data":[{"ind`))
		}, true, 1},
		{"endless body", func(w http.ResponseWriter, _ *http.Request) {
			part := []byte(strings.Repeat(" ", 1<<16))
			for range 1 << 14 { // a gigabyte
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				if _, err := r.one("known"); err != nil {
					t.Fatal(err)
				}
				r.set(c.answer)
				r.calls.Store(0)
				began := time.Now()
				_, err := r.one("x")
				_, invalid := errors.AsType[Invalid](err)
				un, unavailable := errors.AsType[Unavailable](err)
				if invalid != c.invalid || unavailable == c.invalid || unavailable && un.After <= 0 {
					t.Errorf("%v", err)
				}
				if strings.Contains(err.Error(), "10.") {
					t.Errorf("the error names an address: %v", err)
				}
				if n := r.calls.Load(); n != c.calls {
					t.Errorf("%d requests, want %d", n, c.calls)
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("took %v", took)
				}
				if got, err := r.one("known"); err != nil || !got.Cached {
					t.Errorf("what is kept: %v", err)
				}
				r.set(nil)
				time.Sleep(10 * time.Second)
				if got, err := r.one("x"); err != nil || got.Cached {
					t.Errorf("after the fault: %v", err)
				}
			})
		})
	}
}

func TestAProviderThatFailsIsLeftAloneAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		if _, err := r.one("known"); err != nil {
			t.Fatal(err)
		}
		r.stop() // refuses connections
		for i := range failuresInRow {
			if _, err := r.one(fmt.Sprint(i)); err == nil {
				t.Fatal("a provider that is gone answered")
			}
		}
		if s := r.Stats(); !s.Open || s.Opened != 1 || s.Failures != failuresInRow || s.Retries != 2*failuresInRow {
			t.Errorf("%+v", s)
		}
		r.calls.Store(0)
		began := time.Now()
		for i := range 50 {
			_, err := r.one(fmt.Sprint("more ", i))
			if un, ok := errors.AsType[Unavailable](err); !ok || un.After <= 0 || un.After > probeEvery {
				t.Fatalf("%v", err)
			}
		}
		if time.Since(began) != 0 {
			t.Error("callers waited for a provider that is left alone")
		}
		if got, err := r.one("known"); err != nil || !got.Cached {
			t.Errorf("what is kept: %v", err)
		}
		r.serve(t)
		time.Sleep(probeEvery)
		if _, err := r.one("back"); err != nil {
			t.Errorf("after it came back: %v", err)
		}
		if s := r.Stats(); s.Open {
			t.Error("it is still left alone")
		}
	})
}

// picky is a provider that fails on texts by what they hold, alone or among others.
func picky(fail map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var doc struct{ Input []string }
		if err := json.NewDecoder(req.Body).Decode(&doc); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		vectors := make([][]float32, len(doc.Input))
		for i, text := range doc.Input {
			for word, answer := range fail {
				if strings.Contains(text, word) {
					answer(w, req)
					return
				}
			}
			vectors[i] = fake(text)
		}
		writeVectors(w, req.URL.Path, vectors)
	}
}

// badTexts are the ways in which a provider fails on a text.
func badTexts() map[string]http.HandlerFunc {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	return map[string]http.HandlerFunc{
		"s400": status(400), "s413": status(413), "s422": status(422), "s500": status(500), "s503": status(503),
		"nan": body(`{"data":[{"index":0,"embedding":[1,NaN,3]}]}`), "huge": body(`{"data":[{"index":0,"embedding":[1,1e308,3]}]}`),
		"html": body(`<html>`),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.9.9.9/", http.StatusFound)
		},
	}
}

// Texts of one tenant that the provider fails on, however it does, keep no other tenant from being served.
func TestTextsThatFailCloseTheProviderForTheirTenantAlone(t *testing.T) {
	for word := range badTexts() {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.answerAs(picky(badTexts()))
			ask := func(tenant, text string) error {
				_, err := r.Embed(t.Context(), Request{Tenant: tenant, Texts: []string{text}})
				return err
			}
			for i := range 3 * failuresInRow {
				if ask("bad", fmt.Sprint(word, i)) == nil {
					t.Fatalf("%s: a bad text has a vector", word)
				}
				if err := ask("good", fmt.Sprint("text ", i)); err != nil {
					t.Errorf("%s: another tenant: %v", word, err)
				}
			}
			err := ask("bad", "a good one")
			if _, refused := errors.AsType[Refused](ask("bad", word+"!")); refused != strings.HasPrefix(word, "s4") {
				t.Errorf("%s: refused %v", word, refused)
			}
			if closed := err != nil; closed == strings.HasPrefix(word, "s4") {
				t.Errorf("%s: the tenant's own next text: %v", word, err)
			}
		})
	}
}

// Of texts that are asked for together only those fail that the provider fails on.
func TestOfABatchOnlyBadTextsFail(t *testing.T) {
	for word := range badTexts() {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.answerAs(picky(badTexts()))
			errs := make([]error, 32)
			var wg sync.WaitGroup
			for i := range errs {
				text := fmt.Sprint("text ", i)
				if i == 5 || i == 20 {
					text = fmt.Sprint(word, i)
				}
				wg.Go(func() { _, errs[i] = r.one(text) })
			}
			wg.Wait()
			for i, err := range errs {
				if bad := i == 5 || i == 20; (err != nil) != bad {
					t.Errorf("%s: text %d: %v", word, i, err)
				}
			}
			if n := r.calls.Load(); n > 30 {
				t.Errorf("%s: %d requests", word, n)
			}
		})
	}
}

// Tokens go to a provider of OpenAI's protocol as they are, and to no other; they are kept apart from a text of the same characters.
func TestTokensGoToTheProviderAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		var got string
		r.answerAs(func(w http.ResponseWriter, req *http.Request) {
			var doc struct{ Input json.RawMessage }
			_ = json.NewDecoder(req.Body).Decode(&doc)
			got = string(doc.Input)
			writeVectors(w, req.URL.Path, [][]float32{fake("x")})
		})
		for _, c := range []struct {
			tokens, cached bool
			want           string
		}{{true, false, "[[1,2]]"}, {false, false, `["[1,2]"]`}, {true, true, ""}} {
			got = ""
			out, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: []string{"[1,2]"}, Tokens: c.tokens})
			if err != nil || got != c.want || out[0].Cached != c.cached {
				t.Errorf("%+v: %s, %v", c, got, err)
			}
		}
		long := "[" + strings.Repeat("1,", defaultText) + "1]"
		if _, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: []string{long}, Tokens: true}); !errors.Is(err, TextTooLong{Limit: defaultText}) {
			t.Errorf("a long list: %v", err)
		}
	})
	for _, change := range []func(*Options){
		func(o *Options) { o.Kind = KindOllama }, func(o *Options) { o.Kind = KindTEI }, func(o *Options) { o.DocumentPrefix = "passage: " },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, change)
			if _, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: []string{"[1]"}, Tokens: true}); !errors.Is(err, ErrTokens) {
				t.Errorf("%s: %v", r.o.Kind, err)
			}
		})
	}
}

// A request names the text that is refused, or has a result for each.
func TestARefusedTextIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.answerAs(picky(badTexts()))
		texts := []string{"a", "b", "s413", "c"}
		_, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: texts})
		if refused, ok := errors.AsType[Refused](err); !ok || refused.Text != 2 || refused.Status != 413 {
			t.Errorf("%v", err)
		}
		out, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: texts, Each: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range out {
			if (out[i].Err != nil) != (i == 2) || (out[i].Vector == nil) != (i == 2) {
				t.Errorf("text %d: %+v", i, out[i])
			}
		}
	})
}

// Requests hold texts of one tenant, tenants in turn, and one of several leaves a request and a part of the queue to others.
func TestTenantsTakeTurnsAndLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.InFlight, o.Waiting, o.Batch = 2, 8, 1 })
		release := make(chan struct{})
		r.answerAs(func(w http.ResponseWriter, req *http.Request) {
			var doc struct{ Input []string }
			_ = json.NewDecoder(req.Body).Decode(&doc)
			if strings.HasPrefix(doc.Input[0], "slow") {
				<-release
			}
			writeVectors(w, req.URL.Path, [][]float32{fake(doc.Input[0])})
		})
		ask := func(tenant, text string) error {
			_, err := r.Embed(t.Context(), Request{Tenant: tenant, Texts: []string{text}})
			return err
		}
		for _, tenant := range []string{"a", "b"} {
			if err := ask(tenant, "hello"); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		full := 0
		for i := range 8 {
			wg.Go(func() {
				if errors.Is(ask("a", fmt.Sprint("slow", i)), ErrQueueFull) {
					full++
				}
			})
			synctest.Wait()
		}
		if s := r.Stats(); s.InFlight != 1 || s.Waiting != 6 || full != 2 {
			t.Errorf("%+v, %d refused", s, full)
		}
		if err := ask("b", "now"); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		close(release)
		wg.Wait()
	})
}

func TestHundredEqualMissesMakeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		release := make(chan struct{})
		r.set(func(w http.ResponseWriter, req *http.Request) {
			<-release
			writeVectors(w, req.URL.Path, [][]float32{fake("same")})
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if got, err := r.one("same"); err != nil || !same(got.Floats, "same") {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if n := r.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestAFailureIsNotKeptAndACallerThatLeavesTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		release := make(chan struct{})
		r.set(func(w http.ResponseWriter, req *http.Request) {
			<-release
			writeVectors(w, req.URL.Path, [][]float32{fake("same")})
		})
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := r.Embed(ctx, Request{Tenant: "t", Texts: []string{"same"}, Query: true})
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := r.one("same")
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left: %v", err)
		}
		close(release)
		if err := <-second; err != nil {
			t.Errorf("the one that stayed: %v", err)
		}
		r.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) })
		for want := range 2 {
			if _, err := r.one("bad"); err == nil {
				t.Error("a failure was kept as an answer")
			}
			if n := r.calls.Load(); n != int64(2+want) {
				t.Errorf("%d calls", n)
			}
		}
	})
}

func TestVectorsAreKeptByTenantAndModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := NewCache(DefaultCacheEntries, DefaultCacheBytes)
		r := newRig(t, func(o *Options) { o.Cache = cache })
		other := newRig(t, func(o *Options) { o.Cache, o.Model = cache, "maxi" })
		ask := func(e *rig, tenant string) bool {
			out, err := e.Embed(t.Context(), Request{Tenant: tenant, Texts: []string{"x"}, Query: true})
			if err != nil {
				t.Fatal(err)
			}
			return out[0].Cached
		}
		if ask(r, "a") || !ask(r, "a") || ask(r, "b") || ask(other, "a") || !ask(other, "a") || !ask(r, "a") || ask(r, "ab") {
			t.Error("a vector of another tenant or model was given")
		}
		if r.calls.Load() != 3 || other.calls.Load() != 1 {
			t.Errorf("%d and %d calls", r.calls.Load(), other.calls.Load())
		}
	})
}

// No answer for a plain text tells its caller whether the same text was embedded as a protected one, and the other way round.
func TestProtectedTextsAreKeptApart(t *testing.T) {
	e, err := New(Options{Kind: KindLexical})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, want := range []bool{false, false, true, true} {
		got, err := e.Embed(t.Context(), Request{Tenant: "a", Texts: []string{"salary"}, Protected: i%2 == 0})
		if err != nil || got[0].Cached != want {
			t.Errorf("request %d: %v, %v", i, got, err)
		}
	}
}

func TestCallersBeyondTheQueueAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Waiting = 8 })
		release := make(chan struct{})
		r.set(func(_ http.ResponseWriter, _ *http.Request) { <-release })
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { _, _ = r.one(fmt.Sprint(i)) })
		}
		synctest.Wait()
		if _, err := r.one("ninth"); !errors.Is(err, ErrQueueFull) {
			t.Errorf("the ninth caller: %v", err)
		}
		close(release)
		wg.Wait()
		if s := r.Stats(); s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCloseEndsCallersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.set(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		done := make(chan error, 1)
		go func() {
			_, err := r.one("x")
			done <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if _, err := r.one("y"); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestTextsBeyondTheLengthAreCutAtACharacterOrRefused(t *testing.T) {
	e, err := New(Options{Kind: KindLexical, MaxText: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	out, err := e.Embed(t.Context(), Request{Texts: []string{"abcdefghiäx", "short"}})
	if err != nil || !out[0].Truncated || out[1].Truncated {
		t.Fatalf("%+v, %v", out, err)
	}
	want, _ := Lexical("abcdefghi")
	if !slices.Equal(out[0].Floats, want) {
		t.Error("a text was not cut at a character")
	}
	if _, err := e.Embed(t.Context(), Request{Texts: []string{"abcdefghijklm"}, Strict: true}); !errors.Is(err, TextTooLong{Limit: 10}) {
		t.Errorf("%v", err)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	secret := "k"
	good := Options{Kind: KindOllama, URL: "http://h", Model: "m", Clock: env.SystemClock{}, Net: env.SystemNet{}, Rand: env.SystemRand{}}
	for name, change := range map[string]func(*Options){
		"kind": func(o *Options) { o.Kind = "magic" }, "scheme": func(o *Options) { o.URL = "file:///etc" },
		"user": func(o *Options) { o.URL = "http://a:b@h" }, "model": func(o *Options) { o.Model = "" },
		"dim": func(o *Options) { o.Dim = 5000 }, "lexical url": func(o *Options) { o.Kind = KindLexical },
		"clock": func(o *Options) { o.Clock = nil }, "lexical key": func(o *Options) { *o = Options{Kind: KindLexical, Key: secret} },
		"lexical model":          func(o *Options) { *o = Options{Kind: KindLexical, Model: "lexical-v9"} },
		"timeout without a unit": func(o *Options) { o.Timeout = 10 }, "endless timeout": func(o *Options) { o.Timeout = time.Hour },
		"negative timeout": func(o *Options) { o.Timeout = -1 }, "max_text of less than a character": func(o *Options) { o.MaxText = 3 },
		"max_text": func(o *Options) { o.MaxText = 2 << 20 }, "batch": func(o *Options) { o.Batch = 2049 }, "negative batch": func(o *Options) { o.Batch = -1 },
		"in_flight": func(o *Options) { o.InFlight = 5000 }, "waiting": func(o *Options) { o.Waiting = -2 },
		"query_prefix": func(o *Options) { o.QueryPrefix = strings.Repeat("p", 5000) }, "dim below": func(o *Options) { o.Dim = 1 },
		"none without a model": func(o *Options) { *o = Options{Kind: KindNone} }, "none with an address": func(o *Options) { *o = Options{Kind: KindNone, Model: "m", URL: "http://h"} },
		"none with a key": func(o *Options) { *o = Options{Kind: KindNone, Model: "m", Key: secret} }, "none of dim 1": func(o *Options) { *o = Options{Kind: KindNone, Model: "m", Dim: 1} },
		"none with a model of two lines": func(o *Options) { *o = Options{Kind: KindNone, Model: "m\nn"} },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	e, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}

// As many texts as may stand in a request are only asked for together where their vectors fit into what is read of an answer.
func TestARequestHasNoMoreTextsThanFitIntoItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := make([]float32, 4096)
		for i := range long {
			long[i] = 1.2345678e-10
		}
		r := newRig(t, func(o *Options) { o.Dim, o.Batch, o.InFlight = 4096, 2048, 1 })
		most := 0
		r.answerAs(func(w http.ResponseWriter, req *http.Request) {
			var doc struct{ Input []string }
			_ = json.NewDecoder(req.Body).Decode(&doc)
			most = max(most, len(doc.Input))
			vectors := make([][]float32, len(doc.Input))
			for i := range vectors {
				vectors[i] = long
			}
			writeVectors(w, req.URL.Path, vectors)
		})
		texts := make([]string, 200)
		for i := range texts {
			texts[i] = fmt.Sprint("text ", i)
		}
		if _, err := r.Embed(t.Context(), Request{Tenant: "t", Texts: texts}); err != nil || most > 64 || most < 16 {
			t.Errorf("requests of %d texts: %v", most, err)
		}
	})
}

// No more of an answer is read than vectors of the known dimension can take: what a broken provider sends is not all taken in.
func TestOfAnAnswerIsReadWhatItsVectorsCanTake(t *testing.T) {
	if got := mostOf(32, 0); got != maxAnswer {
		t.Errorf("of an unknown dimension: %d", got)
	}
	if got := mostOf(1024, 4096); got != maxAnswer {
		t.Errorf("of many long vectors: %d", got)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Dim = 3 })
		sent := 0
		r.set(func(w http.ResponseWriter, _ *http.Request) {
			part := []byte(strings.Repeat(" ", 1<<12))
			for sent = 0; sent < maxAnswer; sent += len(part) {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		})
		if _, err := r.one("x"); err == nil {
			t.Error("an answer of spaces is taken")
		}
		synctest.Wait()
		if sent > 1<<20 {
			t.Errorf("%d bytes were taken of an answer with one vector of 3 numbers", sent)
		}
	})
}
