package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestABatchOverRESTGoesToItsOneLeaderOrIsCarried(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.h.o.WebOf = func(address string) string { return "http://" + address + ".example" }
	r.n.Parts, r.n.Leaders = 4, apitest.LeadersOf("", "b", "b", "c")
	body := func(places ...uint16) string {
		var items []string
		for i, p := range places {
			items = append(items, fmt.Sprintf(`{"queue":"q","id":%q}`, apitest.IDIn(p, byte(i+1))))
		}
		return `{"tasks":[` + strings.Join(items, ",") + `]}`
	}
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a := r.do("POST", "/v1/tasks:batch", body(1, 2)).expect(t, "of one leader", http.StatusTemporaryRedirect)
	if got := a.header.Get("Location"); got != "http://b.example/v1/tasks:batch?hop=1" {
		t.Errorf("sent to %q", got)
	}
	a = r.do("POST", "/v1/tasks:batch", body(1, 3)).expect(t, "of two leaders", http.StatusOK)
	if strings.Count(a.body, `"replayed":false`) != 2 || !strings.Contains(a.body, `"index":"0"`) {
		t.Errorf("carried: %s", a.body)
	}
	r.n.Ready = map[uint16]bool{3: true}
	r.claims()
	a = r.do("POST", "/v1/tasks:claim", `{"queues":["q"]}`).expect(t, "a claim", http.StatusTemporaryRedirect)
	if got := a.header.Get("Location"); got != "http://c.example/v1/tasks:claim?hop=1" {
		t.Errorf("sent to %q", got)
	}
	r.do("POST", "/v1/tasks:claim?hop=1", `{"queues":["q"]}`).expect(t, "a claim that was sent here", http.StatusNoContent)
	r.do("POST", "/v1/tasks:claim", `{"queues":["q"],"partition":1}`).expect(t, "a claim of a partition", http.StatusTemporaryRedirect)
}
