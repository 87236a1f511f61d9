package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// The lines by which others publish how to repeat their figures do so here, with flags of one dash or two.
func TestTheLoadGeneratorOfSearchesTakesLinesAsTheyArePrinted(t *testing.T) {
	t.Parallel()
	_, serving := serveWeb(t)
	w := serving()
	url, dir := "http://"+w.address, t.TempDir()
	run := func(line string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(line)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MILLRACE_TOKEN="+w.token)
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		}
		noErr(t, err)
		return string(out), 0
	}
	must := func(line string, want ...string) {
		t.Helper()
		out, code := run(line)
		for _, text := range append(want, " 0 errors") {
			if code != 0 || !strings.Contains(out, text) {
				t.Errorf("%s: exit %d, %s, want %q", line, code, out, text)
			}
		}
	}
	if out, code := run("bench search prepare --workers 300 --orders 10 --styles all --load " + url + " --drop"); code != 0 || !strings.Contains(out, "40 bodies") {
		t.Fatalf("prepare: exit %d, %s", code, out)
	}
	var both sync.WaitGroup // as two processes, each with a report of its own
	for _, line := range []string{
		"bench search -url " + url + "/v1/matrix/search -bodies-file search.jsonl -concurrency 2 -duration 200ms",
		"bench search -url=" + url + "/v1/embed -bodies-file=embed.jsonl -concurrency=2 -duration=200ms",
	} {
		both.Go(func() { must(line) })
	}
	both.Wait()
	must("bench search "+url+" --bodies search.jsonl --concurrency 1,2 --window 100ms", "  1 clients", "  2 clients")
	must("bench search "+url+" --mixed embed=1,search=2 --window 200ms", "/v1/embed  1 clients", "/v1/matrix/search  2 clients")
	must("bench search "+url+" --rate 100 --arrivals burst:5x --concurrency 4 --window 200ms --cold --validate full", "recall@10 1.0000  0 rows")
	for _, wrong := range []string{
		"--concurrency 1 -concurrency 2", "--arrivals never", "--validate some", "--mixed embed", "--unknown",
	} {
		if out, code := run("bench search " + url + " " + wrong); code != 2 {
			t.Errorf("%s: exit %d, %s", wrong, code, out)
		}
	}
}
