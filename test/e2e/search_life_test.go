package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// MILLRACE_SEARCH_TEXTS makes more of it.
func TestAFreshMachineSearchesTextsWithoutModelOrNetworkAndSaysSo(t *testing.T) {
	t.Parallel()
	texts := counted("MILLRACE_SEARCH_TEXTS", 500)
	s, c := serve(t)
	ctx := bounded(t, 10*time.Minute)
	k := c.Collection("notes")
	_, err := k.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	text := func(i int) string { return fmt.Sprintf("note %d about subject%d and topic%d", i, i%97, i%31) }
	for from := 0; from < texts; from += 500 {
		var batch []millrace.Point
		for i := from; i < min(from+500, texts); i++ {
			batch = append(batch, millrace.Point{ID: fmt.Sprint("n", i), Payload: map[string]string{"text": text(i)}})
		}
		for i, u := range got[[]millrace.Upserted](t)(k.Upsert(ctx, batch...)) {
			if u.Err != nil {
				t.Fatalf("point %d: %v", from+i, u.Err)
			}
		}
	}
	for i := 0; i < texts; i += texts / 20 {
		found, err := k.Search(ctx, millrace.Search{Text: text(i), K: 3})
		noErr(t, err)
		if len(found.Results) != 3 || found.Results[0].ID != fmt.Sprint("n", i) || found.Semantic {
			t.Fatalf("the text of %d: %+v", i, found)
		}
	}
	if st := got[millrace.CollectionStats](t)(k.Stats(ctx)); st.Points != uint64(texts) || st.Model != "lexical-v2" {
		t.Errorf("stats %+v", st)
	}
	noErr(t, s.Stop())
}

// A client that hangs up before its answer cannot know what happened, and repeats: each point is there once.
func TestAnUpsertThatWasCutOffMayBeRepeated(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{tenant: "acme", role: "admin"})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	k := c.Collection("ws")
	_, err := k.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	const points = 30
	acked := map[string]string{}
	for i := range points {
		id := fmt.Sprint("p", i)
		body := fmt.Sprintf(`{"points":[{"id":%q,"payload":{"text":"cut off %d"}}]}`, id, i)
		conn, err := net.Dial("tcp", l.running.HTTPAddress)
		noErr(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/collections/ws/points:upsert HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			l.tokens[0], len(body), body)
		noErr(t, err)
		if i%2 == 0 { // it is done for certain, and the answer is thrown away
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			noErr(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		noErr(t, conn.Close())
		up := got[[]millrace.Upserted](t)(k.Upsert(ctx, millrace.Point{ID: id, Payload: map[string]string{"text": fmt.Sprint("cut off ", i)}}))
		noErr(t, up[0].Err)
		if i%2 == 0 && !up[0].Existed {
			t.Errorf("%s was answered, and is not there", id)
		}
		acked[id] = up[0].Version
	}
	found := got[*millrace.Found](t)(k.Search(ctx, millrace.Search{Text: "cut off", K: 1000}))
	versions := map[string]string{}
	for _, h := range found.Results {
		versions[h.ID] = h.Version
	}
	if len(found.Results) != points || found.Gate.Considered != points {
		t.Errorf("%d rows of %d, %+v", len(found.Results), points, found.Gate)
	}
	for id, version := range acked { // one that was cut off may come after its repetition
		if versions[id] == "" || versions[id] != version && versions[id] < version && len(versions[id]) <= len(version) {
			t.Errorf("%s has version %s, acknowledged was %s", id, versions[id], version)
		}
	}
	l.audit()
}

func TestARecordingAndVerdictsOutliveAKillRightAfterTheAnswer(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	k, def := nurses(c, "nurses")
	_, err := k.Create(ctx, def)
	noErr(t, err)
	_, err = c.PublishRules(ctx, "nurses", "nurses", nurseRules)
	noErr(t, err)
	w := &nurseWorld{r: newRand(3), doors: []millrace.Collection{k}, nurses: map[string]*nurse{}, ids: 200}
	noErr(t, w.change(ctx, 200))
	ask := millrace.Search{
		Vector: unitVector(w.r), Model: "lexical-v2", K: 100, Ruleset: "nurses", Params: map[string]int{"least": 3}, Record: true, Explain: true,
		Gate: millrace.Gate{ValidAt: noon, Filter: "status != 'away'"},
	}
	before := got[*millrace.Found](t)(k.Search(ctx, ask))
	if !s.Kill() {
		t.Fatalf("the server ended by itself\n%s", logOf(s))
	}
	_, err = s.Start(ctx)
	noErr(t, err)
	kept := got[json.RawMessage](t)(c.Recording(ctx, before.SearchID))
	var doc struct {
		Results []struct {
			ID      string
			Verdict string
			Score   float64
		}
	}
	noErr(t, json.Unmarshal(kept, &doc))
	if len(doc.Results) != len(before.Results) || len(doc.Results) == 0 {
		t.Fatalf("%d results are kept of %d", len(doc.Results), len(before.Results))
	}
	for i, r := range doc.Results {
		if h := before.Results[i]; r.ID != h.ID || r.Score != h.Score || (r.Verdict == "eligible") != h.Eligible {
			t.Errorf("result %d is kept as %+v, answered was %+v", i, r, h)
		}
	}
	ask.Record = false
	after := got[*millrace.Found](t)(k.Search(ctx, ask))
	before.SearchID = ""
	if !reflect.DeepEqual(after, before) {
		t.Errorf("after the restart %+v, before %+v", after, before)
	}
	noErr(t, s.Stop())
}

func TestWithoutRoomOnTheDiskUpsertsAreRefusedAndSearchesGoOn(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{tenant: "acme", role: "admin"})
	ctx := bounded(t, time.Minute)
	k := l.client(0).Collection("ws")
	_, err := k.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	for i := range 3 {
		noErr(t, got[[]millrace.Upserted](t)(k.Upsert(ctx, millrace.Point{ID: fmt.Sprint("p", i), Payload: map[string]string{"text": "there"}}))[0].Err)
	}
	l.stop()
	l.reserve = 1 << 60
	l.start()
	w := web{t: t, address: l.running.HTTPAddress, token: l.tokens[0]}
	status, answer := w.call("POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"more","payload":{"text":"x"}}],"atomic":true}`)
	if status != http.StatusInsufficientStorage || !strings.Contains(answer, `"disk"`) {
		t.Errorf("an upsert: %d %s", status, answer)
	}
	k = l.client(0).Collection("ws")
	if found := got[*millrace.Found](t)(k.Search(ctx, millrace.Search{Text: "there"})); len(found.Results) != 3 {
		t.Errorf("found %+v", found)
	}
	if existed := got[[]bool](t)(k.Remove(ctx, "p1")); !existed[0] {
		t.Error("a point cannot be removed to make room")
	}
	if found := got[*millrace.Found](t)(k.Search(ctx, millrace.Search{Text: "there"})); len(found.Results) != 2 {
		t.Errorf("after a removal %+v", found)
	}
	if _, err := l.client(0).Recording(ctx, "00000000000000010000000000000001"); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("a read: %v", err)
	}
	l.stop()
	l.reserve = 0
	l.start()
	k = l.client(0).Collection("ws")
	noErr(t, got[[]millrace.Upserted](t)(k.Upsert(ctx, millrace.Point{ID: "more", Payload: map[string]string{"text": "there"}}))[0].Err)
}

// searchLimits are bounds that need a whole server: those of one message are held to theirs where messages are read.
func TestEachLimitOfWhatIsStoredHoldsAtItAndRefusesOneAbove(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{tenant: "acme", role: "admin"})
	w := web{t: t, address: l.running.HTTPAddress, token: l.tokens[0], client: &http.Client{}}
	must := func(method, path, body string) {
		t.Helper()
		if status, answer := w.call(method, path, body); status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
	}
	must("PUT", "/v1/collections/ws", `{"schema":[{"name":"n","type":"int","index":true},{"name":"words","type":"keywords","index":true}]}`)
	must("PUT", "/v1/collections/few", `{"max_points":2}`)
	point := func(id, payload string) string {
		return fmt.Sprintf(`{"atomic":true,"points":[{"id":%q,"payload":%s}]}`, id, payload)
	}
	payload := func(n int) string { // of n bytes, within the bound of one text
		head, tail := `{"text":"x","other":"`, `"}`
		return head + strings.Repeat("o", n-len(head)-len(tail)) + tail
	}
	text := func(n int) string { return `{"text":"` + strings.Repeat("t", n) + `"}` }
	schema := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"f%d","type":"int"}`, i))
		}
		return `{"schema":[` + strings.Join(list, ",") + `]}`
	}
	rules := func(n int) string { // 64 rules, each with a reason of n bytes
		var list []string
		for i := range 64 {
			list = append(list, fmt.Sprintf(`{"id":"r%d","when":"n > %d","severity":"block","reason":"%s"}`, i, i, strings.Repeat("w", n)))
		}
		return `{"collection":"ws","rules":[` + strings.Join(list, ",") + `]}`
	}
	nested := func(n int) string { // looks at every pair, triple, ... of words
		filter := "'a' == 'b'"
		for i := range n {
			filter = fmt.Sprintf("words.exists(w%d, %s)", i, filter)
		}
		return `{"gate":{"filter":"` + filter + `"}}`
	}
	upsert, few := "/v1/collections/ws/points:upsert", "/v1/collections/few/points:upsert"
	must("POST", few, point("a", `{"text":"x"}`))
	for _, c := range []struct {
		name, method, path string
		at, beyond         string
		status             int
		limit              string
	}{
		{"payload", "POST", upsert, point("a", payload(64<<10)), point("a", payload(64<<10+1)), 413, `"point_payload_bytes"`},
		{"one text", "POST", upsert, point("a", text(32<<10)), point("a", text(32<<10+1)), 413, `"point_text_bytes"`},
		{"id", "POST", upsert, point(strings.Repeat("i", 128), `{"text":"x"}`), point(strings.Repeat("i", 129), `{"text":"x"}`), 400, `points[0].id`},
		{"points", "POST", few, point("b", `{"text":"x"}`), point("c", `{"text":"x"}`), 429, `"points_limit"`},
		{"fields", "PUT", "/v1/collections/wide", schema(64), schema(65), 413, `"collection_fields"`},
		{"size of rules", "PUT", "/v1/rulesets/rs", rules(980), rules(1024), 413, `"ruleset_bytes"`},
		{"cost of a filter", "POST", "/v1/collections/ws/points:count", nested(1), nested(6), 400, `expression_invalid`},
	} {
		if status, answer := w.call(c.method, c.path, c.at); status/100 != 2 {
			t.Errorf("%s at its limit: %d %s", c.name, status, answer)
		}
		status, answer := w.call(c.method, c.path, c.beyond)
		if status != c.status || !strings.Contains(answer, c.limit) {
			t.Errorf("%s beyond its limit: %d %.300s, want %d and %s", c.name, status, answer, c.status, c.limit)
		}
	}
	if status, answer := w.call("POST", "/v1/collections/ws/points:count", `{}`); status != 200 || !strings.Contains(answer, `"count":2`) {
		t.Errorf("count: %d %s", status, answer)
	}
}
