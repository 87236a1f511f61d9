package api

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// Who reads a task's attempts learns which of them one stream had, and nothing by which it could resume the stream's session.
func TestReadersSeeNoIDOfASession(t *testing.T) {
	id := core.SessionID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	a, b := showAttempt(core.Attempt{Session: id}), showAttempt(core.Attempt{Session: id, Number: 2})
	other := showAttempt(core.Attempt{Session: core.SessionID{1}})
	if a.Session != b.Session || a.Session == other.Session || len(a.Session) != 16 {
		t.Errorf("the same stream is shown as %q and %q, another one as %q", a.Session, b.Session, other.Session)
	}
	if strings.Contains(hex.EncodeToString(id[:]), a.Session) {
		t.Errorf("%q is a part of the id", a.Session)
	}
	if w := showWorker(&core.Worker{Sessions: []core.SessionID{id}}); w.Sessions[0] != a.Session {
		t.Errorf("the worker of %q is shown with %q", a.Session, w.Sessions[0])
	}
	if none := showAttempt(core.Attempt{}).Session; none != "" {
		t.Errorf("an attempt without a stream shows %q", none)
	}
}
