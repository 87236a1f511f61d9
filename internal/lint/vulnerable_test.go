package lint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const vulnerableModule = `
-- go.mod --
module example.com/m

go 1.26
-- calls/main.go --
package main

import "os"

func main() { os.Exit(0) }
-- empty/index/db.json --
{"modified":"2026-01-01T00:00:00Z"}
-- empty/index/modules.json --
[]
-- db/index/db.json --
{"modified":"2026-01-01T00:00:00Z"}
-- db/index/modules.json --
[{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]
-- db/ID/GO-2026-0001.json --
{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z","summary":"Exit is bad",
"details":"Exit is bad","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
"ecosystem_specific":{"imports":[{"path":"os","symbols":["Exit"]}]}}],"references":[],"database_specific":{"url":"https://example.com"}}
`

// The script must tell what was found from what was not looked for.
func TestVulnerabilitiesAreFoundAndADatabaseOutOfReachIsTold(t *testing.T) {
	if os.Getenv("MILLRACE_CHECK") == "" {
		t.Skip("make check runs it: govulncheck is built, and reads the standard library five times")
	}
	dir := plantModule(t, vulnerableModule)
	script, err := filepath.Abs(filepath.Join(root, "scripts/vulnerabilities.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		db     string
		status int
		says   string
	}{
		{"file://" + dir + "/db", 3, "GO-2026-0001"},
		{"file://" + dir + "/empty", 0, "No vulnerabilities found"},
		{"http://127.0.0.1:1", 75, "SKIPPED: the database of vulnerabilities http://127.0.0.1:1 is out of reach"},
		{"file://" + dir + "/absent", 1, "absent"},
		{"gopher://127.0.0.1", 1, "gopher"},
	} {
		cmd := exec.Command(script, dir)
		cmd.Env = append(os.Environ(), "GOVULNDB="+c.db)
		said, err := cmd.CombinedOutput()
		status := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != c.status || !strings.Contains(string(said), c.says) {
			t.Errorf("%s: %d, not %d with %q: %s", c.db, status, c.status, c.says, said)
		}
	}
}
