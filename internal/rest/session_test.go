package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
)

// signedIn is the session of a browser.
type signedIn struct{ cookie, csrf string }

// with is the cookie and the header of requests of a page, and more headers.
func (s signedIn) with(more ...string) []string {
	return append([]string{"Cookie", s.cookie, headerSession, s.csrf}, more...)
}

// signIn begins a session.
func (r *restRig) signIn(body string) signedIn {
	r.t.Helper()
	a := r.send(r.request("POST", "/v1/session", "", body)).expect(r.t, "sign in by "+body, 200)
	var s struct {
		CSRF string `json:"csrf"`
	}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || s.CSRF == "" {
		r.t.Fatalf("%s: %v", a.body, err)
	}
	cookie, rest, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	if want := " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"; rest != want && !strings.Contains(body, "/1h") {
		r.t.Errorf("cookie with %q, want %q", rest, want)
	}
	if strings.Contains(a.body, strings.TrimPrefix(cookie, "millrace_test=")) {
		r.t.Error("the body has the cookie")
	}
	return signedIn{cookie, s.CSRF}
}

func TestASessionHasTheRightsOfItsToken(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.AddTask(r.t, "rival", apitest.ID(1))
	all, reader, rival := r.signIn(`{"token":"acme/all"}`), r.signIn(`{"token":"acme/task:read"}`), r.signIn(`{"token":"rival/all"}`)
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if rt.rule.Public || rt.Path == codePath || rt.Path == "/v1/sessions:end" {
			return
		}
		send := func(what string, want int, headers ...string) {
			r.send(r.request(rt.Method, s.path, "", s.body, headers...)).expect(t, rt.name()+" with "+what, want)
		}
		send("a session", s.status, all.with()...)
		send("the cookie alone", 401, "Cookie", all.cookie)
		send("the header alone", 401, headerSession, all.csrf)
		send("the header of another session", 401, "Cookie", all.cookie, headerSession, rival.csrf)
		send("the cookie of another session", 401, "Cookie", rival.cookie, headerSession, all.csrf)
		send("an empty header", 401, "Cookie", all.cookie, headerSession, "")
		send("two cookies", 401, "Cookie", all.cookie+"; "+rival.cookie, headerSession, all.csrf)
		send("a cookie of another name", 401, "Cookie", "other"+all.cookie, headerSession, all.csrf)
		send("a token that is refused besides", 401, all.with("Authorization", "Bearer unknown")...)
		hello := 401
		if rt.name() == "GET /v1/session" {
			hello = 200
		}
		send("hello", hello, "Cookie", all.cookie, headerSession, helloWord)
		if !rt.rule.Any && !rt.rule.Scope.Has(auth.TaskRead) && !rt.rule.Or.Any(auth.TaskRead) {
			send("a session of a token that may only read", 403, reader.with()...)
		}
	})
	r.send(r.request("POST", codePath, "", "", all.with()...)).expect(t, "a code for a session", 400)
}

func TestASessionReachesItsOwnTenantAlone(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.AddTask(r.t, "rival", apitest.ID(1))
	rival := r.signIn(`{"token":"rival/all"}`)
	eachRoute(t, func(rt *Route, s sampleRequest) {
		got := r.n.ReachedBy(func() { r.send(r.request(rt.Method, s.path, "", s.body, rival.with()...)) })
		if len(got) > 0 {
			r.n.ExpectReached(r.t, rt.name(), "rival", got)
		}
	})
}

// A page of another origin has the cookie, and what browsers let it send: 0 of these requests change or read anything.
func TestOtherOriginsDoNothingWithASession(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	s := r.signIn(`{"token":"acme/all"}`)
	own := "http://" + r.web.String()
	type foreign struct {
		what    string
		headers []string
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	text := []string{"Content-Type", "text/plain"}
	var all []foreign
	add := func(what string, headers ...[]string) {
		f := foreign{what: what}
		for _, h := range headers {
			f.headers = append(f.headers, h...)
		}
		all = append(all, f)
	}
	header := []string{headerSession, s.csrf} // as if a page had learned it
	for _, from := range []string{"https://evil.example", "null", "http://127.0.0.1:1", own + ".evil.example"} {
		origin := []string{"Origin", from}
		add("a form of "+from, form, origin)
		add("text of "+from, text, origin)
		add("a fetch of "+from, header, origin)
	}
	for _, site := range []string{"cross-site", "same-site", "none"} {
		for _, dest := range []string{"document", "image", "iframe", "empty"} {
			add("Sec-Fetch "+site+" "+dest, []string{"Sec-Fetch-Site", site, "Sec-Fetch-Dest", dest})
			add("Sec-Fetch "+site+" "+dest+" with the header", header, []string{"Sec-Fetch-Site", site, "Sec-Fetch-Dest", dest})
		}
	}
	for _, dest := range []string{"document", "image", "script", "iframe", "style"} {
		add("a "+dest+" of this origin", header, []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", dest})
	}
	add("a navigation")
	if len(all) < 40 {
		t.Errorf("%d cases", len(all))
	}
	reached := r.n.ReachedBy(func() {
		for i, f := range all {
			f.headers = append(f.headers, "Cookie", s.cookie)
			for _, one := range [][3]string{
				{"POST", "/v1/tasks", `{"queue":"mail","payload":{}}`},
				{"GET", "/v1/tasks?queue=mail&state=ready", ""},
				{"DELETE", "/v1/tasks/" + apitest.ID(1), ""},
				{"GET", "/v1/session", ""},
				{"DELETE", "/v1/session", ""},
				{"POST", "/v1/sessions:end", ""},
				{"GET", "/v1/events?topics=queues", ""},
			} {
				r.send(r.request(one[0], one[1], "", one[2], f.headers...)).expect(t, fmt.Sprint(i, " ", f.what, ": ", one), 401)
			}
		}
	})
	if len(reached) > 0 {
		t.Errorf("reached %v", reached)
	}
	// The same from this server's own page.
	for _, headers := range [][]string{nil, {"Origin", own}, {"Origin", own, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty"}} {
		r.send(r.request("POST", "/v1/tasks", "", `{"queue":"mail"}`, s.with(headers...)...)).expect(t, fmt.Sprint("own page ", headers), 201)
	}
}

func TestOtherOriginsSignInWithoutEffect(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	signIn := func(what string, want int, headers ...string) {
		req := r.request("POST", "/v1/session", "", `{"token":"acme/all"}`)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		if a := r.send(req).expect(t, what, want); (a.header.Get("Set-Cookie") != "") != (want == 200) {
			t.Errorf("%s: %v", what, a.header)
		}
	}
	signIn("a form", 400, "Content-Type", "text/plain")
	signIn("another origin", 400, "Origin", "https://evil.example")
	signIn("another site", 400, "Sec-Fetch-Site", "cross-site")
	signIn("own page", 200, "Origin", "http://"+r.web.String())
	// A preflight is granted nothing.
	a := r.send(r.request("OPTIONS", "/v1/session", "", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", headerSession))
	if a.status < 400 {
		t.Errorf("preflight: %d", a.status)
	}
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control") {
			t.Errorf("preflight: %s", name)
		}
	}
}

func TestWhoCannotSignInLearnsNothing(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.auth.Revoke("acme/all/5s")
	bodies := make(map[string]bool)
	for _, body := range []string{`{"token":"unknown"}`, `{"token":"acme/all/-1s"}`, `{"token":"acme/all/5s"}`, `{"code":"unknown"}`, `{"token":"` + strings.Repeat("x", auth.MaxText+1) + `"}`} {
		a := r.send(r.request("POST", "/v1/session", "", body)).expect(t, body[:min(30, len(body))], 401)
		a.header.Del("Date")
		bodies[fmt.Sprint(a.header, a.body)] = true
	}
	if len(bodies) != 1 {
		t.Errorf("%d different refusals: %v", len(bodies), bodies)
	}
	for body, want := range map[string]string{
		`{}`: "token", `{"token":"a","code":"b"}`: "code", `{"user":"a"}`: "user", `{"token":7}`: "token", `[]`: "body",
	} {
		f := failed(t, r.send(r.request("POST", "/v1/session", "", body)).expect(t, body, 400))
		if f.Field != want {
			t.Errorf("%s: %+v", body, f)
		}
	}
	f := failed(t, r.send(r.request("POST", "/v1/session", "", `{"token":"`+strings.Repeat("x", signInBytes)+`"}`)).expect(t, "a long body", 413))
	if f.Limit != limitBody || f.Max != signInBytes {
		t.Errorf("%+v", f)
	}
}

func TestAnAddressThatFailsTenTimesInAMinuteWaits(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	for range 3 * auth.AttemptsMinute {
		r.signIn(`{"token":"acme/all"}`) // who succeeds is not counted
	}
	for range auth.AttemptsMinute {
		r.send(r.request("POST", "/v1/session", "", `{"token":"unknown"}`)).expect(t, "an attempt", 401)
	}
	a := r.send(r.request("POST", "/v1/session", "", `{"token":"acme/all"}`)).expect(t, "one attempt more", 429)
	if f := failed(t, a); f.Code != "RATE_LIMITED" || f.Limit != auth.LimitAttempts || f.RetryMs <= 0 || a.header.Get("Retry-After") == "" {
		t.Errorf("%+v", f)
	}
	r.clock.Advance(time.Minute)
	r.signIn(`{"token":"acme/all"}`)
}

func TestACodeSignsInOnceAndForAMinute(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	code := func() string {
		var out struct{ Code, Expires string }
		a := r.do("POST", codePath, "").expect(t, "code", 200)
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || out.Code == "" || !strings.Contains(a.body, `"expires_in":"60s"`) {
			t.Fatalf("%s: %v", a.body, err)
		}
		return `{"code":"` + out.Code + `"}`
	}
	refused := func(what, body string) {
		t.Helper()
		r.send(r.request("POST", "/v1/session", "", body)).expect(t, what, 401)
	}
	first := code()
	s := r.signIn(first)
	r.send(r.request("GET", "/v1/queues", "", "", s.with()...)).expect(t, "by a code", 200)
	refused("the same code", first)
	// The code of another node is told from one that is not known, by its text alone.
	other := strings.Replace(code(), `-1"`, `-2"`, 1)
	if f := failed(t, r.send(r.request("POST", "/v1/session", "", other)).expect(t, "a code of another node", 400)); f.Field != "code" || !strings.Contains(f.Message, "node 2") {
		t.Errorf("%+v", f)
	}
	for _, tail := range []string{"", "-", "-x", "-1", "-01", "x2"} {
		refused("a code that was made up", `{"code":"`+strings.Repeat("a", 43)+tail+`"}`)
		r.clock.Advance(time.Minute) // attempts are counted
	}
	late := code()
	r.clock.Advance(auth.CodeLasts)
	refused("a code after its time", late)
	gone := code()
	r.auth.Revoke("acme/all")
	refused("a code of a removed token", gone)
	r.auth.Mu.Lock()
	delete(r.auth.Revoked, "acme/all")
	r.auth.Mu.Unlock()
	refused("the same later", gone)
	for range 10 {
		code()
	}
	if f := failed(t, r.do("POST", codePath, "").expect(t, "an eleventh code", 429)); f.Limit != auth.LimitCodes || f.Max != 10 {
		t.Errorf("%+v", f)
	}
}

func TestASessionEndsWithItsTokenAndByItself(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	get := func(s signedIn, want int) {
		t.Helper()
		r.send(r.request("GET", "/v1/queues", "", "", s.with()...)).expect(t, "read", want)
	}
	s, short := r.signIn(`{"token":"acme/all"}`), r.signIn(`{"token":"acme/all/1h"}`)
	r.clock.Advance(time.Hour)
	get(short, 401)
	get(s, 200)
	r.clock.Advance(11 * time.Hour)
	get(s, 401)
	s = r.signIn(`{"token":"acme/all"}`)
	stream, err := r.client.Do(r.request("GET", "/v1/events?topics=queues", "", "", s.with()...))
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatal(err, stream)
	}
	r.auth.Revoke("acme/all")
	get(s, 401)
	r.s.Live.Sweep()
	for err == nil {
		_, err = stream.Body.Read(make([]byte, 1024)) // until its end
	}
	_ = stream.Body.Close() // its end was read
	// Signing out takes the cookie away; ending all sessions ends those of every cookie.
	r.auth.Mu.Lock()
	delete(r.auth.Revoked, "acme/all")
	r.auth.Mu.Unlock()
	out := r.send(r.request("DELETE", "/v1/session", "", "", s.with()...)).expect(t, "sign out", 204)
	if c := out.header.Get("Set-Cookie"); !strings.HasPrefix(c, "millrace_test=;") || !strings.Contains(c, "Max-Age=0") {
		t.Errorf("cookie %q", c)
	}
	get(s, 200)
	r.send(r.request("POST", "/v1/sessions:end", "", "", s.with()...)).expect(t, "end all", 204)
	get(s, 401)
}

func TestAServerWithoutSessionsHasNoRouteOfThem(t *testing.T) {
	r := newRig(t, edge.Limits{})
	h, err := New(r.s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var p params
	for _, rt := range sessionRoutes() {
		req, err := http.NewRequestWithContext(t.Context(), rt.Method, "http://h"+rt.Path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, fact := h.routes.find(req, &p); fact == nil {
			t.Errorf("%s is there", rt.name())
		}
	}
}
