package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
)

// page is a page of the web interface in a browser: its requests carry the browser's cookies, and the csrf of its session.
type page struct {
	t       *testing.T
	address string // host:port of REST
	browser *http.Client
	csrf    string
}

// newBrowser returns what keeps cookies by host, whatever the port, as browsers do.
func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	noErr(t, err)
	return &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
}

// send sends a request of the page with more headers, and returns status and body.
func (p *page) send(method, path, body string, header ...string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(bounded(p.t, time.Minute), method, "http://"+p.address+path, strings.NewReader(body))
	noErr(p.t, err)
	if p.csrf != "" {
		req.Header.Set("Millrace-Session", p.csrf)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.browser.Do(req)
	noErr(p.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	noErr(p.t, err)
	return resp.StatusCode, string(b)
}

// signIn signs in by a token or a code, or by the cookie alone after the page was loaded again, where with is empty.
func (p *page) signIn(with string) (status int, body string) {
	p.t.Helper()
	if with == "" {
		status, body = p.send("GET", "/v1/session", "", "Millrace-Session", "hello")
	} else {
		status, body = p.send("POST", "/v1/session", with)
	}
	if status == http.StatusOK {
		var s struct{ CSRF string }
		noErr(p.t, json.Unmarshal([]byte(body), &s))
		p.csrf = s.CSRF
	}
	return status, body
}

// expect sends a request and wants a status.
func (p *page) expect(what string, want int, method, path, body string, header ...string) {
	p.t.Helper()
	if status, got := p.send(method, path, body, header...); status != want {
		p.t.Errorf("%s: %s %s answers %d %s, want %d", what, method, path, status, got, want)
	}
}

// byToken is the body of who signs in by a token.
func byToken(token string) string { return fmt.Sprintf(`{"token":%q}`, token) }

func TestABrowserSignsInByALinkOnceAndByAToken(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"rival", "admin", ""}, holder{"acme", "admin", "2020-01-01T00:00:00Z"}, holder{"acme", "viewer", ""})
	browser := newBrowser(t)
	p := &page{t: t, address: l.running.HTTPAddress, browser: browser}
	link, err := l.running.SignInLink(l.tokens[0])
	noErr(t, err)
	base, code, _ := strings.Cut(link, "#code=")
	if base != "http://"+l.running.HTTPAddress+"/ui/" {
		t.Errorf("the link is %s", link)
	}
	if status, body := p.signIn(fmt.Sprintf(`{"code":%q}`, code)); status != 200 || !strings.Contains(body, `"principal":"h0"`) || !strings.Contains(body, `"durability":"fsync"`) {
		t.Fatalf("the link signs in with %d %s", status, body)
	}
	p.expect("a write of the page", 201, "POST", "/v1/tasks", `{"queue":"q"}`)
	second := &page{t: t, address: p.address, browser: newBrowser(t)}
	want := ""
	for what, with := range map[string]string{
		"the link again": fmt.Sprintf(`{"code":%q}`, code), "a wrong token": byToken("mr_wrong"), "an expired token": byToken(l.tokens[2]),
	} {
		status, body := second.signIn(with)
		if status != 401 || want != "" && body != want {
			t.Errorf("%s: %d %s", what, status, body)
		}
		want = body
	}
	// A page that was loaded again asks for its session.
	again := &page{t: t, address: p.address, browser: browser}
	again.expect("before it knows its session", 401, "GET", "/v1/queues", "")
	if status, body := again.signIn(""); status != 200 || again.csrf != p.csrf {
		t.Errorf("loaded again: %d %s", status, body)
	}
	again.expect("after it", 200, "GET", "/v1/queues", "")
	// A viewer only reads, and another tenant sees nothing of this one.
	viewer, rival := &page{t: t, address: p.address, browser: newBrowser(t)}, &page{t: t, address: p.address, browser: newBrowser(t)}
	viewer.signIn(byToken(l.tokens[3]))
	viewer.expect("a viewer", 200, "GET", "/v1/queues/q/stats", "")
	viewer.expect("a viewer", 403, "POST", "/v1/tasks", `{"queue":"q"}`)
	viewer.expect("a viewer", 403, "POST", "/v1/sessions:end", "")
	rival.signIn(byToken(l.tokens[1]))
	if status, body := rival.send("GET", "/v1/queues/q/stats", ""); status == 200 && strings.Contains(body, `"ready":1`) {
		t.Errorf("another tenant sees %s", body)
	}
	rival.csrf = p.csrf
	rival.expect("with the csrf of another tenant", 401, "GET", "/v1/queues", "")
	// Git takes no cookie.
	p.expect("git", 401, "GET", "/git/default/app.git/info/refs?service=git-upload-pack", "")
	p.expect("sign out", 204, "DELETE", "/v1/session", "")
	p.expect("after it", 401, "GET", "/v1/queues", "")
}

func TestARemovedTokenEndsItsSessionsAndTheirStreams(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"acme", "admin", ""})
	p := &page{t: t, address: l.running.HTTPAddress, browser: newBrowser(t)}
	p.signIn(byToken(l.tokens[1]))
	p.expect("a task", 201, "POST", "/v1/tasks", `{"queue":"q"}`)
	req, err := http.NewRequestWithContext(bounded(t, time.Minute), "GET", "http://"+p.address+"/v1/events?topics=queues", http.NoBody)
	noErr(t, err)
	req.Header.Set("Millrace-Session", p.csrf)
	stream, err := p.browser.Do(req)
	noErr(t, err)
	defer stream.Body.Close()
	if stream.StatusCode != 200 {
		t.Fatalf("events: %d", stream.StatusCode)
	}
	rows := fmt.Sprintf("tokens:\n  - name: h0\n    tenant: acme\n    hash: %s\n    roles: [admin]\n", server.HashToken(l.tokens[0]))
	noErr(t, os.WriteFile(filepath.Join(l.dir, "tokens.yaml"), []byte(rows), 0o600))
	noErr(t, l.running.Reload())
	p.expect("without its token", 401, "GET", "/v1/queues", "")
	if _, err := io.Copy(io.Discard, stream.Body); err != nil { // it ends, or the test's time does
		t.Errorf("the stream ends with %v", err)
	}
	if status, _ := p.signIn(byToken(l.tokens[1])); status != 401 {
		t.Errorf("the removed token signs in with %d", status)
	}
}

func TestTwoServersOfOneHostKeepTheirSessionsApart(t *testing.T) {
	t.Parallel()
	one, two := startLocal(t, holder{"acme", "admin", ""}), startLocal(t, holder{"acme", "admin", ""})
	browser := newBrowser(t)
	a, b := &page{t: t, address: one.running.HTTPAddress, browser: browser}, &page{t: t, address: two.running.HTTPAddress, browser: browser}
	a.signIn(byToken(one.tokens[0]))
	b.signIn(byToken(two.tokens[0]))
	for _, p := range []*page{a, b, a} {
		p.expect("side by side", 200, "GET", "/v1/queues", "")
	}
	if cookies := browser.Jar.Cookies(&url.URL{Scheme: "http", Host: a.address, Path: "/"}); len(cookies) != 2 || cookies[0].Name == cookies[1].Name {
		t.Errorf("cookies %v", cookies)
	}
	b.expect("sign out of one", 204, "DELETE", "/v1/session", "")
	a.expect("the other one stays", 200, "GET", "/v1/queues", "")
}

// moved is a page of another node with the session of p: the cookie has another name there, since ports share cookies.
func (p *page) moved(to string) *page {
	p.t.Helper()
	_, port, _ := strings.Cut(to, ":")
	_, own, _ := strings.Cut(p.address, ":")
	for _, c := range p.browser.Jar.Cookies(&url.URL{Scheme: "http", Host: p.address, Path: "/"}) {
		id, ok := strings.CutSuffix(c.Name, own)
		if !ok {
			continue // what an earlier move left, which may be of a session that node could not open
		}
		c.Name, c.Path = id+port, "/"
		p.browser.Jar.SetCookies(&url.URL{Scheme: "http", Host: to, Path: "/"}, []*http.Cookie{c})
	}
	return &page{t: p.t, address: to, browser: p.browser, csrf: p.csrf}
}

func TestNodesShareSessionsAndOneAloneStillSignsIn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	c.lead(0)
	if status, body := (web{t: t, address: c.peers[0].HTTP, token: c.token}).call("POST", "/v1/cluster/finalize", ""); status != 200 {
		t.Fatalf("finalize: %d %s", status, body)
	}
	p := &page{t: t, address: c.peers[1].HTTP, browser: newBrowser(t)}
	// A node seals with a key of its own where it took the leader too long to add one for all: the next sign-in finds that.
	var third *page
	until(t, "node 3 opens a session of node 2", func() bool {
		if status, body := p.signIn(byToken(c.token)); status != 200 {
			t.Fatalf("sign in at a follower: %d %s", status, body)
		}
		third = p.moved(c.peers[2].HTTP)
		status, _ := third.send("GET", "/v1/session", "")
		return status == 200
	})
	p.expect("a write that the leader serves", 201, "POST", "/v1/tasks?forward=1", `{"queue":"q"}`)
	third.expect("the same at the other follower", 201, "POST", "/v1/tasks?forward=1", `{"queue":"q"}`)
	third.expect("end all sessions", 204, "POST", "/v1/sessions:end", "")
	until(t, "the session has ended at node 2 too", func() bool {
		status, _ := p.send("GET", "/v1/session", "")
		return status == 401
	})
	// Where no node leads, a node seals with a key of its own.
	c.stop(0)
	c.stop(2)
	if status, body := p.signIn(byToken(c.token)); status != 200 {
		t.Fatalf("sign in without a leader: %d %s", status, body)
	}
	p.expect("who is signed in", 200, "GET", "/v1/session", "")
}
