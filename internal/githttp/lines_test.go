package githttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// lineStage is a stage that reads the requests of fetches, and says how much of them git got.
type lineStage struct {
	*stage
	got int
}

func (s *lineStage) Fetch(_ context.Context, _ Fetch, in func(io.Writer) error, _ func(io.Reader) error) error {
	var b bytes.Buffer
	err := in(&b)
	s.got = b.Len()
	return err
}

// deflated is a body as a client sends it.
func deflated(parts ...string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, p := range parts {
		_, _ = io.WriteString(z, p)
	}
	_ = z.Close()
	return b.Bytes()
}

func randomHaves(n int) string {
	var b strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		fmt.Fprintf(&b, "0032have %016x%016x%08x\n", r.Uint64(), r.Uint64(), r.Uint32())
	}
	return b.String()
}

func TestLinesThatCostMoreThanTheyWeighAreRefused(t *testing.T) {
	const id = "0123456789012345678901234567890123456789"
	have, want := "0032have "+id+"\n", "0032want "+id+"\n"
	var counting strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&counting, "0032have %040x\n", i)
	}
	for _, c := range []struct {
		name, version string
		body          []byte
		limit         string // empty: it is taken
	}{
		{"capabilities before a list of refs", "2", deflated("0014command=ls-refs\n", strings.Repeat("0005x", 200_000), "0001", "0000"), "git_arguments"},
		{"empty lines before a list of refs", "2", deflated("0014command=ls-refs\n", strings.Repeat("0004", 200_000), "00010000"), "git_arguments"},
		{"sections of a list of refs", "2", deflated("0014command=ls-refs\n", strings.Repeat("0001", 200_000), "0000"), "git_arguments"},
		{"capabilities before a fetch", "2", deflated("0011command=fetch", strings.Repeat("0005x", 200_000), "0001"+want+"0009done\n0000"), "git_lines"},
		{"one id had many times", "2", deflated("0011command=fetch0001"+want, strings.Repeat(have, 200_000), "0009done\n0000"), "git_lines"},
		{"one id wanted many times", "2", deflated("0011command=fetch0001", strings.Repeat(want, 200_000), "0009done\n0000"), "git_lines"},
		{"ids that count up", "2", deflated("0011command=fetch0001"+want, counting.String(), "0009done\n0000"), "git_lines"},
		{"one id had many times, version 0", "0", deflated(want+"0000", strings.Repeat(have, 200_000), "0009done\n"), "git_lines"},
		{"flushes, version 0", "0", deflated(want, strings.Repeat("0000", 200_000)), "git_lines"},
		{"ids of a large clone", "2", deflated("0011command=fetch0001"+want, randomHaves(100_000), "0009done\n0000"), ""},
		{"ids of a large clone, version 0", "0", deflated(want+"0000", randomHaves(100_000), "0009done\n"), ""},
		{"a list of refs", "2", deflated("0014command=ls-refs\n0005x0001", strings.Repeat("0013ref-prefix HEAD", 3), "0000"), ""},
	} {
		s := &lineStage{stage: &stage{t: t}}
		server := New(Options{Backend: s, Objects: s, Auth: s, Clock: new(steps), Rand: env.SystemRand{}})
		r := httptest.NewRequest(http.MethodPost, "/git/default/app.git/git-upload-pack", bytes.NewReader(c.body))
		r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		r.Header.Set("Content-Encoding", "gzip")
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Git-Protocol", "version="+c.version)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if refused := strings.Contains(w.Body.String(), "limit git_"); refused != (c.limit != "") || !strings.Contains(w.Body.String(), c.limit) {
			t.Errorf("%s, %d bytes: %d %.200q, not %q", c.name, len(c.body), w.Code, w.Body, c.limit)
		}
		if c.limit != "" && s.got > 7<<20 {
			t.Errorf("%s: git got %d bytes", c.name, s.got)
		}
	}
}

func TestCountedLinesPassUnchanged(t *testing.T) {
	for _, in := range []string{"", "0000", "0032want 1", "00", "zzzz and so on", "0009done\n0001000200040005x", randomHaves(10)} {
		c := &counted{r: iotest.OneByteReader(strings.NewReader(in)), wire: func() int64 { return 0 }}
		if got, err := io.ReadAll(c); err != nil || string(got) != in {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	c := &counted{r: strings.NewReader(strings.Repeat("0000", linesFree+5)), wire: func() int64 { return 4 * lineBytes }}
	if _, err := io.ReadAll(c); !errors.Is(err, core.TooLarge{Field: "body", Limit: "git_lines", Max: linesFree}) || c.lines != linesFree+5 {
		t.Errorf("%d lines: %v", c.lines, err)
	}
}
