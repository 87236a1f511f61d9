package githttp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// The statuses and texts that git clients have seen so far: scripts around git compare them.
func TestAFactLeavesWithTheStatusAndTextThatGitClientsKnow(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{core.Unauthenticated{}, 401, core.Unauthenticated{}.Error()},
		{core.NotFound{Kind: "namespace", ID: "x"}, 404, "repository not found"},
		{core.NotFound{Kind: "repository", ID: "x"}, 404, "repository not found"},
		{core.RefRefused{Failures: []core.RefFailure{{Reason: core.RefRepoNotFound}}}, 404, "repository not found"},
		{core.Denied{Scope: "ref:write"}, 403, core.Denied{Scope: "ref:write"}.Error()},
		{core.TooLarge{Field: "pack", Limit: "max_push", Max: 9}, 413, core.TooLarge{Field: "pack", Limit: "max_push", Max: 9}.Error()},
		{core.Invalid{Field: "body", Message: "is not gzip"}, 400, "body: is not gzip"},
		{core.Exhausted{Limit: "disk"}, 507, core.Exhausted{Limit: "disk"}.Error()},
		{core.Exhausted{Limit: limitRate, Max: 9}, 408, core.Exhausted{Limit: limitRate, Max: 9}.Error()},
		{core.Exhausted{Limit: "git_memory"}, 429, core.Exhausted{Limit: "git_memory"}.Error()},
		{core.NotLeader{Leader: "10.0.0.1:7081"}, 503, "no leader now"},
		{core.Unavailable{Reason: "git_unavailable"}, 503, core.Unavailable{Reason: "git_unavailable"}.Error()},
		{core.Unavailable{Reason: "overload", Limit: "git_command_bytes"}, 503, core.Unavailable{Reason: "overload"}.Error() + ": git_command_bytes"},
		{core.DeadlineExceeded{}, 503, core.DeadlineExceeded{}.Error()},
		{fmt.Errorf("read: %w", errs.Corruptf("pack 7")), 500, "stored data is damaged"},
		{errors.New("/var/lib/millrace: no such file"), 500, "internal error"},
		{&refusal{status: 415, text: "no"}, 415, "no"},
	} {
		if status, text := describe(c.err); status != c.status || text != c.text {
			t.Errorf("%v: %d %q, not %d %q", c.err, status, text, c.status, c.text)
		}
	}
}
