package rest

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/millrace/millrace/internal/edge"
)

// newPagesRig is a rig with a web interface of three files.
func newPagesRig(t *testing.T) *restRig {
	t.Helper()
	r := newRESTRig(t, edge.Limits{})
	files := fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><script type="module" src="/ui/app.js"></script><link rel="stylesheet" href="/ui/app.css">`)},
		"app.js":     {Data: []byte(strings.Repeat("let a = 1;\n", 500))},
		"app.css":    {Data: []byte("b{}")},
	}
	p, err := newPages(files)
	if err != nil {
		t.Fatal(err)
	}
	r.h.pages = p
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return r
}

func TestTheWebInterfaceIsServed(t *testing.T) {
	r := newPagesRig(t)
	get := func(path string, want int, more ...string) answer {
		t.Helper()
		a := r.send(r.request("GET", path, "", "", more...)).expect(t, path, want)
		for name, value := range map[string]string{
			"Content-Security-Policy": pagesPolicy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Strict-Transport-Security": "",
		} {
			if got := a.header.Get(name); got != value {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		return a
	}
	if a := get("/", 303, "Accept", "text/html,*/*;q=0.8"); a.header.Get("Location") != "/ui/" {
		t.Errorf("/: %v", a.header)
	}
	get("/ui", 303)
	r.send(r.request("GET", "/", "", "")).expect(t, "/ for a program", 404)
	index := get("/ui/", 200)
	if !strings.Contains(index.body, "/ui/app.js?v=") || index.header.Get("Cache-Control") != "no-cache" || index.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("index: %v %s", index.header, index.body)
	}
	if other := get("/ui/queues/mail", 200); other.body != index.body {
		t.Errorf("a page within: %s", other.body)
	}
	_, rest, _ := strings.Cut(index.body, `src="`)
	address, _, _ := strings.Cut(rest, `"`)
	app := get(address, 200)
	if app.header.Get("Cache-Control") != "public, max-age=31536000, immutable" || app.header.Get("Content-Type") != "text/javascript; charset=utf-8" || !strings.HasPrefix(app.body, "let a") {
		t.Errorf("app.js: %v", app.header)
	}
	if old := get("/ui/app.js?v=other", 200); old.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("another version: %v", old.header)
	}
	for _, tag := range []string{app.header.Get("Etag"), `W/"x", ` + app.header.Get("Etag"), "*"} {
		if a := get("/ui/app.js", 304, "If-None-Match", tag); a.body != "" {
			t.Errorf("304 with %q", a.body)
		}
	}
	get("/ui/app.js", 200, "If-None-Match", `"x"`)
	head := r.send(r.request("HEAD", "/ui/app.js", "", "")).expect(t, "HEAD", 200)
	if head.body != "" || head.header.Get("Content-Length") != "5500" {
		t.Errorf("HEAD: %v", head.header)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if a := r.send(r.request(method, "/ui/", "", "x")).expect(t, method, 405); a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %v", method, a.header)
		}
	}
}

// Two names of one script would be two scripts for a browser, each with a state of its own.
func TestFilesNameEachOtherByOneVersion(t *testing.T) {
	p, err := newPages(fstest.MapFS{
		"index.html": {Data: []byte(`<script type="module" src="/ui/app.js"></script>`)},
		"app.js":     {Data: []byte("import(`./pages.js`);import('./chart.js');\"./other.js\"")},
		"pages.js":   {Data: []byte(`import{a}from"./app.js";`)},
		"chart.js":   {Data: []byte(`import{b}from"./app.js";`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := "?v=" + p.version
	for name, want := range map[string]string{
		"index.html": `<script type="module" src="/ui/app.js` + v + `"></script>`,
		"app.js":     "import(`./pages.js" + v + "`);import('./chart.js" + v + "');\"./other.js\"",
		"pages.js":   `import{a}from"./app.js` + v + `";`,
	} {
		if got := string(p.files[name].body); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestFilesAreCompressedForWhoTakesThat(t *testing.T) {
	r := newPagesRig(t)
	a := r.send(r.request("GET", "/ui/app.js", "", "", "Accept-Encoding", "br, gzip"))
	if a.header.Get("Content-Encoding") != "gzip" || a.header.Get("Vary") != "Accept-Encoding" || len(a.body) > 500 {
		t.Fatalf("%v, %d bytes", a.header, len(a.body))
	}
	z, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil || len(b) != 5500 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	r.send(r.request("GET", "/ui/app.js", "", "", "Accept-Encoding", "gzip", "If-None-Match", a.header.Get("Etag"))).expect(t, "the same", 304)
	for _, none := range []string{"gzip;q=0", "br", "identity", ""} {
		if a := r.send(r.request("GET", "/ui/app.js", "", "", "Accept-Encoding", none)); a.header.Get("Content-Encoding") != "" || len(a.body) != 5500 {
			t.Errorf("%q: %v", none, a.header)
		}
	}
}

func TestAnswersOfTheInterfaceForProgramsAreNoPages(t *testing.T) {
	r := newPagesRig(t)
	for _, path := range []string{"/v1/queues", "/v1/kv/ks/keys/k", "/v1/openapi.json", "/v1/nothing", "/v1/events?topics=queues"} {
		if a := r.do("GET", path, "", "Accept", "text/html"); a.header.Get("Content-Security-Policy") != "default-src 'none'; sandbox; frame-ancestors 'none'" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}

func TestAProgramWithoutFilesHasNoWebInterface(t *testing.T) {
	if p, err := newPages(fstest.MapFS{}); p != nil || err != nil {
		t.Errorf("%v, %v", p, err)
	}
}

// Only a name of a host can be held to TLS: an address cannot, and localhost is shared by all programs of a machine.
func TestOnlyNamesOfHostsAreHeldToTLS(t *testing.T) {
	p, err := newPages(fstest.MapFS{"index.html": {Data: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, edge.Limits{})
	h, err := New(r.s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.pages = p
	for host, want := range map[string]string{"db.example:1": hstsLasts, "db.example": hstsLasts, "localhost": "", "127.0.0.1": "", "[::1]": ""} {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/ui/", http.NoBody)
		req.Host = host
		secure := &edge.Conn{Conn: new(net.TCPConn), Secure: true}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req.WithContext(edge.WithConn(req.Context(), secure)))
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}
