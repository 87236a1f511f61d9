package rest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// PagesPrefix begins the paths of the web interface.
const PagesPrefix = "/ui/"

// indexPage is the page of all paths below PagesPrefix that are not a file.
const indexPage = "index.html"

// pagesPolicy is what a browser lets the web interface do: its scripts and styles are files of this server, it asks this server
// alone, and no page may frame it.
const pagesPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// hstsLasts is for how long a browser that has seen the web interface over TLS asks for nothing of that host without it.
const hstsLasts = "max-age=31536000"

// pageTypes are the types of files, by the ends of their names: those of the machine may differ.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

// page is a file of the web interface.
type page struct {
	kind string
	body []byte
	// small returns the body compressed, or nil where that is not smaller. The first call compresses it.
	small func() []byte
	// tag names the content, for the ETag.
	tag string
}

// pages serves the web interface. All files are in memory: they are a part of the program.
type pages struct {
	files map[string]*page
	// version names the content of all files together.
	version string
}

// newPages reads all files. It returns nil where there is no index.html: then the program has no web interface.
func newPages(files fs.FS) (*pages, error) {
	bodies := make(map[string][]byte)
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		bodies[name], err = fs.ReadFile(files, name)
		fmt.Fprintf(sum, "%s %d\n", name, len(bodies[name]))
		sum.Write(bodies[name])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of the web interface: %w", err)
	}
	if bodies[indexPage] == nil {
		return nil, nil //nolint:nilnil // a program without a web interface is not a failure
	}
	// The files name each other with one version for all of them, so that a browser keeps a file for good, still sees a new one,
	// and runs each script once: two names of one script would be two scripts.
	version := base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
	var names []string
	for name := range bodies {
		for _, quote := range []string{`"`, "'", "`"} {
			names = append(names, PagesPrefix+name+quote, PagesPrefix+name+"?v="+version+quote, "./"+name+quote, "./"+name+"?v="+version+quote)
		}
	}
	versioned := strings.NewReplacer(names...)
	p := &pages{files: make(map[string]*page), version: version}
	for name, body := range bodies {
		if ext := path.Ext(name); ext == ".html" || ext == ".js" {
			body = []byte(versioned.Replace(string(body)))
		}
		p.files[name] = newPage(name, body)
	}
	return p, nil
}

// newPage makes a page of a file.
func newPage(name string, body []byte) *page {
	sum := sha256.Sum256(body)
	f := &page{kind: pageTypes[path.Ext(name)], body: body, tag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	if f.kind == "" {
		f.kind = "application/octet-stream"
	}
	// The best level costs a tenth of a second for all files, which a server whose pages are not used need not spend.
	f.small = sync.OnceValue(func() []byte { return smaller(body) })
	return f
}

// smaller compresses a body; nil: that is not smaller.
func smaller(body []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err) // of another level alone
	}
	_, err = z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil || b.Len() >= len(body) {
		return nil
	}
	return b.Bytes()
}

// toPages reports whether a request is for the web interface.
func toPages(r *http.Request) bool {
	at := r.URL.EscapedPath()
	return strings.HasPrefix(at, PagesPrefix) || at == strings.TrimSuffix(PagesPrefix, "/") || at == "/" && wantsPage(r)
}

// wantsPage reports whether a client asks for a page rather than for JSON.
func wantsPage(r *http.Request) bool {
	for _, value := range r.Header["Accept"] {
		for kind := range strings.SplitSeq(value, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "text/html") {
				return true
			}
		}
	}
	return false
}

// showPage answers a request for the web interface. It needs no token: nothing in it is a secret.
func (c *restCall) showPage() {
	c.conn.Served()
	h := c.w.Header()
	h["Content-Security-Policy"] = []string{pagesPolicy}
	h["X-Frame-Options"] = []string{"DENY"}
	h["X-Content-Type-Options"] = noSniff
	h["Referrer-Policy"] = []string{"no-referrer"}
	h["Cross-Origin-Opener-Policy"] = []string{"same-origin"}
	h["Cross-Origin-Resource-Policy"] = []string{"same-origin"}
	// It holds for all ports of a host, so it would end plain text of other programs under the name of this machine.
	if c.conn != nil && c.conn.Secure && !isLocal(c.r.Host) {
		h["Strict-Transport-Security"] = []string{hstsLasts}
	}
	if m := c.r.Method; m != http.MethodGet && m != http.MethodHead {
		f := edge.WrongMethod{Allow: "GET, HEAD"}
		f.Field, f.Message = "method", "this path has GET, HEAD"
		c.fail(f)
		return
	}
	c.setDeadline(c.control.SetWriteDeadline, c.s.Limits.SendStallMs)
	c.leaveBody()
	name, below := strings.CutPrefix(c.r.URL.Path, PagesPrefix)
	if !below {
		h["Location"] = []string{PagesPrefix}
		h["Content-Length"] = []string{"0"}
		c.w.WriteHeader(http.StatusSeeOther)
		return
	}
	f := c.h.pages.files[name]
	if f == nil {
		f = c.h.pages.files[indexPage]
	}
	c.file(f)
}

// file answers with a file, or says that the client has it.
func (c *restCall) file(f *page) {
	h := c.w.Header()
	body, tag := f.body, `"`+f.tag+`"`
	h["Vary"] = []string{"Accept-Encoding"}
	if takesGzip(c.r.Header.Get("Accept-Encoding")) {
		if small := f.small(); small != nil {
			body, tag = small, `"`+f.tag+`-gz"`
			h["Content-Encoding"] = []string{"gzip"}
		}
	}
	h["Etag"] = []string{tag}
	h["Cache-Control"] = []string{"no-cache"}
	if c.r.URL.Query().Get("v") == c.h.pages.version {
		h["Cache-Control"] = []string{"public, max-age=31536000, immutable"}
	}
	if hasTag(c.r.Header.Get("If-None-Match"), f.tag) {
		delete(h, "Content-Encoding")
		c.w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = []string{f.kind}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method != http.MethodHead {
		_, _ = c.w.Write(body) // an error is of a client who is gone
	}
}

// takesGzip reads Accept-Encoding.
func takesGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		q, given := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		n, err := strconv.ParseFloat(q, 64)
		return !given || err == nil && n > 0
	}
	return false
}

// hasTag reports whether If-None-Match names a content, compressed or not.
func hasTag(header, want string) bool {
	for one := range strings.SplitSeq(header, ",") {
		tag := strings.TrimSuffix(strings.Trim(strings.TrimPrefix(strings.TrimSpace(one), "W/"), `"`), "-gz")
		if tag == want || tag == "*" {
			return true
		}
	}
	return false
}

// isLocal reports whether a header Host names this machine by a name or address that all machines have.
func isLocal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return env.Loopback(strings.Trim(strings.ToLower(host), "[]"))
}
