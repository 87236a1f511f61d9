package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

const (
	results       = "../results"
	referencePage = "../../docs/reference/bench.md"
	readme        = "../../README.md"
)

// TestReferencePageIsUpToDate holds the generated page and the table of the README against the
// committed results. With -update it writes them.
func TestReferencePageIsUpToDate(t *testing.T) {
	want, err := Reference(results)
	if err != nil {
		t.Fatal(err)
	}
	sameFile(t, referencePage, want)
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Summary(results)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = Insert(text, table); err != nil {
		t.Fatal(err)
	}
	sameFile(t, readme, text)
}

func sameFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the results in bench/results say; write it again with: "+
			"go test ./bench/report -run '^TestReferencePageIsUpToDate$' -update", path)
	}
}

// commitFile writes a file below a directory of results.
func commitFile(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// commitResults lays out results of two hosts, one of which names its baseline.
func commitResults(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) { commitFile(t, dir, name, text) }
	older, newer := sample(t), sample(t)
	older.Env.Commit, newer.Env.Commit = "01de4", "2ece47"
	put("aaaa/2026-03-01-01de4.json", render(t, "json", older))
	put("aaaa/2026-03-04-2ece47.json", render(t, "json", newer))
	put("aaaa/BASELINE", "2026-03-01-01de4.json\n")
	put("bbbb/2026-03-01-01de4.json", render(t, "json", older))
	put("bbbb/2026-03-04-2ece47.json", render(t, "json", newer))
	put("cccc/readme.txt", "no result")
	return dir
}

func TestPageQuotesTheBaselineOfEachHostOrItsLastResult(t *testing.T) {
	dir := commitResults(t)
	text, err := Reference(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, second, ok := strings.Cut(string(text), "## Host bbbb")
	if !ok || !strings.Contains(first, "commit 01de4") || strings.Contains(first, "2ece47") {
		t.Errorf("the first host does not quote its baseline:\n%s", first)
	}
	if !strings.Contains(second, "commit 2ece47") || strings.Contains(second, "cccc") {
		t.Errorf("the second host does not quote its last result:\n%s", second)
	}
	for _, want := range []string{"must ≥ 45,000 met, aim ≥ 60,000 missed", "codeQ 76,639 cycles/s (12 cores, WSL2, none×1)"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for n, line := range strings.Split(string(text), "\n") {
		if rate.MatchString(line) && !class.MatchString(line) {
			t.Errorf("line %d: a rate without durability: %s", n+1, line)
		}
	}
	all, err := Committed(dir)
	if err != nil || len(all) != 2 || all[0].Env.Commit != "01de4" {
		t.Errorf("%d committed results, %v", len(all), err)
	}
}

func TestPageHasMillraceAndItsPeersSideBySide(t *testing.T) {
	dir := t.TempDir()
	r := sample(t)
	r.Suites = append(r.Suites, besidePeer(t, bench.Fsync, "Redis 7"))
	commitFile(t, dir, "aaaa/2026-03-01-01de4.json", render(t, "json", r))
	text, err := Reference(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "### Side by side with peers, fsync×1")
	if !ok || !strings.Contains(table, "| Redis 7, client 1.2 | 2,000 cycles/s · fsync×1 |") || !strings.Contains(table, "| Millrace | 8,000 cycles/s · fsync×1 |") {
		t.Errorf("the page has no table of peers: %s", table[:min(len(table), 1000)])
	}
}

// The short table is of the host that has most to say: that of another, which was measured in part, is on the page.
func TestSummaryIsOfTheHostWithMostRows(t *testing.T) {
	dir := t.TempDir()
	whole, part := sample(t), sample(t)
	whole.Env.Host.CPU, part.Env.Host.CPU = "the whole one", "the other"
	part.Suites = nil
	commitFile(t, dir, "aaaa/2026-03-01-01de4.json", render(t, "json", part))
	commitFile(t, dir, "bbbb/2026-03-01-01de4.json", render(t, "json", whole))
	text, err := Summary(dir)
	if err != nil || !strings.HasPrefix(string(text), "Machine of these figures: the whole one, ") || strings.Contains(string(text), "the other") {
		t.Errorf("%v: %s", err, text)
	}
	// A row that another result of the host has too stands once.
	commitFile(t, dir, "bbbb/2026-03-02-2ece47.json", render(t, "json", whole))
	commitFile(t, dir, "bbbb/BASELINE", "2026-03-01-01de4.json\n2026-03-02-2ece47.json\n")
	if twice, err := Summary(dir); err != nil || string(twice) != string(text) {
		t.Errorf("%v: a second result of the same rows changes the table to %s", err, twice)
	}
}

func TestBaselineThatIsMissingIsAnError(t *testing.T) {
	dir := commitResults(t)
	if err := os.WriteFile(filepath.Join(dir, "aaaa", BaselineFile), []byte("gone.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Reference(dir); err == nil || !strings.Contains(err.Error(), "gone.json") {
		t.Errorf("error %v", err)
	}
	if _, err := Summary(dir); err == nil {
		t.Error("a summary was made of it")
	}
}

func TestTableOfAReadmeIsReplacedBetweenItsMarks(t *testing.T) {
	table, err := Summary(commitResults(t))
	if err != nil {
		t.Fatal(err)
	}
	page := []byte("before\n" + Begin + "\nold\n" + End + "\nafter\n")
	got, err := Insert(page, table)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Insert(got, table)
	if err != nil || !bytes.Equal(got, again) {
		t.Errorf("a second time it differs: %v", err)
	}
	for _, want := range []string{"before\n" + Begin + "\nMachine of these figures: Example CPU", "| queue.cycle/unbatched | 45,100 cycles/s · fsync×1", End + "\nafter\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Error("the old table is still there")
	}
	if _, err := Insert([]byte("no marks"), table); err == nil {
		t.Error("a page without marks took a table")
	}
}
