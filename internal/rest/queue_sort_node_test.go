package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// queueNames lists all queues by their pages.
func (d *door) queueNames(query string) (names []string) {
	d.t.Helper()
	for cursor := ""; ; {
		r := d.do(mail, http.MethodGet, "/v1/queues?limit=2&"+query+"&cursor="+cursor, "").want(d.t, 200)
		var page struct {
			Queues []struct{ Queue string }
			Cursor string
		}
		if err := json.Unmarshal(r.body, &page); err != nil {
			d.t.Fatal(err)
		}
		for _, q := range page.Queues {
			names = append(names, q.Queue)
		}
		if cursor = page.Cursor; cursor == "" {
			return names
		}
	}
}

func TestQueuesAreListedInOrdersAndByWhatIsWrong(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		d := openDoorOf(t, 2, mail)
		if partitions > 1 {
			d.do(mail, http.MethodPost, "/v1/namespace", fmt.Sprintf(`{"partitions": %d}`, partitions)).want(t, 201)
		}
		for i, name := range []string{"mail.a", "mail.b", "mail.c", "ml", "other"} {
			for range i + 1 {
				d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "`+name+`", "kind": "k", "payload": {}, "max_attempts": 1}`).want(t, 201)
			}
		}
		d.do(mail, http.MethodPost, "/v1/queues/ml:pause", ``).want(t, 200)
		for range 2 {
			id, token := d.claimOne("mail.b")
			d.do(mail, http.MethodPost, "/v1/tasks/"+id+"/fail", `{"token": "`+token+`", "error": {"code": "no"}, "fatal": true}`).want(t, 200)
		}
		for query, want := range map[string]string{
			"sort=name":                 "mail.a mail.b mail.c ml other",
			"sort=ready":                "other ml mail.c mail.a mail.b",
			"sort=dead":                 "mail.b mail.a mail.c ml other",
			"sort=ready&prefix=mail.":   "mail.c mail.a mail.b",
			"prefix=m":                  "mail.a mail.b mail.c ml",
			"prefix=mail.b":             "mail.b",
			"prefix=none":               "",
			"only=paused":               "ml",
			"only=dead":                 "mail.b",
			"only=stuck":                "",
			"only=paused&prefix=mail.a": "",
		} {
			if got := d.queueNames(query); !slices.Equal(got, strings.Fields(want)) {
				t.Errorf("%d partitions: %s: %v, want %s", partitions, query, got, want)
			}
		}
		// The only one without a ready task comes last.
		if got := d.queueNames("sort=oldest"); len(got) != 5 || got[4] != "mail.b" {
			t.Errorf("%d partitions: by the oldest: %v", partitions, got)
		}
		// In which order depends on whether a sample of the counters has come.
		if got := d.queueNames("sort=rate"); len(got) != 5 {
			t.Errorf("%d partitions: by rate: %v", partitions, got)
		}
		for _, query := range []string{"sort=size", "only=all", "prefix=-", "sort=ready&cursor=AAAA"} {
			d.do(mail, http.MethodGet, "/v1/queues?"+query, "").want(t, 400)
		}
	}
}
